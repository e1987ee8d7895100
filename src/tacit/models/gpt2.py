"""GPT-2 for causal language modelling: transformers' own model, new or from a local folder.

The shape of Zhao et al. 2022 (appendix A.3) is that of distilgpt2: 6 layers, width 768, 12 heads. A shape for a laptop is
4 layers of width 256.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from tacit.config import ModelOptions
from tacit.errors import DataError
from tacit.models.seeded import seeded

__all__ = ["build_gpt2", "load_gpt2", "save_gpt2"]


def build_gpt2(
    options: ModelOptions, vocabulary_size: int, pad_id: int, start_id: int, end_id: int, seed: int
) -> GPT2LMHeadModel:
    """A new GPT2LMHeadModel with tied embeddings and ``options.length`` positions, its weights a function of the seed.

    Its config lets it keep keys and values, as a released model needs that to write text at speed; training and scoring
    (`tacit.models.causal`) switch that off at every call.
    """
    config = GPT2Config(
        vocab_size=vocabulary_size,
        n_positions=options.length,
        n_embd=options.width,
        n_layer=options.layers,
        n_head=options.heads,
        n_inner=options.intermediate_width,
        resid_pdrop=options.dropout,
        embd_pdrop=options.dropout,
        attn_pdrop=options.dropout,
        pad_token_id=pad_id,
        bos_token_id=start_id,
        eos_token_id=end_id,
        tie_word_embeddings=True,
    )
    return seeded(GPT2LMHeadModel, config, seed)


def load_gpt2(folder: Path, length: int | None = None, vocabulary_size: int | None = None) -> GPT2LMHeadModel:
    """The GPT-2 in a local Hugging Face folder (distilgpt2 is one too), in float32; never from a hub.

    Args:
        folder: config.json and the weights.
        length: positions that the rows will have, where the caller knows it.
        vocabulary_size: token ids that the rows will hold.

    Raises:
        DataError: no config.json, another kind of model, fewer positions or token ids than asked for, or weights that
            cannot be read, or not all of them: transformers would draw what is missing at random.
    """
    _check_config(folder, length, vocabulary_size)
    logging.disable_progress_bar()
    try:
        loaded: Any = GPT2LMHeadModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        kind = type(error).__name__
        raise DataError(
            f"{folder}: the weights cannot be read ({kind}); save the model again with transformers"
        ) from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise DataError(
            f"{folder} has no weights for {len(missing)} parameters, such as {missing[0]}; give a whole model"
        )
    return model


def save_gpt2(model: GPT2LMHeadModel, folder: Path) -> None:
    """Write config.json and model.safetensors."""
    logging.disable_progress_bar()
    model.save_pretrained(folder)


def _check_config(folder: Path, length: int | None, vocabulary_size: int | None) -> None:
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} has no config.json that can be read; give the folder of a saved GPT-2") from error
    kind = values.get("model_type") if isinstance(values, dict) else None
    if kind != GPT2Config.model_type:
        raise DataError(f"{folder} holds a model of type {kind!r}; give the folder of a GPT-2")
    defaults = GPT2Config()
    positions = values.get("n_positions", values.get("max_position_embeddings", defaults.n_positions))
    if length is not None and positions < length:
        raise DataError(
            f"{folder}: the model has {positions} positions, fewer than the {length} of a row; shorten the rows"
        )
    ids = values.get("vocab_size", defaults.vocab_size)
    if vocabulary_size is not None and ids < vocabulary_size:
        raise DataError(
            f"{folder}: the model knows {ids} token ids and the tokenizer has {vocabulary_size}; use its own"
        )

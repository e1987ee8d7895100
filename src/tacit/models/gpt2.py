"""GPT-2 for causal language modelling: transformers' own model, new or from a local folder.

The shape of Zhao et al. 2022 (appendix A.3) is that of distilgpt2: 6 layers, width 768, 12 heads. A shape for a laptop is
4 layers of width 256.
"""

from __future__ import annotations

from pathlib import Path

from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from tacit.config import ModelOptions
from tacit.config.shape import folder_shape
from tacit.errors import DataError
from tacit.models.given import load_folder
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
        DataError: as `tacit.models.given.load_folder`; another kind of model; fewer positions or token ids than asked for.
    """
    shape = folder_shape(folder, "gpt2")
    if length is not None and (shape.positions or 0) < length:
        raise DataError(
            f"{folder}: the model has {shape.positions} positions, fewer than the {length} of a row; shorten the rows"
        )
    if vocabulary_size is not None and (shape.vocabulary or 0) < vocabulary_size:
        raise DataError(
            f"{folder}: the model knows {shape.vocabulary} token ids and the tokenizer has {vocabulary_size}; use its own"
        )
    return load_folder(GPT2LMHeadModel, folder)


def save_gpt2(model: GPT2LMHeadModel, folder: Path) -> None:
    """Write config.json and model.safetensors."""
    logging.disable_progress_bar()
    model.save_pretrained(folder)

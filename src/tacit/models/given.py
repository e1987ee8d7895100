"""A model from a local Hugging Face folder: its config and weights, and nothing else of it. Never from a hub.

Only the options of the model's own kind are taken from config.json, and the weights are read here, so that no file can ask for
code, an adapter, a quantisation or a kernel to be loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from tacit.config.shape import read_config, weight_files
from tacit.errors import DataError
from tacit.privacy.origin import MARK

__all__ = ["freeze_tables", "load_folder"]

_EARLIER_WORDS = """
rope_theta rope_scaling partial_rotary_factor rope_local_base_freq rotary_pct rotary_emb_base rotary_dim
local_rope_theta global_rope_theta swa_rope_theta global_attn_every_n_layers no_rope_layer_interval sliding_window
sliding_window_pattern sliding_window_size use_sliding_window full_attention_interval global_head_dim
num_global_key_value_heads n_embed num_heads use_bias qkv_bias tie_word_embeddings pad_token_id bos_token_id
eos_token_id
"""
_EARLIER = frozenset(_EARLIER_WORDS.split())
"""What files of earlier versions call the options of attention and positions; transformers' own classes read them."""

_NEVER = frozenset(
    {"dtype", "torch_dtype", "quantization_config", "auto_map", "attn_implementation", "per_layer_config"}
)

M = TypeVar("M", bound=PreTrainedModel)


def load_folder(
    model_class: type[M], folder: Path, changes: Mapping[str, Any] | None = None, new_head: str | None = None
) -> M:
    """The model in a folder, in float32.

    Args:
        model_class: the class of the folder's kind.
        folder: config.json and the weights in safetensors.
        changes: values that replace those of config.json.
        new_head: the parameters whose names begin with this are the caller's to initialise; those of the folder are left out.

    Raises:
        DataError: no config.json, no weights, weights that cannot be read, or not all of them: transformers would draw what is
            missing at random.
    """
    _, values = read_config(folder)
    config_class: Any = model_class.config_class
    own = _own_options(config_class) | {MARK}
    kept = {name: value for name, value in values.items() if name in own}
    files = weight_files(folder)
    verbosity = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it lists weights that are not used, such as BERT's pooler, on standard error
    try:
        weights = {name: tensor for file in files for name, tensor in load_file(file).items()}
        if new_head is not None:
            weights = {name: tensor for name, tensor in weights.items() if not name.startswith(new_head)}
        loaded: Any = model_class.from_pretrained(
            None,
            config=_changed(config_class(**kept), changes or {}),
            state_dict=weights,
            dtype=torch.float32,
            output_loading_info=True,
            local_files_only=True,
        )
    except Exception as error:  # whatever transformers finds wrong in it
        kind = type(error).__name__
        raise DataError(
            f"{folder}: the weights cannot be read ({kind}); save the model again with transformers"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    model, report = loaded
    missing = sorted(name for name in report["missing_keys"] if new_head is None or not name.startswith(new_head))
    if missing:
        raise DataError(
            f"{folder} has no weights for {len(missing)} parameters, such as {missing[0]}; give a whole model"
        )
    freeze_tables(model)
    for name, tensor in model.state_dict().items():  # buffers, too: I-BERT keeps ranges of activations there
        if not bool(tensor.isfinite().all()):
            raise DataError(
                f"{folder}: {name} holds numbers that are not finite; give a model that was trained to its end"
            )
    return model


_FIXED_TABLES = ("SinusoidalPositionalEmbedding",)
_SHARED_TABLES = {"mpnet": "relative_attention_bias"}


def freeze_tables(model: PreTrainedModel) -> None:
    """Tables that are not to be trained, which loading forgets, and those that no example has for itself.

    MPNet reads its table of distances once for all examples of a batch, so that none has a gradient of its own there.
    """
    shared = _SHARED_TABLES.get(model.config.model_type)
    for name, module in model.named_modules():
        if type(module).__name__.endswith(_FIXED_TABLES) or name.rpartition(".")[2] == shared:
            module.requires_grad_(False)


def _own_options(config_class: type) -> set[str]:
    """The options of a family's own, and those that its files had in earlier versions of transformers."""
    own: set[str] = set(_EARLIER)
    for one in config_class.__mro__:
        if one is PreTrainedConfig:
            break
        own |= set(vars(one).get("__annotations__", {}))
    return own - _NEVER


def _changed(config: Any, changes: Mapping[str, Any]) -> Any:
    for name, value in changes.items():
        setattr(config, name, value)
    return config

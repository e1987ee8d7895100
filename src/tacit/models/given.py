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
from transformers import PreTrainedModel
from transformers.utils import logging

from tacit.config.shape import read_config, weight_files
from tacit.errors import DataError

__all__ = ["load_folder"]

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
    own = vars(config_class)["__annotations__"]
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
            config=config_class(**{**kept, **(changes or {})}),
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
    return model

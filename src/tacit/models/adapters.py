"""LoRA (Hu et al. 2021, arXiv 2106.09685) through peft: small matrices beside a model's layers are trained, and nothing else.

The model stays the transformers model that it was: peft's layers stand in the place of its own, and what is trained is what the
engine clips. A release holds the small matrices in peft's format and, merged into their layers, the whole model.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from tacit.config.adapter import ADAPTER_FILE, AdapterOptions
from tacit.errors import UsageError

if TYPE_CHECKING:
    from peft import LoraConfig

__all__ = ["adapted", "merged_model", "save_adapted", "save_adapter"]

_NAME = "default"  # as peft calls an adapter that is the only one


def adapted(model: PreTrainedModel, options: AdapterOptions, seed: int) -> PreTrainedModel:
    """The model with an adapter, which alone is trained; before a step it computes what it computed without.

    Args:
        model: is changed in place.
        seed: the adapter's first matrices are a function of it; the second ones are zero.

    Raises:
        UsageError: peft is not installed, or the model has no such layers.
    """
    try:
        from peft import inject_adapter_in_model
    except ImportError:
        raise UsageError("model.adapter needs peft: pip install 'tacit[lora]'") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(_peft_config(model, options), model, adapter_name=_NAME)
        except ValueError:  # of targets that are not there, or of no kind that peft adapts
            raise UsageError(
                f"model.adapter.targets: {_said(options.targets)} names no layers of {type(model).__name__} that an adapter can "
                f"stand beside; it has {', '.join(_linear_layers(model)[:12])}"
            ) from None
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return model


def save_adapted(model: PreTrainedModel, options: AdapterOptions, base: str, folder: Path) -> None:
    """Write what a release holds: config.json, the adapter below ``adapter``, and with ``options.merge`` the whole model.

    Args:
        model: from `adapted`.
        base: what the adapter says that its base model is called.
        folder: is made.
    """
    folder.mkdir()
    if options.merge:
        logging.disable_progress_bar()
        merged_model(model).save_pretrained(folder)
    else:
        model.config.save_pretrained(folder)
    save_adapter(model, options, base, folder / ADAPTER_FILE.parent)


def save_adapter(model: PreTrainedModel, options: AdapterOptions, base: str, folder: Path) -> None:
    """Write the adapter of a model as peft reads it: ``PeftModel.from_pretrained(base_model, folder)``.

    Args:
        model: from `adapted`.
        base: what the adapter says that its base model is called.
        folder: is made.
    """
    folder.mkdir()
    weights = {
        f"base_model.model.{name.replace(f'.{_NAME}.', '.')}": parameter.detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    save_file(weights, folder / ADAPTER_FILE.name, metadata={"format": "pt"})
    config = _peft_config(model, options)
    config.target_modules = sorted(
        {name.split(".lora_A.")[0].rpartition(".")[2] for name in weights if ".lora_A." in name}
    )
    config.base_model_name_or_path, config.inference_mode = base, True
    config.task_type = "CAUSAL_LM" if model.can_generate() else None
    config.auto_mapping = {"base_model_class": type(model).__name__, "parent_library": type(model).__module__}
    config.save_pretrained(str(folder))


def merged_model(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model in which each adapted layer is one layer with the sum as its weight."""
    from peft.tuners.lora import LoraLayer

    found = copy.deepcopy(model)
    for name, layer in list(found.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge(safe_merge=True)  # raises where a weight is not finite
            parent, _, own = name.rpartition(".")
            setattr(found.get_submodule(parent), own, layer.get_base_layer())
    return found


def _peft_config(model: PreTrainedModel, options: AdapterOptions) -> LoraConfig:
    from peft import LoraConfig

    targets: Any = options.targets if isinstance(options.targets, str) else list(options.targets)
    return LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        bias="none",
    )


def _linear_layers(model: nn.Module) -> list[str]:
    """The last parts of the names of layers that an adapter can stand beside."""
    kinds = (nn.Linear, Conv1D)
    return sorted({name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, kinds)})


def _said(targets: str | tuple[str, ...]) -> str:
    return targets if isinstance(targets, str) else ", ".join(targets)

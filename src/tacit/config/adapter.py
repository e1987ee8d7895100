"""An adapter: the section ``model.adapter``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tacit.config.base import MOST, Options

__all__ = ["ADAPTER_FILE", "AdapterOptions"]

ADAPTER_FILE = Path("adapter") / "adapter_model.safetensors"
"""Where a released model folder has the weights of its adapter, as peft calls the file."""


class AdapterOptions(Options):
    """Small matrices beside the layers of the model in ``model.folder``, which alone are trained (LoRA; Hu et al. 2021).

    Under DP they have two merits: the noise is on so few numbers, and the model's own weights need neither gradients nor moments. The
    release holds the adapter in peft's format under ``model/adapter``.

    Args:
        kind: ``lora``.
        rank: of each product of two matrices.
        alpha: the product is scaled by ``alpha / rank``.
        targets: ``all-linear``: every linear layer but the head; or the last parts of the names of layers, such as ``q_proj``.
        dropout: of what enters an adapter, in training.
        merge: whether the release also holds the whole model, the adapter merged into its layers, so that it loads like any other.
    """

    kind: Literal["lora"] = "lora"
    rank: Annotated[int, Field(ge=1, le=4096)] = 8
    alpha: Annotated[int, Field(ge=1, le=MOST)] = 16
    targets: Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)] = "all-linear"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    merge: bool = True

"""Clipping functions: from the norms of the units' gradients to the factors that bound what a unit adds to the sum.

Every member of the family keeps one promise, which the contract suite tests: whatever the norms are, the vector that a
unit adds has L2 norm at most ``clip_norm``. Parameters are put in groups; each group has its own norm and coefficient.
The configuration has its names from here, so this module imports no torch: it asks the tensors themselves.

| norm of a group | flat, per-layer | automatic |
| --- | --- | --- |
| 0 | coefficient 1 | clip_norm / stability, times a zero vector |
| at most the bound | 1 | below 1 / stability |
| inf or NaN in any group | 0 in all groups | 0 in all groups |

Legend: G groups, U units.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CLIPPINGS", "LARGEST", "LEAST", "AutomaticClipping", "Clipping", "FlatClipping", "PerLayerClipping"]


# Below, float32 norms may have lost digits to underflow; above, coefficients overflow.
LEAST = 1e-6
LARGEST = 1e12


class Clipping(ABC):
    """How a unit's gradient is scaled."""

    @abstractmethod
    def groups(self, names: Sequence[str]) -> list[int]:
        """The group (0, 1, ...) of each trainable parameter, by its name in the model."""

    @abstractmethod
    def scales(self, norms_GU: Tensor, clip_norm: float) -> Tensor:
        """Coefficients ``(G, U)`` for finite norms: sum over g of (scale * norm)^2 is at most clip_norm^2."""

    def coefficients(self, norms_GU: Tensor, clip_norm: float) -> Tensor:
        """``scales``, and 0 in every group of a unit whose norm is not finite in any."""
        finite_U = norms_GU.isfinite().all(0)
        return self.scales(norms_GU, clip_norm).where(finite_U, 0.0)


@dataclass(frozen=True)
class FlatClipping(Clipping):
    """``min(1, C / norm)`` of the whole gradient (Abadi et al. 2016, arXiv 1607.00133, algorithm 1)."""

    def groups(self, names: Sequence[str]) -> list[int]:
        return [0] * len(names)

    def scales(self, norms_GU: Tensor, clip_norm: float) -> Tensor:
        return clip_norm / norms_GU.clamp(min=clip_norm)


@dataclass(frozen=True)
class AutomaticClipping(Clipping):
    """``C / (norm + stability)``: every unit is scaled to nearly C (Bu et al. 2022, arXiv 2206.07136, "AUTO-S").

    C then only scales the learning rate, so it needs no tuning.

    Args:
        stability: gamma of the paper; keeps small gradients small.

    Raises:
        UsageError: stability is outside [1e-6, 1e12].
    """

    stability: float = 0.01

    def __post_init__(self) -> None:
        if not LEAST <= self.stability <= LARGEST:
            raise UsageError(f"stability must be from {LEAST:g} to {LARGEST:g}, not {self.stability}")

    def groups(self, names: Sequence[str]) -> list[int]:
        return [0] * len(names)

    def scales(self, norms_GU: Tensor, clip_norm: float) -> Tensor:
        return clip_norm / (norms_GU + self.stability)


@dataclass(frozen=True)
class PerLayerClipping(Clipping):
    """Each layer's gradient alone is clipped to ``C / sqrt(layers)``, so the whole is at most C.

    A layer is a module that owns parameters; a tied parameter belongs to the first one that names it. (McMahan et al.
    2018, arXiv 1710.06963, "per-layer".)
    """

    def groups(self, names: Sequence[str]) -> list[int]:
        layers: dict[str, int] = {}
        return [layers.setdefault(name.rpartition(".")[0], len(layers)) for name in names]

    def scales(self, norms_GU: Tensor, clip_norm: float) -> Tensor:
        bound = clip_norm / math.sqrt(len(norms_GU))
        return bound / norms_GU.clamp(min=bound)


CLIPPINGS: dict[str, Clipping] = {
    "flat": FlatClipping(),
    "automatic": AutomaticClipping(),
    "per-layer": PerLayerClipping(),
}
"""By the word that ``clipping`` has in a configuration."""

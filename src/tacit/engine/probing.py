"""The probe of a whole step: does the loss of one example reach the rows of another one?

``LossWatch`` sees ``losses.sum().backward()`` in a clipper's first context. Before the backward runs, it runs the loss of the
first unit alone and of the last unit alone back through the graph (see ``Capture.probe``). A loss that is added up in
another way is not recognised; then the first layer that the backward reaches probes what is below it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tacit.engine.capture import Capture

__all__ = ["LossWatch"]


class LossWatch(TorchFunctionMode):
    """Remembers the last sum of one value a row, and probes when the backward starts there."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture
        self._total: Tensor | None = None
        self._losses: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.backward and args and args[0] is self._total:
            self._probe()
        result = func(*args, **(kwargs or {}))
        if func in (torch.sum, torch.Tensor.sum) and len(args) == 1 and not kwargs and args[0].dim() == 1:
            self._total, self._losses = result, args[0]
        return result

    def _probe(self) -> None:
        capture, losses_B = self._capture, self._losses
        if losses_B is None or not capture.probe_due or len(losses_B) != capture.rows:
            return

        def run_back(own: slice) -> None:
            torch.autograd.grad(losses_B[own].sum(), capture.anchor, retain_graph=True, allow_unused=True)

        capture.probe(run_back)

"""Dropout that is a function of the row: the same masks whatever rows stand beside it in a micro-batch.

torch draws a micro-batch's masks from one generator, so a row's mask depends on its place among the others. A step that is run again
after a crash with another ``compute.micro_batch`` would then have another sum of gradients under the same noise, and the difference
of the two is free of noise. Here every row has a generator of its own, whose seed its unit and the step decide.

Shapes: B rows, T positions of this micro-batch, L of the stream's longest row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

__all__ = ["RowDropout", "dropped_again", "uses_dropout"]


def uses_dropout(model: nn.Module) -> bool:
    """Whether the model drops anything in training: torch's own layers, and transformers' attention that keeps a bare number."""
    return any(
        (isinstance(module, nn.Dropout) and module.p > 0)
        or (isinstance(module, nn.LSTM) and module.dropout > 0)
        or vars(module).get("attention_dropout", 0.0) > 0
        for module in model.modules()
    )


class RowDropout(TorchFunctionMode):
    """While it is entered, each row is dropped by its own seed; one micro-batch, forward and backward.

    Rows are padded to one of a few widths. Masks are drawn for the longest rows all the same, and cut, so what a row loses does not
    depend on how wide it is.

    Args:
        seeds: one for each row, in order.
        whole: by the size of a dimension that grows with the rows' width, such as their positions, its size for the longest rows.

    Raises:
        ValueError: something is dropped whose first dimension is not the rows: its masks could not be addressed by row.
    """

    def __init__(self, seeds: Sequence[int], whole: Mapping[int, int], device: torch.device) -> None:
        super().__init__()
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self._whole = whole
        self._tokens: list[Token[RowDropout | None]] = []

    def __enter__(self) -> RowDropout:
        self._tokens.append(_current.set(self))
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        _current.reset(self._tokens.pop())

    def states(self) -> list[Tensor]:
        """Where each row's generator is."""
        return [generator.get_state() for generator in self._generators]

    def go_to(self, states: Sequence[Tensor]) -> None:
        """Draw from `states` on."""
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is F.dropout:
            return self._dropout(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        """Drop as ``F.dropout`` does; never in place, since what was there is needed to go back through it."""
        if not training or p == 0:
            return input
        return input * self._kept(input, p)

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Attend as ``F.scaled_dot_product_attention`` does, in plain steps where weights are dropped."""
        if dropout_p == 0:
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if enable_gqa:
            raise ValueError("attention with shared keys drops no weights by row: set its dropout to 0")
        scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
        if is_causal:
            earlier = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~earlier, -math.inf)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        return self._dropout(scores.softmax(-1), dropout_p) @ value

    def _kept(self, input: Tensor, p: float) -> Tensor:
        """0 where a value is dropped, 1 / (1 - p) elsewhere."""
        if len(input) != len(self._generators) or input.dim() not in (3, 4):
            raise ValueError(
                f"dropout of shape {tuple(input.shape)} is not by rows; set the model's dropout to 0, or let it drop tensors whose "
                f"first dimension are the {len(self._generators)} rows"
            )
        by_position = (1,) if input.dim() == 3 else (2, 3)
        shape = [
            self._whole.get(size, size) if place in by_position else size for place, size in enumerate(input.shape)
        ][1:]
        uniforms = torch.stack(
            [torch.rand(shape, generator=generator, device=input.device) for generator in self._generators]
        )
        cut = uniforms[tuple(slice(size) for size in input.shape)]
        return (cut >= p).to(input.dtype) / (1 - p)


_current: ContextVar[RowDropout | None] = ContextVar("dropout by rows that is entered", default=None)


def dropped_again() -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    """What ``torch.utils.checkpoint`` wants of ``context_fn``: a context for a layer's forward, and one for its recomputation.

    The second draws the masks of the first. Without dropout by rows, torch's own generators are torch's matter.
    """
    dropout = _current.get()
    return (nullcontext(), nullcontext()) if dropout is None else (nullcontext(), _Again(dropout))


class _Again:
    """Dropout by rows as it was when this was made. It may be entered several times: a probe goes back more than once."""

    def __init__(self, dropout: RowDropout) -> None:
        self._dropout = dropout
        self._before = dropout.states()
        self._after: list[Tensor] = []

    def __enter__(self) -> None:
        self._after = self._dropout.states()
        self._dropout.go_to(self._before)
        self._dropout.__enter__()  # a backward runs outside the modes that are entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dropout.__exit__(kind, error, trace)
        self._dropout.go_to(self._after)

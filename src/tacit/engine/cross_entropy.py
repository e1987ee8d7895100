"""Cross-entropy of logits that a model gave, token by token, at about a third of the time and memory of torch's.

torch keeps the log-softmax of all logits, and its backward fills two more tensors of their size. Here the forward keeps one
number a position, the log-sum-exp, and the backward writes the one gradient that the model needs; both go through the
logits in parts that fit in the cache.

Legend: N positions, n some of them, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tacit.engine.capture import current_capture
from tacit.engine.factors import even_rows
from tacit.engine.logits import IGNORE_INDEX
from tacit.engine.places import rows_along
from tacit.errors import RefusedError, UsageError

__all__ = ["check_labels", "cross_entropy", "log_sum_exp"]

PART_BYTES = {"cpu": 2**20}  # of logits in float32; a core's second cache holds it
OTHER_PART_BYTES = 2**27
_LEAST_ROWS = 2


def cross_entropy(logits: Tensor, labels: Tensor, overwrite: bool = False) -> Tensor:
    """Cross-entropy in nats at each position, 0 where the label is -100: ``logits (..., V)``, ``labels (...)``.

        losses = cross_entropy(model(ids).logits[:, :-1], ids[:, 1:]).sum(1)    # (B,), a causal model's, a row each

    ``torch.nn.functional.cross_entropy(..., reduction="none")`` gives the same, slower.

    Args:
        logits: float; bfloat16 and float16 are computed in float32.
        labels: int64 token ids, or ``IGNORE_INDEX`` (-100).
        overwrite: the backward puts its gradient into the logits' own memory, which saves a tensor as large as they are. They
            are of no use after it: a graph that still needs them raises an error, but code that reads them gets gradients.

    Returns:
        The labels' shape; float32, or float64 for float64 logits.

    Raises:
        UsageError: the shapes do not fit, or a label is out of range.
        RefusedError: ``second-order-gradient``: create_graph=True.
    """
    if logits.dim() == 0 or logits.shape[:-1] != labels.shape:
        raise UsageError(
            f"logits {tuple(logits.shape)} must have the labels' shape {tuple(labels.shape)} and one dimension more"
        )
    check_labels(labels, logits.shape[-1])
    losses_N = _CrossEntropy.apply(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), overwrite)
    return losses_N.view(labels.shape)


def check_labels(labels: Tensor, vocabulary: int) -> None:
    """Raises UsageError where a label is neither a token id nor ``IGNORE_INDEX``."""
    if labels.dtype != torch.int64:
        raise UsageError(f"labels are {labels.dtype}; they must be int64")
    wrong = (labels != IGNORE_INDEX) & ((labels < 0) | (labels >= vocabulary))
    if bool(wrong.any()):
        raise UsageError(f"a label is neither in 0 .. {vocabulary - 1} nor {IGNORE_INDEX}")


def log_sum_exp(logits_nV: Tensor) -> Tensor:
    """The log of the sum of exp(logits) over the vocabulary, ``(n, 1)``."""
    logits_nV = even_rows(logits_nV, -torch.inf)
    top_n1 = logits_nV.amax(1, keepdim=True)
    return (logits_nV - top_n1).exp_().sum(1, keepdim=True).log_().add_(top_n1)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, label_N: Tensor, overwrite: bool) -> Tensor:
        dtype = torch.promote_types(logits_NV.dtype, torch.float32)
        lse_N = torch.zeros(len(label_N), dtype=dtype, device=label_N.device)
        labelled_N = label_N != IGNORE_INDEX
        for rows in _parts(logits_NV, labelled_N):
            part_nV = logits_NV[rows].to(dtype)
            with rows_along(len(part_nV)):
                lse_N[rows] = log_sum_exp(part_nV)[:, 0]
        own_N = logits_NV.gather(1, label_N.clamp(min=0)[:, None])[:, 0]
        ctx.save_for_backward(logits_NV, label_N, lse_N)
        ctx.overwrite, ctx.capture = overwrite, current_capture()
        return (lse_N - own_N).masked_fill_(~labelled_N, 0)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        if torch.is_grad_enabled():
            raise RefusedError("second-order-gradient", "create_graph=True through this cross-entropy; use torch's own")
        logits_NV, label_N, lse_N = ctx.saved_tensors
        labelled_N = label_N != IGNORE_INDEX
        upstream_N1 = grad_outputs[0].masked_fill(~labelled_N, 0)[:, None]
        column_N1 = label_N.clamp(min=0)[:, None]
        few = _few(labelled_N)
        probing = ctx.capture is not None and ctx.capture.is_probing  # then the backward runs more than once
        overwrite = ctx.overwrite and not probing
        fresh = torch.zeros_like if few else torch.empty_like
        gradient_NV = logits_NV.detach() if overwrite else fresh(logits_NV)
        for rows in _parts(logits_NV, labelled_N):
            part_nV = logits_NV[rows].sub(lse_N[rows, None]).exp_().mul_(upstream_N1[rows])
            gradient_nV = part_nV.scatter_add_(1, column_N1[rows], -upstream_N1[rows])
            gradient_NV[rows] = gradient_nV.to(gradient_NV.dtype)  # torch refuses another type where rows are an index
        if overwrite or not few or not bool(labelled_N.any()):
            gradient_NV.masked_fill_(~labelled_N[:, None], 0)  # 0 * inf is NaN
        return gradient_NV, None, None


def _few(labelled_N: Tensor) -> bool:
    """Whether less than half of the positions have a label."""
    return 2 * int(labelled_N.sum()) < len(labelled_N)


def _parts(logits_NV: Tensor, labelled_N: Tensor) -> Iterator[slice | Tensor]:
    """The positions that have a label, a cache's worth of logits at a time; where most have one, simply all.

    All parts have one size, and the last one is filled with a row of its own again: torch adds up a row that is alone with all
    threads, otherwise than one among others, and how many positions have a label is decided by other units too.
    """
    size = PART_BYTES.get(logits_NV.device.type, OTHER_PART_BYTES)
    rows = max(_LEAST_ROWS, min(len(labelled_N), size // (4 * max(1, logits_NV.shape[1]))))
    if not _few(labelled_N):
        whole = len(labelled_N) // rows * rows
        yield from (slice(first, first + rows) for first in range(0, whole, rows))
        parts = torch.arange(whole, len(labelled_N), device=labelled_N.device).split(rows)
    else:
        labelled_n = labelled_N.nonzero()[:, 0]
        # where nobody has a label one part all the same: what is tried of it (`PlaceWatch`) hangs on shapes alone
        parts = (labelled_n if len(labelled_n) else labelled_n.new_zeros(min(1, len(labelled_N)))).split(rows)
    for part_n in parts:
        if len(part_n):
            yield torch.cat([part_n, part_n[:1].expand(rows - len(part_n))])

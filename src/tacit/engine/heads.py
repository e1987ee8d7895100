"""Output heads of language models whose logits never exist whole, with exact gradients.

``at_positions`` evaluates a masked-LM head where a token was masked; ``token_losses`` and ``causal_losses`` fuse a
linear head with its cross-entropy, a few positions at a time (as Cut Your Losses, arXiv 2411.09009, and Liger Kernel,
arXiv 2410.10989, do for ordinary training).

The forward computes each position's loss and at once its gradient at the hidden state, for an upstream gradient of 1:
the losses of two positions share nothing, so the backward only scales. The weight's gradient needs the softmax again.
Outside a clipping context that is the ordinary gradient, computed in the backward. Inside one, the call is recorded
like a layer's call, and its factor is a ``Logits``, which computes the softmax in blocks when norms and sums are asked for.

Matrix products of size positions * V * D, for a trainable weight: forward 2 and ordinary backward 2; in a context norm 1
(and P P^T: R / D of one, never more than one), clipped sum 2, a bias 1. Where the weight gradients of all units fit in a
block, norm and sum are 2 together; where all logits fit in a chunk, the softmax is kept and not computed again. A head
called as a module takes 3 (in a context also P P^T), and keeps two or three tensors of the size of all logits.

Under autocast the logits are products of values rounded to its precision, added up in float32; softmax, losses and all
that is recorded are float32, and the norm and the sum see the same softmax.

Legend: B rows, T or R positions of a row, K slots, D width, V vocabulary, N labelled positions, n of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tacit.engine.capture import Capture, current_capture, per_unit
from tacit.engine.cross_entropy import check_labels
from tacit.engine.factors import Dense, Factor, Outer, even_rows, on_gpu, unit_sums
from tacit.engine.logits import (
    IGNORE_INDEX,
    LEAST_ROWS,
    ROWS_OF_DOUBLES,
    Logits,
    least_rows,
    rounded_product,
    spread_rows,
    sum_over_positions,
)
from tacit.engine.places import rows_along
from tacit.errors import RefusedError, UsageError

__all__ = ["CHUNK_BYTES", "at_positions", "causal_losses", "token_losses"]

CHUNK_BYTES = 32 * 2**20  # the logits of a chunk of positions, unless ``chunk_positions`` says otherwise

_ROWS_AT_ONCE = 512
"""On a CPU, in a context: there the last part of a chunk is filled up, and a product of more rows is not faster."""


def at_positions(hidden_BTD: Tensor, slots_BK: Tensor) -> Tensor:
    """Hidden states ``(B, K, D)`` at each row's own K positions: a head on them costs K/T of one on all positions.

        slots = ...                                          # (B, K) positions of the masked tokens, 0 in spare slots
        hidden = model.bert(ids, attention_mask=mask).last_hidden_state
        logits = model.cls(at_positions(hidden, slots))      # (B, K, V), labels at spare slots -100

    Args:
        hidden_BTD: hidden states of all positions.
        slots_BK: int64 positions from 0 to T - 1.

    Raises:
        UsageError: the shapes do not fit.
    """
    if hidden_BTD.dim() != 3 or slots_BK.dim() != 2 or len(hidden_BTD) != len(slots_BK):
        raise UsageError(
            f"hidden states {tuple(hidden_BTD.shape)} and slots {tuple(slots_BK.shape)} must be (B, T, D) and (B, K)"
        )
    return hidden_BTD.gather(1, slots_BK.unsqueeze(-1).expand(-1, -1, hidden_BTD.shape[-1]))


def causal_losses(
    head: nn.Linear,
    hidden_BTD: Tensor,
    labels_BT: Tensor,
    reduction: Literal["mean", "sum"] = "mean",
    weights_BT: Tensor | None = None,
    chunk_positions: int | None = None,
) -> Tensor:
    """Next-token loss of each row, ``(B,)``, in nats: the hidden state at t predicts label t + 1.

    Labels are the ids themselves, as transformers takes them: the shift happens here. A row's mean is over its *own*
    labels, never over the batch's, so that no row's loss depends on another row. A row without labels has loss 0.

        ids, mask = batch["input_ids"], batch["attention_mask"]
        labels = ids.masked_fill(mask == 0, -100)
        with clipper:
            hidden = model.transformer(ids, attention_mask=mask).last_hidden_state    # GPT-2; Llama: model.model(...)
            causal_losses(model.lm_head, hidden, labels).sum().backward()

    The head is a plain ``nn.Linear``, with or without bias, tied to the input embedding or not. A model that changes its
    logits after ``lm_head`` (soft-capping, scaling) is another function: call the model itself.

    Args:
        head: the model's ``lm_head``.
        hidden_BTD: the last hidden states, what the model gives to ``lm_head``.
        labels_BT: token ids; ``IGNORE_INDEX`` (-100) where there is no loss, such as padding. Column 0 is predicted by
            nothing.
        reduction: ``"mean"`` over the row's own labels, or ``"sum"``.
        weights_BT: with ``"sum"``, what each label's loss is multiplied by. Where a unit has several rows: 1 / (labels
            of the row's unit), so that a unit's loss is its mean.
        chunk_positions: as in ``token_losses``.

    Raises:
        UsageError: as in ``token_losses``; an unknown reduction, or weights with another one than ``"sum"``.
        RefusedError: as in ``token_losses``.
    """
    if reduction not in ("mean", "sum"):
        raise UsageError(f"reduction must be 'mean' or 'sum', not {reduction!r}")
    if weights_BT is not None and (reduction != "sum" or weights_BT.shape != labels_BT.shape):
        raise UsageError("weights_BT need reduction='sum', and the labels' shape")
    _check_head(head)
    _check_shapes(head, hidden_BTD, labels_BT)
    labels_BR = labels_BT[:, 1:]
    losses_BR = token_losses(head, hidden_BTD[:, : labels_BR.shape[1]], labels_BR, chunk_positions)
    if weights_BT is not None:
        losses_BR = losses_BR * weights_BT[:, 1:]
    losses_B = unit_sums(losses_BR)
    return losses_B if reduction == "sum" else losses_B / (labels_BR != IGNORE_INDEX).sum(1).clamp(min=1)


def token_losses(head: nn.Linear, hidden_BRD: Tensor, labels_BR: Tensor, chunk_positions: int | None = None) -> Tensor:
    """Cross-entropy ``(B, R)`` in nats of ``head(hidden)`` at each position, 0 where the label is ``IGNORE_INDEX``.

    Args:
        head: a plain ``nn.Linear`` (D, V). In a clipping context it may be part of the model, tied or not, or frozen.
        hidden_BRD: the head's input; dimension 0 is the example.
        labels_BR: int64 token ids, or -100.
        chunk_positions: positions whose logits exist at one time, by default as many as ``CHUNK_BYTES`` hold.

    Returns:
        float32, or float64 for a float64 head.

    Raises:
        UsageError: the shapes or precisions do not fit, a label is out of range, ``chunk_positions`` is below 1; in a
            clipping context, the rows are not the batch's, or the head can be trained and is not in the model.
        RefusedError: ``unknown-head``: not a plain linear layer. ``second-order-gradient``: create_graph=True.
    """
    _check_head(head)
    _check_shapes(head, hidden_BRD, labels_BR)
    check_labels(labels_BR, head.out_features)
    call = _call(head, hidden_BRD, chunk_positions)
    weight_VD, bias_V = head.weight, head.bias
    if call.capture is not None:  # recorded instead, so not in the graph
        weight_VD, bias_V = weight_VD.detach(), None if bias_V is None else bias_V.detach()
    anchor = call.capture.anchor if call.capture is not None and call.names else None
    return _TokenLosses.apply(hidden_BRD, weight_VD, bias_V, anchor, labels_BR, call)


@dataclass(frozen=True)
class _Call:
    """How one call of a head is computed.

    Args:
        capture: the clipping context, or None.
        names: the parameters that want a gradient: name in the head -> name in the model (in a context).
        chunk: positions at a time.
        rounding: what hidden states and weight are rounded to in the logits.
        dtype: the precision of losses, softmax and sums.
        graph: whether a gradient can be asked for at all.
        in_context: whether a clipping context is active, also where no gradient is asked for.
    """

    capture: Capture | None
    names: Mapping[str, str]
    chunk: int
    rounding: torch.dtype
    dtype: torch.dtype
    graph: bool
    in_context: bool


def _call(head: nn.Linear, hidden_BRD: Tensor, chunk_positions: int | None) -> _Call:
    graph = torch.is_grad_enabled()
    in_context = current_capture() is not None
    capture = current_capture() if graph else None
    rounding = _rounding(head.weight, hidden_BRD)
    dtype = torch.promote_types(head.weight.dtype, torch.float32)
    if chunk_positions is None:
        # no chunk needs to be filled up, but the last one
        chunk_positions = max(least_rows(), CHUNK_BYTES // (head.out_features * dtype.itemsize))
    if chunk_positions < 1:
        raise UsageError(f"chunk_positions must be at least 1, not {chunk_positions}")
    names = _trainable(head) if capture is None else _recorded(head, hidden_BRD, capture)
    return _Call(capture, names if graph else {}, chunk_positions, rounding, dtype, graph, in_context)


def _rounding(weight_VD: Tensor, hidden_BRD: Tensor) -> torch.dtype:
    """What ``head(hidden)`` would round its factors to. Autocast leaves float64 alone."""
    device = weight_VD.device.type
    if torch.is_autocast_enabled(device) and torch.float64 not in (weight_VD.dtype, hidden_BRD.dtype):
        return torch.get_autocast_dtype(device)
    if weight_VD.dtype != hidden_BRD.dtype:
        raise UsageError(f"the head is {weight_VD.dtype} and the hidden states are {hidden_BRD.dtype}; convert one")
    return weight_VD.dtype


def _trainable(head: nn.Linear) -> dict[str, str]:
    return {name: name for name, parameter in head.named_parameters() if parameter.requires_grad}


def _recorded(head: nn.Linear, hidden_BRD: Tensor, capture: Capture) -> Mapping[str, str]:
    if len(hidden_BRD) != capture.rows:
        raise UsageError(
            f"the head got {len(hidden_BRD)} rows in a batch of {capture.rows}; dimension 0 must be the example"
        )
    site = capture.site_of(head)
    if site is None and _trainable(head):
        raise UsageError("the head can be trained but is not in the clipper's model; freeze it or make it a part of it")
    return {} if site is None else site.names


class _TokenLosses(torch.autograd.Function):
    """The losses of all positions. Tensors are kept by ``save_for_backward``: changing one in place is an error."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_BRD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        anchor: Tensor | None,
        labels_BR: Tensor,
        call: _Call,
    ) -> Tensor:
        with torch.autocast(hidden_BRD.device.type, enabled=False):
            done = _losses(hidden_BRD, weight_VD, bias_V, labels_BR, call, call.graph and hidden_BRD.requires_grad)
        loss_BR, lse_BR, gradient_BRD, kept_BRV = done
        ctx.save_for_backward(hidden_BRD, weight_VD, bias_V, labels_BR, lse_BR, gradient_BRD, kept_BRV)
        ctx.call = call
        return loss_BR

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        if torch.is_grad_enabled():
            raise RefusedError(
                "second-order-gradient", "create_graph=True through a fused head; call the head as a module instead"
            )
        hidden_BRD, weight_VD, bias_V, labels_BR, lse_BR, gradient_BRD, kept_BRV = ctx.saved_tensors
        (upstream_BR,), call = grad_outputs, ctx.call
        if gradient_BRD is not None:
            gradient_BRD = (gradient_BRD * upstream_BR[:, :, None]).to(hidden_BRD.dtype)
        record = _HeadRecord(call, hidden_BRD, upstream_BR, labels_BR, lse_BR, kept_BRV, weight_VD, bias_V)
        gradients: dict[str, Tensor] = {}
        if call.capture is None:
            with torch.autocast(hidden_BRD.device.type, enabled=False):
                gradients = record.summed()
        elif call.names:
            call.capture.add(record, "the head", upstream_BR)
        return gradient_BRD, gradients.get("weight"), gradients.get("bias"), None, None, None


@dataclass(frozen=True)
class _HeadRecord:
    """A call of a head and the gradient at its losses. ``kept_BRV`` is softmax - onehot, where it was kept."""

    call: _Call
    hidden_BRD: Tensor
    upstream_BR: Tensor
    labels_BR: Tensor
    lse_BR: Tensor
    kept_BRV: Tensor | None
    weight_VD: Tensor
    bias_V: Tensor | None

    @property
    def has_private_shapes(self) -> bool:
        return self.kept_BRV is None  # rows with a label alone are multiplied again

    def factors(self, units: int) -> Iterator[tuple[str, Factor]]:
        """The per-unit gradients of the parameters that want one, by their names in the model."""
        if self.kept_BRV is None:
            logits = self._logits(units)
            made: dict[str, Callable[[], Factor]] = {"weight": lambda: logits, "bias": logits.bias_gradient}
        else:
            made = {"weight": partial(self._kept_weight, units), "bias": partial(self._kept_bias, units)}
        for name, name_in_model in self.call.names.items():
            yield name_in_model, made[name]()

    def summed(self) -> dict[str, Tensor]:
        """The ordinary gradients: each row is a unit, with weight 1. Outside a context, where names are the head's."""
        ones_B = torch.ones(len(self.hidden_BRD), dtype=self.call.dtype, device=self.hidden_BRD.device)
        parameters = {"weight": self.weight_VD, "bias": self.bias_V}
        gradients = {}
        for name, factor in self.factors(len(ones_B)):
            total = torch.zeros_like(parameters[name], dtype=self.call.dtype)
            factor.add_weighted_sum_(total, ones_B)
            gradients[name] = total.to(parameters[name].dtype)
        return gradients

    def _logits(self, units: int) -> Logits:
        return Logits(
            hidden_URd=per_unit(self.hidden_BRD, units, 1).to(self.call.dtype),
            upstream_UR=self._upstream_UR(units),
            label_UR=per_unit(self.labels_BR, units, 0),
            lse_UR=per_unit(self.lse_BR, units, 0).to(self.call.dtype),
            weight_Vd=self.weight_VD,
            bias_V=self.bias_V,
            rounding=self.call.rounding,
            block=self.call.chunk * len(self.weight_VD),
        )

    def _kept_weight(self, units: int) -> Outer:
        assert self.kept_BRV is not None
        hidden_URD = per_unit(self.hidden_BRD, units, 1).to(self.call.dtype)
        kept_URV = per_unit(self.kept_BRV, units, 1).to(self.call.dtype)
        return Outer(kept_URV, hidden_URD * self._upstream_UR(units)[:, :, None])

    def _kept_bias(self, units: int) -> Dense:
        assert self.kept_BRV is not None
        kept_URV = per_unit(self.kept_BRV, units, 1).to(self.call.dtype)
        return Dense(sum_over_positions(self._upstream_UR(units), kept_URV))

    def _upstream_UR(self, units: int) -> Tensor:
        return per_unit(self.upstream_BR, units, 0).to(self.call.dtype)


def _losses(
    hidden_BRD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_BR: Tensor, call: _Call, wants_hidden: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Losses, log-sum-exp, and if wanted the gradient at the hidden states and the softmax - onehot of a single chunk.

    Positions without a label are left out of everything. How many there are at a time, and so at last, other units decide: on a GPU,
    and in a context, a product has always the same number of rows, and there is one where nobody has a label, so that what is tried
    of it (`PlaceWatch`) hangs on shapes alone. Elsewhere on a CPU it has `least_rows` at least.
    """
    hidden_ND, label_N = hidden_BRD.flatten(0, 1), labels_BR.flatten()
    rows, weight_VD = len(label_N), weight_VD.to(call.rounding)
    is_one_number = on_gpu(label_N) or call.in_context
    at_once = min(call.chunk, _ROWS_AT_ONCE) if is_one_number and not on_gpu(label_N) else call.chunk
    least = LEAST_ROWS if on_gpu(label_N) else least_rows()
    if is_one_number:
        least = max(least, min(at_once, rows))
    if call.rounding == torch.float64:
        least += -least % ROWS_OF_DOUBLES  # so many rows are multiplied
    loss_N = torch.zeros(rows, dtype=call.dtype, device=label_N.device)
    lse_N, gradient_ND, kept_NV = torch.zeros_like(loss_N), None, None
    if wants_hidden:
        gradient_ND = torch.zeros_like(hidden_ND, dtype=call.dtype)
    keeps = bool(call.names) and rows <= call.chunk
    for row_n in (label_N != IGNORE_INDEX).nonzero().flatten().split(at_once):
        filled_n, real = _filled(row_n, least if rows else 0, also_none=is_one_number), len(row_n)
        with rows_along(len(filled_n)):
            x_nV = rounded_product(hidden_ND[filled_n], weight_VD.T, call.rounding)
            if bias_V is not None:
                x_nV += bias_V
            x_nV = even_rows(x_nV, -torch.inf)
            loss_n, lse_n = _cross_entropy_(x_nV, label_N[filled_n, None].clamp(min=0))
            x_nV = x_nV[:, : len(weight_VD)]
            loss_N[row_n], lse_N[row_n] = loss_n[:real], lse_n[:real]
            if gradient_ND is not None:
                gradient_ND[row_n] = rounded_product(x_nV, weight_VD, call.rounding)[:real]
        if keeps and kept_NV is None:
            kept_NV = spread_rows(x_nV[:real], row_n, rows).contiguous()
        elif kept_NV is not None:
            kept_NV.index_copy_(0, row_n, x_nV[:real])
    gradient_BRD = None if gradient_ND is None else gradient_ND.view(hidden_BRD.shape)
    kept_BRV = None if kept_NV is None else kept_NV.view(*labels_BR.shape, len(weight_VD))
    return loss_N.view_as(labels_BR), lse_N.view_as(labels_BR), gradient_BRD, kept_BRV


def _filled(row_n: Tensor, least: int, also_none: bool) -> Tensor:
    """The rows, and the first one again until there are enough: torch adds up a row that is alone with all threads, otherwise.

    Args:
        also_none: where there are no rows, as many times the first of all.
    """
    if len(row_n) == 0:
        return row_n.new_zeros(least) if also_none else row_n
    missing = least - len(row_n)
    return row_n if missing <= 0 else torch.cat([row_n, row_n[:1].expand(missing)])


def _cross_entropy_(logits_nV: Tensor, label_n1: Tensor) -> tuple[Tensor, Tensor]:
    """Losses and log-sum-exp ``(n,)``; the logits become softmax - onehot, the losses' gradient at them."""
    top_n1, own_n1 = logits_nV.amax(1, keepdim=True), logits_nV.gather(1, label_n1)
    sum_n1 = logits_nV.sub_(top_n1).exp_().sum(1, keepdim=True)
    lse_n1 = top_n1 + sum_n1.log()
    logits_nV.div_(sum_n1).scatter_add_(1, label_n1, torch.full_like(own_n1, -1))
    return (lse_n1 - own_n1)[:, 0], lse_n1[:, 0]


def _check_head(head: nn.Module) -> None:
    plain = type(head) is nn.Linear and "forward" not in vars(head)
    if not plain or any(type(p) is not nn.Parameter for p in (head.weight, head.bias) if p is not None):
        raise RefusedError(
            "unknown-head",
            f"the head ({type(head).__name__}) is no plain nn.Linear with its own weight, such as model.lm_head; call it "
            "as a module, for masked tokens on at_positions(...)",
        )


def _check_shapes(head: nn.Linear, hidden_BRD: Tensor, labels_BR: Tensor) -> None:
    if hidden_BRD.dim() != 3 or hidden_BRD.shape[:2] != labels_BR.shape or hidden_BRD.shape[2] != head.in_features:
        raise UsageError(
            f"hidden states {tuple(hidden_BRD.shape)} and labels {tuple(labels_BR.shape)} must be (rows, positions, "
            f"{head.in_features}) and (rows, positions)"
        )

"""Per-example gradients of an unmodified ``nn.LSTM``: its one kernel call is taken over while the layer runs.

``nn.LSTM.forward`` ends in one call of ``torch._VF.lstm``. ``LstmMode`` sees it and computes the same values with one
autograd Function a layer and direction, so that the gradient at the gates is known. With z_t = W_ih x_t + b_ih + W_hh
h_{t-1} + b_hh (torch's order of gates: input, forget, cell, output) and d_t the gradient at z_t, example b has

    dL/dW_ih = sum_t d_bt x_bt^T      dL/dW_hh = sum_t d_bt h_b,t-1^T      dL/db_ih = dL/db_hh = sum_t d_bt

so each weight is an ``Outer`` over the positions. The input's part of z is one product for all positions, and so is the
gradient at the input; only the recurrence is a loop over time. No weight gradient is computed in the backward.

Autocast: the layer computes in its parameters' dtype and its outputs are cast to autocast's. Dropout between the layers
draws the masks that ``nn.LSTM`` draws on a CPU from the same seed; cuDNN draws others.

Legend: T positions, B rows of the batch, U units, R positions of a unit, D input features, H hidden features, G = 4H
gates. A tensor in the order TB may be a view of one that is stored as BT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tacit.engine.capture import Capture, per_unit, refuse_second_order
from tacit.engine.factors import Dense, Factor, Outer
from tacit.engine.sites import Site
from tacit.errors import RefusedError, UsageError

__all__ = ["LstmMode"]

State = tuple[Tensor, Tensor]


class LstmMode(TorchFunctionMode):
    """While it is active, the kernel call of ``site``'s LSTM is computed here and recorded in ``capture``.

    To be entered just before a forward that builds a graph and left just after it, with the module's trainable
    parameters taken out of the graph. Other functions pass unchanged.

    Args:
        site: an ``nn.LSTM`` without projections, and its trainable parameters.
        capture: the context that gets one record a layer, direction and backward.

    Raises (from the module's call):
        UsageError: dimension 0 (1 if not ``batch_first``) of the input has another size than the batch, or there is no
            position.
        RefusedError: ``packed-sequence``; ``parameter-outside-rule``, where a weight is no parameter; or
            ``ambiguous-batch-dimension``: not ``batch_first``, and as many positions as rows, so that a forgotten
            transposition would go unseen.
    """

    def __init__(self, site: Site, capture: Capture) -> None:
        super().__init__()
        self._site = site
        self._capture = capture

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is torch._VF.lstm:
            return self._run(*args)
        return func(*args, **(kwargs or {}))

    @property
    def _module(self) -> nn.LSTM:
        assert isinstance(self._site.module, nn.LSTM)
        return self._site.module

    def _run(
        self,
        input: Tensor,
        hx: State,
        weights: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        training: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The kernel's (output, h_n, c_n). It computes as the kernel does: a layer, dropout, the next layer."""
        self._check_call(input, hx, weights, batch_first)
        device, dtype = input.device.type, weights[0].dtype
        lower = torch.is_autocast_enabled(device) and dtype == torch.float32  # autocast leaves float64 as it is
        result_dtype = torch.get_autocast_dtype(device) if lower else dtype
        with torch.autocast(device, enabled=False):
            x_TBD = (input.transpose(0, 1) if batch_first else input).to(dtype)
            h0, c0 = (state.to(dtype).unbind(0) for state in hx)
            last_h, last_c = [], []
            for layer in range(num_layers):
                outputs = []
                for direction in range(1 + bidirectional):
                    place = len(last_h)
                    output_TBH, h_BH, c_BH = self._layer(layer, direction, x_TBD, h0[place], c0[place])
                    outputs.append(output_TBH)
                    last_h.append(h_BH)
                    last_c.append(c_BH)
                x_TBD = torch.cat(outputs, 2) if bidirectional else outputs[0]
                if dropout and layer < num_layers - 1:
                    # rows first, so that whoever replaces dropout (tacit.training.dropout) finds them there
                    x_TBD = F.dropout(x_TBD.transpose(0, 1), dropout, training).transpose(0, 1).contiguous()
            h_n, c_n = torch.stack(last_h), torch.stack(last_c)
        output = x_TBD.transpose(0, 1) if batch_first else x_TBD
        return output.to(result_dtype), h_n.to(result_dtype), c_n.to(result_dtype)

    def _check_call(self, input: Tensor, hx: State | Tensor, weights: Sequence[Tensor], batch_first: bool) -> None:
        if isinstance(hx, Tensor):  # the other form of the call: (data, batch_sizes, hx, ...)
            raise RefusedError(
                "packed-sequence",
                f"{self._site.describe()} got a PackedSequence, whose rows are not the batch's; pass the padded tensor and "
                "read each row's outputs at its own positions, which padding on the right leaves as they are",
            )
        if any(weight.requires_grad for weight in weights):
            raise RefusedError(
                "parameter-outside-rule",
                f"{self._site.describe()} runs on weights that are not its own parameters, so their gradient cannot be "
                "clipped per example; use a plain nn.LSTM, or freeze what the weights are made of",
            )
        rows, shape = self._capture.rows, tuple(input.shape)
        dimension = 0 if batch_first else 1
        if shape[dimension] != rows:
            raise UsageError(
                f"{self._site.describe()} got an input of shape {shape} in a batch of {rows}; dimension {dimension} must be "
                "the example" + ("" if batch_first else ", since batch_first is False")
            )
        if shape[1 - dimension] == 0:
            raise UsageError(f"{self._site.describe()} got an input of shape {shape}, which has no position")
        if not batch_first and shape[0] == rows > 1:
            raise RefusedError(
                "ambiguous-batch-dimension",
                f"the {rows} rows that {self._site.describe()} got may be examples or positions, since the batch is as long "
                "as its sequences; build it with batch_first=True, or use another batch size",
            )

    def _layer(
        self, layer: int, direction: int, x_TBD: Tensor, h0_BH: Tensor, c0_BH: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One layer in one direction: the outputs and the last state, (output_TBH, h_BH, c_BH)."""
        module = self._module
        w_ih_GD, w_hh_GH, *biases = module.all_weights[layer * (1 + module.bidirectional) + direction]
        bias_G = biases[0] + biases[1] if biases else None
        own = {kind: _own_name(kind, layer, direction) for kind in _kinds(module.bias)}
        names = {kind: self._site.names[name] for kind, name in own.items() if name in self._site.names}
        call = _Call(self._capture, names, reverse=bool(direction))
        return _Layer.apply(x_TBD, h0_BH, c0_BH, self._capture.anchor, w_ih_GD, w_hh_GH, bias_G, call)


@dataclass(frozen=True)
class LstmRecord:
    """One backward of one layer and direction. ``names`` maps kinds, such as ``weight_ih``, to names in the model."""

    names: Mapping[str, str]
    gradient_TBG: Tensor
    input_TBD: Tensor
    previous_TBH: Tensor
    has_private_shapes = False

    def factors(self, units: int) -> Iterator[tuple[str, Factor]]:
        """The factors of each trainable parameter, by its name in the model."""
        multiplied = {"weight_ih": self.input_TBD, "weight_hh": self.previous_TBH}
        gradient_URG = _per_unit(self.gradient_TBG, units)
        for kind, name in self.names.items():
            if kind in multiplied:
                yield name, Outer(gradient_URG, _per_unit(multiplied[kind], units))
            else:
                yield name, Dense(gradient_URG.sum(1))


@dataclass(frozen=True)
class _Call:
    capture: Capture
    names: Mapping[str, str]
    reverse: bool

    def times(self, positions: int) -> list[int]:
        return list(range(positions))[:: -1 if self.reverse else 1]

    def previous(self, states_TBH: Tensor, first_BH: Tensor) -> Tensor:
        """The state that each position starts from, stored as BT."""
        states_BTH, first_B1H = states_TBH.transpose(0, 1), first_BH[:, None]
        shifted = [states_BTH[:, 1:], first_B1H] if self.reverse else [first_B1H, states_BTH[:, :-1]]
        return torch.cat(shifted, 1).transpose(0, 1)


class _Layer(torch.autograd.Function):
    """One layer in one direction: (output_TBH, last h_BH, last c_BH). Its backward records instead of weight gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x_TBD: Tensor,
        h0_BH: Tensor,
        c0_BH: Tensor,
        anchor: Tensor,
        w_ih_GD: Tensor,
        w_hh_GH: Tensor,
        bias_G: Tensor | None,
        call: _Call,
    ) -> tuple[Tensor, Tensor, Tensor]:
        times = call.times(len(x_TBD))
        gates_TBG = F.linear(x_TBD, w_ih_GD, bias_G)
        hidden_TBH, cell_TBH, tanh_cell_TBH = _run_through_time_(gates_TBG, w_hh_GH, h0_BH, c0_BH, times)
        saved = x_TBD, h0_BH, c0_BH, w_ih_GD, w_hh_GH, gates_TBG, hidden_TBH, cell_TBH, tanh_cell_TBH
        ctx.save_for_backward(*saved)
        ctx.call = call
        return hidden_TBH, hidden_TBH[times[-1]].clone(), cell_TBH[times[-1]].clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        refuse_second_order()
        x_TBD, h0_BH, c0_BH, w_ih_GD, w_hh_GH, gates_TBG, hidden_TBH, cell_TBH, tanh_cell_TBH = ctx.saved_tensors
        call: _Call = ctx.call
        with torch.autocast(x_TBD.device.type, enabled=False):
            gradient_TBG, cell_slope_TBH = _slopes(gates_TBG, tanh_cell_TBH, call.previous(cell_TBH, c0_BH))
            forget_TBH, times = gates_TBG.chunk(4, 2)[1], call.times(len(x_TBD))
            grad_h0, grad_c0 = _run_back_(gradient_TBG, cell_slope_TBH, forget_TBH, w_hh_GH, grad_outputs, times)
            if call.names:
                previous_TBH = call.previous(hidden_TBH, h0_BH).detach()
                record = LstmRecord(call.names, gradient_TBG, x_TBD.detach(), previous_TBH)
                call.capture.add(record, f"the LSTM of {next(iter(call.names.values()))}", gradient_TBG.transpose(0, 1))
            grad_x = gradient_TBG @ w_ih_GD if ctx.needs_input_grad[0] else None
        return grad_x, grad_h0, grad_c0, None, None, None, None, None


def _run_through_time_(
    gates_TBG: Tensor, w_hh_GH: Tensor, h_BH: Tensor, c_BH: Tensor, times: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """All (h_TBH, c_TBH, tanh(c)_TBH), in the order ``times``. ``gates_TBG`` holds W_ih x + b, and the gates after."""
    hidden_TBH, cell_TBH, tanh_cell_TBH = (h_BH.new_empty(len(times), *h_BH.shape) for _ in range(3))
    # Cut once for all positions: the loop is bound by the number of calls, not by their arithmetic.
    z, hidden, cell, tanh_cell = (x_TB.unbind() for x_TB in (gates_TBG, hidden_TBH, cell_TBH, tanh_cell_TBH))
    input_forget = gates_TBG.chunk(2, 2)[0].unbind()
    input_gate, forget_gate, cell_gate, output_gate = (gate.unbind() for gate in gates_TBG.chunk(4, 2))
    w_hh_HG = w_hh_GH.T
    for t in times:
        z[t].addmm_(h_BH, w_hh_HG)
        input_forget[t].sigmoid_()
        cell_gate[t].tanh_()
        output_gate[t].sigmoid_()
        c_BH = torch.mul(forget_gate[t], c_BH, out=cell[t]).addcmul_(input_gate[t], cell_gate[t])
        h_BH = torch.mul(output_gate[t], torch.tanh(c_BH, out=tanh_cell[t]), out=hidden[t])
    return hidden_TBH, cell_TBH, tanh_cell_TBH


def _slopes(gates_TBG: Tensor, tanh_cell_TBH: Tensor, previous_cell_TBH: Tensor) -> tuple[Tensor, Tensor]:
    """What the loop back multiplies: (slope_TBG, stored as BT; cell_slope_TBH).

    The gradient at z is the slope times the gradient at the cell, for the output gate times that at h. The gradient at
    the cell grows by ``cell_slope`` times the gradient at h.
    """
    i, f, g, o = gates_TBG.chunk(4, 2)
    positions, rows, features = gates_TBG.shape
    slope_TBG = gates_TBG.new_empty(rows, positions, features).transpose(0, 1)
    i_slope, f_slope, g_slope, o_slope = slope_TBG.chunk(4, 2)
    torch.mul(i * (1 - i), g, out=i_slope)
    torch.mul(f * (1 - f), previous_cell_TBH, out=f_slope)
    torch.mul(1 - g.square(), i, out=g_slope)
    torch.mul(o * (1 - o), tanh_cell_TBH, out=o_slope)
    return slope_TBG, (1 - tanh_cell_TBH.square()).mul_(o)


def _run_back_(
    slope_TBG: Tensor,
    cell_slope_TBH: Tensor,
    forget_TBH: Tensor,
    w_hh_GH: Tensor,
    gradients: tuple[Tensor, Tensor, Tensor],
    times: Sequence[int],
) -> State:
    """The gradients at the first state; ``slope_TBG`` holds the gradients at the gates after."""
    grad_TBH, grad_h_BH, grad_c_BH = gradients
    grad_c_BH = grad_c_BH.clone()
    z, grad, cell_slope, forget = slope_TBG.unbind(), grad_TBH.unbind(), cell_slope_TBH.unbind(), forget_TBH.unbind()
    z_B4H = slope_TBG.unflatten(2, (4, w_hh_GH.shape[1]))
    through_cell, through_output = z_B4H[:, :, :3].unbind(), z_B4H[:, :, 3].unbind()
    for t in reversed(times):
        grad_h_BH = grad_h_BH + grad[t]
        grad_c_BH.addcmul_(grad_h_BH, cell_slope[t])
        through_cell[t].mul_(grad_c_BH[:, None])
        through_output[t].mul_(grad_h_BH)
        grad_c_BH.mul_(forget[t])
        grad_h_BH = z[t] @ w_hh_GH
    return grad_h_BH, grad_c_BH


def _per_unit(x_TB: Tensor, units: int) -> Tensor:
    return per_unit(x_TB.transpose(0, 1), units, 1)


def _kinds(bias: bool) -> tuple[str, ...]:
    return ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if bias else ("weight_ih", "weight_hh")


def _own_name(kind: str, layer: int, direction: int) -> str:
    return f"{kind}_l{layer}" + ("_reverse" if direction else "")

"""An LSTM over rows with private tokens: what follows a private token starts from a state that was released, not from the true one.

A row is cut into runs of public and of private tokens, by turns; the first one is public, since rows begin with a start token.

    public run   with a gradient, from the state that the run before it released (zeros at the row's start)
    private run  without a graph, from the true state; the state after it is released, and nothing else of it goes on

So the loss of public tokens is a function of public tokens and of released states, and its gradient never enters a private run
(Shi et al. 2021, arXiv 2108.12944, algorithm 2, which detaches the state likewise). All rows' runs of one number are one packed
call: 2 K + 1 calls for K releases instead of one a position.

Shapes: B rows, T positions, K releases a row, R rows with a certain run, N positions of a call, H hidden features, L layers, V
numbers of a state (2 L H).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from tacit.errors import UsageError
from tacit.models.lstm import LstmForCausalLM, LstmState, check_right_padded

__all__ = ["Release", "clipped_state", "public_hidden", "released_state"]

Release = Callable[[LstmState, Tensor, int], LstmState]
"""What may be seen of the state of some rows (L, R, H): the state, the rows' numbers (R,), which release of its row it is."""


def clipped_state(state: LstmState, clip: float) -> Tensor:
    """All numbers of each row's state, hidden and cell, all layers, as one vector of l2 norm at most ``clip``: (R, V), float64.

    A state that is not finite gives zeros. In float64, so that rounding cannot lift the norm by more than 1e-15 of it.
    """
    vector_RV = torch.cat([part.transpose(0, 1).flatten(1) for part in state], dim=1).double()
    norm_R1 = vector_RV.norm(dim=1, keepdim=True)
    clipped_RV = vector_RV * (clip / norm_R1.clamp(min=clip))
    return clipped_RV.masked_fill(~norm_R1.isfinite(), 0.0)


def released_state(state: LstmState, clip: float, noise_RV: Tensor) -> LstmState:
    """The clipped state with noise on it, in the shapes and the precision of the state.

    Args:
        noise_RV: in float64, with its final standard deviation.
    """
    hidden, _ = state
    released_RV = clipped_state(state, clip) + noise_RV
    halves = released_RV.to(hidden.dtype).unflatten(1, (2, len(hidden), hidden.shape[2])).unbind(1)
    return halves[0].transpose(0, 1).contiguous(), halves[1].transpose(0, 1).contiguous()


def public_hidden(
    model: LstmForCausalLM, ids_BT: Tensor, private_BT: Tensor, attention_BT: Tensor, releases: int, release: Release
) -> tuple[Tensor, Tensor]:
    """What the head gets where a public token follows, and where that is known.

    Args:
        model: of any number of layers.
        ids_BT: int64 token ids.
        private_BT: which tokens are private; never the first one.
        attention_BT: 1 at real positions, which come first.
        releases: K, how many states of a row are released at most; what stands behind the K-th and another private run is left out.
        release: gives the state after each private run that a public token follows.

    Returns:
        hidden (B, T, H), zeros where it is not known; known (B, T): all positions of the first K + 1 public runs, and the last one
        of each private run between them, whose hidden state is a released one.

    Raises:
        UsageError: padding before a real position, or a private token at the start of a row.
    """
    check_right_padded(attention_BT)
    private_BT = private_BT.bool() & attention_BT.bool()
    if bool(private_BT[:, 0].any()):
        raise UsageError("a row begins with a private token; rows begin with a start token, which is public")
    rows, length = ids_BT.shape
    lengths_BR = _run_lengths(private_BT, attention_BT.bool(), 2 * releases + 1)
    starts_BR = lengths_BR.cumsum(1) - lengths_BR
    state = _zero_state(model, rows)
    places: list[Tensor] = []  # row * T + position, of each value
    values: list[Tensor] = []
    for run in range(lengths_BR.shape[1]):
        is_private = run % 2 == 1
        wanted_B = lengths_BR[:, run + is_private] > 0  # a private run is read only where a public one follows
        own_R = wanted_B.nonzero().squeeze(1)
        if len(own_R) == 0:
            break
        packed = _places_of(own_R, starts_BR[own_R, run], lengths_BR[own_R, run], length)
        before = (state[0][:, own_R], state[1][:, own_R])
        if is_private:
            with torch.no_grad():
                after = release(_run(model, ids_BT, packed, before)[1], own_R, run // 2)
            places.append(own_R * length + starts_BR[own_R, run + 1] - 1)
            values.append(model.dropout(after[0][-1]))
        else:
            hidden_NH, after = _run(model, ids_BT, packed, before)
            places.append(packed.data)
            values.append(model.dropout(hidden_NH))
        for whole, part in zip(state, after, strict=True):
            whole[:, own_R] = part.detach()
    place_N = torch.cat(places)
    hidden_BTH = state[0].new_zeros(rows * length, state[0].shape[2]).index_put((place_N,), torch.cat(values))
    known_BT = torch.zeros(rows * length, dtype=torch.bool, device=ids_BT.device).index_fill(0, place_N, True)
    return hidden_BTH.view(rows, length, -1), known_BT.view(rows, length)


def _run_lengths(private_BT: Tensor, real_BT: Tensor, runs: int) -> Tensor:
    """The lengths (B, runs) of each row's first runs; even ones are public."""
    changes_BT = torch.zeros_like(private_BT)
    changes_BT[:, 1:] = private_BT[:, 1:] != private_BT[:, :-1]
    number_BT = (changes_BT & real_BT).cumsum(1)
    return torch.stack([((number_BT == run) & real_BT).sum(1) for run in range(runs)], dim=1)


def _zero_state(model: LstmForCausalLM, rows: int) -> LstmState:
    weight = model.lm_head.weight
    shape = model.lstm.num_layers, rows, model.lstm.hidden_size
    return weight.new_zeros(shape), weight.new_zeros(shape)


def _places_of(rows_R: Tensor, starts_R: Tensor, lengths_R: Tensor, length: int) -> PackedSequence:
    """Where the run's positions are, ``row * T + position``, packed."""
    offset = torch.arange(int(lengths_R.max()), device=rows_R.device)
    place_RN = (rows_R * length + starts_R)[:, None] + offset
    return pack_padded_sequence(place_RN, lengths_R.cpu(), batch_first=True, enforce_sorted=False)


def _run(model: LstmForCausalLM, ids_BT: Tensor, places: PackedSequence, state: LstmState) -> tuple[Tensor, LstmState]:
    """The outputs (N, H) in the packed order, and the state after each row's own last position."""
    embedded_NE = model.dropout(model.embedding(ids_BT.flatten()[places.data]))
    output, after = model.lstm(places._replace(data=embedded_NE), state)
    return output.data, after

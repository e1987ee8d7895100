"""Released states: against a loop over positions, and that nothing of a private token goes on but what was released."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tacit.config import ModelOptions
from tacit.errors import UsageError
from tacit.models.causal import causal_row_losses, weighted_row_losses
from tacit.models.lstm import LstmForCausalLM, LstmState
from tacit.models.lstm_release import Release, clipped_state, public_hidden, released_state

from ..networks import build_lstm

torch.set_num_threads(1)

VOCABULARY, LENGTH, WIDTH, RELEASES, CLIP = 30, 14, 6, 2, 0.3

# One row a line: p a private token, o a public one. Rows begin with a public token, as [CLS] is.
MARKS = (
    "oooooooooooooo",  # no private token
    "oopppooopoooop",  # two releases; the last private run is followed by nothing
    "opopopopopoooo",  # more private runs than releases
    "oppppppppppppp",  # no release: nothing public follows
    "ooop",  # short rows
    "oop",
    "oopo",
    "o",
)


def model_of(layers: int = 1, dtype: torch.dtype = torch.float64) -> LstmForCausalLM:
    options = ModelOptions(kind="lstm", layers=layers, width=WIDTH, length=LENGTH)
    model = build_lstm(options, VOCABULARY, 0, 2, 3, seed=4).to(dtype)
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return model.train()


def rows() -> tuple[Tensor, Tensor, Tensor]:
    """ids, private, attention; nothing at padding is 0 by chance alone."""
    ids_BT = torch.randint(5, VOCABULARY, (len(MARKS), LENGTH), generator=torch.Generator().manual_seed(1))
    private_BT = torch.tensor([[mark == "p" for mark in line.ljust(LENGTH, "o")] for line in MARKS])
    attention_BT = torch.tensor([[1] * len(line) + [0] * (LENGTH - len(line)) for line in MARKS])
    return ids_BT * attention_BT, private_BT, attention_BT


def noisy(layers: int) -> Release:
    """Clipped, with noise that is a function of the row and the release."""

    def release(state: LstmState, rows_R: Tensor, number: int) -> LstmState:
        noise = [
            torch.randn(2 * layers * WIDTH, generator=torch.Generator().manual_seed(100 * int(row) + number)).double()
            for row in rows_R
        ]
        return released_state(state, CLIP, 0.2 * torch.stack(noise))

    return release


# a loop over rows and positions --------------------------------------------------------------------------------------


def looped_hidden(
    model: LstmForCausalLM, ids_T: Tensor, private_T: Tensor, row: int, release: Release, detach: bool = True
) -> tuple[list[Tensor], list[bool]]:
    """What the head gets after each position of one row, and whether it may be used to predict a public token."""
    hidden = model.lstm.hidden_size
    state = tuple(torch.zeros(model.lstm.num_layers, 1, hidden).to(model.lm_head.weight) for _ in range(2))
    found: list[Tensor] = []
    known: list[bool] = []
    released, lost = 0, False
    for place, token in enumerate(ids_T):
        _, state = model.lstm(model.embedding(token)[None, None], state)
        ends = bool(private_T[place]) and place + 1 < len(ids_T) and not bool(private_T[place + 1])
        if ends and released == RELEASES:
            lost = True
        elif ends:
            given = tuple(part.detach() for part in state) if detach else state
            state = release(given, torch.tensor([row]), released)
            released += 1
        found.append(state[0][-1, 0])
        known.append(not lost and (ends or not bool(private_T[place])))
    return found, known


def looped(
    model: LstmForCausalLM, rows: tuple[Tensor, Tensor, Tensor], release: Release, detach: bool = True
) -> tuple[Tensor, Tensor]:
    ids_BT, private_BT, attention_BT = rows
    hidden_BTH = torch.zeros(*ids_BT.shape, WIDTH).to(model.lm_head.weight)
    known_BT = torch.zeros(ids_BT.shape, dtype=torch.bool)
    for row, size in enumerate(attention_BT.sum(1).tolist()):
        found, known = looped_hidden(model, ids_BT[row, :size], private_BT[row, :size], row, release, detach)
        for place in range(size):
            if known[place]:
                hidden_BTH[row, place] = found[place]
                known_BT[row, place] = True
    return hidden_BTH, known_BT


def weights_of(known_BT: Tensor, private_BT: Tensor, attention_BT: Tensor) -> Tensor:
    """Uneven weights at every public token whose state before it is known."""
    weights_BT = 0.5 + torch.rand(known_BT.shape, generator=torch.Generator().manual_seed(8)).double()
    counts_BT = torch.zeros_like(known_BT)
    counts_BT[:, 1:] = known_BT[:, :-1]
    return weights_BT * (counts_BT & ~private_BT & attention_BT.bool())


def gradients(model: LstmForCausalLM, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("layers", [1, 2])
def test_hidden_states_losses_and_gradients_are_those_of_a_loop(layers: int) -> None:
    model, (ids_BT, private_BT, attention_BT) = model_of(layers), rows()
    hidden_BTH, known_BT = public_hidden(model, ids_BT, private_BT, attention_BT, RELEASES, noisy(layers))
    expected_BTH, expected_BT = looped(model, rows(), noisy(layers))
    assert torch.equal(known_BT, expected_BT)
    torch.testing.assert_close(hidden_BTH, expected_BTH, rtol=1e-10, atol=1e-12)
    weights_BT = weights_of(known_BT, private_BT, attention_BT)
    found = weighted_row_losses(model.lm_head, hidden_BTH, ids_BT, weights_BT)
    logits_BTV = model.lm_head(expected_BTH[:, :-1]).log_softmax(2)
    expected = -(logits_BTV.gather(2, ids_BT[:, 1:, None])[..., 0] * weights_BT[:, 1:]).sum(1)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    mine, theirs = gradients(model, found.sum()), gradients(model, expected.sum())
    for name in theirs:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("layers", [1, 2])
def test_without_private_tokens_it_is_the_fused_pass(layers: int) -> None:
    model, (ids_BT, _, attention_BT) = model_of(layers), rows()

    def never(state: LstmState, rows_R: Tensor, number: int) -> LstmState:
        raise AssertionError("there is nothing to release")

    weights_BT = attention_BT.double()
    weights_BT[:, 0] = 0
    hidden_BTH, known_BT = public_hidden(model, ids_BT, torch.zeros_like(ids_BT), attention_BT, RELEASES, never)
    assert torch.equal(known_BT, attention_BT.bool())
    found = weighted_row_losses(model.lm_head, hidden_BTH, ids_BT, weights_BT)
    fused = causal_row_losses(model, ids_BT, attention_BT, weights_BT)
    torch.testing.assert_close(found, fused, rtol=1e-10, atol=1e-12)
    mine, theirs = gradients(model, found.sum()), gradients(model, fused.sum())
    for name in theirs:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-9, atol=1e-12, msg=name)


# what goes on from a private token -----------------------------------------------------------------------------------


Hidden = Callable[[LstmForCausalLM, tuple[Tensor, Tensor, Tensor], Release], tuple[Tensor, Tensor]]


def ours(model: LstmForCausalLM, rows: tuple[Tensor, Tensor, Tensor], release: Release) -> tuple[Tensor, Tensor]:
    return public_hidden(model, *rows, RELEASES, release)


def not_detached(
    model: LstmForCausalLM, rows: tuple[Tensor, Tensor, Tensor], release: Release
) -> tuple[Tensor, Tensor]:
    """Known wrong: the gradient goes back through the released state into the private run."""
    return looped(model, rows, release, detach=False)


def other_private_tokens(ids_BT: Tensor, private_BT: Tensor) -> Tensor:
    """Every private token another one."""
    return torch.where(private_BT, 5 + (ids_BT - 5 + 11) % (VOCABULARY - 5), ids_BT)


def check_gradient_reads_no_private_token(hidden: Hidden, dtype: torch.dtype) -> None:
    """The released states of a first pass are held fixed; other private tokens then give the same gradient bit for bit."""
    model, (ids_BT, private_BT, attention_BT) = model_of(2, dtype), rows()
    recorded: dict[tuple[int, int], list[Tensor]] = {}

    def record(state: LstmState, rows_R: Tensor, number: int) -> LstmState:
        given = noisy(2)(state, rows_R, number)
        for place, row in enumerate(rows_R.tolist()):
            recorded[row, number] = [part[:, place].detach() for part in given]
        return given

    def replay(state: LstmState, rows_R: Tensor, number: int) -> LstmState:
        """The recorded values; the graph of the state, where there is one, stays."""
        kept = [[recorded[row, number][half] for row in rows_R.tolist()] for half in range(2)]
        first, second = (torch.stack(own, 1) + (part - part.detach()) for own, part in zip(kept, state, strict=True))
        return first, second

    def gradient_of(own_ids_BT: Tensor, release: Release) -> dict[str, Tensor]:
        hidden_BTH, known_BT = hidden(model, (own_ids_BT, private_BT, attention_BT), release)
        weights_BT = weights_of(known_BT, private_BT, attention_BT).to(dtype)
        return gradients(model, weighted_row_losses(model.lm_head, hidden_BTH, own_ids_BT, weights_BT).sum())

    first = gradient_of(ids_BT, record)
    assert len(recorded) == 5  # of rows 1, 2 (two each) and 6
    second = gradient_of(other_private_tokens(ids_BT, private_BT), replay)
    assert first["embedding.weight"].abs().sum() > 0
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_public_gradient_reads_no_private_token(dtype: torch.dtype) -> None:
    check_gradient_reads_no_private_token(ours, dtype)


def test_a_state_that_is_not_detached_is_caught() -> None:
    with pytest.raises(AssertionError):
        check_gradient_reads_no_private_token(not_detached, torch.float64)


def test_the_state_after_a_private_run_does_depend_on_its_tokens() -> None:
    """Else the check above would hold for a model that reads nothing."""
    model, (ids_BT, private_BT, attention_BT) = model_of(1), rows()
    one, other = (
        public_hidden(model, ids, private_BT, attention_BT, RELEASES, noisy(1))[0]
        for ids in (ids_BT, other_private_tokens(ids_BT, private_BT))
    )
    assert not torch.equal(one, other)


# the clip --------------------------------------------------------------------------------------------------------------


Clip = Callable[[LstmState, float], Tensor]


def each_half(state: LstmState, clip: float) -> Tensor:
    """Known wrong: hidden and cell state are clipped each for itself, as in the code of Shi et al."""
    return torch.cat([clipped_state((half, torch.zeros_like(half)), clip) for half in state], dim=1)


def each_layer(state: LstmState, clip: float) -> Tensor:
    """Known wrong: a bound for every layer."""
    hidden, cell = state
    return torch.cat([clipped_state((hidden[[k]], cell[[k]]), clip) for k in range(len(hidden))], dim=1)


def not_clipped(state: LstmState, clip: float) -> Tensor:
    return clipped_state(state, 1e30)


def largest_distance(clip_of: Clip) -> float:
    """Over states of two layers of all sizes, and their mirror images."""
    generator = torch.Generator().manual_seed(3)
    largest = 0.0
    for scale in (1e-6, 1.0, 1e3, 1e18, 1e37):
        hidden, cell = (scale * torch.randn(2, 40, WIDTH, generator=generator) for _ in range(2))
        one, other = clip_of((hidden, cell), CLIP), clip_of((-hidden, -cell), CLIP)
        largest = max(largest, float((one - other).norm(dim=1).max()))
    return largest


def test_replacing_the_private_tokens_moves_the_state_by_at_most_twice_the_clip() -> None:
    assert 2 * CLIP * (1 - 1e-12) < largest_distance(clipped_state) <= 2 * CLIP * (1 + 1e-14)


@pytest.mark.parametrize("wrong", [each_half, each_layer, not_clipped])
def test_the_check_of_the_clip_catches(wrong: Clip) -> None:
    assert largest_distance(wrong) > 2 * CLIP * 1.4


def test_a_state_within_the_bound_is_left_as_it_is() -> None:
    state = (torch.full((1, 1, 2), 0.1), torch.full((1, 1, 2), -0.1))
    expected = torch.tensor([[0.1, 0.1, -0.1, -0.1]]).float().double()
    assert torch.equal(clipped_state(state, CLIP), expected)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_state_that_is_not_finite_gives_zeros_and_leaves_the_other_rows_alone(value: float) -> None:
    hidden, cell = torch.full((1, 2, 3), 0.1), torch.full((1, 2, 3), 0.1)
    cell[0, 1, 2] = value
    found = clipped_state((hidden, cell), CLIP)
    assert torch.equal(found[1], torch.zeros(6).double())
    assert torch.equal(found[0], hidden.new_full((6,), 0.1).double())


def test_released_states_have_the_shapes_and_places_of_the_state() -> None:
    hidden, cell = torch.arange(12.0).view(2, 2, 3), torch.arange(12.0, 24.0).view(2, 2, 3)
    noise_RV = 100 * torch.arange(24.0).view(2, 12).double()
    found = released_state((hidden, cell), 1e6, noise_RV)
    for half, (part, own) in enumerate(zip(found, (hidden, cell), strict=True)):
        for layer in range(2):
            for row in range(2):
                expected = own[layer, row] + noise_RV[row, 6 * half + 3 * layer :][:3]
                assert torch.equal(part[layer, row], expected.float())
    assert all(part.dtype == torch.float32 for part in found)


# bad input ------------------------------------------------------------------------------------------------------------


def test_a_row_that_begins_with_a_private_token_is_refused() -> None:
    model, (ids_BT, private_BT, attention_BT) = model_of(1), rows()
    private_BT[0, 0] = True
    with pytest.raises(UsageError, match="begins with a private token"):
        public_hidden(model, ids_BT, private_BT, attention_BT, RELEASES, noisy(1))


def test_padding_before_a_token_is_refused() -> None:
    model, (ids_BT, private_BT, attention_BT) = model_of(1), rows()
    attention_BT[0, 3] = 0
    with pytest.raises(UsageError, match="pad"):
        public_hidden(model, ids_BT, private_BT, attention_BT, RELEASES, noisy(1))

"""Fused heads against plain cross-entropy: losses, ordinary gradients, and the clipped sum against the per-example loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from transformers import GPT2LMHeadModel

from tacit.engine import PerExampleClipper, factors, heads
from tacit.engine import logits as logits_of_heads
from tacit.engine.factors import Lookup
from tacit.engine.heads import at_positions, causal_losses, token_losses
from tacit.engine.logits import IGNORE_INDEX, LEAST_ROWS, Logits, rounded_product
from tacit.errors import RefusedError, UsageError

from .cases import Batch, Case, Losses, take, tiny_gpt2, tiny_llama, tokens
from .checks import Result, assert_close, autograd, check_influence, loop_engine, our_engine, trainable

V, D, T = 23, 6, 7


class Tiny(nn.Module):
    """Table, a layer, and an output head that is tied to the table or not."""

    def __init__(self, tied: bool = True, bias: bool = False, vocabulary: int = V, width: int = D) -> None:
        super().__init__()
        self.table, self.middle = nn.Embedding(vocabulary, width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary, bias=bias)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return torch.tanh(self.middle(self.table(ids)))


def plain_token_losses(head: nn.Linear, hidden: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(head(hidden).transpose(1, 2), labels, reduction="none")


def plain_causal_losses(head: nn.Linear, hidden: Tensor, labels: Tensor) -> Tensor:
    """One row at a time, torch's own mean over the row's own labels."""
    rows = []
    for hidden_TD, label_T in zip(hidden, labels, strict=True):
        scores = head(hidden_TD[None])[0, :-1]
        mean = F.cross_entropy(scores, label_T[1:])
        rows.append(mean if (label_T[1:] != -100).any() else 0 * scores.sum())
    return torch.stack(rows) if rows else hidden.sum((1, 2))


HeadLosses = Callable[[Any, Tensor, Tensor], Tensor]


def hidden_of(model: Any, batch: Batch) -> Tensor:
    if isinstance(model, Tiny):
        return model(batch["ids"])
    body = model.transformer if isinstance(model, GPT2LMHeadModel) else model.model
    return body(batch["ids"], attention_mask=batch["mask"]).last_hidden_state


def head_of(model: Any) -> nn.Linear:
    return model.head if isinstance(model, Tiny) else model.lm_head


def causal(losses: HeadLosses, model: Any, batch: Batch) -> Tensor:
    return batch["weight"] * losses(head_of(model), hidden_of(model, batch), batch["labels"])


def every_token(losses: HeadLosses, model: Any, batch: Batch) -> Tensor:
    return batch["weight"] * losses(head_of(model), hidden_of(model, batch), batch["labels"]).sum(1)


def two_calls(losses: HeadLosses, model: Any, batch: Batch) -> Tensor:
    """The head on the hidden states, and again on others of another length."""
    hidden, labels = hidden_of(model, batch), batch["labels"]
    again = losses(head_of(model), hidden[:, 2:].flip(1).sin(), labels[:, 2:])
    return batch["weight"] * (losses(head_of(model), hidden, labels).sum(1) + again.sum(1))


def also_a_module(losses: HeadLosses, model: Any, batch: Batch) -> Tensor:
    hidden, labels = hidden_of(model, batch), batch["labels"]
    extra = head_of(model)(hidden[:, :2]).square().sum((1, 2))
    return batch["weight"] * (losses(head_of(model), hidden, labels).sum(1) + 0.1 * extra)


def chunked(function: HeadLosses, chunk: int) -> HeadLosses:
    return partial(function, chunk_positions=chunk)


def frozen_head() -> nn.Module:
    model = Tiny(tied=False, bias=True)
    model.head.requires_grad_(False)
    return model


def only_the_head() -> nn.Module:
    model = Tiny(tied=False, bias=True)
    model.table.requires_grad_(False)
    model.middle.requires_grad_(False)
    return model


def only_the_bias() -> nn.Module:
    model = Tiny(tied=False, bias=True)
    model.head.weight.requires_grad_(False)
    return model


Combination = Callable[[HeadLosses, Any, Batch], Tensor]
MODELS: dict[str, tuple[Callable[[], nn.Module], Combination]] = {
    "tied": (Tiny, every_token),
    "tied, causal": (Tiny, causal),
    "tied, bias": (lambda: Tiny(bias=True), every_token),
    "tied, more positions than features": (lambda: Tiny(width=3), every_token),
    "untied, bias": (lambda: Tiny(tied=False, bias=True), causal),
    "wide": (lambda: Tiny(width=20), every_token),
    "two calls": (lambda: Tiny(bias=True), two_calls),
    "also a module": (lambda: Tiny(bias=True), also_a_module),
    "also a module, wide": (lambda: Tiny(width=40), also_a_module),
    "frozen head": (frozen_head, every_token),
    "only the head": (only_the_head, every_token),
    "only the bias": (only_the_bias, every_token),
    "gpt2, tied": (lambda: tiny_gpt2(vocabulary=V), causal),
    "llama": (tiny_llama, causal),
    "llama, tied": (lambda: tiny_llama(tied=True), causal),
}
every_model = pytest.mark.parametrize(("build", "combination"), MODELS.values(), ids=MODELS.keys())
every_chunk = pytest.mark.parametrize("chunk", [1, 4, None])


def pair(combination: Combination, chunk: int | None) -> tuple[Losses, Losses]:
    """Ours, and the same written with the module and torch's cross-entropy."""
    if combination is causal:
        return partial(causal, partial(causal_losses, chunk_positions=chunk)), partial(causal, plain_causal_losses)
    ours = partial(token_losses, chunk_positions=chunk)
    return partial(combination, ours), partial(combination, plain_token_losses)


def clip_norm_of(case: Case, batch: Batch, losses: Losses, sequences_per_unit: int = 1) -> float:
    return loop_engine(case.model(), batch, losses, 1.0, sequences_per_unit).norms.median().item()


def check(build: Callable[[], nn.Module], losses: Losses, plain: Losses, sequences_per_unit: int = 1) -> None:
    case, rows = Case(build, tokens(T, V), losses), 4 * sequences_per_unit
    batch = case.batch(rows, 3)
    clip_norm = clip_norm_of(case, batch, plain, sequences_per_unit)
    expected = loop_engine(case.model(), batch, plain, clip_norm, sequences_per_unit)
    assert_close(our_engine(case.model(), batch, losses, clip_norm, sequences_per_unit), expected)


# Losses and ordinary gradients


@every_chunk
@pytest.mark.parametrize("bias", [False, True])
def test_losses_are_cross_entropy(bias: bool, chunk: int | None) -> None:
    case = Case(lambda: Tiny(bias=bias), tokens(T, V), causal)
    model, batch = case.model(), case.batch(4, 1)
    hidden, labels = hidden_of(model, batch), batch["labels"]
    with torch.no_grad():
        losses = token_losses(head_of(model), hidden, labels, chunk)
        assert not losses.requires_grad
        torch.testing.assert_close(losses, plain_token_losses(head_of(model), hidden, labels), rtol=1e-12, atol=1e-12)
        assert (losses[labels == -100] == 0).all()
        torch.testing.assert_close(
            causal_losses(head_of(model), hidden, labels, chunk_positions=chunk),
            plain_causal_losses(head_of(model), hidden, labels),
            rtol=1e-12,
            atol=1e-12,
        )


@pytest.mark.parametrize("build", [tiny_gpt2, tiny_llama])
def test_causal_losses_are_those_of_transformers(build: Callable[[], nn.Module]) -> None:
    case = Case(build, tokens(T, V), causal)
    model, batch = case.model(), case.batch(4, 1)
    losses = causal_losses(head_of(model), hidden_of(model, batch), batch["labels"])
    for row, loss in enumerate(losses):
        one = take(batch, [row])
        theirs = model(input_ids=one["ids"], attention_mask=one["mask"], labels=one["labels"]).loss
        torch.testing.assert_close(
            loss, theirs.double(), rtol=1e-6, atol=0
        )  # transformers computes this loss in float32


def test_reductions_and_weights() -> None:
    case = Case(Tiny, tokens(T, V), causal)
    model, batch = case.model(), case.batch(3, 1)
    hidden, labels = hidden_of(model, batch), batch["labels"].clone()
    labels[1] = -100
    each = plain_token_losses(head_of(model), hidden[:, :-1], labels[:, 1:])
    count = (labels[:, 1:] != -100).sum(1)
    weights = torch.rand(3, T, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    losses = partial(causal_losses, head_of(model), hidden, labels)
    torch.testing.assert_close(losses(), each.sum(1) / count.clamp(min=1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(losses(reduction="sum"), each.sum(1), rtol=1e-12, atol=1e-12)
    weighted = losses(reduction="sum", weights_BT=weights)
    torch.testing.assert_close(weighted, (each * weights[:, 1:]).sum(1), rtol=1e-12, atol=1e-12)
    assert losses()[1] == 0


@every_model
@every_chunk
def test_ordinary_gradients_are_autograds(
    build: Callable[[], nn.Module], combination: Combination, chunk: int | None
) -> None:
    losses, plain = pair(combination, chunk)
    case = Case(build, tokens(T, V), losses)
    model, batch = case.model(), case.batch(4, 3)
    expected = autograd(plain(model, batch).sum(), model)
    for name, gradient in autograd(losses(model, batch).sum(), model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 4), st.integers(0, 6), st.integers(1, 40), st.booleans(), st.integers(0, 10**6))
def test_any_chunk_and_shape(rows: int, positions: int, chunk: int, bias: bool, seed: int) -> None:
    """Each position's own upstream gradient; any labels left out, all of them too."""
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(D, V, bias=bias, dtype=torch.float64)
    hidden = torch.randn(rows, positions, D, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, V, (rows, positions), generator=generator)
    labels[torch.rand(rows, positions, generator=generator) < 0.3] = -100
    upstream = torch.randn(rows, positions, generator=generator, dtype=torch.float64)
    inputs = [hidden, *head.parameters()]
    ours = torch.autograd.grad(token_losses(head, hidden, labels, chunk), inputs, upstream)
    plain = torch.autograd.grad(plain_token_losses(head, hidden, labels), inputs, upstream)
    for actual, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)


# The clipped sum


@every_model
@every_chunk
def test_the_clipped_sum_is_the_loop(
    build: Callable[[], nn.Module], combination: Combination, chunk: int | None
) -> None:
    check(build, *pair(combination, chunk))


@every_model
def test_what_is_kept_of_several_parts_is_the_loop(
    build: Callable[[], nn.Module], combination: Combination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All logits fit into a chunk, and are computed by parts of it."""
    monkeypatch.setattr(heads, "_ROWS_AT_ONCE", 4)
    check(build, *pair(combination, None))


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of rows and their ends as there, computed here: the values are a CPU's."""
    for module in (factors, heads, logits_of_heads):
        monkeypatch.setattr(module, "on_gpu", lambda x: True)


@pytest.mark.usefixtures("as_on_a_gpu")
@every_model
@every_chunk
def test_what_is_multiplied_on_a_gpu_is_the_loop_too(
    build: Callable[[], nn.Module], combination: Combination, chunk: int | None
) -> None:
    check(build, *pair(combination, chunk))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("width", [6, 160])
@pytest.mark.parametrize("chunk", [50, None])
def test_long_odd_rows_are_filled_up_with_nothing_on_a_gpu(chunk: int | None, width: int) -> None:
    """509 words and 141 positions: sums and norms go over rows with an end that counts for nothing."""
    ours, plain = pair(every_token, chunk)
    case = Case(lambda: Tiny(bias=True, vocabulary=509, width=width), tokens(141, 509), ours)
    batch = case.batch(3, 3)
    clip_norm = clip_norm_of(case, batch, plain)
    assert_close(our_engine(case.model(), batch, ours, clip_norm), loop_engine(case.model(), batch, plain, clip_norm))


@pytest.mark.usefixtures("as_on_a_gpu")
def test_on_a_gpu_other_units_labels_decide_no_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """TACIT-53: known wrong is as many rows as there are labels."""

    def rows_multiplied(labelled: int) -> set[tuple[int, ...]]:
        seen: set[tuple[int, ...]] = set()

        def product(left: Tensor, right: Tensor, rounding: torch.dtype) -> Tensor:
            seen.add(tuple(left.shape))
            return rounded_product(left, right, rounding)

        for module in (heads, logits_of_heads):
            monkeypatch.setattr(module, "rounded_product", product)
        model = Tiny(tied=False)
        labels = torch.full((4, 20), IGNORE_INDEX)
        labels[0, :3], labels[1:, :labelled] = 1, 2
        clipper = PerExampleClipper(model)
        with clipper:
            hidden = model(torch.ones(4, 20, dtype=torch.long))
            token_losses(model.head, hidden, labels, chunk_positions=32).sum().backward()
        clipper.close()
        return seen

    assert rows_multiplied(1) == rows_multiplied(5) == rows_multiplied(20)
    for module in (heads, logits_of_heads):
        monkeypatch.setattr(module, "on_gpu", lambda x: False)
    assert rows_multiplied(5) != rows_multiplied(20)


@every_model
def test_a_unit_of_several_rows_is_clipped_as_one(build: Callable[[], nn.Module], combination: Combination) -> None:
    check(build, *pair(combination, 5), sequences_per_unit=2)


def test_a_unit_of_several_rows_may_have_one_mean() -> None:
    def of_units(losses_of_tokens: HeadLosses, model: Any, batch: Batch) -> Tensor:
        labels, weights = batch["labels"], (batch["labels"][:, 1:] != -100).double()
        weights = weights / weights.view(-1, 2 * (T - 1)).sum(1).clamp(min=1).repeat_interleave(2)[:, None]
        weights = F.pad(weights, (1, 0))
        if losses_of_tokens is causal_losses:
            return causal_losses(head_of(model), hidden_of(model, batch), labels, "sum", weights)
        each = losses_of_tokens(head_of(model), hidden_of(model, batch)[:, :-1], labels[:, 1:])
        return (each * weights[:, 1:]).sum(1)

    check(Tiny, partial(of_units, causal_losses), partial(of_units, plain_token_losses), sequences_per_unit=2)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.booleans(), st.integers(0, 10**6))
def test_any_chunk_in_a_context(chunk: int, rows: int, bias: bool, seed: int) -> None:
    losses, plain = pair(every_token, chunk)
    case = Case(lambda: Tiny(bias=bias), tokens(T, V), losses)
    batch = case.batch(rows, seed)
    clip_norm = clip_norm_of(case, batch, plain)
    expected = loop_engine(case.model(), batch, plain, clip_norm)
    assert_close(our_engine(case.model(), batch, losses, clip_norm), expected)


@every_chunk
def test_an_empty_batch_adds_zeros(chunk: int | None) -> None:
    losses, _ = pair(causal, chunk)
    case = Case(lambda: Tiny(bias=True), tokens(T, V), losses)
    result = our_engine(case.model(), case.batch(0, 1), losses, 1.0)
    assert result.norms.shape == (0,)
    assert result.sums.keys() == trainable(case.model()).keys()
    assert not result.vector().any()


@every_chunk
def test_a_row_without_labels_adds_zero(chunk: int | None) -> None:
    losses, plain = pair(causal, chunk)
    case = Case(lambda: Tiny(bias=True), tokens(T, V), losses)
    batch = case.batch(4, 1)
    batch["labels"][1] = -100
    actual = our_engine(case.model(), batch, losses, 1.0)
    expected = loop_engine(case.model(), take(batch, [0, 2, 3]), plain, 1.0)
    assert actual.norms[1] == 0
    assert_close(Result(actual.norms[[0, 2, 3]], actual.sums), expected)


@every_chunk
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_adds_exactly_zero(bad: float, chunk: int | None) -> None:
    def losses(function: HeadLosses, model: Any, batch: Batch) -> Tensor:
        return function(head_of(model), hidden_of(model, batch) * batch["scale"][:, None, None], batch["labels"]).sum(1)

    case = Case(lambda: Tiny(bias=True), tokens(T, V), partial(losses, partial(token_losses, chunk_positions=chunk)))
    batch = case.batch(4, 1) | {"scale": torch.tensor([1.0, 1.0, bad, 1.0], dtype=torch.float64)}
    actual = our_engine(case.model(), batch, case.losses, 1.0)
    others = take(batch, [0, 1, 3])
    expected = loop_engine(case.model(), others, partial(losses, plain_token_losses), 1.0)
    assert not actual.norms[2].isfinite()
    assert_close(Result(actual.norms[[0, 1, 3]], actual.sums), expected)


def test_a_head_that_is_not_finite_adds_exactly_zero() -> None:
    model = Case(lambda: Tiny(tied=False), tokens(T, V), causal).model()
    with torch.no_grad():
        model.head.weight[3, 1] = float("inf")
    result = our_engine(model, tokens(T, V)(4, 1), pair(every_token, 4)[0], 1.0)
    assert not result.norms.isfinite().any()
    assert not result.vector().any()


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant: bool) -> None:
    def losses(model: Any, batch: Batch) -> Tensor:
        hidden = hidden_of(model, batch)
        each = checkpoint(token_losses, head_of(model), hidden, batch["labels"], 4, use_reentrant=reentrant)
        return batch["weight"] * each.sum(1)

    check(lambda: Tiny(bias=True), losses, pair(every_token, None)[1])


@every_chunk
def test_under_autocast_no_unit_adds_more_than_the_bound(chunk: int | None) -> None:
    ours, plain = pair(every_token, chunk)

    def losses(model: nn.Module, batch: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return ours(model, batch)

    case = Case(lambda: Tiny(bias=True), tokens(T, V), losses)
    batch = case.batch(4, 8)
    clip_norm = clip_norm_of(case, batch, plain)
    model = case.model(torch.float32)
    result = our_engine(model, batch, losses, clip_norm)
    assert result.norms.dtype == torch.float32
    assert_close(result, loop_engine(case.model(), batch, plain, clip_norm), tolerance=3e-2)
    for row in range(4):
        alone = our_engine(model, take(batch, [row]), losses, clip_norm).vector()
        assert alone.norm() <= clip_norm * (1 + 1e-6)


@every_chunk
def test_losses_under_autocast_are_float32_of_rounded_inputs(chunk: int | None) -> None:
    torch.manual_seed(0)
    head, hidden, labels = nn.Linear(D, V), 9 * torch.randn(2, 3, D), torch.randint(0, V, (2, 3))
    with torch.autocast("cpu", torch.bfloat16):
        losses = token_losses(head, hidden, labels, chunk)
    losses.sum().backward()
    scores = hidden.bfloat16().float() @ head.weight.bfloat16().float().T + head.bias
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, F.cross_entropy(scores.mT, labels, reduction="none"))
    at_scores = scores.softmax(2) - F.one_hot(labels, V)
    torch.testing.assert_close(head.weight.grad, at_scores.flatten(0, 1).T @ hidden.flatten(0, 1), rtol=1e-5, atol=1e-4)


# The logits are never whole


class LargestTensor(TorchDispatchMode):
    """The most elements that a result of any operation has."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def largest_of_a_step(losses: Losses, in_context: bool) -> int:
    case = Case(lambda: Tiny(bias=True, vocabulary=400), tokens(11, 400), losses)
    model, batch = case.model(), case.batch(6, 1)
    with LargestTensor() as largest:
        if in_context:
            our_engine(model, batch, losses, 1.0)
        else:
            losses(model, batch).sum().backward()
    return largest.elements


@pytest.mark.parametrize("in_context", [False, True])
@pytest.mark.parametrize("combination", [causal, every_token, two_calls])
def test_logits_never_exist_whole(combination: Combination, in_context: bool) -> None:
    assert largest_of_a_step(pair(combination, LEAST_ROWS)[0], in_context) == LEAST_ROWS * 400
    assert largest_of_a_step(pair(every_token, None)[1], in_context) == 6 * 11 * 400


# Wrong engines and losses


def without_cross_term(self: Logits, lookup: Lookup | None = None) -> Tensor:
    return torch.cat([part._squares(None) for _, part in self._parts()])


def test_a_missing_cross_term_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Logits, "squared_norms", without_cross_term)
    with pytest.raises(AssertionError):
        check(Tiny, *pair(every_token, 4))


def test_a_mean_over_the_batch_is_caught() -> None:
    """Beside four rows of one label, a row of many: without it, all four weigh more."""

    def batch_mean(head: nn.Linear, hidden: Tensor, labels: Tensor) -> Tensor:
        sums = causal_losses(head, hidden, labels, reduction="sum")
        return sums / (labels[:, 1:] != -100).sum().clamp(min=1)

    losses, right = partial(causal, batch_mean), partial(causal, causal_losses)
    with pytest.raises(AssertionError):
        check(Tiny, losses, partial(causal, plain_causal_losses))
    case = Case(Tiny, tokens(T, V), losses)
    batch = take(case.batch(1, 8), [0] * 5)
    batch["labels"] = torch.arange(T).repeat(5, 1)
    batch["labels"][:4, 2:] = -100
    clip_norm = clip_norm_of(case, batch, losses) / 4
    with pytest.raises(AssertionError, match="row 4"):
        check_influence(our_engine, case.model(), batch, losses, clip_norm)
    check_influence(our_engine, case.model(), batch, right, clip_norm)


def test_labels_that_are_not_shifted_are_caught() -> None:
    def unshifted(head: nn.Linear, hidden: Tensor, labels: Tensor) -> Tensor:
        return token_losses(head, hidden, labels).sum(1) / (labels != -100).sum(1).clamp(min=1)

    with pytest.raises(AssertionError):
        check(Tiny, partial(causal, unshifted), partial(causal, plain_causal_losses))


# Positions of a masked head


def test_at_positions_picks_each_rows_own() -> None:
    hidden = torch.arange(2 * 5 * 3.0).view(2, 5, 3)
    picked = at_positions(hidden, torch.tensor([[4, 0], [2, 2]]))
    assert torch.equal(picked, torch.stack([hidden[0, [4, 0]], hidden[1, [2, 2]]]))


@pytest.mark.parametrize(("hidden", "slots"), [((5, 3), (5, 1)), ((2, 5, 3), (2,)), ((2, 5, 3), (3, 1))])
def test_positions_of_another_shape_are_refused(hidden: tuple[int, ...], slots: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"\(B, T, D\) and \(B, K\)"):
        at_positions(torch.zeros(hidden), torch.zeros(slots, dtype=torch.int64))


# Refusals


HIDDEN, LABELS = torch.zeros(2, 3, D), torch.zeros(2, 3, dtype=torch.int64)


@pytest.mark.parametrize("label", [-1, V, -99])
def test_a_label_out_of_range_is_refused_without_its_value(label: int) -> None:
    labels = LABELS.clone()
    labels[1, 2] = label
    with pytest.raises(UsageError, match=rf"neither in 0 .. {V - 1} nor -100$"):
        token_losses(nn.Linear(D, V), HIDDEN, labels)


class OwnLinear(nn.Linear):
    pass


@pytest.mark.parametrize("head", [nn.Identity(), OwnLinear(D, V), nn.Sequential(nn.Linear(D, V)), tiny_gpt2()])
@pytest.mark.parametrize("losses", [token_losses, causal_losses])
def test_another_head_is_refused(losses: Callable[..., Tensor], head: nn.Module) -> None:
    with pytest.raises(RefusedError, match="unknown-head"):
        losses(head, HIDDEN, LABELS)


def test_a_head_with_a_forward_or_a_weight_of_its_own_is_refused() -> None:
    head = nn.Linear(D, V)
    head.forward = lambda x: 2 * x
    pruned = prune.random_unstructured(nn.Linear(D, V), "weight", 0.5)  # type and forward as before
    for wrong in (head, pruned):
        with pytest.raises(RefusedError, match="unknown-head"):
            token_losses(wrong, HIDDEN, LABELS)


@pytest.mark.parametrize(
    ("hidden", "labels", "options", "message"),
    [
        (HIDDEN[0], LABELS, {}, "must be"),
        (HIDDEN, LABELS[:1], {}, "must be"),
        (HIDDEN[:, :, :2], LABELS, {}, "must be"),
        (HIDDEN.double(), LABELS, {}, "convert one"),
        (HIDDEN, LABELS.int(), {}, "int64"),
        (HIDDEN, LABELS, {"chunk_positions": 0}, "at least 1"),
    ],
)
def test_shapes_and_options_that_do_not_fit_are_refused(
    hidden: Tensor, labels: Tensor, options: dict[str, Any], message: str
) -> None:
    for losses in (token_losses, causal_losses):
        with pytest.raises(UsageError, match=message):
            losses(nn.Linear(D, V), hidden, labels, **options)


@pytest.mark.parametrize(
    "options", [{"reduction": "none"}, {"weights_BT": torch.ones(2, 3)}, {"reduction": "sum", "weights_BT": HIDDEN}]
)
def test_reductions_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="reduction"):
        causal_losses(nn.Linear(D, V), HIDDEN, LABELS, **options)


def test_second_order_gradients_are_refused() -> None:
    for model in (Tiny(), frozen_head()):
        losses, inputs = every_token(token_losses, model, tokens(T, V)(2, 1)), list(trainable(model).values())
        with pytest.raises(RefusedError, match="second-order-gradient"):
            torch.autograd.grad(losses.sum(), inputs, create_graph=True)


def test_a_head_outside_the_clippers_model_is_refused_unless_frozen() -> None:
    model, other, batch = Tiny(), nn.Linear(D, V), tokens(T, V)(2, 1)
    clipper = PerExampleClipper(model)
    with pytest.raises(UsageError, match="not in the clipper's model"), clipper:
        token_losses(other, model(batch["ids"]), batch["labels"])
    other.requires_grad_(False)
    with clipper:
        token_losses(other, model(batch["ids"]), batch["labels"]).sum().backward()
    assert (clipper.norms > 0).all()


def test_rows_that_are_not_the_batch_are_refused() -> None:
    model, batch = Tiny(), tokens(T, V)(4, 1)
    with pytest.raises(UsageError, match="2 rows in a batch of 4"), PerExampleClipper(model):
        token_losses(model.head, model(batch["ids"])[:2], batch["labels"][:2])


def test_losses_from_before_the_context_are_refused() -> None:
    model, batch = Tiny(), tokens(T, V)(2, 1)
    losses = every_token(token_losses, model, batch)
    with pytest.raises(RefusedError, match="parameter-outside-rule"), PerExampleClipper(model):
        losses.sum().backward()


def test_a_backward_after_the_context_is_refused() -> None:
    model, batch = Tiny(), tokens(T, V)(2, 1)
    with PerExampleClipper(model):
        losses = every_token(token_losses, model, batch)
        every_token(token_losses, model, batch).sum().backward()
    with pytest.raises(UsageError, match="after its clipping context"):
        losses.sum().backward()


def test_states_changed_before_the_backward_are_an_error() -> None:
    head, hidden = nn.Linear(D, V), torch.zeros(2, 3, D)
    losses = token_losses(head, hidden, LABELS)
    hidden += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        losses.sum().backward()


# who else has a label ------------------------------------------------------------------------------------------------


def hidden_gradients(labels: Tensor, chunk: int | None) -> tuple[Tensor, Tensor]:
    """Losses and their gradients at the hidden states, in float32, of a head that is wide enough for kernels to differ."""
    generator = torch.Generator().manual_seed(7)
    head = nn.Linear(64, 500)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    hidden = torch.randn(4, 6, 64, generator=generator, requires_grad=True)
    losses = token_losses(head, hidden, labels, chunk)
    losses.sum().backward()
    assert hidden.grad is not None
    return losses.detach(), hidden.grad


def depends_on_others(chunk: int | None) -> bool:
    """Whether the last row's two losses, or their gradients, hang on how many labels the other rows have."""
    full = torch.randint(0, 500, (4, 6), generator=torch.Generator().manual_seed(8))
    few = full.clone()
    few[:3], few[3, 2:] = IGNORE_INDEX, IGNORE_INDEX
    more = few.clone()
    more[:3] = full[:3]
    alone, beside = hidden_gradients(few, chunk), hidden_gradients(more, chunk)
    return not all(torch.equal(one[3], other[3]) for one, other in zip(alone, beside, strict=True))


@pytest.mark.parametrize("chunk", [None, 18])  # with 18 the row's two labels are a chunk of their own beside the others
def test_a_rows_gradient_is_the_same_to_the_bit_however_many_others_have_a_label(
    chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not depends_on_others(chunk)
    monkeypatch.setattr(logits_of_heads, "LEAST_ROWS", 1)  # known wrong: other kernels for one to three rows
    assert depends_on_others(None)


# where a unit stands -------------------------------------------------------------------------------------------------


def logits_of_equal_units(units: int, positions: int, words: int, block: int, width: int = 16) -> Logits:
    generator = torch.Generator().manual_seed(positions)
    hidden = torch.randn(1, positions, width, generator=generator).expand(units, -1, -1).contiguous()
    weight = torch.randn(words, width, generator=generator)
    labels = torch.randint(words, (1, positions), generator=generator).expand(units, -1).contiguous()
    lse = torch.logsumexp(hidden[0] @ weight.T, 1).expand(units, -1).contiguous()
    upstream = torch.full((units, positions), 1 / positions)
    return Logits(hidden, upstream, labels, lse, weight, torch.zeros(words), torch.float32, block)


def differ_by_place(head: Logits) -> bool:
    own = [head.squared_norms(), head.bias_gradient().gradient_Uw, head.dense().gradient_Uw, head.outer().left_URp]
    index = torch.arange(head.label_UR.shape[1]).expand(len(head.label_UR), -1).contiguous()
    own.append(head.squared_norms(Lookup(index, head.hidden_URd, len(head.weight_Vd))))
    return not all(torch.equal(one, found[0]) for found in own for one in found)


@pytest.mark.parametrize("words", [1100, 2001, 4097])
@pytest.mark.parametrize(("units", "positions"), [(5, 15), (7, 24), (9, 13)])
def test_equal_units_have_equal_norms_in_every_place(units: int, positions: int, words: int) -> None:
    """30th attack, TACIT-50: the last units were a smaller part, with wider blocks of columns."""
    assert not differ_by_place(logits_of_equal_units(units, positions, words, 2 * positions * 1024, 64))
    more = 40 + positions  # than there are features: norms are those of the gradients themselves
    assert not differ_by_place(logits_of_equal_units(units, more, words, 2 * more * 1024, 16))


def test_a_smaller_last_part_rounds_its_units_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-wrong version of the test above: parts as they come, and blocks of columns from each part's own size."""

    def as_they_come(self: Logits) -> Iterator[tuple[slice, Logits]]:
        most = max(1, self.block // (self.label_UR.shape[1] * 1024))
        for first in range(0, len(self.label_UR), most):
            some = slice(first, min(first + most, len(self.label_UR)))
            yield some, self._with([tensor[some] for tensor in self._per_position()])

    monkeypatch.setattr(Logits, "_parts", as_they_come)
    heads = [logits_of_equal_units(3, positions, 8192, 2 * positions * 1024, 192) for positions in (64, 100, 191)]
    assert any(map(differ_by_place, heads)) or torch.backends.cpu.get_cpu_capability() != "AVX512"


def test_equal_units_have_equal_sums_over_positions() -> None:
    """Of a head whose words are no multiple of four each unit began at another place in memory."""
    differ = 0
    for positions, words in itertools.product((8, 15, 33), (61, 62, 2001, 4095)):
        generator = torch.Generator().manual_seed(words)
        own_Rv, weight_R = (
            torch.randn(positions, words, generator=generator),
            torch.randn(positions, generator=generator),
        )
        x_URv, weight_UR = own_Rv.expand(9, -1, -1).contiguous(), weight_R.expand(9, -1).contiguous()
        found = logits_of_heads.sum_over_positions(weight_UR, x_URv)
        assert all(torch.equal(one, found[0]) for one in found)
        plain = torch.bmm(weight_UR[:, None], x_URv)[:, 0]  # as it was
        differ += not all(torch.equal(one, plain[0]) for one in plain)
    assert differ or torch.backends.cpu.get_cpu_capability() != "AVX512"


@given(st.integers(1, 3000), st.integers(0, 1000))
def test_no_block_of_columns_is_thin(words: int, most: int) -> None:
    blocks = [*logits_of_heads._column_blocks(words, most)]
    assert [place for block in blocks for place in range(block.start, block.stop)] == [*range(words)]
    assert len(blocks) == 1 or min(block.stop - block.start for block in blocks) >= 64
    assert max(block.stop - block.start for block in blocks) < max(64, most) + 64


def test_thin_blocks_round_otherwise() -> None:
    """What the rule is for: a product of two columns has other bits than the same columns of a wide one."""
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(300, 768, generator=generator), torch.randn(700, 768, generator=generator)
    differ = [not torch.equal(x @ weight[-tail:].T, (x @ weight.T)[:, -tail:]) for tail in (1, 2, 3, 5, 8, 11)]
    assert any(differ) or torch.backends.cpu.get_cpu_capability() != "AVX512"
    assert torch.equal(x @ weight[-64:].T, (x @ weight.T)[:, -64:])


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8])
def test_a_product_has_rows_for_every_thread(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert logits_of_heads.least_rows() >= max(16, 8 * threads)

"""Poisson sampling against its law, with samplers in common use that must fail the same test (T6)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.engine import micro_batches, poisson_sample, sampler
from tacit.engine.sampler import PADDING
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness

UNITS, STEPS, Q = 2000, 400, 0.05
FALSE_ALARM = 1e-6
STREAMS = KeyedRandomness(bytes(range(32)))

Sampler = Callable[[int], np.ndarray]


def ours(step: int) -> np.ndarray:
    return poisson_sample(UNITS, Q, STREAMS.generator("sampling", step))


def z_score(count: float, mean: float, variance: float) -> float:
    return (count - mean) / math.sqrt(variance)


def scores(sampler: Sampler) -> dict[str, float]:
    """Standard scores of what the law fixes: each is (nearly) normal if every unit is in independently with probability q."""
    inside = np.zeros((STEPS, UNITS))
    for step in range(STEPS):
        inside[step, sampler(step)] = 1
    sizes, counts = inside.sum(1), inside.sum(0)
    pairs = Q**2 * (1 - Q**2)
    chained = Q**3 * (1 - Q)  # covariance of two products that share a factor
    between = (inside[1:] * inside[:-1]).sum()
    neighbours = (inside[:, 1:] * inside[:, :-1]).sum()
    return {
        "total": z_score(inside.sum(), UNITS * STEPS * Q, UNITS * STEPS * Q * (1 - Q)),
        "sizes vary": chi_square_score(sizes, UNITS),
        "units alike": chi_square_score(counts, STEPS),
        "steps independent": z_score(
            between, UNITS * (STEPS - 1) * Q**2, UNITS * ((STEPS - 1) * pairs + 2 * (STEPS - 2) * chained)
        ),
        "units independent": z_score(
            neighbours, STEPS * (UNITS - 1) * Q**2, STEPS * ((UNITS - 1) * pairs + 2 * (UNITS - 2) * chained)
        ),
    }


def chi_square_score(counts: np.ndarray, trials: int) -> float:
    """Of counts that are Binomial(trials, q): their spread, as a normal score in both directions."""
    statistic = ((counts - trials * Q) ** 2 / (trials * Q * (1 - Q))).sum()
    tail = stats.chi2.sf(statistic, len(counts))
    return float(stats.norm.isf(min(max(tail, 1e-300), 1 - 1e-16)))


def check_poisson(sampler: Sampler) -> None:
    found = scores(sampler)
    threshold = stats.norm.isf(FALSE_ALARM / (2 * len(found)))
    failed = {name: round(score, 1) for name, score in found.items() if abs(score) > threshold}
    assert not failed, failed


def test_the_draws_follow_the_law() -> None:
    check_poisson(ours)


def shuffled_epochs(step: int) -> np.ndarray:
    """A fixed-size slice of a shuffled epoch: what data loaders do."""
    per_epoch = round(1 / Q)
    order = STREAMS.generator("epoch", step // per_epoch).permutation(UNITS)
    size = round(UNITS * Q)
    return order[(step % per_epoch) * size : (step % per_epoch + 1) * size]


def fixed_size(step: int) -> np.ndarray:
    return STREAMS.generator("sampling", step).choice(UNITS, round(UNITS * Q), replace=False)


def reused_draw(step: int) -> np.ndarray:
    """The generator is not keyed by the step (every other step repeats the one before)."""
    return poisson_sample(UNITS, Q, STREAMS.generator("sampling", step // 2))


def blocks(step: int) -> np.ndarray:
    """Neighbours are drawn together: ranks that share a seed."""
    half = poisson_sample(UNITS // 2, Q, STREAMS.generator("sampling", step))
    return np.sort(np.concatenate([2 * half, 2 * half + 1]))


def capped(step: int) -> np.ndarray:
    return ours(step)[: round(1.05 * UNITS * Q)]


def rate(factor: float) -> Sampler:
    return lambda step: poisson_sample(UNITS, factor * Q, STREAMS.generator("sampling", step))


WRONG: dict[str, tuple[Sampler, str]] = {
    "shuffled epochs": (shuffled_epochs, "units alike"),
    "fixed size": (fixed_size, "sizes vary"),
    "reused draw": (reused_draw, "steps independent"),
    "blocks": (blocks, "units independent"),
    "capped": (capped, "sizes vary"),
    "3 % too rare": (rate(0.97), "total"),
    "3 % too often": (rate(1.03), "total"),
}


@pytest.mark.parametrize(("sampler", "failed"), WRONG.values(), ids=WRONG.keys())
def test_wrong_samplers_fail(sampler: Sampler, failed: str) -> None:
    with pytest.raises(AssertionError, match=failed):
        check_poisson(sampler)


def test_indices_are_sorted_int64_and_repeatable() -> None:
    first, again = ours(3), ours(3)
    assert first.dtype == np.int64
    assert (np.diff(first) > 0).all()
    assert (first == again).all()
    assert first.tolist() != ours(4).tolist()


def test_one_uniform_a_unit_whatever_the_probability() -> None:
    """So a unit drawn at a low probability is drawn at every higher one, and what follows in the stream is the same."""
    generators = [STREAMS.generator("nested") for _ in range(4)]
    probabilities = (0.0, 0.1, 0.6, 1.0)
    draws = [set(poisson_sample(500, q, g).tolist()) for q, g in zip(probabilities, generators, strict=True)]
    assert draws[0] == set()
    assert draws[0] < draws[1] < draws[2] < draws[3] == set(range(500))
    assert len({generator.random() for generator in generators}) == 1


def test_no_units_no_draw() -> None:
    assert poisson_sample(0, 0.5, STREAMS.generator("x")).shape == (0,)


@pytest.mark.parametrize(("units", "probability"), [(-1, 0.5), (3, -0.1), (3, 1.1), (3, float("nan"))])
def test_options_out_of_range(units: int, probability: float) -> None:
    with pytest.raises(UsageError, match="must"):
        poisson_sample(units, probability, STREAMS.generator("x"))


@settings(derandomize=True, deadline=None)
@given(count=st.integers(0, 60), size=st.integers(1, 20))
def test_micro_batches_hold_every_index_once_in_one_shape(count: int, size: int) -> None:
    indices = np.arange(count, dtype=np.int64) * 3
    pieces = list(micro_batches(indices, size))
    assert len(pieces) == math.ceil(count / size)
    assert all(piece.shape == real.shape == (size,) for piece, real in pieces)
    assert [i for piece, real in pieces for i in piece[real].tolist()] == indices.tolist()
    assert all((piece[~real] == PADDING).all() for piece, real in pieces)


def test_micro_batches_need_a_size() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        next(micro_batches(np.arange(3), 0))


def test_the_uniforms_that_are_drawn_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generators = [STREAMS.generator("sampling", 1) for _ in range(4)]
    whole = np.flatnonzero(generators[0].random(1000) < 0.3)
    for size, generator in zip((1, 7, 1000), generators[1:], strict=True):
        monkeypatch.setattr(sampler, "_UNIFORMS_AT_ONCE", size)
        found = poisson_sample(1000, 0.3, generator)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, whole)

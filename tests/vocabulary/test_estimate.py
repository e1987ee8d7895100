"""Counts estimated from what was released: nearer to the truth than the noisy counts, and a function of released values alone."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.vocabulary.estimate import ChosenWords, estimate_counts, weights_as_counts

NOISE = 150.0


def zipf(words: int, rng: np.random.Generator) -> tuple[dict[str, int], dict[str, int]]:
    """(true counts, public counts): the public ones follow a power of the true ones, with words that never occur."""
    true = {f"w{rank}": round(2000 / rank**0.8) if rng.random() < 0.7 else 0 for rank in range(1, words + 1)}
    public = {f"w{rank}": max(1, round(40_000 / rank * rng.lognormal(0, 0.7))) for rank in range(1, words + 1)}
    return true, public


def error(found: dict[str, int], true: dict[str, int]) -> float:
    return float(np.sqrt(np.mean([(found[word] - true[word]) ** 2 for word in true])))


def test_public_counts_bring_the_estimate_nearer_than_the_noise() -> None:
    rng = np.random.default_rng(1)
    true, public = zipf(5000, rng)
    noisy = {word: count + round(rng.normal(0, NOISE)) for word, count in true.items()}
    found = estimate_counts(noisy, NOISE, public, [])
    assert error(found, true) < 0.2 * error(noisy, true)
    flat = estimate_counts(noisy, NOISE, dict.fromkeys(public, 1), [])
    assert error(found, true) < 0.5 * error(flat, true)  # a list without counts helps less


def test_a_chosen_word_goes_by_its_weight_where_that_is_less_noisy() -> None:
    rng = np.random.default_rng(2)
    true = {f"c{n}": int(count) for n, count in enumerate(rng.integers(200, 1500, 300))}
    noisy = {word: count + round(rng.normal(0, NOISE)) for word, count in true.items()}
    chosen = ChosenWords({word: round(40 * count + rng.normal(0, 800)) for word, count in true.items()}, 800.0)
    found = estimate_counts(noisy, NOISE, {}, [chosen])
    assert error(found, true) < 30  # 800 / 40 is 20
    blunt = ChosenWords({word: round(40 * count + rng.normal(0, 30_000)) for word, count in true.items()}, 30_000.0)
    assert error(estimate_counts(noisy, NOISE, {}, [blunt]), true) < error(noisy, true)


def test_every_word_has_a_count_of_at_least_one() -> None:
    noisy = {"a": -900, "b": 3, "c": 0, "d": -5}
    found = estimate_counts(noisy, NOISE, {"a": 7, "b": 7, "c": 7}, [ChosenWords({"d": 90}, 10.0)])
    assert found.keys() == noisy.keys()
    assert min(found.values()) >= 1


@pytest.mark.parametrize("public", [{}, {"a": 1}, {"a": 3, "b": 3}])
def test_lists_of_few_or_equal_counts_are_estimated_too(public: dict[str, int]) -> None:
    found = estimate_counts(dict.fromkeys(public, 10), NOISE, public, [])
    assert found.keys() == public.keys()


def test_the_result_does_not_depend_on_the_order_of_its_parts() -> None:
    rng = np.random.default_rng(3)
    true, public = zipf(200, rng)
    noisy = {word: count + round(rng.normal(0, NOISE)) for word, count in true.items()}
    backwards = dict(reversed(noisy.items())), dict(reversed(public.items()))
    assert estimate_counts(noisy, NOISE, public, []) == estimate_counts(backwards[0], NOISE, backwards[1], [])


def test_weights_stand_for_counts_where_there_are_none() -> None:
    rounds = [ChosenWords({"fever": 70_000, "cough": 200_000}, 9e4), ChosenWords({"zoster": 9_000}, 8e4)]
    assert weights_as_counts(rounds, 65_536) == {"fever": 1, "cough": 3, "zoster": 1}

"""Solved noise is looked up, and what is looked up is certified: whatever lies in the cache, no budget is missed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.privacy.accounting.accountant import epsilon, shared_account
from tacit.privacy.accounting.calibrate import histogram, scaled_noise, training_noise
from tacit.privacy.accounting.calibrate_words import weighted_rounds
from tacit.privacy.accounting.composition import chosen_pld
from tacit.privacy.accounting.exchange import exchange_pld
from tacit.privacy.accounting.sampled_gaussian import poisson_gaussian_pld
from tacit.privacy.accounting.solved import cache_folder, kept
from tacit.privacy.accounting.weighted import worst_case_pld
from tacit.privacy.events import Chosen, Gaussian, PoissonGaussian, Relation, Spend

TARGET, DELTA = 2.0, 1e-5


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tacit" / "solved"


def a_training(
    target: float = TARGET, delta: float = DELTA, steps: int = 2, relation: Relation = "add-or-remove"
) -> float:
    return training_noise(target, delta, [(0.5, steps)], relation)


def a_scale(
    target: float = TARGET, delta: float = DELTA, steps: int = 2, relation: Relation = "add-or-remove"
) -> float:
    return scaled_noise(target, delta, lambda noise: [Spend(Gaussian(noise), steps)], relation)


def spent(noise: float) -> float:
    return epsilon([Spend(Gaussian(noise), 2)], DELTA)


@pytest.mark.parametrize(
    "solve",
    [
        a_training,
        a_scale,
        lambda: histogram(TARGET, DELTA, 8),
        lambda: weighted_rounds(TARGET, DELTA, 8, (0.3, 0.7), 0.2),
        lambda: weighted_rounds(TARGET, DELTA, 8),
    ],
)
def test_the_second_answer_is_the_first_one(solve: Callable[[], Any], cache: Path) -> None:
    first = solve()
    (stored,) = cache.iterdir()
    kept_time = stored.stat().st_mtime_ns
    assert solve() == first
    assert repr(solve()) == repr(first)  # whole numbers are whole numbers still
    assert [stored] == list(cache.iterdir())
    assert stored.stat().st_mtime_ns == kept_time


def test_what_a_search_has_tried_is_let_go_of(cache: Path) -> None:
    # Asked for itself: a test before this one may have asked for its epsilon, which is kept too.
    account = shared_account((Spend(PoissonGaussian(0.1, 1.0), 3),), "add-or-remove")
    assert account.epsilon(DELTA) > 0
    chosen_pld(Chosen(((Spend(Gaussian(1.0), 1),), (Spend(Gaussian(2.0), 1),))), 1, "add-or-remove", 1e-3)
    large = (shared_account, poisson_gaussian_pld, chosen_pld)
    assert all(one.cache_info().currsize > 0 for one in large)
    a_training()
    assert all(one.cache_info().currsize == 0 for one in (*large, exchange_pld, worst_case_pld))


def test_other_questions_have_other_answers(cache: Path) -> None:
    questions: list[dict[str, Any]] = [{}, {"target": 3.0}, {"delta": 1e-6}, {"steps": 3}, {"relation": "replace"}]
    answers = [a_scale(**question) for question in questions]
    assert len(list(cache.iterdir())) == len(questions)
    assert len(set(answers)) == len(questions)
    training = a_training(steps=3)
    assert len(list(cache.iterdir())) == len(questions) + 1
    assert training != a_training(steps=4)
    assert [a_scale(**question) for question in questions] == answers


def test_a_stored_noise_that_misses_the_budget_is_solved_again(cache: Path) -> None:
    true = a_scale()
    (stored,) = cache.iterdir()
    for wrong in (0.99 * true, 0.5 * true, -1.0, 0.0):
        stored.write_text(json.dumps(wrong))
        if wrong > 0:
            assert spent(wrong) > TARGET  # known wrong: as it stands it would be no answer
        assert a_scale() == true
        assert json.loads(stored.read_text()) == true
    stored.write_text(json.dumps(2 * true))  # too much noise costs utility, and keeps the budget
    assert spent(a_scale()) <= TARGET


@pytest.mark.slow
def test_a_stored_choice_of_words_that_misses_the_budget_is_solved_again(cache: Path) -> None:
    true = histogram(TARGET, DELTA, 8)
    (stored,) = cache.iterdir()
    noise, threshold = json.loads(stored.read_text())
    for wrong in (
        [noise, threshold - 3],
        [noise * 0.9, threshold],
        [noise],
        [noise, threshold, 1],
        [True, threshold],
        [1e400, 3],
    ):
        stored.write_text(json.dumps(wrong))
        assert histogram(TARGET, DELTA, 8) == true
    stored.unlink()
    rounds = weighted_rounds(TARGET, DELTA, 8, (0.3, 0.7), 0.2)
    (stored,) = cache.iterdir()
    values = json.loads(stored.read_text())
    first, last = values["rounds"]
    for wrong in (
        {"rounds": [first, [last[0], last[1] - 9000]]},
        {"rounds": [last]},
        {"counts": None},
        {"counts": 3.0},
    ):
        stored.write_text(json.dumps({**values, **wrong}))
        assert weighted_rounds(TARGET, DELTA, 8, (0.3, 0.7), 0.2) == rounds


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_text(""),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text("NaN"),
        lambda path: path.write_text("1e999"),
        lambda path: path.write_text("true"),
        lambda path: path.write_text('"9.0"'),
        lambda path: path.write_text("[9.0]"),
        lambda path: path.write_text("null"),
        lambda path: path.write_text("9" * 5000),
        lambda path: path.write_text("9.0" + " " * 10**6),
        _folder,
        _loop,
        _pipe,
    ],
)
def test_whatever_lies_there_is_no_error(spoil: Callable[[Path], Any], cache: Path) -> None:
    true = a_scale()
    (stored,) = cache.iterdir()
    spoil(stored)
    assert a_scale() == true


def test_without_a_place_it_is_solved_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    calls: list[int] = []
    for _ in range(2):
        assert kept("a question", lambda: calls.append(1) or 7, int, lambda stored: stored) == 7
    assert len(calls) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the standard says: then as if it were not set
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "tacit" / "solved"
    for _ in range(2):
        assert kept("a question", lambda: calls.append(1) or 7, int, lambda stored: stored) == 7
    assert len(calls) == 3

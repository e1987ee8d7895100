"""Warnings of a plan: each fires where it should and nowhere near, and its bound is that of training itself."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.config import RunConfig, load_config, parse_config
from tacit.planning import make_plan
from tacit.planning.usefulness import signal_to_noise, signal_to_noise_at_most, units_needed
from tacit.privacy.accounting.accountant import mu_at
from tacit.training.plans import DpPlan

RECIPES = Path(__file__).parents[1] / "recipes"
DELTA = 1e-5


def values(**sections: Any) -> dict[str, Any]:
    """A run about which nothing is to be said."""
    phase = {
        "name": "private",
        "plan": "dp",
        "stream": "private",
        "steps": 200,
        "learning_rate": 1e-3,
        "clip_norm": 0.5,
    }
    public = {"name": "public", "plan": "plain", "stream": "public", "steps": 9, "batch_size": 8, "learning_rate": 1e-3}
    return {
        "run": "runs/test",
        "privacy": {"unit": "user", "units": 20_000, "budget": {"epsilon": 4.0, "delta": DELTA}},
        "private": {"path": "/nowhere/notes.jsonl", "user_field": "patient"},
        "public": [{"path": "/nowhere/public.jsonl"}],
        "vocabulary": {"method": "histogram", "noise_stddev": 45.0, "threshold": 240, "max_words": 16, "size": 2000},
        "model": {"layers": 1, "width": 32, "heads": 2, "length": 32},
        "phases": [public, {**phase, "expected_batch": 1000, "noise_multiplier": 2.0}],
        **sections,
    }


def configure(**sections: Any) -> RunConfig:
    return parse_config(values(**sections))


def warned(**sections: Any) -> list[str]:
    """First words of the warnings."""
    return [warning.partition(":")[0] for warning in make_plan(configure(**sections)).warnings]


def budget(units: int, epsilon: float = 4.0) -> dict[str, Any]:
    return {"unit": "user", "units": units, "budget": {"epsilon": epsilon, "delta": DELTA}}


def with_noise(noise: float | None, batch: int, steps: int = 200) -> list[dict[str, Any]]:
    public, private = values()["phases"]
    return [public, {**private, "noise_multiplier": noise, "expected_batch": batch, "steps": steps}]


def test_nothing_is_said_of_a_good_plan() -> None:
    assert warned() == []


def test_a_threshold_that_is_large_against_the_units() -> None:
    """The line: one unit in twenty of those that are trained on, 0.9 of the stated."""
    good, bad = math.ceil(240 / 0.05 / 0.9), math.floor(240 / 0.05 / 0.9) - 1
    assert "vocabulary" not in warned(privacy=budget(good, 12.0))
    assert "vocabulary" in warned(privacy=budget(bad, 12.0))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["histogram", "weighted"])
def test_the_way_out_that_is_named_is_one(method: str) -> None:
    """Seven hundred chats and the default: the warning; with what it suggests: none."""
    privacy, solved = budget(700, 8.0), {"method": method, "size": 2000}
    assert warned(privacy=privacy, vocabulary=solved, phases=with_noise(None, 200)).count("vocabulary") == 1
    (words,) = [
        one
        for one in make_plan(configure(privacy=privacy, vocabulary=solved, phases=with_noise(None, 200))).warnings
        if one.startswith("vocabulary")
    ]
    assert "public_corpora: true" in words
    assert "method: weighted" in words
    mended = {"method": "weighted", "public_corpora": True, "size": 2000}
    assert "vocabulary" not in warned(privacy=privacy, vocabulary=mended, phases=with_noise(None, 200))


def test_noise_that_drowns_what_all_steps_can_learn() -> None:
    parameters = make_plan(configure()).parameters
    at_one = math.sqrt(200) * 100 / math.sqrt(parameters)  # the noise multiplier with a ratio of exactly 1
    assert "private" not in warned(phases=with_noise(0.99 * at_one, 100))
    assert "private" in warned(phases=with_noise(1.01 * at_one, 100))


def test_too_few_units_for_the_epsilon() -> None:
    config = configure(privacy=budget(200, 1.0), phases=with_noise(None, 100))
    assert {"private", "privacy"} <= {warning.partition(":")[0] for warning in make_plan(config).warnings}
    needed = units_needed(1.0, DELTA, make_plan(config).parameters)
    (words,) = [warning for warning in make_plan(config).warnings if warning.startswith("privacy")]
    assert f"{needed:,} units" in words
    assert re.search(r"for no choice of batch and steps is what is learned above 0\.\d\d of the noise", words)


def test_the_ratio_is_that_of_training() -> None:
    """All units pull one way at every step: the sum of the steps against the sum of the noise, by drawing it."""
    steps, batch, noise, size, clip = 50, 40, 3.0, 4000, 0.5
    draws = np.random.default_rng(0)
    signal = np.zeros(size)
    signal[0] = clip  # the mean of clipped gradients, of the largest norm that clipping allows
    total = sum((draws.normal(0, noise * clip, size) / batch for _ in range(steps)), np.zeros(size))
    found = np.linalg.norm(steps * signal) / np.linalg.norm(total)
    assert found == pytest.approx(signal_to_noise(steps, batch, noise, size), rel=0.05)
    assert found != pytest.approx(
        math.sqrt(steps) * signal_to_noise(steps, batch, noise, size), rel=0.05
    )  # known wrong


@pytest.mark.parametrize(("batch", "steps"), [(2000, 1), (400, 40), (60, 400)])
def test_no_schedule_is_above_the_bound_for_its_units(batch: int, steps: int) -> None:
    """The noise is solved by the accountant, and knows nothing of the bound; full batches are nearly at it."""
    public = {**values()["vocabulary"], "method": "public"}
    vocabulary = {"method": "public", "size": public["size"]}
    config = configure(
        privacy=budget(2000, 2.0),
        phases=with_noise(None, batch, steps),
        vocabulary=vocabulary,
        evaluation={"held_out": 0.0},
    )
    plan = make_plan(config)
    private = plan.mechanisms.phases[-1].plan
    assert isinstance(private, DpPlan)
    noise = private.noise_multiplier
    found = signal_to_noise(steps, batch, noise, plan.parameters)
    best = signal_to_noise_at_most(2000, mu_at(2.0, DELTA), plan.parameters)
    assert found <= best * 1.01
    assert batch < 2000 or found > 0.98 * best


@pytest.mark.parametrize(("steps", "silent"), [(None, True), (6250, True), (60, False)])
def test_a_control_that_is_too_short_to_show_power(steps: int | None, silent: bool) -> None:
    audit = {"control": True, **({} if steps is None else {"control_steps": steps})}
    assert ("audit" not in warned(audit=audit, privacy=budget(10_000))) == silent


def test_a_control_that_its_own_cap_makes_too_short() -> None:
    assert "audit" in warned(audit={"control": True}, privacy=budget(50_000))
    assert "audit" not in warned(audit={"control": False}, privacy=budget(50_000))


@pytest.mark.parametrize(("steps", "silent"), [(200, True), (20, False)])
def test_a_control_without_noise_sees_what_the_run_sees(steps: int, silent: bool) -> None:
    config = configure(audit={"control": "without-noise"}, phases=with_noise(2.0, 200, steps), privacy=budget(2000))
    warnings = " ".join(make_plan(config).warnings)
    assert ("the control without noise sees each unit about 2.0 times" in warnings) == (not silent)


def test_public_words_are_recommended_where_nothing_is_said_of_them() -> None:
    def noted(**options: Any) -> bool:
        vocabulary = {"max_words": 16, "size": 2000, **options}
        return any("public_corpora is left out" in note for note in make_plan(configure(vocabulary=vocabulary)).notes)

    assert noted()
    assert not noted(public_corpora=True)
    assert not noted(public_corpora=False)
    assert not noted(method="weighted")


def covered_by_the_table() -> dict[tuple[str, str], dict[str, float]]:
    """Of docs/vocabulary.md, by (epsilon, column): which share of the notes' words each method covers."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for line in (RECIPES.parent / "docs" / "vocabulary.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[1] in ("histogram", "weighted", "sips"):
            for column, cell in (("alone", cells[3]), ("beside public words", cells[5])):
                found.setdefault((cells[0], column), {})[cells[1]] = float(cell)
    return found


def test_the_default_method_is_the_best_of_the_documented_table() -> None:
    """Best, or as good as the best, most often; and nowhere below the method that is simplest."""
    table = covered_by_the_table()
    assert len(table) == 4
    default = configure(vocabulary={}).vocabulary.method
    wins = {
        method: sum(row[method] == max(row.values()) for row in table.values())
        for method in ("histogram", "weighted", "sips")
    }
    assert wins[default] > max(number for method, number in wins.items() if method != default)
    assert all(row[default] > row["histogram"] for row in table.values() if default != "histogram")


def test_the_recipe_that_was_measured_as_good_is_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_DATA", "/nowhere")
    assert make_plan(load_config(RECIPES / "clinical-bert.yaml")).warnings == ()

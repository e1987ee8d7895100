"""The stages of a ledger against those of its configuration, for every kind of run: an honest one holds, another one does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit import planning
from tacit.config import parse_config
from tacit.privacy.events import BandedPoissonGaussian
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import Provenance
from tacit.release.configured import _check_plans

from ..adaptive_runs import adaptive_values
from ..small import small_values

PRIVATE = {
    "name": "private",
    "plan": "dp",
    "stream": "private",
    "steps": 12,
    "expected_batch": 20,
    "clip_norm": 0.5,
    "sequences_per_unit": 2,
    "learning_rate": 1e-3,
}
KINDS: dict[str, dict[str, Any]] = {
    "given noise": {},
    "solved noise": {"phases": [PRIVATE]},
    "solved histogram": {"phases": [PRIVATE], "vocabulary": {"method": "histogram", "max_words": 16, "size": 500}},
    "replacement": {
        "phases": [PRIVATE],
        "vocabulary": {"method": "histogram", "max_words": 16, "size": 500},
        "privacy": {
            "unit": "user",
            "units": 150,
            "relation": "replace",
            "budget": {"epsilon": 9.0, "delta": 1e-4},
        },
    },
    "weighted": {"phases": [PRIVATE], "vocabulary": {"method": "weighted", "max_words": 16, "size": 500}},
    "sips": {"phases": [PRIVATE], "vocabulary": {"method": "sips", "max_words": 16, "size": 500}},
    "two phases": {"phases": [PRIVATE, {**PRIVATE, "name": "more", "steps": 3}]},
    "public key": {"seed": "for everybody", "allow": ["heuristic:public-key"]},
}


ADAPTIVE: dict[str, dict[str, Any]] = {
    "strata": {"form": "strata"},
    "clip weights": {"form": "clip-weights"},
    "strata, given factors": {"form": "strata", "budget": None, "noise_factors": [0.5, 1.0]},
    "clip weights, given": {"form": "clip-weights", "budget": None, "weights": [1.0, 0.5]},
    "literal": {"form": "literal"},
}
_OTHER: dict[str, tuple[str, Any]] = {
    "strata": ("thresholds", [0.25]),
    "clip weights": ("thresholds", [0.25]),
    "strata, given factors": ("noise_factors", [0.75, 1.0]),
    "clip weights, given": ("weights", [1.0, 0.75]),
}


def configured(folder: Path, kind: str, noise_multiplier: float = 6.0) -> dict[str, Any]:
    values = adaptive_values(folder, **ADAPTIVE[kind])
    if "given" in kind:
        for phase in values["phases"]:
            if phase["plan"] == "dp":
                phase["noise_multiplier"] = noise_multiplier
    return values


@pytest.mark.parametrize("kind", ADAPTIVE)
def test_bands_weights_and_given_noise_of_adaptive_dp_are_the_configurations(tmp_path: Path, kind: str) -> None:
    values = configured(tmp_path, kind)
    config, ledger = planned(tmp_path, values)
    with ledger:
        assert _check_plans(config, ledger).holds
        if kind in _OTHER:
            name, other = _OTHER[kind]
            assert not _check_plans(
                parse_config({**values, "adaptive": {**values["adaptive"], name: other}}), ledger
            ).holds
        if "given" in kind:
            assert not _check_plans(parse_config(configured(tmp_path, kind, 5.0)), ledger).holds


def planned(folder: Path, values: dict[str, Any]) -> tuple[Any, Ledger]:
    config = parse_config(values)
    privacy = config.privacy
    epsilon = float("inf") if config.is_unbounded else privacy.budget.epsilon
    header = LedgerHeader(privacy.unit_name, privacy.relation, privacy.units, epsilon, 1e-4, config.digest(), "key")
    ledger = Ledger.create(folder / "ledger.sqlite", header)
    planning.plan_in_ledger(planning.solve(config), ledger, Provenance())
    return config, ledger


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_ledger_holds_and_one_with_fewer_steps_does_not(tmp_path: Path, kind: str) -> None:
    config, ledger = planned(tmp_path, small_values(tmp_path, **KINDS[kind]))
    with ledger:
        assert len(ledger.plans) > 1
        assert not any(isinstance(plan.event, BandedPoissonGaussian) for plan in ledger.plans.values())
        assert _check_plans(config, ledger).holds
        values = config.model_dump(mode="json")
        for phase in values["phases"]:
            phase["steps"] = 1
        assert not _check_plans(parse_config(values), ledger).holds
        values = config.model_dump(mode="json")
        values["phases"] = [*values["phases"][:-1], {**values["phases"][-1], "expected_batch": 10}]
        assert not _check_plans(parse_config(values), ledger).holds

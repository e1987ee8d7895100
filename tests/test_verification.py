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
from tacit.verification import _check_plans

from .small import small_values

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
    "solved histogram": {"phases": [PRIVATE], "vocabulary": {"max_words": 16, "size": 500}},
    "replacement": {
        "phases": [PRIVATE],
        "vocabulary": {"max_words": 16, "size": 500},
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


def planned(folder: Path, kind: str) -> tuple[Any, Ledger]:
    config = parse_config(small_values(folder, **KINDS[kind]))
    privacy = config.privacy
    epsilon = float("inf") if config.is_unbounded else privacy.budget.epsilon
    header = LedgerHeader("user", privacy.relation, 150, epsilon, 1e-4, config.digest(), "key")
    ledger = Ledger.create(folder / "ledger.sqlite", header)
    planning.plan_in_ledger(planning.solve(config), ledger, Provenance())
    return config, ledger


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_ledger_holds_and_one_with_fewer_steps_does_not(tmp_path: Path, kind: str) -> None:
    config, ledger = planned(tmp_path, kind)
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

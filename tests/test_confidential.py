"""The statement of a run: what its configuration claims of a group is what the statement covers, and at what price."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.config import RunConfig, parse_config
from tacit.errors import UsageError
from tacit.planning.confidentiality import check_statement, run_statement
from tacit.privacy.accounting.replacement import replacement_epsilon
from tacit.privacy.confidentiality.statement import ConfidentialityStatement
from tacit.privacy.events import PoissonGaussian
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.report.collect.assumptions import _screening_assumptions

DELTA, STEPS = 1e-5, 5
EVENT = PoissonGaussian(0.05, 2.0)


def config(group: Any = None, screening: dict[str, Any] | None = None, **private: Any) -> RunConfig:
    phase = {
        "name": "closed", "plan": "dp", "stream": "private", "steps": STEPS, "expected_batch": 50, "clip_norm": 1.0,
        "learning_rate": 1e-3, "noise_multiplier": 2.0,
    }  # fmt: skip
    return parse_config(
        {
            "run": "run",
            "privacy": {
                "unit": "record",
                "units": 1000,
                "relation": "replace",
                "budget": {"epsilon": 8, "delta": DELTA},
            },
            "private": {"path": "dialogues.jsonl", **private},
            "screening": {"data_point": "line", "gamma": 0.25, "delta2": 1e-7, "group": group} | (screening or {}),
            "vocabulary": {"method": "public"},
            "phases": [phase],
        }
    )


def paid(options: RunConfig, path: Path) -> Ledger:
    header = LedgerHeader("record", "replace", 1000, float("inf"), DELTA, options.digest(), "key")
    ledger = Ledger.create(path, header)
    ledger.plan("closed", EVENT, STEPS)
    for step in range(STEPS):
        ledger.charge("closed", step)
    return ledger


def statement(options: RunConfig, path: Path) -> ConfidentialityStatement:
    with paid(options, path) as ledger:
        found = run_statement(options, ledger)
        assert found is not None
        assert all(check.holds for check in check_statement(options, ledger, {"confidentiality": found.to_dict()}))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 4])
def test_a_group_is_so_many_records_replaced_at_once(tmp_path: Path, most: int) -> None:
    options = config({"by": "document", "most": most})
    found = statement(options, tmp_path / "ledger.sqlite")
    assert found.group_size == most
    assert found.screened is not None
    assert found.bayesian is not None
    with Ledger.open(tmp_path / "ledger.sqlite", readonly=True) as ledger:
        spends = ledger.spends()
    assert found.screened.epsilon == replacement_epsilon(spends, DELTA, most)
    assert found.bayesian.epsilon == replacement_epsilon(spends, DELTA - most * 1e-7, most)
    assert found.screened.definition == ("definition 2" if most == 1 else "definition 3")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deduplicate", "normalisation", "records"),
    [
        ("none", "none", 1),
        ("exact", "none", 1),
        ("exact", "casefold", 3),
        ("unmasked", "none", 1),
        ("unmasked", "casefold", 2),
    ],
)
def test_deduplication_costs_the_records_that_it_changes(
    tmp_path: Path, deduplicate: str, normalisation: str, records: int
) -> None:
    options = config(screening={"deduplicate": deduplicate, "normalisation": normalisation})
    found = statement(options, tmp_path / "ledger.sqlite")
    assert found.screened is not None
    with Ledger.open(tmp_path / "ledger.sqlite", readonly=True) as ledger:
        assert found.screened.epsilon == replacement_epsilon(ledger.spends(), DELTA, records)


@pytest.mark.slow
def test_without_a_group_it_is_one_secret_and_a_group_costs_more(tmp_path: Path) -> None:
    one = statement(config(), tmp_path / "one.sqlite")
    four = statement(config({"by": "document", "most": 4}), tmp_path / "four.sqlite")
    assert one == statement(config({"by": "document", "most": 1}), tmp_path / "same.sqlite")
    assert one.screened is not None
    assert four.screened is not None
    assert four.screened.epsilon > 4 * one.screened.epsilon
    assert "a group of secrets in at most 4 data points" in four.screened.sentence


def test_another_claim_than_the_ledgers_is_found(tmp_path: Path) -> None:
    large, small = (config({"by": "document", "most": most}) for most in (4, 1))
    with paid(large, tmp_path / "ledger.sqlite") as ledger:
        found = run_statement(small, ledger)
        assert found is not None
        checks = check_statement(small, ledger, {"confidentiality": found.to_dict()})
    assert not checks[0].holds


def test_the_report_says_what_is_assumed_of_a_group() -> None:
    rows = _screening_assumptions(config({"by": "user", "most": 7}, user_field="who"))
    assert any("secrets of one user" in text and "at most 7" in text and label == "assumed" for text, label in rows)
    assert len(_screening_assumptions(config())) == len(rows) - 1


def test_a_group_of_users_needs_their_ids() -> None:
    with pytest.raises(UsageError, match=r"screening\.group\.by is user but private\.user_field is not set"):
        config({"by": "user", "most": 7})

"""What the report's data refuse: claims beyond the guarantee, contradictions, and anything that is not on the list."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tacit.report import build, plots, prose, schema
from tacit.report.schema import CONTROL, EpsilonPair, ExposureRow, ReportData

from .example import example_report_data

SENTINEL = "PATIENT-SENTINEL-4711"


def _values(**options: bool) -> dict[str, Any]:
    return json.loads(example_report_data(**options).model_dump_json())


def _set(values: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    *parents, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    target: Any = values
    for step in parents:
        target = target[step]
    target[last] = value
    return values


def test_the_control_is_refused_outside_the_curators_copy() -> None:
    values = _values(curator_copy=True)
    assert any(row["model"] == CONTROL for row in values["exposure"])
    with pytest.raises(ValueError, match="outside the ledger"):
        ReportData.model_validate(_set(values, "curator_copy", False))


def test_the_membership_attack_is_refused_outside_the_curators_copy() -> None:
    values = _values(curator_copy=True)
    values["exposure"] = [row for row in values["exposure"] if row["model"] != CONTROL]
    assert ReportData.model_validate(values).membership is not None
    with pytest.raises(ValueError, match="membership inference are functions of the private text"):
        ReportData.model_validate(_set(values, "curator_copy", False))
    values["membership"] = None
    assert ReportData.model_validate(values).membership is None


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("exposure.0.max_bits", 3.0, "needs its null"),
        ("membership.rows", [], "rows, or a word"),
        ("membership.rows.0.accuracy.value", 0.2, "hold its value"),
        ("membership.rows.0.accuracy.high", 1.2, "less than or equal to 1"),
        ("membership.rows.0.model", "another", "released model"),
        ("membership.rows.0.scores", [0.1], "Extra inputs"),
    ],
)
def test_an_attack_that_contradicts_itself_is_refused(path: str, value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ReportData.model_validate(_set(_values(curator_copy=True), path, value))


@pytest.mark.parametrize(
    ("mean", "highest", "joint"), [(0.03, None, 0.03), (0.03, 0.4, 0.06), (0.4, 0.01, 0.02), (0.9, 0.8, 1.0)]
)
def test_two_tests_count_as_one(mean: float, highest: float | None, joint: float) -> None:
    row = example_report_data().exposure[0].model_dump() | {"p_value": mean}
    if highest is not None:
        row |= {"max_bits": 3.0, "null_max_bits": 4.23, "max_p_value": highest}
    assert ExposureRow.model_validate(row).joint_p_value == pytest.approx(joint)


@pytest.mark.parametrize("name", ["control, without DP", "Control without DP", "baseline"])
def test_another_name_does_not_get_the_control_past(name: str) -> None:
    with pytest.raises(ValidationError):
        ReportData.model_validate(_set(_values(), "exposure.0.model", name))


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("guarantee.epsilons.0.epsilon", "infinity", "finite certified epsilon"),
        ("guarantee.status", "heuristic", "must be infinite"),
        ("guarantee.epsilons.1.delta", 1e-6, "distinct deltas"),
        ("guarantee.not_covered", [], "at least 1"),
        ("cumulative.3.epsilon", 2.5, "not the certified one"),
        ("ledger.1.sequence", 1, "in order"),
        ("ledger.0.epsilon_alone", -0.1, "greater than or equal to 0"),
        ("ledger.0.digest", "0123456789AB", "match pattern"),
        ("ledger.0.partition", "all units", "training units"),
        ("ledger.0.parameters", {"adaptive": True}, "valid integer"),
        ("utility.4.corpus", "private held-out units", "noisy, in the ledger"),
        ("exposure.0.p_value", 1.5, "less than or equal to 1"),
        ("exposure.0.exposure_bits", "nan", "finite number"),
        ("created", "yesterday", "ISO 8601"),
        ("title", "a\x00b", "match pattern"),
        ("title", "", "at least 1 character"),
        ("losses", [0.1], "Extra inputs"),
    ],
)
def test_contradictions_and_strangers_are_refused(path: str, value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ReportData.model_validate(_set(_values(), path, value))


@pytest.mark.parametrize("path", ["guarantee.mu", "guarantee.epsilons.2.epsilon"])
def test_a_heuristic_run_may_not_show_any_finite_epsilon(path: str) -> None:
    with pytest.raises(ValueError, match="must be infinite"):
        ReportData.model_validate(_set(_values(proved=False), path, 1.0))


def test_a_proved_curve_may_be_infinite_at_a_smaller_delta() -> None:
    found = ReportData.model_validate(_set(_values(), "guarantee.epsilons.1.epsilon", "infinity"))
    assert math.isinf(found.guarantee.epsilons[1].epsilon)


@pytest.mark.parametrize("value", [math.nan, -1.0, "nan"])
def test_an_epsilon_is_a_number_of_at_least_0(value: object) -> None:
    with pytest.raises(ValidationError):
        EpsilonPair.model_validate({"delta": 0.1, "epsilon": value})


@pytest.mark.parametrize(
    "path", ["guarantee.status", "ledger.0.count", "exposure.0.model", "created", "files.0.sha256"]
)
def test_an_error_never_repeats_the_value(path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ReportData.model_validate(_set(_values(), path, SENTINEL))
    assert SENTINEL not in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        ReportData.model_validate(_values() | {"note": SENTINEL})
    assert SENTINEL not in str(caught.value)


def test_the_data_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError):
        example_report_data().curator_copy = True


def test_the_report_imports_nothing_else_of_tacit() -> None:
    for module in (build, prose, schema, plots):
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
        ours = {name for name in imported if name.split(".")[0] == "tacit"}
        assert all(name == "tacit.errors" or name.startswith("tacit.report") for name in ours)

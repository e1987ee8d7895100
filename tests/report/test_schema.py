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
from tacit.report.schema import CONTROL, CONTROL_WITHOUT_NOISE, AttackFacts, EpsilonPair, ReportData

from .example import example_exposure, example_report_data

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


def test_an_attack_has_one_control_whichever_it_is() -> None:
    values = _values(curator_copy=True)
    rows = values["attacks"][0]["rows"]
    controls = [row for row in rows if row["model"] == CONTROL]
    for row in controls:
        row["model"] = CONTROL_WITHOUT_NOISE
    assert ReportData.model_validate(values).attacks[0].control == CONTROL_WITHOUT_NOISE
    with pytest.raises(ValueError, match="rows of the control are functions of the private text"):
        ReportData.model_validate({**values, "curator_copy": False, "attacks": values["attacks"][:1]})
    controls[0]["model"] = CONTROL
    with pytest.raises(ValueError, match="an attack has one control"):
        ReportData.model_validate(values)


def test_the_control_is_refused_outside_the_curators_copy() -> None:
    """So are its rows in a public attack, beside rows of the released model."""
    values = _values(curator_copy=True)
    values["attacks"] = values["attacks"][:1]
    assert values["attacks"][0]["public"]
    assert any(row["model"] == CONTROL for row in values["attacks"][0]["rows"])
    ReportData.model_validate(values)
    with pytest.raises(ValueError, match="rows of the control are functions of the private text"):
        ReportData.model_validate(_set(values, "curator_copy", False))


@pytest.mark.parametrize("undecided", [False, True])
def test_an_attack_on_private_text_is_refused_outside_the_curators_copy(undecided: bool) -> None:
    """Also when it says nothing but that it is undecided: one text more or fewer may decide that."""
    values = _values(curator_copy=True)
    private = values["attacks"][1]
    assert not private["public"]
    private["rows"] = [row for row in private["rows"] if row["model"] != CONTROL]
    if undecided:
        private |= {"rows": [], "undecided": "undecided: too few texts qualify"}
    values["attacks"] = [private]
    assert ReportData.model_validate(values).attacks
    with pytest.raises(ValueError, match="what an attack finds that reads private text"):
        ReportData.model_validate(_set(values, "curator_copy", False))
    values["attacks"] = []
    assert ReportData.model_validate(values).attacks == ()


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("curve.corners", [[0.0, 0.1], [0.5, 0.4], [1.0, 1.0]], "a proved curve is nowhere below chance"),
        ("curve.corners", [[0.0, 0.1], [0.9, 0.95]], "the corners of a proved curve rise"),
        ("attacks.0.rows.0.false_alarms", 0.1, "false alarms belong to a share"),
        ("attacks.0.rows.0.null", None, "a null, or a word on why"),
        ("attacks.0.rows.0.without_null", "no law is known", "a null, or a word on why"),
        ("attacks.0.rows.0.p_value", None, "a p-value, or an interval and a null"),
        ("attacks.0.rows.0.value", 13.1, "above its ceiling"),
        ("attacks.0.rows.1.name", "HS", "same name and model"),
        ("attacks.0.name", "a b", "match pattern"),
        ("attacks.1.name", "exposure", "one part of the report"),
        ("attacks.1.rows", [], "rows, or a word"),
        ("attacks.1.undecided", "undecided: why", "rows, or a word"),
        ("attacks.1.rows.0.value", 0.2, "hold its value"),
        ("attacks.1.rows.0.interval.1", 1.2, "less than or equal to 1"),
        ("attacks.1.rows.0.baseline.high", 1.2, "less than or equal to 1"),
        ("attacks.1.rows.0.baseline.low", -0.2, "at least 0"),
        ("attacks.1.rows.0.model", "another", "released model"),
        ("attacks.1.rows.0.scores", [0.1], "Extra inputs"),
    ],
)
def test_an_attack_that_contradicts_itself_is_refused(path: str, value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ReportData.model_validate(_set(_values(curator_copy=True), path, value))


def test_the_released_model_comes_first() -> None:
    exposure = example_exposure(curator_copy=True)
    with pytest.raises(ValueError, match="come first"):
        AttackFacts.model_validate(exposure.model_dump() | {"rows": [row.model_dump() for row in exposure.rows[::-1]]})


@pytest.mark.parametrize(
    ("p_values", "joint"),
    [([0.03], 0.03), ([0.03, 0.4], 0.06), ([0.4, 0.01], 0.02), ([0.9, 0.8], 1.0), ([0.01, 0.5, 0.5], 0.03)],
)
def test_the_rows_of_one_test_count_as_one(p_values: list[float], joint: float) -> None:
    exposure = example_exposure(curator_copy=False)
    rows = tuple(
        exposure.rows[0].model_copy(update={"name": f"row {number}", "p_value": p_value})
        for number, p_value in enumerate(p_values)
    )
    found = exposure.model_copy(update={"rows": rows})
    assert found.joint_p_values(exposure.rows[0].model) == {"HS": pytest.approx(joint)}


@pytest.mark.parametrize("name", ["control, without DP", "Control without DP", "baseline"])
def test_another_name_does_not_get_the_control_past(name: str) -> None:
    with pytest.raises(ValidationError):
        ReportData.model_validate(_set(_values(), "attacks.0.rows.0.model", name))


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
        ("ledger.0.partition", "every unit", "training units"),
        ("ledger.0.parameters", {"adaptive": True}, "valid integer"),
        ("utility.4.corpus", "private held-out units", "noisy, in the ledger"),
        ("attacks.0.rows.0.p_value", 1.5, "less than or equal to 1"),
        ("attacks.0.rows.0.value", "nan", "finite number"),
        ("begun", "yesterday", "ISO 8601"),
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
    "path", ["guarantee.status", "ledger.0.count", "attacks.0.rows.0.model", "begun", "files.0.sha256"]
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

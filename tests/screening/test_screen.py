"""`tacit screen --measure`: its JSON, its table, and one line for every mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.cli.main import main

Run = Callable[..., tuple[int, str, str]]

RECORDS = [
    {"text": "Call 415-555-2671 now", "spans": [[5, 17, "phone"]]},
    {"text": "I was told to see blue", "spans": [[18, 22, "name"]]},
]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tacit", "screen", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    file = tmp_path / "gold.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return file


def test_json(run: Run, gold: Path) -> None:
    code, out, err = run("--measure", gold, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert list(found) == ["balanced", "conservative"]
    balanced = found["balanced"]
    assert (
        {"recall", "precision", "per_label", "gamma_upper", "delta2_upper"}
        <= balanced.keys()
        == found["conservative"].keys()
    )
    assert (balanced["recall"], balanced["precision"]) == (0.5, 1.0)
    assert balanced["per_label"] == {"name": 0.0, "phone": 1.0}
    assert balanced["documents_with_a_miss"] == 0.5
    assert balanced["gamma_upper"] == pytest.approx(0.975, abs=1e-3)  # 1 of 2: 1 - p^2 = 0.05


def test_table(run: Run, gold: Path) -> None:
    code, out, _ = run("--measure", gold)
    assert code == 0
    assert "recall of 2 spans" in out
    assert "gamma at most (95 %)" in out
    assert "recall of 1 phone" in out


def test_a_precision_of_nothing_is_a_dash(run: Run, gold: Path, tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("{name: mine, least_score: 1, labels: [nothing-has-this]}")
    code, out, _ = run("--measure", gold, "--balanced", policy)
    assert code == 0
    (row,) = [line for line in out.splitlines() if line.startswith("precision")]
    assert row.split()[-2] == "-"


def test_a_policy_of_the_users_own(run: Run, gold: Path, tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("{name: mine, least_score: 0.3, patterns: [{label: colour, pattern: blue}]}")
    code, out, _ = run("--measure", gold, "--balanced", policy, "--json")
    assert code == 0
    assert json.loads(out)["balanced"]["recall"] == 1.0


def test_bad_gold_and_bad_policies_are_one_line(run: Run, gold: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    gold.write_text(gold.read_text() + json.dumps({"text": "zqsecret", "spans": [[0, 99, "a"]]}) + "\n")
    code, out, err = run("--measure", gold, "--json")
    assert (code, out) == (4, "")
    assert err.startswith(f"tacit: {gold}, line 3, span 1: ")
    assert err.count("\n") == 1
    assert "zqsecret" not in err
    assert sorted(tmp_path.iterdir()) == before
    policy = tmp_path / "bad.yaml"
    policy.write_text("{name: x, least_score: 0.3, patterns: [{label: a, pattern: '(?<=a)b'}]}")
    code, out, err = run("--measure", gold, "--conservative", policy)
    assert (code, out) == (4, "")
    assert err.startswith(f"tacit: {policy}: patterns, item 1 (a)")
    assert err.count("\n") == 1


def test_without_gold_it_is_a_usage_error(run: Run) -> None:
    code, out, err = run()
    assert (code, out) == (2, "")
    assert "--measure" in err


def test_what_is_caught_alike_is_counted_beside_what_is_found(run: Run, tmp_path: Path) -> None:
    """The title goes with the name: every character is masked, and "Mr" stays where the name is masked already."""
    file, text = tmp_path / "gold.jsonl", "I spoke with Mr Smith today"
    records = [{"text": text, "spans": [[16, 21, "name"]]}, RECORDS[0]]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    code, out, _ = run("--measure", file, "--json")
    assert code == 0
    balanced = json.loads(out)["balanced"]
    assert (balanced["recall"], balanced["not_alike"]) == (1.0, 0.5)
    assert balanced["gamma_alike_upper"] == pytest.approx(0.975, abs=1e-3)
    _, out, _ = run("--measure", file)
    assert "leave a trace" in out
    assert "leave a trace, at most (95 %)" in out


def test_spans_computed_elsewhere_cannot_be_asked_about_a_changed_text(run: Run, gold: Path, tmp_path: Path) -> None:
    spans, policy = tmp_path / "spans.jsonl", tmp_path / "mine.yaml"
    spans.write_text(
        "".join(json.dumps({"text": record["text"], "spans": record["spans"]}) + "\n" for record in RECORDS)
    )
    policy.write_text(
        json.dumps({"name": "mine", "least_score": 0.3, "detectors": [{"kind": "precomputed", "path": str(spans)}]})
    )
    code, out, err = run("--measure", gold, "--balanced", policy, "--json")
    assert code == 0, err
    values = json.loads(out)
    assert (values["balanced"]["recall"], values["balanced"]["gamma_alike_upper"]) == (1.0, None)
    assert values["conservative"]["gamma_alike_upper"] is not None
    assert run("--measure", gold, "--balanced", policy)[0] == 0

"""What a plan looks at: the files are there and have the named fields, before any noise is solved; and `tacit.plan` takes a dict."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.config import parse_config
from tacit.errors import DataError, UsageError
from tacit.planning.advice import advice, advice_text, right_guesses, right_guesses_of_gaussian, usual_delta
from tacit.planning.corpora import check_corpora, missing_corpora
from tacit.privacy.accounting.histogram import gaussian_delta

from .cli.calling import caller
from .small import small_values, write_config, write_corpora

WORD = "zqprivateword"


def small(folder: Path, **private: Any) -> dict[str, Any]:
    values = small_values(folder)
    values["private"] |= private
    return values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpora(tmp_path, patients=20, records=30)
    return tmp_path


def test_corpora_that_are_there_and_right_are_not_spoken_of(folder: Path) -> None:
    config = parse_config(small_values(folder))
    assert missing_corpora(config) == ()
    check_corpora(config)


def test_a_plan_needs_no_corpora_and_says_which_are_missing(tmp_path: Path) -> None:
    plan = tacit.plan(small_values(tmp_path))
    assert [warning.partition(":")[0] for warning in plan.warnings if "no such file" in warning] == [
        "private.path",
        "public.0.path",
    ]
    with pytest.raises(DataError, match=r"notes\.jsonl"):
        check_corpora(parse_config(small_values(tmp_path)))


@pytest.mark.parametrize("option", ["text_field", "id_field", "user_field"])
def test_a_field_that_is_not_there_is_an_error_of_the_plan(folder: Path, option: str) -> None:
    with pytest.raises(DataError, match=option):
        tacit.plan(small(folder, **{option: "nonsense"}))


def test_it_comes_before_the_noise_is_solved(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A budget that no noise meets would be refused by the solver, with exit code 3."""
    values = small(folder, text_field="nonsense")
    values["privacy"]["budget"]["epsilon"] = 1e-9
    config = write_config(folder / "config.yaml", values)
    for command in ("plan", "run"):
        done = caller(monkeypatch, capfd)(command, config)
        assert (done.code, done.out) == (4, "")
        assert "text_field" in done.err
    assert not (folder / "run").exists()
    values["private"]["text_field"] = "text"
    write_config(folder / "config.yaml", values)
    assert caller(monkeypatch, capfd)("plan", config).code == 3


def test_only_the_first_record_is_read_and_nothing_of_it_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = {"note_id": "1", "patient_id": "1", "text": WORD}
    (folder / "notes.jsonl").write_text(json.dumps(first) + "\n" + "this is damaged\n")
    done = caller(monkeypatch, capfd)("plan", write_config(folder / "config.yaml", small_values(folder)))
    assert done.code == 0
    assert WORD not in done.out + done.err


def test_a_dict_is_a_configuration(folder: Path) -> None:
    values = small_values(folder)
    plan = tacit.plan(values)
    assert plan.epsilon == tacit.plan(write_config(folder / "config.yaml", values)).epsilon
    with pytest.raises(UsageError, match="privacy"):
        tacit.plan({key: value for key, value in values.items() if key != "privacy"})


@pytest.mark.slow
def test_a_dict_runs_and_its_result_shows_in_a_notebook(folder: Path) -> None:
    write_corpora(folder)
    result = tacit.run(small_values(folder))
    assert result.epsilon < 9
    html = result._repr_html_()
    assert f"epsilon {result.epsilon:.2f}"[:9] in html
    assert "Guaranteed for every user" in html


def test_the_module_is_the_program() -> None:
    done = subprocess.run([sys.executable, "-m", "tacit", "plan"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tacit: name a configuration")


# advice ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_right_guesses_are_those_of_the_worst_pair(epsilon: float) -> None:
    """The pair that has exactly this (epsilon, delta), by brute force over what a guesser may say of each outcome."""
    delta = 1e-2
    worst = [delta, (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon)), (1 - delta) / (1 + math.exp(epsilon)), 0]
    other = [0, worst[2], worst[1], delta]
    best = sum(max(one, two) for one, two in zip(worst, other, strict=True)) / 2
    assert right_guesses(epsilon, delta) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_right_guesses_of_gaussian_noise_are_fewer_and_its_own(epsilon: float) -> None:
    """Against the hockey-stick at 0, which is the total variation."""
    from tacit.privacy.accounting.accountant import mu_at

    found = right_guesses_of_gaussian(epsilon, 1e-5)
    assert found == pytest.approx((1 + gaussian_delta(0.0, mu_at(epsilon, 1e-5))) / 2, rel=1e-9)
    assert found < right_guesses(epsilon, 1e-5)


def test_the_usual_delta_is_at_most_a_tenth_of_one_over_the_units() -> None:
    for units in (*range(1, 1200), 9_999, 10_000, 10_001, 10**9):
        assert 0.01 / units < usual_delta(units) * (1 + 1e-9)
        assert usual_delta(units) <= 0.1 / units * (1 + 1e-9)


@pytest.mark.parametrize("width", [60, 80])
def test_advice_fits_the_window_and_is_about_the_configuration(width: int, tmp_path: Path) -> None:
    text = advice_text(advice(parse_config(small_values(tmp_path))), width)
    assert max(map(len, text.splitlines())) <= max(width, 68)  # the table is 68 wide
    assert "150 users" in text
    assert "10,000 users" in advice_text(advice(None), width)


def test_advice_is_a_command_with_and_without_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    call = caller(monkeypatch, capfd)
    found = call("plan", "--advise", "--json").json
    assert [row["epsilon"] for row in found["budgets"]] == [0.5, 1.0, 3.0, 8.0]
    assert found["budgets"][1]["right_guesses"] == pytest.approx(0.7311, abs=1e-4)
    config = write_config(tmp_path / "config.yaml", small_values(tmp_path))
    assert call("plan", config, "--advise", "--json").json["units"] == 150
    assert "warning: private.path" in call("plan", config).out
    assert any("private.path" in warning for warning in call("plan", config, "--json").json["warnings"])


def test_the_page_shows_the_table_that_is_printed() -> None:
    page = (Path(__file__).parents[1] / "docs" / "budget.md").read_text(encoding="utf-8")
    table = advice_text(advice(None), 80).split("\n\n")[1]
    assert table in page
    assert len(page.split()) <= 700

"""What publishing several runs costs: the joint account of their ledgers, never less than any of them, or no number at all."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import LedgerError, UsageError
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.certificate import make_certificate
from tacit.privacy.events import EVERY_PART, Event, Gaussian, NonPrivate, PoissonGaussian, Spend, ThresholdedHistogram
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import START, Given, Provenance, merged, read_ancestors
from tacit.release.composing import compose, published
from tacit.release.configured import _check_people
from tacit.report.build import JSON, render

from ..cli.calling import Tacit, assert_one_line, caller
from ..report.example import example_report_data

DELTA = 1e-6
HEADER = LedgerHeader("user", "add-or-remove", 1000, math.inf, DELTA, "0" * 64, "")
TRAINING = PoissonGaussian(0.05, 1.5)


def run(
    root: Path, *events: tuple[Event, int, str], header: LedgerHeader = HEADER, start: Provenance | None = None
) -> Path:
    """A finished run's folder, as far as its account goes; its key is called as the folder."""
    (root / "release").mkdir(parents=True)
    header = dataclasses.replace(header, key_commitment=header.key_commitment or root.name)
    with Ledger.create(root / "ledger.sqlite", header) as ledger:
        inherited = {} if start is None else start.inherited
        if start is not None:
            ledger.bind(START, json.dumps(start.to_dict()))
        planned = {f"stage {number}": Spend(*event) for number, event in enumerate(events)}
        for stage, spend in (inherited | planned).items():
            ledger.plan(stage, spend.event, spend.count, spend.partition)
            for step in range(spend.count):
                ledger.charge(stage, step)
        stated = make_certificate(ledger, {}, "keyed")
    (root / "release" / "certificate.json").write_text(json.dumps(stated))
    return root


def trained(root: Path, **options: LedgerHeader) -> Path:
    return run(root, (TRAINING, 20, "training units"), (Gaussian(3.0), 1, "held-out units"), **options)


def begun_from(*roots: Path) -> Provenance:
    """What a run began from that was given these releases."""
    found = [read_ancestors(published(root).certificate) for root in roots]
    ancestors = merged(ancestor for behind, _ in found for ancestor in behind)
    return Provenance(tuple(Given("model", None, behind[-1].head) for behind, _ in found), ancestors)


def together(*roots: Path, same_people: bool = True) -> float:
    composed = compose([published(root) for root in roots], same_people=same_people)
    assert composed.epsilon is not None, composed.refused
    return composed.epsilon


def test_two_runs_compose_as_one_ledger_would(tmp_path: Path) -> None:
    one, other = trained(tmp_path / "a"), trained(tmp_path / "b")
    # a unit may be in the training part of both, or held out in one: the worst pair counts
    parts = [
        [Spend(TRAINING, 40)],
        [Spend(TRAINING, 20), Spend(Gaussian(3.0))],
        [Spend(Gaussian(3.0), 2)],
    ]
    alone = published(one).epsilon
    assert together(one, other) == pytest.approx(max(joint_epsilon(part, DELTA) for part in parts), rel=1e-6)
    assert alone < together(one, other) < 2 * alone


def test_vocabularies_of_two_runs_compose(tmp_path: Path) -> None:
    words = (ThresholdedHistogram(60.0, 400, 16), 1, "training units")
    one, other = (run(tmp_path / name, words, (TRAINING, 20, "training units")) for name in "ab")
    assert published(one).epsilon < together(one, other) < 2 * published(one).epsilon


def test_a_release_counts_once(tmp_path: Path) -> None:
    one = trained(tmp_path / "a")
    assert together(one, one, one / "release") == pytest.approx(published(one).epsilon)
    later = run(tmp_path / "b", (TRAINING, 5, "training units"), start=begun_from(one))
    assert together(one, later) == pytest.approx(published(later).epsilon)  # it counts all of the first already
    last = run(tmp_path / "c", (TRAINING, 5, "training units"), start=begun_from(one))
    assert published(later).epsilon < together(later, last) < 2 * published(later).epsilon
    assert compose([published(later), published(last)]).releases == 3


def test_of_other_people_the_worst_counts_and_it_is_called_an_assumption(tmp_path: Path) -> None:
    one = trained(tmp_path / "a")
    other = run(tmp_path / "b", (TRAINING, 40, "training units"))
    assert together(one, other, same_people=False) == pytest.approx(
        max(published(place).epsilon for place in (one, other))
    )
    assert "no program can check" in compose([published(one), published(other)], same_people=False).assumed


def test_of_other_people_those_behind_a_release_count_too(tmp_path: Path) -> None:
    """Known wrong: what the named certificate counts alone. Whose text went into the first is in one of them only. 28th attack."""
    first = trained(tmp_path / "a")
    start = dataclasses.replace(begun_from(first), same_people=False)
    later = run(tmp_path / "b", (PoissonGaussian(0.01, 4.0), 1, "training units"), start=start)
    assert published(later).epsilon < published(first).epsilon
    assert together(later, same_people=False) == pytest.approx(published(first).epsilon, rel=1e-6)
    other = dataclasses.replace(HEADER, unit="document")
    apart = run(tmp_path / "c", (PoissonGaussian(0.01, 4.0), 1, "training units"), header=other, start=start)
    assert "document and user" in compose([published(apart)], same_people=False).refused


def test_a_certificate_that_forgets_its_start_does_not_compose(tmp_path: Path) -> None:
    first = trained(tmp_path / "a")
    later = run(tmp_path / "b", (TRAINING, 1, "training units"), start=begun_from(first))
    assert published(later).epsilon > published(first).epsilon
    path = later / "release" / "certificate.json"
    stated = json.loads(path.read_text())
    path.write_text(json.dumps({**stated, "start": {**stated["start"], "ancestors": [], "given": []}}))
    with pytest.raises(LedgerError, match="not of this ledger"):
        published(later)
    with pytest.raises(LedgerError, match="counts other spends than its start has"):
        published(later / "release")


@pytest.mark.parametrize(
    "changed",
    [
        {"given": [None]},
        {"given": {"a": 1}},
        {"given": [{}]},
        {"ancestors": [{}]},
        {"same_people": None},
        {"same_people": "x"},
    ],
    ids=str,
)
def test_a_start_in_another_form_is_refused_in_one_line(tmp_path: Path, changed: dict[str, Any]) -> None:
    first = trained(tmp_path / "a")
    later = run(tmp_path / "b", (TRAINING, 1, "training units"), start=begun_from(first))
    path = later / "release" / "certificate.json"
    stated = json.loads(path.read_text())
    start = {name: value for name, value in {**stated["start"], **changed}.items() if value is not None}
    path.write_text(json.dumps({**stated, "start": start}))
    for place in (later, later / "release"):
        with pytest.raises(LedgerError):
            published(place)
    if "same_people" in changed:
        assert not _check_people(True, {**stated, "start": start}).holds


def test_a_run_whose_certificate_forgets_a_start_of_other_people_does_not_compose(tmp_path: Path) -> None:
    """30th attack: nothing of it is counted, so nothing was missed."""
    start = dataclasses.replace(begun_from(trained(tmp_path / "a")), same_people=False)
    later = run(tmp_path / "b", (TRAINING, 1, "training units"), start=start)
    assert published(later).epsilon
    path = later / "release" / "certificate.json"
    stated = json.loads(path.read_text())
    path.write_text(json.dumps({**stated, "start": {**stated["start"], "ancestors": []}}))
    with pytest.raises(LedgerError, match="not of this ledger"):
        published(later)


@pytest.mark.parametrize("same_people", [True, False])
@pytest.mark.parametrize(
    ("other", "word"),
    [
        (dataclasses.replace(HEADER, unit="document"), "document and user"),
        (dataclasses.replace(HEADER, relation="replace"), "add-or-remove and replace"),
    ],
)
def test_different_statements_have_no_common_epsilon(
    other: LedgerHeader, word: str, same_people: bool, tmp_path: Path
) -> None:
    runs = [published(trained(tmp_path / "a")), published(trained(tmp_path / "b", header=other))]
    composed = compose(runs, same_people=same_people)
    assert composed.epsilon is None
    assert word in composed.refused


def test_a_release_that_read_no_private_text_decides_nothing(tmp_path: Path) -> None:
    """Known wrong: its relation, which is cheaper, taken for all."""
    public, exchanged = run(tmp_path / "a"), dataclasses.replace(HEADER, relation="replace")
    private = trained(tmp_path / "b", header=exchanged)
    assert together(public, private) == pytest.approx(published(private).epsilon)


def test_two_copies_of_one_begun_run_have_no_account(tmp_path: Path) -> None:
    header = dataclasses.replace(HEADER, key_commitment="one key")
    one = trained(tmp_path / "a", header=header)
    other = run(tmp_path / "b", (TRAINING, 30, "training units"), header=header)
    composed = compose([published(one), published(other)])
    assert composed.epsilon is None
    assert "copies of one begun run" in composed.refused
    start = dataclasses.replace(
        begun_from(one, other), same_people=False
    )  # 30th attack: they stand behind one of other people
    later = run(tmp_path / "c", (TRAINING, 1, "training units"), start=start)
    assert "copies of one begun run" in compose([published(later)], same_people=False).refused


def test_without_a_guarantee_of_one_there_is_none_of_all(tmp_path: Path) -> None:
    other = run(tmp_path / "b", (NonPrivate("heuristic:x"), 1, EVERY_PART))
    assert math.isinf(together(trained(tmp_path / "a"), other))


def test_a_delta_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="below 1/1000"):
        compose([published(trained(tmp_path / "a"))], 0.01)


def test_a_certificate_of_another_ledger_is_refused(tmp_path: Path) -> None:
    one, other = trained(tmp_path / "a"), run(tmp_path / "b", (TRAINING, 1, "training units"))
    (one / "release" / "certificate.json").write_bytes((other / "release" / "certificate.json").read_bytes())
    with pytest.raises(LedgerError, match="not of this ledger"):
        published(one)
    third = trained(tmp_path / "c")
    path = third / "release" / "certificate.json"
    stated = json.loads(path.read_text())
    for name, value in {"unit": "document", "relation": "replace", "units": 9, "key_commitment": "other"}.items():
        path.write_text(json.dumps({**stated, name: value}))
        with pytest.raises(LedgerError, match="not of this ledger"):
            published(third)
    with pytest.raises(UsageError, match="no finished run"):
        published(tmp_path)


# the command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tacit(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tacit:
    return caller(monkeypatch, capfd)


def with_report(root: Path, perplexity: float, size: int = 8192) -> Path:
    """A report whose public perplexity is this."""
    data = example_report_data()
    utility = tuple(
        row.model_copy(update={"perplexity": perplexity, "perplexity_interval95": None, "bits_per_byte": None})
        if row.model == "released model"
        else row
        for row in data.utility
    )
    vocabulary = data.vocabulary.model_copy(update={"size": size})
    changed = data.model_copy(update={"utility": utility, "vocabulary": vocabulary})
    (root / "release" / JSON).write_text(render(changed)[JSON])
    return root


def test_the_command_shows_runs_by_epsilon_and_all_together(tmp_path: Path, tacit: Tacit) -> None:
    one = with_report(run(tmp_path / "weak", (TRAINING, 60, "training units")), 50.0)
    other = with_report(trained(tmp_path / "strong"), 70.0)
    done = tacit("tradeoff", one, other, "--plot", tmp_path / "plot.svg")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["strong", "weak"]
    assert "70" in lines[2]
    assert "Publishing them all (2 releases): epsilon" in done.out
    assert "do not compare" not in done.out
    drawn = (tmp_path / "plot.svg").read_text()
    assert "strong" in drawn
    assert "epsilon at delta 1e-06" in drawn
    values = tacit("tradeoff", one, other, "--json").json
    assert values["together"]["epsilon"] == pytest.approx(together(one, other))
    assert [row["perplexity"] for run in values["runs"] for row in run["utility"]] == [50.0, 50.0, 70.0, 70.0]


def test_the_command_refuses_in_words_and_still_shows_the_table(tmp_path: Path, tacit: Tacit) -> None:
    one = with_report(trained(tmp_path / "a"), 50.0)
    header = dataclasses.replace(HEADER, unit="document")
    other = with_report(trained(tmp_path / "b", header=header), 50.0, size=100)
    done = tacit("tradeoff", one, other)
    assert done.code == 0
    assert "no epsilon: their certificates are about different units (document and user)" in done.out
    assert "do not compare" in done.out
    assert tacit("tradeoff", one, other, "--json").json["together"]["epsilon"] is None


def test_mistakes_are_one_line(tmp_path: Path, tacit: Tacit) -> None:
    one = trained(tmp_path / "a")
    assert_one_line(tacit("tradeoff", tmp_path / "gone"), 2, "no finished run")
    assert_one_line(tacit("tradeoff", one, "--plot", tmp_path / "x.svg"), 2, "nothing to draw")
    assert_one_line(tacit("tradeoff", with_report(one, 5.0), "--plot", tmp_path / "x.pdf"), 2, ".svg or .png")
    assert_one_line(tacit("tradeoff", one, "--delta", "2"), 2, "delta")
    (one / "release" / JSON).write_text("{}")
    assert_one_line(tacit("tradeoff", one), 4, "report.json")

"""What every vocabulary method keeps: it spends what the plan says, before a word exists, and brings no word below the threshold.

`DoubledNoise` is a method that lives in this file alone. Its one line in `METHODS` is all that the rest of tacit knows of it.

The noise is the operating system's. What is asserted of released words fails with a probability below 1e-7: common words are in all
400 notes, far above every threshold, and a name that is in one note needs noise of more than six standard deviations.
"""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, final

import pytest
import yaml

from tacit.config import RunConfig, VocabularyOptions, parse_config
from tacit.config.vocabulary_methods import METHODS
from tacit.config.vocabulary_methods.method import (
    VOCABULARY,
    VocabularyMethod,
    WordSource,
    budget_of,
    refuse_options,
)
from tacit.errors import LedgerError, RefusedError, UsageError
from tacit.files import read_json
from tacit.pipeline import vocabulary as vocabulary_stage
from tacit.pipeline.opening import open_run
from tacit.pipeline.stages import walk
from tacit.pipeline.state import RunState
from tacit.planning import make_plan, mechanisms_from_ledger
from tacit.planning.vocabulary import vocabulary_event, vocabulary_releases
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import Event, Gaussian, NonPrivate, Spend, ThresholdedHistogram
from tacit.privacy.ledger import Ledger
from tacit.privacy.words import VocabularyEvent, WordEvents, word_release

from ..cli.calling import assert_one_line, caller
from ..dialogues import dialogue_values, write_dialogues
from ..folders import NAMES, save_tokenizer, wordpiece

PREFIX = "toyword"
EPSILON, DELTA = 6.0, 1e-8


# the toy -------------------------------------------------------------------------------------------------------------


@final
class DoubledNoise(VocabularyMethod):
    """A histogram with twice the noise and the threshold that others may give, and a word of its own that costs nothing."""

    kinds = (ThresholdedHistogram,)
    law = "The toy's histogram has the exact law of its doubled noise."

    def check_options(self, options: VocabularyOptions) -> None:
        super().check_options(options)
        refuse_options(options, {"noise_stddev", "threshold"}, "has noise of its own; leave it out")

    def event(self, config: RunConfig) -> ThresholdedHistogram:
        return ThresholdedHistogram(2 * 6.0, 2 * 50, config.vocabulary.max_words)

    def stated_event(self, config: RunConfig) -> ThresholdedHistogram:
        return self.event(config)

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return {PREFIX: 1, **source.release_under(VOCABULARY)}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    METHODS["toy"] = DoubledNoise()
    yield
    del METHODS["toy"]


# runs ----------------------------------------------------------------------------------------------------------------

COMMON = tuple(f"common{letter}" for letter in "abcdefgh")
CASES: dict[str, dict[str, Any]] = {
    "histogram": {"method": "histogram"},
    "histogram, given noise": {"method": "histogram", "noise_stddev": 6.0, "threshold": 60},
    "histogram, public words": {"method": "histogram", "public_words": ["words.txt"]},
    "weighted": {"method": "weighted"},
    "weighted, without counts": {"method": "weighted", "counts_share": 0},
    "sips": {"method": "sips", "rounds": [0.2, 0.8], "public_words": ["words.txt"]},
    "hoory": {"method": "hoory"},
    "public": {"method": "public"},
    "public, of screened text": {"method": "public"},
    "given": {"method": "given", "path": "tokenizer", "public": True},
    "toy": {"method": "toy"},
}
"""Options of the section ``vocabulary``; paths are in the test's folder. Every method has one."""

GUARANTEED = [name for name in CASES if name != "public, of screened text"]
"""Where a method says nothing of private text without noise."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """400 notes of common words, each with a name of its own; public text, a word list, a tokenizer."""
    notes = [{"id": f"n{n}", "text": " ".join(COMMON) + f" name{n}"} for n in range(400)]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    (tmp_path / "public.jsonl").write_text("".join(json.dumps({"text": f"public text {n}"}) + "\n" for n in range(300)))
    (tmp_path / "words.txt").write_text("commona\t500\nneverseen\t20\n")
    return tmp_path


def values(folder: Path, name: str) -> dict[str, Any]:
    """The configuration of a case."""
    options = dict(CASES[name])
    if "public_words" in options:
        options["public_words"] = [str(folder / path) for path in options["public_words"]]
    if "path" in options:
        options["path"] = str(save_tokenizer(wordpiece(), folder / options["path"], **NAMES))
    else:
        options |= {"size": 500, "max_words": 8, "epsilon_share": 0.6}
    phase = {"name": "private", "plan": "dp", "stream": "private", "steps": 3, "expected_batch": 20, "clip_norm": 0.5}
    phase |= {"learning_rate": 1e-3, "noise_multiplier": 1.0}
    if name == "public, of screened text":
        write_dialogues(folder, 40)
        screening = {"data_point": "line", "gamma": 0.01, "delta2": 0.00005}
        return dialogue_values(folder, 160, vocabulary=options, screening=screening, phases=[phase])
    return {
        "run": str(folder / "run"),
        "privacy": {"unit": "document", "units": 400, "budget": {"epsilon": EPSILON, "delta": DELTA}},
        "private": {"path": str(folder / "notes.jsonl"), "id_field": "id"},
        "public": [{"path": str(folder / "public.jsonl")}],
        "vocabulary": options,
        "model": {"layers": 1, "width": 16, "heads": 2, "length": 16},
        "phases": [phase],
        "evaluation": {"held_out": 0.0},
        "allow": ["heuristic:hoory"] if options["method"] == "hoory" else [],
    }


def configured(folder: Path, name: str) -> RunConfig:
    return parse_config(values(folder, name))


def test_every_method_has_a_case() -> None:
    assert {options["method"] for options in CASES.values()} == set(METHODS)


# options and plan ----------------------------------------------------------------------------------------------------


def test_a_word_that_is_no_method_is_refused_with_those_that_are(folder: Path) -> None:
    wrong = values(folder, "toy")
    wrong["vocabulary"]["method"] = "sip"
    with pytest.raises(UsageError) as caught:
        parse_config(wrong)
    assert "'vocabulary.method'" in str(caught.value)
    assert f"unknown method 'sip'; known: {', '.join(METHODS)}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_what_it_says_of_itself_agrees_with_what_it_spends(folder: Path, name: str) -> None:
    config = configured(folder, name)
    how, event = config.vocabulary.how, vocabulary_event(config)
    assert how.reads_private_text(config) == (event is not None)
    assert not (how.is_public(config) and how.reads_private_text(config))
    assert how.origin
    assert how.described(config)
    assert (how.law is None) == (event is None or isinstance(event, NonPrivate))
    assert how.law is None or how.law.endswith(".")
    stated = how.stated_event(config)
    assert stated is None or stated == event
    for one in vocabulary_releases(event).values():
        if not isinstance(one, NonPrivate):
            assert word_release(one).max_words == config.vocabulary.max_words


@pytest.mark.parametrize("name", CASES)
def test_what_is_solved_meets_its_share_of_the_budget_and_what_is_not_proved_does_not(folder: Path, name: str) -> None:
    config = configured(folder, name)
    how, event = config.vocabulary.how, vocabulary_event(config)
    target, delta, relation = budget_of(config)
    spent = epsilon([Spend(one) for one in vocabulary_releases(event).values()], delta, relation) if event else 0.0
    if how.heuristic or isinstance(event, NonPrivate):
        assert math.isinf(spent)  # the ledger has its true price
    elif event is not None and how.stated_event(config) is None:
        assert 0.95 * target < spent <= target


@pytest.mark.parametrize("name", CASES)
def test_it_reads_its_events_back_and_takes_no_other(folder: Path, name: str) -> None:
    config = configured(folder, name)
    how, event = config.vocabulary.how, vocabulary_event(config)
    planned = vocabulary_releases(event)
    assert how.event_in(config, {"private": Gaussian(1.0), **planned}) == event
    for stage in planned:
        assert how.event_in(config, {other: planned[other] for other in planned if other != stage}) is None
        assert how.event_in(config, {**planned, stage: Gaussian(1.0)}) is None


def test_a_method_without_a_proof_must_be_allowed(folder: Path) -> None:
    unproved = [name for name in CASES if METHODS[CASES[name]["method"]].heuristic]
    assert unproved == ["hoory"]
    for name in unproved:
        with pytest.raises(RefusedError, match="vocabulary-formula"):
            parse_config({**values(folder, name), "allow": []})


# what is paid, and when ----------------------------------------------------------------------------------------------

COMBINED = ("release", "noisy_counts")
"""The functions of the stage's module in which noise meets counts."""


def paid_on_disk(path: Path) -> list[str]:
    """The stages that are paid for, as another process would see it."""
    with Ledger.open(path, readonly=True) as ledger:
        return [row.body["stage"] for row in ledger.rows if row.kind == "spend"]


def watched(monkeypatch: pytest.MonkeyPatch, ledger: Path, event: VocabularyEvent | None) -> list[list[str]]:
    """What is paid for whenever noise is about to meet counts, or where there is no noise, whenever words are counted."""
    seen: list[list[str]] = []
    for name in ("count_words",) if isinstance(event, NonPrivate) else COMBINED:
        original = getattr(vocabulary_stage, name)

        def watching(*arguments: Any, original: Any = original, **options: Any) -> Any:
            seen.append(paid_on_disk(ledger))
            return original(*arguments, **options)

        monkeypatch.setattr(vocabulary_stage, name, watching)
    return seen


@pytest.mark.parametrize("name", CASES)
def test_each_planned_release_is_paid_for_once_before_its_words_exist(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(folder, name)
    wanted = vocabulary_releases(make_plan(config).mechanisms.vocabulary)
    with open_run(config) as state:
        seen = watched(monkeypatch, state.folder.ledger, state.mechanisms.vocabulary)
        walk(state, "vocabulary")
        planned = {stage: plan for stage, plan in state.ledger.plans.items() if stage.startswith(VOCABULARY)}
        assert {stage: plan.event for stage, plan in planned.items()} == wanted
        assert {plan.limit for plan in planned.values()} <= {1}
        assert [state.ledger.spent(stage) for stage in wanted] == [1] * len(wanted)
    assert paid_on_disk(folder / "run" / "ledger.sqlite") == list(wanted)
    assert seen == [list(wanted)[: number + 1] for number in range(len(wanted))]


@pytest.mark.parametrize("name", ["toy", "sips"])
def test_a_source_that_charges_afterwards_is_caught(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = vocabulary_stage._PaidWords
    original = kind.release_under

    def without_charge(source: Any, stage: str, how: Any, counts: Any) -> Any:
        return vocabulary_stage._vocabulary_noise(source.state, stage, how.noise_stddev, source.folder, counts)

    def late(source: Any, stage: str, known: AbstractSet[str] = frozenset()) -> dict[str, int]:
        found = original(source, stage, known)
        source.state.ledger.charge(stage)
        return found

    monkeypatch.setattr(kind, "_paid_noise", without_charge)
    monkeypatch.setattr(kind, "release_under", late)
    config = configured(folder, name)
    with open_run(config) as state:
        seen = watched(monkeypatch, state.folder.ledger, state.mechanisms.vocabulary)
        walk(state, "vocabulary")
        wanted = list(vocabulary_releases(state.mechanisms.vocabulary))
    assert paid_on_disk(folder / "run" / "ledger.sqlite") == wanted
    assert seen == [wanted[:number] for number in range(len(wanted))]  # each time one too few


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_is_killed_after_its_releases_repeats_them(folder: Path, name: str) -> None:
    config = configured(folder, name)
    with open_run(config) as state:
        walk(state, "vocabulary")
        made, head, mechanisms = state.vocabulary_folder, state.ledger.head, state.mechanisms
    first = {path.name: path.read_bytes() for path in made.iterdir()}
    for left in ("tokenizer.json", "released.json"):
        (made / left).unlink()
    with open_run(config) as state:
        assert state.mechanisms == mechanisms == mechanisms_from_ledger(config, state.ledger)
        walk(state, "vocabulary")
        assert state.ledger.head == head
    assert {path.name: path.read_bytes() for path in made.iterdir()} == first


# which words come out ------------------------------------------------------------------------------------------------


def private_words_out(state: RunState) -> set[str]:
    """Words of the notes that come out, however little is spent, when no count can reach the threshold; a public list has one."""
    event = state.mechanisms.vocabulary
    mechanisms = dataclasses.replace(state.mechanisms, vocabulary=None if event is None else out_of_reach(event))
    vocabulary_stage.vocabulary(dataclasses.replace(state, mechanisms=mechanisms))
    released = set(read_json(state.vocabulary_folder / "released.json"))
    listed = {"commona"} if state.config.vocabulary.public_words else set[str]()
    return {word for word in released if word.startswith(("common", "name"))} - listed


def out_of_reach(event: VocabularyEvent) -> VocabularyEvent:
    """The same event with a threshold that no noisy count reaches."""
    if isinstance(event, WordEvents):
        rounds = tuple(dataclasses.replace(one, threshold=2**50) for one in event.rounds)
        return dataclasses.replace(event, rounds=rounds)
    assert isinstance(event, ThresholdedHistogram)
    return dataclasses.replace(event, threshold=2**50)


@pytest.mark.parametrize("name", GUARANTEED)
def test_no_private_word_below_the_threshold_comes_out(folder: Path, name: str) -> None:
    with open_run(configured(folder, name)) as state:
        assert private_words_out(state) == set()


@pytest.mark.parametrize("name", [name for name in GUARANTEED if name not in ("public", "given")])
def test_common_words_come_out_and_no_name(folder: Path, name: str) -> None:
    """So the test before this one is not true of a method that never says a word."""
    with open_run(configured(folder, name)) as state:
        walk(state, "vocabulary")
        released = set(read_json(state.vocabulary_folder / "released.json"))
    assert set(COMMON) <= released
    assert not {word for word in released if word.startswith("name")}


# methods that are wrong ----------------------------------------------------------------------------------------------


class _Wrong(VocabularyMethod):
    """Plans what the toy plans."""

    kinds = (ThresholdedHistogram,)
    law = "There is none."

    def event(self, config: RunConfig) -> VocabularyEvent | None:
        return DoubledNoise().event(config)


@final
class RawCounts(_Wrong):
    """Pays, and then reads the file by itself. (A method of tacit cannot: its room may not import what reads or counts.)"""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        lines = self.notes.read_text().splitlines()
        raw = Counter(word for line in lines for word in json.loads(line)["text"].split())
        return {**source.release_under(VOCABULARY), **raw}


@final
class Unpaid(_Wrong):
    """Never asks for what it planned."""

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return {"word": 1}


@final
class Unplanned(_Wrong):
    """Asks for a second release."""

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return source.release_under(VOCABULARY) | source.release_under("vocabulary round 2")


@final
class Free(_Wrong):
    """Says that it costs nothing, and asks for a release."""

    def reads_private_text(self, config: RunConfig) -> bool:
        return False

    def event(self, config: RunConfig) -> None:
        return None

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return source.release_under(VOCABULARY)


@final
class Unaware(_Wrong):
    """Spends something, and says that it reads no private text."""

    def reads_private_text(self, config: RunConfig) -> bool:
        return False

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return source.release_under(VOCABULARY)


@final
class Cheaper(_Wrong):
    """Reads from the ledger less noise than it was planned with."""

    def event_in(self, config: RunConfig, planned: Mapping[str, Event]) -> VocabularyEvent | None:
        found = super().event_in(config, planned)
        return None if found is None else ThresholdedHistogram(3.0, 2 * 50, config.vocabulary.max_words)

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return source.release_under(VOCABULARY)


@final
class Unrunnable(_Wrong):
    """Plans an event of which nobody has said how words are released under it."""

    kinds = (Gaussian,)

    def event(self, config: RunConfig) -> Gaussian:
        return Gaussian(3.0)

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return source.release_under(VOCABULARY)


def test_a_method_that_says_raw_counts_is_caught(folder: Path) -> None:
    METHODS["toy"] = RawCounts(folder / "notes.jsonl")
    with open_run(configured(folder, "toy")) as state:
        assert len(private_words_out(state)) == 400 + len(COMMON)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (Unpaid(), LedgerError, "gave words without its release 'vocabulary', which is not paid for"),
        (Unplanned(), UsageError, "asks for the release 'vocabulary round 2', which it did not plan"),
        (Free(), UsageError, "asks for the release 'vocabulary', which it did not plan"),
        (Unrunnable(), UsageError, "no words are released under the event Gaussian"),
    ],
)
def test_a_method_that_does_not_do_what_it_planned_makes_no_vocabulary(
    folder: Path, wrong: VocabularyMethod, error: type[Exception], message: str
) -> None:
    METHODS["toy"] = wrong
    with pytest.raises(error, match=message), open_run(configured(folder, "toy")) as state:
        walk(state, "vocabulary")
    left = {path.name for path in folder.glob("run/private/vocabulary/*")}
    assert not left & {"released.json", "tokenizer.json"}


def test_a_method_that_spends_and_denies_it_is_refused_by_the_plan(folder: Path) -> None:
    METHODS["toy"] = Unaware()
    with pytest.raises(UsageError, match="does not fit"):
        make_plan(configured(folder, "toy"))


def test_a_method_that_reads_less_noise_from_the_ledger_is_refused_by_it(folder: Path) -> None:
    METHODS["toy"] = Cheaper()
    config = configured(folder, "toy")
    with open_run(config):
        pass
    with pytest.raises(LedgerError, match="'vocabulary' was planned differently"), open_run(config):
        pass


# the toy through everything ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_method_of_one_file_and_one_line_goes_through_plan_run_verify_and_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tacit = caller(monkeypatch, capfd)
    config, run = folder / "config.yaml", folder / "run"
    config.write_text(yaml.safe_dump(values(folder, "toy")))
    plan = tacit("plan", config, "--json").json
    stage = plan["stages"][0]
    assert (stage["name"], stage["parameters"]["noise_stddev"], stage["parameters"]["threshold"]) == (
        VOCABULARY,
        12,
        100,
    )
    assert tacit("run", config).code == 0
    checked = tacit("verify", run)
    assert checked.code == 0, checked.err
    certificate = read_json(run / "release" / "certificate.json")
    assert certificate["epsilons"][0]["epsilon"] == pytest.approx(plan["epsilon"], rel=1e-9)
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.spends_by_stage()[VOCABULARY].event == ThresholdedHistogram(12.0, 100, 8)
    assert tacit("report", run).code == 0
    assert tacit("verify", run).code == 0
    shown = read_json(run / "release" / "report.json")
    assert shown["vocabulary"]["method"] == "toy"
    assert shown["vocabulary"]["released_words"] == len(COMMON)  # its own word is not the private text's
    assert shown["vocabulary"]["parameters"]["noise_stddev"] == 12.0
    assert {"text": DoubledNoise.law, "label": "proved"} in shown["guarantee"]["assumptions"]
    assert DoubledNoise.origin in shown["guarantee"]["covered_outputs"][0]
    assert set(read_json(run / "private" / "vocabulary" / "released.json")) == {PREFIX, *COMMON}


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("noise_stddev", 3.0, "vocabulary.noise_stddev: method toy has noise of its own"),
        ("public_corpora", True, "vocabulary.public_corpora: method toy has no use for it"),
        ("rounds", [0.5, 0.5], "vocabulary.rounds: method toy has one round"),
        ("path", "tokenizer", "method: given needs a path"),
        ("public", True, "vocabulary.public is about a given tokenizer"),
    ],
)
def test_its_check_is_asked(
    folder: Path,
    option: str,
    given: Any,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    wrong = values(folder, "toy")
    wrong["vocabulary"][option] = given
    (folder / "config.yaml").write_text(yaml.safe_dump(wrong))
    assert_one_line(caller(monkeypatch, capfd)("plan", folder / "config.yaml"), 2, message)


def test_without_its_line_nobody_knows_it(folder: Path) -> None:
    """In a process that has not read this file."""
    (folder / "config.yaml").write_text(yaml.safe_dump(values(folder, "toy")))
    code = "import pathlib, sys; from tacit.config import load_config; load_config(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(folder / "config.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "unknown method 'toy'; known: histogram, weighted, sips, hoory, public, given" in done.stderr

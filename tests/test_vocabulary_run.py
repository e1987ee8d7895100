"""A vocabulary in rounds as a run makes it: planned, charged round by round, repeated by a run that was killed, refused where odd."""

from __future__ import annotations

import contextlib
import json
import math
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli.audit import command as audit_command
from tacit.config import RunConfig, parse_config
from tacit.corpus.units import Unit
from tacit.errors import AuditError, DataError, LedgerError, TacitError, UsageError
from tacit.files import read_json
from tacit.pipeline.opening import open_run
from tacit.pipeline.stages import walk
from tacit.pipeline.vocabulary import _save_noise
from tacit.planning import VOCABULARY, VOCABULARY_COUNTS, make_plan, mechanisms_from_ledger, plan_in_ledger
from tacit.privacy.accounting.accountant import epsilon, joint_epsilon
from tacit.privacy.accounting.calibrate_words import WordEvents
from tacit.privacy.events import Spend, ThresholdedHistogram, WeightedHistogram
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import Provenance
from tacit.report.collect.training import vocabulary_facts
from tacit.storage.keyed_rows import KeyedRows
from tacit.vocabulary import tally
from tacit.vocabulary.select import draw_noise

PHASE = {
    "name": "private",
    "plan": "dp",
    "stream": "private",
    "steps": 3,
    "expected_batch": 20,
    "clip_norm": 0.5,
    "learning_rate": 1e-3,
    "noise_multiplier": 1.0,
}
EPSILON, DELTA = 6.0, 1e-8
"""The noise is the operating system's. A unit shows a name of its own with probability DELTA / 10 at most, the vocabulary's share,
and there are 400 units: a false alarm has probability 4e-7 a run. That a common word, far above the threshold, is missed is rarer."""
SOLVED = {name: value for name, value in PHASE.items() if name != "noise_multiplier"} | {"steps": 400}
"""A phase whose noise is solved: with many steps and a small budget, whose losses are soon composed."""
COMMON = tuple(f"common{letter}" for letter in "abcdefgh")


def values(folder: Path, **options: Any) -> dict[str, Any]:
    return {
        "run": str(folder / "run"),
        "privacy": {"unit": "document", "units": 400, "budget": {"epsilon": EPSILON, "delta": DELTA}},
        "private": {"path": str(folder / "notes.jsonl"), "id_field": "id"},
        "public": [{"path": str(folder / "public.jsonl")}],
        "vocabulary": {"size": 500, "max_words": 8, "epsilon_share": 0.6, **options},
        "model": {"layers": 1, "width": 16, "heads": 2, "length": 16},
        "phases": [PHASE],
        "evaluation": {"held_out": 0.0},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """400 notes of common words, each with a name of its own; a public list that holds one of the common words."""
    notes = [{"id": f"n{n}", "text": " ".join(COMMON) + f" name{n}"} for n in range(400)]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    (tmp_path / "public.jsonl").write_text("".join(json.dumps({"text": f"public text {n}"}) + "\n" for n in range(300)))
    (tmp_path / "words.txt").write_text("commona\t500\nneverseen\t20\n")
    return tmp_path


def configured(folder: Path, **options: Any) -> RunConfig:
    return parse_config(values(folder, **options))


SIPS = {"method": "sips", "rounds": [0.2, 0.8]}


def test_without_counts_the_weights_stand_for_them_and_the_choice_has_their_budget(folder: Path) -> None:
    config = configured(folder, method="weighted", counts_share=0)
    with open_run(config) as state:
        events = state.mechanisms.vocabulary
        assert isinstance(events, WordEvents)
        assert events.counts is None
        assert 0.95 * 0.6 * EPSILON < epsilon(events.spends(), DELTA * 0.1) <= 0.6 * EPSILON
        walk(state, "vocabulary")
        assert [stage for stage in state.ledger.plans if stage.startswith(VOCABULARY)] == [VOCABULARY]
        assert mechanisms_from_ledger(config, state.ledger) == state.mechanisms
        made = state.vocabulary_folder
    released = read_json(made / "released.json")
    assert set(released) == set(COMMON)
    assert all(
        math.isclose(count, 400 / 3, rel_tol=0.5) for count in released.values()
    )  # the weight is 1/sqrt(8) or more


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
@pytest.mark.parametrize("method", ["histogram", "weighted", "sips"])
def test_the_plan_has_every_release_and_meets_the_budget(folder: Path, method: str, relation: str) -> None:
    given = values(folder, method=method, public_words=[str(folder / "words.txt")])
    given["privacy"] |= {"relation": relation, "budget": {"epsilon": 2.0, "delta": DELTA}}
    config = parse_config({**given, "phases": [SOLVED]})
    plan = make_plan(config)
    events = plan.mechanisms.vocabulary
    assert isinstance(events, WordEvents)
    assert len(events.rounds) == (4 if method == "sips" else 1)
    kind = ThresholdedHistogram if method == "histogram" else WeightedHistogram
    assert {type(event) for event in events.rounds} == {kind}
    assert events.counts is not None
    spends = [Spend(event) for event in (*events.rounds, events.counts)]
    share = epsilon(spends, DELTA * 0.1, relation)
    assert 0.95 * 0.6 * 2.0 < share <= 0.6 * 2.0
    assert 0.97 * 2.0 < plan.epsilon == joint_epsilon(plan.mechanisms.spends(), DELTA, relation) <= 2.0
    names = [stage.name for stage in plan.stages]
    assert names[0] == VOCABULARY
    assert VOCABULARY_COUNTS in names
    assert len(names) == len(set(names)) == len(events.rounds) + 2
    header = LedgerHeader("document", relation, 400, 2.0, DELTA, config.digest(), "key")
    with Ledger.create(folder / "ledger.sqlite", header) as ledger:
        assert mechanisms_from_ledger(config, ledger) is None
        ledger.plan(VOCABULARY, events.rounds[0], 1, "training units")
        assert mechanisms_from_ledger(config, ledger) is None  # killed half way through planning
        plan_in_ledger(plan.mechanisms, ledger, Provenance())
        assert mechanisms_from_ledger(config, ledger) == plan.mechanisms


def test_rounds_release_common_words_and_no_name_and_pay_for_each(folder: Path) -> None:
    config = configured(folder, **SIPS, public_words=[str(folder / "words.txt")])
    with open_run(config) as state:
        walk(state, "vocabulary")
        spent = {stage: state.ledger.spent(stage) for stage in state.ledger.plans if stage.startswith(VOCABULARY)}
        assert spent == {VOCABULARY: 1, f"{VOCABULARY} round 2": 1, VOCABULARY_COUNTS: 1}
        names = {row.body["name"] for row in state.ledger.rows if row.kind == "bind"}
        assert {"the vocabulary's noise", "the noise of vocabulary counts", "the public word lists"} <= names
        made = state.vocabulary_folder
    chosen, released = read_json(made / "chosen.json"), read_json(made / "released.json")
    assert set(chosen) == set(COMMON[1:])  # 400 units; the first one is public
    assert set(released) == {*COMMON, "neverseen"}
    assert all(math.isclose(released[word], 400, rel_tol=0.5) for word in COMMON)
    assert "name" not in (made / "tokenizer.json").read_text().replace("tokenizer_name", "")


def test_a_run_that_counts_on_disk_makes_the_same_vocabulary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after its first release, and gone on with a cap under which words spill."""
    config = configured(folder, **SIPS)
    with open_run(config) as state:
        walk(state, "vocabulary")
        made, head, private = state.vocabulary_folder, state.ledger.head, state.folder.private
    first = {path.name: path.read_bytes() for path in made.iterdir()}
    for name in ("tokenizer.json", "released.json", "chosen.json"):
        (made / name).unlink()
    monkeypatch.setattr(tally.Spill, "most_bytes", 1 << 12)  # so that the names do not fit
    append, spilled = tally.SortedRuns.append, list[int]()

    def noted(runs: tally.SortedRuns, blocks: Iterable[KeyedRows]) -> None:
        append(runs, blocks)
        spilled.append(len(runs))

    monkeypatch.setattr(tally.SortedRuns, "append", noted)
    with open_run(parse_config({**values(folder, **SIPS), "compute": {"counting_memory_mb": 64}})) as state:
        walk(state, "vocabulary")
        assert state.ledger.head == head
    assert {path.name: path.read_bytes() for path in made.iterdir()} == first
    assert max(spilled) > 2
    assert not (private / "counting").exists()


def test_a_run_that_is_killed_between_rounds_repeats_them(folder: Path) -> None:
    config = configured(folder, **SIPS)
    with open_run(config) as state:
        walk(state, "vocabulary")
        made, head = state.vocabulary_folder, state.ledger.head
    first = {path.name: path.read_bytes() for path in made.iterdir()}
    for name in ("tokenizer.json", "released.json", "chosen.json"):
        (made / name).unlink()
    with open_run(config) as state:
        walk(state, "vocabulary")
        assert state.ledger.head == head
    assert {path.name: path.read_bytes() for path in made.iterdir()} == first


@pytest.mark.slow
def test_the_audit_of_a_run_plants_words_in_its_own_mechanism(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads the ledger alone; a mechanism that shows more than its law ends with exit code 5."""
    config = configured(folder, **SIPS)
    with open_run(config) as state:
        path = state.folder.root
    (folder / "notes.jsonl").unlink()
    try:
        audit_command(path, as_json=True, vocabulary=True)
    except AuditError:  # a dozen rows, each with a false alarm of 1e-6: both times with 2e-10
        capsys.readouterr()
        audit_command(path, as_json=True, vocabulary=True)
    rows = json.loads(capsys.readouterr().out)
    assert {row["stage"] for row in rows} == {VOCABULARY, f"{VOCABULARY} round 2"}
    assert not any(row["exceeds"] for row in rows)
    assert all(row["trials"] >= 2000 for row in rows)
    with contextlib.suppress(AuditError):
        audit_command(path, vocabulary=True)
    assert "99.9 % interval" in capsys.readouterr().out
    monkeypatch.setattr("tacit.audit.vocabulary.draw_noise", lambda count, stddev: abs(draw_noise(count, stddev)))
    with pytest.raises(AuditError, match="more often than the law allows"):
        audit_command(path, vocabulary=True)


def test_other_noise_for_a_round_that_was_paid_for_is_refused(folder: Path) -> None:
    config = configured(folder, **SIPS)
    with open_run(config) as state:
        walk(state, "vocabulary")
        made = state.vocabulary_folder
    for name in ("tokenizer.json", "noise-round-2-*.npy"):
        (path,) = made.glob(name)
        path.unlink()
    with pytest.raises(LedgerError, match="noise of vocabulary round 2 changed"), open_run(config) as state:
        walk(state, "vocabulary")


@pytest.mark.parametrize("count", [0, 5, 1_000_000])
def test_noise_goes_into_its_file_a_block_at_a_time(tmp_path: Path, count: int) -> None:
    """Known-wrong: all of it in memory, 8 bytes a word, from where it is saved. The file is the one that numpy writes."""

    def traced(save: Callable[[], None]) -> int:
        tracemalloc.start()
        try:
            save()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    pieces, whole = tmp_path / "pieces.npy", tmp_path / "whole.npy"
    peak = traced(lambda: _save_noise(pieces, count, 0.0))
    wrong = traced(lambda: np.save(whole, draw_noise(count, 0.0)))
    assert pieces.read_bytes() == whole.read_bytes()
    if count == 1_000_000:
        assert peak < 2 * count < 8 * count <= wrong
    assert np.load(pieces, mmap_mode="r").shape == (count,)


def test_another_word_list_is_refused_once_the_run_has_begun(folder: Path) -> None:
    config = configured(folder, **SIPS, public_words=[str(folder / "words.txt")])
    with open_run(config) as state:
        walk(state, "vocabulary")
    (folder / "words.txt").write_text("commona\t500\ncommonb\t1\n")
    with pytest.raises(TacitError, match="public word lists"), open_run(config) as state:
        pass


def test_words_of_the_public_corpora_cost_nothing_and_are_the_same_when_the_run_goes_on(folder: Path) -> None:
    """Beside a list, with counts added up. A run that goes on with other text would release the same noise on other words."""
    config = configured(folder, **SIPS, public_words=[str(folder / "words.txt")], public_corpora=True)
    assert config.vocabulary.share_of_counts > 0
    with open_run(config) as state:
        assert state.mechanisms == make_plan(configured(folder, **SIPS, public_words=["unread"])).mechanisms
        walk(state, "vocabulary")
        made = state.vocabulary_folder
    assert set(read_json(made / "chosen.json")) == set(COMMON[1:])
    assert {"public", "text", "neverseen", *COMMON} == set(
        read_json(made / "released.json")
    )  # and no number, which stands once
    for name in ("tokenizer.json", "released.json"):
        (made / name).unlink()
    with (folder / "public.jsonl").open("a") as file:
        file.write((json.dumps({"text": "another " * 20}) + "\n") * 10)  # one alone may be held out
    with pytest.raises(LedgerError, match="the words of the public corpora changed"), open_run(config) as state:
        walk(state, "vocabulary")


def test_a_histogram_beside_words_of_the_public_corpora_and_what_the_report_calls_it(folder: Path) -> None:
    config = configured(folder, method="histogram", public_corpora=True)
    with open_run(config) as state:
        walk(state, "vocabulary")
        released = read_json(state.vocabulary_folder / "released.json")
        assert vocabulary_facts(config, state.ledger, 500, 10).method == "histogram beside words of the public corpora"
    assert {"public", "text", *COMMON} == set(released)
    both = configured(folder, method="histogram", public_corpora=True, public_words=[str(folder / "words.txt")])
    with open_run(config) as state:
        told = vocabulary_facts(both, state.ledger, 500, 10).method
    assert told == "histogram beside public word lists and words of the public corpora"


def test_a_missing_word_list_shows_before_anything_is_written(folder: Path) -> None:
    config = configured(folder, **SIPS, public_words=[str(folder / "none.txt")])
    with pytest.raises(DataError, match="no such file"), open_run(config):
        pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "public", "public_words": ["a.txt"]}, "vocabulary.public_words: method public"),
        ({"method": "public", "public_corpora": True}, "vocabulary.public_corpora: method public"),
        (
            {"method": "sips", "counts_share": 0, "public_corpora": True},
            "vocabulary.counts_share: public words have no",
        ),
        ({"method": "histogram", "public_corpora": True, "noise_stddev": 5.0, "threshold": 40}, "cannot be given"),
        ({"method": "public", "counts_share": 0.1}, "vocabulary.counts_share: method public"),
        ({"method": "weighted", "rounds": [0.5, 0.5]}, "vocabulary.rounds: method weighted has one round"),
        ({"method": "sips", "noise_stddev": 5.0, "threshold": 40}, "cannot be given"),
        ({"method": "histogram", "counts_share": 0.2, "noise_stddev": 5.0, "threshold": 40}, "cannot be given"),
        ({"method": "sips", "rounds": []}, "vocabulary.rounds"),
        ({"method": "sips", "rounds": [0.5, 1.5]}, "vocabulary.rounds"),
        ({"method": "sips", "counts_share": 1.0}, "vocabulary.counts_share"),
        (
            {"method": "sips", "counts_share": 0, "public_words": ["a.txt"]},
            "vocabulary.counts_share: public words have no",
        ),
        ({"method": "sip"}, "vocabulary.method"),
    ],
)
def test_options_that_contradict_each_other_are_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configured(folder, **options)


def test_runs_that_were_begun_before_keep_their_digest(folder: Path) -> None:
    plain = values(folder)
    del plain["vocabulary"]
    config = parse_config(plain)
    assert not {"public_words", "public_corpora", "counts_share", "rounds"} & config.comparable()["vocabulary"].keys()
    assert parse_config({**plain, "vocabulary": {"method": "sips"}}).digest() != config.digest()


def test_a_unit_of_several_texts_counts_once() -> None:
    """The unit's texts are counted together, so a user of many notes has one weight to share out."""
    from tacit.randomness import KeyedRandomness
    from tacit.vocabulary.count import count_words
    from tacit.vocabulary.tokenizer import TokenizerOptions

    user = Unit("u", ("one two", "two three", "four"))
    weights = count_words(
        [(user.unit_id, user.texts)], 8, KeyedRandomness(bytes(32)), TokenizerOptions(), resolution=100
    )
    assert weights == dict.fromkeys(("one", "two", "three", "four"), 50)

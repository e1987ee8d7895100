"""Exact deduplication: brute force over all small corpora for the stability, and real turns.

Every bound on stability must be attained, so a smaller claim fails.
"""

from __future__ import annotations

import itertools
import json
import random
import stat
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.errors import DataError, UsageError
from tacit.privacy.accounting.replacement import Screening
from tacit.privacy.accounting.replacement import stability as confidentiality_stability
from tacit.randomness import KeyedRandomness
from tacit.screening.deduplicate import (
    DeduplicateOptions,
    KeepFirst,
    MaskAll,
    Normalisation,
    Stability,
    normalised,
    stability,
)
from tacit.screening.redact import MASK

STREAMS = KeyedRandomness(bytes(range(32)))
NORMALISATIONS: list[Normalisation] = ["none", "whitespace", "casefold"]


def deduplicated(options: DeduplicateOptions, texts: Sequence[str], streams: KeyedRandomness = STREAMS) -> list[str]:
    if options.mode == "keep-first":
        return list(KeepFirst(options, streams).mask(texts))
    marking = MaskAll(options, streams)
    for text in texts:
        marking.count(text)
    return list(marking.mask(texts))


def by_hand(options: DeduplicateOptions, texts: Sequence[str]) -> list[str]:
    compared = [normalised(text, options.normalisation) for text in texts]
    if options.mode == "keep-first":
        return [
            MASK if key in compared[:at] else text for at, (key, text) in enumerate(zip(compared, texts, strict=True))
        ]
    return [MASK if compared.count(key) > 1 else text for key, text in zip(compared, texts, strict=True)]


# normalisation --------------------------------------------------------------------------------------------------------


def test_what_each_normalisation_ignores() -> None:
    pairs: dict[tuple[str, str], Normalisation] = {
        ("Hello", "Hello"): "none",
        ("a  b", "a b"): "whitespace",
        (" a\t\nb\u00a0", "a b"): "whitespace",
        ("HELLO", "hello"): "casefold",
        ("stra\u00dfe", "STRASSE"): "casefold",
        ("\ufb01ve \uff15", "Five 5"): "casefold",
        ("caf\u00e9", "cafe\u0301"): "casefold",
        ("\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2", "\u03c3\u03af\u03c3\u03c5\u03c6\u03bf\u03c3"): "casefold",
        ("10\u00b2", "102"): "casefold",  # a warning in the docs
    }
    for (one, other), first in pairs.items():
        found = [normalised(one, kind) == normalised(other, kind) for kind in NORMALISATIONS]
        assert found == [NORMALISATIONS.index(kind) >= NORMALISATIONS.index(first) for kind in NORMALISATIONS], (
            one,
            other,
        )
    for one, other in [("ab", "a b"), ("a", "b"), ("5", "6"), ("", "a"), ("a.", "a")]:
        assert normalised(one, "casefold") != normalised(other, "casefold")


@given(st.text(st.characters(), max_size=8))
def test_normalising_twice_changes_nothing(text: str) -> None:
    for kind in NORMALISATIONS:
        assert normalised(normalised(text, kind), kind) == normalised(text, kind)


def test_every_character_is_normalised_once() -> None:
    for code in range(0, sys.maxunicode + 1, 7):
        once = normalised(f"a{chr(code)}b", "casefold")
        assert normalised(once, "casefold") == once, hex(code)


# marking --------------------------------------------------------------------------------------------------------------

OPTIONS = [
    *(DeduplicateOptions(mode, kind) for mode in ("keep-first", "mask-all") for kind in NORMALISATIONS),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a", "A", " a", "a b", "a  B", "", " ", MASK, "\ud83d", "?", "b"]), max_size=12))
def test_the_same_as_by_hand(texts: list[str]) -> None:
    for options in OPTIONS:
        assert deduplicated(options, texts) == by_hand(options, texts)


def test_lone_surrogates_are_characters_of_their_own() -> None:
    texts = ["\ud83d", "?", "\ufffd", "\udc4d", "\U0001f44d"]
    assert deduplicated(DeduplicateOptions(), texts * 2) == texts + [MASK] * 5


def test_there_is_one_mask_token_and_the_kept_text_is_untouched() -> None:
    texts = [" Hello ", "hello", "HELLO", "x"]
    assert deduplicated(DeduplicateOptions(normalisation="casefold"), texts) == [" Hello ", "<MASK>", "<MASK>", "x"]
    assert deduplicated(DeduplicateOptions("mask-all", "casefold"), texts) == ["<MASK>", "<MASK>", "<MASK>", "x"]


def test_the_report_and_what_of_it_is_private() -> None:
    marking = KeepFirst(DeduplicateOptions(), STREAMS)
    assert [marking.mark(text) for text in "abacab"] == [False, False, True, False, True, True]
    report = marking.report()
    assert (report.texts, report.duplicates) == (6, 3)
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert values["stability"] == {"replaced": 3, "added": 2}
    assert (values["memory"], values["mode"], values["normalisation"]) == ("exact", "keep-first", "none")
    public = {key: value for key, value in values.items() if key != "private"}
    other = KeepFirst(report.options, STREAMS).report().to_dict()
    assert {key: other[key] for key in public} == public, "what is public does not depend on the text"


# stability ------------------------------------------------------------------------------------------------------------


def in_place(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(left != right for left, right in zip(one, other, strict=True))


def as_bags(one: Sequence[str], other: Sequence[str]) -> int:
    here, there = Counter(one), Counter(other)
    return max((here - there).total(), (there - here).total())


def largest_changes(options: DeduplicateOptions, whole_units: bool, longest: int) -> tuple[int, int]:
    """(one text replaced, one text removed) over all corpora of all texts up to a length."""
    texts = ["a", "b", "c", MASK] if options.normalisation == "none" else ["a", "A", "b", "B", "<mask>", MASK]
    corpora = itertools.chain.from_iterable(itertools.product(texts, repeat=length) for length in range(longest + 1))
    outputs = {corpus: deduplicated(options, corpus) for corpus in corpora}
    replaced = removed = 0
    for corpus, output in outputs.items():
        for at in range(len(corpus)):
            for text in texts:
                other = outputs[(*corpus[:at], text, *corpus[at + 1 :])]
                replaced = max(replaced, as_bags(output, other) if whole_units else in_place(output, other))
            rest = outputs[(*corpus[:at], *corpus[at + 1 :])]
            without = [*output[:at], *output[at + 1 :]]
            removed = max(removed, as_bags(output, rest) if whole_units else 1 + in_place(without, rest))
    return replaced, removed


@pytest.mark.parametrize("whole_units", [False, True])
@pytest.mark.parametrize("normalisation", ["none", "casefold"])
@pytest.mark.parametrize("mode", ["keep-first", "mask-all"])
def test_stability_is_the_largest_change_of_any_corpus(mode: Any, normalisation: Any, whole_units: bool) -> None:
    options = DeduplicateOptions(mode, normalisation)
    found = stability(options, whole_units=whole_units)
    longest = 5 if normalisation == "none" else 4
    assert (found.replaced, found.added) == largest_changes(options, whole_units, longest)


def test_the_numbers() -> None:
    keep, every = DeduplicateOptions(), DeduplicateOptions("mask-all")
    assert stability(keep) == Stability(3, 2)
    assert stability(every) == Stability(2, 2)
    assert stability(keep, whole_units=True) == Stability(1, 1)
    assert stability(DeduplicateOptions(normalisation="whitespace"), whole_units=True) == Stability(2, 2)
    assert stability(every, whole_units=True) == Stability(2, 2)
    assert [stability(keep, texts_per_unit=count).replaced for count in (1, 2, 10)] == [3, 5, 21]
    assert stability(keep).add_or_remove_group == 3
    assert stability(keep, whole_units=True).add_or_remove_group == 1


def test_the_papers_one_record_is_wrong() -> None:
    """Proposition 7: deduplication changes nothing else. It changes two others with one replaced text, one with a removed one."""
    options = DeduplicateOptions()
    assert deduplicated(options, "aab") == ["a", MASK, "b"]
    assert deduplicated(options, "bab") == ["b", "a", MASK]  # three changed
    assert deduplicated(options, "ab") == ["a", "b"]  # the first removed: its copy is no copy any more
    every = DeduplicateOptions("mask-all")
    assert deduplicated(every, "aa") == [MASK, MASK]
    assert deduplicated(every, "ca") == ["c", "a"]  # two changed
    # With a normalisation the kept copy shows which one it is, so bags differ in two.
    folded = DeduplicateOptions(normalisation="casefold")
    assert as_bags(deduplicated(folded, "aAB"), deduplicated(folded, "bAB")) == 2
    assert as_bags(deduplicated(options, "aab"), deduplicated(options, "bab")) == 0


def test_it_agrees_with_the_confidentiality_account() -> None:
    """Masking a secret is one way to replace a text; of all ways none changes more."""
    for mode, order, reserved in itertools.product(
        ("keep-first", "mask-all"), ("deduplicate-first", "redact-first"), (False, True)
    ):
        masked = confidentiality_stability(Screening(mode, order, mask_reserved=reserved)).missed
        any_text = stability(DeduplicateOptions(mode)).replaced
        assert masked <= any_text
        if not reserved:
            assert masked == any_text
    whole = confidentiality_stability(Screening("keep-first", whole_units=True)).missed
    assert whole == stability(DeduplicateOptions(), whole_units=True).replaced


def test_a_mask_token_is_reserved_only_if_it_is_after_normalisation() -> None:
    """The account has 2 for keep-first with a reserved mask token; "<mask>" in the raw text makes it 3 under casefold."""
    corpus, masked = ["My PIN is 1.", "My PIN is 1.", "my pin is <mask>."], f"My PIN is {MASK}."
    account = confidentiality_stability(Screening("keep-first", mask_reserved=True)).missed
    for kind, changed in [("none", account), ("whitespace", account), ("casefold", account + 1)]:
        options = DeduplicateOptions(normalisation=kind)
        assert in_place(deduplicated(options, corpus), deduplicated(options, [masked, *corpus[1:]])) == changed


@pytest.mark.parametrize("mode", ["keep-first", "mask-all"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_units_of_several_texts_attain_their_bound(mode: Any, count: int) -> None:
    options = DeduplicateOptions(mode)
    old, new = [f"old {at}" for at in range(count)], [f"new {at}" for at in range(count)]
    others = [[text] for text in old + new]
    found = stability(options, texts_per_unit=count)
    assert changed_units(options, [old, *others], [new, *others]) == found.replaced
    assert 1 + changed_units(options, [[], *others], [new, *others], own=False) == found.added


def changed_units(options: DeduplicateOptions, one: Any, other: Any, own: bool = True) -> int:
    def units(corpus: list[list[str]]) -> list[list[str]]:
        outputs = iter(deduplicated(options, [text for unit in corpus for text in unit]))
        return [[next(outputs) for _ in unit] for unit in corpus]

    pairs = list(zip(units(one), units(other), strict=True))
    return sum(left != right for left, right in (pairs if own else pairs[1:]))


UNIT = st.lists(st.sampled_from("abcdef"), max_size=2)


@settings(max_examples=150, deadline=None)
@given(st.lists(UNIT, min_size=1, max_size=7), UNIT, st.data())
def test_units_of_several_texts_never_exceed_it(corpus: list[list[str]], new: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(corpus) - 1))
    for mode in ("keep-first", "mask-all"):
        options = DeduplicateOptions(mode)
        changed = changed_units(options, corpus, [*corpus[:at], new, *corpus[at + 1 :]])
        assert changed <= stability(options, texts_per_unit=2).replaced


# refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: DeduplicateOptions("keep-last"), "mode"),
        (lambda: DeduplicateOptions(normalisation="stem"), "normalisation"),
        (lambda: KeepFirst(DeduplicateOptions("mask-all"), STREAMS), "KeepFirst"),
        (lambda: MaskAll(DeduplicateOptions(), STREAMS), "MaskAll"),
        (lambda: stability(DeduplicateOptions(), texts_per_unit=0), "texts_per_unit"),
        (lambda: stability(DeduplicateOptions(), texts_per_unit=2, whole_units=True), "texts_per_unit"),
    ],
)
def test_impossible_options_are_refused(wrong: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wrong()


def test_a_corpus_that_changed_between_the_passes_is_refused() -> None:
    marking = MaskAll(DeduplicateOptions("mask-all"), STREAMS)
    for text in "aab":
        marking.count(text)
    with pytest.raises(DataError, match="changed") as found:
        marking.mark("sentinel")
    assert "sentinel" not in str(found.value)
    assert [marking.mark(text) for text in "aab"] == [True, True, False]
    with pytest.raises(DataError, match="changed"):
        marking.mark("a")
    with pytest.raises(ValueError, match="counted"):
        marking.count("a")


# the state on disk ----------------------------------------------------------------------------------------------------

TEXTS = [str(number * number % 23) for number in range(60)]


@pytest.mark.parametrize("cut", [0, 1, 30, 60])
def test_stopped_and_resumed_is_uninterrupted_bit_for_bit(tmp_path: Path, cut: int) -> None:
    options, path = DeduplicateOptions("keep-first", "casefold"), tmp_path / "state"
    whole = KeepFirst(options, STREAMS)
    verdicts = [whole.mark(text) for text in TEXTS]
    begun = KeepFirst(options, STREAMS)
    first = [begun.mark(text) for text in TEXTS[:cut]]
    begun.save(path)
    resumed = KeepFirst.load(path, options, STREAMS)
    assert first + [resumed.mark(text) for text in TEXTS[cut:]] == verdicts
    assert resumed.report() == whole.report()
    resumed.save(path)
    whole.save(tmp_path / "whole")
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("cut", [0, 17, 60, 61, 90, 120])
def test_both_passes_can_be_resumed(tmp_path: Path, cut: int) -> None:
    options, path = DeduplicateOptions("mask-all"), tmp_path / "state"

    def go_on(marking: MaskAll, first: int, last: int) -> list[bool]:
        marks = []
        for step in range(first, last):
            marking.count(TEXTS[step]) if step < 60 else marks.append(marking.mark(TEXTS[step - 60]))
        return marks

    whole, begun = MaskAll(options, STREAMS), MaskAll(options, STREAMS)
    verdicts, first = go_on(whole, 0, 120), go_on(begun, 0, cut)
    begun.save(path)
    resumed = MaskAll.load(path, options, STREAMS)
    assert first + go_on(resumed, cut, 120) == verdicts
    resumed.save(path)
    whole.save(tmp_path / "whole")
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()


def test_the_state_is_private_and_does_not_tell_the_order(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "other"]
    for path, texts in zip(paths, (["sentinel", "b", "c"], ["c", "b", "sentinel"]), strict=True):
        marking = KeepFirst(DeduplicateOptions(), STREAMS)
        list(marking.mask(texts))
        marking.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert b"sentinel" not in path.read_bytes()
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_state_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    options, path = DeduplicateOptions(), tmp_path / "state"
    with pytest.raises(DataError, match="cannot be read"):
        KeepFirst.load(path, options, STREAMS)
    marking = KeepFirst(options, STREAMS)
    list(marking.mask(TEXTS))
    marking.save(path)
    with pytest.raises(DataError, match="another key"):
        KeepFirst.load(path, options, KeyedRandomness(bytes(32)))
    with pytest.raises(DataError, match="other options"):
        KeepFirst.load(path, DeduplicateOptions(normalisation="casefold"), STREAMS)
    content = path.read_bytes()
    for place in random.Random(1).sample(range(len(content)), 40):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            KeepFirst.load(path, options, STREAMS)
    for kept in (b"", content[:10], content[:-1], content + b"x"):
        path.write_bytes(kept)
        with pytest.raises(DataError, match="damaged"):
            KeepFirst.load(path, options, STREAMS)


# real text ------------------------------------------------------------------------------------------------------------


def test_customersim(data_dir: Path) -> None:
    """No two dialogues are equal, but most turns are copies."""
    source = Source(data_dir / "customersim" / "customersim.train.jsonl.gz", id_field="id")
    dialogues = [record.text for record in read_records(source)]
    turns = [turn for dialogue in dialogues for turn in dialogue.split("\n")]
    assert (len(turns), len(set(turns))) == (85_199, 29_815)
    marking = KeepFirst(DeduplicateOptions(), STREAMS)
    kept = [text for text in marking.mask(turns) if text != MASK]
    assert kept == list(dict.fromkeys(turns))
    assert marking.report().duplicates == 85_199 - 29_815
    assert not any(map(KeepFirst(DeduplicateOptions(), STREAMS).mark, dialogues))
    every = deduplicated(DeduplicateOptions("mask-all"), turns)
    assert [text for text in every if text != MASK] == [turn for turn, count in Counter(turns).items() if count == 1]

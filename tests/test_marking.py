"""Marking: what a policy finds in data points, and what is left of them as public text."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from tacit.config import MarkingOptions
from tacit.corpus.units import Unit
from tacit.errors import DataError
from tacit.pipeline.marking import cut, mark, marker_of, marks_digest, open_marks, write_marks
from tacit.randomness import KeyedRandomness
from tacit.screening.policy import package_policy
from tacit.screening.spans import Span, merged

TEXT = "Hello there.\nMy number is 415-555-0123, thanks.\n\nThank you for your help."


class Digits:
    """Any object with ``spans_of`` marks: here every digit, each as a span of its own. It counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        self.asked += texts
        return [
            [Span(place, place + 1, "digit", 1.0, "test") for place, c in enumerate(text) if c.isdigit()]
            for text in texts
        ]


def test_a_data_point_is_a_unit_with_the_merged_runs_of_its_own_text() -> None:
    units = [Unit("a#0", (TEXT,)), Unit("b#0", ("My 12 and 3", "second"))]
    found = mark(units, Digits(), "line")
    assert [(one.unit.unit_id, one.unit.texts[0], one.runs) for one in found] == [
        ("a#0/0", "Hello there.", ()),
        ("a#0/1", "My number is 415-555-0123, thanks.", ((13, 16), (17, 20), (21, 25))),
        ("a#0/2", "Thank you for your help.", ()),
        ("b#0/0", "My 12 and 3", ((3, 5), (10, 11))),
        ("b#0/1", "second", ()),
    ]
    assert [one.unit.texts[0] for one in mark(units, Digits(), "record")] == [TEXT, "My 12 and 3", "second"]


def test_public_text_holds_no_private_character_and_joins_no_words() -> None:
    (found,) = mark([Unit("a", ("p x1y22 3z,q",))], Digits(), "record")
    assert found.runs == ((2, 7), (8, 10))
    assert found.public_text == "p    ,q"


def test_equal_texts_are_marked_once_and_in_equal_ways() -> None:
    marker = Digits()
    found = list(mark([Unit(str(k), ("one 1",)) for k in range(5)], marker, "line"))
    assert [text for text in marker.asked if text] == ["one 1"]
    assert {one.runs for one in found} == {((4, 5),)}
    assert len({one.unit.unit_id for one in found}) == 5


def test_what_is_marked_is_what_the_policy_marks_in_the_text_alone() -> None:
    """Neither the texts beside it nor their number matter."""
    policy = package_policy("balanced")
    units = [Unit(str(k), (f"My name is Anna Smith and the number is 415-555-{1000 + k}.",)) for k in range(4)]
    together = list(mark(units, policy, "record"))
    for unit, marked in zip(units, together, strict=True):
        assert marked.runs == tuple(merged(policy.spans(unit.texts[0])))
        (alone,) = mark([unit], policy, "record")
        assert alone.runs == marked.runs
        assert "415" not in marked.public_text
        assert "Smith" not in marked.public_text


def test_the_digest_knows_every_mark_and_needs_the_key() -> None:
    units = [Unit("a", ("one 1",)), Unit("b", ("two 22",))]
    streams = KeyedRandomness(bytes(32))
    found = list(mark(units, Digits(), "record"))
    moved = [found[0], dataclasses.replace(found[1], runs=((4, 5),))]
    digests = [marks_digest(found, streams), marks_digest(moved, streams), marks_digest(found[:1], streams)]
    digests.append(marks_digest(found, streams.child("other")))
    assert len(set(digests)) == 4
    assert marks_digest(mark(units, Digits(), "record"), streams) == digests[0]


def test_marks_on_disk_are_those_in_memory_and_hold_no_text(tmp_path: Path) -> None:
    """Also where one data point has no mark, one has none left, and more are marked than are in memory at once."""
    units = [Unit(f"{k:04}", ("one 1 and 22", "", "no digit") if k % 3 else ()) for k in range(2500)]
    streams = KeyedRandomness(bytes(32))
    whole = list(mark(units, Digits(), "line"))
    write_marks(tmp_path, mark(units, Digits(), "line"), streams)
    found = open_marks(tmp_path, units, "line")
    assert list(found) == whole == list(found)  # read anew each time
    assert len(found) == len(whole) > 2000
    assert found.digest == marks_digest(whole, streams)
    assert not any(b"digit" in path.read_bytes().replace(b"digest", b"") for path in tmp_path.iterdir())
    assert "one" not in repr(found)
    with pytest.raises(ValueError, match="zip"):  # of other units
        list(open_marks(tmp_path, units[:-2], "line"))


def test_a_corpus_without_end_is_marked_a_few_texts_at_once() -> None:
    """So memory does not grow with it; known wrong: a list of all, which would never come back."""
    marker = Digits()
    endless = mark((Unit(str(k), (f"one {k}",)) for k in itertools.count()), marker, "line")
    assert [one.runs for one in itertools.islice(endless, 3)] == [((4, 5),)] * 3
    long = mark((Unit(str(k), ("1" * 400_000,)) for k in itertools.count()), few := Digits(), "line")
    next(long)
    assert len(marker.asked) == 2000
    assert len(few.asked) == 1  # one text, however often it comes


def test_cut_units_keep_their_ids_and_all_their_lines() -> None:
    assert cut([Unit("a", (TEXT, "more"))], "line") == [
        Unit("a", ("Hello there.", "My number is 415-555-0123, thanks.", "Thank you for your help.", "more"))
    ]


def test_nothing_private_is_printed() -> None:
    assert "415" not in repr(list(mark([Unit("a", (TEXT,))], Digits(), "record")))


def test_a_policy_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "name: own\nleast_score: 0.5\nlabels: [code]\npatterns:\n  - {label: code, pattern: 'Q[0-9]{3}', score: 1.0}\n"
    )
    (found,) = mark(
        [Unit("a", ("code Q123 here",))],
        marker_of(MarkingOptions(balanced=str(path)), KeyedRandomness(bytes(32))),
        "record",
    )
    assert found.public_text == "code   here"
    with pytest.raises(DataError, match="cannot be read"):
        marker_of(MarkingOptions(balanced=str(tmp_path / "none.yaml")), KeyedRandomness(bytes(32)))


def test_what_the_policy_is_made_to_miss_is_public() -> None:
    texts = [f"My order number is {7_000_000 + 37 * number}." for number in range(300)]
    units = [Unit(str(number), (text,)) for number, text in enumerate(texts)]
    every, some = (
        list(mark(units, marker_of(MarkingOptions(missed=share), KeyedRandomness(bytes(32))), "record"))
        for share in (0.0, 0.5)
    )
    assert all(text.runs for text in every)
    assert 0.35 < sum(not text.runs for text in some) / len(units) < 0.65
    assert all(one.runs in ((), all_.runs) for one, all_ in zip(some, every, strict=True))

"""Spans and the runs they make, against sets of characters."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tacit.screening.spans import Detector, Span, merged


class Vowels(Detector):
    """The smallest detector there is."""

    name = "vowels"

    def spans(self, text: str) -> list[Span]:
        return [Span(i, i + 1, "vowel", 1.0, self.name) for i, letter in enumerate(text) if letter in "aeiou"]


def test_a_detector_needs_only_spans() -> None:
    assert Vowels().spans_of(["tea", "", "xyz"]) == [
        [Span(1, 2, "vowel", 1.0, "vowels"), Span(2, 3, "vowel", 1.0, "vowels")],
        [],
        [],
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6))))
def test_merged_runs_are_the_union_and_maximal(pairs: list[tuple[int, int]]) -> None:
    spans = [Span(start, start + length, "x", 1.0, "test") for start, length in pairs]
    runs = merged(spans)
    covered = {place for start, end in runs for place in range(start, end)}
    assert covered == {place for span in spans for place in range(span.start, span.end)}
    assert all(first[1] < second[0] for first, second in pairwise(runs))

"""The user's patterns: safe ones work on normalised text, unsafe ones are one clear line."""

from __future__ import annotations

import time

import pytest

from tacit.errors import DataError
from tacit.screening.user_patterns import PatternDetector, UserPattern


def detector(pattern: str) -> PatternDetector:
    return PatternDetector([UserPattern("badge", pattern, 0.9)])


def test_spans_are_the_originals() -> None:
    text = "ﬁne: B\u200b-１２３ and B-77é B-456"
    found = [text[span.start : span.end] for span in detector(r"B-\d{3}").spans(text)]
    assert found == ["B\u200b-１２３", "B-456"]
    assert {(span.label, span.score, span.detector) for span in detector(r"B-\d{3}").spans(text)} == {
        ("badge", 0.9, "pattern")
    }


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        (r"(a)\1", "invalid escape"),
        (r"(?<=a)b", "invalid perl operator"),
        (r"a(?=b)", "invalid perl operator"),
        (r"(a", "missing"),
        (r"((a{100}){100}){100}", "repetition"),
        (r"a*", "empty text"),
        (r"\b", "empty text"),
    ],
)
def test_unsafe_patterns_are_one_line(pattern: str, part: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match=part) as caught:
        detector(pattern)
    assert "item 1 (badge)" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_what_makes_other_engines_hang_is_linear() -> None:
    start = time.process_time()
    assert detector(r"(x+x+)+y").spans("x" * 100_000) == []
    assert time.process_time() - start < 2

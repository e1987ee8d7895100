"""Redaction: one ``<MASK>`` a maximal run, nothing else changed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.screening.redact import MASK, redact
from tacit.screening.spans import Span


def _span(start: int, end: int) -> Span:
    return Span(start, end, "x", 1.0, "test")


def test_overlapping_and_touching_spans_are_one_mask() -> None:
    assert redact("abcdefgh", [_span(4, 6), _span(1, 3), _span(2, 4)]) == f"a{MASK}gh"
    assert redact("abcdefgh", [_span(1, 3), _span(4, 6)]) == f"a{MASK}d{MASK}gh"
    assert redact("abc", []) == "abc"
    assert redact("abc", [_span(0, 3)]) == MASK


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_against_a_mask_for_each_character(masked: list[bool]) -> None:
    """Oracle: replace each masked character by a sign, then each run of signs by one mask."""
    text = "".join(chr(ord("a") + i % 26) for i in range(len(masked)))
    signs = "".join("#" if hidden else letter for letter, hidden in zip(text, masked, strict=True))
    spans = [_span(i, i + 1) for i, hidden in enumerate(masked) if hidden]
    assert redact(text, spans) == re.sub("#+", MASK, signs)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, 4), (2, 2), (3, 1)])
def test_a_span_outside_the_text_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        redact("abc", [_span(start, end)])

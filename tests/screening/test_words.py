"""Names and addresses from word classes."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.screening import words as module
from tacit.screening.lexicon import Lexicon
from tacit.screening.words import Words

WORDS = Words(Lexicon())


def found(text: str, least: float = 0.3) -> list[tuple[str, str]]:
    return [(label, text[start:end]) for start, end, label, score in WORDS.found(text) if score >= least]


@pytest.mark.parametrize(
    ("text", "label", "part"),
    [
        ("I am Jennifer Lopez, hello", "name", "Jennifer Lopez"),
        ("I spoke with Zzxqy yesterday", "name", "Zzxqy"),
        ("my name is will, thanks", "name", "will"),
        ("please ask dr. house about it", "name", "dr. house"),
        ("with Alan B. Scott, M.D. at noon", "name", "Alan B. Scott, M.D."),
        ("we met Vincent van Gogh there", "name", "Vincent van Gogh"),
        ("send it to xiaoxue please", "name", "xiaoxue"),
        ("It was Ms. Grace Reed who called", "name", "Ms. Grace Reed"),
        ("I live at 12 Old Mill Road, Apt. 4 now", "address", "12 Old Mill Road, Apt. 4"),
        ("ship it to 3337 Melissa Courts West Glenda, MD 10001 please", "address", "3337 Melissa Courts West Glenda, MD 10001"),
        ("it is Unit 1409 Box 0320 DPO AE 07927 now", "address", "Unit 1409 Box 0320 DPO AE 07927"),
        ("at 770 san ramon valley boulevard now", "address", "770 san ramon valley boulevard"),
        ("at the corner of Main Street and Third Avenue now", "address", "the corner of Main Street and Third Avenue"),
        ("near Luite tee 87 today", "address", "Luite tee 87"),
    ],
)  # fmt: skip
def test_names_and_addresses(text: str, label: str, part: str) -> None:
    assert (label, part) in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "Can you tell me when my order will arrive?",
        "The house is big. Thanks a lot, I will call you tomorrow.",
        "Will it rain? May I ask you something?",
        "I need two tickets for the game at 7 pm.",
        "Don't do that, it's wrong.",
    ],
)
def test_plain_english_holds_none(text: str) -> None:
    assert found(text) == []


WORD = st.sampled_from(
    ["Jennifer", "Zzxqy", "zzxqy", "Will", "will", "house", "House", "the", "of", "12", "1409", "21st", "Street", "street",
     "Apt", "Dr", "FPO", "CT", "salon", "Hotel", "hotel", "name", "van", "I", "J", "A", "a", "with", "With", "corner", "s"]
)  # fmt: skip
GAP = st.sampled_from([" ", " ", " ", ", ", ". ", "-", "'", "\n", ": ", "? ", " # ", " (", ") "])


@given(st.lists(st.tuples(WORD, GAP), max_size=25))
def test_passing_over_words_changes_nothing(parts: list[tuple[str, str]]) -> None:
    """The quick test of where a pattern can begin is only quick: without it the same is found."""
    letters, _ = WORDS.letters("".join(word + gap for word, gap in parts))
    slow = re.compile(module._ANY_FORM)
    fast = [match.span() for match in module._PATTERN.finditer(letters)]
    assert fast == [match.span() for match in slow.finditer(letters)]


@pytest.mark.parametrize(
    "piece", ["A ", "Bob ", "zzxqy ", "12 ", "house ", "Dr. ", "the ", "12 Old ", "Apt 4 ", "a-b-", "van ", "C, "]
)
def test_time_is_linear(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    for _ in WORDS.found(text):
        pass
    assert time.process_time() - start < 5

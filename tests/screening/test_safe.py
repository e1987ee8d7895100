"""Sentences that are not known to be safe."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tacit.screening.safe as module
from tacit.screening.normalise import is_plain
from tacit.screening.safe import UnsafeSentences

SAFE = UnsafeSentences(2000, known=["frobnicator"])


def marked(text: str) -> list[str]:
    return [text[span.start : span.end] for span in SAFE.spans(text)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello, how can I help you?",
        "I don't know. It is not here!",
        "I don’t know – it is “here”…",
        "I ordered a frobnicator and it isn't there.",
        "SYS: Hello, what can I do for you?\nUSR: I need some help.",
    ],
)
def test_plain_english_is_safe(text: str) -> None:
    assert marked(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "It is 7 now.",
        "Ask Table about it.",
        "Ask rose about it.",
        "Ask zzxqy about it.",
        "I paid $ for it.",
        "It is caf\u00e9 time.",
        "See a_b now.",
        "It IS good.",
        "iPhone is here.",
        "No. 5",
        "I know \u200b it",
    ],
)
def test_anything_else_is_not(text: str) -> None:
    assert marked(text) == [text.strip()]


def test_only_the_sentence_is_marked() -> None:
    text = "I am here. My name is Zzxqy Blorb! How can you help?"
    assert marked(text) == ["My name is Zzxqy Blorb!"]


def test_neighbours_are_one_span() -> None:
    text = "I am here. It is Zzxqy.\n\nIt is 12 now. I am there."
    assert marked(text) == ["It is Zzxqy.\n\nIt is 12 now."]


def test_no_safe_words_mark_everything() -> None:
    assert [(span.start, span.end) for span in UnsafeSentences(0).spans("I am here.")] == [(0, 10)]


@given(st.text(alphabet="aZ1 .\n!?:,'é_Q"))
def test_every_unknown_word_is_marked(text: str) -> None:
    """Oracle: each character of a token with a digit, an accent or a capital that is not its only one."""
    covered = {place for span in SAFE.spans(text) for place in range(span.start, span.end)}
    for place, character in enumerate(text):
        if character in "1é":
            assert place in covered


PIECES = st.sampled_from(
    ["I am here", "Zzxqy", "7", "No", "is", ". ", "! ", "\n", ", ", " ", "é", "“", "\u200b", ": ", "_", "?"]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(TEXTS, st.lists(TEXTS, max_size=4))
@example("", ["", ". "])
@example(" .", ["No", "5"])
@example("No. 5", [". Zzxqy", ""])
@settings(max_examples=300)
def test_the_spans_of_a_text_depend_on_no_neighbour(text: str, others: list[str]) -> None:
    alone = SAFE.spans(text)
    for place in range(len(others) + 1):
        assert SAFE.spans_of([*others[:place], text, *others[place:]])[place] == alone


@given(TEXTS)
@settings(max_examples=300)
def test_what_is_marked_is_what_a_reader_of_one_text_marks(text: str) -> None:
    """Oracle: letters of the one text, split by a regular expression, and the sentences of them."""
    plain = text.replace("“", '"')
    expected = [(0, len(text))]
    if is_plain(plain):
        parts = re.split(r"([A-Za-z0-9]+)", plain)
        places = list(accumulate(map(len, parts), initial=0))
        expected = list(module._runs(plain, "".join(SAFE._letters[part] for part in parts), places, 0))
    assert [(span.start, span.end) for span in SAFE.spans(text)] == expected


def test_a_list_that_knows_names_is_caught() -> None:
    """Known-wrong: with names among the safe words, a name passes."""
    careless = UnsafeSentences(2000, known=["rose"])
    assert not careless.spans("Ask rose about it.")
    assert SAFE.spans("Ask rose about it.")

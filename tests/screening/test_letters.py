"""Letters of words and gaps, of all texts at once, against splitting by a regular expression."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tacit.screening.letters import letters_of

WORDS = re.compile(r"([^\W_]+)")


class Parts(dict[str, str]):
    """Each part has the next letter, so that parts that are mixed up show."""

    def __missing__(self, part: str) -> str:
        letter = self[part] = chr(33 + len(self) % 90)
        return letter


def by_splitting(text: str, alphabet: Parts) -> tuple[str, list[int]]:
    parts = WORDS.split(text)
    return "".join(alphabet[part] for part in parts), list(accumulate(map(len, parts), initial=0))


PIECES = st.sampled_from(
    [
        "Bob",
        "a",
        "7",
        "é",
        "ß",
        "Ólafur",
        "²",
        "x9",
        "中文",
        "𝒜",
        "_",
        " ",
        ", ",
        ". ",
        "\n",
        "\0",
        "…",
        "\ud800",
        "—",
        "\t \t",
        "\x80",
    ]
)


@given(st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join), st.lists(PIECES, max_size=40).map(" ".join)))
@example("")
@example(" ")
@example("a")
@example("\0a, b\0")
def test_letters_and_places_are_those_of_a_regular_expression(text: str) -> None:
    alphabet = Parts()
    expected = by_splitting(text, alphabet)
    letters, places = letters_of(text, alphabet)
    assert (letters, places.tolist()) == expected


@pytest.mark.parametrize("text", ["a_b", "a²b", "x\u0300y", "a\x1cb"])
def test_what_is_a_word_is_what_python_says(text: str) -> None:
    parts = [
        text[start:end]
        for start, end in zip(*[letters_of(text, Parts())[1].tolist()[cut:] for cut in (0, 1)], strict=False)
    ]
    assert parts == WORDS.split(text)


def test_each_part_is_looked_up_by_itself() -> None:
    """A gap of one character, and one of two that begins or ends with it, have letters of their own."""
    alphabet = Parts({"a": "w", ",": "1", ", ": "2", " ,": "3", ",,": "4", "": "0"})
    assert letters_of("a,a, a ,a,,a", alphabet)[0] == "0w1w2w3w4w0"

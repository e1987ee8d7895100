"""Letters of words and gaps, and the word lists behind them."""

from __future__ import annotations

import pytest

from tacit.screening.lexicon import Lexicon, common_words, listed_names

LEXICON = Lexicon(known=["quibblotron"])


@pytest.mark.parametrize(
    ("word", "letter"),
    [
        ("the", "o"), ("with", "w"), ("With", "W"), ("I", "J"), ("window", "c"), ("Window", "C"), ("Jennifer", "F"),
        ("jennifer", "f"), ("Will", "G"), ("Zzxqy", "U"), ("zzxqy", "u"), ("van", "e"), ("J", "I"), ("7", "d"), ("1984", "D"),
        ("21st", "x"), ("Street", "S"), ("street", "s"), ("Apt", "Q"), ("Dr", "T"), ("FPO", "M"), ("CT", "Z"), ("salon", "b"),
        ("hotel", "h"), ("Hotel", "B"), ("quibblotron", "c"), ("Quibblotron", "C"), ("Ólafur", "F"), ("name", "n"),
        (" ", " "), (". ", "."), (", ", ","), ("-", "-"), ("\n ", "/"), (": ", ":"), ("? ", "|"), ("\0", "|"), (",\0", "|"),
    ],
)  # fmt: skip
def test_letters(word: str, letter: str) -> None:
    assert LEXICON[word] == letter


def test_the_lists_are_what_they_say() -> None:
    common, names = common_words(), listed_names()
    assert len(common) == len(set(common)) > 20_000
    assert len(names) > 40_000
    assert {"jennifer", "nguyen", "schröder", "kowalczyk"} <= names
    assert not {"jennifer", "nguyen"} & set(common)
    assert {"the", "house", "tracking", "appointment"} <= set(common)
    assert all(word == word.lower() for word in common)

"""The two thresholds: against the paper's sentence written out over every token, and readings of it that are wrong."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.screening.adapters.token_marks import UNCERTAIN, Thresholds, Token, token_spans
from tacit.screening.spans import Span, merged

PI = Thresholds(0.3, None)
PI_C = Thresholds(0.3, 0.9)


class Scored(NamedTuple):
    """A word with what a model says of it: tags A and B, and plain text."""

    word: str
    a: float
    b: float

    @property
    def plain(self) -> float:
        return 1 - self.a - self.b


def shares(first: float, second: float) -> tuple[float, float]:
    """Two probabilities that leave some for plain text."""
    return first, second * (1 - first)


WORDS = st.builds(
    lambda word, pair: Scored(word, *shares(*pair)),
    st.sampled_from(["Ann", "é", "Jose\u0301", "👩\u200d👧", "x", "中"]),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
)


def placed(words: Sequence[Scored]) -> tuple[str, list[tuple[int, int]]]:
    text, places = "", []
    for scored in words:
        text += "  " if text else ""
        places.append((len(text), len(text) + len(scored.word)))
        text += scored.word
    return text, places


def tokens(words: Sequence[Scored]) -> list[Token]:
    return [
        Token(start, end, number, "A" if word.a >= word.b else "B", max(word.a, word.b), word.plain)
        for number, (word, (start, end)) in enumerate(zip(words, placed(words)[1], strict=True))
    ]


def marked_by_the_paper(words: Sequence[Scored], thresholds: Thresholds) -> list[bool]:
    """pi: any tag with the least score. pi_c: also all predictions with tags, and plain text with a smaller score."""
    is_tagged = [max(word.a, word.b) >= thresholds.least_tag_score for word in words]
    least = thresholds.least_plain_score
    if least is None:
        return is_tagged
    return [
        tagged or max(word.a, word.b) >= word.plain or word.plain < least
        for tagged, word in zip(is_tagged, words, strict=True)
    ]


def follows_the_paper(
    spans_of: Callable[[Sequence[Scored], Thresholds], list[Span]], words: Sequence[Scored], thresholds: Thresholds
) -> bool:
    """Words are marked wholly or not at all, as the paper says; nothing beyond them but what lies between two of them."""
    covered = {place for start, end in merged(spans_of(words, thresholds)) for place in range(start, end)}
    expected: set[int] = set()
    before = None
    for (start, end), is_marked in zip(placed(words)[1], marked_by_the_paper(words, thresholds), strict=True):
        if is_marked:
            expected |= set(range(start if before is None else before, end))
        before = end if is_marked else None
    return covered == expected


def ours(words: Sequence[Scored], thresholds: Thresholds) -> list[Span]:
    return token_spans(placed(words)[0], tokens(words), thresholds, "x")


THRESHOLDS = st.sampled_from([PI, PI_C, Thresholds(0.7, 0.2), Thresholds(1.0, 1.0), Thresholds(0.01, 0.0)])


@given(st.lists(WORDS, max_size=8), THRESHOLDS)
def test_against_the_paper(words: list[Scored], thresholds: Thresholds) -> None:
    assert follows_the_paper(ours, words, thresholds)


GRID = [Scored("x", a / 20, b / 20) for a in range(21) for b in range(21 - a)]
WRONG: dict[str, Callable[[Sequence[Scored], Thresholds], list[Span]]] = {
    "above the plain threshold": lambda words, least: ours(
        words, Thresholds(least.least_tag_score, 1 - (least.least_plain_score or 1))
    ),
    "thresholds exchanged": lambda words, least: ours(
        words, Thresholds(least.least_plain_score or least.least_tag_score, least.least_tag_score)
    ),
    "complement of the tag threshold": lambda words, least: ours(
        words, Thresholds(1 - least.least_tag_score, least.least_plain_score)
    ),
    "likeliest label only": lambda words, least: ours(
        [word if max(word.a, word.b) > word.plain else word._replace(a=0, b=0) for word in words], least
    ),
    "sum of the tags": lambda words, least: ours([word._replace(a=word.a + word.b, b=0) for word in words], least),
    "bytes": lambda words, least: [
        span._replace(start=in_bytes(placed(words)[0], span.start), end=in_bytes(placed(words)[0], span.end))
        for span in ours(words, least)
    ],
}


def in_bytes(text: str, place: int) -> int:
    return len(text[:place].encode())


def test_the_grid_is_right() -> None:
    assert follows_the_paper(ours, GRID, PI)
    assert follows_the_paper(ours, GRID, PI_C)


@pytest.mark.parametrize("reading", WRONG)
def test_wrong_readings_are_caught(reading: str) -> None:
    words = [Scored("é", 0, 0), *GRID]
    assert not (follows_the_paper(WRONG[reading], words, PI) and follows_the_paper(WRONG[reading], words, PI_C))


@given(st.lists(WORDS, max_size=8), st.floats(0.01, 1), st.floats(0, 1))
def test_the_conservative_threshold_marks_all_that_the_other_marks(
    words: list[Scored], least: float, plain: float
) -> None:
    def covered(thresholds: Thresholds) -> set[int]:
        return {place for start, end in merged(ours(words, thresholds)) for place in range(start, end)}

    assert covered(Thresholds(least, None)) <= covered(Thresholds(least, plain))


def test_labels_and_scores() -> None:
    words = [Scored("Ann", 0.4, 0), Scored("Lee", 0.9, 0), Scored("Rome", 0.1, 0.5), Scored("so", 0.1, 0.1)]
    assert ours(words, PI_C) == [
        Span(0, 10, "A", 0.9, "x"),  # with the blanks before the next marked word
        Span(10, 16, "B", 0.5, "x"),
        Span(16, 18, UNCERTAIN, pytest.approx(0.2), "x"),
    ]
    assert ours(words, PI) == [Span(0, 10, "A", 0.9, "x"), Span(10, 14, "B", 0.5, "x")]


def parts(text: str, *pieces: tuple[int, int, int, float]) -> list[Token]:
    """Tokens from (start, end, word, tag score)."""
    return [Token(start, end, word, "A", score, 1 - score) for start, end, word, score in pieces]


def test_a_word_is_marked_as_a_whole() -> None:
    text = "so Schwarzenegger so"
    pieces = [(0, 2, 0, 0.0), (3, 7, 1, 0.1), (7, 12, 1, 0.5), (12, 17, 1, 0.0), (18, 20, 2, 0.0)]
    [span] = token_spans(text, parts(text, *pieces), PI, "x")
    assert text[span.start : span.end] == "Schwarzenegger"


def test_one_number_for_all_words_is_no_word() -> None:
    """Some tokenizers split no words before their pieces, and count a blank to the piece after it."""
    text = "so Ann so"
    [span] = token_spans(text, parts(text, (0, 2, 0, 0.0), (2, 6, 0, 0.5), (6, 9, 0, 0.0)), PI, "x")
    assert text[span.start : span.end] == "Ann"


def test_windows_of_two_opinions() -> None:
    """The more suspicious one counts, whichever window comes first."""
    for scores in ([0.0, 0.5], [0.5, 0.0]):
        pieces = [(0, 3, 0, score) for score in scores]
        assert token_spans("Ann", parts("Ann", *pieces), PI, "x") == [Span(0, 3, "A", 0.5, "x")]
    for plain in ([0.95, 0.8], [0.8, 0.95]):
        opinions = [Token(0, 3, 0, "A", 0.01, score) for score in plain]
        assert token_spans("Ann", opinions, PI_C, "x") == [Span(0, 3, UNCERTAIN, pytest.approx(0.2), "x")]


@pytest.mark.parametrize("word", ["Jose\u0301", "Jo\u200bse", "Jose\ufe0f", "e\u0301e\u0301\u200d"])
def test_what_the_tokenizer_dropped_belongs_to_its_word(word: str) -> None:
    """Tokens over what is left after BERT's normalisation, which drops combining and invisible characters."""
    kept = [place for place, character in enumerate(word) if unicodedata.category(character)[0] == "L"]
    text = f"so {word} so"
    pieces = [(0, 2, 0, 0.0), *((3 + place, 4 + place, 1, 0.5) for place in kept), (len(text) - 2, len(text), 2, 0.0)]
    [span] = token_spans(text, parts(text, *pieces), PI, "x")
    assert text[span.start : span.end] == word


def test_a_combining_mark_that_is_a_token_belongs_to_its_word() -> None:
    text = "Jose\u0301 so"
    [span] = token_spans(text, parts(text, (0, 4, 0, 0.5), (4, 5, 1, 0.0), (6, 8, 2, 0.0)), PI, "x")
    assert span.end == 5


def test_what_no_token_covers_is_uncertain() -> None:
    """Private-use characters are dropped by some tokenizers; a conservative reading must not take them for plain."""
    text = "so \ue000\ue001 so \ue002"
    pieces = [(0, 2, 0, 0.0), (6, 8, 1, 0.0)]
    assert token_spans(text, parts(text, *pieces), PI, "x") == []
    assert token_spans(text, parts(text, *pieces), PI_C, "x") == [
        Span(3, 5, UNCERTAIN, 1.0, "x"),
        Span(9, 10, UNCERTAIN, 1.0, "x"),
    ]
    assert token_spans("\ue000", [], PI_C, "x") == [Span(0, 1, UNCERTAIN, 1.0, "x")]
    assert token_spans(" \n", [], PI_C, "x") == []

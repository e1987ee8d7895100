"""The core detector: secrets cannot be hidden by how they are written, and offsets are the original's."""

from __future__ import annotations

import random
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.screening.core import CoreDetector
from tacit.screening.lexicon import Lexicon
from tacit.screening.spans import Detector, Span, merged
from tacit.screening.words import Words

CORE = CoreDetector()
SECRETS = {
    "card": "4111 1111 1111 1111",
    "ssn": "123-45-6789",
    "phone": "(415) 555-2671",
    "order": "836-35527-7547",
    "iban": "GB29NWBK60161331926819",
    "code": "6VJT7WO70Z",
}
INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\ufe0f\u202a\x00\u0332"
ZEROS = "0０٠०৹𝟎𝟘𝟬"[:1] + "０٠०𝟎𝟘𝟬"
DASHES = "-‐‑‒–—−－"
SPACES = " \u00a0\u2007\u3000\n\t"
PLACES = ["ﬁnal ﬁle: ", "Das Maß ist ", "see ", "ﷺ ", "½ of it, ", ""]


def hidden(secret: str, rng: random.Random) -> str:
    """The secret with digits of another script, other dashes, line breaks and invisible characters inside."""
    zero = ord(rng.choice(ZEROS))
    written = []
    for character in secret:
        if character.isdigit():
            character = chr(zero + int(character))
        elif character == "-":
            character = rng.choice(DASHES) + rng.choice(["", "\n"])
        elif character == " ":
            character = rng.choice(SPACES)
        written.append(character + rng.choice(["", "", rng.choice(INVISIBLE)]))
    return "".join(written[:-1]) + written[-1][0]


def missed(detector: Detector, label: str, seed: int) -> bool:
    """Whether a character of a hidden secret is not marked."""
    rng = random.Random(seed)
    before, secret = rng.choice(PLACES), hidden(SECRETS[label], rng)
    text = f"{before}it is {secret}, ok?"
    runs = merged(detector.spans(text))
    start = len(before) + len("it is ")
    return not any(first <= start and start + len(secret) <= last for first, last in runs)


@pytest.mark.parametrize("label", SECRETS)
@settings(max_examples=60)
@given(seed=st.integers(0, 10**9))
def test_no_secret_can_be_hidden(label: str, seed: int) -> None:
    assert not missed(CORE, label, seed)


class Changed(Detector):
    """The core behind a change of the text; its spans are returned as they are."""

    name = "wrong"

    def __init__(self, change: Callable[[str], Sequence[str]]) -> None:
        self._change = change

    def spans(self, text: str) -> list[Span]:
        found: list[Span] = []
        start = 0
        for part in self._change(text):
            found += [span._replace(start=span.start + start, end=span.end + start) for span in CORE.spans(part)]
            start += len(part)
        return found


@pytest.mark.parametrize(
    ("change", "label"),
    [
        (lambda text: [unicodedata.normalize("NFKC", text)], "phone"),  # offsets shifted after NFKC
        (lambda text: ["".join(c for c in text if unicodedata.category(c) != "Cf")], "ssn"),  # and after a removal
        (lambda text: text.split("\n")[:1], "card"),  # only the first line of a wrapped number
        (lambda text: text.splitlines(keepends=True), "ssn"),  # each line for itself
    ],
)
def test_detectors_that_lose_their_place_are_caught(change: Callable[[str], Sequence[str]], label: str) -> None:
    assert any(missed(Changed(change), label, seed) for seed in range(60))


TEXT = st.text(max_size=60) | st.lists(
    st.sampled_from(["Bob ", "4111 1111 ", "1111 1111", "\n", "12 Main Street", ", ", "\0", "é", "call ", "３", "Zzxqy", ". "])
).map("".join)  # fmt: skip


@given(st.lists(TEXT, max_size=6))
def test_many_texts_give_what_each_gives_alone(texts: list[str]) -> None:
    together = CORE.spans_of(texts)
    assert together == [CORE.spans(text) for text in texts]
    for text, spans in zip(texts, together, strict=True):
        assert all(0 <= span.start < span.end <= len(text) and 0 <= span.score <= 1 for span in spans)


# a text's place in the batch ------------------------------------------------------------------------------------------

PIECES = ["(see", "Bob)", " Mr", "Smith", "\n", " ", ". ", ", ", "-", "-The", "12 Main", "Street", "#USA 78701", "Hair", "USA",
          "http://a.b/", "a@b.org", "é", "#", "(", ")", "call ", "rose", ":", "The ", "\0", "４１１１", "415-555-2671"]  # fmt: skip
EDGY = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)


def has_own_spans(detector: Detector, text: str, others: Sequence[str]) -> bool:
    """Whether a text has the same spans alone and at every place among others."""
    alone = detector.spans_of([text])[0]
    return all(
        detector.spans_of([*others[:place], text, *others[place:]])[place] == alone for place in range(len(others) + 1)
    )


@given(EDGY, st.lists(EDGY, max_size=4))
@example("-The Street", ["no"])
@example("#USA 78701Hair", ["no"])
@example("Bob)", ["(see", "no"])
@example("", ["", "Bob"])
@settings(max_examples=300)
def test_the_spans_of_a_text_depend_on_no_place_and_no_neighbour(text: str, others: list[str]) -> None:
    assert has_own_spans(CORE, text, others)


class Joined(Detector):
    """Words of texts that are joined by a mark: known to be wrong where a text is at an edge, or nothing marks it off."""

    name = "wrong"

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._words = Words(Lexicon())

    def spans(self, text: str) -> list[Span]:
        return self.spans_of([text])[0]

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        spans: list[list[Span]] = [[] for _ in texts]
        starts = list(accumulate((len(text) + len(self._mark) for text in texts), initial=0))
        for start, end, label, score in self._words.found(self._mark.join(texts)):
            place = bisect_right(starts, start) - 1
            spans[place].append(Span(start - starts[place], end - starts[place], label, score, self.name))
        return spans


@pytest.mark.parametrize(("mark", "text"), [("\0", "-The Street"), ("\0", "#USA 78701Hair"), (" ", "Smith")])
def test_texts_that_are_read_into_their_neighbours_are_caught(mark: str, text: str) -> None:
    assert not has_own_spans(Joined(mark), text, ["Mr", "no"])


def test_a_wrapped_address_is_one_run() -> None:
    text = "Write to 19902 Dobrovského 1394 Apt. 066\nSt Georges, QC 54256 today"
    runs = merged(CORE.spans(text))
    assert [text[start:end] for start, end in runs] == ["19902 Dobrovského 1394 Apt. 066\nSt Georges, QC 54256"]


def test_known_words_are_no_names() -> None:
    assert CORE.spans("the Zzxqy is here")
    assert not CoreDetector(known=["zzxqy"]).spans("the Zzxqy is here")


def test_a_text_that_takes_the_slower_way_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 says on standard error that it gives up its automaton: one record would be a line more. 28th attack, TACIT-47."""
    generator = random.Random(1)
    CoreDetector().spans("".join(generator.choices("ab-", k=300_000)))
    assert capfd.readouterr().err == ""

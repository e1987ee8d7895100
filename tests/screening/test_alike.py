"""Caught alike: what it means by hand and by brute force, and that such a secret leaves no trace in what is trained on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.randomness import KeyedRandomness
from tacit.screening import alike as module
from tacit.screening.alike import caught_alike
from tacit.screening.deduplicate import DeduplicateOptions, KeepFirst
from tacit.screening.measure import GoldRecord, measure
from tacit.screening.missed import Spotter
from tacit.screening.policy import PatternOptions, Policy, PolicyOptions, package_policy
from tacit.screening.redact import MASK
from tacit.screening.split import STREAMS, Placed, Point, Screener, Splitter, reserve_mask

BALANCED = package_policy("balanced")
STREAMS_OF_KEY = KeyedRandomness(bytes(range(32)))


def pattern_policy(*patterns: str) -> Policy:
    """Marks the patterns and nothing else."""
    options = tuple(PatternOptions(label="p", pattern=pattern) for pattern in patterns)
    return Policy(PolicyOptions(name="p", least_score=1.0, labels=("p",), patterns=options))


DIGITS = pattern_policy("[0-9]")
TITLED = pattern_policy("Mr [A-Z][a-z]+", "[A-Z][a-z]+ Jones")  # marks a neighbour because of what the secret is


@pytest.mark.parametrize(
    ("policy", "text", "secret", "expected"),
    [
        (DIGITS, "call 12 or 34", "12", True),
        (DIGITS, "call 12-34", "12-34", False),  # a hyphen of it is left
        (DIGITS, "call Bob", "Bob", False),  # missed
        (DIGITS, "call 1234", "12", True),  # what follows is marked too, in both worlds, and one run with it
        (TITLED, "ask Mr Smith now", "Smith", False),  # found, and its title is masked with it
        (TITLED, "ask Mr Smith now", "Mr Smith", True),
        (TITLED, "ask Smith Jones now", "Smith", False),
        (TITLED, "ask smith Jones now", "smith", False),
        (pattern_policy("Mr Smith|MASK"), "ask Mr Smith now", "Mr Smith", True),  # a mark inside the token is no mark
        (DIGITS, f"{MASK} is not 12", "12", True),  # the literal is escaped in both worlds
        (DIGITS, f"{MASK} is 12", MASK, False),  # and so it is no mask
        (DIGITS, f"{MASK} is 12", "<MA", False),
    ],
)
def test_by_hand(policy: Policy, text: str, secret: str, expected: bool) -> None:
    place = (text.index(secret), text.index(secret) + len(secret))
    assert list(caught_alike(policy, [(text, [place])])) == [[expected]]


# brute force ----------------------------------------------------------------------------------------------------------


def redacted(policy: Spotter, text: str, masked: range) -> str:
    """Character by character: a token where a run of marked or masked characters begins."""
    marked = {place for span in policy.spans(text) for place in range(span.start, span.end)} | set(masked)
    return "".join(
        ("" if place - 1 in marked else MASK) if place in marked else character for place, character in enumerate(text)
    )


def by_hand(policy: Policy, text: str, start: int, end: int) -> bool:
    before, after = reserve_mask(text[:start]), reserve_mask(text[end:])
    other = redacted(policy, before + MASK + after, range(len(before), len(before) + len(MASK)))
    return redacted(policy, reserve_mask(text), range(0)) == other


PIECES = ["Mr ", "Dr. ", "Smith", " Jones", "Anna ", "will ", "12 Main Street", ", ", "Springfield", " CT 85093", "415-555-2671",
          " is ", "my name is ", ". ", "\n", "(", ")", MASK, "<\\MASK>", "é"]  # fmt: skip
RECORD = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).flatmap(
    lambda pieces: st.tuples(
        st.just(pieces), st.lists(st.integers(0, len(pieces) - 1), max_size=3, unique=True).map(sorted)
    )
)


def record_of(pieces: Sequence[str], chosen: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """The text, and the chosen pieces as its secrets."""
    starts = [len("".join(pieces[:number])) for number in chosen]
    return "".join(pieces), [(start, start + len(pieces[number])) for start, number in zip(starts, chosen, strict=True)]


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORD, max_size=4), st.sampled_from([1, 40, 10_000]))
def test_many_at_once_are_what_each_is_by_brute_force(
    drawn: list[tuple[list[str], list[int]]], batch_characters: int
) -> None:
    records = [record_of(pieces, chosen) for pieces, chosen in drawn]
    expected = [[by_hand(BALANCED, text, *place) for place in places] for text, places in records]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH_CHARACTERS", batch_characters)
        assert list(caught_alike(BALANCED, records)) == expected


# why it matters -------------------------------------------------------------------------------------------------------


def placed(points: Sequence[Point]) -> list[Placed]:
    options = DeduplicateOptions()
    splitter = Splitter({stream: KeepFirst(options, STREAMS_OF_KEY.child(stream)) for stream in STREAMS}, "exact")
    return [splitter.place(point) for point in points]


def leaves_a_trace(policy: Spotter, text: str, place: tuple[int, int]) -> bool:
    """Whether what becomes of a corpus tells the text from the one with the token in the secret's place, which is masked already."""
    others = Screener(policy, policy, "record").screen(["call 12", "ask <MASK> now", "hello"])[0]
    (own,) = Screener(policy, policy, "record").screen([text])[0]
    before, after = reserve_mask(text[: place[0]]), reserve_mask(text[place[1] :])
    masked = redacted(policy, before + MASK + after, range(len(before), len(before) + len(MASK)))
    rest = [point for points in others for point in points]
    return placed([*rest, *own, *rest]) != placed([*rest, Point(masked, True), *rest])


@pytest.mark.parametrize("policy", [DIGITS, TITLED, BALANCED], ids=["digits", "titled", "balanced"])
@settings(max_examples=60, deadline=None)
@given(RECORD)
def test_what_is_caught_alike_leaves_no_trace_and_all_else_does(
    policy: Policy, drawn: tuple[list[str], list[int]]
) -> None:
    text, places = record_of(*drawn)
    if text.strip():  # blank texts are no data points
        (caught,) = caught_alike(policy, [(text, places)])
        assert [not leaves_a_trace(policy, text, place) for place in places] == caught


def test_found_is_not_enough() -> None:
    """The known-wrong criterion: every character is masked, and the redacted texts of two secrets differ."""
    texts = ["ask Mr Smith now", "ask Mr 12 now"]
    found = measure(
        [pattern_policy("Mr [A-Z][a-z]+", "[0-9]+")], iter(GoldRecord(text, ((7, len(text) - 4, "x"),)) for text in texts), alike=True
    )[0]  # fmt: skip
    assert (found.misses, found.alike) == (0, {"x": 1})
    assert leaves_a_trace(TITLED, texts[0], (7, 12))


# the measure ----------------------------------------------------------------------------------------------------------


def test_counts_and_bounds() -> None:
    gold = [GoldRecord("ask Mr Smith now", ((7, 12, "name"),)), GoldRecord("1 and 2", ((0, 1, "n"), (6, 7, "n")))]
    titled = pattern_policy("Mr [A-Z][a-z]+", "[0-9]")
    (found,) = measure([titled], iter(gold), alike=True)
    values = found.to_dict()
    assert (values["recall"], values["not_alike"]) == (1.0, pytest.approx(1 / 3))
    assert values["gamma_upper"] == pytest.approx(1 - 0.05 ** (1 / 3))
    assert values["alike_per_label"] == {"n": 1.0, "name": 0.0}
    bound = values["gamma_alike_upper"]
    assert (1 - bound) ** 3 + 3 * bound * (1 - bound) ** 2 == pytest.approx(0.05)
    (plain,) = measure([titled], iter(gold))
    assert [plain.to_dict()[key] for key in ("not_alike", "alike_per_label", "gamma_alike_upper")] == [None] * 3

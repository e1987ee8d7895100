"""What becomes of one data point: the reserved mask, the order of the steps, one stream each, and no word of the neighbours."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.accounting.replacement import Deduplication, Screening, Stability, stability
from tacit.randomness import KeyedRandomness
from tacit.screening.deduplicate import DeduplicateOptions, KeepFirst, Normalisation
from tacit.screening.policy import PatternOptions, Policy, PolicyOptions, package_policy
from tacit.screening.redact import MASK, redact
from tacit.screening.spans import Span, merged
from tacit.screening.split import (
    STREAMS,
    DataPoint,
    Deduplicate,
    Placed,
    Point,
    Screener,
    Splitter,
    Stream,
    Tally,
    data_points,
    reserve_mask,
    restore_mask,
    stream_of,
)

STREAMS_OF_KEY = KeyedRandomness(bytes(range(32)))
NOTHING = PolicyOptions(name="nothing", least_score=1.0, labels=())
BALANCED, CONSERVATIVE = package_policy("balanced"), package_policy("conservative")


def pattern_policy(pattern: str, label: str = "badge") -> Policy:
    """Marks the pattern and nothing else."""
    patterns = (PatternOptions(label=label, pattern=pattern),)
    return Policy(PolicyOptions(name="p", least_score=1.0, labels=(label,), patterns=patterns))


def copies(normalisation: Normalisation = "none") -> dict[Stream, KeepFirst]:
    options = DeduplicateOptions("keep-first", normalisation)
    return {stream: KeepFirst(options, STREAMS_OF_KEY.child(stream)) for stream in STREAMS}


def placed(screener: Screener, texts: Sequence[str], which: Deduplicate = "exact") -> list[Placed]:
    """Every data point of the texts in its stream."""
    splitter = Splitter(copies(), which)
    points, _ = screener.screen(texts)
    return [splitter.place(point) for own in points for point in own]


# cutting -------------------------------------------------------------------------------------------------------------


def test_a_record_is_one_data_point_as_it_is() -> None:
    assert data_points("  a\r\n\nb \n", "record") == ["  a\r\n\nb \n"]
    assert data_points(" \n\t", "record") == []


def test_lines_are_data_points_unless_blank() -> None:
    assert data_points("a \n\n \t\n b\r\nc\rd\x0be\u2028f\n", "line") == ["a ", " b", "c", "d\x0be\u2028f"]


@given(st.text(alphabet="ab.\n\r \x0b\x85"))
def test_lines_lose_no_character_but_line_ends_and_blanks(text: str) -> None:
    lines = data_points(text, "line")
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.strip() and not set(line) & set("\r\n") for line in lines)


# the reserved mask ---------------------------------------------------------------------------------------------------

MASKS = st.lists(st.sampled_from(["<", "\\", "MASK", ">", MASK, "<\\MASK>", "mask", " "])).map("".join)


@given(MASKS)
def test_no_raw_text_keeps_a_literal_mask_and_none_is_lost(text: str) -> None:
    reserved = reserve_mask(text)
    assert MASK not in reserved
    assert restore_mask(reserved) == text


@given(MASKS)
def test_what_has_no_mask_is_left_alone(text: str) -> None:
    assert reserve_mask(text) == text or re.search(r"<\\*MASK>", text)


def test_an_escape_that_forgets_the_escaped_is_caught() -> None:
    """The known-wrong version: two raw texts become one."""

    def wrong(text: str) -> str:
        return text.replace(MASK, "<\\MASK>")

    assert wrong("<\\MASK>") == wrong(MASK)
    assert reserve_mask("<\\MASK>") != reserve_mask(MASK)


def test_a_literal_mask_does_not_make_a_text_private() -> None:
    silent = Policy(NOTHING)
    (found,) = placed(Screener(silent, silent, "record"), [f"Put {MASK} here."])
    assert found == Placed("Put <\\MASK> here.", "public", False)


# routing -------------------------------------------------------------------------------------------------------------


def test_pi_c_looks_at_the_raw_text() -> None:
    """It marks what pi then masks, and what pi leaves."""
    screener = Screener(pattern_policy("B-[0-9]+"), pattern_policy("B-[0-9]+|blue"), "record")
    found = placed(screener, ["My badge is B-12.", "It is blue.", "It is red."])
    assert found == [
        Placed("My badge is <MASK>.", "private", False),
        Placed("It is blue.", "private", False),
        Placed("It is red.", "public", False),
    ]


def test_a_masked_run_is_one_token() -> None:
    screener = Screener(pattern_policy("[0-9]"), Policy(NOTHING), "record")
    assert placed(screener, ["on 12345 to 6"])[0].text == "on <MASK> to <MASK>"


@pytest.mark.parametrize("kind", ["record", "line"])
@given(
    texts=st.lists(st.sampled_from(["Hello.", "I am Bob Lee.", "Call 415-555-2671.\nThank you.", MASK, "\n", "a\na"]))
)
@settings(max_examples=25)
def test_every_data_point_is_in_exactly_one_stream_in_order(kind: DataPoint, texts: list[str]) -> None:
    screener = Screener(BALANCED, CONSERVATIVE, kind)
    found = placed(screener, texts)
    cut = [piece for text in texts for piece in data_points(text, kind)]
    assert len(found) == len(cut)
    seen: set[str] = set()
    for piece, one in zip(cut, found, strict=True):
        redacted = redact(reserve_mask(piece), BALANCED.spans(reserve_mask(piece)))
        assert one.duplicate == (redacted in seen)
        assert one.text == (MASK if one.duplicate else redacted)
        assert (one.stream == "private") == (MASK in one.text or bool(CONSERVATIVE.spans(piece)))
        seen.add(redacted)


def test_a_stream_is_told_by_each_of_three_reasons() -> None:
    points = [Point("a", False), Point("a", True), Point(f"a {MASK}", False)]
    assert [stream_of(point) for point in points] == ["public", "private", "private"]


# the order of the steps ----------------------------------------------------------------------------------------------

Placing = Callable[[Sequence[str]], list[Placed]]
PHONES = ("415-555-2671", "212-555-0187")
WORLDS = [[f"My number is {PHONES[0]}."] * 2, [f"My number is {PHONES[1]}.", f"My number is {PHONES[0]}."]]


def redact_first(texts: Sequence[str]) -> list[Placed]:
    return placed(Screener(BALANCED, CONSERVATIVE, "record"), texts)


def deduplicate_first(texts: Sequence[str]) -> list[Placed]:
    """The paper's algorithm 1."""
    memory = KeepFirst(DeduplicateOptions(), STREAMS_OF_KEY)
    return placed(
        Screener(BALANCED, CONSERVATIVE, "record"), [MASK if memory.mark(text) else text for text in texts], "none"
    )


def a_caught_secret_changes_nothing(screening: Placing) -> bool:
    assert all(redact(text, BALANCED.spans(text)) == "My number is <MASK>." for world in WORLDS for text in world)
    return screening(WORLDS[0]) == screening(WORLDS[1])


def test_a_caught_secret_changes_nothing_in_our_order_and_something_in_the_papers() -> None:
    assert a_caught_secret_changes_nothing(redact_first)
    assert not a_caught_secret_changes_nothing(deduplicate_first)


def test_the_public_stream_does_not_depend_on_the_private_one() -> None:
    """A missed secret is masked in the other world; under a normalisation its copy may look safe. Copies are within a stream."""
    screener = Screener(Policy(NOTHING), pattern_policy("Rose|<MASK>"), "record")
    worlds = [["call Rose", "call rose"], [f"call {MASK}", "call rose"]]

    def public(world: Sequence[str], together: bool) -> list[str]:
        memory = copies("casefold")
        splitter = Splitter(dict.fromkeys(STREAMS, memory["public"]) if together else memory, "exact")
        points = [Point(text, bool(one.unsafe)) for text in world for one in screener.judge([text])[0]]
        return [one.text for one in map(splitter.place, points) if one.stream == "public"]

    assert public(worlds[0], together=False) == public(worlds[1], together=False) == ["call rose"]
    assert public(worlds[0], together=True) != public(worlds[1], together=True)  # the known-wrong version


# which copies --------------------------------------------------------------------------------------------------------

BADGES = pattern_policy("B-[0-9]")
SEEN = pattern_policy("[BC]-[0-9]")  # pi_c sees the badges that pi misses too


def test_unmasked_leaves_public_copies_and_masked_ones() -> None:
    screener = Screener(BADGES, SEEN, "record")
    texts = ["I have C-1.", "I have B-1.", "I have none.", "I have C-1.", "I have B-2.", "I have none.", "I have C-2."]
    found = placed(screener, texts, "unmasked")
    assert [one.text for one in found] == [
        "I have C-1.",
        "I have <MASK>.",
        "I have none.",
        MASK,
        "I have <MASK>.",
        "I have none.",
        "I have C-2.",
    ]
    assert [one.duplicate for one in found] == [False] * 3 + [True] + [False] * 3
    assert [one.stream for one in found] == ["private", "private", "public", "private", "private", "public", "private"]


@pytest.mark.parametrize(("which", "whole_units"), list(itertools.product(["exact", "unmasked"], [False, True])))
def test_the_stability_that_a_run_states_is_that_of_the_code(which: Deduplicate, whole_units: bool) -> None:
    """Every small corpus, screened by the code itself: a missed and a caught secret against their masks."""
    screener = Screener(BADGES, SEEN, "record")
    texts = ["I have C-1.", "I have C-2.", "I have B-1.", "I have none.", "C-1 and B-1."]
    point = {text: screener.screen([text])[0][0][0] for text in texts}
    worst = {True: 0, False: 0}
    for corpus in itertools.product(texts, repeat=4):
        for place, text in enumerate(corpus):
            if text == "I have none.":
                continue
            here = [point[each] for each in corpus]
            there = [*here[:place], Point(re.sub("[BC]-[0-9]", MASK, text), True), *here[place + 1 :]]
            one, other = ([p.text for p in map(Splitter(copies(), which).place, world)] for world in (here, there))
            in_place = sum(left != right for left, right in zip(one, other, strict=True))
            changed = (Counter(one) - Counter(other)).total() if whole_units else in_place
            caught = here[place].text == there[place].text
            worst[caught] = max(worst[caught], changed)
    deduplication: Deduplication = "keep-first" if which == "exact" else "unmasked"
    stated = stability(Screening(deduplication, "redact-first", mask_reserved=True, whole_units=whole_units))
    assert stated == Stability(worst[False], worst[True])


# texts by themselves -------------------------------------------------------------------------------------------------

PIECES = [
    "(see",
    "Bob)",
    " Mr",
    "Smith",
    "\n",
    " ",
    ". ",
    "12 Main",
    "Street",
    "http://a.b/",
    "é",
    "#",
    "(",
    ")",
    "call ",
]
TEXT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)


@pytest.mark.slow
@given(st.lists(TEXT, max_size=5), TEXT, st.lists(TEXT, max_size=5))
@settings(max_examples=200)
def test_what_is_said_of_a_text_depends_on_no_other(before: list[str], text: str, after: list[str]) -> None:
    """Else one secret would change what is masked in its neighbour's text, or the number of workers would."""
    screener = Screener(BALANCED, CONSERVATIVE, "record")
    together = screener.judge([*before, text, *after])[len(before)]
    assert together == screener.judge([text])[0]


@pytest.mark.parametrize(("before", "text"), [("(see", "Bob)"), ("no", "-The Street"), ("no", "#USA 78701Hair")])
def test_neither_a_bracket_in_the_text_before_nor_being_the_first_changes_anything(before: str, text: str) -> None:
    screener = Screener(BALANCED, CONSERVATIVE, "record")
    assert screener.judge([before, text, before])[1] == screener.judge([text])[0]


# counts --------------------------------------------------------------------------------------------------------------


def test_the_tally_counts_runs_labels_and_characters() -> None:
    both = PolicyOptions(
        name="p",
        least_score=1.0,
        labels=("a", "b"),
        patterns=(PatternOptions(label="a", pattern="[0-9]+"), PatternOptions(label="b", pattern="7x")),
    )
    _, tally = Screener(Policy(both), pattern_policy("blue"), "line").screen(["17x and 5\nblue\nred"])
    assert tally == Tally(3, 1, 2, 9 + 4 + 3, 3 + 1, {"a": 2, "b": 1})
    tally.update(Tally(1, 0, 1, 5, 2, {"a": 1, "c": 1}))
    assert tally == Tally(4, 1, 3, 21, 6, {"a": 3, "b": 1, "c": 1})


def test_judged_hides_its_text() -> None:
    (judged,) = Screener(BALANCED, CONSERVATIVE, "record").judge(["I am Jennifer Lopez."])[0]
    assert "Jennifer" not in repr(judged)
    assert merged(judged.masked) == [(5, 19)]
    assert isinstance(judged.masked[0], Span)

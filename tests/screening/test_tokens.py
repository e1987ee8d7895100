"""Policies that mark token by token: what they mark, and that nothing beside a token has a say in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import DataError, TacitError, UsageError
from tacit.screening.alike import caught_alike
from tacit.screening.measure import GoldRecord, measure
from tacit.screening.policy import PolicyOptions, load_policy, package_policy
from tacit.screening.redact import MASK, redact
from tacit.screening.split import Screener
from tacit.screening.tokens import TokenPolicy, TokenPolicyOptions, token_spans

from .test_alike import leaves_a_trace, pattern_policy


def policy(**options: Any) -> TokenPolicy:
    return TokenPolicy(TokenPolicyOptions.model_validate({"kind": "tokens", "name": "mine"} | options))


NAMES = policy(words=["Anna", "Bob", "-"], patterns=["[0-9]{3}-?[0-9]+", "[^@]+@[^@]+"])
EVERYTHING = policy(mark="unlisted")


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("ask anna, now", "ask <MASK> now"),  # as written and without punctuation, in any case
        ("ask (Anna) or «Bob»!", "ask <MASK> or <MASK>"),
        ("ask Anna Bob\n(ANNA) now", "ask <MASK> now"),  # marked tokens in a row are one mask
        ("ask Anna/Bob or Annabel", "ask Anna/Bob or Annabel"),  # the whole token, and nothing less
        ("call 415-5552671. or x415-5552671", "call <MASK> or x415-5552671"),
        ("call ４１５-5552671 or An\u200bna", "call <MASK> or <MASK>"),  # full-width digits, a space of no width
        ("mail anna@b.org; a@b@c", "mail <MASK> a@b@c"),
        ("so - and -- so", "so <MASK> and -- so"),
        ("  Anna\u00a0Bob\u2003x ", "  <MASK>\u2003x "),
        ("", ""),
        ("Anna", "<MASK>"),
    ],
)
def test_by_hand(text: str, redacted: str) -> None:
    assert redact(text, NAMES.spans(text)) == redacted


def test_unlisted_marks_all_else() -> None:
    safe = policy(mark="unlisted", words=["ask", "now"], patterns=["[.,]+"])
    assert redact("Ask Anna, now ... please", safe.spans("Ask Anna, now ... please")) == "Ask <MASK> now ... <MASK>"
    assert redact("ask now", EVERYTHING.spans("ask now")) == MASK


@pytest.mark.slow
def test_the_packages_lists() -> None:
    assert [policy(lists=["names"]).marks(token) for token in ("Jennifer,", "LOPEZ", "zqvornak")] == [True, True, False]
    assert [policy(lists=["common"]).marks(token) for token in ("hello,", "zqvornak")] == [True, False]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{kind: tokens, name: x, least_score: 0.3}", UsageError),
        ("{kind: tokens, name: x, detectors: [{kind: spacy, pipeline: en}]}", UsageError),
        ("{kind: tokens, name: x, words: ['two words']}", UsageError),
        ("{kind: tokens, name: x, words: ['']}", UsageError),
        ("{kind: tokens, name: x, patterns: ['(?<=Mr )Smith']}", DataError),
        ("{kind: tokens, name: x, patterns: ['.*']}", DataError),
        ("{kind: tokens, name: x, lists: [mine]}", UsageError),
        ("{kind: sentences, name: x}", UsageError),
    ],
)
def test_nothing_that_reads_more_than_a_token_can_be_written(text: str, kind: type[TacitError], tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(kind, match=re.escape(str(tmp_path / "p.yaml"))) as caught:
        load_policy(tmp_path / "p.yaml")
    assert "\n" not in str(caught.value)


def test_a_file_of_each_kind(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("{kind: tokens, name: mine, words: [Anna]}")
    found = load_policy(tmp_path / "p.yaml")
    assert isinstance(found, TokenPolicy)
    assert found.marks("Anna.")
    assert found.digest == policy(words=["Anna"]).digest != policy(words=["Bob"]).digest
    assert isinstance(package_policy("balanced").options, PolicyOptions)


# locality -------------------------------------------------------------------------------------------------------------

TOKENS = ["Anna", "(Bob),", "ask", "415-555", "so.", "-", MASK, "<\\MASK>", f"x{MASK}", "ＭＡＳＫ", "é", "e\u0301", "\u0301",
          "a@b.c", "Mr", "Smith"]  # fmt: skip
BLANKS = [" ", "\n", "  ", "\t", "\u00a0", "\x0b", "\r\n", "\x85"]
TEXT = st.lists(st.tuples(st.sampled_from(TOKENS), st.sampled_from(BLANKS)), min_size=1, max_size=8)


@pytest.mark.parametrize("own", [NAMES, EVERYTHING, policy(), policy(mark="unlisted", words=["ask", "Mr"])])
@settings(max_examples=150, deadline=None)
@given(TEXT, st.data())
def test_a_secret_of_marked_tokens_leaves_no_trace_and_any_other_is_missed(
    own: TokenPolicy, pieces: list[tuple[str, str]], data: st.DataObject
) -> None:
    """What the proof needs: caught is a function of the secret's own tokens in every record, and caught texts are equal."""
    first = data.draw(st.integers(0, len(pieces) - 1))
    last = data.draw(st.integers(first, len(pieces) - 1))
    text = "".join(token + blank for token, blank in pieces)
    start = len("".join(token + blank for token, blank in pieces[:first]))
    end = start + len("".join(token + blank for token, blank in pieces[first:last])) + len(pieces[last][0])
    caught = all(own.marks(token.replace(MASK, "<\\MASK>")) for token, _ in pieces[first : last + 1])
    assert list(caught_alike(own, [(text, [(start, end)])])) == [[caught]]


@settings(max_examples=100, deadline=None)
@given(TEXT, st.integers(0, 7), st.sampled_from(TOKENS))
def test_another_token_in_one_place_changes_no_mark_elsewhere(
    pieces: list[tuple[str, str]], place: int, token: str
) -> None:
    place %= len(pieces)
    other = [(token, blank) if number == place else (was, blank) for number, (was, blank) in enumerate(pieces)]

    def marks(of: list[tuple[str, str]]) -> list[bool]:
        text, starts = "", []
        for word, blank in of:
            starts.append(len(text))
            text += word + blank
        spans = NAMES.spans(text)
        found = [any(span.start <= start < span.end for span in spans) for start in starts]
        return [mark for number, mark in enumerate(found) if number != place]

    assert marks(pieces) == marks(other)


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_the_whole_screening_with_deduplication_shows_nothing_of_what_is_caught(pieces: list[tuple[str, str]]) -> None:
    text, places = "", []
    for token, blank in pieces:
        places.append((len(text), len(text) + len(token)))
        text += token + blank
    (caught,) = caught_alike(NAMES, [(text, places)])
    assert [not leaves_a_trace(NAMES, text, place) for place in places] == caught


def test_a_policy_that_reads_context_fails_the_same_test() -> None:
    titled = pattern_policy("Mr [A-Z][a-z]+", "Anna|Smith|Mr")
    text = "ask Mr Smith"
    assert titled.spans("Smith")
    assert titled.spans("Mr")  # each alone is caught
    beside = pattern_policy("Anna [a-z]+|Anna|Bob")
    assert list(caught_alike(beside, [("see Anna home", [(4, 8)])])) == [
        [False]
    ]  # "home" goes with Anna, not with a mask
    assert list(caught_alike(NAMES, [("see Anna home", [(4, 8)])])) == [[True]]
    assert list(caught_alike(titled, [(text, [(4, 12)])])) == [[True]]


def test_a_rule_is_asked_about_tokens_alone() -> None:
    asked: list[str] = []

    def rule(token: str) -> bool:
        asked.append(token)
        return False

    assert [*token_spans(rule, " a b-c\n(d) ")] == []
    assert asked == ["a", "b-c", "(d)"]


def test_measured_is_what_the_rule_misses() -> None:
    gold = [GoldRecord("ask Anna, now", ((4, 8, "n"),)), GoldRecord("ask Zed now", ((4, 7, "n"),))]
    (found,) = measure([NAMES], iter(gold), alike=True)
    assert (found.misses, found.alike) == (1, {"n": 1})


def test_a_screener_of_tokens() -> None:
    safe = policy(mark="unlisted", words=["ask", "now"])
    points, _ = Screener(NAMES, safe, "line").screen(["ask Anna now\nask now\nask him now"])
    assert [(point.text, point.marked) for point in points[0]] == [
        ("ask <MASK> now", True),
        ("ask now", False),
        ("ask him now", True),
    ]


def test_nothing_long_is_remembered() -> None:
    """What is remembered is bounded in number, so a token may not take what memory it likes."""
    policy = TokenPolicy(TokenPolicyOptions(kind="tokens", name="numbers", patterns=["[0-9]+"]))
    assert policy.marks("7" * 300)
    assert policy._remembered.cache_info().currsize == 0
    assert policy.marks("7" * 200)
    assert policy._remembered.cache_info().currsize == 1

"""A keyed share of the secrets is missed, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness
from tacit.screening.missed import ForgetfulPolicy, Missed
from tacit.screening.policy import Policy, package_policy
from tacit.screening.spans import Span
from tacit.screening.split import Screener

SECRETS = 2000
TEXTS = [f"My order number is {7_000_000 + 37 * number}." for number in range(SECRETS)]


@pytest.fixture(scope="module")
def balanced() -> Policy:
    return package_policy("balanced")


def shown(policy: ForgetfulPolicy, texts: Sequence[str]) -> set[str]:
    """The texts that stay as they are."""
    return {text for text, spans in zip(texts, policy.spans_of(texts), strict=True) if not spans}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_the_share_is_as_asked(balanced: Policy, share: float) -> None:
    assert all(balanced.spans_of(TEXTS))
    missed = len(shown(ForgetfulPolicy(balanced, Missed(share, b"key")), TEXTS))
    spread = (SECRETS * share * (1 - share)) ** 0.5
    assert abs(missed - share * SECRETS) <= 5 * spread


def test_shares_are_nested_and_the_key_decides(balanced: Policy) -> None:
    some, more, other = (
        shown(ForgetfulPolicy(balanced, Missed(share, key)), TEXTS)
        for share, key in ((0.1, b"a"), (0.3, b"a"), (0.1, b"b"))
    )
    assert some < more
    assert not some <= other


def test_a_secret_is_missed_everywhere_or_nowhere(balanced: Policy) -> None:
    """Its spelling and the text around it are no part of it."""
    again = [text.replace("My order number is", "It is order number").replace("order", "ORDER") for text in TEXTS]
    forgetful = ForgetfulPolicy(balanced, Missed(0.3, b"key"))
    first, second = forgetful.spans_of(TEXTS), forgetful.spans_of(again)
    both = [(one, two) for one, two, raw in zip(first, second, balanced.spans_of(again), strict=True) if raw]
    assert len(both) > SECRETS / 2
    assert all(bool(one) == bool(two) for one, two in both)


def test_what_would_be_one_mask_is_one_secret() -> None:
    """Two detectors that see parts of one secret cannot tell half of it."""

    class Two:
        def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
            return [[Span(0, 6, "a", 1.0, "x"), Span(4, 9, "b", 1.0, "y"), Span(12, 15, "c", 1.0, "z")] for _ in texts]

    texts = [f"abcd{number:05d}   xyz" for number in range(400)]
    told = ForgetfulPolicy(Two(), Missed(0.5, b"key")).spans_of(texts)
    assert {frozenset(span.label for span in spans) - {"c"} for spans in told} == {frozenset(), frozenset("ab")}


def test_spelling_is_no_part_of_a_secret() -> None:
    missed = Missed(0.5, b"key")
    numbers = [f"{number:09d}" for number in range(200)]
    fates = [missed.misses(number) for number in numbers]
    assert 50 < sum(fates) < 150
    assert fates == [missed.misses(f"{number[:3]}-{number[3:5]} {number[5:]}.") for number in numbers]
    assert missed.misses("Anna Maria") == missed.misses("ANNA-MARIA")


def test_what_is_missed_goes_to_the_private_stream(balanced: Policy) -> None:
    """The conservative policy misses none of them: noise protects what the mask does not."""
    forgetful = ForgetfulPolicy(balanced, Missed(0.5, b"key"))
    screener = Screener(forgetful, package_policy("conservative"), "record")
    points, _ = screener.screen(TEXTS)
    assert all(point.marked for (point,) in points)
    raw = sum(point.text == text for (point,), text in zip(points, TEXTS, strict=True))
    assert raw == len(shown(forgetful, TEXTS)) > 0


def test_the_key_of_the_run() -> None:
    assert Missed.of(0.1, KeyedRandomness(bytes(32))).key == Missed.of(0.2, KeyedRandomness(bytes(32))).key
    assert Missed.of(0.1, KeyedRandomness(bytes(32))).key != Missed.of(0.1, KeyedRandomness(b"1" * 32)).key
    assert "key" not in repr(Missed(0.1, b"key"))


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_out_of_range(share: float) -> None:
    with pytest.raises(UsageError, match="share of missed"):
        Missed(share, b"key")

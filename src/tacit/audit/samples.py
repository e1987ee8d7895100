"""Members and non-members for membership inference, and what the corpora that give them share (Zhao et al. 2022, appendix A.5)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness

__all__ = ["MembershipSamples", "Pair", "alphanumeric", "check_count", "chosen", "samples_of"]

T = TypeVar("T")

_NOT_ALPHANUMERIC = re.compile(r"[^0-9a-z]+")


@dataclass(frozen=True)
class MembershipSamples:
    """Texts of the training data, and as many with secrets that occur nowhere in it. Private.

    Where member i and non-member i are one sentence with two secrets, they stay together in halves and groups.
    """

    members: tuple[str, ...]
    non_members: tuple[str, ...]

    def __repr__(self) -> str:
        return "MembershipSamples(<private>)"


@dataclass(frozen=True)
class Pair:
    """A member, and the same sentence with other secrets. Private.

    Args:
        secrets: (start, end) of each secret in the member.
    """

    member: str
    non_member: str
    secrets: tuple[tuple[int, int], ...]

    def __repr__(self) -> str:
        return "Pair(<private>)"


def samples_of(pairs: Sequence[Pair]) -> MembershipSamples:
    """All of them."""
    return MembershipSamples(tuple(pair.member for pair in pairs), tuple(pair.non_member for pair in pairs))


def alphanumeric(text: str) -> str:
    """Letters and digits alone, in lower case: what two spellings of one secret have in common.

    >>> alphanumeric("(415) 555-2671 X")
    '4155552671x'
    """
    return _NOT_ALPHANUMERIC.sub("", text.lower())


def check_count(count: int, pairs: int, kind: str) -> None:
    """Raise `UsageError` unless so many pairs can be taken of those that there are."""
    if not 1 <= count <= pairs:
        raise UsageError(f"there are {pairs} pairs of kind {kind}; take 1 to so many, not {count}")


def chosen(values: Sequence[T], count: int, streams: KeyedRandomness, *address: str) -> list[T]:
    """``count`` of the values, in a random order."""
    places = streams.generator("membership-draw", *address).permutation(len(values))[:count]
    return [values[place] for place in places]

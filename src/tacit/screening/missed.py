"""A policy that misses a keyed share of the secrets, as an experiment: what does training make of them (Zhao et al. 2022, 5.3)?

A secret is missed everywhere or nowhere, by a keyed hash of its letters and digits: twenty copies of one order number are one
secret. With one key the secrets missed at a smaller share are missed at a larger one too, so a sweep changes nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness
from tacit.screening.spans import Span, merged

__all__ = ["ForgetfulPolicy", "Missed", "Spotter"]

_HASHES = 2**64


class Spotter(Protocol):
    """What marks spans in texts: `tacit.screening.policy.Policy` does."""

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        """What is marked in each text."""
        ...


@dataclass(frozen=True)
class Missed:
    """Which secrets are missed.

    Args:
        share: of all secrets, in [0, 1].
        key: of the hash.

    Raises:
        UsageError: the share is out of range.
    """

    share: float
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UsageError(f"the share of missed secrets is {self.share!r}; it must be in [0, 1]")

    @classmethod
    def of(cls, share: float, streams: KeyedRandomness) -> Missed:
        """A choice of the missed secrets by the key of a run."""
        return cls(share, streams.derive("screening", "missed"))

    def misses(self, secret: str) -> bool:
        """Whether this one is missed; case, spaces and punctuation are no part of it."""
        spelling = "".join(filter(str.isalnum, secret.casefold()))
        digest = hashlib.blake2b(spelling.encode("utf-8", "surrogatepass"), key=self.key, digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.share * _HASHES


class ForgetfulPolicy:
    """A policy without the secrets that are missed. A secret is what would become one ``<MASK>``.

    Args:
        policy: what finds them.
        missed: which of them it does not tell.
    """

    def __init__(self, policy: Spotter, missed: Missed) -> None:
        self._policy = policy
        self._missed = missed

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        """What the policy marks in each text, and is not missed."""
        found = self._policy.spans_of(texts)
        return [self._told(text, spans) if spans else [] for text, spans in zip(texts, found, strict=True)]

    def _told(self, text: str, spans: list[Span]) -> list[Span]:
        missed = [(start, end) for start, end in merged(spans) if self._missed.misses(text[start:end])]
        return [span for span in spans if not any(start <= span.start < end for start, end in missed)]

"""What deduplication remembers of the texts that it read: a keyed 128-bit digest of each, exactly or in a Bloom filter."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit.errors import UsageError

__all__ = ["DIGEST_BYTES", "Bloom", "BloomMemory", "ExactMemory", "Memory", "keyed_digest"]

DIGEST_BYTES = 16

_WORDS = 8  # 64-bit words in one BLAKE2b digest
_MOST_BITS = 2**38  # 32 GiB


@dataclass(frozen=True)
class Bloom:
    """A partitioned Bloom filter: a text sets one bit in each of its slices.

    Sized so that after ``expected_texts`` texts the next new one is taken for a copy with at most ``false_positive_rate``:
    slices = ceil(log2(1 / rate)), and the fewest bits a slice for which (1 - (1 - 1/bits)^texts)^slices <= rate.

    Args:
        expected_texts: how many texts will be marked at most, copies counted; more are refused.
        false_positive_rate: from 1e-18 to 0.1. The default keeps `failure` below 1e-7.
    """

    expected_texts: int
    false_positive_rate: float = 1e-9

    def __post_init__(self) -> None:
        if self.expected_texts < 1:
            raise UsageError(f"expected_texts is {self.expected_texts}; it must be at least 1")
        if not 1e-18 <= self.false_positive_rate <= 0.1:
            raise UsageError(f"false_positive_rate is {self.false_positive_rate!r}; it must lie from 1e-18 to 0.1")
        if self.slices * self.slice_bits > _MOST_BITS:
            raise UsageError(
                f"a Bloom filter for {self.expected_texts} texts at {self.false_positive_rate:g} takes "
                f"{self.slices * self.slice_bits / 2**33:.0f} GiB; expect fewer texts or raise false_positive_rate"
            )

    @property
    def slices(self) -> int:
        """Slices, which is how many bits a text sets."""
        return math.ceil(-math.log2(self.false_positive_rate))

    @property
    def slice_bits(self) -> int:
        """Bits in a slice."""
        full = self.false_positive_rate ** (1 / self.slices)
        return math.ceil(-1 / math.expm1(math.log1p(-full) / self.expected_texts))

    def rate(self, texts: int) -> float:
        """Probability over the key that a new text is taken for a copy after ``texts`` different ones; exact."""
        return self._filled(texts) ** self.slices

    def expected_false_positives(self, texts: int) -> float:
        """How many of ``texts`` different texts are masked by mistake: the sum of `rate`, on a grid that rounds up."""
        ends = np.linspace(0, texts, min(texts, 10_000) + 1)[1:]
        filled = -np.expm1(ends * math.log1p(-1 / self.slice_bits))
        return float((filled**self.slices).mean() * texts) if texts else 0.0

    def failure(self, texts_per_unit: int = 1) -> float:
        """Bound on the probability over the key that one unit decides whether *another* text is taken for a copy by mistake.

        For that, one bit of the other text must be set by the unit's texts only, and all its other bits must be set too; the
        2 is for the old unit and the new one (docs/deduplication.md).
        """
        others = self._filled(self.expected_texts) ** (self.slices - 1)
        return min(1.0, 2 * texts_per_unit * self.expected_texts * self.slices / self.slice_bits * others)

    def _filled(self, texts: int) -> float:
        """Probability that a given bit is set after so many different texts."""
        return -math.expm1(texts * math.log1p(-1 / self.slice_bits))


class Memory(Protocol):
    """What was seen. ``add`` says whether the digest was there; equal states ``dump`` equal bytes, which ``restore`` takes."""

    def add(self, digest: bytes) -> bool: ...
    def dump(self) -> bytes | bytearray: ...
    def restore(self, content: memoryview) -> None: ...


class ExactMemory:
    """A set of digests, about 100 bytes each. Two of n texts share a digest with probability n^2 / 2^129."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._seen

    def add(self, digest: bytes) -> bool:
        before = len(self._seen)
        self._seen.add(digest)
        return len(self._seen) == before

    def dump(self) -> bytes:
        return b"".join(sorted(self._seen))

    def restore(self, content: memoryview) -> None:
        self._seen = {bytes(content[at : at + DIGEST_BYTES]) for at in range(0, len(content), DIGEST_BYTES)}


class BloomMemory:
    """A Bloom filter: copies are always recognised, and now and then something new is taken for a copy.

    ``key`` is secret: the rates of `Bloom` are probabilities over it, for texts that were not chosen by it.
    """

    def __init__(self, bloom: Bloom, key: bytes) -> None:
        self._bits = bytearray(-(-bloom.slices * bloom.slice_bits // 8))
        self._slice_bits = bloom.slice_bits
        self._starts = range(0, bloom.slices * bloom.slice_bits, bloom.slice_bits)
        blocks = -(-bloom.slices // _WORDS)
        self._hashes = [hashlib.blake2b(key=key, salt=bytes([block])) for block in range(blocks)]

    def add(self, digest: bytes) -> bool:
        known = True
        for place in self._places(digest):
            byte, bit = place >> 3, 1 << (place & 7)
            if not self._bits[byte] & bit:
                self._bits[byte] |= bit
                known = False
        return known

    def _places(self, digest: bytes) -> list[int]:
        """One bit of every slice, uniform and independent; 64-bit words make the bias of the remainder negligible."""
        stream = b"".join(keyed_digest(each, digest) for each in self._hashes)
        words = memoryview(stream).cast("Q")
        return [start + word % self._slice_bits for start, word in zip(self._starts, words, strict=False)]

    def dump(self) -> bytearray:
        return self._bits

    def restore(self, content: memoryview) -> None:
        self._bits = bytearray(content)


def keyed_digest(empty: hashlib.blake2b, content: bytes) -> bytes:
    """The digest of the content under the key of a hash that has read nothing yet."""
    found = empty.copy()
    found.update(content)
    return found.digest()

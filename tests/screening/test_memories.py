"""The memory of texts, by their digests."""

from __future__ import annotations

from tacit.screening.memories import ExactMemory


def test_the_exact_memory_goes_by_the_whole_digest() -> None:
    found = ExactMemory()
    assert not any(found.add(bytes([0] * at + [1] + [0] * (15 - at))) for at in range(16))
    assert found.add(bytes([1] + [0] * 15))

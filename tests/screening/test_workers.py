"""Chunks come back in order, with what this process or its workers screened of them."""

from __future__ import annotations

from tacit.screening.policy import package_policy
from tacit.screening.workers import ScreenerOptions, screen_chunks

BALANCED, CONSERVATIVE = package_policy("balanced"), package_policy("conservative")


def test_chunks_come_back_in_order_and_whole() -> None:
    options = ScreenerOptions(BALANCED.options, CONSERVATIVE.options, "record")
    chunks = [[f"Chunk {number}, call 415-555-{number:04}.", "Good morning."] for number in range(20)]
    screener = options.screener()
    found = list(screen_chunks(chunks, list, options, workers=1))
    assert [chunk for chunk, _ in found] == chunks
    assert [points for _, (points, _) in found] == [screener.screen(chunk)[0] for chunk in chunks]

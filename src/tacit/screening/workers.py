"""Screening many texts, here or in worker processes: chunks go in and come out in order, whoever screens them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TypeVar

from tacit.screening.missed import ForgetfulPolicy, Missed
from tacit.screening.policy import PolicyOptions, policy_from
from tacit.screening.split import DataPoint, Point, Screener, Tally
from tacit.screening.tokens import TokenPolicyOptions
from tacit.work.processes import map_in_order

__all__ = ["Screened", "ScreenerOptions", "screen_chunks"]

Screened = tuple[list[list[Point]], Tally]
"""What `Screener.screen` gives."""

Chunk = TypeVar("Chunk")


def screen_chunks(
    chunks: Iterable[Chunk], texts_of: Callable[[Chunk], list[str]], make: ScreenerOptions, workers: int
) -> Generator[tuple[Chunk, Screened], None, None]:
    """Each chunk, in order, with what is screened of its texts; ``workers`` processes do it, 1 means this one."""
    if workers == 1:
        screener = make.screener()
        for chunk in chunks:
            yield chunk, screener.screen(texts_of(chunk))
        return
    yield from map_in_order(chunks, texts_of, _Worker(make), workers)


@dataclass(frozen=True)
class ScreenerOptions:
    """What a `Screener` is made of; unlike it, it can be sent to another process."""

    balanced: PolicyOptions | TokenPolicyOptions
    conservative: PolicyOptions | TokenPolicyOptions
    kind: DataPoint
    missed: Missed | None = None

    def screener(self) -> Screener:
        """The screener."""
        balanced = policy_from(self.balanced)
        pi = balanced if self.missed is None else ForgetfulPolicy(balanced, self.missed)
        return Screener(pi, policy_from(self.conservative), self.kind)


class _Worker:
    """What a worker process does; it makes its screener when it gets its first chunk."""

    def __init__(self, make: ScreenerOptions) -> None:
        self._make = make
        self._screener: Screener | None = None

    def __call__(self, texts: list[str]) -> Screened:
        if self._screener is None:
            self._screener = self._make.screener()
        return self._screener.screen(texts)

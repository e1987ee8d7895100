"""Whether a caught secret leaves a trace: does redaction give the text that it gives when the secret was masked beforehand?

A policy that reads context may mark a neighbour of the secret because of what the secret is. Then every character of the secret is
masked, and the redacted text still depends on it. Only a secret that is caught *alike* is exempt from the account
(docs/confidentiality.md): the redacted texts of both worlds, with the secret and with `<MASK>` in its place, are equal to the letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tacit.screening.missed import Spotter
from tacit.screening.redact import MASK, redact
from tacit.screening.spans import Span
from tacit.screening.split import reserve_mask

__all__ = ["caught_alike"]

_BATCH_CHARACTERS = 1_000_000

Place = tuple[int, int]
"""Where a secret begins and ends in its text, in code points."""


class _World(NamedTuple):
    """A text that screening reads, and what of it is masked whatever the policy says."""

    text: str
    masked: tuple[Span, ...]


def caught_alike(policy: Spotter, records: Sequence[tuple[str, Sequence[Place]]]) -> Iterator[list[bool]]:
    """Whether redaction gives the same text when one secret alone is masked beforehand, for each text and each of its secrets.

    The token in the secret's place is masked already: what the policy marks beside it becomes one run with it, and what the text
    itself has of such tokens is escaped, as in `tacit.screening.split.Screener`. The policy reads one text more a secret.

    Args:
        policy: one that can read any text (`Policy.reads_any_text`).
        records: texts, each as the policy reads it (a data point), with the places of their secrets.
    """
    redacted = _redacted(policy, (world for text, places in records for world in _worlds(text, places)))
    for _, places in records:
        whole = next(redacted)
        yield [other == whole for other in islice(redacted, len(places))]


def _worlds(text: str, places: Sequence[Place]) -> Iterator[_World]:
    """The text as it is, then with each of its secrets masked beforehand."""
    yield _World(reserve_mask(text), ())
    for start, end in places:
        before, after = reserve_mask(text[:start]), reserve_mask(text[end:])
        yield _World(before + MASK + after, (Span(len(before), len(before) + len(MASK), "mask", 1.0, "mask"),))


def _redacted(policy: Spotter, worlds: Iterable[_World]) -> Iterator[str]:
    for batch in _batches(worlds):
        for world, spans in zip(batch, policy.spans_of([world.text for world in batch]), strict=True):
            yield redact(world.text, [*spans, *world.masked])


def _batches(worlds: Iterable[_World]) -> Iterator[list[_World]]:
    batch: list[_World] = []
    size = 0
    for world in worlds:
        batch.append(world)
        size += len(world.text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch

"""Screening a corpus: records stream in, two streams of data points and the held-out records stream out.

The detectors run in worker processes (workers.py), a chunk of records at a time. Deduplication and writing happen here, in the
order of the records, so the result does not depend on the number of workers. What is written, and how a killed screening goes on,
is in work.py.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from tacit.corpus.records import Record, require_rereadable, text_bytes
from tacit.corpus.units import is_held_out
from tacit.errors import RefusedError, UsageError
from tacit.randomness import KeyedRandomness
from tacit.screening.deduplicate import DeduplicateOptions, Normalisation, check_choice
from tacit.screening.groups import GroupLimit, GroupSizes
from tacit.screening.missed import Missed
from tacit.screening.policy import Policy, load_policy, package_policy
from tacit.screening.receipt import Receipt
from tacit.screening.split import STREAMS, Copies, DataPoint, Deduplicate, Stream
from tacit.screening.tokens import TokenPolicy
from tacit.screening.work import Chunk, Work
from tacit.screening.workers import Screened, ScreenerOptions, screen_chunks
from tacit.version import VERSION
from tacit.work.resumable import CheckpointClock

__all__ = ["Elsewhere", "ScreenPlan", "policies_of", "screen_corpus", "screener_options"]

_CHUNK_RECORDS, _CHUNK_CHARACTERS = 256, 256_000
_COMPARED = ("data_point", "missed", "deduplicate", "normalisation", "held_out")

Policies = Literal["context", "tokens"]

OnProgress = Callable[[int, int], None]
"""Told how many bytes of text are done, and of how many."""


# What is to be done --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScreenPlan:
    """How a corpus is screened.

    Args:
        data_point: ``record`` or ``line`` (`tacit.screening.split.data_points`).
        balanced, conservative: policy files as pi and pi_c; None: the package's own.
        missed: share of the secrets that pi is made to miss, by a keyed hash, as an experiment; pi_c misses none of them.
        deduplicate: ``none``; ``exact``: copies of a redacted data point are masked as a whole, all but the first; ``unmasked``:
            that, among the private data points in which redaction masked nothing.
        normalisation: what counts as equal (`tacit.screening.deduplicate.normalised`).
        held_out: share of the documents that are kept apart, by a keyed hash of their ids; they are not screened.
        group: data points that a document or user has at most; a corpus with a larger one is refused. None: not looked at.
        workers: processes that run the detectors; 1: none but this one. It changes the speed alone.
        policies: ``tokens``: both policies must be of `tacit.screening.tokens`; ``context``: any.

    Raises:
        UsageError: an unknown choice, or a number out of range.
    """

    data_point: DataPoint = "record"
    balanced: Path | None = None
    conservative: Path | None = None
    missed: float = 0.0
    deduplicate: Deduplicate = "none"
    normalisation: Normalisation = "none"
    held_out: float = 0.0
    group: GroupLimit | None = None
    workers: int = 1
    policies: Policies = "context"

    def __post_init__(self) -> None:
        if self.data_point not in ("record", "line"):
            raise UsageError(f"data_point is {self.data_point!r}; it must be record or line")
        check_choice("deduplicate", self.deduplicate, Deduplicate)
        check_choice("policies", self.policies, Policies)
        DeduplicateOptions("keep-first", self.normalisation)
        for name in ("held_out", "missed"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it must be at least 0 and below 1")
        if self.workers < 1:
            raise UsageError(f"workers is {self.workers}; it must be at least 1")

    @property
    def copies(self) -> DeduplicateOptions | None:
        """What counts as a copy; None: nothing."""
        return None if self.deduplicate == "none" else DeduplicateOptions("keep-first", self.normalisation)


def policies_of(plan: ScreenPlan) -> dict[str, Policy | TokenPolicy]:
    """Both policies of a plan, ``balanced`` and ``conservative``.

    Raises:
        DataError: a policy's file is missing or malformed.
        RefusedError: ``policy-not-local``: the plan is of ``tokens``, and one of them may read more than one token.
    """
    files = {"balanced": plan.balanced, "conservative": plan.conservative}
    found = {role: package_policy(role) if path is None else load_policy(path) for role, path in files.items()}
    for role, policy in found.items():
        if plan.policies == "tokens" and not isinstance(policy, TokenPolicy):
            raise RefusedError(
                "policy-not-local",
                f"{files[role] or role}: screening.policies is tokens, but this policy reads context; give a file of kind: tokens",
            )
    return found


def screener_options(
    plan: ScreenPlan, policies: Mapping[str, Policy | TokenPolicy], streams: KeyedRandomness
) -> ScreenerOptions:
    """What a plan's screener is made of.

    Args:
        policies: of `policies_of`.
        streams: of the run's key.
    """
    missed = Missed.of(plan.missed, streams) if plan.missed else None
    return ScreenerOptions(policies["balanced"].options, policies["conservative"].options, plan.data_point, missed)


def _identity(
    plan: ScreenPlan, policies: Mapping[str, Policy | TokenPolicy], streams: KeyedRandomness
) -> dict[str, Any]:
    """Everything but the records that the result depends on."""
    values: dict[str, Any] = {"tacit": VERSION, "key": streams.commitment()}
    values |= {name: getattr(plan, name) for name in _COMPARED}
    for role, policy in policies.items():
        values[role] = {"name": policy.name, "digest": policy.digest}
    return values


class Elsewhere(Protocol):
    """Whoever screens in place of this machine (`tacit.spark.screening`)."""

    @property
    def copies(self) -> Mapping[Stream, Copies]:
        """Who says what is a copy, for each stream that is deduplicated; asked in the order of the corpus."""
        ...

    def screened(self, done: int) -> Generator[tuple[Chunk, Screened], None, None]:
        """The records behind those that are done, in order, with what is screened of each."""
        ...


# The whole ------------------------------------------------------------------------------------------------------------


def screen_corpus(
    records: Iterable[Record],
    plan: ScreenPlan,
    folder: Path,
    streams: KeyedRandomness,
    on_progress: OnProgress | None = None,
    *,
    needed: Collection[Stream] = STREAMS,
    checkpoint_seconds: float = 30.0,
    elsewhere: Elsewhere | None = None,
) -> Receipt:
    """Screen a corpus into a private folder (0700): public.jsonl, private.jsonl, held_out.jsonl, receipt.json.

    A line holds id (``<document>#<number of the data point in it>``), document, user where there is one, and text; in
    held_out.jsonl the number is that of the record, and the text as it was. The order is that of the records. Numbers go on as
    long as records of one document follow one another.

    Called again, it goes on where it was stopped, or gives the receipt of what is done.

    Args:
        records: read twice, first to check them all before anything is written: a list, or what opens its files anew.
        streams: of the run's key.
        needed: streams that must not be empty in the end.
        checkpoint_seconds: shortest time between checkpoints.
        elsewhere: who judges the records and knows copies, in place of this machine.

    Raises:
        UsageError: the folder holds a screening with another plan, policy or key, or something else.
        DataError: a policy or record is malformed, the corpus changed since the start, a group is larger than claimed, or a
            needed stream is empty. Then nothing is left behind, unless there was a checkpoint.
        ValueError: ``records`` can be read only once.
    """
    require_rereadable(records)
    begun = time.monotonic()
    policies = policies_of(plan)
    identity = _identity(plan, policies, streams)
    corpus, size = _survey(records, plan, streams)
    known = None if elsewhere is None else elsewhere.copies
    work = Work(folder, identity, corpus, plan.copies, plan.deduplicate, streams, known)
    if (found := work.finished()) is not None:
        return found
    progress = on_progress or (lambda done, total: None)
    with work.open():
        clock = CheckpointClock(checkpoint_seconds)
        done = work.counts.records
        if elsewhere is None:
            chunks = _chunks(itertools.islice(records, done, None), plan.held_out, streams)
            options = screener_options(plan, policies, streams)
            found = screen_chunks(chunks, _texts, options, plan.workers)
        else:
            found = elsewhere.screened(done)
        with closing(found) as screened:
            for chunk, (points, tally) in screened:
                work.take(chunk, points, tally)
                progress(work.counts.bytes, size)
                clock.when_due(lambda: work.save(time.monotonic() - begun))
        work.refuse_empty(needed)
        return work.finish(time.monotonic() - begun)


def _survey(records: Iterable[Record], plan: ScreenPlan, streams: KeyedRandomness) -> tuple[str, int]:
    """Keyed digest of all records, and the bytes of their text. What is refused shows here, before anything is written."""
    digest = hashlib.blake2b(key=streams.derive("screening", "corpus"), digest_size=32, person=b"tacit-screening")
    size = 0
    groups = None if plan.group is None else GroupSizes(plan.group, plan.data_point)
    for number, record in enumerate(records, start=1):
        if groups is not None:
            groups.add(number, record)
        digest.update(json.dumps([record.document_id, record.user_id, record.text]).encode() + b"\n")
        size += text_bytes(record)
    return digest.hexdigest(), size


# Chunks of records ----------------------------------------------------------------------------------------------------


def _texts(chunk: Chunk) -> list[str]:
    """What is screened."""
    return [record.text for record, held_out in zip(*chunk, strict=True) if not held_out]


def _chunks(records: Iterable[Record], held_out: float, streams: KeyedRandomness) -> Iterator[Chunk]:
    chunk, size = Chunk([], []), 0
    document, side, of_corpus = None, False, streams.child("corpus")
    for record in records:
        if record.document_id != document:
            document, side = record.document_id, is_held_out(record.document_id, held_out, of_corpus)
        chunk.records.append(record)
        chunk.held_out.append(side)
        size += len(record.text)
        if len(chunk.records) == _CHUNK_RECORDS or size >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, size = Chunk([], []), 0
    if chunk.records:
        yield chunk

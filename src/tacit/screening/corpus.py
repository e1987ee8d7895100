"""Screening a corpus: records stream in, two streams of data points and the held-out records stream out.

The detectors run in worker processes, a chunk of records at a time. Deduplication and writing happen here, in the order of the
records, so the result does not depend on the number of workers. What is written grows in ``<folder>.partial`` beside a
checkpoint: records done, sizes of the files, copies known. A killed screening goes on from there and ends with the same files,
bit for bit; the folder gets its name in one step when all is done.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Self, TypeVar

import tacit
from tacit.corpus.records import Record
from tacit.corpus.units import Unit, split_held_out
from tacit.errors import DataError, UsageError
from tacit.files import private_folder, read_json, write_json
from tacit.randomness import Streams
from tacit.screening.deduplicate import DeduplicateOptions, KeepFirst, Normalisation, stability
from tacit.screening.groups import GroupLimit, GroupSizes
from tacit.screening.policy import Policy, load_policy, package_policy
from tacit.screening.redact import MASK
from tacit.screening.split import STREAMS, DataPoint, Point, ScreenerOptions, Splitter, Stream, Tally, screen_chunks

T = TypeVar("T")

__all__ = ["Counts", "Receipt", "ScreenPlan", "policies_of", "screen_corpus"]

_RECEIPT, _CHECKPOINT = "receipt.json", "checkpoint.json"
_FILES = (*STREAMS, "held_out")
_CHUNK_RECORDS, _CHUNK_CHARACTERS = 256, 256_000
_CHECKPOINT_SHARE = 20  # a checkpoint that took a second is followed by the next after 20 seconds at the earliest
_JSON = json.JSONEncoder(ensure_ascii=False)

OnProgress = Callable[[int, int], None]
"""Told how many bytes of text are done, and of how many."""


# What is to be done, and what was done --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScreenPlan:
    """How a corpus is screened.

    Args:
        data_point: ``record`` or ``line`` (`tacit.screening.split.data_points`).
        balanced, conservative: policy files as pi and pi_c; None: the package's own.
        deduplicate: ``none``, or ``exact``: copies of a redacted data point are masked as a whole, all but the first.
        normalisation: what counts as equal (`tacit.screening.deduplicate.normalised`).
        held_out: share of the documents that are kept apart, by a keyed hash of their ids; they are not screened.
        group: data points that a document or user has at most; a corpus with a larger one is refused. None: not looked at.
        workers: processes that run the detectors; 1: none but this one. It changes the speed alone.

    Raises:
        UsageError: an unknown choice, or a number out of range.
    """

    data_point: DataPoint = "record"
    balanced: Path | None = None
    conservative: Path | None = None
    deduplicate: Literal["none", "exact"] = "none"
    normalisation: Normalisation = "none"
    held_out: float = 0.0
    group: GroupLimit | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        if self.data_point not in ("record", "line"):
            raise UsageError(f"data_point is {self.data_point!r}; it must be record or line")
        if self.deduplicate not in ("none", "exact"):
            raise UsageError(f"deduplicate is {self.deduplicate!r}; it must be none or exact")
        DeduplicateOptions("keep-first", self.normalisation)
        if not 0 <= self.held_out < 1:
            raise UsageError(f"held_out is {self.held_out!r}; it must be at least 0 and below 1")
        if self.workers < 1:
            raise UsageError(f"workers is {self.workers}; it must be at least 1")

    @property
    def copies(self) -> DeduplicateOptions | None:
        """What counts as a copy; None: nothing."""
        return DeduplicateOptions("keep-first", self.normalisation) if self.deduplicate == "exact" else None


@dataclass
class Counts(Tally):
    """What was counted; private, every one of them. What `Tally` has, and

    Args:
        records, held_out: records read, and those of them that are kept apart.
        public, private: data points of the streams; together all ``data_points``.
        only_mask: data points whose text is ``<MASK>`` in the end, duplicates included.
        duplicates: copies that were masked.
        public_characters, private_characters: code points of the streams.
        bytes: of all records' text in UTF-8.
    """

    records: int = 0
    held_out: int = 0
    public: int = 0
    private: int = 0
    only_mask: int = 0
    duplicates: int = 0
    public_characters: int = 0
    private_characters: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Receipt:
    """What screening did. It is the curator's and must stay private: the counts are exact functions of the private text.

    Args:
        plan: the plan, with name and digest of both policies; a screening that goes on must agree with it.
        corpus: keyed digest of the records in their order; without the key it confirms no guess.
        counts: see `Counts`.
        deduplication: how copies were treated, and how many data points one can change (docs/deduplication.md); or None.
        seconds: wall-clock time, over all starts.
        megabytes_per_second: text read, by that time.
    """

    plan: dict[str, Any]
    corpus: str
    counts: Counts
    deduplication: dict[str, Any] | None
    seconds: float
    megabytes_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """What `to_dict` gave."""
        return cls(**{**values, "counts": Counts(**values["counts"])})


def policies_of(plan: ScreenPlan) -> dict[str, Policy]:
    """Both policies of a plan, ``balanced`` and ``conservative``.

    Raises:
        DataError: a policy's file is missing or malformed.
    """
    files = {"balanced": plan.balanced, "conservative": plan.conservative}
    return {role: package_policy(role) if path is None else load_policy(path) for role, path in files.items()}


def _identity(plan: ScreenPlan, policies: Mapping[str, Policy], streams: Streams) -> dict[str, Any]:
    """Everything but the records that the result depends on."""
    values: dict[str, Any] = {"tacit": tacit.__version__, "key": streams.commitment()}
    values |= {name: getattr(plan, name) for name in ("data_point", "deduplicate", "normalisation", "held_out")}
    for role, policy in policies.items():
        digest = hashlib.sha256(policy.options.model_dump_json().encode()).hexdigest()
        values[role] = {"name": policy.name, "digest": digest}
    return values


# The whole ------------------------------------------------------------------------------------------------------------


def screen_corpus(
    records: Iterable[Record],
    plan: ScreenPlan,
    folder: Path,
    streams: Streams,
    on_progress: OnProgress | None = None,
    *,
    needed: Collection[Stream] = STREAMS,
    checkpoint_seconds: float = 30.0,
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

    Raises:
        UsageError: the folder holds a screening with another plan, policy or key, or something else.
        DataError: a policy or record is malformed, the corpus changed since the start, a group is larger than claimed, or a
            needed stream is empty. Then nothing is left behind, unless there was a checkpoint.
        ValueError: ``records`` can be read only once.
    """
    if iter(records) is records:
        raise ValueError("records are read twice: give a list, or an object whose __iter__ starts anew")
    begun = time.monotonic()
    policies = policies_of(plan)
    identity = _identity(plan, policies, streams)
    corpus, size = _survey(records, plan, streams)
    work = _Work(folder, identity, corpus, plan.copies, streams)
    if (found := work.finished()) is not None:
        return found
    progress = on_progress or (lambda done, total: None)
    with work.open():
        chunks = _chunks(itertools.islice(records, work.counts.records, None), plan.held_out, streams)
        due = time.monotonic() + checkpoint_seconds
        options = ScreenerOptions(policies["balanced"].options, policies["conservative"].options, plan.data_point)
        with closing(screen_chunks(chunks, _texts, options, plan.workers)) as screened:
            for chunk, (points, tally) in screened:
                work.take(chunk, points, tally)
                progress(work.counts.bytes, size)
                if (now := time.monotonic()) >= due:
                    work.save(now - begun)
                    due = time.monotonic() + max(checkpoint_seconds, _CHECKPOINT_SHARE * (time.monotonic() - now))
        work.refuse_empty(needed)
        return work.finish(time.monotonic() - begun)


def _survey(records: Iterable[Record], plan: ScreenPlan, streams: Streams) -> tuple[str, int]:
    """Keyed digest of all records, and the bytes of their text. What is refused shows here, before anything is written."""
    digest = hashlib.blake2b(key=streams.derive("screening", "corpus"), digest_size=32, person=b"tacit-screening")
    size = 0
    groups = None if plan.group is None else GroupSizes(plan.group, plan.data_point)
    for number, record in enumerate(records, start=1):
        if groups is not None:
            groups.add(number, record)
        digest.update(json.dumps([record.document_id, record.user_id, record.text]).encode() + b"\n")
        size += _bytes(record)
    return digest.hexdigest(), size


def _bytes(record: Record) -> int:
    return len(record.text.encode("utf-8", "surrogatepass"))


# Chunks of records ----------------------------------------------------------------------------------------------------


class _Chunk(NamedTuple):
    """Records that follow one another, and which of them are held out."""

    records: list[Record]
    held_out: list[bool]


def _texts(chunk: _Chunk) -> list[str]:
    """What is screened."""
    return [record.text for record, held_out in zip(*chunk, strict=True) if not held_out]


def _chunks(records: Iterable[Record], held_out: float, streams: Streams) -> Iterator[_Chunk]:
    chunk, size = _Chunk([], []), 0
    document, side = None, False
    for record in records:
        if record.document_id != document:
            document, side = record.document_id, _is_held_out(record.document_id, held_out, streams)
        chunk.records.append(record)
        chunk.held_out.append(side)
        size += len(record.text)
        if len(chunk.records) == _CHUNK_RECORDS or size >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, size = _Chunk([], []), 0
    if chunk.records:
        yield chunk


def _is_held_out(document: str, held_out: float, streams: Streams) -> bool:
    """The rule of `tacit.corpus.units.split_held_out`, and its key, for the document as the unit."""
    return bool(split_held_out([Unit(document, ())], held_out, streams.child("corpus"))[1])


# Files and checkpoints ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Checkpoint:
    """Where a screening stands: ``sizes`` are those of its files, ``number`` is that of the last data point of ``document``."""

    plan: dict[str, Any]
    corpus: str
    counts: Counts
    sizes: dict[str, int]
    document: str
    number: int
    seconds: float


class _Work:
    """A screening on disk: its three files, its counts, its memory of copies, and their checkpoint."""

    def __init__(
        self, folder: Path, plan: dict[str, Any], corpus: str, copies: DeduplicateOptions | None, streams: Streams
    ) -> None:
        self.counts = Counts()
        self._folder, self._partial = folder, folder.with_name(f"{folder.name}.partial")
        self._plan, self._corpus = plan, corpus
        self._options = copies
        self._streams: dict[Stream, Streams] = {stream: streams.child("screening", stream) for stream in STREAMS}
        self._copies: dict[Stream, KeepFirst] = {}
        if copies is not None:
            self._copies |= {stream: KeepFirst(copies, own) for stream, own in self._streams.items()}
        self._splitter = Splitter(self._copies)
        self._files: dict[str, IO[bytes]] = {}
        self._document, self._number = "", -1
        self._seconds = 0.0

    def finished(self) -> Receipt | None:
        """The receipt of what is done already."""
        for folder in (self._folder, self._partial):
            if (folder / _RECEIPT).exists():
                receipt = _read(folder / _RECEIPT, Receipt.from_dict)
                version = {"tacit": self._plan["tacit"]}  # a newer one need not do again what is done
                self._check_same(folder, receipt.plan | version, receipt.corpus)
                if folder == self._partial:  # killed just before the end
                    self._name()
                return receipt
        if self._folder.exists() and any(self._folder.iterdir()):
            raise UsageError(f"{self._folder}: there are files that are no finished screening; use another folder")
        return None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Go on from the checkpoint, or begin; an error before the first checkpoint leaves nothing behind."""
        private_folder(self._partial)
        with _alone(self._partial), ExitStack() as files:
            try:
                sizes = self._restored()
                for name in _FILES:
                    path = self._partial / f"{name}.jsonl"
                    self._files[name] = files.enter_context(_cut_to(path, sizes.get(name, 0)))
                yield
            except BaseException:
                if not (self._partial / _CHECKPOINT).exists():
                    shutil.rmtree(self._partial, ignore_errors=True)
                raise

    def take(self, chunk: _Chunk, points: list[list[Point]], tally: Tally) -> None:
        """Deduplicate, route and write a chunk."""
        self.counts.update(tally)
        screened = iter(points)
        for record, held_out in zip(*chunk, strict=True):
            self.counts.records += 1
            self.counts.bytes += _bytes(record)
            if held_out:
                self.counts.held_out += 1
                self._write("held_out", record, record.text)
            else:
                for point in next(screened):
                    self._place(record, point)

    def _place(self, record: Record, point: Point) -> None:
        placed = self._splitter.place(point)
        self.counts.duplicates += placed.duplicate
        self.counts.only_mask += placed.text == MASK
        if placed.stream == "public":
            self.counts.public += 1
            self.counts.public_characters += len(placed.text)
        else:
            self.counts.private += 1
            self.counts.private_characters += len(placed.text)
        self._write(placed.stream, record, placed.text)

    def _write(self, name: str, record: Record, text: str) -> None:
        self._number = self._number + 1 if record.document_id == self._document else 0
        self._document = record.document_id
        user = {} if record.user_id is None else {"user": record.user_id}
        values = {"id": f"{record.document_id}#{self._number}", "document": record.document_id, **user, "text": text}
        self._files[name].write(_JSON.encode(values).encode("utf-8", "surrogatepass") + b"\n")

    def save(self, seconds: float) -> None:
        """Write the checkpoint; the old one counts until the new one is whole."""
        self._sync()
        done = self.counts.records
        for stream, copies in self._copies.items():
            copies.save(self._partial / f"copies-{stream}-{done}")
        sizes = {name: file.tell() for name, file in self._files.items()}
        seconds += self._seconds
        state = _Checkpoint(self._plan, self._corpus, self.counts, sizes, self._document, self._number, seconds)
        write_json(self._partial / _CHECKPOINT, dataclasses.asdict(state))
        for path in self._partial.glob("copies-*"):
            if not path.name.endswith(f"-{done}"):
                path.unlink()

    def _restored(self) -> dict[str, int]:
        """Take the checkpoint's state, if there is one; the sizes of the files then."""
        path = self._partial / _CHECKPOINT
        if not path.exists():
            return {}
        state = _read(path, lambda values: _Checkpoint(**{**values, "counts": Counts(**values["counts"])}))
        self._check_same(self._partial, state.plan, state.corpus)
        self.counts, self._document, self._number = state.counts, state.document, state.number
        self._seconds = state.seconds
        if self._options is not None:
            for stream, own in self._streams.items():
                known = self._partial / f"copies-{stream}-{self.counts.records}"
                self._copies[stream] = KeepFirst.load(known, self._options, own)
        return state.sizes

    def _check_same(self, folder: Path, plan: dict[str, Any], corpus: str) -> None:
        differences = [
            f"{name}: {_short(plan.get(name))} -> {_short(new)}"
            for name, new in self._plan.items()
            if plan.get(name) != new
        ]
        if differences:
            raise UsageError(
                f"{folder}: this screening was started with other options ({'; '.join(differences)}); "
                "use the old ones, or remove the folder to start again"
            )
        if corpus != self._corpus:
            raise DataError(
                f"{folder}: the corpus is not the one that this screening was started on; bring that one back, "
                "or remove the folder to start again"
            )

    def refuse_empty(self, needed: Collection[Stream]) -> None:
        """Raise `DataError`, and leave nothing, when a needed stream is empty."""
        for stream in needed:
            if not (self.counts.public if stream == "public" else self.counts.private):
                shutil.rmtree(self._partial)
                raise DataError(f"screening: no data point is {stream}, and the run needs some: {_ADVICE[stream]}")

    def finish(self, seconds: float) -> Receipt:
        """Write the receipt and give the folder its name."""
        self._sync()
        seconds += self._seconds
        speed = self.counts.bytes / 1e6 / seconds
        receipt = Receipt(self._plan, self._corpus, self.counts, _treatment(self._options), seconds, speed)
        write_json(self._partial / _RECEIPT, receipt.to_dict())
        self._name()
        return receipt

    def _name(self) -> None:
        for path in (self._partial / _CHECKPOINT, *self._partial.glob("copies-*")):
            path.unlink(missing_ok=True)
        os.replace(self._partial, self._folder)

    def _sync(self) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())


_ADVICE: dict[Stream, str] = {
    "public": "the policies mark them all; use another conservative policy, smaller data points, or private phases only",
    "private": "the policies mark none; check the corpus and both policies",
}


def _short(value: Any) -> str:
    """A value for one line; of a digest the first digits."""
    if isinstance(value, dict):
        return f"{value.get('name')} {_short(value.get('digest'))}"
    text = str(value)
    return text[:8] if len(text) == 64 else text


def _treatment(options: DeduplicateOptions | None) -> dict[str, Any] | None:
    """How copies were treated, for the receipt."""
    if options is None:
        return None
    found = dataclasses.asdict(stability(options))
    return {"mode": options.mode, "normalisation": options.normalisation, "memory": "exact", "stability": found}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of the folder; the lock ends with this process, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{folder}: another process is screening into this folder; wait for it") from None
        yield
    finally:
        os.close(descriptor)


def _cut_to(path: Path, size: int) -> IO[bytes]:
    """The file, open at its end, without what was written after the checkpoint."""
    file = path.open("ab")
    if file.tell() < size:
        file.close()
        raise DataError(f"{path}: the file is shorter than the checkpoint says; remove the folder to start again")
    file.truncate(size)
    return file


def _read(path: Path, make: Callable[[Any], T]) -> T:
    try:
        return make(read_json(path))
    except (ValueError, TypeError, KeyError, OSError):
        pass
    raise DataError(f"{path}: the file is damaged; remove the folder to start again")

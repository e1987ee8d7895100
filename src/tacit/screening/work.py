"""A screening on disk: its three files, which grow in ``<folder>.partial`` beside a checkpoint, and its memory of copies.

The checkpoint says how many records are done, how large the files were then, and which copies are known. A killed screening goes
on from there and ends with the same files, bit for bit; the folder gets its name in one step when all is done.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from tacit.corpus.records import Record
from tacit.errors import DataError, UsageError
from tacit.files import alone_in, open_truncated, private_folder, read_json, write_json
from tacit.randomness import Streams
from tacit.screening.deduplicate import DeduplicateOptions, KeepFirst, stability
from tacit.screening.receipt import Counts, Receipt
from tacit.screening.redact import MASK
from tacit.screening.split import STREAMS, Deduplicate, Point, Splitter, Stream, Tally, deduplicated_streams

__all__ = ["Chunk", "Work", "text_bytes"]

T = TypeVar("T")

_RECEIPT, _CHECKPOINT = "receipt.json", "checkpoint.json"
_FILES = (*STREAMS, "held_out")
_JSON = json.JSONEncoder(ensure_ascii=False)


class Chunk(NamedTuple):
    """Records that follow one another, and which of them are held out."""

    records: list[Record]
    held_out: list[bool]


def text_bytes(record: Record) -> int:
    """Bytes of a record's text in UTF-8."""
    return len(record.text.encode("utf-8", "surrogatepass"))


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


class Work:
    """A screening on disk: its three files, its counts, its memory of copies, and their checkpoint."""

    def __init__(
        self,
        folder: Path,
        plan: dict[str, Any],
        corpus: str,
        copies: DeduplicateOptions | None,
        which: Deduplicate,
        streams: Streams,
    ) -> None:
        self.counts = Counts()
        self._folder, self._partial = folder, folder.with_name(f"{folder.name}.partial")
        self._plan, self._corpus = plan, corpus
        self._options = copies
        self._which: Deduplicate = which
        compared = deduplicated_streams(which)
        self._streams: dict[Stream, Streams] = {stream: streams.child("screening", stream) for stream in compared}
        self._copies: dict[Stream, KeepFirst] = {}
        if copies is not None:
            self._copies |= {stream: KeepFirst(copies, own) for stream, own in self._streams.items()}
        self._splitter = Splitter(self._copies, which)
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
        in_use = f"{self._partial}: another process is screening into this folder; wait for it"
        with alone_in(self._partial, in_use), ExitStack() as files:
            try:
                sizes = self._restored()
                for name in _FILES:
                    path = self._partial / f"{name}.jsonl"
                    self._files[name] = files.enter_context(open_truncated(path, sizes.get(name, 0)))
                yield
            except BaseException:
                if not (self._partial / _CHECKPOINT).exists():
                    shutil.rmtree(self._partial, ignore_errors=True)
                raise

    def take(self, chunk: Chunk, points: list[list[Point]], tally: Tally) -> None:
        """Deduplicate, route and write a chunk."""
        self.counts.update(tally)
        screened = iter(points)
        for record, held_out in zip(*chunk, strict=True):
            self.counts.records += 1
            self.counts.bytes += text_bytes(record)
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
        receipt = Receipt(self._plan, self._corpus, self.counts, _treatment(self._options, self._which), seconds, speed)
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


# Words of its errors and its receipt ----------------------------------------------------------------------------------

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


def _treatment(options: DeduplicateOptions | None, which: Deduplicate) -> dict[str, Any] | None:
    """How copies were treated, for the receipt."""
    if options is None:
        return None
    found = dataclasses.asdict(stability(options))
    return {
        "which": which,
        "mode": options.mode,
        "normalisation": options.normalisation,
        "memory": "exact",
        "stability": found,
    }


# Files ----------------------------------------------------------------------------------------------------------------


def _read(path: Path, make: Callable[[Any], T]) -> T:
    try:
        return make(read_json(path))
    except (ValueError, TypeError, KeyError, OSError):
        pass
    raise DataError(f"{path}: the file is damaged; remove the folder to start again")

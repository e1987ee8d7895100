"""A screening on disk: its three files, which grow beside a checkpoint (`tacit.work.resumable`), and its memory of copies.

The checkpoint also says what was counted and which copies are known, so a killed screening ends with the same files, bit for bit.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tacit.corpus.records import Record, text_bytes
from tacit.errors import DataError
from tacit.files import is_utf8
from tacit.randomness import KeyedRandomness
from tacit.screening.deduplicate import DeduplicateOptions, KeepFirst, stability
from tacit.screening.receipt import Counts, Receipt
from tacit.screening.redact import MASK
from tacit.screening.split import STREAMS, Copies, Deduplicate, Point, Splitter, Stream, Tally, deduplicated_streams
from tacit.work.resumable import JobKind, Resumable

__all__ = ["Chunk", "Work", "copies_streams"]

_SCREENING = JobKind(
    noun="screening",
    identity="plan",
    files=(*STREAMS, "held_out"),
    unfinished="copies-*",
    outgrown=frozenset({"tacit"}),  # a newer one need not do again what is done
)
_JSON = json.JSONEncoder(ensure_ascii=False)


def copies_streams(which: Deduplicate, streams: KeyedRandomness) -> dict[Stream, KeyedRandomness]:
    """The keyed randomness of each memory of copies, from that of the run's key."""
    return {stream: streams.child("screening", stream) for stream in deduplicated_streams(which)}


def _readable(document: str) -> str:
    """A document's id that can be read again: one made of a file's name may hold bytes that are no UTF-8."""
    return document if is_utf8(document) else f"name in bytes: {os.fsencode(document).hex()}"


class Chunk(NamedTuple):
    """Records that follow one another, and which of them are held out."""

    records: list[Record]
    held_out: list[bool]


class Work:
    """A screening on disk: its three files, its counts, its memory of copies, and their checkpoint.

    Args:
        folder: what it becomes.
        plan: everything but the records that the result depends on, as JSON-ready values.
        corpus: a digest of the records.
        copies: what is a copy; None: nothing.
        which: of which data points copies are looked for.
        streams: of the run's key.
        known: who knows copies, where another does; what has gone on before a checkpoint is then not told again.
    """

    def __init__(
        self,
        folder: Path,
        plan: dict[str, Any],
        corpus: str,
        copies: DeduplicateOptions | None,
        which: Deduplicate,
        streams: KeyedRandomness,
        known: Mapping[Stream, Copies] | None = None,
    ) -> None:
        self.counts = Counts()
        self._job = Resumable(_SCREENING, folder, plan, corpus)
        self._plan, self._corpus = plan, corpus
        self._options = copies
        self._which: Deduplicate = which
        self._streams = copies_streams(which, streams)
        self._copies: dict[Stream, KeepFirst] = {}
        self._is_told = known is not None
        if copies is not None and known is None:
            self._copies |= {stream: KeepFirst(copies, own) for stream, own in self._streams.items()}
        self._splitter = Splitter(self._copies if known is None else known, which)
        self._document, self._number = "", -1
        self._seconds = 0.0

    def finished(self) -> Receipt | None:
        """The receipt of what is done already."""
        return self._job.finished(Receipt.from_dict)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Go on from the checkpoint, or begin; an error before the first checkpoint leaves nothing behind."""
        with self._job.open(self._restore):
            yield

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
        document = _readable(record.document_id)
        values = {"id": f"{document}#{self._number}", "document": document, **user, "text": text}
        self._job.write(name, _JSON.encode(values).encode("utf-8", "surrogatepass") + b"\n")

    def save(self, seconds: float) -> None:
        """Write the checkpoint; the old one counts until the new one is whole."""
        done = self.counts.records
        for stream, copies in self._copies.items():
            copies.save(self._known(stream, done))
        state = {
            "counts": dataclasses.asdict(self.counts),
            "document": self._document,
            "number": self._number,
            "seconds": seconds + self._seconds,
        }
        self._job.save(state)
        for path in self._job.partial.glob("copies-*"):
            if not path.name.endswith(f"-{done}"):
                path.unlink()

    def _restore(self, state: dict[str, Any]) -> None:
        self.counts = Counts(**state["counts"])
        self._document, self._number = str(state["document"]), int(state["number"])
        self._seconds = float(state["seconds"])
        if self._options is not None and not self._is_told:
            for stream, own in self._streams.items():
                known = self._known(stream, self.counts.records)
                self._copies[stream] = KeepFirst.load(known, self._options, own)

    def _known(self, stream: Stream, records: int) -> Path:
        """The file of the copies that are known after so many records."""
        return self._job.partial / f"copies-{stream}-{records}"

    def refuse_empty(self, needed: Collection[Stream]) -> None:
        """Raise `DataError`, and leave nothing, when a needed stream is empty."""
        for stream in needed:
            if not (self.counts.public if stream == "public" else self.counts.private):
                self._job.abandon()
                raise DataError(f"screening: no data point is {stream}, and the run needs some: {_ADVICE[stream]}")

    def finish(self, seconds: float) -> Receipt:
        """Write the receipt and give the folder its name."""
        seconds += self._seconds
        speed = self.counts.bytes / 1e6 / seconds
        receipt = Receipt(self._plan, self._corpus, self.counts, _treatment(self._options, self._which), seconds, speed)
        self._job.finish(receipt.to_dict())
        return receipt


# Words of its errors and its receipt ----------------------------------------------------------------------------------

_ADVICE: dict[Stream, str] = {
    "public": "the policies mark them all; use another conservative policy, smaller data points, or private phases only",
    "private": "the policies mark none; check the corpus and both policies",
}


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

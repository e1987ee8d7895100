"""Spans that were computed elsewhere, looked up by their text.

The file is read once. What is kept of a text is a digest under a key of this process, and its spans; the text itself is not. A
text that the file does not hold is an error, never a text without spans: a file that lags behind its corpus must not let the
difference through. So is a text that the file marks in two ways: a policy says the same of equal texts, and if one record's marks
reached its copies, the secrets of one record would decide the masks of others.
"""

from __future__ import annotations

import bisect
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tacit.corpus import Source, read_records
from tacit.errors import DataError, UsageError
from tacit.randomness import KEY_BYTES, KeyedRandomness
from tacit.screening.adapters.options import PrecomputedOptions, TextsOptions
from tacit.screening.adapters.span_files import Entry, aligned_conll, read_conll, read_jsonl
from tacit.screening.spans import Detector, Span
from tacit.screening.split import LITERAL_MASK, reserve_mask

__all__ = ["PrecomputedDetector"]

_FORMATS = {".jsonl": "jsonl", ".conll": "conll", ".bio": "conll", ".iob": "conll"}


class _Text(NamedTuple):
    """What is kept of a text.

    Fields:
        digest: of the text; ``reserved``: of what `reserve_mask` makes of it, None where that is the same.
        length: code points.
        masks: where it has a literal mask.
    """

    digest: bytes
    reserved: bytes | None
    length: int
    masks: tuple[int, ...]


class PrecomputedDetector(Detector):
    """Spans from a file; docs/adapters.md has its formats.

    A text is known as it is, and as screening reads it (`tacit.screening.split.reserve_mask`).

    Raises:
        UsageError: the format is not known, or there are ids and no corpus that they belong to.
        DataError: the file or the corpus is malformed, or they disagree, or the file marks a text in two ways; with file and line
            number, and no text.
    """

    name = "precomputed"

    def __init__(self, options: PrecomputedOptions) -> None:
        self._path = options.located(options.path)
        self._score = options.score
        self._key = KeyedRandomness(secrets.token_bytes(KEY_BYTES))
        self._spans: dict[bytes, frozenset[Span]] = {}
        self._places: dict[bytes, str] = {}
        if _format(self._path, options.format) == "jsonl":
            self._read_jsonl(options.texts)
        else:
            self._read_conll(options.texts)

    def spans(self, text: str) -> list[Span]:
        """Spans in one text."""
        return self.spans_of([text])[0]

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        """Spans in each text.

        Raises:
            DataError: the file does not have a text; blank ones need not be there.
        """
        found: list[list[Span]] = []
        for text in texts:
            spans = self._spans.get(self._digest(text), None if text.strip() else ())
            if spans is None:
                raise DataError(
                    f"{self._path}: it has nothing on a text of the corpus; compute it for the whole corpus"
                )
            found.append(sorted(spans))
        return found

    def _digest(self, text: str) -> bytes:
        return self._key.derive("text", text)

    def _seen(self, text: str) -> _Text:
        masks = tuple(match.start() for match in LITERAL_MASK.finditer(text))
        return _Text(self._digest(text), self._digest(reserve_mask(text)) if masks else None, len(text), masks)

    def _read_conll(self, options: TextsOptions | None) -> None:
        if options is None:
            entries = read_conll(self._path)
        else:
            entries = aligned_conll(self._path, (record.text for record in read_records(_source(options))))
        for entry in entries:
            self._keep(entry, self._seen(entry.text or ""))

    def _read_jsonl(self, options: TextsOptions | None) -> None:
        corpus = None if options is None else self._corpus(options)
        for entry in read_jsonl(self._path):
            own = None if entry.text is None else self._seen(entry.text)
            self._keep(entry, self._text_of(entry, own, corpus))

    def _text_of(self, entry: Entry, own: _Text | None, corpus: dict[str, _Text | None] | None) -> _Text:
        """The text that the entry is about: its own, which must be that of its id where there is a corpus."""
        if entry.id is None or corpus is None:
            if own is None:
                raise UsageError(f"{entry.place}: it has an id and no text; set texts to the corpus of the ids")
            return own
        if entry.id not in corpus:
            raise DataError(f"{entry.place}: the corpus has no record with this id; see texts.id_field")
        text = corpus[entry.id]
        if text is None:
            raise DataError(f"{entry.place}: the corpus has several texts with this id; see texts.id_field")
        if own is not None and own != text:
            raise DataError(f"{entry.place}: its text is not the text that the corpus has under its id")
        return text

    def _corpus(self, options: TextsOptions) -> dict[str, _Text | None]:
        """Each id's text; None for an id of several."""
        texts: dict[str, _Text | None] = {}
        for record in read_records(_source(options)):
            text = self._seen(record.text)
            texts[record.document_id] = text if texts.get(record.document_id, text) == text else None
        return texts

    def _keep(self, entry: Entry, text: _Text) -> None:
        spans: set[Span] = set()
        for number, (start, end, label, score) in enumerate(entry.spans, start=1):
            if end > text.length:
                raise DataError(
                    f"{entry.place}, span {number}: it ends outside its text; offsets are code points, not bytes or UTF-16 units"
                )
            spans.add(Span(start, end, label, self._score if score is None else score, self.name))
        self._know(text.digest, frozenset(spans), entry.place)
        if text.reserved is not None:
            self._know(text.reserved, frozenset(_behind(text.masks, span) for span in spans), entry.place)

    def _know(self, digest: bytes, spans: frozenset[Span], place: str) -> None:
        if self._spans.setdefault(digest, spans) != spans:
            raise DataError(
                f"{place}: it marks other places of the text that is at {self._places[digest]} too; mark equal texts in the same way"
            )
        self._places.setdefault(digest, place)


def _behind(masks: tuple[int, ...], span: Span) -> Span:
    """The span in the text with one more backslash behind the first character of each mask."""
    start, last = (place + bisect.bisect_left(masks, place) for place in (span.start, span.end - 1))
    return span._replace(start=start, end=last + 1)


def _format(path: Path, given: str) -> str:
    if given != "auto":
        return given
    ending = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    if ending.lower() not in _FORMATS:
        raise UsageError(f"{path}: this ending is not known; set format to jsonl or conll")
    return _FORMATS[ending.lower()]


def _source(options: TextsOptions) -> Source:
    return Source(
        options.located(options.path),
        options.format,
        options.text_field,
        options.id_field,
        max_record_bytes=options.max_record_bytes,
    )

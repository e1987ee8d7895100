"""Spans that were computed elsewhere, looked up by their text.

The file is read once. What is kept of a text is a digest under a key of this process, and its spans; the text itself is not. A
text that the file does not hold is an error, never a text without spans: a file that lags behind its corpus must not let the
difference through.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from tacit.corpus import Source, read_records
from tacit.errors import DataError, UsageError
from tacit.randomness import KEY_BYTES, Streams
from tacit.screening.adapters.options import PrecomputedOptions, TextsOptions
from tacit.screening.adapters.span_files import Entry, aligned_conll, read_conll, read_jsonl
from tacit.screening.spans import Detector, Span

__all__ = ["PrecomputedDetector"]

_FORMATS = {".jsonl": "jsonl", ".conll": "conll", ".bio": "conll", ".iob": "conll"}

_Text = tuple[bytes, int]  # a text's digest and its code points


class PrecomputedDetector(Detector):
    """Spans from a file; docs/adapters.md has its formats.

    A text that the file has several times gets the spans of all its places: a detector sees the text only and cannot tell
    them apart, and marking more is the safe side.

    Raises:
        UsageError: the format is not known, or there are ids and no corpus that they belong to.
        DataError: the file or the corpus is malformed, or they disagree; with file and line number, and no text.
    """

    name = "precomputed"

    def __init__(self, options: PrecomputedOptions) -> None:
        self._path = Path(options.path)
        self._score = options.score
        self._key = Streams(secrets.token_bytes(KEY_BYTES))
        self._spans: dict[bytes, set[Span]] = {}
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
        for number, text in enumerate(texts, start=1):
            spans = self._spans.get(self._seen(text)[0], None if text.strip() else ())
            if spans is None:
                raise DataError(
                    f"{self._path}: it has nothing on text {number} of {len(texts)} asked for; compute it for the whole corpus"
                )
            found.append(sorted(spans))
        return found

    def _seen(self, text: str) -> _Text:
        return self._key.derive("text", text), len(text)

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
        digest, length = text
        kept = self._spans.setdefault(digest, set())
        for number, (start, end, label, score) in enumerate(entry.spans, start=1):
            if end > length:
                raise DataError(
                    f"{entry.place}, span {number}: it ends outside its text; offsets are code points, not bytes or UTF-16 units"
                )
            kept.add(Span(start, end, label, self._score if score is None else score, self.name))


def _format(path: Path, given: str) -> str:
    if given != "auto":
        return given
    ending = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    if ending.lower() not in _FORMATS:
        raise UsageError(f"{path}: this ending is not known; set format to jsonl or conll")
    return _FORMATS[ending.lower()]


def _source(options: TextsOptions) -> Source:
    return Source(
        Path(options.path),
        options.format,
        options.text_field,
        options.id_field,
        max_record_bytes=options.max_record_bytes,
    )

"""The privacy unit: what a neighbouring corpus has one more or one fewer of.

Everything that follows (vocabulary, sampling, clipping, accounting) treats a ``Unit`` as one thing. Two corpora are
neighbours when one is the other with one unit, id and texts, added or removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from tacit.corpus.records import Record
from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness

__all__ = [
    "Unit",
    "UnitKind",
    "cut_tuples",
    "fingerprint_begun",
    "fingerprint_line",
    "group_units",
    "is_held_out",
    "key_of_record",
    "ordinal_id",
    "split_held_out",
    "unit_fingerprint",
]

Kind = Literal["record", "document", "user", "tuple"]

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class UnitKind:
    """What one unit is.

    Args:
        kind: "record", "document", "user" or "tuple".
        words: the words of a tuple; given for tuples only.

    Raises:
        UsageError: an unknown kind, a tuple without its words, or words for another kind.
    """

    kind: Kind
    words: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise UsageError(f"unit {self.kind!r} is not known; use record, document, user or {{tuple: 256}}")
        if self.kind != "tuple" and self.words is not None:
            raise UsageError(f"a {self.kind} has no number of words; use unit: {{tuple: {self.words}}} for tuples")
        if self.kind == "tuple" and not (type(self.words) is int and self.words >= 1):
            raise UsageError("a tuple needs a whole number of words, at least 1, such as unit: {tuple: 256}")

    @classmethod
    def parse(cls, value: object) -> UnitKind:
        """The kind that a configuration names: "record", "document", "user" or {"tuple": 256}.

        Raises:
            UsageError: anything else.
        """
        if isinstance(value, str):
            return cls(cast(Kind, value))
        if isinstance(value, Mapping) and list(value) == ["tuple"]:
            return cls("tuple", value["tuple"])
        raise UsageError("unit must be record, document, user or {tuple: 256}")


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of privacy: an id and the texts that go in or out of the corpus with it. Both are private."""

    unit_id: str
    texts: tuple[str, ...]

    def __repr__(self) -> str:
        return "Unit(<private>)"


def group_units(records: Iterable[Record], kind: UnitKind) -> list[Unit]:
    """The corpus as units, sorted by id, so that the order of documents and users in the files does not matter.

    Within a unit, and within a document that is several units, texts keep the order of the records.

    - record: each record, ``<document_id>#<ordinal in the document>``, so two equal records are two units;
    - document: the records of one document id; user: the records of one user id, over all documents;
    - tuple: a document, its records joined by line breaks, cut into consecutive pieces of ``words`` whitespace words,
      ``<document_id>#<ordinal>``; the last piece may be shorter and no piece spans two documents.

    Raises:
        DataError: the unit is the user and a record has no user id.
    """
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    for number, record in enumerate(records, start=1):
        grouped[key_of_record(record, number, kind)].append(record.text)
    if kind.kind in ("user", "document"):
        return _as_units(grouped)
    if kind.kind == "record":
        return _as_units(_numbered(grouped))
    assert kind.words is not None  # UnitKind's invariant
    return _as_units(_numbered({name: cut_tuples(texts, kind.words) for name, texts in grouped.items()}))


def key_of_record(record: Record, number: int, kind: UnitKind) -> str:
    """The id of what the record is grouped by: its user, or its document.

    Args:
        record: any.
        number: its place in the corpus, from 1, for the error.
        kind: of the unit.

    Raises:
        DataError: the unit is the user and the record has no user id.
    """
    if kind.kind != "user":
        return record.document_id
    if record.user_id is None:
        raise DataError(f"record {number} of the corpus has no user id; set the option user_field, or another unit")
    return record.user_id


def ordinal_id(document_id: str, ordinal: int) -> str:
    """The id of one of the units of a document."""
    return f"{document_id}#{ordinal}"


def _as_units(grouped: dict[str, list[str]]) -> list[Unit]:
    return [Unit(unit_id, tuple(grouped[unit_id])) for unit_id in sorted(grouped)]


def _numbered(documents: dict[str, list[str]]) -> dict[str, list[str]]:
    """Each text of each document on its own, under the document's id and an ordinal."""
    return {ordinal_id(name, i): [text] for name, texts in documents.items() for i, text in enumerate(texts)}


def cut_tuples(texts: Sequence[str], words: int) -> list[str]:
    """Consecutive pieces of ``words`` whitespace words, spacing inside a piece kept.

    >>> cut_tuples(["a b  c", "d e"], 2)
    ['a b', 'c\\nd', 'e']
    """
    text = "\n".join(texts)
    spans = [match.span() for match in _WORD.finditer(text)]
    pieces = [spans[start : start + words] for start in range(0, len(spans), words)]
    return [text[piece[0][0] : piece[-1][1]] for piece in pieces]


def is_held_out(unit_id: str, fraction: float, streams: KeyedRandomness) -> bool:
    """Whether a keyed hash of the id, a number in [0, 1), is below ``fraction``.

    A unit's side depends on its own id and the key, and on no other unit. Neighbouring corpora (one unit added or
    removed) therefore differ in one of the two parts only, and what is released from the parts composes in parallel:
    the dearer of the two counts, not their sum (McSherry 2009, theorem 4). A split by position, by a shuffle, or to an
    exact size moves other units and gives no such thing. Under replace-one the two units may fall on different sides,
    and the costs add up.

    Ids made of line numbers or ordinals shift when an earlier record is taken out. For whoever lacks the key every
    unit's side is its own random draw whatever its id, so the law of the split, and the guarantee, stay the same. The sizes of
    the parts are private.

    Raises:
        UsageError: the fraction is not in [0, 1).
    """
    _check_fraction(fraction)
    return _uniform(streams.derive("held-out", unit_id)) < fraction


def split_held_out(units: Iterable[Unit], fraction: float, streams: KeyedRandomness) -> tuple[list[Unit], list[Unit]]:
    """(training, held out), each in order, as `is_held_out` says.

    Raises:
        UsageError: the fraction is not in [0, 1).
    """
    _check_fraction(fraction)  # also where there is no unit
    sides: tuple[list[Unit], list[Unit]] = ([], [])
    for unit in units:
        sides[is_held_out(unit.unit_id, fraction, streams)].append(unit)
    return sides


def _check_fraction(fraction: float) -> None:
    if not 0 <= fraction < 1:
        raise UsageError(f"the held-out fraction must be at least 0 and below 1, not {fraction}")


def _uniform(digest: bytes) -> float:
    """The digest's first 53 bits as a number in [0, 1): as many as a float holds without rounding up to 1."""
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def unit_fingerprint(units: Iterable[Unit], streams: KeyedRandomness) -> str:
    """A keyed digest (64 hex digits) of the units' ids, texts and order; a resumed run refuses data with another one.

    Keyed BLAKE2b is a pseudo-random function, so without the key the digest confirms no guess about the corpus.
    """
    digest = fingerprint_begun(streams)
    for unit in units:
        digest.update(fingerprint_line(unit))
    return digest.hexdigest()


def fingerprint_begun(streams: KeyedRandomness) -> hashlib.blake2b:
    """The digest of no units; `fingerprint_line` of each, in order, makes it that of these."""
    return hashlib.blake2b(key=streams.derive("unit-fingerprint"), digest_size=32, person=b"tacit-units")


def fingerprint_line(unit: Unit) -> bytes:
    """What of a unit goes into the fingerprint: JSON, in which no two lists look alike."""
    return json.dumps([unit.unit_id, *unit.texts]).encode() + b"\n"

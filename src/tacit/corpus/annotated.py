"""Documents with entities in them: sentences of tokens, each token with its BIO tag (IOB2), checked as they are read.

``B-problem`` begins an entity, ``I-problem`` goes on with one of the same type, ``O`` is outside (Ramshaw and Marcus 1995, with
every entity begun by B). What is no such sequence is refused with its file and line, never with its text.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tacit.corpus.lines import place_of
from tacit.errors import DataError

__all__ = [
    "OUTSIDE",
    "AnnotatedDocument",
    "AnnotatedUnit",
    "Sentence",
    "alone",
    "check_sequence",
    "entity_types",
    "refuse_shared_documents",
    "refuse_unknown_types",
    "sentences_apart",
    "tag_set",
    "type_of",
    "units_of",
]

OUTSIDE = "O"


@dataclass(frozen=True, slots=True)
class Sentence:
    """Tokens and their tags, and for errors the line on which each tag stands. Private, so out of ``repr``."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...]

    def __repr__(self) -> str:
        return "Sentence(<private>)"


@dataclass(frozen=True, slots=True)
class AnnotatedDocument:
    """A document with entities.

    Args:
        document_id: unique in its source, or among the documents of its user.
        path: the file that holds its tags.
        sentences: in order.
        named: whether it is a document of its own; False where a file does not say which sentences are one document, and
            each counts as one.
        user_id: whose it is; None where the source does not say.
    """

    document_id: str
    path: Path
    sentences: tuple[Sentence, ...]
    named: bool
    user_id: str | None = None

    def __repr__(self) -> str:
        return "AnnotatedDocument(<private>)"

    @property
    def key(self) -> str:
        """Unique in its source: two users may have chosen the same id."""
        return self.document_id if self.user_id is None else json.dumps([self.user_id, self.document_id])

    @property
    def tokens(self) -> list[str]:
        """The tokens of all sentences."""
        return [token for sentence in self.sentences for token in sentence.tokens]

    @property
    def tags(self) -> list[str]:
        """The tags of all sentences."""
        return [tag for sentence in self.sentences for tag in sentence.tags]

    def content(self) -> bytes:
        """A digest of its tokens: equal for the same text under two names."""
        return hashlib.sha256("\0".join(self.tokens).encode()).digest()


@dataclass(frozen=True, slots=True)
class AnnotatedUnit:
    """What is drawn, clipped and counted as one: a document, a sentence, or all documents of a user. Private."""

    unit_id: str
    documents: tuple[AnnotatedDocument, ...]

    def __repr__(self) -> str:
        return "AnnotatedUnit(<private>)"


def type_of(tag: str) -> str | None:
    """``problem`` of ``B-problem`` and ``I-problem``; None of ``O``."""
    return None if tag == OUTSIDE else tag[2:]


def check_sequence(tags: Sequence[str], lines: Sequence[int], path: Path) -> None:
    """Refuse tags that are no IOB2 sequence.

    Raises:
        DataError: an unknown prefix, no type, or an I- that goes on with nothing; the line names file and line number.
    """
    before = OUTSIDE
    for tag, line in zip(tags, lines, strict=True):
        place = place_of(path, line)
        if tag != OUTSIDE and (tag[:2] not in ("B-", "I-") or len(tag) == 2):
            raise DataError(f"{place}: the tag is none of O, B-TYPE and I-TYPE; is it in the last column, and in IOB2?")
        if tag.startswith("I-") and type_of(before) != type_of(tag):
            raise DataError(
                f"{place}: an I- tag without a B- or I- of its type before it; convert the file to IOB2, where B- begins "
                "every entity"
            )
        before = tag


def entity_types(documents: Iterable[AnnotatedDocument]) -> tuple[str, ...]:
    """The types of entities that occur, sorted."""
    return tuple(sorted({kind for document in documents for tag in document.tags if (kind := type_of(tag))}))


def tag_set(types: Sequence[str]) -> tuple[str, ...]:
    """The tags of a classifier for these types: ``O``, then B- and I- of each.

    >>> tag_set(["problem"])
    ('O', 'B-problem', 'I-problem')
    """
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))


def refuse_unknown_types(documents: Iterable[AnnotatedDocument], types: Iterable[str], known: str) -> None:
    """Refuse an entity of a type that a model does not know.

    Args:
        known: where the types are from, such as ``the training documents``.

    Raises:
        DataError: with file and line of the first one. The type is not shown: what stands in a file may be private.
    """
    types = set(types)
    for document in documents:
        for sentence in document.sentences:
            for tag, line in zip(sentence.tags, sentence.lines, strict=True):
                if tag != OUTSIDE and type_of(tag) not in types:
                    raise DataError(
                        f"{place_of(document.path, line)}: an entity of a type that is not in {known}; a model that does not "
                        "know it cannot find it: correct the tag, or split the documents in another way"
                    )


def refuse_shared_documents(training: Iterable[AnnotatedDocument], test: Iterable[AnnotatedDocument]) -> None:
    """Refuse a document that is in both parts, by its id or by its text. Sentences without a document may be alike, and so may
    documents without a token.

    Raises:
        DataError: with the two files.
    """
    by_key: dict[tuple[Path, str], AnnotatedDocument] = {}
    by_content: dict[bytes, AnnotatedDocument] = {}
    for document in training:
        by_key[document.path.resolve(), document.key] = document
        if document.named:
            by_content[document.content()] = document
    for document in test:
        twin = by_key.get((document.path.resolve(), document.key))
        if twin is None and document.named and document.tokens:
            twin = by_content.get(document.content())
        if twin is not None:
            places = [place_of(one.path, _first_line(one)) for one in (document, twin)]
            raise DataError(
                f"{places[0]}: this document is in two folds, training and test ({places[1]}); leave it out of one"
            )


def _first_line(document: AnnotatedDocument) -> int:
    return next((sentence.lines[0] for sentence in document.sentences if sentence.lines), 1)


def units_of(
    documents: Sequence[AnnotatedDocument], unit: Literal["user", "document", "sentence"]
) -> list[AnnotatedUnit]:
    """What is drawn, clipped and counted as one.

    Raises:
        DataError: ``document``, of a source that does not say where a document ends: each sentence would be called one; ``user``,
            of one that does not say whose a document is.
    """
    if unit == "sentence":
        return alone(sentences_apart(documents))
    if unit == "user":
        return _by_user(documents)
    for document in documents:
        if not document.named:
            raise DataError(
                f"{document.path}: it does not say where a document ends, so every sentence would be a unit; put a -DOCSTART- line "
                "before every document, give a folder with a file for each, name id_field (jsonl), or set dp.unit to sentence"
            )
    return alone(documents)


def alone(documents: Iterable[AnnotatedDocument]) -> list[AnnotatedUnit]:
    """Every document as a unit of its own."""
    return [AnnotatedUnit(document.key, (document,)) for document in documents]


def _by_user(documents: Sequence[AnnotatedDocument]) -> list[AnnotatedUnit]:
    """A user's documents together, in the order of their own ids, so that no other user moves them."""
    grouped: dict[str, list[AnnotatedDocument]] = {}
    for document in documents:
        if document.user_id is None:
            raise DataError(
                f"{document.path}: it does not say whose a document is; name documents.user_field, or another dp.unit"
            )
        grouped.setdefault(document.user_id, []).append(document)
    return [
        AnnotatedUnit(user, tuple(sorted(own, key=lambda document: document.document_id)))
        for user, own in sorted(grouped.items())
    ]


def sentences_apart(documents: Iterable[AnnotatedDocument]) -> Iterator[AnnotatedDocument]:
    """Every sentence as a document of its own, ``<document_id>#<ordinal>``."""
    for document in documents:
        for number, sentence in enumerate(document.sentences):
            yield dataclasses.replace(document, document_id=f"{document.document_id}#{number}", sentences=(sentence,))

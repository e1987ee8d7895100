"""Readers of documents with entities: BIO columns (CoNLL), the concept files of i2b2-2010, and JSON lines of tokens and tags.

Errors name a file and a line, and hold no text; nothing is chained to them (as in readers.py).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.corpus.annotated import OUTSIDE, AnnotatedDocument, Sentence, check_sequence, type_of
from tacit.corpus.json_objects import objects_by_line
from tacit.corpus.lines import numbered_lines, place_of
from tacit.corpus.places import files_below
from tacit.corpus.records import identity, unicode_bytes
from tacit.errors import DataError, UsageError
from tacit.files import refuse_pipe

__all__ = ["ANNOTATION_FORMATS", "AnnotatedFields", "read_annotated"]

_MOST_BYTES = 1_000_000  # of a line
_BIO_ENDINGS = (".bio", ".iob", ".conll", ".tsv")
_DOCUMENT_START = "-DOCSTART-"


@dataclass(frozen=True)
class AnnotatedFields:
    """Names of fields, where a layout has fields.

    Args:
        id_field: with a document's id; records with one id are its sentences.
        user_field: with the id of the person whose document it is; records with one id of two users are two documents.
    """

    id_field: str | None = None
    user_field: str | None = None


_NO_FIELDS = AnnotatedFields()


def read_annotated(path: Path, layout: str = "bio", fields: AnnotatedFields = _NO_FIELDS) -> list[AnnotatedDocument]:
    """The documents of a file or a folder, in the order of their ids.

    Args:
        path: a file, or a folder with its sub-folders.
        layout: a key of ``ANNOTATION_FORMATS``.
        fields: of a layout with fields.

    Raises:
        DataError: nothing is there, or a line is malformed; with file and line.
        UsageError: an unknown layout, or fields of a layout that has none.
    """
    if layout not in ANNOTATION_FORMATS:
        raise UsageError(f"format {layout!r} is not known; use one of {', '.join(ANNOTATION_FORMATS)}")
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder; check the path")
    refuse_pipe(path)
    found = ANNOTATION_FORMATS[layout](path, fields)
    documents = sorted(found, key=lambda document: (document.document_id, document.user_id or ""))
    if not documents:  # documents without a token are some, which add nothing
        raise DataError(f"{path}: there is no document in it; check the path and the format")
    return documents


# BIO columns


def _read_bio(path: Path, fields: AnnotatedFields) -> Iterator[AnnotatedDocument]:
    """``token<TAB>tag`` lines, a blank line between sentences; with more columns, the first and the last count. A line without a tab
    is cut at blanks. No line changes how one of another sentence is read.

    In a folder every file is one document. In a single file, documents begin at ``-DOCSTART-`` lines; without any, every
    sentence is a document of its own, and with one no sentence stands before the first: else a document without the line would be
    read otherwise as soon as another one has it. A document may have no sentence: it adds nothing. Where a blank line of a document
    cuts an entity (I- goes on with what the sentence before it ended in), both sentences are one.
    """
    _refuse_fields(path, fields)
    if path.is_dir():
        for file in _files(path, _BIO_ENDINGS):
            sentences = _joined(part for part in _bio_parts(file) if isinstance(part, Sentence))
            yield _document(file.relative_to(path).as_posix(), file, sentences, True)
        return
    parts = list(_bio_parts(path))
    marked = any(isinstance(part, int) for part in parts)
    if marked and not isinstance(parts[0], int):
        raise DataError(
            f"{path}: there is text before the first {_DOCUMENT_START} line; put one before every document, the first too"
        )
    grouped: list[tuple[int, list[Sentence]]] = []  # each with the line where it begins
    for part in parts:
        if isinstance(part, int):
            grouped.append((part, []))
        elif marked:
            grouped[-1][1].append(part)
        else:
            grouped.append((part.lines[0], [part]))
    for line, sentences in grouped:
        first = sentences[0].lines[0] if sentences else line
        yield _document(f"{path.name}:{first:09d}", path, _joined(sentences), marked)


def _document(name: str, path: Path, sentences: Sequence[Sentence], named: bool) -> AnnotatedDocument:
    for sentence in sentences:
        check_sequence(sentence.tags, sentence.lines, path)
    return AnnotatedDocument(name, path, tuple(sentences), named)


def _joined(sentences: Iterable[Sentence]) -> list[Sentence]:
    """Sentences, the parts of a cut entity together."""
    found: list[Sentence] = []
    for sentence in sentences:
        before = found[-1].tags[-1] if found else OUTSIDE
        if sentence.tags[0].startswith("I-") and type_of(before) == type_of(sentence.tags[0]):
            last = found.pop()
            sentence = Sentence(last.tokens + sentence.tokens, last.tags + sentence.tags, last.lines + sentence.lines)
        found.append(sentence)
    return found


def _bio_parts(path: Path) -> Iterator[Sentence | int]:
    """The sentences of a file, and the numbers of the ``-DOCSTART-`` lines between them."""
    columns: int | None = None  # of this sentence
    rows: list[tuple[str, str, int]] = []
    for number, line in numbered_lines(path, _MOST_BYTES):
        line = line.rstrip("\r\n")
        if not line.strip():
            yield from _bio_sentence(rows)
            rows, columns = [], None
            continue
        parts = line.split("\t") if "\t" in line else line.split()
        if parts[0] == _DOCUMENT_START:
            # it ends a sentence too, else a document without a blank line would go on in the next one
            yield from _bio_sentence(rows)
            yield number
            rows, columns = [], None
            continue
        columns = len(parts) if columns is None else columns
        if len(parts) < 2 or len(parts) != columns or not parts[0].strip():
            raise DataError(
                f"{place_of(path, number)}: the line has not the columns of a token and its tag, as many as on its sentence's first "
                "line (between tabs, or blanks where there are no tabs); repair it"
            )
        rows.append((parts[0], parts[-1].strip(), number))
    yield from _bio_sentence(rows)


def _bio_sentence(rows: list[tuple[str, str, int]]) -> Iterator[Sentence]:
    if rows:
        tokens, tags, lines = zip(*rows, strict=True)
        yield Sentence(tokens, tags, lines)


# i2b2-2010

_CONCEPT = re.compile(r'c="(.*)" (\d{1,9}):(\d{1,9}) (\d{1,9}):(\d{1,9})\|\|t="([^"\s]+)"')


def _read_i2b2(path: Path, fields: AnnotatedFields) -> Iterator[AnnotatedDocument]:
    """``c="chest pain" 12:3 12:4||t="problem"`` in ``.con`` files, their texts in ``.txt`` files of the same stem.

    Lines count from 1 and tokens, between blanks, from 0; the last one is part of the concept. The texts are in the same
    folder or in ``txt`` beside it; a concept file may end in ``.txt.con`` too. A line is a sentence.
    """
    _refuse_fields(path, fields)
    if not path.is_dir():
        raise DataError(
            f"{path}: the i2b2-2010 layout is a folder, with .con and .txt files below it; give that folder"
        )
    of_text: dict[Path, Path] = {}
    for concepts in _files(path, (".con",)):
        text = _text_of(concepts)
        if of_text.setdefault(text, concepts) != concepts:
            raise DataError(
                f"{concepts}: its text {text.name} has the concepts of {of_text[text].name} too, so it would be two documents; "
                "keep one of these files"
            )
        yield _i2b2_document(path, concepts, text)


def _i2b2_document(root: Path, concepts: Path, text: Path) -> AnnotatedDocument:
    lines = [line.split() for _, line in numbered_lines(text, _MOST_BYTES)]
    tags = [[OUTSIDE] * len(tokens) for tokens in lines]
    places = [[number] * len(tokens) for number, tokens in enumerate(lines, start=1)]
    for number, line in numbered_lines(concepts, _MOST_BYTES):
        if line.strip():
            _mark_concept(line.strip(), place_of(concepts, number), number, lines, tags, places)
    sentences = tuple(
        Sentence(tuple(tokens), tuple(own), tuple(of_token))
        for tokens, own, of_token in zip(lines, tags, places, strict=True)
        if tokens
    )
    name = concepts.relative_to(root).with_suffix("").as_posix()
    return AnnotatedDocument(name, concepts, sentences, True)


def _text_of(concepts: Path) -> Path:
    name = concepts.name.removesuffix(".con").removesuffix(".txt") + ".txt"
    for folder in (concepts.parent, concepts.parent.parent / "txt"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"{concepts}: there is no {name} beside it or in {concepts.parent.parent / 'txt'}; give both folders"
    )


def _mark_concept(
    line: str, place: str, number: int, lines: list[list[str]], tags: list[list[str]], places: list[list[int]]
) -> None:
    found = _CONCEPT.fullmatch(line)
    if found is None:
        raise DataError(f'{place}: this is no line of the form c="..." 1:2 1:3||t="type"; repair it')
    words, kind = found.group(1), found.group(6)
    first_line, first, last_line, last = (int(part) for part in found.group(2, 3, 4, 5))
    if first_line != last_line:
        raise DataError(
            f"{place}: the concept begins on one line and ends on another, which BIO tags cannot say; cut it"
        )
    tokens = lines[first_line - 1] if 1 <= first_line <= len(lines) else []
    if not first <= last < len(tokens):
        raise DataError(f"{place}: the concept's place is outside the text; check that both files belong together")
    if " ".join(tokens[first : last + 1]).lower() != " ".join(words.split()).lower():
        raise DataError(f"{place}: other words stand at the concept's place; check that both files belong together")
    wanted = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    own, of_token = tags[first_line - 1], places[first_line - 1]
    ends = last + 1 == len(own) or not own[last + 1].startswith("I-")
    if own[first : last + 1] == wanted and ends:
        return  # the same concept once more
    if any(tag != OUTSIDE for tag in own[first : last + 1]):
        raise DataError(f"{place}: the concept overlaps another one, which BIO tags cannot say; leave one of them out")
    own[first : last + 1] = wanted
    of_token[first : last + 1] = [number] * len(wanted)


def _files(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    """The files below a folder with one of these endings, also gzipped."""
    found = [path for path in files_below(folder) if path.name.removesuffix(".gz").endswith(endings)]
    if not found:
        raise DataError(f"{folder}: no file there has one of the endings {', '.join(endings)}; check path and format")
    return found


def _refuse_fields(path: Path, fields: AnnotatedFields) -> None:
    for option, name in (("id_field", fields.id_field), ("user_field", fields.user_field)):
        if name is not None:
            raise UsageError(
                f"{path}: documents of this format have no fields; leave out {option}, or use format: jsonl"
            )


# JSON lines


def _read_jsonl(path: Path, fields: AnnotatedFields) -> Iterator[AnnotatedDocument]:
    """``{"tokens": ["chest", "pain"], "tags": ["B-problem", "I-problem"]}``, an object a sentence; a file, or a folder of such.

    With ``id_field`` the sentences with one id are a document, which is in one file; without it each is one by itself, and no
    document is named. With ``user_field`` the sentences with one id of one user are a document, whatever ids others chose.
    """
    file_of: dict[_Owner, Path] = {}
    for file in _files(path, (".jsonl",)) if path.is_dir() else [path]:
        where = file.relative_to(path).as_posix() if path.is_dir() else file.name
        grouped: dict[_Owner, list[Sentence]] = {}
        for number, place, values in objects_by_line(file, _MOST_BYTES):
            owner = _owner(values, fields, f"{where}:{number:09d}", place)
            if file_of.setdefault(owner, file) != file:
                raise DataError(
                    f"{place}: {file_of[owner]} has a document with this id too; put a document into one file"
                )
            grouped.setdefault(owner, []).extend(_json_sentences(values, number, place))
        for (name, user), sentences in grouped.items():
            document = _document(name, file, sentences, fields.id_field is not None)
            yield dataclasses.replace(document, user_id=user)


_Owner = tuple[str, str | None]


def _owner(values: dict[str, Any], fields: AnnotatedFields, default: str, place: str) -> _Owner:
    """(document, user) of a sentence."""
    found: list[str | None] = []
    for option, name, otherwise in (("id_field", fields.id_field, default), ("user_field", fields.user_field, None)):
        if name is None:
            found.append(otherwise)
        elif name not in values:
            raise DataError(f"{place}: there is no field {name!r}; set the option {option} to a field that is there")
        else:
            found.append(identity(values[name], option, name, place))
    document, user = found
    assert document is not None
    return document, user


def _json_sentences(values: dict[str, Any], number: int, place: str) -> list[Sentence]:
    """The sentence; none of a record without a token, which is a document that adds nothing, as one of blank tokens."""
    tokens, tags = (values.get(name) for name in ("tokens", "tags"))
    both = (tokens, tags)
    if not all(isinstance(one, list) and all(isinstance(word, str) for word in one) for one in both):
        raise DataError(
            f"{place}: tokens and tags must be two lists of strings; convert numbers of tags to their names"
        )
    assert isinstance(tokens, list)
    assert isinstance(tags, list)
    if len(tokens) != len(tags):
        raise DataError(f"{place}: there must be a tag for each token; repair the record")
    for word in (*tokens, *tags):
        unicode_bytes(word, place)
    return [Sentence(tuple(tokens), tuple(tags), (number,) * len(tokens))] if tokens else []


ANNOTATION_FORMATS: dict[str, Callable[[Path, AnnotatedFields], Iterator[AnnotatedDocument]]] = {
    "bio": _read_bio,
    "i2b2-2010": _read_i2b2,
    "jsonl": _read_jsonl,
}

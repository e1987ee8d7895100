"""The experiment's corpora as they are stored: each as texts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tacit.corpus.readers import Source, read_records
from tacit.errors import DataError

__all__ = [
    "abstracts",
    "answers",
    "dialogues",
    "diseases",
    "notes",
    "novels",
    "paragraphs",
    "played_notes",
    "words_of",
]

_CHUNK = 300  # words of a novel in a record
_SHORTEST = 60  # characters of a paragraph of Wikipedia; shorter ones are headings
_ABSTRACT = 9  # sentences, about: the corpus does not say where one ends


def notes(data: Path) -> list[str]:
    """MTSamples: clinical notes."""
    return [values["text"] for values in _records(data / "mtsamples" / "mtsamples.jsonl.gz")]


def novels(data: Path, most: int) -> Iterator[str]:
    """Parts of English novels (ELTeC), of the first so many."""
    for novel in islice(
        (values for path in _paths(data, "eltec-eng", "*.jsonl.gz") for values in _records(path)), most
    ):
        words = novel["text"].split()
        yield from (" ".join(words[start : start + _CHUNK]) for start in range(0, len(words), _CHUNK))


def paragraphs(data: Path, most: int) -> Iterator[str]:
    """Of Wikipedia (WikiText-2), the first so many."""
    lines = (line.strip() for line in _lines(data / "wikitext-2" / "wikitext-2-raw.train.txt.gz"))
    return islice((line for line in lines if len(line) >= _SHORTEST), most)


def answers(data: Path) -> Iterator[str]:
    """To questions about health (MedQuAD)."""
    return (values["answer"] for values in _records(data / "medquad" / "medquad.jsonl.gz"))


def played_notes(data: Path) -> list[str]:
    """Clinical notes of played consultations (ACI-Bench, PriMock57).

    MTS-Dialog, which lies beside them, is made from MTSamples: it is not public text here.
    """
    return [*_field(data, "note"), *(values["note"]["note"] for values in _consultations(data))]


def dialogues(data: Path) -> list[str]:
    """What was said in these consultations."""
    said = ("\n".join(f"{who}: {what}" for who, what in values["transcript"]) for values in _consultations(data))
    return [*_field(data, "dialogue"), *said]


def _field(data: Path, name: str) -> list[str]:
    paths = _paths(data, "clinical-dialog/aci-bench", "*.csv.gz")
    return [record.text for path in paths for record in read_records(Source(path, text_field=name))]


def _consultations(data: Path) -> Iterator[dict[str, Any]]:
    return _records(data / "clinical-dialog" / "primock57" / "primock57.jsonl.gz")


def abstracts(data: Path) -> list[str]:
    """Of articles in PubMed (BC5CDR, without its annotations)."""
    paths = _paths(data, "bio-ner/BC5CDR-IOB", "*.tsv.gz")
    found: list[str] = []
    for path in paths:
        sentences = [words_of(block) for block in _blocks(path)]
        found += [" ".join(sentences[start : start + _ABSTRACT]) for start in range(0, len(sentences), _ABSTRACT)]
    return found


def diseases(data: Path, part: str) -> Iterator[str]:
    """The sentences of a part of NCBI-disease, a line a token."""
    return _blocks(data / "bio-ner" / "NCBI-disease-IOB" / f"{part}.tsv.gz")


def words_of(sentence: str) -> str:
    """An annotated sentence without its annotations.

    >>> words_of("No\\tO\\nanaemia\\tB-Disease\\n")
    'No anaemia'
    """
    return " ".join(line.split("\t")[0] for line in sentence.splitlines())


def _blocks(path: Path) -> Iterator[str]:
    """Lines between blank ones."""
    block: list[str] = []
    for line in _lines(path):
        if line.strip():
            block.append(line)
        elif block:
            yield "".join(block)
            block = []
    if block:
        yield "".join(block)


def _paths(data: Path, folder: str, pattern: str) -> Sequence[Path]:
    paths = sorted((data / folder).glob(pattern))
    if not paths:
        raise DataError(f"{data / folder}: there are no files {pattern}; give --data the folder that holds {folder}/")
    return paths


def _records(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in _lines(path))


def _lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from file
        return
    except (OSError, EOFError, ValueError):
        pass
    raise DataError(f"{path}: the file cannot be read; give --data the folder that holds {path.parent.name}/")

"""The experiment's corpora as they are stored: each as texts, or with its entities."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tacit.corpus.readers import read_objects, read_records
from tacit.corpus.source import Source
from tacit.corpus.turns import Turns
from tacit.errors import DataError

__all__ = [
    "Dialogue",
    "abstracts",
    "answers",
    "blocks",
    "consultations",
    "dialogues",
    "diseases",
    "notes",
    "novels",
    "paragraphs",
    "stand_in_dialogues",
    "words_of",
]

_CHUNK = 300  # words of a novel in a record
_SHORTEST = 60  # characters of a paragraph of Wikipedia; shorter ones are headings
_LONGEST = 10_000_000  # bytes of a novel
_ABSTRACT = 9  # sentences, about: no corpus says where one ends
_PLAIN_TURNS = Turns(speaker=None)
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Dialogue:
    """One of SGD.

    Args:
        dialogue_id: unique in its part.
        services: what it is about, such as ``Restaurants_1``.
        turns: text of each, with its entities: (first character, the one behind the last, slot).
    """

    dialogue_id: str
    services: frozenset[str]
    turns: tuple[tuple[str, tuple[tuple[int, int, str], ...]], ...]

    @property
    def text(self) -> str:
        """A turn a line."""
        return "\n".join(text for text, _ in self.turns)

    def annotated(self, slots: Sequence[str]) -> list[dict[str, list[str]]]:
        """Tokens and tags of each turn, of these slots alone."""
        return [
            _tagged(text, [span for span in spans if span[2] in slots]) for text, spans in self.turns if text.strip()
        ]


def _tagged(text: str, spans: Sequence[tuple[int, int, str]]) -> dict[str, list[str]]:
    """Words and marks, cut at the spans' ends too.

    >>> _tagged("In San Jose.", [(3, 11, "city")])
    {'tokens': ['In', 'San', 'Jose', '.'], 'tags': ['O', 'B-city', 'I-city', 'O']}
    """
    tokens: list[str] = []
    tags: list[str] = []
    place = 0
    for start, end, slot in sorted(spans):
        outside, inside = _WORD.findall(text[place:start]), _WORD.findall(text[start:end])
        tokens += [*outside, *inside]
        tags += ["O"] * len(outside) + [f"{'I' if number else 'B'}-{slot}" for number in range(len(inside))]
        place = end
    rest = _WORD.findall(text[place:])
    return {"tokens": tokens + rest, "tags": tags + ["O"] * len(rest)}


def notes(data: Path) -> list[str]:
    """MTSamples: clinical notes."""
    return list(_texts(data, "mtsamples/mtsamples.jsonl.gz"))


def novels(data: Path, most: int) -> Iterator[str]:
    """Parts of English novels (ELTeC), of the first so many."""
    for novel in islice(_texts(data, "eltec-eng/*.jsonl.gz"), most):
        words = novel.split()
        yield from (" ".join(words[start : start + _CHUNK]) for start in range(0, len(words), _CHUNK))


def paragraphs(data: Path, most: int) -> Iterator[str]:
    """The first ``most`` paragraphs of Wikipedia (WikiText-2)."""
    lines = (line.strip() for path in _paths(data, "wikitext-2/wikitext-2-raw.train.txt.gz") for line in _lines(path))
    return islice((line for line in lines if len(line) >= _SHORTEST), most)


def answers(data: Path) -> Iterator[str]:
    """Answers to questions about health (MedQuAD)."""
    return _texts(data, "medquad/medquad.jsonl.gz", "answer")


def consultations(data: Path) -> list[tuple[str, str]]:
    """Played ones (ACI-Bench, PriMock57): what was said, and the clinical note of it.

    MTS-Dialog, which lies beside them, is made from MTSamples: it is not public text here.
    """
    said, written = (list(_texts(data, "clinical-dialog/aci-bench/*.csv.gz", name)) for name in ("dialogue", "note"))
    (played,) = _paths(data, "clinical-dialog/primock57/primock57.jsonl.gz")
    source = Source(played, text_field="transcript", turns=Turns(names={}))
    return [
        *zip(said, written, strict=True),
        *zip((record.text for record in read_records(source)), _notes_inside(played), strict=True),
    ]


def _notes_inside(path: Path) -> Iterator[str]:
    """PriMock57's, each an object in its record."""
    for place, values in read_objects(Source(path)):
        match values:
            case {"note": {"note": str(text)}}:
                yield text
            case _:
                raise DataError(f"{place}: there is no text at note.note; is this PriMock57 as it was published?")


def abstracts(data: Path) -> list[str]:
    """Abstracts of articles in PubMed (BC5CDR, without its annotations)."""
    found: list[str] = []
    for path in _paths(data, "bio-ner/BC5CDR-IOB/*.tsv.gz"):
        found += [" ".join(block) for block in blocks([words_of(block) for block in _blocks(path)])]
    return found


def dialogues(data: Path, part: str) -> list[Dialogue]:
    """SGD: of persons with assistants, with what they say of each slot."""
    (path,) = _paths(data, f"sgd/sgd.{part}.jsonl.gz")
    return [_dialogue(place, values) for place, values in read_objects(Source(path))]


def _dialogue(place: str, values: Any) -> Dialogue:
    match values:
        case {"id": str(name), "services": list(services), "turns": list(turns)}:
            read = tuple((turn[1], tuple((span[0], span[1], span[2]) for span in turn[2])) for turn in turns)
            return Dialogue(name, frozenset(services), read)
        case _:
            raise DataError(f"{place}: there are no id, services and turns; is this SGD as it was published?")


def stand_in_dialogues(data: Path) -> list[str]:
    """MultiWOZ: other dialogues, public ones here, in the place of private ones."""
    names = ("multiwoz22.train-shard001.text", "multiwoz-convlab2.val", "multiwoz-convlab2.test")
    paths = [path for name in names for path in _paths(data, f"multiwoz/{name}.jsonl.gz")]
    sources = (Source(path, text_field="turns", turns=_PLAIN_TURNS) for path in paths)
    return [record.text for source in sources for record in read_records(source)]


def blocks(sentences: Sequence[str], most: int = _ABSTRACT) -> Iterator[list[str]]:
    """Consecutive sentences, about as many as an abstract has."""
    return (list(sentences[start : start + most]) for start in range(0, len(sentences), most))


def diseases(data: Path, part: str) -> Iterator[str]:
    """The sentences of a part of NCBI-disease, a line a token."""
    (path,) = _paths(data, f"bio-ner/NCBI-disease-IOB/{part}.tsv.gz")
    return _blocks(path)


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


def _texts(data: Path, pattern: str, field: str = "text") -> Iterator[str]:
    sources = (Source(path, text_field=field, max_record_bytes=_LONGEST) for path in _paths(data, pattern))
    return (record.text for source in sources for record in read_records(source))


def _paths(data: Path, pattern: str) -> list[Path]:
    paths = sorted(data.glob(pattern))
    if not paths:
        raise DataError(
            f"{data / pattern}: there is no such file; give --data the folder that holds {pattern.split('/')[0]}/"
        )
    return paths


def _lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from file
        return
    except (OSError, EOFError, ValueError):
        pass
    raise DataError(f"{path}: the file is damaged; get it again")

"""The texts of the experiment as files: private lines for training, test documents, public text, and the canary's candidates.

WikiText-2 stands in place of WikiText-103, which is not at hand: its raw form, with the spacing of ordinary text restored, since a
public model has never seen ``<unk>`` and `` , ``. A record is a paragraph; headings are left out, since their mark-up alone decides
how likely they are. Customers' lines of support chats are private beside it: short lines full of names, addresses and order numbers,
of a kind that no public text here has, which is what "private-like" stands for.

Every second article of WikiText-2's validation part is public text that the scorer reads; the others give the constants of rho
alone, a sample that says how likely such text usually is.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tacit.corpus.records import Record
from tacit.corpus.units import Unit
from tacit.errors import DataError
from tacit.reproduce.adp.scale import PrivateText, Scale
from tacit.reproduce.writing import write_text

__all__ = ["TEXTS", "CorpusFiles", "TestDocuments", "kind_of", "prepare", "spaced"]

TEXTS: dict[str, str] = {"wikipedia": "Wikipedia", "chats": "customers' lines"}
"""The two kinds of private text, each with a test of its own."""


@dataclass(frozen=True)
class TestDocuments:
    """Lines of a test, each a unit of its own, and the document of each: an article, or a chat. D documents, from 0."""

    units: list[Unit]
    document_U: list[int]

    __test__ = False  # no test of pytest


@dataclass(frozen=True)
class CorpusFiles:
    """Where the prepared texts lie; all are JSONL with id and text."""

    folder: Path

    def train(self, text: PrivateText) -> Path:
        """The private text with its copies of the canary."""
        return self.folder / f"train-{text.name}.jsonl"

    def test(self, text: str) -> Path:
        """What perplexity is measured on; a key of `TEXTS`."""
        return self.folder / f"test-{text}.jsonl"

    @property
    def stand_in(self) -> Path:
        """Public text in the place of the private one, about as much: what is public and not read by the public model."""
        return self.folder / "stand-in.jsonl"

    def held_out_stand_in(self, text: str) -> Path:
        """More of such text; a key of `TEXTS`."""
        return self.folder / f"held-out-stand-in-{text}.jsonl"

    @property
    def articles(self) -> Path:
        """The public articles that the scorer reads."""
        return self.folder / "articles.jsonl"

    @property
    def constants(self) -> Path:
        """A public sample of such text, on which no scorer is trained: it gives the constants of rho."""
        return self.folder / "constants.jsonl"

    @property
    def canaries(self) -> Path:
        """The first replicate's canary a thousand times: what the other scorer reads beside the public text."""
        return self.folder / "canaries.jsonl"

    def test_documents(self, text: str) -> TestDocuments:
        """The lines of a test, in the order of their documents."""
        return self._documents(self.test(text))

    def trial_documents(self, text: str) -> TestDocuments:
        """The held-out stand-in's lines, which are not trained on, in the order of their documents."""
        return self._documents(self.held_out_stand_in(text))

    def _documents(self, path: Path) -> TestDocuments:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        number = {name: place for place, name in enumerate(dict.fromkeys(_document(row["id"]) for row in rows))}
        return TestDocuments(
            [Unit(row["id"], (row["text"],)) for row in rows], [number[_document(row["id"])] for row in rows]
        )


def _document(record_id: str) -> str:
    return record_id.rsplit("-", 1)[0]


def kind_of(record: Record) -> str:
    """What a private line is, in words."""
    kind = record.document_id.split("-", 1)[0]
    if kind == "canary":
        return "canary"
    if kind == "chat":
        return "customer's line with a number" if re.search(r"\d", record.text) else "customer's line without one"
    return "paragraph"


def prepare(data: Path, scale: Scale, texts: Iterable[PrivateText], folder: Path) -> CorpusFiles:
    """Write the files, or leave those that are there.

    Raises:
        DataError: a file of a corpus is missing or damaged.
    """
    files = CorpusFiles(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not files.constants.exists():  # the last
        _write_common(data, scale, files)
    missing = [text for text in texts if not files.train(text).exists()]
    if missing:
        wikipedia = itertools.islice(itertools.chain.from_iterable(_articles(data, "train")), scale.lines)
        lines = [*wikipedia, *itertools.chain.from_iterable(_chats(data)[: scale.chats])]
        for text in missing:
            records = [*lines, *_copies(scale, text.copies, text.seed)]
            _write(files.train(text), _distinct(records) if text.deduplicated else records)
    return files


def _write_common(data: Path, scale: Scale, files: CorpusFiles) -> None:
    public, test = _articles(data, "valid"), _articles(data, "test")[: scale.test_articles]
    _write(files.articles, itertools.chain.from_iterable(public[::2]))
    _write(files.canaries, _copies(scale, scale.frequent, 0))
    _write(files.test("wikipedia"), itertools.chain.from_iterable(test))
    chats = _chats(data)[scale.chats : scale.chats + scale.test_chats]
    _write(files.test("chats"), itertools.chain.from_iterable(chats))
    _write_stand_ins(data, scale, files, public[1::2])
    _write(files.constants, itertools.chain.from_iterable(public[1::2]))


_HELD_OUT = 4  # one of so many articles, or dialogues
_MOST_HELD_OUT = 100


def _write_stand_ins(data: Path, scale: Scale, files: CorpusFiles, articles: list[list[Record]]) -> None:
    """Public articles that the public model has not read, as often as it takes, and what users say to assistants (SGD): as many
    lines of each as the private text has of paragraphs and of customers' lines.
    """
    spoken = [
        [Record(f"said-{place}-{turn}", None, said[1]) for turn, said in enumerate(dialogue["turns"]) if said[0] == "U"]
        for place, dialogue in enumerate(map(json.loads, filter(None, _read(data / "sgd" / "sgd.dev.jsonl.gz"))))
    ]
    sizes = {"wikipedia": scale.lines, "chats": scale.units - scale.lines}
    chosen: list[Record] = []
    for text, documents in {"wikipedia": articles, "chats": spoken}.items():
        _write(files.held_out_stand_in(text), itertools.chain.from_iterable(documents[::_HELD_OUT][:_MOST_HELD_OUT]))
        rest = [document for number, document in enumerate(documents) if number % _HELD_OUT]
        endless = itertools.cycle(itertools.chain.from_iterable(rest))
        chosen += [
            Record(f"{record.document_id}-{again}", None, record.text)
            for again, record in enumerate(itertools.islice(endless, sizes[text]))
        ]
    _write(files.stand_in, chosen)


def _distinct(records: Iterable[Record]) -> Iterator[Record]:
    """Each text once, its first record: one more or one less record changes at most one of these."""
    seen: set[str] = set()
    for record in records:
        if record.text not in seen:
            seen.add(record.text)
            yield record


def _copies(scale: Scale, copies: int, seed: int) -> Iterator[Record]:
    return (Record(f"canary-{number}", None, scale.canary_text(seed)) for number in range(copies))


def _articles(data: Path, part: str) -> list[list[Record]]:
    """The paragraphs of WikiText-2's articles; an article begins at its title, " = Title = "."""
    lines = _read(data / "wikitext-2" / f"wikitext-2-raw.{part}.txt.gz")
    articles: list[list[Record]] = []
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        alone = not before and not after  # a formula's line may begin and end as a heading does
        heading = alone and line.startswith("= ") and line.endswith(" =")
        if heading and not line.startswith("= ="):
            articles.append([])
        elif line and not heading:
            own = articles[-1]
            own.append(Record(f"{part}-{len(articles) - 1}-{len(own)}", None, spaced(line)))
    return articles


def _chats(data: Path) -> list[list[Record]]:
    """The customers' lines of each chat."""
    chats = [json.loads(line) for line in _read(data / "abcd" / "abcd.valid.jsonl.gz") if line]
    return [
        [
            Record(f"chat-{chat}-{turn}", None, text)
            for turn, (speaker, text) in enumerate(found["turns"])
            if speaker == "USR" and text.strip()
        ]
        for chat, found in enumerate(chats)
    ]


def _read(path: Path) -> list[str]:
    """Its lines, without the blanks around them."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return [line.strip() for line in file]
    except (OSError, EOFError, ValueError):
        raise DataError(
            f"{path}: the file cannot be read; give --data the folder that holds {path.parent.name}/"
        ) from None


def spaced(line: str) -> str:
    """A line of WikiText with the spacing of ordinary text.

    >>> spaced('The " Crazy Horse " ( 1 @,@ 234 @-@ foot ) did n\\'t , it \\'s said , sink .')
    'The "Crazy Horse" (1,234-foot) didn\\'t, it\\'s said, sink.'
    """
    line = re.sub(r" @(.)@ ", r"\1", line)
    line = re.sub(r" (n't|'(?:s|d|m|t|ll|re|ve)\b)", r"\1", line)
    line = re.sub(r" ([,.;:!?%)\]])", r"\1", line)
    line = re.sub(r"([(\[$£]) ", r"\1", line)
    return re.sub(r'" ([^"]*) "', r'"\1"', line)


def _write(path: Path, records: Iterable[Record]) -> None:
    rows = ({"id": record.document_id, "text": record.text} for record in records)
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

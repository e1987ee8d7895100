"""The texts of the experiment as files: WikiText-2's lines for training and test, public text, and the canary's candidates.

WikiText-2 stands in place of WikiText-103, which is not at hand. A record is a line, a paragraph or a heading; blank ones are left
out. The public models are trained on text of other kinds, health answers and novels; WikiText-2's validation part is public too, and
gives the constants of rho alone: a sample that says how likely such text usually is.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.corpus.records import Record
from tacit.corpus.units import Unit
from tacit.errors import DataError
from tacit.reproduce.adp.scale import Scale
from tacit.reproduce.writing import write_text

__all__ = ["CorpusFiles", "prepare"]


@dataclass(frozen=True)
class CorpusFiles:
    """Where the prepared texts lie; all are JSONL with id and text."""

    folder: Path

    def train(self, copies: int) -> Path:
        """The private text with so many copies of the canary."""
        return self.folder / f"train-{copies}.jsonl"

    @property
    def test(self) -> Path:
        """What perplexity is measured on."""
        return self.folder / "test.jsonl"

    @property
    def constants(self) -> Path:
        """A public sample of such text, on which no scorer is trained: it gives the constants of rho."""
        return self.folder / "constants.jsonl"

    @property
    def canaries(self) -> Path:
        """The canary a thousand times: what the other scorer reads beside the public text."""
        return self.folder / "canaries.jsonl"

    def test_units(self) -> list[Unit]:
        """The test lines, each a unit of its own."""
        rows = [json.loads(line) for line in self.test.read_text(encoding="utf-8").splitlines()]
        return [Unit(row["id"], (row["text"],)) for row in rows]


def prepare(data: Path, scale: Scale, folder: Path) -> CorpusFiles:
    """Write the files, or leave those that are there.

    Raises:
        DataError: a file of WikiText-2 is missing or damaged.
    """
    files = CorpusFiles(folder)
    if files.test.exists():  # the last
        return files
    folder.mkdir(parents=True, exist_ok=True)
    train = list(itertools.islice(_lines(data, "train"), scale.lines))
    for copies in scale.insertions:
        _write(files.train(copies), [*train, *_copies(scale, copies)])
    _write(files.constants, _lines(data, "valid"))
    _write(files.canaries, _copies(scale, scale.frequent))
    _write(files.test, itertools.islice(_lines(data, "test"), scale.test_lines))
    return files


def _copies(scale: Scale, copies: int) -> Iterator[Record]:
    return (Record(f"canary-{number}", None, scale.canary_text) for number in range(copies))


def _lines(data: Path, part: str) -> Iterator[Record]:
    path = data / "wikitext-2" / f"wikitext-2-tokens.{part}.txt.gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, EOFError, ValueError):
        raise DataError(f"{path}: the file cannot be read; give --data the folder that holds wikitext-2/") from None
    return (Record(f"{part}-{number}", None, line) for number, line in enumerate(lines) if line)


def _write(path: Path, records: Iterable[Record]) -> None:
    rows: list[dict[str, Any]] = [{"id": record.document_id, "text": record.text} for record in records]
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

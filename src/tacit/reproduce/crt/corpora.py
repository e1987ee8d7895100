"""The corpora of the experiments as files: a record a line of a dialogue, for training, for the test and public; and one tokenizer.

The tokenizer is made once from the training lines as the balanced policy redacts them, and given to every arm, so that their
perplexities compare. It is an experiment's shortcut: a release would have to pay for it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tacit.audit.trie import build_trie
from tacit.corpus.secrets import SecretFormat
from tacit.corpus.turns import Turns, read_turn
from tacit.corpus.units import Unit
from tacit.errors import DataError, UsageError
from tacit.files import write_atomically
from tacit.randomness import KeyedRandomness
from tacit.reproduce.crt.scale import CorpusSize
from tacit.screening.policy import package_policy
from tacit.screening.redact import MASK
from tacit.screening.split import Screener
from tacit.vocabulary.count import count_words
from tacit.vocabulary.given import read_given
from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer
from tacit.vocabulary.wordpiece import train_wordpiece

__all__ = ["CorpusFiles", "TestTexts", "dialogue_of", "prepare"]

_VOCABULARY = 1000
_TEXT = TokenizerOptions()


@dataclass(frozen=True)
class CorpusFiles:
    """Where a prepared corpus lies."""

    folder: Path

    @property
    def train(self) -> Path:
        """Lines that are trained on: JSONL with id and text."""
        return self.folder / "train.jsonl"

    @property
    def test(self) -> Path:
        """Lines that perplexity is measured on: JSONL with id, text and the text as the balanced policy redacts it."""
        return self.folder / "test.jsonl"

    @property
    def public(self) -> Path:
        """Lines of public dialogues, that every model begins with: JSONL with id and text."""
        return self.folder / "public.jsonl"

    @property
    def tokenizer(self) -> Path:
        """Every arm's tokenizer."""
        return self.folder / "tokenizer.json"

    @property
    def conservative(self) -> Path:
        """The conservative policy of the arms that are screened."""
        return self.folder / "conservative.yaml"

    @property
    def trie(self) -> Path:
        """The canaries' candidates under this tokenizer."""
        return self.folder / "trie.npz"

    def test_dialogues(self) -> list[str]:
        """Names of the test dialogues, in their order."""
        return list(dict.fromkeys(map(dialogue_of, self.test_texts().raw)))

    def test_texts(self) -> TestTexts:
        """The test lines, three times."""
        rows = [json.loads(line) for line in self.test.read_text(encoding="utf-8").splitlines()]
        return TestTexts(
            redacted=[Unit(row["id"], (row["redacted"],)) for row in rows],
            raw=[Unit(row["id"], (row["text"],)) for row in rows],
            without_secrets=[Unit(row["id"], (row["text"],)) for row in rows if row["redacted"] == row["text"]],
        )


@dataclass(frozen=True)
class TestTexts:
    """Test lines as units of their own.

    Args:
        redacted: all lines, redacted: what redacted training models.
        raw: all lines as they are.
        without_secrets: the lines in which the balanced policy marks nothing: one text for every arm.
    """

    redacted: list[Unit]
    raw: list[Unit]
    without_secrets: list[Unit]

    @property
    def by_name(self) -> dict[str, list[Unit]]:
        """All three."""
        return {"redacted": self.redacted, "raw": self.raw, "without_secrets": self.without_secrets}


def dialogue_of(line: Unit) -> str:
    """The dialogue that a line is of."""
    return line.unit_id.split("#")[0]


def prepare(name: str, data: Path, size: CorpusSize, folder: Path, form: SecretFormat | None = None) -> CorpusFiles:
    """Write a corpus's files, or leave those that are there.

    Args:
        name: customersim, multiwoz or sgd.
        data: the folder that holds the corpora's folders.
        size: how many dialogues.
        folder: where the files go.
        form: the canaries' template.

    Raises:
        UsageError: an unknown corpus.
        DataError: a file of the corpus is missing or damaged, or has too few dialogues.
    """
    if name not in _READERS:
        raise UsageError(f"corpus is {name!r}; it must be one of {', '.join(_READERS)}")
    files = CorpusFiles(folder)
    if files.trie.exists():
        return files
    folder.mkdir(parents=True, exist_ok=True)
    train, test = (
        _taken(_READERS[name](data, part), wanted, f"{name}, {part} part")
        for part, wanted in (("train", size.dialogues), ("test", size.test_dialogues))
    )
    _write_lines(files.train, [{"id": line.unit_id, "text": line.texts[0]} for line in train])
    redacted_test = _redacted(test)
    rows = [
        {"id": line.unit_id, "text": line.texts[0], "redacted": redacted}
        for line, redacted in zip(test, redacted_test, strict=True)
    ]
    _write_lines(files.test, rows)
    public = _taken(_READERS[size.public](data, "train"), size.public_dialogues, f"{size.public}, train part")
    _write_lines(files.public, [{"id": line.unit_id, "text": line.texts[0]} for line in public])
    _write_policy(files.conservative, (*size.known_words, *_common_words(public, size.known_dialogues)))
    words = count_words(
        ((str(number), (text,)) for number, text in enumerate(_redacted(train))),
        10_000,
        KeyedRandomness(bytes(32)),
        _TEXT,
    )
    pieces = train_wordpiece(words, _VOCABULARY - 1, _TEXT.alphabet, min_frequency=2)
    tokenizer = build_tokenizer(pieces, _TEXT, (MASK,))
    write_atomically(files.tokenizer, lambda partial: tokenizer.save(str(partial)))
    trie = build_trie(read_given(files.tokenizer, (MASK,)).tokenizer, form)
    write_atomically(files.trie, trie.save)
    return files


def _write_policy(path: Path, known_words: tuple[str, ...]) -> None:
    """The package's conservative policy, told which words are ordinary in this trade."""
    options = package_policy("conservative").options.model_copy(update={"known_words": known_words})
    text = yaml.safe_dump(options.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    write_atomically(path, lambda partial: _write(partial, text))


_WORD = re.compile(r"[A-Za-z]+")


def _common_words(public: list[Unit], dialogues: int) -> list[str]:
    """Words that stand in small letters in at least so many public dialogues, sorted; none if that is 0."""
    if dialogues == 0:
        return []
    pairs = {(word, dialogue_of(line)) for line in public for word in _WORD.findall(line.texts[0])}
    found = Counter(word for word, _ in pairs if word.islower())
    return sorted(word for word, count in found.items() if count >= dialogues)


def _redacted(lines: list[Unit]) -> list[str]:
    screener = Screener(package_policy("balanced"), package_policy("conservative"), "record")
    points, _ = screener.screen([line.texts[0] for line in lines])
    return [own[0].text for own in points]


def _taken(dialogues: Iterator[tuple[str, list[str]]], wanted: int, place: str) -> list[Unit]:
    """The lines of the first dialogues, blank ones left out."""
    lines: list[Unit] = []
    for count, (name, turns) in enumerate(dialogues, start=1):
        lines += [Unit(f"{name}#{number}", (turn,)) for number, turn in enumerate(turns) if turn.strip()]
        if count == wanted:
            return lines
    raise DataError(f"{place}: there are fewer than {wanted} dialogues; restore the file")


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_atomically(path, lambda partial: _write(partial, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


# The corpora as they are stored


def _customersim(data: Path, part: str) -> Iterator[tuple[str, list[str]]]:
    for values in _records(data / "customersim" / f"customersim.{part}.jsonl.gz"):
        yield values["id"], values["text"].split("\n")


def _multiwoz(data: Path, part: str) -> Iterator[tuple[str, list[str]]]:
    """Trained on are ConvLab-2's validation part, which has gold spans of the reference numbers, and a shard of MultiWOZ 2.2."""
    files = {
        "train": ("multiwoz-convlab2.val", "multiwoz22.train-shard001.text"),
        "test": ("multiwoz-convlab2.test",),
    }
    for file in files[part]:
        yield from _turns(data / "multiwoz" / f"{file}.jsonl.gz")


_SGD = {"train": "train", "test": "dev"}


def _sgd(data: Path, part: str) -> Iterator[tuple[str, list[str]]]:
    yield from _turns(data / "sgd" / f"sgd.{_SGD[part]}.jsonl.gz")


def _turns(path: Path) -> Iterator[tuple[str, list[str]]]:
    for values in _records(path):
        yield values["id"], [read_turn(turn, Turns(), path.name).line for turn in values["turns"]]


_READERS = {"customersim": _customersim, "multiwoz": _multiwoz, "sgd": _sgd}


def _records(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)
        return
    except (OSError, EOFError, ValueError):
        pass
    raise DataError(f"{path}: the file cannot be read; give --data the folder that holds {path.parent.name}/")

"""The experiment's corpora as files: notes to train on, notes that are left out, public text, word lists, and the tasks.

Nearly all annotated notes (``mtsamples-ner``) are also in ``mtsamples``: they are taken out of the private text, so that no model has
seen in pre-training what it is tested on. Public medical text is held to the same rule, and nothing in it shares text with a private
note.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tacit.corpus.annotations import read_annotated
from tacit.corpus.overlap import RunIndex
from tacit.errors import UsageError
from tacit.files import read_json, write_atomically, write_json
from tacit.reproduce.hoory import stored
from tacit.reproduce.hoory.scale import Scale
from tacit.reproduce.writing import write_text
from tacit.vocabulary.public_words import OFTEN, count_public_words, write_public_words
from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer
from tacit.vocabulary.wordpiece import train_wordpiece

__all__ = ["CorpusFiles", "left_out", "prepare", "sizes_of"]

_TEXT = TokenizerOptions()
_SHARED = 0.2
_VERSION = 2  # of the rules by which texts are chosen; results of others are not mixed with them
_HELD_OUT_ANSWERS = 400
_TIMES = 8  # that a public clinical note is in the medical text: as they are, they would be a fortieth of its words


@dataclass(frozen=True)
class CorpusFiles:
    """Where the prepared files lie. Texts are JSONL with id and text, tokenizers WordPiece."""

    folder: Path

    @property
    def notes(self) -> Path:
        """The private text: clinical notes of which none is annotated."""
        return self.folder / "notes.jsonl"

    @property
    def left_out(self) -> Path:
        """The notes that share text with an annotated one."""
        return self.folder / "left-out.jsonl"

    @property
    def general(self) -> Path:
        """Novels and Wikipedia."""
        return self.folder / "general.jsonl"

    @property
    def answers(self) -> Path:
        """Health answers."""
        return self.folder / "answers.jsonl"

    @property
    def medical(self) -> Path:
        """Health answers, abstracts, and notes and dialogues of played consultations."""
        return self.folder / "medical.jsonl"

    @property
    def held_out_answers(self) -> Path:
        """Health answers that no model is trained on."""
        return self.folder / "held-out-answers.jsonl"

    def public_words(self, vocabulary: str) -> Path:
        """Words with their counts, of general text (``general``) or of all public text (``public``)."""
        return self.folder / f"{vocabulary}-words.tsv"

    def tokenizer(self, vocabulary: str) -> Path:
        """Of the vocabularies ``general``, ``public`` and ``own``, which no mechanism makes."""
        return self.folder / f"{vocabulary}.json"

    def task(self, name: str, part: str) -> Path:
        """Annotated sentences of a task with a split of its own."""
        return self.folder / f"{name}-{part}.tsv"

    @property
    def sizes(self) -> Path:
        """How many records and words each file has."""
        return self.folder / "sizes.json"


def prepare(data: Path, scale: Scale, folder: Path) -> CorpusFiles:
    """Write the files, or leave those that are there.

    Args:
        data: the folder with the corpora's folders.
        folder: where the files go.

    Raises:
        DataError: a corpus is missing or damaged.
        UsageError: the files that are there were chosen by other rules.
    """
    files = CorpusFiles(folder)
    if files.sizes.exists():
        if read_json(files.sizes).get("version") != _VERSION:
            raise UsageError(f"{folder}: the corpora there were chosen by other rules; begin in another folder (--out)")
        return files
    folder.mkdir(parents=True, exist_ok=True)
    notes = stored.notes(data)
    tested = [" ".join(document.tokens) for document in read_annotated(data / "mtsamples-ner" / "notes", "bio")]
    of_notes, of_tested = RunIndex(notes), RunIndex(tested)
    out = left_out(notes, of_tested)
    private = [text for number, text in enumerate(notes) if number not in out]
    general = [*stored.novels(data, scale.novels), *stored.paragraphs(data, scale.paragraphs)]
    found = list(islice(dict.fromkeys(stored.answers(data)), scale.answers))
    dialogues, played = _played(data, of_notes, of_tested)
    held_out, answers = found[:_HELD_OUT_ANSWERS], _others(found[_HELD_OUT_ANSWERS:], of_notes)
    once = [*answers, *dialogues, *_others(stored.abstracts(data), RunIndex(_sentences(data)), of_notes)]
    texts = {
        files.notes: private,
        files.left_out: [notes[number] for number in sorted(out)],
        files.general: general,
        files.answers: answers,
        files.medical: [*once, *_TIMES * played],
        files.held_out_answers: held_out,
    }
    for path, own in texts.items():
        _write_texts(path, own)
    _write_vocabularies(files, private, general, [*once, *played], scale.vocabulary)
    for name, size in scale.tasks.items():
        if size.folds == 1:
            for part, most in (("train", size.sentences), ("test", None)):
                write_text(files.task(name, part), "\n".join(islice(stored.diseases(data, part), most)))
    sizes = {
        path.stem: {"records": len(own), "words": sum(len(text.split()) for text in own)} for path, own in texts.items()
    }
    write_json(files.sizes, {**sizes, "annotated notes": len(tested), "version": _VERSION})
    return files


def left_out(texts: Sequence[str], *others: Sequence[str] | RunIndex) -> set[int]:
    """The texts that share a fifth of the runs of six words with one of the others, of the shorter one's runs.

    Annotated notes are tokenised and have their names replaced, so they are never equal to their source. Standard phrases, such as
    those of a review of systems, are shared by unrelated notes, but not to that extent.
    """
    indexes = [other if isinstance(other, RunIndex) else RunIndex(other) for other in others]
    return {number for number, text in enumerate(texts) if any(_shares(text, index) for index in indexes)}


def _shares(text: str, index: RunIndex) -> bool:
    shared = index.likest(text)
    return shared is not None and shared.share >= _SHARED


def _others(texts: Sequence[str], *others: RunIndex) -> list[str]:
    """Without those that share text with the others."""
    out = left_out(texts, *others)
    return [text for number, text in enumerate(texts) if number not in out]


def _played(data: Path, *notes: RunIndex) -> tuple[list[str], list[str]]:
    """Dialogues and notes of the consultations of which neither shares text with a clinical note.

    One of ACI-Bench was played from a note of MTSamples: its note is that one with other names, its dialogue says the same.
    """
    pairs = stored.consultations(data)
    out = left_out([said for said, _ in pairs], *notes) | left_out([written for _, written in pairs], *notes)
    chosen = [pair for number, pair in enumerate(pairs) if number not in out]
    return [said for said, _ in chosen], [written for _, written in chosen]


def _sentences(data: Path) -> list[str]:
    """That NCBI-disease tests on."""
    return [stored.words_of(sentence) for sentence in stored.diseases(data, "test")]


def _write_vocabularies(
    files: CorpusFiles, private: list[str], general: list[str], medical: list[str], size: int
) -> None:
    """Tokenizers from counts without noise: two of public text, and BERT-M's own, of the notes, for which nothing is paid."""
    of_general = count_public_words(general, _TEXT)
    both = count_public_words(medical, _TEXT)
    for word, count in of_general.items():
        both[word] = both.get(word, 0) + count
    counts = {"general": of_general, "public": both, "own": count_public_words(private, _TEXT)}
    for name, own in counts.items():
        pieces = train_wordpiece(_frequent(own), size, _TEXT.alphabet, min_frequency=2)
        tokenizer = build_tokenizer(pieces, _TEXT)
        write_atomically(files.tokenizer(name), lambda partial, made=tokenizer: made.save(str(partial)))
    for name in ("general", "public"):
        write_atomically(
            files.public_words(name), lambda partial, own=counts[name]: write_public_words(partial, _frequent(own))
        )


def _frequent(counts: dict[str, int]) -> dict[str, int]:
    """Without the long tail of rare words, which make no piece of their own and cost most of the time."""
    return {word: count for word, count in counts.items() if count >= OFTEN}


def _write_texts(path: Path, texts: Sequence[str]) -> None:
    rows = (json.dumps({"id": f"{path.stem}-{number}", "text": text}) for number, text in enumerate(texts))
    write_text(path, "".join(f"{row}\n" for row in rows))


def sizes_of(files: CorpusFiles) -> dict[str, Any]:
    """Records and words of each corpus."""
    return read_json(files.sizes)

"""The experiment's corpora as files: private text to train on, some that is left out, public text, word lists, and the tasks.

Nearly all annotated notes (``mtsamples-ner``) are also in ``mtsamples``: they are taken out of the private text, so that no model has
seen in pre-training what it is tested on. Public medical text is held to the same rule, and nothing in it shares text with a private
note.

Dialogues that are labelled or tested on are drawn from SGD's training part and are no private text of a model; those of its other
part are tested on where all their services are unseen. Templates repeat across dialogues, so that the former are easier.
"""

from __future__ import annotations

import hashlib
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
from tacit.reproduce.hoory.cells import LABELLED, SLOTS, TESTED, UNITS, Private
from tacit.reproduce.hoory.likelihood import train_by_likelihood
from tacit.reproduce.hoory.scale import Scale
from tacit.reproduce.writing import write_text
from tacit.vocabulary.public_words import OFTEN, count_public_words, write_public_words
from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer
from tacit.vocabulary.wordpiece import train_wordpiece

__all__ = ["CorpusFiles", "left_out", "prepare", "sizes_of"]

_TEXT = TokenizerOptions()
_SHARED = 0.2
_HELD_OUT_STAND_IN = 300
_VERSION = 4  # of the rules by which texts are chosen; results of others are not mixed with them
_HELD_OUT_ANSWERS = 400
_TIMES = 8  # that a public clinical note is in the medical text: as they are, they would be a fortieth of its words


@dataclass(frozen=True)
class CorpusFiles:
    """Where the prepared files lie. Texts are JSONL with id and text, tokenizers WordPiece."""

    folder: Path

    def private(self, name: Private) -> Path:
        """A private corpus: clinical notes of which none is annotated, or dialogues of which none is labelled or tested on."""
        return self.folder / f"{name}.jsonl"

    def left_out(self, name: Private) -> Path:
        """Such texts that no model is trained on: notes that share text with an annotated one; dialogues that are tested on."""
        return self.folder / f"left-out-{name}.jsonl"

    @property
    def unseen(self) -> Path:
        """Dialogues of services that no other dialogue is about."""
        return self.folder / "unseen-dialogues.jsonl"

    def stand_in(self, name: Private) -> Path:
        """Public dialogues in a private corpus's place, and as many."""
        return self.folder / f"stand-in-{name}.jsonl"

    @property
    def held_out_stand_in(self) -> Path:
        """Public dialogues that no model is trained on."""
        return self.folder / "held-out-stand-in.jsonl"

    @property
    def general(self) -> Path:
        """Novels and Wikipedia."""
        return self.folder / "general.jsonl"

    @property
    def medical(self) -> Path:
        """Health answers, abstracts, and notes and dialogues of played consultations."""
        return self.folder / "medical.jsonl"

    @property
    def held_out_answers(self) -> Path:
        """Health answers that no model is trained on: the public text of a run that reads none."""
        return self.folder / "held-out-answers.jsonl"

    def public_words(self, vocabulary: str) -> Path:
        """Words with their counts, of general text (``general``) or of all public text (``public``)."""
        return self.folder / f"{vocabulary}-words.tsv"

    def tokenizer(self, vocabulary: str, private: Private | None = None) -> Path:
        """The tokenizer of a vocabulary without a mechanism: ``general``, ``likelihood``, ``public``, ``own`` of a private corpus."""
        return self.folder / f"{vocabulary}{'' if private is None else f'-{private}'}.json"

    def task(self, name: str, part: str) -> Path:
        """Annotated documents of a task with a split of its own: sentences in columns, or turns as JSON lines."""
        return self.folder / f"{name}-{part}.{'jsonl' if name.startswith('dialogues') else 'tsv'}"

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
    said, played = _played(data, of_notes, of_tested)
    held_out, answers = found[:_HELD_OUT_ANSWERS], _others(found[_HELD_OUT_ANSWERS:], of_notes)
    once = [*answers, *said, *_others(stored.abstracts(data), RunIndex(_sentences(data)), of_notes)]
    parts = _dialogues(data, files, scale)
    texts = {
        files.private("notes"): private,
        files.left_out("notes"): [notes[number] for number in sorted(out)],
        **parts,
        files.general: general,
        files.medical: [*once, *_TIMES * played],
        files.held_out_answers: held_out,
    }
    for path, own in texts.items():
        _write_texts(path, own)
    own_words: dict[Private, list[str]] = {"notes": private, "dialogues": parts[files.private("dialogues")]}
    _write_vocabularies(files, own_words, general, [*once, *played], scale.vocabulary)
    if "ncbi-disease" in scale.tasks:
        for part in ("train", "test"):
            _write_diseases(files, data, part, scale.tasks["ncbi-disease"].labelled if part == "train" else None)
    sizes = {
        path.stem: {"records": len(own), "words": sum(len(text.split()) for text in own)} for path, own in texts.items()
    }
    write_json(files.sizes, {**sizes, "annotated notes": len(tested), "version": _VERSION})
    return files


def _dialogues(data: Path, files: CorpusFiles, scale: Scale) -> dict[Path, list[str]]:
    """The texts of dialogues, by file; the labelled ones are written here."""
    drawn = sorted(stored.dialogues(data, "train"), key=lambda dialogue: _drawn(dialogue.dialogue_id))
    labelled, private = drawn[:LABELLED], drawn[LABELLED + TESTED :]
    tested = drawn[LABELLED : LABELLED + TESTED][: scale.tested]
    seen = frozenset[str]().union(*(dialogue.services for dialogue in drawn))
    others = (dialogue for dialogue in stored.dialogues(data, "dev") if not dialogue.services & seen)
    unseen = list(islice(others, scale.tested))
    for task, size in scale.tasks.items():
        if size.private == "dialogues":
            _write_annotated(files.task(task, "train"), {"labelled": labelled[: size.labelled]})
            _write_annotated(files.task(task, "test"), {"seen": tested, "unseen": unseen})
    public = sorted(stored.stand_in_dialogues(data), key=_drawn)
    held_out, rest = public[:_HELD_OUT_STAND_IN], public[_HELD_OUT_STAND_IN:]
    stands_in = {
        files.stand_in(name): [rest[number % len(rest)] for number in range(units)] for name, units in UNITS.items()
    }
    return {
        files.private("dialogues"): [dialogue.text for dialogue in private],
        files.left_out("dialogues"): [dialogue.text for dialogue in tested],
        files.unseen: [dialogue.text for dialogue in unseen],
        **stands_in,
        files.held_out_stand_in: held_out,
    }


def _drawn(text: str) -> bytes:
    """An order that has nothing to do with the text."""
    return hashlib.sha256(text.encode()).digest()


def _write_annotated(path: Path, parts: dict[str, list[stored.Dialogue]]) -> None:
    """JSON lines of turns; a dialogue's id begins with the name of its part, in whose order documents are read."""
    rows = (
        json.dumps({"id": f"{part}-{number:05d}", **turn})
        for part, dialogues in parts.items()
        for number, dialogue in enumerate(dialogues)
        for turn in dialogue.annotated(SLOTS)
    )
    write_text(path, "".join(f"{row}\n" for row in rows))


def _write_diseases(files: CorpusFiles, data: Path, part: str, most: int | None) -> None:
    """Blocks of consecutive sentences as documents: NCBI-disease's file does not say where an abstract ends."""
    found = islice(stored.blocks(list(stored.diseases(data, part))), most)
    write_text(
        files.task("ncbi-disease", part), "".join("-DOCSTART-\tO\n\n" + "\n".join(block) + "\n" for block in found)
    )


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
    """The texts without those that share text with the others."""
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
    files: CorpusFiles, private: dict[Private, list[str]], general: list[str], medical: list[str], size: int
) -> None:
    """Tokenizers from counts without noise: of public text, and BERT-M's own, of private text, for which nothing is paid."""
    of_general = count_public_words(general, _TEXT)
    both = count_public_words(medical, _TEXT)
    for word, count in of_general.items():
        both[word] = both.get(word, 0) + count
    counts = {files.tokenizer("general"): of_general, files.tokenizer("public"): both}
    counts |= {files.tokenizer("own", name): count_public_words(texts, _TEXT) for name, texts in private.items()}
    for path, own in counts.items():
        _write_tokenizer(path, train_wordpiece(_frequent(own), size, _TEXT.alphabet, min_frequency=2))
    by_likelihood = train_by_likelihood(_frequent(of_general), size, _TEXT.alphabet, min_frequency=2)
    _write_tokenizer(files.tokenizer("likelihood"), by_likelihood)
    for name, own in (("general", of_general), ("public", both)):
        write_atomically(
            files.public_words(name), lambda partial, made=own: write_public_words(partial, _frequent(made))
        )


def _write_tokenizer(path: Path, pieces: list[str]) -> None:
    tokenizer = build_tokenizer(pieces, _TEXT)
    write_atomically(path, lambda partial: tokenizer.save(str(partial)))


def _frequent(counts: dict[str, int]) -> dict[str, int]:
    """The counts without the long tail of rare words, which make no piece of their own and cost most of the time."""
    return {word: count for word, count in counts.items() if count >= OFTEN}


def _write_texts(path: Path, texts: Sequence[str]) -> None:
    rows = (json.dumps({"id": f"{path.stem}-{number}", "text": text}) for number, text in enumerate(texts))
    write_text(path, "".join(f"{row}\n" for row in rows))


def sizes_of(files: CorpusFiles) -> dict[str, Any]:
    """Records and words of each corpus."""
    return read_json(files.sizes)

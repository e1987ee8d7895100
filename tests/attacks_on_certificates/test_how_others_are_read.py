"""One record decided how others are read (TACIT-27), or whether a fine-tuning ends (TACIT-28).

The first line of a BIO file said whether all its lines are cut at tabs or at blanks: epsilon 0.5 was certified, and the weights told
of one document more in 12 of 12 runs. A document without a blank line at its end went on in the next one. A record that begins with
U+FEFF lost it only where it stood first in its file. An id that two users had chosen, and too few documents for the folds, ended a
fine-tuning, the latter after the release.

Reading has to be a homomorphism: records after others are read as they are alone.
"""

from __future__ import annotations

import codecs
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.config.compare import TaskOptions
from tacit.config.finetune import FinetuneConfig
from tacit.corpus.annotated import AnnotatedDocument, Sentence, refuse_shared_documents, units_of
from tacit.corpus.annotations import AnnotatedFields, read_annotated
from tacit.corpus.readers import Source, read_records
from tacit.entities import rows
from tacit.entities.cells import splits_of
from tacit.entities.finetune import FinetuneResult, finetune
from tacit.entities.folds import TooFewGroupsError
from tacit.entities.rows import split_labels
from tacit.errors import DataError, UsageError
from tacit.files import read_json
from tacit.progress import Bar, SilentReporter
from tacit.randomness import KeyedRandomness
from tacit.screening.adapters.span_files import read_conll

from ..entities.annotated import DP, LABELS, configured, write_notes
from ..entities.documents import TAGS, telling_cutter
from ..folders import bert_folder

Read = Callable[[str], "list[Any] | None"]
"""What a file with this text holds; None: it is refused."""

MARK = "\ufeff"


def broken(read: Read, parts: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of parts that are not read one after the other as each is alone."""

    def together(one: str, other: str) -> list[Any] | None:
        found = read(one), read(other)
        return None if found[0] is None or found[1] is None else [*found[0], *found[1]]

    return [pair for pair in itertools.product(parts, repeat=2) if read("".join(pair)) != together(*pair)]


# documents of a BIO file ---------------------------------------------------------------------------------------------

DOCUMENTS = (
    "-DOCSTART-\t-X- O\n\nfever pain\tB-problem\n\n",
    "-DOCSTART- -X- O\n\nthe O O\n\n",
    "-DOCSTART-\t-X-\tO\n\nthe\tDT\tO\nold\tJJ\tB-test\n\nend\tNN\tO\n",  # no blank line at the end
    "-DOCSTART-\tO\n\nthe\tDT\tO\nold\tJJ\tB-test\n\nend\tO\n",  # two widths
    "-DOCSTART-\tO\nbad\tB-problem\npain\tI-problem\n\nagain\tI-problem\n",
    f"-DOCSTART- O\n\n{MARK}pain B-problem\n{MARK}{MARK}of O\n",
)


def documents(path: Path, text: str) -> list[Any] | None:
    path.write_text(text, encoding="utf-8")
    try:
        read = read_annotated(path)
    except DataError:
        return None
    return [[list(zip(one.tokens, one.tags, strict=True)) for one in document.sentences] for document in read]


def documents_by_first_line(text: str) -> list[Any] | None:
    """Known wrong, as it was: the first line's separator and width are the file's, and only a blank line ends a sentence."""
    tab = "\t" in text.splitlines()[0]
    found: dict[int, list[list[tuple[str, str]]]] = {}
    sentence: list[tuple[str, str]] = []
    started, columns = 0, 0
    for line in [*text.splitlines(), ""]:
        parts = line.split("\t") if tab else line.split()
        columns = columns or len(parts)
        if not line:
            found.setdefault(started, []).extend([sentence] if sentence else [])
            sentence = []
        elif len(parts) != columns:
            return None
        elif parts[0] == "-DOCSTART-":
            started += 1
        else:
            sentence.append((parts[0], parts[-1]))
    return [document for document in found.values() if document]


def test_no_document_changes_how_another_one_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "all.bio"
    assert all(documents(path, text) is not None for text in DOCUMENTS)
    assert documents(path, DOCUMENTS[1] + DOCUMENTS[0]) == [[[("the", "O")]], [[("fever pain", "B-problem")]]]
    assert broken(lambda text: documents(path, text), DOCUMENTS) == []
    caught = broken(documents_by_first_line, DOCUMENTS[:3])
    assert (DOCUMENTS[1], DOCUMENTS[0]) in caught  # cut at blanks: "fever" is a token, and "pain" lost
    assert (DOCUMENTS[0], DOCUMENTS[2]) in caught  # refused
    assert (DOCUMENTS[2], DOCUMENTS[2]) in caught  # one goes on in the other


def documents_by_any_mark(path: Path, text: str) -> list[Any] | None:
    """Known wrong, as it was: what stands before the first mark is one document where another one has it, and many where none has."""
    before, _, behind = text.partition("-DOCSTART-")
    found = documents(path, before) if before else []
    if found is None or not behind:
        return found
    return [*([[*itertools.chain(*found)]] if found else []), *(documents(path, f"-DOCSTART-{behind}") or [])]


def test_one_document_with_a_mark_changes_nothing_of_one_without(tmp_path: Path) -> None:
    """28th attack, TACIT-47: a document of two sentences was two or one, by whether another one had the line."""
    path, plain = tmp_path / "all.bio", "the\tO\n\nold\tB-test\n\n"
    alone = documents(path, plain)
    assert alone is not None
    assert len(alone) == 2
    caught = documents_by_any_mark(path, plain + DOCUMENTS[1])
    assert caught is not None
    assert caught[:2] != alone
    assert documents(path, plain + DOCUMENTS[1]) is None
    with pytest.raises(DataError, match=r"before the first -DOCSTART- line; put one before every document"):
        read_annotated(path)


def test_lines_of_a_sentence_have_one_width(tmp_path: Path) -> None:
    """What is left of the check finds a token with a blank in it whose tab is missing."""
    for line in ("New York B-problem", "a\tb\tO"):
        assert documents(tmp_path / "a.bio", f"the\tO\n{line}\n") is None


# marks where a line begins -------------------------------------------------------------------------------------------

MOST = 24  # bytes of a record
TEXTS = (
    "plain",
    f"{MARK}begins",
    f"{MARK}{MARK}twice",
    MARK,
    f" {MARK}behind a blank",
    f"in{MARK}side",
    "x" * MOST,
    MARK + "x" * MOST,
    "x" * (MOST + 1),
    MARK + "x" * (MOST + 1),
    "x" * MOST + "\r\ry",
)


def as_json(text: str) -> str:
    """The marks stand before the object."""
    marks = text[: len(text) - len(text.lstrip(MARK))]
    return marks + json.dumps({"t": text[len(marks) :]}, ensure_ascii=False) if text != MARK else MARK


LINES: dict[str, Callable[[str], str]] = {
    "txt": lambda text: f"{text}\n",
    "jsonl": lambda text: f"{as_json(text[: MOST - 8])}\n",
    "csv": lambda text: f"{text},7\n" if "\r" not in text else "plain,7\n",
    "conll": lambda text: f"{text}\tO\n\n" if text != MARK else f"{MARK}\n",
}


def texts_of(path: Path, text: str) -> list[Any] | None:
    path.write_bytes(text.encode())
    try:
        return [record.text for record in read_records(Source(path, text_field="t", max_record_bytes=MOST))]
    except DataError as error:
        return [] if "the corpus is empty" in str(error) else None


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("marked", [False, True], ids=["", "the file's own mark"])
def test_a_mark_goes_wherever_its_record_stands(tmp_path: Path, name: str, marked: bool) -> None:
    path = tmp_path / f"a.{name}"
    head = MARK * marked + ("t,n\n" if name == "csv" else "")
    parts = [LINES[name](text) for text in TEXTS]
    assert broken(lambda text: texts_of(path, head + text), parts) == []
    assert [texts_of(path, head + part) for part in parts] == [
        texts_of(path, head.lstrip(MARK) + part) for part in parts
    ]
    assert texts_of(path, head + LINES[name](f"{MARK}{MARK}ab")) == ["ab"]


def text_of_first_mark(text: str) -> list[Any] | None:
    """Known wrong, as it was: of a file's first line alone, and within the cap."""
    lines = text.encode().splitlines(keepends=True)
    if any(len(line.rstrip(b"\r\n")) > MOST for line in lines):
        return None
    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
    return [line.decode().rstrip("\r\n") for line in lines if line.strip()]


def test_a_mark_of_the_first_line_alone_is_caught() -> None:
    parts = [LINES["txt"](text) for text in TEXTS[:-1]]
    assert ("plain\n", f"{MARK}begins\n") in broken(text_of_first_mark, parts)
    assert text_of_first_mark(MARK + "x" * MOST) is None  # of a file's own mark: as the second line it is read
    assert text_of_first_mark("plain\n" + "x" * MOST) is not None


def test_spans_are_of_the_texts_that_the_corpus_has(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("".join(f"{MARK * number}a{number}\tO\n\n" for number in range(3)), encoding="utf-8")
    assert [entry.text for entry in read_conll(path)] == [record.text for record in read_records(Source(path))]


# ids -----------------------------------------------------------------------------------------------------------------

WHOSE = AnnotatedFields("note", "who")


def row(who: str, note: str, word: str) -> str:
    return json.dumps({"who": who, "note": note, "tokens": [word, "pain"], "tags": ["O", "B-problem"]}) + "\n"


def words(found: Sequence[AnnotatedDocument]) -> list[str]:
    return [document.tokens[0] for document in found]


def test_an_id_that_another_user_has_too_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    mine = [row("u", "1", "a"), row("u", "2", "b")]
    worlds = [[*mine, row("v", note, "c")] for note in ("3", "1")]
    for lines in (*worlds, *(world[::-1] for world in worlds)):
        path.write_text("".join(lines))
        read = read_annotated(path, "jsonl", WHOSE)
        assert sorted(words(read)) == ["a", "b", "c"]
        for unit, expected in (("user", [["a", "b"], ["c"]]), ("document", [["a"], ["b"], ["c"]])):
            units = units_of(read, unit)
            assert sorted(words(one.documents) for one in units) == expected
            assert len({one.unit_id for one in units}) == len(units)
        assert len({one.unit_id for one in units_of(read, "sentence")}) == 3
    by_id: dict[str, list[str]] = {}  # known wrong: of an id alone
    for line in worlds[1]:
        by_id.setdefault(json.loads(line)["note"], []).append(json.loads(line)["tokens"][0])
    assert by_id["1"] == ["a", "c"]


def test_equal_ids_of_two_users_may_be_on_two_sides_of_a_split(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(row(who, "1", f"w{who}") for who in "uvwx"))
    task = TaskOptions(path=str(path), format="jsonl", id_field="note", user_field="who", folds=4, labels=("problem",))
    assert sorted(words([document for split in splits_of(task) for document in split.test])) == ["wu", "wv", "ww", "wx"]


# folds ---------------------------------------------------------------------------------------------------------------


class Lines(SilentReporter):
    """Keeps what is said: lines, and stages with how far they came."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []

    def say(self, line: str) -> None:
        self.said.append((line, 0))

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Bar]:
        reached = [0]

        class Reached:
            def advance_to(self, done: int) -> None:
                reached[0] = done

        yield Reached()
        self.said += [(name, total), (name, reached[0])]


def tuning(folder: Path, name: str, model: Path, lines: Sequence[str], folds: int) -> FinetuneConfig:
    """A fine-tuning with DP on these lines, of a step."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(lines))
    documents = {"path": str(path), "format": "jsonl", "id_field": "note", "user_field": "who"}
    options: dict[str, Any] = {"documents": documents, "labels": LABELS, "folds": folds, "run": str(folder / name)}
    options |= {"training": {"steps": 1, "length": 16, "overlap": 2, "dropout": 0.0}}
    options |= {"model": {"folder": str(model), "public": True}, "dp": {**DP, "noise_multiplier": 2.0}}
    return configured(folder, model, **options)


def seen_of(config: FinetuneConfig) -> tuple[FinetuneResult, Any]:
    """What came of it, and what others see of that."""
    reporter = Lines()
    done = finetune(config, reporter)
    files = sorted(path.relative_to(done.folder).as_posix() for path in (done.folder / "release").rglob("*"))
    return done, (reporter.said, files, done.statement)


@pytest.mark.slow
def test_one_document_decides_whether_there_are_groups_enough_for_the_folds(tmp_path: Path) -> None:
    model = bert_folder(tmp_path / "bert")
    lines = [row(f"u{number % 3}", f"n{number}", f"w{number}") for number in range(6)]
    bridge = row("u0", "n9", "w1")  # says what a document of u1 says, so both are in one group
    seen: list[Any] = []
    scores: list[Any] = []
    for name, text in (("without", lines), ("with", [*lines, bridge])):
        config = tuning(tmp_path, name, model, text, folds=3)
        done, shown = seen_of(config)
        seen.append(shown)
        assert done.scores is not None
        scores.append(read_json(done.scores))
        assert finetune(config).scores == done.scores  # once more: nothing is left to do
    assert seen[0] == seen[1]
    assert ("Fine-tuning and scoring", 3) in seen[0][0]
    assert scores[0]["folds"] == 3
    assert scores[1]["undecided"] == "undecided: fewer different documents, or users, than 3 folds"
    assert scores[1].keys() == {"of", "undecided"}
    task = TaskOptions(path=str(tmp_path / "with.jsonl"), format="jsonl", id_field="note", user_field="who", folds=3)
    with pytest.raises(TooFewGroupsError, match=re.escape("2 different documents, or users, are too few for 3 folds")):
        splits_of(task)  # known wrong: as it was, this ended the fine-tuning with exit code 4


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [[], [""], [" "], ["\u2028", "\x00"]], ids=repr)
def test_a_document_without_words_ends_no_fine_tuning(tmp_path: Path, tokens: list[str]) -> None:
    """29th attack, TACIT-49: an error named its line, and there was no release; of what adds nothing that is what was told."""
    model = bert_folder(tmp_path / "bert")
    lines = [row(f"u{number}", f"n{number}", f"w{number}") for number in range(6)]
    odd = json.dumps({"who": "u9", "note": "n9", "tokens": tokens, "tags": ["O"] * len(tokens)}) + "\n"
    _, without = seen_of(tuning(tmp_path, "without", model, lines, folds=2))
    _, beside = seen_of(tuning(tmp_path, "with", model, [*lines[:3], odd, *lines[3:]], folds=2))
    assert without == beside


@pytest.mark.slow
def test_nor_does_a_corpus_of_nothing_else(tmp_path: Path) -> None:
    """The last document with a word decided whether there is a release; and one without was "the same" as another in the test."""
    odd = [json.dumps({"who": who, "note": who, "tokens": [], "tags": []}) + "\n" for who in ("a", "b")]
    model = bert_folder(tmp_path / "bert")
    _, without = seen_of(tuning(tmp_path, "without", model, [row("c", "c", "w"), *odd], folds=2))
    _, beside = seen_of(tuning(tmp_path, "with", model, odd, folds=2))
    assert without[1:] == beside[1:]
    found = [*read_annotated(tmp_path / "with.jsonl", "jsonl", WHOSE)]
    refuse_shared_documents(found[:1], found[1:])


@pytest.mark.parametrize("unit", ["document", "sentence"])
def test_nor_does_a_file_of_documents_without_words(tmp_path: Path, unit: str) -> None:
    """34th attack, by reading: of BIO columns an empty document was none, and the last one with a word decided about a release."""
    model, start = bert_folder(tmp_path / "bert"), "-DOCSTART-\tO\n\n"
    word = "pain\tB-problem\n\n"
    with_it = start + word + start if unit == "document" else start + word
    dp = {**DP, "unit": unit, "units": 20, "expected_batch": 2, "noise_multiplier": 2.0}
    seen = []
    for name, text in (("with", with_it), ("without", start)):
        path = tmp_path / f"{name}.bio"
        path.write_text(text)
        options: dict[str, Any] = {"documents": {"path": str(path)}, "labels": LABELS, "dp": dp}
        options |= {"training": {"steps": 1, "length": 16, "overlap": 2, "dropout": 0.0, "context": unit}}
        options |= {"run": str(tmp_path / f"run-{name}"), "model": {"folder": str(model), "public": True}}
        _, shown = seen_of(configured(tmp_path, model, **options))
        seen.append(shown)
    assert seen[0] == seen[1]
    (empty,) = read_annotated(tmp_path / "without.bio")  # known wrong: there was none, which ended the fine-tuning
    assert empty.tokens == []


def test_a_files_name_that_is_no_utf_8_ends_no_fine_tuning(tmp_path: Path) -> None:
    model, folder = bert_folder(tmp_path / "bert"), write_notes(tmp_path / "notes", documents=3)
    (folder / os.fsdecode(b"caf\xe9.bio")).write_text("pain\tB-problem\n")
    dp = {**DP, "unit": "document", "noise_multiplier": 2.0}
    options: dict[str, Any] = {"documents": {"path": str(folder)}, "labels": LABELS, "dp": dp}
    options |= {"training": {"steps": 1, "length": 16, "overlap": 2, "dropout": 0.0}, "run": str(tmp_path / "run")}
    done = finetune(configured(tmp_path, model, model={"folder": str(model), "public": True}, **options))
    assert (done.folder / "release" / "certificate.json").exists()


# names of files: of a folder with one document, or one user, a file ------------------------------------------------------


def texts_in(path: Path, **options: Any) -> list[str]:
    return [record.text for record in read_records(Source(path, **options))]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "csv"])
def test_a_name_that_is_no_utf_8_is_a_name_in_every_format(ending: str, tmp_path: Path) -> None:
    """30th attack, TACIT-50: pyarrow takes no such name, and one document ended the run."""
    table = pa.table({"text": ["a note"]})
    for name in ("plain", os.fsdecode(b"Ren\xe9")):
        path = tmp_path / f"{name}.{ending}"
        with path.open("wb") as file:
            if ending == "parquet":
                pq.write_table(table, file)
            elif ending == "arrow":
                with pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table)
            else:
                file.write(b'{"text": "a note"}\n' if ending == "jsonl" else b"text\na note\n")
    assert texts_in(tmp_path) == ["a note", "a note"]


def test_a_document_called_like_the_pattern_is_one_of_many(tmp_path: Path) -> None:
    """30th attack, TACIT-50: it was the whole corpus then."""
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"note {number}\n")
    without = texts_in(tmp_path / "*.txt")
    (tmp_path / "*.txt").write_text("one more\n")
    assert sorted(texts_in(tmp_path / "*.txt")) == sorted([*without, "one more"])
    (tmp_path / "part-[0-9].txt").write_text("a bracket is a letter\n")
    assert texts_in(tmp_path / "part-[0-9].txt") == ["a bracket is a letter"]


@pytest.mark.parametrize("name", ["dataset_dict.json", "dataset_info.json", "state.json"])
def test_a_document_called_like_a_file_of_datasets_is_one(name: str, tmp_path: Path) -> None:
    """30th attack, TACIT-50: it ended the run, or decided which files are read."""
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(json.dumps([{"text": f"note {number}"}]))
    without = texts_in(tmp_path)
    telling = {"text": "one more", "splits": ["train"], "_data_files": [{"filename": "0.json"}]}
    (tmp_path / name).write_text(json.dumps([telling]))
    assert sorted(texts_in(tmp_path)) == sorted([*without, "one more"])
    (tmp_path / name).write_text(
        json.dumps(telling)
    )  # what datasets writes is no document, as every reader of JSON has it
    with pytest.raises(DataError):
        texts_in(tmp_path)


def test_what_lies_beside_a_saved_dataset_is_not_read(tmp_path: Path) -> None:
    """Known wrong: where some other document lies there, all Arrow files, of which some hold the same rows once more."""
    saved = Path(__file__).parents[1] / "corpus" / "saved"
    shutil.copytree(saved, tmp_path / "saved")
    shutil.copy(saved / "data-00000-of-00002.arrow", tmp_path / "saved" / "cache-1.arrow")
    (tmp_path / "saved" / "README.txt").write_text("what this is\n")
    for form in ("auto", "arrow"):
        found = texts_in(tmp_path / "saved", format=form, text_field="note")
        assert found == texts_in(saved, format=form, text_field="note")


# labels --------------------------------------------------------------------------------------------------------------


def test_no_label_of_a_document_is_a_number_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """28th attack, TACIT-47: an entry of the last of many types ended a fine-tuning, and only a document that has one makes it."""
    own = telling_cutter()
    document = AnnotatedDocument("a", Path("made-up"), (Sentence(("t0",), (TAGS[-1],), (1,)),), True)
    most = replace(own, special=replace(own.special, size=2**31 // (len(TAGS) + 1)))
    coded = np.asarray(most.rows([document], KeyedRandomness(bytes(32))).ids_ST)
    assert split_labels(coded, most.special.size)[1].max() == len(TAGS) - 1
    beyond = replace(own.special, size=2**31 // len(TAGS))
    with pytest.raises(UsageError, match=f"there may be at most {len(TAGS) - 1}"):
        replace(own, special=beyond)
    monkeypatch.setattr(rows, "_MOST_ENTRIES", 2**40)
    with pytest.raises(OverflowError):
        replace(own, special=beyond).rows([document], KeyedRandomness(bytes(32)))

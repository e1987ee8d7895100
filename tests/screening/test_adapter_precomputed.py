"""Spans from files: against spans that were put there, and files that do not belong to their corpus."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.corpus import Source, read_records
from tacit.errors import DataError, TacitError, UsageError
from tacit.screening.adapters.options import PrecomputedOptions, TextsOptions
from tacit.screening.adapters.precomputed import PrecomputedDetector
from tacit.screening.adapters.registry import detector_from_options
from tacit.screening.adapters.span_files import aligned_conll, read_conll
from tacit.screening.redact import MASK
from tacit.screening.spans import Detector, Span, merged
from tacit.screening.split import reserve_mask

from .gold import GOLD, Part

SECRET = "zqsecret"


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    return path


def detector(path: Path, texts: Path | None = None, **options: Any) -> Detector:
    own = None if texts is None else TextsOptions(path=str(texts), id_field="id")
    return detector_from_options(PrecomputedOptions(path=str(path), texts=own, **options))


# JSON lines


def test_json_lines(tmp_path: Path) -> None:
    text = "é 😀 4111 Bob"
    file = write(
        tmp_path / "a.jsonl",
        {"text": text, "spans": [[9, 12, "name"], [4, 8, "card", 0.25], [3, 8, "all"]]},
        "",
        {"text": "plain", "spans": []},
    )
    expected = [
        Span(3, 8, "all", 0.5, "precomputed"),
        Span(4, 8, "card", 0.25, "precomputed"),
        Span(9, 12, "name", 0.5, "precomputed"),
    ]
    reader = detector(file, score=0.5)
    assert reader.spans_of([text, "plain", "", " \n"]) == [expected, [], [], []]
    assert [text[span.start : span.end] for span in reader.spans(text)] == [" 4111", "4111", "Bob"]
    zipped = tmp_path / "a.jsonl.gz"
    zipped.write_bytes(gzip.compress(file.read_bytes()))
    assert detector(zipped, score=0.5).spans(text) == expected


def test_a_text_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """The known-wrong version, ``spans.get(text, [])``, would let every new text through as it is."""
    reader = detector(write(tmp_path / "a.jsonl", {"text": "known", "spans": []}))
    for unknown in (f"{SECRET}", "known ", "Known", "\u200b"):
        with pytest.raises(DataError, match="nothing on a text of the corpus") as caught:
            reader.spans_of(["known", unknown])
        assert SECRET not in str(caught.value)


def test_a_text_that_is_marked_in_two_ways_is_an_error(tmp_path: Path) -> None:
    """The spans of all its places, as it was, make the secret of one record decide what is masked in its copies.

    Twenty copies of a text, one of them with a mark: with the one record's secret masked beforehand the twenty others lost their
    mask, where the certificate said that one record changes.
    """
    marked, plain = ({"text": "May is here", "spans": spans} for spans in ([[0, 3, "name"]], []))
    with pytest.raises(
        DataError, match=r"a\.jsonl, line 3: it marks other places of the text that is at .*a\.jsonl, line 1 too"
    ):
        detector(write(tmp_path / "a.jsonl", plain, plain, marked))
    other_label = {"text": "May is here", "spans": [[0, 3, "month"]]}
    with pytest.raises(DataError, match="mark equal texts in the same way"):
        detector(write(tmp_path / "b.jsonl", marked, other_label))
    reader = detector(write(tmp_path / "c.jsonl", marked, {"text": "May is here", "spans": [[0, 3, "name"]] * 2}))
    assert [span.label for span in reader.spans("May is here")] == ["name"]


@pytest.mark.parametrize("text", [MASK, f"I am {MASK}, Ann", r"<\MASK> Ann <\\MASK>", f"{MASK}{MASK}Ann{MASK}"])
def test_a_text_with_a_mask_of_its_own(tmp_path: Path, text: str) -> None:
    """Screening escapes it before it asks; the file has the text as it is in the corpus. One record decided whether that failed."""
    places = [(start, end) for start in range(len(text)) for end in range(start + 1, len(text) + 1)]
    file = write(tmp_path / "a.jsonl", {"text": text, "spans": [[start, end, "x"] for start, end in places]})
    reader = detector(file)
    assert [(span.start, span.end) for span in reader.spans(text)] == places
    origin: list[int | None] = []  # of each character of the escaped text
    for place in range(len(text)):
        if place - 1 in {match.start() for match in re.finditer(r"<\\*MASK>", text)}:
            origin.append(None)
        origin.append(place)
    escaped = reserve_mask(text)
    assert len(escaped) == len(origin) > len(text)
    found = [[origin[place] for place in range(span.start, span.end)] for span in reader.spans(escaped)]
    assert [(one[0], (one[-1] or 0) + 1) for one in found] == places
    assert all(
        [place for place in one if place is not None] == list(range(*own))
        for one, own in zip(found, places, strict=True)
    )


def test_no_text_is_kept(tmp_path: Path) -> None:
    reader = detector(write(tmp_path / "a.jsonl", {"text": SECRET, "spans": [[0, 8, "x"]]}))
    assert SECRET not in repr(vars(reader))
    other = detector(tmp_path / "a.jsonl")
    assert isinstance(reader, PrecomputedDetector)
    assert isinstance(other, PrecomputedDetector)
    assert reader._spans.keys() != other._spans.keys()  # another key for each


def test_by_id(tmp_path: Path) -> None:
    corpus = write(
        tmp_path / "c.jsonl", {"id": "a", "text": "Bob é"}, {"id": 7, "text": "so Ann"}, {"id": "c", "text": "-"}
    )
    file = write(tmp_path / "a.jsonl", {"id": 7, "spans": [[3, 6, "name"]]}, {"id": "a", "text": "Bob é", "spans": []})
    reader = detector(file, corpus)
    assert reader.spans_of(["so Ann", "Bob é"]) == [[Span(3, 6, "name", 1.0, "precomputed")], []]
    with pytest.raises(DataError, match="nothing on"):
        reader.spans("-")


# CoNLL

SENTENCES = [
    [("Ann", "B-PER"), ("Lee", "I-PER"), ("of", "O"), ("Rome", "B-LOC"), ("Oslo", "B-LOC")],
    [("😀", "O"), ("é", "I-PER"), ("e\u0301", "I-LOC"), ("x", "I-LOC")],
    [("A", "B-X"), ("b", "E-X"), ("c", "S-X"), ("d", "U-Y"), ("e", "B-Y"), ("f", "L-Y"), ("g", "E-Y"), ("h", "I-Y-Z")],
]
RUNS = [
    [("Ann Lee", "PER"), ("Rome", "LOC"), ("Oslo", "LOC")],
    [("é", "PER"), ("e\u0301 x", "LOC")],
    [("A b", "X"), ("c", "X"), ("d", "Y"), ("e f", "Y"), ("g", "Y"), ("h", "Y-Z")],
]


def conll(path: Path, sentences: Sequence[Sequence[tuple[str, str]]] = SENTENCES, between: str = "\t") -> Path:
    lines = ["\n".join(f"{token}{between}{tag}" for token, tag in sentence) + "\n" for sentence in sentences]
    path.write_text("\n".join(lines), "utf-8")
    return path


@pytest.mark.parametrize("between", ["\t", " ", "\tNNP\t", " NNP "])
def test_conll(tmp_path: Path, between: str) -> None:
    reader = detector(conll(tmp_path / "a.conll", between=between))
    for sentence, expected in zip(SENTENCES, RUNS, strict=True):
        text = " ".join(token for token, _ in sentence)
        assert [(text[span.start : span.end], span.label) for span in reader.spans(text)] == expected


def test_conll_has_the_texts_that_the_corpus_reader_makes(tmp_path: Path) -> None:
    file = conll(tmp_path / "a.conll")
    texts = [record.text for record in read_records(Source(file))]
    assert [entry.text for entry in read_conll(file)] == texts


Align = Callable[[Path, list[str]], list[list[tuple[int, int]]]]


def ours(path: Path, texts: list[str]) -> list[list[tuple[int, int]]]:
    entries = {entry.text: [(span.start, span.end) for span in entry.spans] for entry in aligned_conll(path, texts)}
    return [entries[text] for text in texts]


def by_find(path: Path, texts: list[str]) -> list[list[tuple[int, int]]]:
    """Wrong: every tagged token's first place in its text."""
    sentences = [sentence.split("\n") for sentence in path.read_text("utf-8").strip().split("\n\n")]
    rows = [[line.split("\t") for line in sentence] for sentence in sentences]
    return [
        [(text.find(token), text.find(token) + len(token)) for token, tag in own if tag != "O"]
        for text, own in zip(texts, rows, strict=True)
    ]


def in_bytes(path: Path, texts: list[str]) -> list[list[tuple[int, int]]]:
    """Wrong: offsets of the encoded text."""
    return [
        [(len(text[:start].encode()), len(text[:end].encode())) for start, end in own]
        for text, own in zip(texts, ours(path, texts), strict=True)
    ]


def joined(path: Path, texts: list[str]) -> list[list[tuple[int, int]]]:
    """Wrong: as if the tokens were joined by single blanks in the corpus as well."""
    return [[(span.start, span.end) for span in entry.spans] for entry in read_conll(path)]


def aligns(align: Align, folder: Path) -> bool:
    """Random texts of few words, so that they are the same often, with blanks of all kinds and none before a comma."""
    rng = random.Random(3)
    texts: list[str] = []
    places: list[list[tuple[int, int]]] = []
    rows: list[list[tuple[str, str]]] = []
    for number in range(40):
        text, own, sentence = rng.choice(["", " "]), [], []
        for token in [f"n{number}", *rng.choices(["Ann", "an", "n", "é", "😀", ",", "e\u0301"], k=8)]:
            text += rng.choice([" ", "  ", "\n", "\u00a0", "" if token == "," else " "])
            if rng.random() < 0.5:
                own.append((len(text), len(text) + len(token)))
            sentence.append((token, "S-X" if own and own[-1][0] == len(text) else "O"))
            text += token
        texts.append(text)
        places.append(own)
        rows.append(sentence)
    return align(conll(folder / "a.conll", rows), texts) == places


def test_alignment(tmp_path: Path) -> None:
    assert aligns(ours, tmp_path)


@pytest.mark.parametrize("wrong", [by_find, in_bytes, joined])
def test_wrong_alignment_is_caught(tmp_path: Path, wrong: Align) -> None:
    assert not aligns(wrong, tmp_path)


def test_several_sentences_of_one_text(tmp_path: Path) -> None:
    file = conll(tmp_path / "a.conll", [[("-DOCSTART-", "O")], *SENTENCES[:2], SENTENCES[2]])
    texts = write(
        tmp_path / "c.jsonl", *({"id": n, "text": t} for n, t in enumerate(["Ann Lee ofRome\nOslo 😀é e\u0301x ", " "]))
    )
    texts.write_text(texts.read_text("utf-8") + json.dumps({"id": 2, "text": "Ab c d e f g h"}) + "\n", "utf-8")
    reader = detector(file, texts)
    first, second = "Ann Lee ofRome\nOslo 😀é e\u0301x ", "Ab c d e f g h"
    assert [first[start:end] for start, end in merged(reader.spans(first))] == [
        "Ann Lee",
        "Rome",
        "Oslo",
        "é",
        "e\u0301x",
    ]
    assert [second[span.start : span.end] for span in reader.spans(second)] == ["Ab", "c", "d", "e f", "g", "h"]


def test_real_conll(data_dir: Path) -> None:
    """WNUT-17: all of it is read, and every entity is as long as its tokens say."""
    file = data_dir / "pii" / "WNUT17" / "wnut17train.conll.gz"
    entries = list(read_conll(file))
    assert [entry.text for entry in entries] == [record.text for record in read_records(Source(file))]
    tags = [line.split("\t")[1] for line in gzip.decompress(file.read_bytes()).decode().splitlines() if line.strip()]
    assert sum(len(entry.spans) for entry in entries) == sum(tag.startswith("B-") for tag in tags)
    tagged = sum(len((entry.text or "")[span.start : span.end].split(" ")) for entry in entries for span in entry.spans)
    assert tagged == sum(not tag.startswith("O") for tag in tags)


def test_a_real_corpus(data_dir: Path, tmp_path: Path) -> None:
    """Gold labels as a detector give back the gold labels."""
    records = list(islice(GOLD["customersim"](data_dir, Part.HELD_OUT), 200))
    lines = [{"text": text, "spans": [list(span) for span in spans]} for text, spans in records]
    reader = detector(write(tmp_path / "a.jsonl", *lines))
    found = [
        [(span.start, span.end, span.label) for span in own] for own in reader.spans_of([text for text, _ in records])
    ]
    assert found == [sorted(set(spans)) for _, spans in records]


@given(
    st.lists(st.lists(st.sampled_from(["O", "B-a", "I-a", "I-b", "E-a", "S-b", "L-b", "U-a"]), min_size=1), max_size=4)
)
def test_every_tagged_token_is_marked(tmp_path_factory: pytest.TempPathFactory, tags: list[list[str]]) -> None:
    sentences = [[(f"t{number}", tag) for number, tag in enumerate(own)] for own in tags]
    file = conll(tmp_path_factory.mktemp("tags") / "a.conll", sentences)
    for entry, sentence in zip(read_conll(file), sentences, strict=True):
        text = entry.text or ""
        words = {word for span in entry.spans for word in text[span.start : span.end].split()}
        assert words == {token for token, tag in sentence if tag != "O"}


# Mistakes

TEXT_CORPUS = [{"id": "a", "text": f"{SECRET} is"}, {"id": "b", "text": "b"}, {"id": "b", "text": "other"}]
JSONL_MISTAKES: dict[str, tuple[Any, str]] = {
    "outside": ({"text": SECRET, "spans": [[0, 9, "a"]]}, "span 1: it ends outside its text"),
    "outside by id": ({"id": "a", "spans": [[0, 12, "a"]]}, "span 1: it ends outside its text"),
    "negative": ({"text": SECRET, "spans": [[0, 1, "a"], [-1, 2, "a"]]}, "span 2: it is empty, or begins before"),
    "empty": ({"text": SECRET, "spans": [[2, 2, "a"]]}, "span 1: it is empty"),
    "float": ({"text": SECRET, "spans": [[0, 1.0, "a"]]}, "a span is [start, end, label]"),
    "bool": ({"text": SECRET, "spans": [[False, True, "a"]]}, "a span is"),
    "short": ({"text": SECRET, "spans": [[0, 1]]}, "a span is"),
    "long": ({"text": SECRET, "spans": [[0, 1, "a", 0.5, 0]]}, "a span is"),
    "no list": ({"text": SECRET, "spans": [{"start": 0}]}, "a span is"),
    "score": ({"text": SECRET, "spans": [[0, 1, "a", 1.5]]}, "no number from 0 to 1"),
    "score is a word": ({"text": SECRET, "spans": [[0, 1, "a", SECRET]]}, "no number from 0 to 1"),
    "no spans": ({"text": SECRET}, "this is not"),
    "list": ([SECRET], "this is not"),
    "no json": (f'{{"text": "{SECRET}', "this is not"),
    "neither": ({"spans": []}, "it must have a text"),
    "text is no text": ({"text": [SECRET], "spans": []}, "it must have a text"),
    "id is a float": ({"id": 1.0, "spans": []}, "it must have a text"),
    "id is not there": ({"id": SECRET, "spans": []}, "no record with this id"),
    "id of two texts": ({"id": "b", "spans": []}, "several texts with this id"),
    "other text": ({"id": "a", "text": f"{SECRET} was", "spans": []}, "its text is not the text that the corpus has"),
}
CONLL_MISTAKES: dict[str, tuple[str, str]] = {
    "no tag": (f"is\tO\n{SECRET}\n", "line 4: this is no token and tag"),
    "no token": (f"is\tO\n\tO {SECRET}\n", "line 4: this is no token and tag"),
    "wrong tag": (f"is\tO\n{SECRET}\tPER\n", "line 4: this is no token and tag"),
    "other token": (f"was\tO\n{SECRET}\tO\n", "line 3: this token is not what comes next"),
    "later token": (f"s\tO\n{SECRET}\tO\n", "line 3: this token is not what comes next"),
    "token too many": (f"is\tO\n{SECRET}\tO\n", "line 4: this token is not what comes next"),
    "text too many": (f"is\tO\n\nb\tO\n\nother\tO\n\n{SECRET}\tO\n", "line 9: the file goes on after the last text"),
    "token too few": ("", "line 2: the file ends within the text"),
}


def check_is_one_line(error: TacitError, start: str, part: str) -> None:
    assert str(error).startswith(start)
    assert part in str(error)
    assert "\n" not in str(error)
    chained: BaseException | None = error
    while chained is not None:
        assert SECRET not in str(chained)
        chained = chained.__context__


@pytest.mark.parametrize("kind", JSONL_MISTAKES)
def test_bad_json_lines(tmp_path: Path, kind: str) -> None:
    line, part = JSONL_MISTAKES[kind]
    file = write(tmp_path / "a.jsonl", {"text": "fine", "spans": []}, line)
    with pytest.raises(DataError) as caught:
        detector(file, write(tmp_path / "c.jsonl", *TEXT_CORPUS))
    check_is_one_line(caught.value, f"{file}, line 2", part)


@pytest.mark.parametrize("kind", CONLL_MISTAKES)
def test_bad_conll(tmp_path: Path, kind: str) -> None:
    rest, part = CONLL_MISTAKES[kind]
    file = tmp_path / "a.conll"
    file.write_text(f"\n{SECRET}\tB-X\n{rest}")
    with pytest.raises(DataError) as caught:
        detector(file, write(tmp_path / "c.jsonl", *TEXT_CORPUS))
    check_is_one_line(caught.value, f"{file}, ", part)


def test_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this ending is not known; set format"):
        detector(tmp_path / "a.txt")
    with pytest.raises(DataError, match="cannot be read"):
        detector(tmp_path / "a.jsonl")
    with pytest.raises(UsageError, match="line 1: it has an id and no text; set texts"):
        detector(write(tmp_path / "a.jsonl", {"id": 1, "spans": []}))
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "\xff", "spans": []}\n')
    with pytest.raises(DataError, match="line 1: the line is not UTF-8"):
        detector(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b"\n" * 100)[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        detector(tmp_path / "c.jsonl.gz")

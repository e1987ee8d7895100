"""Readers of documents with entities: hand-made gold, round trips, one line for every mistake, and none of it holds text."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.config.compare import TaskOptions
from tacit.config.tuning import AnnotatedSource
from tacit.corpus.annotated import (
    AnnotatedDocument,
    Sentence,
    entity_types,
    refuse_shared_documents,
    refuse_unknown_types,
    sentences_apart,
    tag_set,
)
from tacit.corpus.annotations import ANNOTATION_FORMATS, AnnotatedFields, read_annotated
from tacit.entities.folds import k_folds
from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness

SENTINEL = "zqsentinel"

NOTE = "Chest\tO\npain\tB-problem\n.\tO\n\nGiven\tO\nold\tB-treatment\naspirin\tI-treatment\ndaily\tB-treatment\n"


def plain(documents: list[AnnotatedDocument]) -> list[tuple[str, list[list[tuple[str, str]]]]]:
    return [
        (document.document_id, [list(zip(one.tokens, one.tags, strict=True)) for one in document.sentences])
        for document in documents
    ]


GOLD = [
    [("Chest", "O"), ("pain", "B-problem"), (".", "O")],
    [("Given", "O"), ("old", "B-treatment"), ("aspirin", "I-treatment"), ("daily", "B-treatment")],
]


def test_a_folder_of_bio_files_is_a_document_a_file(tmp_path: Path) -> None:
    (tmp_path / "b.bio").write_text(NOTE)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.bio.gz").write_bytes(gzip.compress(NOTE.replace("\n", "\r\n").encode()))
    (tmp_path / "notes.md").write_text("no document")
    (tmp_path / ".hidden.bio").write_text("nonsense")
    documents = read_annotated(tmp_path)
    assert plain(documents) == [("b.bio", GOLD), ("sub/a.bio.gz", GOLD)]
    assert [sentence.lines for sentence in documents[0].sentences] == [(1, 2, 3), (5, 6, 7, 8)]
    assert all(document.named for document in documents)
    assert entity_types(documents) == ("problem", "treatment")
    assert tag_set(entity_types(documents)) == ("O", "B-problem", "I-problem", "B-treatment", "I-treatment")


def test_a_single_file_has_its_documents_or_a_document_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "all.tsv"
    path.write_text(NOTE)
    documents = read_annotated(path)
    assert [sentences for _, sentences in plain(documents)] == [[GOLD[0]], [GOLD[1]]]
    assert not any(document.named for document in documents)
    path.write_text(f"-DOCSTART-\tO\n\n{NOTE}\n-DOCSTART-\tO\n\n{NOTE}")
    assert [sentences for _, sentences in plain(read_annotated(path))] == [GOLD, GOLD]


def test_conll_with_more_columns_and_blanks(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("-DOCSTART- -X- O O\n\nChest NN I-NP O\npain NN I-NP B-problem\n")
    assert plain(read_annotated(path)) == [("a.conll:000000003", [[("Chest", "O"), ("pain", "B-problem")]])]


def test_a_blank_line_inside_an_entity_joins_its_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.bio").write_text("St\tB-treatment\n.\tI-treatment\n\nJude\tI-treatment\nvalve\tO\n")
    ((_, sentences),) = plain(read_annotated(tmp_path))
    assert [tag for _, tag in sentences[0]] == ["B-treatment", "I-treatment", "I-treatment", "O"]
    assert len(sentences) == 1


BAD = [
    (f"{SENTINEL}\tO\n{SENTINEL}\tI-problem\n", 2, "without a B-"),
    (f"{SENTINEL}\tB-test\n{SENTINEL}\tI-problem\n", 2, "without a B-"),
    (f"{SENTINEL}\tO\n\n{SENTINEL}\tI-problem\n", 3, "without a B-"),
    (f"a\tO\n\n{SENTINEL}\tE-{SENTINEL}\n", 3, "O, B-TYPE and I-TYPE"),
    (f"a\tB-\n{SENTINEL}\tO\n", 1, "O, B-TYPE and I-TYPE"),
    (f"a\tO\n{SENTINEL}\n", 2, "columns"),
    (f"a\tO\n{SENTINEL}\tO\tB-problem\n", 2, "columns"),
    (f"a\tO\n\tB-{SENTINEL}\n", 2, "columns"),
    (f"{SENTINEL}\n", 1, "columns"),
]


@pytest.mark.parametrize(("text", "line", "problem"), BAD)
@pytest.mark.parametrize("in_folder", [True, False])
def test_a_mistake_is_one_line_with_file_and_number(
    tmp_path: Path, text: str, line: int, problem: str, in_folder: bool
) -> None:
    path = tmp_path / "bad.bio"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_annotated(tmp_path if in_folder else path)
    assert f"{path}, line {line}: " in str(caught.value)
    assert problem in str(caught.value)
    assert_no_text(caught.value)


def assert_no_text(error: BaseException | None) -> None:
    """Nor in what is chained to it."""
    while error is not None:
        assert SENTINEL not in f"{error!r} {error.args}"
        error = error.__cause__ or error.__context__


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_annotated(tmp_path / "missing")
    with pytest.raises(DataError, match="endings"):
        read_annotated(tmp_path)
    (tmp_path / "a.bio").write_text("\n\n")
    assert [document.sentences for document in read_annotated(tmp_path)] == [()]  # a document, which adds nothing
    with pytest.raises(DataError, match="no document"):
        read_annotated(tmp_path / "a.bio")
    with pytest.raises(UsageError, match="brat"):
        read_annotated(tmp_path, "brat")


# i2b2-2010 -----------------------------------------------------------------------------------------------------------


def i2b2(root: Path, concepts: str, text: str = "Chest pain .\n\nGiven  old Aspirin daily\n", name: str = "r1") -> Path:
    for folder in ("concept", "txt"):
        (root / "beth" / folder).mkdir(parents=True, exist_ok=True)
    (root / "beth" / "txt" / f"{name}.txt").write_text(text)
    path = root / "beth" / "concept" / f"{name}.con"
    path.write_text(concepts)
    return path


CONCEPTS = (
    'c="pain" 1:1 1:1||t="problem"\nc="old aspirin" 3:1 3:2||t="treatment"\nc="daily" 3:3 3:3||t="treatment"\n'
    'c="pain" 1:1 1:1||t="problem"\n'
)


def test_i2b2_concept_files(tmp_path: Path) -> None:
    i2b2(tmp_path, CONCEPTS)
    (document,) = read_annotated(tmp_path, "i2b2-2010")
    gold = [GOLD[0], [(token.replace("aspirin", "Aspirin"), tag) for token, tag in GOLD[1]]]
    assert plain([document]) == [("beth/concept/r1", gold)]
    assert document.sentences[1].lines == (3, 2, 2, 3)  # of an entity, the line of its concept


def test_i2b2_texts_beside_their_concepts(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("Chest pain .\n")
    (tmp_path / "r.txt.con").write_text('c="pain" 1:1 1:1||t="problem"\n')
    (document,) = read_annotated(tmp_path, "i2b2-2010")
    assert document.tags == ["O", "B-problem", "O"]


def test_two_concept_files_of_one_text_are_not_two_documents(tmp_path: Path) -> None:
    """They would be two units of the same patient's words."""
    (tmp_path / "r.txt").write_text("Chest pain .\n")
    for name in ("r.con", "r.txt.con"):
        (tmp_path / name).write_text('c="pain" 1:1 1:1||t="problem"\n')
    with pytest.raises(DataError, match=r"r\.txt\.con: its text r\.txt has the concepts of r\.con too"):
        read_annotated(tmp_path, "i2b2-2010")


BAD_CONCEPTS = [
    (f'c="{SENTINEL}" 1:1 1:1|t="problem"', "form"),
    (f'c="{SENTINEL}" 1:{"1" * 5000} 1:1||t="problem"', "form"),
    (f'c="{SENTINEL}" 1:1 1:1||t="problem"', "other words"),
    (f'c="{SENTINEL}" 9:1 9:1||t="problem"', "outside the text"),
    ('c="pain" 1:1 1:7||t="problem"', "outside the text"),
    ('c="pain . given" 1:1 3:0||t="problem"', "ends on another"),
    ('c="pain ." 1:1 1:2||t="problem"\nc="pain" 1:1 1:1||t="problem"', "overlaps"),
    ('c="pain" 1:1 1:1||t="test"', "overlaps"),
]


@pytest.mark.parametrize(("lines", "problem"), BAD_CONCEPTS)
def test_a_bad_concept_is_one_line(tmp_path: Path, lines: str, problem: str) -> None:
    path = i2b2(tmp_path, 'c="pain" 1:1 1:1||t="problem"\n' * ("test" in lines) + lines + "\n")
    number = len(path.read_text().splitlines())
    with pytest.raises(DataError) as caught:
        read_annotated(tmp_path, "i2b2-2010")
    assert f"{path}, line {number}: " in str(caught.value)
    assert problem in str(caught.value)
    assert_no_text(caught.value)


def test_a_concept_file_without_its_text(tmp_path: Path) -> None:
    i2b2(tmp_path, CONCEPTS)
    (tmp_path / "beth" / "txt" / "r1.txt").unlink()
    with pytest.raises(DataError, match=r"r1\.con: there is no r1\.txt"):
        read_annotated(tmp_path, "i2b2-2010")
    with pytest.raises(DataError, match="is a folder"):
        read_annotated(tmp_path / "beth" / "concept" / "r1.con", "i2b2-2010")


# round trips ---------------------------------------------------------------------------------------------------------

WORD = st.text(st.characters(whitelist_categories=["L", "N", "P", "S"], max_codepoint=0x2FFF), min_size=1, max_size=6)
KINDS = ("problem", "test", "treatment")


@st.composite
def sentences(draw: st.DrawFn) -> Sentence:
    tokens = tuple(draw(st.lists(WORD, min_size=1, max_size=12)))
    tags: list[str] = []
    for _ in tokens:
        goes_on = bool(tags) and tags[-1] != "O" and draw(st.booleans())
        kind = draw(st.sampled_from(("O", *KINDS)))
        tags.append(f"I-{tags[-1][2:]}" if goes_on else "O" if kind == "O" else f"B-{kind}")
    return Sentence(tokens, tuple(tags), ())


def as_bio(document: list[Sentence]) -> str:
    rows = ("".join(f"{token}\t{tag}\n" for token, tag in zip(one.tokens, one.tags, strict=True)) for one in document)
    return "\n".join(rows)


def as_concepts(document: list[Sentence]) -> str:
    lines: list[str] = []
    for number, sentence in enumerate(document, start=1):
        ends = [*sentence.tags[1:], "O"]
        first = 0
        for place, (tag, after) in enumerate(zip(sentence.tags, ends, strict=True)):
            first = place if tag.startswith("B-") else first
            if tag != "O" and not after.startswith("I-"):
                words = " ".join(sentence.tokens[first : place + 1]).lower()
                lines.append(f'c="{words}" {number}:{first} {number}:{place}||t="{tag[2:]}"\n')
    return "".join(reversed(lines))


@settings(deadline=None, max_examples=60)
@given(document=st.lists(sentences(), min_size=1, max_size=5))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, document: list[Sentence]) -> None:
    root = tmp_path_factory.mktemp("round")
    gold = [list(zip(one.tokens, one.tags, strict=True)) for one in document]
    (root / "a.bio").write_text(as_bio(document), encoding="utf-8")
    assert plain(read_annotated(root)) == [("a.bio", gold)]
    i2b2(root, as_concepts(document), "\n".join(" ".join(one.tokens) for one in document))
    assert plain(read_annotated(root, "i2b2-2010")) == [("beth/concept/r1", gold)]


# splits --------------------------------------------------------------------------------------------------------------


def test_a_document_on_both_sides_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "train" / "a.bio").write_text(f"{SENTINEL}\tO\n")
    (tmp_path / "test" / "b.bio").write_text(f"{SENTINEL}\tB-problem\n")
    training, test = (read_annotated(tmp_path / part) for part in ("train", "test"))
    with pytest.raises(DataError, match=r"b\.bio, line 1: .*two folds.*a\.bio, line 1") as caught:
        refuse_shared_documents(training, test)
    assert_no_text(caught.value)
    with pytest.raises(DataError, match="two folds"):
        refuse_shared_documents(test, test)
    refuse_shared_documents(sentences_of(training), sentences_of(test))


def sentences_of(documents: list[AnnotatedDocument]) -> list[AnnotatedDocument]:
    """As a file gives them that does not name its documents: equal sentences are no equal documents."""
    return [AnnotatedDocument(one.document_id, one.path, one.sentences, False) for one in sentences_apart(documents)]


def test_a_type_that_training_has_not_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bio").write_text(f"{SENTINEL}\tO\n\nx\tB-problem\n{SENTINEL}\tB-{SENTINEL}\n")
    documents = read_annotated(tmp_path)
    with pytest.raises(DataError, match=r"a\.bio, line 4: .* not in the training documents") as caught:
        refuse_unknown_types(documents, ["problem"], "the training documents")
    assert_no_text(caught.value)
    refuse_unknown_types(documents, ["problem", SENTINEL], "the training documents")


def test_nothing_private_is_in_repr(tmp_path: Path) -> None:
    (tmp_path / f"{SENTINEL}.bio").write_text(f"{SENTINEL}\tO\n")
    (document,) = read_annotated(tmp_path)
    assert SENTINEL not in repr(document) + repr(document.sentences)


def test_a_layout_of_this_file_needs_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is an option of the configuration; without the line it is refused."""

    def slashes(path: Path, fields: AnnotatedFields) -> Iterator[AnnotatedDocument]:
        """token/tag, a line a document."""
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            tokens, tags = zip(*(word.split("/") for word in line.split()), strict=True)
            yield AnnotatedDocument(f"{number}", path, (Sentence(tokens, tags, (number,) * len(tokens)),), True)

    path = tmp_path / "notes"
    path.write_text("Chest/O pain/B-problem\n")
    sections = ({"path": "a"}, {"train": "a", "test": "b"})
    with pytest.raises(pydantic.ValidationError, match="Input should be 'bio', 'i2b2-2010' or 'jsonl'"):
        AnnotatedSource(path=str(path), format="slashes")
    monkeypatch.setitem(ANNOTATION_FORMATS, "slashes", slashes)
    assert all(TaskOptions.model_validate({**section, "format": "slashes"}) for section in sections)
    options = AnnotatedSource(path=str(path), format="slashes")
    assert plain(read_annotated(options.resolved_path, options.format)) == [
        ("1", [[("Chest", "O"), ("pain", "B-problem")]])
    ]


# JSON lines ----------------------------------------------------------------------------------------------------------

WHOSE = AnnotatedFields("note", "who")


def json_line(**values: Any) -> str:
    row = {"note": "a", "who": "u", "tokens": ["Chest", "pain"], "tags": ["O", "B-problem"], **values}
    return json.dumps({name: value for name, value in row.items() if value is not None}) + "\n"


def test_sentences_with_one_id_are_a_document_and_one_users(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text(
        json_line(note=7, who=1) + json_line(note="b", who="v") + json_line(note="7", who="1", tokens=["x", "y"])
    )
    documents = read_annotated(path, "jsonl", WHOSE)
    first = [("Chest", "O"), ("pain", "B-problem")]
    assert plain(documents) == [("7", [first, [("x", "O"), ("y", "B-problem")]]), ("b", [first])]
    assert [(document.user_id, document.named) for document in documents] == [("1", True), ("v", True)]
    apart = read_annotated(path, "jsonl")
    assert [len(document.sentences) for document in apart] == [1, 1, 1]
    assert {(document.user_id, document.named) for document in apart} == {(None, False)}
    (tmp_path / "more").mkdir()
    path.rename(tmp_path / "more" / "a.jsonl")
    (tmp_path / "more" / "b.jsonl").write_text(json_line(note="c"))
    assert [document.document_id for document in read_annotated(tmp_path / "more", "jsonl", WHOSE)] == ["7", "b", "c"]
    (tmp_path / "more" / "b.jsonl").write_text(json_line(note="b", who="v"))
    with pytest.raises(DataError, match="has a document with this id too"):
        read_annotated(tmp_path / "more", "jsonl", WHOSE)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"who": None}, "no field 'who'; set the option user_field"),
        ({"note": 1.5}, "see option id_field"),
        ({"note": ""}, "see option id_field"),
        ({"who": True}, "see option user_field"),
        ({"who": "\ud800"}, "not valid Unicode"),
        ({"tokens": [SENTINEL]}, "a tag for each token"),
        ({"tokens": SENTINEL}, "two lists of strings"),
        ({"tags": [0, 1]}, "convert numbers of tags"),
        ({"tags": None}, "two lists of strings"),
        ({"tokens": [SENTINEL, "\ud800"]}, "not valid Unicode"),
        ({"tags": ["O", "I-problem"]}, "an I- tag without"),
    ],
)
def test_a_malformed_object_is_named_by_its_line(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text(json_line() + json_line(**{"note": "b", **values}))
    with pytest.raises(DataError, match=said) as caught:
        read_annotated(path, "jsonl", WHOSE)
    assert str(caught.value).startswith(f"{path}, line 2: ")
    assert SENTINEL not in str(caught.value)


def test_a_record_without_tokens_is_a_document_and_a_blank_token_is_one(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text(json_line() + json_line(note="b", tokens=[], tags=[]) + json_line(note="c", tokens=["", " "]))
    first, nothing, blank = read_annotated(path, "jsonl", WHOSE)
    assert first.sentences
    assert nothing.sentences == ()
    assert blank.sentences[0].tokens == ("", " ")


@pytest.mark.parametrize("layout", ["bio", "i2b2-2010"])
def test_other_layouts_have_no_fields(tmp_path: Path, layout: str) -> None:
    (tmp_path / "a.bio").write_text(NOTE)
    with pytest.raises(UsageError, match="leave out user_field"):
        read_annotated(tmp_path, layout, AnnotatedFields(user_field="who"))


def test_a_fold_holds_all_documents_of_a_user(tmp_path: Path) -> None:
    """Also of users who have one text in common."""
    path = tmp_path / "notes.jsonl"
    rows = [json_line(note=f"n{n}", who=f"u{n % 5}", tokens=[f"w{n}", "pain"]) for n in range(20)]
    same = [json_line(note=f"s{n}", who=f"u{n}", tokens=["the", "same"]) for n in (0, 3)]
    path.write_text("".join(rows + same))
    splits = k_folds(read_annotated(path, "jsonl", WHOSE), 4, KeyedRandomness(bytes(32)))
    tested = [{document.user_id for document in split.test} for split in splits]
    assert sorted(user for users in tested for user in users if user is not None) == [f"u{n}" for n in range(5)]
    assert any({"u0", "u3"} <= users for users in tested)
    with pytest.raises(DataError, match="4 different documents, or users, are too few for 5 folds"):
        k_folds(read_annotated(path, "jsonl", WHOSE), 5, KeyedRandomness(bytes(32)))


# real corpora --------------------------------------------------------------------------------------------------------


def test_real_corpora(data_dir: Path) -> None:
    """Counts of DATA's own files, taken with awk."""
    notes = read_annotated(data_dir / "mtsamples-ner" / "notes")
    begun = Counter(tag for document in notes for tag in document.tags if tag.startswith("B-"))
    assert (len(notes), begun) == (117, {"B-problem": 1099, "B-test": 280, "B-treatment": 309})
    test = read_annotated(data_dir / "bio-ner" / "NCBI-disease-IOB" / "test.tsv.gz")
    assert (len(test), sum(tag == "B-Disease" for document in test for tag in document.tags)) == (940, 960)

"""A spaCy pipeline as a detector: an empty English one with rules, so that what it must find is known."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.lang.en import English
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Config

from tacit.errors import DataError, UsageError
from tacit.screening.adapters.contents import model_place
from tacit.screening.adapters.options import SpacyOptions
from tacit.screening.adapters.registry import detector_from_options
from tacit.screening.adapters.spacy_ner import SpacyDetector, local_pipeline
from tacit.screening.spans import Detector, Span, unreadable

RULES = [
    {"label": "PERSON", "pattern": [{"LOWER": "anna"}, {"LOWER": "lee", "OP": "?"}]},
    {"label": "GPE", "pattern": "Oslo"},
    {"label": "MAIL", "pattern": [{"LIKE_EMAIL": True}]},
]
# The same rules a second time, by regular expressions; the longer of two matches first.
ORACLE = {"PERSON": r"\banna(?:\s+lee)?\b", "GPE": r"\bOslo\b", "MAIL": r"\S+@\S+\.com"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pipeline") / "rules"
    pipeline = spacy.blank("en")
    pipeline.add_pipe("entity_ruler").add_patterns(RULES)
    pipeline.to_disk(place)
    return place


@pytest.fixture(scope="module")
def reader(folder: Path) -> Detector:
    return detector(folder)


def detector(folder: Path, **options: Any) -> Detector:
    return detector_from_options(SpacyOptions(pipeline=str(folder), **options))


def test_a_folder_is_taken_before_a_package_of_its_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what is looked at; spaCy would ask for a package first, such as its own."""
    shutil.copytree(folder, tmp_path / "spacy")
    monkeypatch.chdir(tmp_path)
    assert model_place(SpacyOptions(pipeline="spacy")) == Path("spacy")
    assert local_pipeline("spacy", "spacy").pipe_names == ["entity_ruler"]
    assert spacy.util.is_package("spacy")  # known wrong


@pytest.mark.parametrize("whole", [True, False])
def test_a_component_of_another_pipeline_is_refused(folder: Path, tmp_path: Path, whole: bool) -> None:
    """35th attack, by reading: nobody looks at what lies there."""
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    config = Config().from_disk(own / "config.cfg")
    taken = {"source": str(folder)} if whole else {**config["components"]["entity_ruler"], "other": str(folder)}
    config["components"]["entity_ruler"] = taken
    config.to_disk(own / "config.cfg")
    if whole:  # known wrong: with all rules of the other one
        assert English.from_config(config).pipe_labels == spacy.load(folder).pipe_labels
    with pytest.raises(
        UsageError, match=r"entity_ruler in config\.cfg takes .*, which is not looked at; load the pipeline"
    ):
        detector(own)


def test_signs_between_sentences_are_no_paths(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    pipeline = spacy.load(folder)
    pipeline.add_pipe("sentencizer", config={"punct_chars": [".", "..", "/"]})
    pipeline.to_disk(own)
    assert [span.label for span in detector(own).spans("Anna is in Oslo .")] == ["PERSON", "GPE"]


def test_a_module_without_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads what lies beside it, and only the module would be looked at."""
    (tmp_path / "lonely_pipeline.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="lonely_pipeline is a module without a folder of its own"):
        detector(Path("lonely_pipeline"))


TEXTS = [
    "Anna Lee is in Oslo .",
    "",
    "😀😀 anna , 👩\u200d👧 Oslo",
    "e\u0301 é Anna ﷽ Oslo a@b.com",
    "the 𝔘 Oslo\r\n\tAnna Lee",
    "Oslo " * 50 + "anna",
]


def by_expressions(text: str) -> list[tuple[int, int, str]]:
    return sorted(
        (match.start(), match.end(), label)
        for label, expression in ORACLE.items()
        for match in re.finditer(expression, text, re.IGNORECASE if label == "PERSON" else 0)
    )


def finds_all(reader: Detector) -> bool:
    return all(
        [(span.start, span.end, span.label) for span in own] == by_expressions(text)
        for text, own in zip(TEXTS, reader.spans_of(TEXTS), strict=True)
    )


class Bytes(SpacyDetector):
    """Wrong: offsets of the encoded text."""

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        return [
            [span._replace(start=len(text[: span.start].encode()), end=len(text[: span.end].encode())) for span in own]
            for text, own in zip(texts, super().spans_of(texts), strict=True)
        ]


class Tokens(SpacyDetector):
    """Wrong: spaCy's ``start`` and ``end``, which count tokens."""

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        documents = map(self._pipeline, texts)
        return [[Span(e.start, e.end, e.label_, 1.0, "spacy") for e in document.ents] for document in documents]


def test_offsets_are_code_points(reader: Detector) -> None:
    assert finds_all(reader)


@pytest.mark.parametrize("kind", [Bytes, Tokens])
def test_other_offsets_are_caught(folder: Path, kind: type[SpacyDetector]) -> None:
    assert not finds_all(kind(SpacyOptions(pipeline=str(folder))))


def test_one_by_one_is_the_same(folder: Path, reader: Detector) -> None:
    expected = reader.spans_of(TEXTS)
    assert [reader.spans(text) for text in TEXTS] == expected


def test_labels_and_score(folder: Path, reader: Detector) -> None:
    """What is not renamed keeps its name: a map of labels drops nothing."""
    assert detector(folder, labels={"GPE": "place"}, score=0.5).spans("Anna in Oslo") == [
        Span(0, 4, "PERSON", 0.5, "spacy"),
        Span(8, 12, "place", 0.5, "spacy"),
    ]
    assert {span.score for span in reader.spans("Anna in Oslo")} == {1.0}


def test_mistakes_are_one_line(folder: Path, tmp_path: Path, network_calls: list[object]) -> None:
    no_entities = tmp_path / "blank"
    spacy.blank("en").to_disk(no_entities)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.cfg").write_text("[nlp]\nlang = zz\n")
    cases = {
        SpacyOptions(pipeline="en_not_installed").pipeline: "is no spaCy pipeline on this machine",
        str(tmp_path / "none"): "is no spaCy pipeline on this machine",
        str(tmp_path): "is no spaCy pipeline on this machine",
        str(tmp_path / "broken"): "is no spaCy pipeline on this machine",
        str(no_entities): "has no component that finds entities",
    }
    for place, part in cases.items():
        with pytest.raises(UsageError) as caught:
            detector(Path(place))
        message = str(caught.value)
        assert message.startswith("detector spacy: pipeline: ")
        assert part in message
        assert "\n" not in message
    with pytest.raises(UsageError, match=r"has no CITY; it has GPE, MAIL, PERSON$"):
        detector(folder, labels={"CITY": "place"})
    assert network_calls == []


def test_texts_that_it_cannot_read(folder: Path) -> None:
    """They are private as a whole: an error would let one text decide whether there is a release."""
    reader = SpacyDetector(SpacyOptions(pipeline=str(folder)))
    anna, half = reader.spans_of(["Anna", "Anna \ud800"])
    assert (len(anna), half) == (1, unreadable("Anna \ud800", "spacy"))

    @Language.component("gives_up")
    def gives_up(document: Doc) -> Doc:
        if "zqsecret" in document.text:
            raise ValueError(f"E999 {document.text}")
        return document

    reader._pipeline.add_pipe("gives_up")
    anna, hard = reader.spans_of(["Anna", "Anna zqsecret"])
    assert (len(anna), hard) == (1, unreadable("Anna zqsecret", "spacy"))


def test_a_pipeline_that_reads_no_text_is_an_error(folder: Path) -> None:
    reader = SpacyDetector(SpacyOptions(pipeline=str(folder)))

    @Language.component("always_gives_up")
    def gives_up(document: Doc) -> Doc:
        raise ValueError(document.text)

    reader._pipeline.add_pipe("always_gives_up")
    with pytest.raises(DataError, match="detector spacy: it cannot read a harmless text") as caught:
        reader.spans("zqsecret")
    assert caught.value.__context__ is None


def test_a_text_is_read_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read together, the rounding of one text's scores would depend on the others."""

    def together(*_: Any, **__: Any) -> Any:
        raise AssertionError

    reader = SpacyDetector(SpacyOptions(pipeline=str(folder)))
    monkeypatch.setattr(Language, "pipe", together)
    assert finds_all(reader)


def test_no_text_is_too_long(folder: Path) -> None:
    """spaCy's own limit, a million characters, would let one text decide whether there is a release."""
    reader = SpacyDetector(SpacyOptions(pipeline=str(folder)))
    assert reader._pipeline.max_length > 10**12
    assert reader.spans("x" * 1_000_001) == []

"""What a policy file may say about detectors, what importing them costs, and what happens without their libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import pydantic
import pytest
import yaml
from pydantic import TypeAdapter

from tacit.corpus.records import Record
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness
from tacit.screening.adapters.common import TextByText
from tacit.screening.adapters.contents import contents_digest, model_place
from tacit.screening.adapters.options import (
    AdapterOptions,
    HuggingFaceOptions,
    NamedModel,
    PrecomputedOptions,
    PresidioOptions,
    SpacyOptions,
)
from tacit.screening.adapters.registry import DETECTORS, DetectorOptions, detector_from_options
from tacit.screening.corpus import ScreenPlan, screen_corpus
from tacit.screening.policy import PolicyOptions, load_policy
from tacit.screening.spans import Detector, Span, unreadable

OPTIONS: TypeAdapter[Any] = TypeAdapter(DetectorOptions)
HEAVY = ["torch", "transformers", "spacy", "presidio_analyzer", "tldextract", "pyarrow"]


def parsed(text: str) -> Any:
    return OPTIONS.validate_python(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: presidio", PresidioOptions()),
        ("{kind: presidio, entities: [US_SSN]}", PresidioOptions(entities=("US_SSN",))),
        ("{kind: spacy, pipeline: en_core_web_sm}", SpacyOptions(pipeline="en_core_web_sm")),
        ("{kind: huggingface, folder: ner}", HuggingFaceOptions(folder="ner", least_tag_score=0.3)),
        (
            "{kind: huggingface, folder: ner, least_plain_score: 0.9}",
            HuggingFaceOptions(folder="ner", least_tag_score=0.3, least_plain_score=0.9),
        ),
        ("{kind: precomputed, path: spans.jsonl}", PrecomputedOptions(path="spans.jsonl")),
    ],
)
def test_options(text: str, expected: object) -> None:
    assert parsed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "kind: magic",
        "pipeline: en_core_web_sm",
        "{kind: spacy}",
        "{kind: spacy, pipeline: a, model: b}",
        "{kind: spacy, pipeline: a, score: 1.5}",
        "{kind: huggingface, folder: a, least_tag_score: 0}",  # would mark everything
        "{kind: huggingface, folder: a, least_plain_score: .nan}",
        "{kind: huggingface, folder: a, window: 0}",
        "{kind: presidio, entities: []}",
        "{kind: precomputed, path: ''}",
    ],
)
def test_wrong_options(text: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        parsed(text)


class Vowels(Detector):
    """A toy: every vowel."""

    name = "vowels"

    def spans(self, text: str) -> list[Span]:
        return [Span(place, place + 1, "vowel", 1.0, self.name) for place, one in enumerate(text) if one in "aeiou"]


class VowelOptions(AdapterOptions):
    """Its options."""

    library = "pydantic"

    kind: Literal["vowels"] = "vowels"
    folder: str

    def detector(self) -> Detector:
        return Vowels()

    def named_model(self) -> NamedModel:
        return NamedModel("folder", self.folder, True)


def test_a_kind_of_this_file_is_all_that_is_asked_of_its_options(tmp_path: Path) -> None:
    """Nothing else has to know it; `DETECTORS` alone lists the kinds."""
    options = VowelOptions(folder=str(tmp_path))
    assert [span.start for span in detector_from_options(options).spans("a word")] == [0, 3]
    assert model_place(options) == tmp_path
    before = contents_digest(options)
    (tmp_path / "weights").write_text("x")
    assert len({before, contents_digest(options), contents_digest(SpacyOptions(pipeline=str(tmp_path)))}) == 3
    assert contents_digest(PrecomputedOptions(path="spans.jsonl")) == ""
    assert model_place(PrecomputedOptions(path="spans.jsonl")) is None


@pytest.fixture
def registered() -> Iterator[None]:
    """Its one line, as if it stood there when the policy's model was made."""
    DETECTORS["vowels"] = VowelOptions
    PolicyOptions.model_rebuild(force=True)
    yield
    del DETECTORS["vowels"]
    PolicyOptions.model_rebuild(force=True)


def screened_by(folder: Path, name: str, detectors: list[dict[str, str]]) -> dict[str, list[str]]:
    """The texts of each stream, of four that a policy with these detectors beside its own screens."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"name": name, "least_score": 0.5, "detectors": detectors}))
    texts = [
        Record(f"r{number}", None, text) for number, text in enumerate(["sky", "a cat", "why try", "415-555-2671"])
    ]
    plan = ScreenPlan(balanced=file, conservative=file)
    screen_corpus(texts, plan, folder / name, KeyedRandomness(bytes(32)))
    streams = {stream: (folder / name / f"{stream}.jsonl").read_text().splitlines() for stream in ("public", "private")}
    return {stream: [json.loads(line)["text"] for line in lines] for stream, lines in streams.items()}


@pytest.mark.usefixtures("registered")
def test_with_its_one_line_it_screens_a_corpus(tmp_path: Path) -> None:
    """Known wrong: a policy that leaves it out lets all through."""
    (tmp_path / "model").mkdir()
    with_it = screened_by(tmp_path, "mine", [{"kind": "vowels", "folder": str(tmp_path / "model")}])
    assert with_it == {"public": ["sky", "why try"], "private": ["<MASK> c<MASK>t", "<MASK>"]}
    assert screened_by(tmp_path, "without", [])["public"] == ["sky", "a cat", "why try"]


def test_without_its_line_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("{name: mine, least_score: 0.5, detectors: [{kind: vowels, folder: model}]}")
    with pytest.raises(UsageError, match="'presidio', 'spacy', 'huggingface', 'precomputed'"):
        load_policy(tmp_path / "mine.yaml")


def test_each_row_has_the_word_of_its_options() -> None:
    assert {name: get_args(row.model_fields["kind"].annotation) for name, row in DETECTORS.items()} == {
        name: (name,) for name in DETECTORS
    }


def test_a_model_is_looked_at_where_it_is_loaded_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a package within a package nothing was asked and no file read (34th attack); and links lead out of a folder."""
    package = tmp_path / "acme" / "ner"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package.parent / "single.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert model_place(SpacyOptions(pipeline="acme.ner")) == package
        assert model_place(SpacyOptions(pipeline="acme.single")) == package.parent / "single.py"
    finally:
        sys.modules.pop("acme", None)  # which is imported for it
    for nothing in ("acme.none", "none.ner", ".ner", "acme..ner", "blank:en"):
        assert model_place(SpacyOptions(pipeline=nothing)) is None
    options = VowelOptions(folder=str(tmp_path / "model"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "parts").symlink_to(package)
    with pytest.raises(UsageError, match="parts is a link to a folder, and what lies there is not looked at"):
        contents_digest(options)


def test_importing_costs_little() -> None:
    """Besides what `tacit.screening` needs anyway: less than 50 ms, the best of three, and none of the libraries."""
    code = (
        "import sys, time, pydantic, tacit.screening.spans\n"
        "for name in [name for name in sys.modules if name.startswith('tacit.screening.adapters')]: del sys.modules[name]\n"
        "begin = time.perf_counter()\nimport tacit.screening.adapters.registry\n"
        "print(time.perf_counter() - begin, *sys.modules)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    ]
    assert not set(HEAVY) & set(runs[0])
    assert min(float(run[0]) for run in runs) < 0.05


@pytest.mark.parametrize(
    ("options", "module", "line"),
    [
        (
            PresidioOptions(),
            "presidio_analyzer",
            "detector presidio: the package presidio-analyzer is not installed; run: pip install 'tacit[presidio]'",
        ),
        (
            SpacyOptions(pipeline="x"),
            "spacy",
            "detector spacy: the package spacy is not installed; run: pip install 'tacit[spacy]'",
        ),
    ],
)
def test_a_missing_library_is_one_line(
    monkeypatch: pytest.MonkeyPatch, options: AdapterOptions, module: str, line: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # what Python itself puts there for a module that must not be found
    with pytest.raises(UsageError) as caught:
        detector_from_options(options)
    assert str(caught.value) == line


def test_a_policy_file_with_detectors(tmp_path: Path) -> None:
    """Two detectors with different scores: the policy's own least score chooses between them."""
    for name, score in (("sure", 0.9), ("unsure", 0.2)):
        (tmp_path / f"{name}.jsonl").write_text(
            f'{{"text": "the blue house", "spans": [[{4 if score > 0.5 else 9}, 14, "{name}", {score}]]}}\n'
        )
    file = tmp_path / "mine.yaml"
    detectors = [{"kind": "precomputed", "path": str(tmp_path / f"{name}.jsonl")} for name in ("sure", "unsure")]
    for least, expected in ((0.3, ["sure"]), (0.0, ["sure", "unsure"])):
        file.write_text(yaml.safe_dump({"name": "mine", "least_score": least, "detectors": detectors}))
        assert [span.label for span in load_policy(file).spans("the blue house")] == expected


class Slipping(TextByText):
    """A detector whose tokenizer is not faithful: its places are of another text."""

    name = "slipping"

    def _spans(self, text: str) -> list[Span]:
        return [Span(0, len(text) + ("slip" in text), "name", 1.0, "x")]


def test_spans_beyond_the_text_are_those_of_a_text_that_cannot_be_read() -> None:
    """They ended the run where they were cut out. 30th attack."""
    assert Slipping().spans("slip") == unreadable("slip", "slipping")
    assert Slipping().spans("fine") == [Span(0, 4, "name", 1.0, "x")]

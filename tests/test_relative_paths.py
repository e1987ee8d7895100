"""Relative paths are relative to the file that names them: of runs, fine-tunings, comparisons and policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.config.compare import load_comparison
from tacit.config.finetune import check_finetune, load_finetune
from tacit.config.load import load_config, parse_config, read_yaml
from tacit.errors import UsageError
from tacit.runs.beginning import begin
from tacit.runs.folder import RunFolder
from tacit.screen_plan import plan_of
from tacit.screening.adapters.options import HuggingFaceOptions, PrecomputedOptions, SpacyOptions
from tacit.screening.policy import load_policy, load_policy_options

from .dialogues import dialogue_values
from .small import small_values, write_config


def values_of_a_run(**sections: Any) -> dict[str, Any]:
    vocabulary = {"method": "weighted", "public_words": ["words.txt"]}
    return small_values(Path(), vocabulary=vocabulary, **sections)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files; the working directory is another one."""
    (tmp_path / "files").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "files"


def test_paths_of_a_run_are_relative_to_its_file(elsewhere: Path) -> None:
    config = load_config(write_config(elsewhere / "run.yaml", values_of_a_run()))
    assert config.private.resolved_path == elsewhere / "notes.jsonl"
    assert config.public[0].resolved_path == elsewhere / "public.jsonl"
    assert config.vocabulary.public_word_paths == (elsewhere / "words.txt",)
    assert config.resolved_run == elsewhere / "run"


def test_what_is_named_is_short_where_the_file_is_below(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(elsewhere / "run.yaml", values_of_a_run())
    monkeypatch.chdir(elsewhere.parent)
    assert load_config(Path("files/run.yaml")).resolved_run == Path("files/run")
    monkeypatch.chdir(elsewhere)
    assert load_config(Path("run.yaml")).resolved_run == Path("run")


def test_an_absolute_path_stays_and_moves_no_digest(elsewhere: Path, tmp_path: Path) -> None:
    values = small_values(tmp_path / "far")
    config = load_config(write_config(elsewhere / "run.yaml", values))
    assert config.private.resolved_path == tmp_path / "far" / "notes.jsonl"
    assert config.digest() == parse_config(values).digest()


def test_the_digest_is_of_the_paths_as_written(elsewhere: Path) -> None:
    """So a run that was begun by an earlier version goes on."""
    values = values_of_a_run()
    path = write_config(elsewhere / "run.yaml", values)
    assert load_config(path).digest() == parse_config(values).digest()
    other = load_config(write_config(elsewhere / "other.yaml", {**values, "relative_to": ".."}))
    assert other.digest() == parse_config(values).digest()
    assert other.private.resolved_path == elsewhere.parent / "notes.jsonl"


def test_without_a_file_they_are_relative_to_the_working_directory(elsewhere: Path) -> None:
    assert parse_config(values_of_a_run()).private.resolved_path == Path("notes.jsonl")


def test_a_folder_that_is_no_text_is_refused(elsewhere: Path) -> None:
    with pytest.raises(UsageError, match="relative_to"):
        load_config(write_config(elsewhere / "run.yaml", values_of_a_run(relative_to=3)))


def test_the_stored_configuration_finds_the_same_files_from_anywhere(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = load_config(write_config(elsewhere / "run.yaml", values_of_a_run()))
    with begin(config):
        pass
    monkeypatch.chdir("/")
    stored = RunFolder(elsewhere / "run").load_config()
    assert stored.private.resolved_path.resolve() == elsewhere / "notes.jsonl"
    assert stored.digest() == config.digest()
    with begin(load_config(elsewhere / "run.yaml"), start_over=False):  # it goes on
        pass


def test_a_folder_stored_by_an_earlier_version_goes_on(elsewhere: Path) -> None:
    """Its configuration says nothing of the folder."""
    config = load_config(write_config(elsewhere / "run.yaml", values_of_a_run()))
    with begin(config) as begun:
        path = begun.folder.config
    values = json.loads(path.read_text())
    del values["relative_to"]
    path.write_text(json.dumps(values))
    key = (elsewhere / "run" / "private" / "key").read_bytes()
    with begin(config, start_over=False):
        pass
    assert (elsewhere / "run" / "private" / "key").read_bytes() == key


def test_a_model_folder_and_its_tokenizer(elsewhere: Path) -> None:
    (elsewhere / "model").mkdir()
    (elsewhere / "model" / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    values = small_values(Path(), model={"folder": "model", "public": True, "length": 24})
    del values["vocabulary"]
    config = load_config(write_config(elsewhere / "run.yaml", values))
    assert config.model.kind == "gpt2"
    assert config.model.resolved_folder == config.vocabulary.resolved_path == elsewhere / "model"


def test_policies_and_measurement_of_a_run(elsewhere: Path) -> None:
    screening = {"balanced": "mine.yaml", "measurement": "measured.json"}
    phase = {
        "name": "public",
        "plan": "plain",
        "stream": "screened",
        "steps": 4,
        "batch_size": 8,
        "learning_rate": 1e-2,
    }
    values = dialogue_values(Path(), 100, screening=screening, phases=[phase])
    config = load_config(write_config(elsewhere / "run.yaml", values))
    assert config.screening is not None
    assert config.screening.resolved_measurement == elsewhere / "measured.json"
    assert plan_of(config).balanced == elsewhere / "mine.yaml"
    assert plan_of(config).conservative is None


TUNING = {"epochs": 1}


def test_paths_of_a_fine_tuning_and_of_a_comparison(elsewhere: Path) -> None:
    values = {"run": "r", "model": {"folder": "m"}, "documents": {"path": "d"}, "training": TUNING}
    tuning = load_finetune(write_config(elsewhere / "f.yaml", values))
    places = (tuning.resolved_run, tuning.model.resolved_folder, tuning.documents.resolved_path)
    assert places == (elsewhere / "r", elsewhere / "m", elsewhere / "d")
    assert tuning.digest() == check_finetune(values, "f").digest()
    path = write_config(
        elsewhere / "c.yaml",
        {"run": "r", "models": {"a": {"folder": "m"}}, "tasks": {"t": {"path": "d"}}, "training": TUNING},
    )
    comparison = load_comparison(read_yaml(path), str(path), path.parent)
    assert comparison.resolved_run == elsewhere / "r"
    assert comparison.models["a"].resolved_folder == elsewhere / "m"
    assert comparison.tasks["t"].source("path").resolved_path == elsewhere / "d"


def test_paths_of_a_policy_are_relative_to_the_policy(elsewhere: Path, tmp_path: Path) -> None:
    (elsewhere / "pipeline").mkdir()
    detectors = [
        {"kind": "precomputed", "path": "spans.jsonl", "texts": {"path": "texts.jsonl"}},
        {"kind": "huggingface", "folder": "tagger"},
        {"kind": "spacy", "pipeline": "pipeline"},
        {"kind": "spacy", "pipeline": "en_core_web_sm"},
    ]
    policy = {"name": "mine", "least_score": 0.3, "detectors": detectors}
    spans, tagger, folder, package = load_policy_options(write_config(elsewhere / "p.yaml", policy)).detectors
    assert isinstance(spans, PrecomputedOptions)
    assert isinstance(tagger, HuggingFaceOptions)
    assert isinstance(folder, SpacyOptions)
    assert isinstance(package, SpacyOptions)
    assert spans.texts is not None
    assert spans.located(spans.path) == elsewhere / "spans.jsonl"
    assert spans.texts.located(spans.texts.path) == elsewhere / "texts.jsonl"
    assert tagger.named_model().value == str(elsewhere / "tagger")
    assert folder.named_model().value == str(elsewhere / "pipeline")
    assert package.named_model().value == "en_core_web_sm"


def test_a_policy_finds_its_spans_and_keeps_its_digest(elsewhere: Path) -> None:
    (elsewhere / "spans.jsonl").write_text(json.dumps({"text": "Ann went home", "spans": [[0, 3, "name"]]}) + "\n")
    policy = {"name": "p", "least_score": 0.3, "detectors": [{"kind": "precomputed", "path": "spans.jsonl"}]}
    found = load_policy(write_config(elsewhere / "p.yaml", policy))
    assert any(span.label == "name" for span in found.spans("Ann went home"))
    (elsewhere / "deep").mkdir()
    (elsewhere / "deep" / "spans.jsonl").write_bytes((elsewhere / "spans.jsonl").read_bytes())
    assert load_policy(write_config(elsewhere / "deep" / "p.yaml", policy)).digest == found.digest

"""What helps whoever mistyped: the option that was meant, the names that are there, how a model comes here; and `--set`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.cli.reference import all_commands
from tacit.config.compare import ComparisonConfig
from tacit.config.finetune import FinetuneConfig
from tacit.config.load import config_differences, load_config, parse_config, validated
from tacit.config.run import RunConfig
from tacit.config.settings import with_settings
from tacit.config.shape import weight_files
from tacit.corpus.columns import header_names, key_names, listed, shown_header
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.errors import DataError, UsageError
from tacit.option_errors import option_places
from tacit.version import VERSION

from ..small import small_values, write_config, write_corpora
from .calling import Tacit, assert_one_line

PRIVATE = "zqprivateword"


# options -------------------------------------------------------------------------------------------------------------

MEANT = {
    "privacy.epsilon": "privacy.budget.epsilon",
    "epsilon": "privacy.budget.epsilon",
    "privacy.delta": "privacy.budget.delta",
    "model.learning_rate": "phases.N.learning_rate",
    "private.text": "text_field",
    "private.id": "id_field",
    "private.user": "user_field",
    "unit": "privacy.unit",
    "control": "audit.control",
    "vocabulary.lenght": "model.length",
}


@pytest.mark.parametrize("place", sorted(set(MEANT) - {"vocabulary.lenght"}))
def test_an_option_in_another_section_is_found(tmp_path: Path, place: str) -> None:
    values = with_settings(small_values(tmp_path), [f"{place}=1"])
    with pytest.raises(UsageError) as caught:
        parse_config(values)
    assert f"unknown option {place!r}; did you mean {MEANT[place]!r}?" in str(caught.value)


def test_all_unknown_options_are_told_at_once(tmp_path: Path) -> None:
    """And in one line; what is missing comes after them."""
    values = with_settings(small_values(tmp_path), ["model.widht=3", "epsilon=8", "phases.1.clip_nrom=1"])
    del values["run"]
    with pytest.raises(UsageError) as caught:
        parse_config(values, "run.yaml")
    said = str(caught.value)
    assert said.startswith("run.yaml: 3 unknown options: ")
    assert "\n" not in said
    assert "'model.widht' (did you mean 'width'?)" in said
    assert "'epsilon' (did you mean 'privacy.budget.epsilon'?)" in said
    assert "'phases.1.clip_nrom' (did you mean 'clip_norm'?)" in said


MISTYPED = {
    "{name: x, least_score: 0.5, labls: [date]}": "unknown option 'labls'; did you mean 'labels'?",
    "{name: x, least_score: 0.5, detectors: [{kind: spacy, pipelin: en}]}": (
        "unknown option 'detectors.0.pipelin'; did you mean 'pipeline'?"
    ),
    "{kind: tokens, name: x, word: [Anna]}": "unknown option 'word'; did you mean 'words'?",
    "{name: x, least_scor: 0.5, patern: []}": "2 unknown options: 'least_scor' (did you mean 'least_score'?), 'patern'",
    "{name: x}": "option 'least_score' is missing",
    "": "the file is empty",
}


@pytest.mark.parametrize("content", MISTYPED)
def test_a_policy_is_checked_as_a_configuration_is(tacit: Tacit, tmp_path: Path, content: str) -> None:
    """docs/options.md promises it of all options."""
    (tmp_path / "policy.yaml").write_text(content)
    gold = tmp_path / "gold.jsonl"
    gold.write_text('{"text": "Anna came", "spans": []}\n')
    done = tacit("screen", "--measure", gold, "--balanced", tmp_path / "policy.yaml")
    assert_one_line(done, 2, f"{tmp_path / 'policy.yaml'}: {MISTYPED[content]}")


def test_every_place_that_is_suggested_is_valid(tmp_path: Path) -> None:
    for root in (RunConfig, FinetuneConfig, ComparisonConfig):
        places = option_places(root)
        assert len(places) == len(set(places)) > 20
    assert {"privacy.budget.epsilon", "phases.N.clip_norm", "public.N.path"} <= set(option_places(RunConfig))
    assert {"models.NAME.dp.units", "tasks.NAME.folds"} <= set(option_places(ComparisonConfig))
    for place in ("privacy.budget.epsilon", "audit.control", "model.length", "phases.1.clip_norm"):
        parse_config(with_settings(small_values(tmp_path), [f"{place}={9 if 'control' not in place else 'true'}"]))


def test_no_section_is_written_out(tmp_path: Path) -> None:
    """Neither in a difference of two configurations, nor where a section is missing."""
    old, new = small_values(tmp_path), small_values(tmp_path)
    new["audit"], new["model"]["folder"] = None, None
    lines = config_differences(old, new)
    assert lines == ["audit: a section -> None"]
    assert config_differences({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}}) == ["a.b: 1 -> 2", "a.c: None -> 3"]
    for section, value in (("privacy", 3), ("model", "bert"), ("phases", {"a": 1}), ("private", "notes.csv")):
        with pytest.raises(UsageError) as caught:
            parse_config({**old, section: value})
        assert not re.search(r"\{'|dict|instance of", str(caught.value))


@pytest.mark.parametrize(
    ("option", "command"), [("tasks", "tacit compare"), ("documents", "tacit finetune"), ("phases", "tacit run")]
)
def test_a_configuration_of_another_command_is_told_its_command(option: str, command: str) -> None:
    kinds = {"phases": RunConfig, "documents": FinetuneConfig, "tasks": ComparisonConfig}
    for own, kind in kinds.items():
        if own == option:
            continue
        with pytest.raises(UsageError, match=re.escape(f"so it is a configuration of another command: {command}")):
            validated(kind, {option: {}, "run": "r"}, "here")
        with pytest.raises(UsageError, match=r"missing|unknown"):
            validated(kind, {option: {}, own: {}}, "here")


@pytest.mark.parametrize("name", ["bert-base-uncased", "openai-community/gpt2"])
@pytest.mark.parametrize("kind", [{}, {"kind": "bert"}])
def test_a_model_of_the_hub_is_told_how_to_come_here(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    values = small_values(Path(), model={"folder": name, "public": True, **kind})
    del values["vocabulary"]
    write_config(tmp_path / "a.yaml", values)
    assert_one_line(
        tacit("plan", "a.yaml"), 4, name, f"hf download {name} --local-dir models/", "nothing is downloaded"
    )
    tuning = {"run": "r", "model": {"folder": name}, "documents": {"path": "d"}, "training": {"epochs": 1}}
    write_config(tmp_path / "b.yaml", tuning)
    assert_one_line(tacit("plan", "b.yaml"), 4, f"hf download {name}")
    write_config(tmp_path / "c.yaml", {**values, "model": {"folder": "/no/model/here", "public": True}})
    missing = tacit("plan", "c.yaml")
    assert_one_line(missing, 4, "/no/model/here: there is no such folder")
    assert "hf download" not in missing.err


@pytest.mark.parametrize("kind", [{}, {"kind": "llama"}])
def test_a_model_of_a_run_that_is_not_made_yet(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, str]
) -> None:
    """As recipes/llama-lora.yaml names one."""
    monkeypatch.chdir(tmp_path)
    values = small_values(Path(), model={"folder": "runs/llama-public/release/model", "public": True, **kind})
    del values["vocabulary"]
    write_config(tmp_path / "a.yaml", values)
    done = tacit("plan", "a.yaml")
    assert_one_line(done, 4, "runs/llama-public/release/model: there is no such folder", "`tacit run`")
    assert "the release of runs/llama-public, a run that must be made first" in done.err
    assert "pickled" not in done.err


def test_the_folder_alone_says_so_too(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such folder; give the folder of a saved model"):
        weight_files(tmp_path / "none" / "model")
    (tmp_path / "release").mkdir()
    with pytest.raises(DataError, match=r"there is no model\.safetensors"):
        weight_files(tmp_path / "release")


# fields --------------------------------------------------------------------------------------------------------------


def refused(path: Path, **fields: Any) -> str:
    with pytest.raises(DataError) as caught:
        list(read_records(Source(path, **fields)))
    return str(caught.value)


def test_a_missing_field_lists_the_headers_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"note_id,note\n1,{PRIVATE}\n")
    assert "a field that is there: note_id, note" in refused(tmp_path / "a.csv")
    assert "option id_field to a field that is there: note_id, note" in refused(
        tmp_path / "a.csv", text_field="note", id_field="id"
    )
    row = {"note": PRIVATE, f"{PRIVATE} said": 1, "4711": 2, "author": 3}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(row)}\n" * 6)
    said = refused(tmp_path / "a.jsonl")
    assert said.endswith("a field that is there: note, author")
    assert PRIVATE not in said
    many = {f"field{number}": number for number in range(30)}
    (tmp_path / "b.jsonl").write_text(f"{json.dumps(many)}\n" * 6)
    assert refused(tmp_path / "b.jsonl").endswith("field19 and 10 more")


@pytest.mark.parametrize(
    "row",
    [
        f"4711,{PRIVATE}",
        f"{PRIVATE} Miller,cough",
        f"{PRIVATE},she has had a cough for two weeks",
        f"{PRIVATE},",
        f'{PRIVATE},"a, b"',
    ],
)
def test_a_row_in_place_of_a_header_is_not_shown(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.csv").write_text(f"{row}\n{row}\n")
    assert PRIVATE not in refused(tmp_path / "a.csv")


@given(st.lists(st.text(max_size=60), max_size=30))
def test_only_names_are_listed(names: list[str]) -> None:
    for name in key_names(names):
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}", name)
    assert all(key_names([name]) for name in shown_header(names))
    shown = header_names(names)
    assert shown == [] or len(shown) == len(names)
    assert all(len(name) <= 40 and len(name.split()) <= 3 for name in shown)
    assert len(listed(key_names(names)).split(", ")) <= 20


# --set ---------------------------------------------------------------------------------------------------------------


def test_set_replaces_and_adds_and_leaves_the_file_alone(tmp_path: Path) -> None:
    path = write_config(tmp_path / "a.yaml", small_values(tmp_path))
    before = path.read_bytes()
    settings = ("privacy.budget.epsilon=3", "phases.private.steps=7", "phases.0.steps=8", "title=a=b", "adaptive=null")
    config = load_config(path, (*settings, "audit.patterns=[HS]", "compute.threads=2"))
    assert config.privacy.budget.epsilon == 3
    assert [phase.steps for phase in config.phases] == [8, 7]
    assert config.title == "a=b"
    assert config.audit is not None
    assert config.audit.patterns == ("HS",)
    assert config.compute.threads == 2
    assert config.phases[1].learning_rate == load_config(path).phases[1].learning_rate
    assert path.read_bytes() == before


def test_set_changes_no_values_that_it_is_given() -> None:
    values: dict[str, Any] = {"a": {"b": 1}, "c": [{"name": "x", "d": 1}]}
    assert with_settings(values, ["a.b=2", "c.x.d=3"]) == {"a": {"b": 2}, "c": [{"name": "x", "d": 3}]}
    assert values == {"a": {"b": 1}, "c": [{"name": "x", "d": 1}]}


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("title", "--set title"),
        ("=3", "--set =3"),
        ("privacy..units=3", "--set privacy..units=3"),
        ("phases.other.steps=3", "it has public, private"),
        ("title.x=3", "single value"),
        ("title=[", "not valid YAML"),
        ("privacy.epsilon=3", "privacy.budget.epsilon"),
        ("privacy.units=0", "privacy.units"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_wrong_setting_is_one_line(tacit: Tacit, tmp_path: Path, command: str, setting: str, says: str) -> None:
    path = write_config(tmp_path / "a.yaml", small_values(tmp_path))
    assert_one_line(tacit(command, path, "--set", setting), 2, says)
    assert not (tmp_path / "run").exists()


def test_a_plan_and_a_run_take_it(tacit: Tacit, tmp_path: Path) -> None:
    write_corpora(tmp_path)
    path = write_config(tmp_path / "a.yaml", small_values(tmp_path))
    steps = [
        stage["steps"] for stage in tacit("plan", path, "--json", "--set", "phases.private.steps=3").json["stages"]
    ]
    assert 3 in steps
    done = tacit("run", path, "--until", "vocabulary", "--set", f"run={tmp_path / 'other'}")
    assert done.code == 0, done.err
    assert (tmp_path / "other" / "ledger.sqlite").is_file()
    assert not (tmp_path / "run").exists()


# the command itself --------------------------------------------------------------------------------------------------


def test_version(tacit: Tacit) -> None:
    assert tacit("--version").out == f"tacit {VERSION}\n"


def test_completion_is_shown(tacit: Tacit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "complete" in tacit("--show-completion", "bash").out


def squeezed(text: str) -> str:
    """Without what breaks and frames lines, and without the marks of code, which a terminal shows in a colour."""
    return re.sub(r"[\s`│]", "", text)


@pytest.mark.parametrize("name", sorted(all_commands()))
def test_no_word_of_a_help_text_is_eaten(name: str) -> None:
    command = all_commands()[name]
    wide = {"COLUMNS": "300", "TERMINAL_WIDTH": "300"}
    shown = squeezed(CliRunner().invoke(app, [*name.split()[1:], "--help"], env=wide).output)
    texts = [one.help for one in command.params if getattr(one, "help", None)]
    for text in [*texts, *(command.help or "").split("\n\n")]:
        assert squeezed(text) in shown, text

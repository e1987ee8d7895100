"""The whole pipeline at test size: what it leaves, that nothing private leaves it, that a killed run continues bit for bit."""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tacit.audit.own_members import LEAST
from tacit.cli.demo import demo_config
from tacit.config import load_config, parse_config
from tacit.corpus.synthetic import SyntheticPrivate, SyntheticPublic, write_private, write_public
from tacit.files import read_json
from tacit.pipeline import vocabulary as vocabulary_stage
from tacit.pipeline.opening import open_run
from tacit.pipeline.rows import drawn_canaries, planted_contexts, private_rows
from tacit.pipeline.stages import run as run_config
from tacit.pipeline.stages import walk
from tacit.privacy.ledger import Ledger
from tacit.report.collect.training import phase_rows
from tacit.training import dp_step

from .draws import install
from .keys import begin_with_key
from .small import AT_EACH_MICRO_BATCH, SENTINEL, small_values, tacit, write_config, write_corpora
from .started import called, command, start

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder with a finished run, and what the command printed."""
    folder = tmp_path_factory.mktemp("finished")
    write_corpora(folder)
    done = tacit("run", write_config(folder / "config.yaml", small_values(folder)))
    assert done.returncode == 0, done.stderr
    return folder, done


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _holding(needle: str, contents: dict[str, bytes]) -> list[str]:
    return [name for name, data in contents.items() if needle.lower().encode() in _lowered(data)]


@functools.lru_cache(maxsize=64)
def _lowered(data: bytes) -> bytes:
    """Once, and not once a needle: there are thousands."""
    return data.lower()


def test_a_run_leaves_what_the_readme_says(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = finished
    run = folder / "run"
    assert set(_contents(run / "release")) == {
        "model/config.json",
        "model/model.safetensors",
        "model/tokenizer.json",
        "model/tokenizer_config.json",
        "certificate.json",
        "manifest.json",
        "report.html",
        "report.json",
        "README.md",
    }
    assert stat.S_IMODE((run / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE((run / "config.json").stat().st_mode) == 0o600
    assert "Guaranteed for every user" in done.stdout
    assert str(run / "release" / "report.html") in done.stdout


def test_transformers_loads_the_release_offline(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    model_folder = finished[0] / "run" / "release" / "model"
    tokenizer = AutoTokenizer.from_pretrained(model_folder, local_files_only=True)
    model = AutoModelForMaskedLM.from_pretrained(model_folder, local_files_only=True)
    inputs = tokenizer("the patient reports [MASK] pain", return_tensors="pt")
    logits = model(**inputs).logits
    assert logits.shape == (1, inputs["input_ids"].shape[1], len(tokenizer))
    assert tokenizer.unk_token_id not in inputs["input_ids"]


def test_no_private_word_in_any_output(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = finished
    outputs = _contents(folder / "run" / "release")
    outputs |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    outputs |= {path.name: path.read_bytes() for path in (folder / "run").iterdir() if path.is_file()}
    for needle in (SENTINEL, "sentinel-case"):
        assert _holding(needle, outputs) == []
    # The same search finds the words where they are: it could fail.
    assert _holding(SENTINEL, {"notes": (folder / "notes.jsonl").read_bytes()}) == ["notes"]


def test_without_threshold_and_noise_the_same_search_finds_the_sentinel(tmp_path: Path) -> None:
    """The known-wrong release: a vocabulary without noise and threshold gives the words away."""
    from tacit.randomness import KeyedRandomness
    from tacit.vocabulary.count import count_words
    from tacit.vocabulary.select import draw_noise, release
    from tacit.vocabulary.tokenizer import TokenizerOptions

    counts = count_words([("a", ["one " + SENTINEL])], 16, KeyedRandomness(bytes(32)), TokenizerOptions())
    open_release = json.dumps(release(counts, draw_noise(len(counts), 0.0), 1)).encode()
    assert _holding(SENTINEL, {"vocabulary": open_release}) == ["vocabulary"]


def test_the_demo_gives_away_no_planted_word(tmp_path: Path) -> None:
    """The demo's own corpora and configuration with fewer steps: planted words and names, in every output."""
    data = tmp_path / "demo-data"
    data.mkdir()
    planted = write_private(data / "notes.jsonl", SyntheticPrivate())
    write_public(data / "public.jsonl", SyntheticPublic())
    values = {**demo_config(tmp_path), "compute": {"threads": 1}}
    for phase in values["phases"]:
        phase["steps"] = 2
        if phase["plan"] == "dp":
            phase["noise_multiplier"] = 1.5
            phase["expected_batch"] = 32
    values["audit"]["control_steps"] = 2
    done = tacit("run", write_config(tmp_path / "config.yaml", values))
    assert done.returncode == 0, done.stderr
    run = tmp_path / "demo"
    outputs = _contents(run / "release")
    outputs |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    outputs |= {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    assert len(planted) > 10
    notes = [json.loads(line) for line in (data / "notes.jsonl").read_text().splitlines()]
    identities = {note["patient_id"] for note in notes} | {note["note_id"] for note in notes}
    for needle in [*planted, *sorted(identities)]:
        assert _holding(needle, outputs) == [], "a private word is in an output"


@pytest.mark.parametrize("left", [(), ("report.html",), ("report.html", "report.json")])
def test_a_curators_report_that_a_kill_cut_short_is_made_again(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, left: tuple[str, ...]
) -> None:
    """It is made after the release, whose files stay as they are."""
    shutil.copytree(finished[0], tmp_path / "copy")
    run = tmp_path / "copy" / "run"
    for path in (run / "private" / "report").iterdir():
        if path.name not in left:
            path.unlink()
    before = _contents(run / "release")
    values = {**small_values(finished[0]), "run": str(run)}
    done = tacit("run", write_config(tmp_path / "again.yaml", values))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (run / "private" / "report").iterdir()} == {"README.md", "report.html", "report.json"}
    assert _contents(run / "release") == before


def test_no_report_of_the_curators_stops_a_release(tmp_path: Path) -> None:
    """It shows the control, which has no noise: that it can be made must not decide whether there is a release."""
    write_corpora(tmp_path)
    values = small_values(tmp_path, audit=None)
    begin_with_key(values, 7)
    (tmp_path / "run" / "private" / "report").write_text("a file is in its place")
    done = tacit("run", write_config(tmp_path / "config.yaml", values))
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "release" / "manifest.json").is_file()
    assert tacit("verify", tmp_path / "run").returncode == 0


def test_report_of_the_release_has_no_control(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    run = finished[0] / "run"
    released = read_json(run / "release" / "report.json")
    curators = read_json(run / "private" / "report" / "report.json")
    assert {row["model"] for row in released["attacks"][0]["rows"]} == {"released model"}
    assert {row["model"] for row in curators["attacks"][0]["rows"]} == {"released model", "control without DP"}


def trained(folder: Path, **private: Any) -> tuple[dict[str, dict[str, Any]], str]:
    """Weights by checkpoint of a run whose key and vocabulary are always the same, and what a report says of its DP phase."""
    values = small_values(folder, run=str(folder / f"run-{len(private)}"), vocabulary={"method": "public", "size": 500})
    values["phases"][1] |= private
    config = parse_config(values)
    begin_with_key(values, bytes(32))
    with open_run(config) as state:
        walk(state, "control")
        names = ("public", "private", "control-private")
        found = {name: dict(state.trained_model(name).named_parameters()) for name in names}
        return found, phase_rows(config, state.ledger)[1].plan


def test_a_phase_keeps_a_part_of_its_way_and_its_control_keeps_all(tmp_path: Path) -> None:
    """A control that went half of the way back would make the attack look weaker than it is."""
    write_corpora(tmp_path)
    (whole, plain), (half, told) = trained(tmp_path), trained(tmp_path, keep=0.5)
    for name, begun in whole["public"].items():
        end, control = whole["private"][name], whole["control-private"][name]
        torch.testing.assert_close(half["public"][name], begun, rtol=0, atol=0)
        torch.testing.assert_close(half["private"][name], (begun + end) / 2)
        torch.testing.assert_close(half["control-private"][name], control, rtol=0, atol=0)
    assert not torch.equal(whole["public"]["cls.predictions.bias"], whole["private"]["cls.predictions.bias"])
    assert told == f"{plain}, keeps 0.5 of the way from its start"


def test_a_control_without_noise_changes_nothing_that_is_released(tmp_path: Path) -> None:
    """The same weights, certificate and spends as beside a control without DP; its rows are the curator's; it stays private.

    So does an attack that reads the rows in which canaries were planted.
    """
    write_corpora(tmp_path)
    runs = {}
    for control in (True, "without-noise"):
        audit = {"canaries": 3, "probability": 0.2, "contexts": 2, "control": control}
        audit["attacks"] = {"planted-contexts": {"contexts": 3}} if control == "without-noise" else {}
        values = small_values(tmp_path, run=str(tmp_path / str(control)), audit=audit)
        values["vocabulary"] = {"method": "public", "size": 500}
        begin_with_key(values, bytes(32))
        done = tacit("run", write_config(tmp_path / f"{control}.yaml", values))
        assert done.returncode == 0, done.stderr
        runs[control] = tmp_path / str(control)
    with_dp, without = runs[True], runs["without-noise"]
    for file in ("model/model.safetensors", "model/tokenizer.json"):
        assert (with_dp / "release" / file).read_bytes() == (without / "release" / file).read_bytes()
    said = [read_json(run / "release" / "certificate.json") for run in (with_dp, without)]
    assert said[0]["epsilons"] == said[1]["epsilons"]
    found = read_json(without / "private" / "audit.json")
    assert set(found) == {"released model", "control without noise"}
    assert found["released model"] == read_json(with_dp / "private" / "audit.json")["released model"]
    for run, name in ((with_dp, "control without DP"), (without, "control without noise")):
        curators = read_json(run / "private" / "report" / "report.json")
        assert {row["model"] for row in curators["attacks"][0]["rows"]} == {"released model", name}
        assert f"The {name} " in (run / "private" / "report" / "report.html").read_text()
        assert _holding("control without noise", _contents(run / "release")) == []
        assert _holding("where they were planted", _contents(run / "release")) == []
    assert set(read_json(without / "private" / "planted-contexts.json")) == set(found)
    assert "where they were planted" in (without / "private" / "report" / "report.html").read_text()
    with Ledger.open(without / "ledger.sqlite", readonly=True) as ledger:
        assert set(ledger.spends_by_stage()) == {"private", "evaluation"}
    assert tacit("verify", without).returncode == 0


def test_planted_contexts_are_the_rows_in_which_canaries_stand(tmp_path: Path) -> None:
    """Also beside examples with coins, which stand behind them; found once more by their pieces."""
    write_corpora(tmp_path)
    audit = {"patterns": ["HHSHH"], "canaries": 3, "probability": 0.5, "coins": {"examples": 20}}
    values = small_values(
        tmp_path, run=str(tmp_path / "run"), audit=audit, vocabulary={"method": "public", "size": 500}
    )
    begin_with_key(values, bytes(32))
    with open_run(parse_config(values)) as state:
        walk(state, until="vocabulary")
        found, canaries, rows = planted_contexts(state, 1000), drawn_canaries(state), private_rows(state)
    assert len(found) == 3
    for number, own in found.items():
        pieces = np.array(canaries[number].pieces)
        windows = np.lib.stride_tricks.sliding_window_view(np.asarray(rows.ids_ST), 5, axis=1)
        there = np.argwhere((windows == pieces).all(axis=2))
        assert there[:, 1].tolist() == (own.positions_C - 2).tolist()
        assert np.array_equal(np.asarray(rows.ids_ST)[there[:, 0]], own.ids_CT)
        assert np.array_equal(np.asarray(rows.lengths_S)[there[:, 0]], own.lengths_C)


def test_planted_contexts_are_of_a_masked_model(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    values = small_values(tmp_path, model={"kind": "lstm", "layers": 1, "width": 16, "length": 16})
    values["audit"] = {"attacks": {"planted-contexts": {}}}
    done = tacit("plan", write_config(tmp_path / "config.yaml", values))
    assert done.returncode == 2
    assert "audit.attacks.planted-contexts masks the secrets of a masked model's canaries" in done.stderr


def test_ledger_and_certificate_agree_with_the_plan(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = finished
    plan = json.loads(tacit("plan", folder / "config.yaml", "--json").stdout)
    ledger = json.loads(tacit("ledger", folder / "run", "--json").stdout)
    certificate = read_json(folder / "run" / "release" / "certificate.json")
    assert ledger["epsilon"] == pytest.approx(plan["epsilon"], rel=1e-9)
    assert certificate["epsilons"][0]["epsilon"] == pytest.approx(plan["epsilon"], rel=1e-9)
    assert [stage["spent"] for stage in ledger["stages"]] == [1, 12, 1]
    verified = tacit("verify", folder / "run")
    assert verified.returncode == 0, verified.stderr


def test_verify_fails_when_a_released_file_was_altered(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished[0] / "run", run)
    weights = run / "release" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    done = tacit("verify", run)
    assert done.returncode == 4
    assert "released files" in done.stderr


def test_a_changed_configuration_is_refused_and_named(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = finished
    values = small_values(folder)
    values["model"] = {**values["model"], "layers": 2}
    done = tacit("run", write_config(folder / "changed.yaml", values))
    assert done.returncode == 2
    assert "model.layers: 1 -> 2" in done.stderr


def test_speed_options_may_change(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, before = finished
    values = small_values(folder, compute={"micro_batch": 4, "threads": 2})
    done = tacit("run", write_config(folder / "speed.yaml", values))
    assert done.returncode == 0, done.stderr
    assert done.stdout == before.stdout


def test_changed_private_data_is_refused(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    shutil.copytree(finished[0] / "run", tmp_path / "run")
    for name in ("notes.jsonl", "public.jsonl"):
        shutil.copy(finished[0] / name, tmp_path / name)
    shutil.rmtree(tmp_path / "run" / "release")
    (tmp_path / "run" / "private" / "checkpoints" / "private.pt").unlink()
    lines = (tmp_path / "notes.jsonl").read_text().splitlines()
    (tmp_path / "notes.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    config = yaml.safe_load((finished[0] / "config.yaml").read_text())
    shutil.copy(tmp_path / "notes.jsonl", finished[0] / "other-notes.jsonl")
    original = (finished[0] / "notes.jsonl").read_bytes()
    try:
        (finished[0] / "notes.jsonl").write_bytes((tmp_path / "notes.jsonl").read_bytes())
        done = tacit("run", write_config(tmp_path / "config.yaml", {**config, "run": str(tmp_path / "run")}))
    finally:
        (finished[0] / "notes.jsonl").write_bytes(original)
    assert done.returncode == 4
    assert "private corpus changed" in done.stderr


# kill and resume -----------------------------------------------------------------------------------------------------


def run_and_kill_itself(target: str, number: int, config: str) -> None:
    """Kill this process with SIGKILL at the n-th call of a function: nothing can be cleaned up or flushed."""
    owner, name = {
        "charge": (Ledger, "charge"),
        "noise": (dp_step, "add_noise_"),
        "replace": (os, "replace"),
        "draw": (vocabulary_stage, "_save_noise"),
        "release": (vocabulary_stage, "release"),
    }[target]
    original, calls = getattr(owner, name), itertools.count(1)

    def counted(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)
    install("whoever is killed")
    run_config(load_config(Path(config)))


def _run_and_kill(target: str, number: int, config: Path) -> int:
    return called(run_and_kill_itself, target, number, str(config)).returncode


def test_commands_that_ask_no_model_import_no_torch(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """It takes several seconds, and a machine that looks at a run need not have it."""
    run = str(shutil.copytree(finished[0] / "run", tmp_path / "run"))
    looks = [[name, run] for name in ("ledger", "tradeoff", "verify", "report")]
    commands = [["plan", str(finished[0] / "config.yaml")], *looks]
    code = (
        "import sys\nfrom tacit.cli.main import app\n"
        f"for arguments in {commands!r}:\n"
        "    app(arguments, standalone_mode=False)\n"
        "    assert not {'torch', 'transformers'} & set(sys.modules), arguments\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


OWN_TEXTS = LEAST + 10  # of a kind: enough for a verdict


def test_members_of_another_source_are_told_apart_without_the_model(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Private notes against public text, under a masked model, its control and the model before: a shift, and no finding."""
    folder, _ = finished
    shutil.copytree(folder / "run", tmp_path / "run")
    for name in ("notes.jsonl", "public.jsonl"):  # each token of each text is masked once under each model
        lines = (folder / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:OWN_TEXTS]))
    files = ("--members", tmp_path / "notes.jsonl", "--non-members", tmp_path / "public.jsonl")
    done = tacit("audit", tmp_path / "run", *files, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == read_json(tmp_path / "run" / "private" / "own_members.json")
    assert found["verdict"] == "undecided: the files differ without any model"
    assert "before the private phases" in found["score"]
    assert list(found["models"]) == ["released model", "control without DP"]
    assert {(one["members"], one["non_members"]) for one in found["models"].values()} == {(OWN_TEXTS, OWN_TEXTS)}
    assert SENTINEL not in done.stdout + done.stderr


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose vocabulary is made: key and vocabulary noise exist, so every copy must end alike."""
    folder = tmp_path_factory.mktemp("started")
    write_corpora(folder)
    values = small_values(folder, compute=AT_EACH_MICRO_BATCH)
    done = tacit("run", write_config(folder / "config.yaml", values), "--until", "vocabulary")
    assert done.returncode == 0, done.stderr
    return folder


def _copy_of(started: Path, folder: Path) -> Path:
    shutil.copytree(started / "run", folder / "run")
    values = small_values(started, run=str(folder / "run"), compute=AT_EACH_MICRO_BATCH)
    return write_config(folder / "config.yaml", values)


def _outcome(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, object], dict[str, object]]:
    certificate = read_json(folder / "run" / "release" / "certificate.json")
    evaluation = read_json(folder / "run" / "private" / "evaluation.json")
    return load_file(folder / "run" / "release" / "model" / "model.safetensors"), certificate, evaluation


@pytest.fixture(scope="module")
def uninterrupted(started: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = tacit("run", _copy_of(started, folder))
    assert done.returncode == 0, done.stderr
    return folder


def _assert_same_end(folder: Path, uninterrupted: Path) -> None:
    weights, certificate, evaluation = _outcome(folder)
    expected_weights, expected_certificate, expected_evaluation = _outcome(uninterrupted)
    assert weights.keys() == expected_weights.keys()
    for name in weights:
        assert np.array_equal(weights[name], expected_weights[name]), name
    assert evaluation == expected_evaluation
    for name in ("epsilons", "spends", "files"):
        assert certificate[name] == expected_certificate[name]


@pytest.mark.parametrize(
    "kills",
    [
        [("charge", 3), ("noise", 2), ("replace", 4)],
        [("noise", 1), ("charge", 1), ("charge", 7), ("replace", 9)],
        [("replace", 2), ("replace", 5), ("noise", 5)],
    ],
)
def test_killed_and_resumed_equals_uninterrupted(
    kills: list[tuple[str, int]], started: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    config = _copy_of(started, tmp_path)
    for target, number in kills:
        assert _run_and_kill(target, number, config) == -signal.SIGKILL
    done = tacit("run", config)
    assert done.returncode == 0, done.stderr
    _assert_same_end(tmp_path, uninterrupted)


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_random_times_equals_uninterrupted(
    seed: int, started: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    config = _copy_of(started, tmp_path)
    seconds = np.random.default_rng(seed).uniform(0.5, 4.0, size=3)
    for wait in seconds:
        process = start(command, ["run", str(config)], "whose key is there already")
        process.join(wait)
        process.kill()
        process.join()
    done = tacit("run", config)
    assert done.returncode == 0, done.stderr
    _assert_same_end(tmp_path, uninterrupted)


def test_the_vocabulary_is_drawn_once_however_often_it_is_killed(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    config = write_config(tmp_path / "config.yaml", small_values(tmp_path))
    assert _run_and_kill("draw", 1, config) == -signal.SIGKILL  # drawn, not yet on disk, so used for nothing
    made = tmp_path / "run" / "private" / "vocabulary"
    assert not list(made.glob("noise*"))
    assert _run_and_kill("release", 1, config) == -signal.SIGKILL  # on disk and used
    (noise,) = made.glob("noise*.npy")
    first = noise.read_bytes()
    assert tacit("run", config, "--until", "vocabulary").returncode == 0
    assert noise.read_bytes() == first
    with Ledger.open(tmp_path / "run" / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.spent("vocabulary") == 1


def test_an_older_checkpoint_never_unspends(started: Path, uninterrupted: Path, tmp_path: Path) -> None:
    config = _copy_of(started, tmp_path)
    assert _run_and_kill("noise", 5, config) == -signal.SIGKILL
    checkpoint = tmp_path / "run" / "private" / "checkpoints" / "private.pt"
    older = checkpoint.read_bytes()
    assert _run_and_kill("noise", 5, config) == -signal.SIGKILL
    with Ledger.open(tmp_path / "run" / "ledger.sqlite", readonly=True) as ledger:
        spent = ledger.spent("private")
    checkpoint.write_bytes(older)
    assert _run_and_kill("noise", 1, config) == -signal.SIGKILL
    with Ledger.open(tmp_path / "run" / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.spent("private") == spent
    assert tacit("run", config).returncode == 0
    _assert_same_end(tmp_path, uninterrupted)


def test_another_key_is_refused(started: Path, tmp_path: Path) -> None:
    config = _copy_of(started, tmp_path)
    (tmp_path / "run" / "private" / "key").write_bytes(bytes(32))
    done = tacit("run", config)
    assert done.returncode == 2
    assert "key" in done.stderr


def test_a_lost_ledger_is_refused(finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """Without the refusal, a new ledger would certify the old model with epsilon 0."""
    run = tmp_path / "run"
    shutil.copytree(finished[0] / "run", run)
    (run / "ledger.sqlite").unlink()
    shutil.rmtree(run / "release")
    done = tacit("run", write_config(tmp_path / "config.yaml", small_values(finished[0], run=str(run))))
    assert done.returncode == 4
    assert "ledger is missing" in done.stderr
    assert not (run / "release").exists()


def test_a_release_needs_every_planned_step_in_the_ledger(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """A ledger of a start that spent nothing, put beside the results of a finished run."""
    from tacit.config import parse_config
    from tacit.pipeline.opening import open_run

    run, empty = tmp_path / "run", tmp_path / "empty"
    shutil.copytree(finished[0] / "run", run)
    shutil.rmtree(run / "release")
    (run / "ledger.sqlite").unlink()
    begin_with_key(small_values(finished[0], run=str(empty)), (run / "private" / "key").read_bytes())
    with open_run(parse_config(small_values(finished[0], run=str(empty)))):
        pass
    shutil.copy(empty / "ledger.sqlite", run / "ledger.sqlite")
    (run / "private" / "evaluation.json").unlink()
    done = tacit("run", write_config(tmp_path / "config.yaml", small_values(finished[0], run=str(run))))
    assert done.returncode == 4
    assert "does not hold all of vocabulary, private" in done.stderr
    assert not (run / "release").exists()


def test_a_mistake_in_the_public_corpus_shows_before_anything_is_spent(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    (tmp_path / "public.jsonl").rename(tmp_path / "elsewhere.jsonl")
    config = write_config(tmp_path / "config.yaml", small_values(tmp_path))
    assert tacit("run", config, "--until", "vocabulary").returncode == 4
    assert not (tmp_path / "run").exists()  # seen before there is a run
    first, *others = (tmp_path / "elsewhere.jsonl").read_text().splitlines()
    (tmp_path / "public.jsonl").write_text("\n".join([first, "no JSON", *others]))
    for is_there in (False, True):
        assert tacit("run", config, "--until", "vocabulary").returncode == 4
        assert (tmp_path / "run").exists() == is_there  # a folder that this start made is gone
        (tmp_path / "run").mkdir(exist_ok=True)
    with Ledger.open(tmp_path / "run" / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.spends() == []
    values = small_values(tmp_path, public=[{"path": str(tmp_path / "elsewhere.jsonl"), "id_field": "id"}])
    done = tacit("run", write_config(config, values), "--until", "vocabulary")
    assert done.returncode == 0, done.stderr


def test_a_damaged_checkpoint_or_key_is_one_line(started: Path, tmp_path: Path) -> None:
    config = _copy_of(started, tmp_path)
    checkpoint = tmp_path / "run" / "private" / "checkpoints" / "private.pt"
    checkpoint.write_bytes(b"not a checkpoint")
    done = tacit("run", config)
    assert done.returncode == 4
    assert "damaged checkpoint" in done.stderr.splitlines()[-1]
    checkpoint.unlink()
    (tmp_path / "run" / "private" / "key").write_bytes(b"")
    done = tacit("run", config)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr


def test_a_paid_vocabulary_release_is_not_drawn_again(started: Path, tmp_path: Path) -> None:
    """Deleting the noise and the tokenizer would otherwise give a second release for the price of one."""
    config = _copy_of(started, tmp_path)
    shutil.rmtree(tmp_path / "run" / "private" / "vocabulary")
    done = tacit("run", config, "--until", "vocabulary")
    assert done.returncode == 4
    assert "vocabulary's noise" in done.stderr
    assert not (tmp_path / "run" / "private" / "vocabulary" / "released.json").exists()


@pytest.mark.parametrize("kind", ["bert", "lstm"])
def test_a_run_that_diverged_ends_in_one_line(tmp_path: Path, kind: str) -> None:
    """It is a function of what would be released, and of public text: nothing private decides it."""
    write_corpora(tmp_path)
    sections: dict[str, Any] = {"audit": None}
    if kind == "lstm":
        sections["model"] = {"kind": "lstm", "layers": 1, "width": 8, "length": 24}
        sections["vocabulary"] = {"method": "public", "size": 300}
    values = small_values(tmp_path, **sections)
    for phase in values["phases"]:
        phase |= {"learning_rate": 1e30, "steps": 3}
    done = tacit("run", write_config(tmp_path / "config.yaml", values))
    assert done.returncode == 4, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("tacit: ")]
    assert len(said) == 1
    assert "diverged" in said[0]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "release").exists()

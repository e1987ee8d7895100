"""`tacit score`: what it leaves and prints, and one line for every mistake."""

from __future__ import annotations

import functools
import json
import stat
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tacit.config import load_config
from tacit.corpus.readers import read_records
from tacit.corpus.records import Record
from tacit.corpus.source import Source
from tacit.corpus.units import Unit
from tacit.files import write_json
from tacit.pipeline.records import planted_records
from tacit.pipeline.scoring import texts_to_score
from tacit.randomness import KeyedRandomness, load_or_create_key
from tacit.scoring import scoring
from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scorer import ScorerOptions
from tacit.scoring.scores import SCORES, read_scores, rho_in_order

from ..folders import gpt2_folder
from ..object_store import open_store
from ..small import SENTINEL, small_values, write_config, write_corpora
from .calling import Tacit


@pytest.fixture
def run(tacit: Tacit) -> Tacit:
    """`tacit score` in this process."""
    return functools.partial(tacit, "score")


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt2_folder(tmp_path_factory.mktemp("scorer"))


BOUNDS = ("--lower", 5.69, "--upper", 5.715)


def notes_in(folder: Path, count: int = 40) -> Path:
    path = folder / "notes.jsonl"
    lines = [{"note": f"n{number}", "text": f"{SENTINEL} said pain {'and fever ' * number}"} for number in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def config_in(folder: Path, **sections: Any) -> Path:
    """A configuration of a causal model beside its corpora, which are small."""
    write_corpora(folder, 20, 150)
    model = {"kind": "gpt2", "layers": 1, "width": 32, "heads": 2, "length": 24}
    audit = {"canaries": 2, "copies": 3}
    return write_config(folder / "config.yaml", small_values(folder, **{"model": model, "audit": audit, **sections}))


def assert_one_line(found: tuple[int, str, str], code: int, *parts: str) -> None:
    assert found[:2] == (code, ""), found
    lines = [line for line in found[2].splitlines() if line.startswith("tacit: ")]
    assert lines == [found[2].splitlines()[-1]]
    for part in parts:
        assert part in lines[0]
    assert SENTINEL not in found[2]


# scores ---------------------------------------------------------------------------------------------------------------


def test_it_scores_a_file(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    out = tmp_path / "scores"
    code, said, err = run(
        "--data", notes_in(tmp_path), "--id-field", "note", "--model", scorer, *BOUNDS, "--out", out, "--workers", 1
    )
    assert code == 0, err
    assert said.startswith(
        f"{out}: done; the scores and the plots of rho are private. The scorer is public on your statement"
    )
    texts = [record.text for record in read_records(Source(tmp_path / "notes.jsonl"))]
    expected = [score.log_perplexity for score in ScorerOptions(scorer).load().score(texts)]
    scores = list(read_scores(out))
    assert [score.id for score in scores] == [f"n{number}" for number in range(40)]
    assert [score.log_perplexity for score in scores] == expected
    assert [score.rho for score in scores] == PrivacyProbability(5.69, 5.715).of(expected).tolist()
    size = sum(len(text.encode()) for text in texts)
    assert SENTINEL not in said + err
    assert f"{size}" not in err.replace(str(tmp_path), ""), "the bar is a share: sizes are private"


@pytest.mark.slow
def test_it_scores_a_corpus_in_an_object_store_as_a_file(
    run: Tacit, tmp_path: Path, scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stored").mkdir()
    file = notes_in(tmp_path / "stored")
    with open_store(tmp_path / "stored", monkeypatch) as store:
        for name, data in (("near", file), ("far", store.uri(file.name))):
            given = ("--data", data, "--id-field", "note", "--model", scorer, *BOUNDS, "--workers", 1)
            code, _, err = run(*given, "--out", tmp_path / name)
            assert code == 0, err
        assert store.fetched
    near, far = ((tmp_path / name / SCORES).read_bytes() for name in ("near", "far"))
    assert near == far
    refused = ("--data", "s3://key:secret@notes/a.jsonl", "--model", scorer, *BOUNDS, "--out", tmp_path / "x")
    code, _, err = run(*refused)
    assert code == 2
    assert "secret@" not in err


def test_no_warning_of_a_library_is_printed(
    run: Tacit, tmp_path: Path, scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would tell of one record (TACIT-47)."""

    def warns(*_: object) -> list[float]:
        warnings.warn("of one record", stacklevel=1)
        return [1.0] * 40

    monkeypatch.setattr(scoring, "_log_perplexities", warns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = ("--data", notes_in(tmp_path), "--model", scorer, *BOUNDS, "--workers", 1, "--out", tmp_path / "scores")
        code, _, err = run(*given)
    assert code == 0, err


def test_it_scores_a_runs_corpus_by_unit(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    config = config_in(tmp_path)
    code, said, err = run(config, "--model", scorer, *BOUNDS, "--json")
    assert code == 0, err
    out = tmp_path / "run" / "private" / "scores"
    assert json.loads(said)["scores"] == str(out)
    assert stat.S_IMODE(out.parent.stat().st_mode) == stat.S_IMODE(out.stat().st_mode) == 0o700
    options, streams = load_config(config), KeyedRandomness(load_or_create_key(tmp_path / "run" / "private" / "key"))
    records = texts_to_score(options, streams)
    assert [score.id for score in read_scores(out)] == [record.document_id for record in records]
    own, planted_behind = [Unit("kept", ("a text of the store", "another"))], planted_records(options, streams)
    given = list(
        texts_to_score(options, streams, own)
    )  # a run scores what it trains on, not what its files are by then
    assert given == [*(Record("kept", None, text) for text in own[0].texts), *planted_behind]
    users = {json.loads(line)["patient_id"] for line in (tmp_path / "notes.jsonl").read_text().splitlines()}
    planted = {record.document_id for record in planted_records(options, streams)}
    assert planted
    in_order = list(dict.fromkeys(score.id for score in read_scores(out)))
    assert set(in_order) == users | planted
    rho = dict(zip(in_order, rho_in_order(out, in_order), strict=True))
    of_one = [score.rho for score in read_scores(out) if score.id == min(users)]
    assert rho[min(users)] == max(of_one)
    for text in [*(path.read_bytes() for path in out.iterdir()), (said + err).encode()]:
        assert SENTINEL.encode() not in text


def test_again_it_leaves_what_is_done(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    arguments = ("--data", notes_in(tmp_path), "--workers", 1, "--model", scorer, *BOUNDS, "--out", tmp_path / "scores")
    run(*arguments)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "scores").iterdir()}
    assert run(*arguments)[0] == 0
    assert before == {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "scores").iterdir()
    }
    other = (*arguments[:-3], 6.0, *arguments[-2:])
    assert_one_line(run(*other), 2, "other options (upper: 5.715 -> 6.0)")


def adaptive_config(folder: Path, scorer: dict[str, str]) -> Path:
    """A configuration whose section `adaptive` says what a scoring needs."""
    values = small_values(folder)
    dp = {**values["phases"][1], "sequences_per_unit": 1}
    adaptive = {
        "form": "clip-weights", "scorer": scorer, "lower": 5.69, "upper": 5.715, "thresholds": [0.5], "weights": [0.5, 1.0]
    }  # fmt: skip
    privacy = {**values["privacy"], "unit": "document"}
    vocabulary = {"method": "public", "size": 500}
    return config_in(
        folder, adaptive=adaptive, privacy=privacy, vocabulary=vocabulary, phases=[values["phases"][0], dp]
    )


def test_the_configuration_says_scorer_and_constants(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    code, said, err = run(adaptive_config(tmp_path, {"folder": str(scorer), "public": True}), "--json")
    assert code == 0, err
    found = json.loads(said)
    assert (found["lower"], found["upper"], found["scorer"]) == (5.69, 5.715, str(scorer))
    receipt = json.loads((tmp_path / "run" / "private" / "scores" / "receipt.json").read_text())
    assert (receipt["options"]["lower"], receipt["options"]["upper"]) == (5.69, 5.715)


def test_a_phase_scores_in_the_run(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    config = adaptive_config(tmp_path, {"phase": "public"})
    assert_one_line(run(config), 2, "the phase public", "--model FOLDER and --out PATH")
    assert not (tmp_path / "run").exists()
    out = tmp_path / "scores"
    code, _, err = run(config, "--model", scorer, "--out", out)
    assert code == 0, err
    assert len(list(read_scores(out))) > 20


# constants ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_finds_the_constants(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    config, out = config_in(tmp_path), tmp_path / "adaptive.yaml"
    code, said, err = run("--fit-public", config, "--model", scorer, "--out", out)
    assert code == 0, err
    assert out.read_text() == said
    found = yaml.safe_load(said)["adaptive"]
    texts = [record.text for record in read_records(Source(tmp_path / "public.jsonl"))]
    values = [score.log_perplexity for score in ScorerOptions(scorer).load().score(texts)]
    assert [found["lower"], found["upper"]] == pytest.approx(np.quantile(values, [0.05, 0.95]), rel=1e-5)
    assert f"{len(texts)} public records" in said
    assert "on your statement" in err
    as_json = json.loads(run("--fit-public", "--data", tmp_path / "public.jsonl", "--model", scorer, "--json")[1])
    assert {"lower": as_json["lower"], "upper": as_json["upper"]} == found
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_other_quantiles(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    config_in(tmp_path)
    arguments = ("--fit-public", "--data", tmp_path / "public.jsonl", "--model", scorer, "--json")
    usual = json.loads(run(*arguments)[1])
    inner = json.loads(run(*arguments, "--quantiles", 0.25, 0.75)[1])
    assert usual["lower"] < inner["lower"] < inner["upper"] < usual["upper"]
    assert_one_line(run(*arguments, "--quantiles", 0.75, 0.25), 2, "quantiles")


# mistakes -------------------------------------------------------------------------------------------------------------


def test_options_that_do_not_go_together(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    config, notes = config_in(tmp_path), tmp_path / "notes.jsonl"
    before = sorted(tmp_path.rglob("*"))
    for arguments, part in (
        ((), "either a configuration"),
        ((config, "--data", notes), "either a configuration"),
        ((config,), "--model"),
        ((config, "--model", scorer), "--lower"),
        ((config, "--model", scorer, "--lower", 2.0), "--upper"),
        ((config, "--model", scorer, *BOUNDS, "--id-field", "x"), "--id-field"),
        ((config, "--model", scorer, *BOUNDS, "--fit-public"), "leave them out"),
        ((config, "--model", scorer, *BOUNDS, "--quantiles", 0.1, 0.2), "--quantiles"),
        (("--data", notes, "--model", scorer, *BOUNDS), "--out"),
        (("--data", notes, "--model", scorer, "--lower", 3.0, "--upper", 2.0, "--out", tmp_path / "s"), "below upper"),
        (("--data", notes, "--model", scorer, "--lower", 3.0, "--upper", "nan", "--out", tmp_path / "s"), "finite"),
        ((config, "--model", scorer, "--fit-public", "--out", tmp_path / "no" / "a.yaml"), "no such folder"),
    ):
        assert_one_line(run(*arguments), 2, part)
    assert sorted(tmp_path.rglob("*")) == before


def test_mistakes_in_what_is_read(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    out = ("--out", tmp_path / "scores")
    notes = notes_in(tmp_path)
    assert_one_line(run("--data", notes, "--model", tmp_path / "none", *BOUNDS, *out), 4, "config.json")
    assert_one_line(run("--data", tmp_path / "none.jsonl", "--model", scorer, *BOUNDS, *out), 4, "none.jsonl")
    with notes.open("a") as file:
        file.write(f'{{"text": "{SENTINEL}\n')
    assert_one_line(run("--data", notes, "--model", scorer, *BOUNDS, *out), 4, "notes.jsonl, line 41")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.jsonl"]


def test_a_run_that_cannot_be_scored_leaves_nothing(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    config = config_in(tmp_path)
    assert_one_line(run(config, "--model", tmp_path / "none", *BOUNDS), 4, "config.json")
    (tmp_path / "notes.jsonl").write_text("")
    assert_one_line(run(config, "--model", scorer, *BOUNDS), 4, "notes.jsonl")
    assert not (tmp_path / "run").exists()


def test_a_scorer_that_read_private_text(run: Tacit, tmp_path: Path) -> None:
    release = tmp_path / "other" / "release"
    gpt2_folder(release / "model")
    write_json(release / "certificate.json", {"spends": [{"stage": "training", "count": 3}], "files": {}})
    arguments = ("--data", notes_in(tmp_path), "--model", release, *BOUNDS, "--out", tmp_path / "scores")
    assert_one_line(run(*arguments), 2, "refused (scorer-not-public)")
    assert_one_line(run("--fit-public", *arguments[:4]), 2, "refused (scorer-not-public)")
    assert not (tmp_path / "scores").exists()


def test_a_corpus_that_is_screened(run: Tacit, tmp_path: Path, scorer: Path) -> None:
    values = small_values(tmp_path)
    values["privacy"] = {**values["privacy"], "unit": "record", "relation": "replace"}
    changes = {"screening": {}, "vocabulary": {"method": "public", "size": 500}, "audit": None}
    config = config_in(tmp_path, privacy=values["privacy"], **changes)
    assert_one_line(run(config, "--model", scorer, *BOUNDS), 2, "screened or marked")
    assert not (tmp_path / "run").exists()

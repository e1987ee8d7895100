"""Membership inference inside a run: memory is found, the release does not change by a byte, and it holds no number of the attack."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.config import parse_config
from tacit.corpus.synthetic import SyntheticPublic, write_public
from tacit.corpus.units import split_held_out
from tacit.files import read_json, write_json
from tacit.pipeline.records import units_of
from tacit.randomness import KeyedRandomness
from tacit.report.schema import CONTROL, RELEASED

from .keys import begin_with_key, key_numbered
from .small import tacit, write_config

pytestmark = pytest.mark.slow

DOCUMENTS = 120


def write_texts(folder: Path) -> None:
    """Each document has a long number of its own, and no words of its own."""
    generator = np.random.default_rng(11)
    numbers = generator.choice(10**8, size=DOCUMENTS, replace=False)
    lines = [{"id": f"d{place}", "text": f"My order is {number:08d}."} for place, number in enumerate(numbers)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_public(folder / "public.jsonl", SyntheticPublic(records=400))


def values(folder: Path, run: Path, membership: dict[str, int] | None) -> dict[str, Any]:
    """An LSTM that learns its texts by heart: no screening, no noise."""
    return {
        "title": "by heart",
        "run": str(run),
        "privacy": {"unit": "document", "units": DOCUMENTS, "budget": {"epsilon": 8.0, "delta": 1e-4}},
        "private": {"path": str(folder / "texts.jsonl"), "id_field": "id"},
        "public": [{"path": str(folder / "public.jsonl"), "id_field": "id"}],
        "vocabulary": {"method": "public", "size": 400},
        "model": {"kind": "lstm", "layers": 1, "width": 96, "length": 24},
        "phases": [
            {
                "name": "private",
                "plan": "plain",
                "stream": "private",
                "steps": 300,
                "batch_size": 36,
                "learning_rate": 2e-2,
            }
        ],
        "evaluation": {"held_out": 0.4, "public_sequences": 16},
        "audit": {"canaries": 3, "copies": 2, "digits": 2, "membership": membership},
        "compute": {"threads": 1, "checkpoint_seconds": 30.0},
        "allow": ["heuristic:non-private"],
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of one key: ``with/run`` has the attack, ``without/run`` has not.

    The key is fixed: under a drawn one the interval of so few pairs falls below its bound now and then.
    """
    folder = tmp_path_factory.mktemp("membership")
    write_texts(folder)
    attack = {"pairs": 40, "group_size": 4, "shadow_models": 2}
    for name, membership in (("with", attack), ("without", None)):
        run = folder / name / "run"
        begin_with_key(values(folder, run, membership))
        done = tacit("run", write_config(folder / f"{name}.yaml", values(folder, run, membership)))
        assert done.returncode == 0, done.stderr
    return folder


def numbers_of(attack: Any) -> list[float]:
    """All numbers of the attack that are no round ones."""
    if isinstance(attack, dict):
        return [number for part in attack.values() for number in numbers_of(part)]
    return [attack] if isinstance(attack, float) and len(repr(attack)) > 8 else []


def release_of(run: Path) -> dict[str, bytes]:
    """Every file of the release, with what says when and from which configuration it came taken out.

    The configuration is in the head of the ledger and in the mark of the model's files, and so in the digests of what names these.
    """
    release = run / "release"
    report = read_json(release / "report.json")
    known = {report["begun"]: "BEGUN", report["config_digest"]: "CONFIG", report["ledger_head"]: "HEAD"}
    known |= {row["digest"]: "ROW" for row in report["ledger"]}
    known |= {read_json(release / "model" / "config.json")["tacit_run"]: "RUN"}
    marked = (
        "model/config.json",
        "model/tokenizer_config.json",
        "certificate.json",
        "report.html",
        "report.json",
        "README.md",
    )
    known |= {digest: name for name, digest in read_json(release / "manifest.json")["files"].items() if name in marked}
    found = {}
    for path in sorted(path for path in release.rglob("*") if path.is_file()):
        data = path.read_bytes()
        for value, name in known.items():
            data = data.replace(value.encode(), name.encode())
        found[path.relative_to(release).as_posix()] = data
    return found


def test_a_model_that_learned_by_heart_is_found(finished: Path) -> None:
    found = read_json(finished / "with" / "run" / "private" / "membership.json")
    assert set(found) == {RELEASED}
    attack = found[RELEASED]
    assert attack["single"]["members"] == 40
    assert attack["group"]["members"] == 10
    assert attack["single"]["accuracy"]["low"] > 0.7
    assert not attack["single"]["at_chance"]
    assert attack["group"]["accuracy"]["value"] >= attack["single"]["accuracy"]["value"] - 0.05


def test_shadow_models_find_it_too(finished: Path) -> None:
    run = finished / "with" / "run"
    found = read_json(run / "private" / "membership.json")[RELEASED]
    assert found["shadow"]["single"]["accuracy"]["low"] > 0.7
    assert found["shadow"]["single"]["members"] == 40
    assert found["shadow"]["single"] != found["single"]
    rows = read_json(run / "private" / "report" / "report.json")["attacks"][1]["rows"]
    names = [row["name"] for row in rows]
    assert {"accuracy, single texts", "accuracy, single texts, against shadow models"} <= set(names)
    assert "AUC, groups of 4, against shadow models" in names
    checkpoints = sorted(path.name for path in (run / "private").rglob("shadow_*"))
    assert checkpoints == ["shadow_0.pt", "shadow_1.pt"]
    assert [path for path in run.rglob("shadow_*") if "private" not in path.parts] == []


def test_the_release_does_not_change_by_a_byte(finished: Path) -> None:
    one, other = (release_of(finished / name / "run") for name in ("with", "without"))
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []


def test_no_number_of_the_attack_is_in_the_release(finished: Path) -> None:
    run = finished / "with" / "run"
    numbers = numbers_of(read_json(run / "private" / "membership.json"))
    assert len(numbers) > 10
    released = b"".join(release_of(run).values())
    assert [number for number in numbers if repr(number).encode() in released] == []
    assert [attack["name"] for attack in read_json(run / "release" / "report.json")["attacks"]] == ["exposure"]
    curators = (run / "private" / "report" / "report.json").read_bytes()
    assert all(repr(number).encode() in curators for number in numbers_of(shown(run)))  # the search can find them


def shown(run: Path) -> dict[str, Any]:
    """What the curator's report says of the attack."""
    attack = read_json(run / "private" / "membership.json")[RELEASED]
    return {kind: {name: attack[kind][name] for name in ("accuracy", "auc")} for kind in ("single", "group")}


def test_a_sentinel_goes_to_the_curators_copy_alone(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "with" / "run", tmp_path / "run")
    run = tmp_path / "run"
    assert tacit("report", run).returncode == 0
    before = release_of(run)
    attack = read_json(run / "private" / "membership.json")
    attack[RELEASED]["single"]["accuracy"] = {"value": 0.3141592, "low": 0.2718281, "high": 0.5772156}
    write_json(run / "private" / "membership.json", attack)
    assert tacit("report", run).returncode == 0
    assert release_of(run) == before
    for name in ("report.html", "report.json", "README.md"):
        text = (run / "private" / "report" / name).read_text()
        assert "0.3141592" in text or "0.314" in text or "31.4" in text
        assert "do not publish" in text or name == "report.json"


def test_the_audit_prints_it_and_does_it_again(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "with" / "run", tmp_path / "run")
    path = tmp_path / "run" / "private" / "membership.json"
    first = read_json(path)
    path.unlink()
    printed = tacit("audit", tmp_path / "run")
    assert printed.returncode == 0, printed.stderr
    assert read_json(path) == first
    assert "40 texts" in printed.stdout
    assert "10 groups of 4" in printed.stdout
    assert "accuracy, groups of 4" in printed.stdout
    assert f"{first[RELEASED]['single']['accuracy']['value']:.3f}" in printed.stdout
    assert "do not publish" in printed.stdout
    assert [line.split("  ")[0] for line in printed.stdout.splitlines() if "highest of 3" in line] == [RELEASED]
    values = json.loads(tacit("audit", tmp_path / "run", "--json").stdout)
    assert values["membership"] == first
    stored = read_json(tmp_path / "run" / "private" / "audit.json")
    assert values["exposure"][RELEASED][0]["max_bits"] == stored[RELEASED][0]["max_bits"]


def test_the_highest_exposure_is_in_both_reports(finished: Path) -> None:
    run = finished / "with" / "run"
    rows = read_json(run / "release" / "report.json")["attacks"][0]["rows"]
    mean, highest = rows
    assert mean["test"] == highest["test"]
    assert highest["value"] >= mean["value"]
    assert highest["null"] > mean["null"]
    assert 0 <= highest["p_value"] <= 1
    assert "highest of 3" in (run / "release" / "report.html").read_text()
    assert read_json(run / "private" / "report" / "report.json")["attacks"][0]["rows"] == rows
    assert CONTROL not in (run / "release" / "report.html").read_text()


def test_another_corpus_is_refused(finished: Path, tmp_path: Path) -> None:
    """The texts of the attack are those that were trained on: an audit of another corpus would find nothing, and say so."""
    shutil.copytree(finished / "with" / "run", tmp_path / "run")
    shutil.copy(finished / "texts.jsonl", tmp_path / "texts.jsonl")
    config = read_json(tmp_path / "run" / "config.json")
    original = (finished / "texts.jsonl").read_bytes()
    assert config["private"]["path"] == str(finished / "texts.jsonl")
    try:
        (finished / "texts.jsonl").write_bytes(b"\n".join(original.splitlines()[:-1]) + b"\n")
        done = tacit("audit", tmp_path / "run")
    finally:
        (finished / "texts.jsonl").write_bytes(original)
    assert done.returncode == 4
    assert "private corpus changed" in done.stderr


# texts that somebody gives -------------------------------------------------------------------------------------------


def write_own_files(finished: Path, folder: Path) -> tuple[Path, Path]:
    """The texts that the run was trained on, as plain text, and as many others of the same law, as a table."""
    config = parse_config(read_json(finished / "without" / "run" / "config.json"))
    streams = KeyedRandomness(key_numbered(0)).child("corpus")
    training, _ = split_held_out(units_of(config), config.evaluation.held_out, streams)
    members, others = folder / "members.txt", folder / "others.csv"
    members.write_text("".join(f"{unit.texts[0]}\n" for unit in training))
    numbers = np.random.default_rng(12).choice(10**8, size=len(training), replace=False)
    others.write_text("note\n" + "".join(f"My order is {number:08d}.\n" for number in numbers))
    return members, others


def test_members_of_ones_own_are_told_apart_for_the_curator_alone(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished / "without" / "run", run)
    before = release_of(run)
    members, others = write_own_files(finished, tmp_path)
    done = tacit("audit", run, "--members", members, "--non-members", others, "--text-field", "note")
    assert done.returncode == 0, done.stderr
    assert "Verdict: told apart." in done.stdout
    assert "do not publish" in done.stdout
    assert "My order" not in done.stdout + done.stderr
    found = read_json(run / "private" / "own_members.json")
    assert found["models"][RELEASED]["auc"]["low"] > 0.9
    assert found["apart"]["blind"]["auc"]["low"] < 0.5
    assert found["apart"]["in_both"] == 0
    assert release_of(run) == before


def test_files_of_ones_own_that_cannot_be_read(finished: Path, tmp_path: Path) -> None:
    run = finished / "without" / "run"
    members, others = write_own_files(finished, tmp_path)
    for arguments, code, words in (
        (("--members", members), 2, "go together"),
        (("--members", members, "--non-members", others), 4, "there is no field 'text'"),
        (("--members", members, "--non-members", tmp_path / "none.txt"), 4, "no such file"),
    ):
        done = tacit("audit", run, *arguments)
        assert done.returncode == code, done.stderr
        assert words in done.stderr.splitlines()[-1]
        assert "My order" not in done.stdout + done.stderr

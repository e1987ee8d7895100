"""A run on screened dialogues: redacted, split, trained by turns, with its confidentiality statement (Zhao et al. 2022)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.config import parse_config
from tacit.corpus.readers import read_records
from tacit.corpus.units import UnitKind, group_units, split_held_out
from tacit.files import read_json, write_json
from tacit.pipeline.corpus import membership_samples
from tacit.pipeline.membership import run_samples
from tacit.pipeline.opening import open_run
from tacit.privacy.ledger import Ledger
from tacit.randomness import KeyedRandomness
from tacit.reproduce.crt.customersim import MembershipSamples
from tacit.runs.folder import RunFolder

from .dialogues import (
    Run,
    dialogue,
    dialogue_values,
    run_dialogues,
    run_second_round_again,
    shown,
    stages_in_ledger,
    write_dialogues,
)
from .small import tacit, write_config

pytestmark = pytest.mark.slow


def values(folder: Path, **sections: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "title": "screened dialogues",
        "screening": {"data_point": "line", "gamma": 0.01, "delta2": 0.00005},
        "phases": [
            {
                "name": "public",
                "plan": "plain",
                "stream": "screened",
                "steps": 4,
                "batch_size": 8,
                "learning_rate": 1e-2,
            },
            {
                "name": "private",
                "plan": "dp",
                "stream": "private",
                "steps": 3,
                "expected_batch": 20,
                "clip_norm": 0.5,
                "learning_rate": 1e-2,
            },
        ],
        "audit": {
            "canaries": 3,
            "copies": 4,
            "digits": 3,
            "control": True,
            "control_steps": 2,
            "membership": {"pairs": 100, "group_size": 2},
        },
    }
    return dialogue_values(folder, units=400, **own | sections)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("screened")
    return run_dialogues(folder, values(folder))


def test_the_certificate_claims_confidentiality_and_no_epsilon(finished: Run) -> None:
    folder, done = finished
    certificate = read_json(folder / "run" / "release" / "certificate.json")
    assert certificate["status"] == "heuristic"
    assert {pair["epsilon"] for pair in certificate["epsilons"]} == {"infinity"}
    stated = certificate["confidentiality"]
    assert stated["worst_case"]["epsilon"] == "infinity"  # a missed secret may be in the public stream
    # The policies read context, so a caught secret may change its record too and gamma amplifies nothing; half of delta pays
    # for delta_2, which makes this epsilon the larger one.
    assert 7.9 < stated["screened"]["epsilon"] <= 8.0 < stated["bayesian"]["epsilon"] < 9.0
    assert stated["stability"] == {"missed": 1, "caught": 1}
    assert "No differential privacy of the corpus" in done.stdout
    assert "Guaranteed" not in done.stdout


def test_the_ledger_holds_both_streams_of_every_round(finished: Run) -> None:
    assert stages_in_ledger(finished[0]) == {
        "vocabulary": ("NonPrivate", 1),
        "public-1": ("NonPrivate", 4),
        "private-1": ("PoissonGaussian", 3),
        "public-2": ("NonPrivate", 4),
        "private-2": ("PoissonGaussian", 3),
    }


def test_no_secret_is_in_any_output_but_the_curators(finished: Run) -> None:
    """The names would be found where they are: in the held-out text, which is not redacted."""
    run = finished[0] / "run"
    trained = [run / "private" / "screened" / f"{stream}.jsonl" for stream in ("public", "private")]
    for text in (*shown(finished), *(path.read_text() for path in trained)):
        assert "zqvornak" not in text.lower()
        assert "415-555" not in text
        assert "@example.org" not in text
    assert "Zqvornak" in (run / "private" / "screened" / "held_out.jsonl").read_text()


def test_exact_scores_are_in_the_curators_report_alone(finished: Run) -> None:
    run = finished[0] / "run"
    corpora = {
        place: {row["corpus"] for row in read_json(run / place / "report.json")["utility"]}
        for place in ("release", "private/report")
    }
    assert corpora == {"release": set(), "private/report": {"private held-out text (exact, for the curator)"}}
    page = (run / "release" / "report.html").read_text()
    assert "What is kept confidential" in page
    assert "No guarantee" not in page  # page one said so in red, where the terminal said that confidentiality holds
    assert "Treat the released files" not in page
    first = read_json(run / "release" / "report.json")["verdict"]
    assert first["headline"].startswith("No differential privacy; what holds is confidentiality")
    assert first["headline"] in page
    assert f"{first['headline']}. " in finished[1].stdout
    assert first["headline"] in (run / "release" / "README.md").read_text()


def test_verify_recomputes_the_statement(finished: Run, tmp_path: Path) -> None:
    folder, _ = finished
    assert tacit("verify", folder / "run").returncode == 0
    shutil.copytree(folder / "run", tmp_path / "run")
    path = tmp_path / "run" / "release" / "certificate.json"
    certificate = read_json(path)
    certificate["confidentiality"]["bayesian"]["epsilon"] /= 2
    write_json(path, certificate)
    done = tacit("verify", tmp_path / "run")
    assert done.returncode == 4
    assert "confidentiality statement" in done.stderr


def test_verify_catches_a_smaller_gamma_in_the_stored_configuration(finished: Run, tmp_path: Path) -> None:
    shutil.copytree(finished[0] / "run", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = read_json(path)
    config["screening"]["gamma"] = 0.001
    write_json(path, config)
    done = tacit("verify", tmp_path / "run")
    assert done.returncode == 4
    assert "configuration is the ledger's" in done.stderr


def test_the_statement_is_printed(finished: Run) -> None:
    run = finished[0] / "run"
    printed = tacit("confidentiality", run).stdout
    assert printed.index("worst-case") < printed.index("screened (") < printed.index("bayesian")
    assert (
        json.loads(tacit("confidentiality", run, "--json").stdout)
        == read_json(run / "release" / "certificate.json")["confidentiality"]
    )


def test_stopped_in_the_second_round_and_continued_is_the_same_model(finished: Run, tmp_path: Path) -> None:
    """What the second round leaves is taken away; its phases go on with the optimizers of the first round."""
    folder, _ = finished
    run = run_second_round_again(finished, tmp_path, values(folder))
    one, other = (torch.load(place / "private" / "checkpoints" / "private-2.pt") for place in (folder / "run", run))
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])
    last = torch.load(run / "private" / "checkpoints" / "private-2.pt")["optimizer"]["state"][0]["step"]
    assert int(last) == 6  # three steps of each round


def test_a_policy_that_misses_secrets_shows_them_to_the_private_stream_alone(tmp_path: Path) -> None:
    """Half of the secrets stay in the text, and a baseline without noise trains on all of it."""
    write_dialogues(tmp_path, 60)
    config = values(tmp_path, rounds=1, allow=["heuristic:non-private"])
    config["screening"] |= {"missed": 0.5, "gamma": 0.5}
    config["phases"] = [{**config["phases"][0], "stream": "redacted"}]
    done = tacit("run", write_config(tmp_path / "config.yaml", config), "--until", "control")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "run" / "private" / "screened"
    streams = {name: (folder / f"{name}.jsonl").read_text() for name in ("public", "private")}
    mails = [f"zq{number}@example.org" for number in range(60)]
    assert not any(mail in streams["public"] for mail in mails)
    trained_on = sum(mail in streams["private"] for mail in mails)
    held_out = sum(mail in (folder / "held_out.jsonl").read_text() for mail in mails)
    assert 0.2 * (60 - held_out) < trained_on < 0.8 * (60 - held_out)
    with Ledger.open(tmp_path / "run" / "ledger.sqlite", readonly=True) as ledger:
        assert {type(plan.event).__name__ for plan in ledger.plans.values()} == {"NonPrivate"}
    plan = tacit("plan", tmp_path / "config.yaml")
    assert "made to miss 50 % of the secrets" in plan.stdout


def test_a_run_without_screening_has_no_statement(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = tacit("confidentiality", tmp_path / "run")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


# membership inference --------------------------------------------------------------------------------------------------


def lines_of(run: Path, streams: KeyedRandomness) -> tuple[MembershipSamples, set[str], set[str]]:
    """What the attack takes under a key, and all lines of the training and of the held-out dialogues."""
    config = RunFolder(run).load_config()
    documents = group_units(read_records(config.private.source), UnitKind("document"))
    sides_of = split_held_out(documents, config.evaluation.held_out, streams.child("corpus"))
    samples = run_samples(config, sides_of, streams)
    held_out = {json.loads(line)["text"] for line in (run / "private" / "screened" / "held_out.jsonl").open()}
    training = {dialogue(number) for number in range(150)} - held_out
    sides = [{line for text in side for line in text.split("\n")} for side in (training, held_out)]
    return samples, sides[0] - sides[1], sides[1] - sides[0]


def check_sides(samples: MembershipSamples, training: set[str], held_out: set[str]) -> None:
    assert len(samples.members) >= 8
    assert set(samples.members) <= training
    assert set(samples.non_members) <= held_out
    assert all(re.search("Zqvornak|415-555", text) for text in (*samples.members, *samples.non_members))


def test_the_attack_takes_raw_lines_by_the_held_out_rule_of_the_screening(finished: Run) -> None:
    run = finished[0] / "run"
    check_sides(*lines_of(run, KeyedRandomness((run / "private" / "key").read_bytes())))
    with pytest.raises(AssertionError):  # the rule of another key
        check_sides(*lines_of(run, KeyedRandomness(bytes(32))))


def test_the_owner_of_the_corpus_gives_the_attack_these_lines(finished: Run, tmp_path: Path) -> None:
    shutil.copytree(finished[0], tmp_path / "copy")
    run = tmp_path / "copy" / "run"
    with open_run(parse_config({**read_json(run / "config.json"), "run": str(run)})) as state:
        samples = membership_samples(state)
    expected, *_ = lines_of(run, KeyedRandomness((run / "private" / "key").read_bytes()))
    assert samples == expected


def test_membership_is_in_the_curators_report_alone(finished: Run) -> None:
    run = finished[0] / "run"
    exposure, found = read_json(run / "private" / "report" / "report.json")["attacks"]
    assert (exposure["name"], found["name"]) == ("exposure", "membership")
    assert [(row["model"], row["name"]) for row in found["rows"] if row["judged"]] == [
        ("released model", "accuracy, single texts"),
        ("released model", "accuracy, groups of 2"),
        ("control without DP", "accuracy, single texts"),
        ("control without DP", "accuracy, groups of 2"),
    ]
    assert int(found["rows"][0]["parameters"]["members"].split()[0]) < 100
    assert "100 were asked for" in (run / "private" / "report" / "report.html").read_text()
    released = read_json(run / "release" / "report.json")
    assert [attack["name"] for attack in released["attacks"]] == ["exposure"]
    assert {row["model"] for row in released["attacks"][0]["rows"]} == {"released model"}
    assert 'id="attack-membership"' not in (run / "release" / "report.html").read_text()


def test_an_audit_of_a_changed_corpus_is_refused(finished: Run) -> None:
    folder, _ = finished
    path = folder / "dialogues.jsonl"
    original = path.read_bytes()
    try:
        path.write_bytes(b"\n".join(original.splitlines()[:-1]) + b"\n")
        done = tacit("audit", folder / "run")
    finally:
        path.write_bytes(original)
    assert done.returncode == 4
    assert len(done.stderr.strip().splitlines()) == 1

"""A run of selective DP on marked dialogues: its ledger, its account, what is not in its release, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.config import RunConfig, parse_config
from tacit.errors import RefusedError, UsageError
from tacit.files import read_json
from tacit.planning import make_plan, mechanisms_from_ledger, plan_in_ledger, solve
from tacit.planning.selective import run_account
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import Gaussian, NonPrivate, PoissonGaussian, Spend
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import Provenance
from tacit.privacy.selective import participations
from tacit.training.plans import SelectivePlan

from .dialogues import (
    Run,
    dialogue_values,
    run_dialogues,
    run_second_round_again,
    shown,
    stages_in_ledger,
    write_dialogues,
)
from .small import tacit, write_config

PUBLIC = {
    "name": "public",
    "plan": "selective",
    "stream": "marked",
    "steps": 5,
    "batch_size": 8,
    "segments": 2,
    "state_clip": 0.1,
    "state_noise_multiplier": 12.0,
    "learning_rate": 1e-2,
}
PRIVATE = {
    "name": "private",
    "plan": "dp",
    "stream": "marked",
    "steps": 3,
    "expected_batch": 20,
    "clip_norm": 0.5,
    "noise_multiplier": 0.9,
    "learning_rate": 1e-2,
}


def values(folder: Path, **sections: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "title": "marked dialogues",
        "marking": {"data_point": "line"},
        "phases": [PUBLIC, PRIVATE],
        "audit": {"canaries": 3, "copies": 4, "digits": 3, "control": True, "control_steps": 3},
        "allow": ["heuristic:selective-dp"],
    }
    return dialogue_values(folder, units=600, **own | sections)


def configure(**sections: Any) -> RunConfig:
    return parse_config(values(Path("/nowhere"), **sections))


def test_states_are_released_in_float32_alone() -> None:
    phase = r"compute\.precision: the states that phase \w+ releases are bounded in float32"
    with pytest.raises(UsageError, match=phase):
        configure(compute={"precision": "bf16"})


# the plan ----------------------------------------------------------------------------------------------------------------


def test_the_account_is_that_of_the_phases_over_all_rounds() -> None:
    config = configure(rounds=7, phases=[{**PUBLIC, "steps": 100}, PRIVATE])
    found = run_account(config)
    assert found is not None
    takes_part = 7 * participations(100, 8, 600)
    assert takes_part == 14  # 800 slots of permutations of 600 in each round, not 5,600 of one
    states = Spend(Gaussian(12.0), takes_part * 2)
    gradients = Spend(PoissonGaussian(20 / 600, 0.9), 7 * 3)
    assert found.releases == 28
    assert found.states == pytest.approx(epsilon([states], 1e-4, "replace"), rel=1e-6)
    assert found.gradients == epsilon([gradients], 1e-4, "replace")
    assert found.together == epsilon([gradients, states], 1e-4, "replace")


def test_the_plan_says_that_epsilon_is_infinite_and_what_the_account_is() -> None:
    config = configure()
    plan = make_plan(config)
    account = run_account(config)
    assert account is not None
    assert math.isinf(plan.epsilon)
    assert any("epsilon is infinite for the record" in note for note in plan.notes)
    assert account.sentence in plan.notes
    assert [stage.name for stage in plan.stages] == ["vocabulary", "public-1", "private-1", "public-2", "private-2"]
    assert all(isinstance(stage.event, NonPrivate) for stage in plan.stages)
    first = plan.mechanisms.phases[0].plan
    assert first == SelectivePlan(batch_size=8, slots=600, segments=2, state_clip=0.1, state_noise_multiplier=12.0)


def test_no_budget_binds_and_the_ledger_gives_the_plan_back(tmp_path: Path) -> None:
    config = configure(privacy={**values(tmp_path)["privacy"], "budget": {"epsilon": 0.01, "delta": 1e-4}})
    mechanisms = solve(config)
    header = LedgerHeader("record", "replace", 600, math.inf, 1e-4, config.digest(), "key")
    with Ledger.create(tmp_path / "ledger.sqlite", header) as ledger:
        assert mechanisms_from_ledger(config, ledger) is None
        plan_in_ledger(mechanisms, ledger, Provenance())
        assert mechanisms_from_ledger(config, ledger) == mechanisms


def test_the_digest_knows_what_marks() -> None:
    assert configure().digest() != configure(marking={"data_point": "record"}).digest()
    assert configure().digest() != configure(marking={"data_point": "line", "balanced": "own.yaml"}).digest()


def test_a_public_corpus_gives_the_words_at_no_cost() -> None:
    config = configure(public=[{"path": "/nowhere/public.jsonl"}])
    assert solve(config).vocabulary is None


# refusals ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"allow": []}, "public-tokens-without-noise"),
        ({"allow": ["heuristic:non-private"]}, "public-tokens-without-noise"),
        (
            {"privacy": {"unit": "record", "units": 600, "budget": {"epsilon": 8, "delta": 1e-4}}},
            "marking-needs-replace",
        ),
    ],
)
def test_what_has_no_proof_is_refused_with_its_reason(sections: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError) as caught:
        configure(**sections)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"marking": None}, "needs the section `marking`"),
        ({"screening": {}}, "leave one of them out"),
        ({"model": {"kind": "gpt2", "width": 16, "heads": 2, "length": 24}}, "must be lstm"),
        ({"model": {"kind": "bert", "width": 16, "heads": 2, "length": 24}}, "must be lstm"),
        ({"vocabulary": {"method": "histogram"}}, "vocabulary.method must be public"),
        ({"phases": [PUBLIC, {**PRIVATE, "noise_multiplier": None}]}, "private: give noise_multiplier"),
        ({"phases": [PUBLIC, {**PRIVATE, "stream": "private"}]}, "read by stream: marked alone"),
        ({"phases": [{**PUBLIC, "stream": "private"}]}, "phases.0.stream"),
        ({"phases": [{**PUBLIC, "segment": 2}]}, "did you mean 'segments'"),
        ({"phases": [{**PUBLIC, "state_clip": 0}]}, "state_clip"),
        ({"marking": {"mised": 2}}, "unknown option 'marking.mised'"),
    ],
)
def test_what_contradicts_itself_is_refused_in_one_line(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        configure(**sections)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_marking_without_a_phase_that_reads_marks_is_refused() -> None:
    plain = {"name": "public", "plan": "plain", "stream": "public", "steps": 5, "batch_size": 8, "learning_rate": 1e-3}
    with pytest.raises(UsageError, match="no phase has stream: marked"):
        configure(phases=[plain], public=[{"path": "public.jsonl"}])


def test_units_other_than_records_are_refused() -> None:
    privacy = {**values(Path("/nowhere"))["privacy"], "unit": "document"}
    with pytest.raises(UsageError, match="unit must be record"):
        configure(privacy=privacy)


# the run -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("marked")
    return run_dialogues(folder, values(folder))


@pytest.mark.slow
def test_the_ledger_holds_every_step_as_a_release_without_a_guarantee(finished: Run) -> None:
    folder, done = finished
    assert stages_in_ledger(folder) == {
        "vocabulary": ("NonPrivate", 1),
        "public-1": ("NonPrivate", 5),
        "private-1": ("NonPrivate", 3),
        "public-2": ("NonPrivate", 5),
        "private-2": ("NonPrivate", 3),
    }
    certificate = read_json(folder / "run" / "release" / "certificate.json")
    assert certificate["status"] == "heuristic"
    assert {pair["epsilon"] for pair in certificate["epsilons"]} == {"infinity"}
    assert "No guarantee" in done.stdout
    assert "Guaranteed" not in done.stdout
    assert tacit("verify", folder / "run").returncode == 0


@pytest.mark.slow
def test_the_report_says_what_the_account_is(finished: Run) -> None:
    folder, _ = finished
    report = read_json(folder / "run" / "release" / "report.json")
    account = run_account(parse_config(values(folder)))
    assert account is not None
    said = [row["text"] for row in report["guarantee"]["assumptions"]]
    assert any(account.sentence in text for text in said)
    assert any("Epsilon is infinite" in text for text in said)
    plans = [row["plan"] for row in report["phases"]]
    assert "at most 2 states of a record released" in plans[0]
    assert "noise multiplier 0.9" in plans[1]
    assert {row["corpus"] for row in report["utility"]} == set()  # exact scores are for the curator
    assert read_json(folder / "run" / "private" / "evaluation.json")["curator"]["released model"]["perplexity"] > 1


@pytest.mark.slow
def test_no_marked_word_is_in_any_output_but_the_curators(finished: Run) -> None:
    """Also not as a piece of the tokenizer: its words come from what is not marked."""
    for text in shown(finished):
        assert "vornak" not in text.lower()
        assert "example.org" not in text
    words = read_json(finished[0] / "run" / "private" / "vocabulary" / "released.json")
    assert "hello" in words
    private = finished[0] / "run" / "private"
    planted = " ".join(
        read_json(private / "canaries.json")
    ).split()  # of digits that no policy marks, drawn with the key
    assert [word for word in words if "zqvornak" in word or ("415" in word and word not in planted)] == []


@pytest.mark.slow
def test_stopped_in_the_second_round_and_continued_is_the_same_model(finished: Run, tmp_path: Path) -> None:
    folder, _ = finished
    run = run_second_round_again(finished, tmp_path, values(folder))
    for name in ("private-2.pt", "control-private-2.pt"):
        one, other = (torch.load(place / "private" / "checkpoints" / name) for place in (folder / "run", run))
        assert all(torch.equal(one["model"][part], other["model"][part]) for part in one["model"])


@pytest.mark.slow
def test_a_policy_that_changed_is_refused(tmp_path: Path) -> None:
    """Its path is the same, and so is the configuration; but other tokens would be public than the ledger knows."""
    write_dialogues(tmp_path)
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: own\nleast_score: 0.5\n")
    own = values(tmp_path, marking={"data_point": "line", "balanced": str(policy)}, audit=None)
    config = write_config(tmp_path / "config.yaml", own)
    assert tacit("run", config, "--until", "vocabulary").returncode == 0
    policy.write_text("name: own\nleast_score: 0.5\nlabels: [email]\n")
    done = tacit("run", config, "--until", "control")
    assert done.returncode == 4
    assert "the marks of private tokens" in done.stderr
    assert len(done.stderr.strip().splitlines()[-1:]) == 1


@pytest.mark.slow
def test_the_plan_is_printed_with_its_account(finished: Run) -> None:
    done = tacit("plan", finished[0] / "config.yaml")
    assert done.returncode == 0, done.stderr
    assert (
        "note: selective DP: when the private tokens of one line of a record are replaced by as many others, epsilon is "
        in " ".join(done.stdout.split())
    )

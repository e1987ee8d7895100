"""The plan: its noise meets the budget jointly, it needs neither data nor torch, and the ledger gives it back unchanged."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit.config import RunConfig, parse_config
from tacit.config.shape import shape_of
from tacit.errors import BudgetError, RefusedError, UsageError
from tacit.planning import (
    EVALUATION,
    HELD_OUT,
    TRAINING,
    VOCABULARY,
    RunPlan,
    make_plan,
    mechanisms_from_ledger,
    plan_in_ledger,
    solve,
)
from tacit.planning.cost import disk_bytes, memory_bytes
from tacit.privacy.accounting.accountant import epsilon, joint_epsilon, mu_at
from tacit.privacy.accounting.histogram import histogram_delta
from tacit.privacy.events import Gaussian, PoissonGaussian, Spend, ThresholdedHistogram
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import Provenance
from tacit.training.plans import DpPlan, PlainPlan

from .networks import build_bert

BUDGET, DELTA = 1.2, 1e-5

PUBLIC = {"name": "public", "plan": "plain", "stream": "public", "steps": 7, "batch_size": 8, "learning_rate": 1e-3}
PRIVATE = {
    "name": "private",
    "plan": "dp",
    "stream": "private",
    "steps": 40,
    "expected_batch": 300,
    "clip_norm": 0.5,
    "sequences_per_unit": 2,
    "learning_rate": 1e-3,
}
GIVEN_VOCABULARY = {"method": "histogram", "max_words": 16, "noise_stddev": 45.0, "threshold": 240}


def configure(**sections: Any) -> RunConfig:
    return parse_config(
        {
            "run": "runs/test",
            "privacy": {"unit": "user", "units": 1000, "budget": {"epsilon": BUDGET, "delta": DELTA}},
            "private": {"path": "/nowhere/notes.jsonl", "user_field": "patient"},
            "public": [{"path": "/nowhere/public.jsonl"}],
            "vocabulary": {"method": "histogram", "max_words": 16},
            "phases": [PUBLIC, PRIVATE],
            **sections,
        }
    )


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return configure()


@pytest.fixture(scope="module")
def plan(config: RunConfig) -> RunPlan:
    return make_plan(config)


def header(config: RunConfig) -> LedgerHeader:
    budget = math.inf if config.uses_heuristic else config.privacy.budget.epsilon
    return LedgerHeader("user", config.privacy.relation, 1000, budget, DELTA, config.digest(), "key")


# the budget ----------------------------------------------------------------------------------------------------------


def test_the_plan_meets_the_budget_jointly_and_uses_it(plan: RunPlan) -> None:
    spends = plan.mechanisms.spends()
    assert plan.epsilon == joint_epsilon(spends, DELTA)
    assert 0.98 * BUDGET < plan.epsilon <= BUDGET
    assert plan.mu == mu_at(plan.epsilon, DELTA)
    training = [spend for spend in spends if spend.partition == TRAINING]
    assert [type(spend.event) for spend in training] == [ThresholdedHistogram, PoissonGaussian]
    assert epsilon(training, DELTA) == pytest.approx(plan.epsilon, rel=0.02)
    # The held-out units have the whole budget to themselves.
    (held_out,) = [spend for spend in spends if spend.partition == HELD_OUT]
    assert 0.98 * BUDGET < epsilon([held_out], DELTA) <= BUDGET


def test_the_vocabulary_alone_has_its_shares(plan: RunPlan, config: RunConfig) -> None:
    vocabulary = plan.mechanisms.vocabulary
    alone = epsilon([Spend(vocabulary)], DELTA * config.vocabulary.delta_share)
    assert 0.97 * BUDGET * config.vocabulary.epsilon_share < alone <= BUDGET * config.vocabulary.epsilon_share


def test_training_with_less_noise_misses_the_budget(plan: RunPlan) -> None:
    spends = plan.mechanisms.spends()
    event = spends[1].event
    assert isinstance(event, PoissonGaussian)
    less = PoissonGaussian(event.sampling_probability, 0.99 * event.noise_multiplier)
    assert joint_epsilon([spends[0], Spend(less, spends[1].count, TRAINING)], DELTA) > BUDGET


def test_plans_are_those_of_the_configuration(plan: RunPlan) -> None:
    public, private = plan.mechanisms.phases
    assert public.plan == PlainPlan(8)
    assert (public.name, public.stream, public.steps) == ("public", "public", 7)
    assert isinstance(private.plan, DpPlan)
    assert private.plan.sampling_probability == 0.3
    assert private.plan.normaliser == 300.0
    assert (private.plan.clip_norm, private.plan.sequences_per_unit) == (0.5, 2)
    assert private.plan.event == plan.mechanisms.spends()[1].event
    assert plan.mechanisms.spends()[1].count == private.steps == 40
    assert private.optimizer.learning_rate == 1e-3


def test_stages_are_priced(plan: RunPlan) -> None:
    names = [stage.name for stage in plan.stages]
    assert names == [VOCABULARY, "public", "private", EVALUATION]
    assert [stage.partition for stage in plan.stages] == [TRAINING, "", TRAINING, HELD_OUT]
    joint = [stage.epsilon_joint for stage in plan.stages]
    assert joint == sorted(joint)
    assert joint[-1] == plan.epsilon
    for stage in plan.stages:
        assert (stage.event is None) == (stage.name == "public")
        assert 0 <= stage.epsilon_alone <= stage.epsilon_joint
        assert stage.seconds > 0
    assert plan.stages[1].epsilon_alone == 0
    assert joint[2] < sum(stage.epsilon_alone for stage in plan.stages[:3])


@pytest.mark.slow
def test_a_plan_under_replacement_counts_both_parts() -> None:
    config = configure(
        privacy={
            "unit": "user",
            "units": 1000,
            "relation": "replace",
            "budget": {"epsilon": BUDGET, "delta": DELTA},
        }
    )
    mechanisms = solve(config)
    found = joint_epsilon(mechanisms.spends(), DELTA, "replace")
    assert 0.98 * BUDGET < found <= BUDGET
    assert mechanisms.evaluation is not None
    assert epsilon([Spend(mechanisms.evaluation)], DELTA / 10, "replace") <= BUDGET / 10
    assert found > epsilon([spend for spend in mechanisms.spends() if spend.partition == TRAINING], DELTA, "replace")


def test_given_noise_is_kept_and_the_rest_solved() -> None:
    given = {**PRIVATE, "name": "given", "noise_multiplier": 12.0, "steps": 20}
    config = configure(vocabulary=GIVEN_VOCABULARY, phases=[given, PUBLIC, PRIVATE], evaluation={"held_out": 0.0})
    mechanisms = solve(config)
    assert mechanisms.vocabulary == ThresholdedHistogram(45.0, 240, 16)
    assert mechanisms.evaluation is None
    plans = {phase.name: phase.plan for phase in mechanisms.phases}
    assert isinstance(plans["given"], DpPlan)
    assert plans["given"].noise_multiplier == 12.0
    assert 0.98 * BUDGET < joint_epsilon(mechanisms.spends(), DELTA) <= BUDGET


def test_phases_without_noise_of_their_own_share_one_multiplier() -> None:
    again = {**PRIVATE, "name": "again", "steps": 10, "expected_batch": 50}
    config = configure(vocabulary=GIVEN_VOCABULARY, phases=[PRIVATE, again], evaluation={"held_out": 0.0})
    first, second = (phase.plan for phase in solve(config).phases)
    assert isinstance(first, DpPlan)
    assert isinstance(second, DpPlan)
    assert first.noise_multiplier == second.noise_multiplier
    assert second.sampling_probability == 0.05


@pytest.mark.parametrize(
    "sections",
    [
        {"phases": [{**PRIVATE, "noise_multiplier": 3.0}]},
        {"vocabulary": {**GIVEN_VOCABULARY, "noise_stddev": 5.0, "threshold": 40}},
        {"vocabulary": {**GIVEN_VOCABULARY, "threshold": 60}},
    ],
    ids=["training noise", "vocabulary noise", "threshold"],
)
def test_given_noise_beyond_the_budget_is_refused(sections: dict[str, Any]) -> None:
    with pytest.raises(BudgetError) as caught:
        solve(configure(**{"vocabulary": GIVEN_VOCABULARY, **sections}))
    assert caught.value.exit_code == 3


def test_vocabulary_noise_that_has_no_law_is_refused() -> None:
    for vocabulary, kind in (({"noise_stddev": 2.0, "threshold": 60}, RefusedError), ({"threshold": 60.5}, UsageError)):
        with pytest.raises(kind):
            solve(configure(vocabulary={**GIVEN_VOCABULARY, **vocabulary}))


@pytest.mark.parametrize("compute", [{"micro_batch": 1}, {"threads": 3, "checkpoint_seconds": 0}])
def test_speed_options_change_no_mechanism(plan: RunPlan, compute: dict[str, Any]) -> None:
    faster = make_plan(configure(compute=compute))
    assert faster.mechanisms == plan.mechanisms
    assert faster.epsilon == plan.epsilon
    assert faster.config_digest == plan.config_digest


# the paper's formula -------------------------------------------------------------------------------------------------


def test_the_papers_formula_needs_leave_and_has_no_finite_epsilon(tmp_path: Path) -> None:
    vocabulary = {"max_words": 16, "method": "hoory"}
    with pytest.raises(RefusedError, match="vocabulary-formula"):
        configure(vocabulary=vocabulary)
    config = configure(vocabulary=vocabulary, allow=["heuristic:hoory"])
    plan = make_plan(config)
    assert plan.epsilon == math.inf
    assert plan.mu == math.inf
    assert plan.to_dict()["epsilon"] == "infinity"
    (note,) = plan.notes
    assert "paper's formula" in note
    assert f"{histogram_delta(plan.mechanisms.vocabulary, math.inf):.3g}" in note
    assert histogram_delta(plan.mechanisms.vocabulary, math.inf) > 20 * DELTA * 0.1
    with Ledger.create(tmp_path / "ledger.sqlite", header(config)) as ledger:
        plan_in_ledger(plan.mechanisms, ledger, Provenance())
        assert mechanisms_from_ledger(config, ledger) == plan.mechanisms


def test_leave_that_is_not_used_changes_nothing(plan: RunPlan) -> None:
    allowed = make_plan(configure(allow=["heuristic:hoory"]))
    assert allowed.mechanisms == plan.mechanisms
    assert allowed.epsilon == plan.epsilon
    with pytest.raises(BudgetError):
        solve(
            configure(
                allow=["heuristic:hoory"],
                vocabulary=GIVEN_VOCABULARY,
                phases=[{**PRIVATE, "noise_multiplier": 3.0}],
            )
        )


# the ledger ----------------------------------------------------------------------------------------------------------


def test_the_ledger_gives_the_mechanisms_back(plan: RunPlan, config: RunConfig, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.create(path, header(config)) as ledger:
        assert mechanisms_from_ledger(config, ledger) is None
        ledger.plan(VOCABULARY, plan.mechanisms.vocabulary, 1, TRAINING)
        assert mechanisms_from_ledger(config, ledger) is None  # killed half way through planning
        plan_in_ledger(plan.mechanisms, ledger, Provenance())
    with Ledger.open(path) as ledger:
        assert mechanisms_from_ledger(config, ledger) == plan.mechanisms
        rows = ledger.rows
        plan_in_ledger(plan.mechanisms, ledger, Provenance())
        assert ledger.rows == rows


def test_a_finished_ledger_holds_what_was_planned(plan: RunPlan, config: RunConfig, tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger.sqlite", header(config)) as ledger:
        plan_in_ledger(plan.mechanisms, ledger, Provenance())
        ledger.charge(VOCABULARY)
        for step in range(40):
            ledger.charge("private", step)
        ledger.charge(EVALUATION)
        assert ledger.spends() == plan.mechanisms.spends()
        for stage, step in ((VOCABULARY, 1), ("private", 40), (EVALUATION, 1)):
            with pytest.raises(BudgetError):
                ledger.charge(stage, step)


def test_a_run_without_held_out_units_has_no_evaluation_stage(tmp_path: Path) -> None:
    config = configure(
        vocabulary=GIVEN_VOCABULARY,
        phases=[{**PRIVATE, "noise_multiplier": 20.0}],
        evaluation={"held_out": 0.0},
    )
    mechanisms = solve(config)
    with Ledger.create(tmp_path / "ledger.sqlite", header(config)) as ledger:
        plan_in_ledger(mechanisms, ledger, Provenance())
        assert set(ledger.plans) == {VOCABULARY, "private"}
        assert mechanisms_from_ledger(config, ledger) == mechanisms


# what a plan says ----------------------------------------------------------------------------------------------------


def test_a_plan_is_json(plan: RunPlan) -> None:
    values = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert values["epsilon"] == plan.epsilon
    assert [stage["name"] for stage in values["stages"]] == [stage.name for stage in plan.stages]
    assert values["unit"] == "user"


@pytest.mark.parametrize(
    ("layers", "width", "heads", "length", "intermediate", "vocabulary"),
    [(1, 32, 2, 16, None, 300), (2, 48, 4, 24, 100, 517), (3, 16, 1, 8, 16, 301)],
)
def test_the_parameter_count_is_that_of_the_built_model(
    layers: int, width: int, heads: int, length: int, intermediate: int | None, vocabulary: int
) -> None:
    config = configure(
        model={"layers": layers, "width": width, "heads": heads, "length": length, "intermediate": intermediate}
    )
    model = build_bert(config.model, vocabulary, 0, seed=0)
    assert shape_of(config.model).parameters(vocabulary) == sum(parameter.numel() for parameter in model.parameters())


def test_memory_grows_with_model_and_micro_batch(config: RunConfig) -> None:
    less, more = configure(compute={"micro_batch": 1}), configure(model={"layers": 12})
    assert memory_bytes(less) < memory_bytes(config) < memory_bytes(more)


def test_the_disk_holds_text_and_rows_of_all_units(config: RunConfig) -> None:
    phase, units = config.dp_phases[0], config.privacy.units
    more = config.model_copy(update={"privacy": config.privacy.model_copy(update={"units": 3 * units})})
    rows = 2 * units * phase.sequences_per_unit
    assert disk_bytes(more) - disk_bytes(config) == rows * config.model.length * (4 + 4)  # an id, and as much text


def test_memory_shrinks_with_precision_and_activations_that_are_computed_again() -> None:
    float32, bf16, again, both = (
        memory_bytes(configure(compute=compute))
        for compute in (
            {},
            {"precision": "bf16"},
            {"checkpointing": True},
            {"precision": "bf16", "checkpointing": True},
        )
    )
    assert both < min(bf16, again) <= max(bf16, again) < float32


PLAN_ONLY = """
import sys
from tacit.config import load_config
from tacit.planning import make_plan
from pathlib import Path

plan = make_plan(load_config(Path(sys.argv[1])))
assert plan.epsilon > 0
print(sorted(name for name in sys.modules if name.split(".")[0] in {"torch", "transformers", "tokenizers"}))
"""


@pytest.mark.slow
def test_planning_reads_no_data_and_does_not_load_torch(tmp_path: Path) -> None:
    """The corpora of this configuration do not exist."""
    config = configure(
        vocabulary=GIVEN_VOCABULARY,
        phases=[PUBLIC, {**PRIVATE, "noise_multiplier": 20.0}],
    )
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(config.model_dump(mode="json")))  # JSON is YAML
    run = subprocess.run([sys.executable, "-c", PLAN_ONLY, str(path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"


def test_the_evaluation_event_has_the_budget_it_may_use(plan: RunPlan) -> None:
    assert isinstance(plan.mechanisms.evaluation, Gaussian)
    assert plan.stages[-1].event == plan.mechanisms.evaluation

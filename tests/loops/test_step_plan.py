"""The plan of a loop of one's own: it costs what the pipeline's phase of the same numbers costs, and refuses what is no plan."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

import tacit
from tacit import StepPlan
from tacit.errors import BudgetError, DataError, RefusedError, UsageError
from tacit.planning.own_loop import ASSUMPTIONS
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.events import Spend
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan

from .small_loop import PLAN, changed

NUMBERS: dict[str, Any] = {"units": 12_000, "expected_batch": 256, "clip_norm": 1.0, "steps": 300, "delta": 1e-6}


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_it_costs_what_a_phase_of_the_same_numbers_costs(relation: Any) -> None:
    plan = StepPlan(**NUMBERS, noise_multiplier=0.9, relation=relation, sequences_per_unit=3)
    phase = Phase("private", "private", DpPlan(256 / 12_000, 1.0, 0.9, 256.0, 3), 300, AdamOptions(1e-3))
    assert phase.event is not None
    assert plan.dp == phase.plan
    assert plan.total_epsilon == joint_epsilon([Spend(phase.event, phase.steps)], 1e-6, relation)


@pytest.mark.slow
def test_a_second_library_has_the_same_epsilon_and_not_that_of_another_noise() -> None:
    def other_library(noise: float) -> float:
        step = dp_accounting.PoissonSampledDpEvent(256 / 12_000, dp_accounting.GaussianDpEvent(noise))
        return PLDAccountant(value_discretization_interval=1e-4).compose(step, 300).get_epsilon(1e-6)

    epsilon = StepPlan(**NUMBERS, noise_multiplier=0.9).total_epsilon
    assert epsilon == pytest.approx(other_library(0.9), rel=1e-3)
    assert epsilon != pytest.approx(other_library(0.91), rel=1e-3)


def test_noise_is_solved_for_the_budget_and_hardly_more() -> None:
    plan = StepPlan(**NUMBERS, epsilon=3.0)
    assert 2.98 < plan.total_epsilon <= 3.0
    assert changed(plan, epsilon=None, noise_multiplier=plan.dp.noise_multiplier * 0.99).total_epsilon > 3.0
    assert plan.epsilon_of(0) == 0.0
    assert plan.epsilon_of(100) < plan.total_epsilon


def test_a_given_noise_that_costs_too_much_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"300 steps with noise_multiplier 0\.6 have epsilon"):
        StepPlan(**NUMBERS, epsilon=3.0, noise_multiplier=0.6).check_budget()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"units": 0}, "units is 0"),
        ({"units": 2.5}, "units is 2.5"),
        ({"units": True}, "units is True"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 10**10}, "steps is 10000000000"),
        ({"expected_batch": 0}, "expected_batch is 0"),
        ({"expected_batch": 51}, "at most units, 50"),
        ({"expected_batch": float("nan")}, "expected_batch is nan"),
        ({"clip_norm": 0.0}, "clip_norm must be from"),
        ({"clip_norm": float("inf")}, "clip_norm is inf"),
        ({"delta": 0.0}, "delta is 0"),
        ({"delta": 0.5}, "delta-too-large"),
        ({"noise_multiplier": None}, "give epsilon"),
        ({"noise_multiplier": 0.0}, "noise_multiplier is 0"),
        ({"noise_multiplier": 1e-9}, "noise-too-small"),
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"epsilon": "3"}, "epsilon is '3'"),
        ({"relation": "swap"}, "relation"),
        ({"clipping": "none"}, "clipping is 'none'"),
        ({"sequences_per_unit": 0}, "sequences_per_unit is 0"),
        ({"unit": " "}, "unit must be"),
        ({"unit": "a\nb"}, "unit must be"),
    ],
)
def test_what_is_no_plan_is_one_clear_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        changed(**wrong)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_delta_at_which_no_certificate_could_be_made_is_refused_before_anything_is_paid() -> None:
    """A certificate states delta, a half and a fifth of it; under replacement there is no bound below 1e-12. 30th attack."""
    numbers = {**NUMBERS, "relation": "replace", "noise_multiplier": 1.0}
    StepPlan(**{**numbers, "delta": 6e-12}).check_budget()
    with pytest.raises(UsageError, match="ask for a larger delta"):
        StepPlan(**{**numbers, "delta": 4e-12}).check_budget()
    StepPlan(**{**numbers, "delta": 4e-12, "relation": "add-or-remove"}).check_budget()


def test_delta_of_one_unit_is_a_refusal_with_its_code() -> None:
    with pytest.raises(RefusedError) as error:
        changed(delta=1 / 50)
    assert error.value.reason == "delta-too-large"


def test_values_come_back_and_others_do_not() -> None:
    values = json.loads(json.dumps(PLAN.values()))
    assert StepPlan.from_values(values, "loop.json").digest() == PLAN.digest()
    assert changed(expected_batch=10.0).digest() == PLAN.digest() != changed(steps=5).digest()
    for wrong in ({**values, "steps": 0}, {**values, "more": 1}, {"units": 3}, [], {**values, "units": "many"}):
        with pytest.raises(DataError, match=r"^loop.json: "):
            StepPlan.from_values(wrong, "loop.json")
    assert {field.name for field in dataclasses.fields(PLAN)} == values.keys()


def test_every_assumption_is_a_sentence() -> None:
    assert all(line[0].isupper() and line.rstrip(")").endswith(".") for line in ASSUMPTIONS)


@pytest.mark.slow
def test_a_plan_needs_no_torch() -> None:
    code = (
        "import sys\nimport tacit\n"
        "plan = tacit.StepPlan(units=100, expected_batch=10, clip_norm=1.0, steps=3, noise_multiplier=1.0, delta=1e-3)\n"
        "assert plan.total_epsilon > 0\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tacit_has_no_other_names() -> None:
    assert all(getattr(tacit, name) is not None for name in tacit.__all__)
    with pytest.raises(AttributeError, match="no attribute 'PrivateStep'"):
        tacit.PrivateStep  # noqa: B018

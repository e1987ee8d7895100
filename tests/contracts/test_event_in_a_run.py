"""A new event in a whole run: its line in `EVENTS`, the line of a phase that pays with it in `PHASES`, and nothing else.

The toys live in this file alone. Oracles: the closed form of the Gaussian mechanism (Balle and Wang 2018, theorem 8); the noise that
a step really adds, and by how much a unit really moves its sum.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution as pld
from pydantic import Field
from scipy.stats import norm

from tacit.config import ComputeOptions, RunConfig, load_config
from tacit.config.phases import PHASES, PhaseOptions, PhaseWords
from tacit.engine.distributed import ALONE
from tacit.errors import UsageError
from tacit.files import read_json
from tacit.pipeline.pages import report_run
from tacit.pipeline.stages import run
from tacit.planning import make_plan
from tacit.planning.adaptive import PhaseNoise
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import EVENTS, Event, Relation, Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.strict_json import read_number
from tacit.randomness import KeyedRandomness
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan
from tacit.training.unit_rows import Source

from ..small import small_values, write_config, write_corpora
from ..training.phases import dropping_bert
from ..training.streams import OBJECTIVE, stream_of

TITLE = "Gaussian noise on a sum over all units, in absolute numbers"
STREAMS = KeyedRandomness(b"the contract of an event, 32 byt")
DELTA = 1e-4
STEPS = 3


# the toys ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AbsoluteGaussian(Event):
    """A sum of all units with Gaussian noise. Unlike `Gaussian` it holds no ratio.

    Args:
        sensitivity: bound on the l2 norm of what a unit adds.
        noise_stddev: of the noise on each coordinate.
    """

    sensitivity: float
    noise_stddev: float

    def __post_init__(self) -> None:
        if not (self.sensitivity > 0 and self.noise_stddev > 0):
            raise UsageError("sensitivity and noise_stddev must be above 0")

    @property
    def title(self) -> str:
        return TITLE

    def _ratio(self, relation: Relation) -> float:
        """Noise over what a neighbour moves."""
        return self.noise_stddev / self.sensitivity / (2 if relation == "replace" else 1)

    def loss_distribution(
        self, count: int, relation: Relation, grid: float, pessimistic: bool
    ) -> pld.PrivacyLossDistribution:
        return pld.from_gaussian_mechanism(
            self._ratio(relation) / math.sqrt(count),
            value_discretization_interval=grid,
            pessimistic_estimate=pessimistic,
        )

    def renyi_event(self, relation: Relation) -> dp_accounting.DpEvent:
        return dp_accounting.GaussianDpEvent(self._ratio(relation))


class AbsolutePhase(PhaseOptions):
    """DP gradient descent on all units, whose noise is given in absolute numbers.

    Args:
        plan: the kind of this phase.
        stream: what is private.
        clip_norm: bound on the l2 norm of one unit's gradient.
        noise_stddev: of the noise on the sum.
    """

    made_by: ClassVar[str] = f"{__name__}:absolute_plan"

    plan: Literal["absolute"]
    stream: Literal["private"]
    clip_norm: Annotated[float, Field(gt=0)]
    noise_stddev: Annotated[float, Field(gt=0)]

    def words(self, config: RunConfig, noise_multiplier: float | None) -> PhaseWords:
        return PhaseWords(f"gradient descent, noise of standard deviation {self.noise_stddev:g}", "all units")


@dataclass(frozen=True)
class AbsolutePlan(DpPlan):
    """All units in each step, paid for by the toy event."""

    @property
    def event(self) -> Event:
        return AbsoluteGaussian(self.clip_norm, self.noise_stddev)

    def batch(self, records: int, streams: KeyedRandomness, step: int) -> np.ndarray:
        return np.arange(records)

    def mechanism(self, stream: str) -> str:
        return "gradient descent on all units"


def absolute_plan(phase: AbsolutePhase, config: RunConfig, noise: PhaseNoise | None) -> AbsolutePlan:
    """Its noise is given, so none is solved for it."""
    assert noise is None
    return AbsolutePlan(1.0, phase.clip_norm, phase.noise_stddev / phase.clip_norm, float(config.privacy.units))


@pytest.fixture
def registered() -> Iterator[None]:
    """The two lines, as if they stood there when the configuration's models were made."""
    EVENTS["absolute-gaussian"] = AbsoluteGaussian
    PHASES["absolute"] = AbsolutePhase
    RunConfig.model_rebuild(force=True)
    yield
    del EVENTS["absolute-gaussian"], PHASES["absolute"]
    RunConfig.model_rebuild(force=True)


# its law -------------------------------------------------------------------------------------------------------------


def true_epsilon(mu: float, delta: float) -> float:
    """Of a Gaussian mechanism whose neighbours are ``mu`` standard deviations apart."""

    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        found = norm.cdf(mu / 2 - middle / mu) - math.exp(middle) * norm.cdf(-mu / 2 - middle / mu)
        low, high = (middle, high) if found > delta else (low, middle)
    return high


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("relation", "factor"), [("add-or-remove", 1.0), ("replace", 2.0)])
def test_its_epsilon_is_the_closed_form(relation: Relation, factor: float) -> None:
    truth = true_epsilon(factor * math.sqrt(STEPS) * 0.5 / 4.0, DELTA)
    found = epsilon([Spend(AbsoluteGaussian(0.5, 4.0), STEPS)], DELTA, relation)
    assert truth <= found <= truth + 1e-3


# it is what is done --------------------------------------------------------------------------------------------------

UNITS = {f"u{number}": [[7 + number, 9, 20 + number, 31, 11]] for number in range(12)}
PLAN = AbsolutePlan(1.0, 0.05, 8.0, 12.0)


def steps_of(plan: DpPlan, units: dict[str, list[list[int]]], steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of each real step the clipped sum, and the noise on it."""
    model, found = dropping_bert(0.0), list[tuple[torch.Tensor, torch.Tensor]]()
    source = Source(stream_of(units), OBJECTIVE, STREAMS, ALONE)
    with closing(DpStep(model, plan, ComputeOptions(micro_batch=4, threads=1), source)) as step:
        for number in range(steps):
            model.zero_grad(set_to_none=True)
            for _ in step.add_up(number, step.draw(number), 0):
                pass
            total = torch.cat([one.double().ravel().clone() for one in step.sums()])
            step.finish(number)
            gradients = [
                parameter.grad.double().ravel() for parameter in model.parameters() if parameter.grad is not None
            ]
            found.append((total, torch.cat(gradients) * plan.normaliser - total))
    return found


def is_done(plan: DpPlan) -> bool:
    """Whether a step is what its event says: by how much a unit moves the sum at most, and how much noise there is.

    The noise may be off by six standard deviations of its estimate, and by the thousandth that the grid takes more.
    """
    event = plan.event
    assert isinstance(event, AbsoluteGaussian)
    steps = steps_of(plan, UNITS, 8)
    without = [{name: rows for name, rows in UNITS.items() if name != gone} for gone in ("u0", "u7", "u11")]
    moved = [float((steps[0][0] - steps_of(plan, others, 1)[0][0]).norm()) for others in without]
    noise = torch.cat([noise for _, noise in steps])
    assert len(noise) > 10_000
    off = float(noise.std()) / event.noise_stddev - 1
    return max(moved) <= event.sensitivity * (1 + 1e-6) and abs(off) < 6 / math.sqrt(2 * len(noise)) + 1e-3


class MoreNoise(AbsolutePlan):
    """Known wrong: it states twice the noise that is drawn, and pays for a quarter of its steps."""

    @property
    def event(self) -> Event:
        return AbsoluteGaussian(self.clip_norm, 2 * self.noise_stddev)


class LessNoise(AbsolutePlan):
    """Known wrong too, though it only pays too much: its certificate is not of what was run."""

    @property
    def event(self) -> Event:
        return AbsoluteGaussian(self.clip_norm, 0.5 * self.noise_stddev)


class SmallerSensitivity(AbsolutePlan):
    """Known wrong: a unit adds up to twice what is stated."""

    @property
    def event(self) -> Event:
        return AbsoluteGaussian(0.5 * self.clip_norm, self.noise_stddev)


@pytest.mark.slow
def test_the_event_is_what_a_step_does() -> None:
    assert is_done(PLAN)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [MoreNoise, LessNoise, SmallerSensitivity])
def test_an_event_that_states_something_else_is_caught(wrong: type[AbsolutePlan]) -> None:
    assert not is_done(wrong(*dataclasses.astuple(PLAN)))


# through a whole run -------------------------------------------------------------------------------------------------

CLIP, NOISE = 0.5, 4.0


def values_of(folder: Path) -> dict[str, Any]:
    """A run that spends on training alone."""
    values = small_values(folder, audit=None, evaluation={"held_out": 0.0, "public_sequences": 32})
    values["vocabulary"] = {"method": "public", "size": 400}
    values["phases"][1] = {
        "name": "private",
        "plan": "absolute",
        "stream": "private",
        "steps": STEPS,
        "learning_rate": 1e-3,
        "clip_norm": CLIP,
        "noise_stddev": NOISE,
    }
    return values


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_it_goes_through_plan_run_verify_and_report(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    config = load_config(write_config(tmp_path / "config.yaml", values_of(tmp_path)))
    event, truth = AbsoluteGaussian(CLIP, NOISE), true_epsilon(math.sqrt(STEPS) * CLIP / NOISE, DELTA)
    shown = make_plan(config)
    stage = next(stage for stage in shown.stages if stage.name == "private")
    assert stage.event == event
    assert truth <= shown.epsilon <= truth + 1e-3

    run(config)
    folder = RunFolder(tmp_path / "run")
    assert all(check.holds for check in verify_run(folder))
    with Ledger.open(folder.ledger) as ledger:
        assert ledger.spends() == [Spend(event, STEPS, "training units")]
    certificate = read_json(folder.release / "certificate.json")
    assert certificate["status"] == "proved"
    assert truth <= read_number(certificate["epsilons"][0]["epsilon"]) <= truth + 1e-3

    report_run(folder)
    report = read_json(folder.release / "report.json")
    row = next(row for row in report["ledger"] if row["stage"] == "private")
    assert (row["mechanism"], row["parameters"]) == (TITLE, {"sensitivity": CLIP, "noise_stddev": NOISE})
    assert TITLE in (folder.release / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_verification_finds_an_event_that_is_not_that_of_the_phase(tmp_path: Path) -> None:
    """Known wrong: the ledger of a run that paid for twice the noise of its configuration."""
    write_corpora(tmp_path)
    config = load_config(write_config(tmp_path / "config.yaml", values_of(tmp_path)))
    made_by = AbsolutePhase.made_by
    try:
        AbsolutePhase.made_by = f"{__name__}:cheaper_plan"
        run(config)
    finally:
        AbsolutePhase.made_by = made_by
    assert [check.name for check in verify_run(RunFolder(tmp_path / "run")) if not check.holds]


def cheaper_plan(phase: AbsolutePhase, config: RunConfig, noise: PhaseNoise | None) -> MoreNoise:
    """Known wrong."""
    return MoreNoise(*dataclasses.astuple(absolute_plan(phase, config, noise)))

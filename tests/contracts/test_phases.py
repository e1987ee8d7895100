"""What every plan of a phase keeps; and two plans that live in this file alone, which go through a whole run.

To add one: a file in ``src/tacit/config/phases`` with its options, one line in `PHASES`, and whom ``made_by`` names; this suite then
tests it. `FullBatchPhase` (DP gradient descent on all units) and `SignPhase` (the sign of the mean gradient of public text) are such
lines. Nothing else knows of them.

Oracles: the closed form of the Gaussian mechanism; the binomial law of a draw, with a fixed key; two runs with and without one unit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
from pydantic import Field

from tacit.config import RunConfig, load_config, parse_config
from tacit.config.base import named
from tacit.config.phases import PHASES, PhaseOptions, PhaseWords
from tacit.errors import UsageError
from tacit.files import read_json
from tacit.pipeline.pages import report_run
from tacit.pipeline.stages import run
from tacit.planning import make_plan, mechanisms_from_ledger
from tacit.planning.adaptive import PhaseNoise
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import Event, Gaussian, NonPrivate, PoissonGaussian, Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.strict_json import read_number
from tacit.randomness import KeyedRandomness
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder
from tacit.training.plain_step import PlainStep
from tacit.training.plans import DpPlan, PlainPlan, Plan
from tacit.training.steps import Step

from ..small import small_values, write_config, write_corpora

STREAMS = KeyedRandomness(b"the contract of a phase, 32 byte").child("phase", "any")
UNITS = 150


# the toys ------------------------------------------------------------------------------------------------------------


class FullBatchPhase(PhaseOptions):
    """DP gradient descent: every step reads all units.

    Args:
        plan: the kind of this phase.
        stream: what is private.
        clip_norm: C, bound on the l2 norm of one unit's gradient.
        noise_multiplier: noise over ``clip_norm``.
    """

    made_by: ClassVar[str] = f"{__name__}:full_batch_plan"

    plan: Literal["full-batch"]
    stream: Literal["private"]
    clip_norm: Annotated[float, Field(gt=0)]
    noise_multiplier: Annotated[float, Field(gt=0)]

    def words(self, config: RunConfig, noise_multiplier: float | None) -> PhaseWords:
        return PhaseWords(f"DP gradient descent, noise multiplier {self.noise_multiplier:g}", "all units")

    def check(self, config: RunConfig) -> None:
        if config.privacy.units > 10_000:
            raise UsageError(
                f"phases: {self.name}: all of {config.privacy.units} units in each step would take too long"
            )


@dataclasses.dataclass(frozen=True)
class FullBatchPlan(DpPlan):
    """No sampling, so a step is a Gaussian mechanism."""

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    def batch(self, records: int, streams: KeyedRandomness, step: int) -> np.ndarray:
        return np.arange(records)

    def mechanism(self, stream: str) -> str:
        return "DP gradient descent: all units, clipping, Gaussian noise"


def full_batch_plan(phase: FullBatchPhase, config: RunConfig, noise: PhaseNoise | None) -> FullBatchPlan:
    """Its noise is given, so none is solved for it."""
    assert noise is None
    return FullBatchPlan(1.0, phase.clip_norm, phase.noise_multiplier, float(config.privacy.units))


class SignPhase(PhaseOptions):
    """The sign of the mean gradient of public text.

    Args:
        plan: the kind of this phase.
        stream: public text.
        batch_size: sequences a step.
    """

    made_by: ClassVar[str] = f"{__name__}:sign_plan"

    plan: Literal["sign"]
    stream: Literal["public"]
    batch_size: Annotated[int, Field(ge=1)]

    def words(self, config: RunConfig, noise_multiplier: float | None) -> PhaseWords:
        return PhaseWords("the sign of the gradient", f"{self.batch_size} sequences")


@dataclasses.dataclass(frozen=True)
class SignPlan(PlainPlan):
    """With a step of its own."""

    step: ClassVar[str] = f"{__name__}:SignStep"

    def mechanism(self, stream: str) -> str:
        return f"sign of the mean gradient on {stream} text"


def sign_plan(phase: SignPhase, config: RunConfig, noise: PhaseNoise | None) -> SignPlan:
    """Nothing to solve."""
    return SignPlan(phase.batch_size)


class SignStep(PlainStep):
    """As `PlainStep`, and then the sign."""

    def finish(self, step: int) -> None:
        super().finish(step)
        for gradient in self.sums():
            gradient.sign_()


TOYS: dict[str, type[PhaseOptions]] = {"full-batch": FullBatchPhase, "sign": SignPhase}


@pytest.fixture
def registered() -> Iterator[None]:
    """The two lines in `PHASES`, as if they stood there when the configuration's models were made."""
    PHASES.update(TOYS)
    RunConfig.model_rebuild(force=True)
    yield
    for name in TOYS:
        del PHASES[name]
    RunConfig.model_rebuild(force=True)


# what each of them keeps ---------------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"stream": "public", "batch_size": 16},
    "dp": {"stream": "private", "expected_batch": 20, "clip_norm": 0.5, "noise_multiplier": 1.3},
    "selective": {
        "stream": "marked",
        "batch_size": 16,
        "segments": 2,
        "state_clip": 0.1,
        "state_noise_multiplier": 4.0,
    },
    "full-batch": {"stream": "private", "clip_norm": 0.5, "noise_multiplier": 6.0},
    "sign": {"stream": "public", "batch_size": 16},
}
"""Options of each plan. A new one needs a line here, and the test below says so."""


def options_of(name: str, **changes: Any) -> PhaseOptions:
    values = {"name": "one", "plan": name, "steps": 5, "learning_rate": 1e-3}
    return (PHASES | TOYS)[name].model_validate({**values, **OPTIONS[name], **changes})


def config_of() -> RunConfig:
    """Of a run with a DP phase, which says nothing of the phase that is tested."""
    values = small_values(Path("somewhere"))
    return parse_config(values)


def plan_of(options: PhaseOptions) -> Plan:
    noise = PhaseNoise(1.3) if PHASES.get(options_name(options)) is PHASES["dp"] else None
    return named(options.made_by)(options, config_of(), noise)


def options_name(options: PhaseOptions) -> str:
    return str(options.model_dump()["plan"])


def test_every_plan_has_options_here() -> None:
    assert {*PHASES, *TOYS} == set(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_its_words_and_numbers_are_there(name: str) -> None:
    options, plan = options_of(name), plan_of(options_of(name))
    words = options.words(config_of(), None)
    assert words.plan.strip()
    assert words.batch.strip()
    assert plan.mechanism(options.stream).strip()
    assert all(isinstance(value, int | float | str) for value in plan.numbers().values())
    assert plan.numbers()
    assert 0 < plan.sequences_a_step < math.inf


@pytest.mark.parametrize("name", OPTIONS)
def test_its_step_is_one(name: str) -> None:
    assert issubclass(named(plan_of(options_of(name)).step), Step)


@pytest.mark.parametrize("name", OPTIONS)
def test_only_public_text_is_free(name: str) -> None:
    plan = plan_of(options_of(name))
    if not plan.is_dp:
        assert plan.event_on("public") is None
    for stream in ("private", "screened", "redacted", "marked"):
        event = plan.event_on(stream)
        assert event is not None
        assert epsilon([Spend(event, 1, "any")], 1e-6, "add-or-remove") > 0.01
        if not plan.is_dp or stream == "marked":
            assert isinstance(event, NonPrivate)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_draw_is_a_function_of_the_key_and_the_step(name: str) -> None:
    plan = plan_of(options_of(name))
    once, again = plan.batch(UNITS, STREAMS, 3), plan.batch(UNITS, STREAMS, 3)
    assert np.array_equal(once, again)
    assert len(plan.batch(0, STREAMS, 3)) == 0  # whether there is a record may be private
    assert np.all((once >= 0) & (once < UNITS))


def event_fits(plan: DpPlan, stream: str) -> bool:
    """Whether what is drawn and added is what the event says: noise over clip norm, and how often a unit is drawn."""
    event = plan.event_on(stream)
    assert isinstance(event, Gaussian | PoissonGaussian)
    probability = 1.0 if isinstance(event, Gaussian) else event.sampling_probability
    if not math.isclose(plan.noise_stddev, event.noise_multiplier * plan.clip_norm):
        return False
    steps = 200
    drawn = sum(len(plan.batch(UNITS, STREAMS, step)) for step in range(steps))
    mean, deviation = probability * UNITS * steps, math.sqrt(UNITS * steps * probability * (1 - probability))
    return abs(drawn - mean) <= 6 * deviation


@pytest.mark.parametrize("name", ["dp", "full-batch"])
def test_sampler_and_noise_are_those_of_the_event(name: str) -> None:
    plan = plan_of(options_of(name))
    assert isinstance(plan, DpPlan)
    assert event_fits(plan, "private")


class HalfTheNoise(FullBatchPlan):
    """Known wrong."""

    @property
    def noise_stddev(self) -> float:
        return super().noise_stddev / 2


class EventOfASample(FullBatchPlan):
    """Known wrong: it reads all units, and pays for a sample."""

    @property
    def event(self) -> Event:
        return DpPlan(0.1, self.clip_norm, self.noise_multiplier, self.normaliser).event


@pytest.mark.parametrize("wrong", [HalfTheNoise, EventOfASample])
def test_a_plan_that_does_not_do_what_it_pays_for_is_caught(wrong: type[FullBatchPlan]) -> None:
    assert not event_fits(wrong(1.0, 0.5, 6.0, 150.0), "private")


# through a whole run -------------------------------------------------------------------------------------------------


def values_of(folder: Path) -> dict[str, Any]:
    values = small_values(folder, audit=None)
    common = {"steps": 4, "learning_rate": 1e-3}
    values["phases"] = [
        {"name": "public", "plan": "sign", **common, **OPTIONS["sign"]},
        {"name": "private", "plan": "full-batch", **common, **OPTIONS["full-batch"]},
    ]
    return values


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_plans_of_this_file_go_through_plan_run_verify_and_report(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    config = load_config(write_config(tmp_path / "config.yaml", values_of(tmp_path)))
    shown = make_plan(config)
    stages = {stage.name: stage for stage in shown.stages}
    assert stages["private"].mechanism == "DP gradient descent: all units, clipping, Gaussian noise"
    assert stages["public"].event is None
    assert stages["private"].event == Gaussian(6.0)

    run(config)
    folder = tmp_path / "run"
    assert all(check.holds for check in verify_run(RunFolder(folder)))
    with Ledger.open(RunFolder(folder).ledger) as ledger:
        assert ledger.spent("private") == 4
        assert ledger.plans["private"].event == Gaussian(6.0)
        assert mechanisms_from_ledger(config, ledger) is not None
    certificate = read_json(folder / "release" / "certificate.json")
    assert certificate["status"] == "proved"
    assert read_number(certificate["epsilons"][0]["epsilon"]) < 9.0
    report_run(RunFolder(folder))
    rows = {row["stream"]: row for row in read_json(folder / "release" / "report.json")["phases"]}
    assert rows["private"]["plan"] == "DP gradient descent, noise multiplier 6"
    assert rows["public"]["batch"] == "16 sequences"


@pytest.mark.usefixtures("registered")
def test_its_own_check_and_its_own_options_are_asked(tmp_path: Path) -> None:
    values = values_of(tmp_path)
    values["privacy"] |= {"units": 20_000, "budget": {"epsilon": 9.0, "delta": 1e-5}}
    with pytest.raises(UsageError, match="phases: private: all of 20000 units"):
        parse_config(values)
    values = values_of(tmp_path)
    values["phases"][1]["noise_multiplyer"] = values["phases"][1].pop("noise_multiplier")
    with pytest.raises(
        UsageError, match=r"unknown option 'phases\.1\.noise_multiplyer'; did you mean 'noise_multiplier'"
    ):
        parse_config(values)


def test_an_unknown_plan_names_those_that_there_are() -> None:
    values = small_values(Path("somewhere"))
    values["phases"][0]["plan"] = "full-batch"
    with pytest.raises(UsageError, match="'plain', 'dp', 'selective'"):
        parse_config(values)

"""The self-test from beginning to end, and what it says.

A break is found when its audit says "violated". The correct engine, and the same without noise as a positive control, play each
game too: accusing the correct one is a failure. Everything is drawn from one key, so with one key the answer is always the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.audit.bounds.verdict import Claim, Verdict, has_power, judge
from tacit.audit.self_test.breaks.kind import Break
from tacit.audit.self_test.breaks.registry import BREAKS
from tacit.audit.self_test.simulated import CALIBRATIONS, Calibration, calibrations
from tacit.config import ComputeOptions
from tacit.engine.noise import Grid
from tacit.progress import Bar, Reporter
from tacit.randomness import KeyedRandomness
from tacit.training.device import set_up_torch
from tacit.training.dp_step import DpStep

__all__ = ["DELTA", "FALSE_ALARM", "SIZES", "SelfTest", "Size", "Tried", "self_test", "try_break"]

DELTA = 1e-5
"""Of every claim."""

FALSE_ALARM = 0.01
"""With a new key, the probability that a correct engine is accused in any of the games, at most (Bonferroni)."""


@dataclass(frozen=True)
class Size:
    """How much is tried.

    Args:
        times: as many trainings as at the smallest size at which each break is found.
        audits: simulated, of each bound.
    """

    times: int
    audits: int


SIZES: dict[str, Size] = {"small": Size(1, 200), "standard": Size(2, 2000), "large": Size(8, 10_000)}
"""By name: 50 seconds and two and a half minutes on one core with AVX2; large takes minutes more."""


@dataclass(frozen=True)
class Tried:
    """One break, and what its audit found.

    Args:
        name, title: of the break.
        claimed: epsilon, by the account of the plan that is pretended.
        bound: by name.
        coins: how many were guessed.
        capacity: the most that an attack could have shown.
        broken, correct: the lower bounds on epsilon of the broken engine and of the correct one.
        verdict, verdict_on_correct: of each.
    """

    name: str
    title: str
    claimed: float
    bound: str
    coins: int
    capacity: float
    broken: float
    verdict: Verdict
    correct: float
    verdict_on_correct: Verdict

    @property
    def is_right(self) -> bool:
        """Whether the break was found, and the correct engine not accused by an attack with power."""
        return self.verdict == Verdict.VIOLATED and self.verdict_on_correct == Verdict.NOT_CONTRADICTED


@dataclass(frozen=True)
class SelfTest:
    """What was found."""

    tried: tuple[Tried, ...]
    calibrations: tuple[Calibration, ...]

    @property
    def failures(self) -> list[str]:
        """What is not as it should be, in words."""
        wrong = [
            f"{row.title}: {row.verdict}; the correct engine: {row.verdict_on_correct}"
            for row in self.tried
            if not row.is_right
        ]
        return wrong + [
            f"{row.bound} on {row.what}: {row.accused} of {row.audits} audits accuse it"
            for row in self.calibrations
            if not row.is_right
        ]


class WithoutNoise(DpStep):
    """The positive control."""

    def _noise(self) -> tuple[float, Grid | None]:
        return 0.0, None


def self_test(streams: KeyedRandomness, size: Size, reporter: Reporter) -> SelfTest:
    """Break the engine in each of the ways of `BREAKS`, audit it, and audit the correct one; ``streams`` decide everything."""
    set_up_torch(ComputeOptions(threads=1))  # its tensors are too small for more, and every machine has one
    trainings = sum(sum(_numbers(one, size.times)) for one in BREAKS.values())
    with reporter.stage("Trainings, broken and correct", trainings) as bar:
        counter = _Counter(bar)
        tried = [try_break(name, one, size.times, streams, counter.count) for name, one in BREAKS.items()]
    found: list[Calibration] = []
    with reporter.stage("Simulated audits", CALIBRATIONS) as bar:
        for row in calibrations(size.audits, streams):
            found.append(row)
            bar.advance_to(len(found))
    return SelfTest(tuple(tried), tuple(found))


def try_break(
    name: str, one: Break, times: int, streams: KeyedRandomness, on_training: Callable[[], None] = lambda: None
) -> Tried:
    """Play one break's game with the broken engine, the correct one and the control, and judge the first two."""
    confidence = 1 - FALSE_ALARM / len(BREAKS)
    broken, correct, control = (
        one.game.play(made_by, number, streams.child(name, role), on_training)
        for role, made_by, number in zip(
            ("broken", "correct", "control"), (one.made_by, DpStep, WithoutNoise), _numbers(one, times), strict=True
        )
    )
    powerful = has_power(one.bound, control, DELTA, confidence)
    on_broken, on_correct = (one.bound.lower_bound(scores, DELTA, confidence) for scores in (broken, correct))
    claim = Claim(one.game.claimed(DELTA), DELTA, "add-or-remove")
    return Tried(
        name=name,
        title=one.title,
        claimed=claim.epsilon,
        bound=one.bound.name,
        coins=one.bound.size(broken),
        capacity=on_broken.capacity,
        broken=on_broken.epsilon,
        verdict=judge(on_broken, claim, powerful, bool(one.granted)),
        correct=on_correct.epsilon,
        verdict_on_correct=judge(on_correct, claim, powerful, bool(one.granted)),
    )


def _numbers(one: Break, times: int) -> tuple[int, int, int]:
    """Trainings of the broken engine, of the correct one, and of the control, in which the canaries stand out."""
    number = times * one.game.trainings
    return number, number, -(-number // 2)


class _Counter:
    """Moves a bar by one."""

    def __init__(self, bar: Bar) -> None:
        self._bar, self._done = bar, 0

    def count(self) -> None:
        self._done += 1
        self._bar.advance_to(self._done)

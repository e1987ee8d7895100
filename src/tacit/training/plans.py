"""Plans: how one step of a phase uses a stream, and what it costs (`tacit.training.phases` says of which stream, and how often).

A plan couples what must agree: sampler, clip norm, noise, normaliser and event are all read from the same frozen fields.
Speed options (micro-batch, threads) are not here, so they cannot change an event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tacit.config.adaptive import LEAST_WEIGHT
from tacit.privacy.bands import Bands
from tacit.privacy.events import (
    BandedPoissonGaussian,
    BandsFrom,
    CorrelatedPoissonGaussian,
    Event,
    Gaussian,
    NonPrivate,
    PoissonGaussian,
)
from tacit.privacy.literal_adp import literal_reason
from tacit.randomness import KeyedRandomness
from tacit.training.correlation import banded_column, noise_in_mean

if TYPE_CHECKING:
    from tacit.training.objectives import Objective

__all__ = [
    "ControlPlan",
    "CorrelatedPlan",
    "DpPlan",
    "LiteralPlan",
    "NoiselessPlan",
    "PlainPlan",
    "Plan",
    "SelectivePlan",
]


class Plan(ABC):
    """How one step of a phase uses a stream, and all that is asked of it: its batch, its event, its step, its words.

    ``step``: the `tacit.training.steps.Step` that makes its gradients, as ``"module:class"``, since it needs torch.
    ``is_dp``: units are clipped one by one, under noise; an audit's control trains such a phase without.
    ``needs_ledger``: such a phase is refused without one, so that nothing of it can be unpaid.
    ``steps_a_payment``: how many steps, one after the other, the event pays for.
    """

    step: ClassVar[str]
    is_dp: ClassVar[bool] = False
    needs_ledger: ClassVar[bool] = False

    @property
    def steps_a_payment(self) -> int:
        return 1

    @abstractmethod
    def batch(self, records: int, streams: KeyedRandomness, step: int) -> np.ndarray:
        """Indices of what a step reads, of so many records (or units, where ``is_dp``)."""

    @abstractmethod
    def event_on(self, stream: str) -> Event | None:
        """What one step on a stream costs, or so many as are paid for together; None on public text."""

    @abstractmethod
    def mechanism(self, stream: str) -> str:
        """What `tacit plan` calls it."""

    @abstractmethod
    def numbers(self) -> dict[str, float | int | str]:
        """The public numbers that `tacit plan` shows."""

    @property
    @abstractmethod
    def sequences_a_step(self) -> float:
        """What a step costs, in sequences of ordinary training, expected."""

    @abstractmethod
    def marked_objective(self, vocabulary_size: int, layers: int, width: int, length: int) -> Objective:
        """What the model, an LSTM of this shape, is asked about rows of marked text."""


@dataclass(frozen=True)
class PlainPlan(Plan):
    """Ordinary SGD on records that are public: a shuffled epoch after the other, mean gradient, no event.

    Args:
        batch_size: sequences a step.
    """

    step: ClassVar[str] = "tacit.training.plain_step:PlainStep"

    batch_size: int

    def batch(self, records: int, streams: KeyedRandomness, step: int) -> np.ndarray:
        """Indices of the step's records: consecutive slices of keyed permutations, one an epoch; none where there is none.

        Whether there is a record may hang on one unit, so an empty stream stops nothing.
        """
        if records == 0:
            return np.zeros(0, dtype=np.int64)
        positions = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        chosen = np.empty(self.batch_size, dtype=np.int64)
        for epoch in np.unique(positions // records):
            order = streams.generator("epoch", int(epoch)).permutation(records)
            inside = positions // records == epoch
            chosen[inside] = order[positions[inside] % records]
        return chosen

    def event_on(self, stream: str) -> Event | None:
        """Ordinary training on private text has no finite epsilon."""
        return None if stream == "public" else NonPrivate(f"ordinary training on {stream} text")

    def mechanism(self, stream: str) -> str:
        return f"ordinary training on {stream} text"

    def numbers(self) -> dict[str, float | int | str]:
        return {"batch_size": self.batch_size}

    @property
    def sequences_a_step(self) -> float:
        return self.batch_size

    def marked_objective(self, vocabulary_size: int, layers: int, width: int, length: int) -> Objective:
        from tacit.training.selective import PrivateTokens  # it needs torch

        return PrivateTokens(vocabulary_size)


@dataclass(frozen=True)
class ControlPlan(PlainPlan):
    """A `PlainPlan` for a model of an audit, which stays private: no row of private text ends its training by an error."""

    step: ClassVar[str] = "tacit.training.plain_step:ControlStep"

    def __repr__(self) -> str:
        """The words of a `PlainPlan`, by which its draws are addressed (`tacit.training.sums`)."""
        return repr(PlainPlan(self.batch_size))


@dataclass(frozen=True)
class SelectivePlan(PlainPlan):
    """Ordinary SGD on the public tokens of private records, whose states get noise (selective DP; Shi et al. 2021).

    An epoch is a permutation of at least ``slots`` slots, of which those beyond the records stay empty. So how often a record
    takes part is bounded by public constants (`tacit.privacy.selective.participations`); so is the divisor, ``batch_size``.

    Args:
        slots: the number of units, as a public statement.
        segments: states of a row that are released, at most.
        state_clip: bound on the l2 norm of a released state.
        state_noise_multiplier: standard deviation of the noise on it, over that bound.
    """

    slots: int
    segments: int
    state_clip: float
    state_noise_multiplier: float

    @property
    def state_event(self) -> Gaussian:
        """What one released state costs, under replacement."""
        return Gaussian(self.state_noise_multiplier)

    def batch(self, records: int, streams: KeyedRandomness, step: int) -> np.ndarray:
        """Indices of the step's records, fewer than ``batch_size`` where slots are empty."""
        chosen = super().batch(max(self.slots, records), streams, step)
        return chosen[chosen < records]

    def event_on(self, stream: str) -> Event | None:
        """The public tokens of private records get no noise. `tacit.privacy.selective` counts the private tokens alone."""
        if stream != "marked":
            return super().event_on(stream)
        noise = self.state_event.noise_multiplier
        return NonPrivate(
            f"selective DP, public tokens without noise: {self.segments} states a row with noise multiplier {noise:g}"
        )

    def mechanism(self, stream: str) -> str:
        return "ordinary training on the public tokens of marked text, states released with Gaussian noise"

    def numbers(self) -> dict[str, float | int | str]:
        states = {
            "segments": self.segments,
            "state_clip": self.state_clip,
            "state_noise_multiplier": self.state_noise_multiplier,
        }
        return super().numbers() | states

    def marked_objective(self, vocabulary_size: int, layers: int, width: int, length: int) -> Objective:
        from tacit.training.selective import PublicTokens, numbers_of_state  # they need torch

        numbers = numbers_of_state(layers, width)
        draws = PublicTokens.draws_for(self.segments, numbers, length)
        return PublicTokens(
            vocabulary_size, self.segments, self.state_clip, self.state_noise_multiplier, numbers, draws
        )


@dataclass(frozen=True)
class DpPlan(Plan):
    """DP-SGD (Abadi et al. 2016, algorithm 1) with Poisson sampling of units.

    Args:
        sampling_probability: q; each unit is in a step's batch with this probability, independently of all else.
        clip_norm: C, bound on the l2 norm of one unit's gradient.
        noise_multiplier: s; the sum gets noise of standard deviation s C.
        normaliser: public constant that the noisy sum is divided by (the expected batch size).
        sequences_per_unit: a unit shows at most this many sequences a step; all are clipped as one.
        maskings: each of them is shown this many times in a step, with other masks; they too are clipped as one.
        clipping: a name in `tacit.clipping.CLIPPINGS`; each has the same bound, so the event does not know it.
        bands: adaptive DP: a unit of weight w is clipped at w C under the same noise, and takes no part where w is 0.
        bands_from: what decides the band of a unit (`BandedPoissonGaussian`).
    """

    step: ClassVar[str] = "tacit.training.dp_step:DpStep"
    is_dp: ClassVar[bool] = True
    needs_ledger: ClassVar[bool] = True

    sampling_probability: float
    clip_norm: float
    noise_multiplier: float
    normaliser: float
    sequences_per_unit: int = 1
    maskings: int = 1
    clipping: str = "flat"
    bands: Bands | None = None
    bands_from: BandsFrom = "unit-and-releases"

    @property
    def event(self) -> Event:
        """What one step costs."""
        q, noise = self.sampling_probability, self.noise_multiplier
        if self.bands is None:
            return PoissonGaussian(q, noise)
        return BandedPoissonGaussian(q, noise, self.bands.thresholds, self.bands.weights, self.bands_from)

    def event_on(self, stream: str) -> Event | None:
        """The public tokens of marked records are trained on without noise, by another phase, so its steps have no finite epsilon.

        Making the event refuses noise that is none.
        """
        if stream != "marked":
            return self.event
        event = PoissonGaussian(self.sampling_probability, self.noise_multiplier)
        return NonPrivate(
            "selective DP, private tokens: DP-SGD with sampling probability "
            f"{event.sampling_probability:g} and noise multiplier {event.noise_multiplier:g}"
        )

    def mechanism(self, stream: str) -> str:
        name = "DP-SGD: Poisson sampling, clipping, Gaussian noise"
        if stream == "marked":
            return f"{name}, on private tokens alone"
        if self.bands is None:
            return name
        return f"{name}, of {stream}" if stream.startswith("stratum-") else f"{name}, clipped by rho"

    def numbers(self) -> dict[str, float | int | str]:
        numbers: dict[str, float | int | str] = {
            "sampling_probability": self.sampling_probability,
            "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier,
            "normaliser": self.normaliser,
        }
        return numbers if self.bands is None else numbers | {"weights_of_rho": self.bands.words()}

    @property
    def sequences_a_step(self) -> float:
        return 1.2 * self.normaliser * self.rows_per_unit

    def marked_objective(self, vocabulary_size: int, layers: int, width: int, length: int) -> Objective:
        from tacit.training.selective import PrivateTokens  # it needs torch

        return PrivateTokens(vocabulary_size)

    @property
    def rows_per_unit(self) -> int:
        """Rows of a unit in a step, at most."""
        return self.sequences_per_unit * self.maskings

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each coordinate of the clipped sum."""
        return self.noise_multiplier * self.clip_norm

    def batch(self, records: int, streams: KeyedRandomness, step: int) -> np.ndarray:
        """Indices of the step's units, of so many: one global draw, which may be empty."""
        from tacit.engine.sampler import poisson_sample  # torch comes with the engine; `tacit plan` must not load it

        return poisson_sample(records, self.sampling_probability, streams.generator("sampling", step))

    def weights(self, units: int, rho_U: np.ndarray | None) -> np.ndarray:
        """How much each unit counts (U,); 0: it takes no part. It depends on the unit's own rho and on nothing else.

        Raises:
            ValueError: there are bands, and the units have no rho.
            DataError: a rho is no number from 0 to 1.
        """
        if self.bands is None:
            return np.ones(units)
        if rho_U is None or len(rho_U) != units:
            raise ValueError("a plan with bands needs a rho of every unit")
        return self.bands.weights_of(rho_U)

    def noise_on(self, rho_B: np.ndarray | None) -> float:
        """Standard deviation of the noise on the sum over a batch: the same for every batch, or it would tell them apart."""
        return self.noise_stddev

    @property
    def is_on_grid(self) -> bool:
        """Whether sum and noise are multiples of a public number (`tacit.engine.noise.Grid`), for whose rounding the noise pays."""
        return self.noise_multiplier > 0

    @property
    def smallest_weight(self) -> float:
        """The least that a unit counts which takes part.

        Raises:
            ValueError: it is too little for the grid.
        """
        found = 1.0 if self.bands is None else min(weight for weight in self.bands.weights if weight > 0)
        if found < LEAST_WEIGHT:
            raise ValueError(f"a weight of {found:g} is below {LEAST_WEIGHT:g}")
        return found

    def noise_in_mean(self, steps: int) -> float:
        """Standard deviation of the noise in the sum over so many steps, divided by the clip norm and by the root of their number."""
        return self.noise_multiplier


@dataclass(frozen=True)
class NoiselessPlan(DpPlan):
    """A `DpPlan` that leaves the noise out: an audit's positive control. It has no guarantee, and its model stays private."""

    needs_ledger: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.noise_multiplier != 0:
            raise ValueError("a plan without noise has noise multiplier 0")

    @classmethod
    def of(cls, plan: DpPlan) -> NoiselessPlan:
        """A plan with the sampling, clipping and normaliser of ``plan``, and no noise.

        Raises:
            ValueError: the plan draws in a way of its own, which would be lost.
        """
        if type(plan).batch is not DpPlan.batch:
            raise ValueError(f"a {type(plan).__name__} draws in a way of its own; give it a plan without noise")
        return cls(
            sampling_probability=plan.sampling_probability,
            clip_norm=plan.clip_norm,
            noise_multiplier=0.0,
            normaliser=plan.normaliser,
            sequences_per_unit=plan.sequences_per_unit,
            maskings=plan.maskings,
            clipping=plan.clipping,
            bands=plan.bands,
            bands_from=plan.bands_from,
        )

    @property
    def event(self) -> NonPrivate:
        """No guarantee, and why."""
        return NonPrivate("DP-SGD without noise")

    def event_on(self, stream: str) -> NonPrivate:
        return self.event

    def mechanism(self, stream: str) -> str:
        return "DP-SGD without its noise"


@dataclass(frozen=True)
class CorrelatedPlan(DpPlan):
    """DP-SGD whose steps' noise is correlated by a banded matrix (`tacit.training.correlation`), with cyclic Poisson sampling.

    Each unit is in one of ``noise_bands`` groups, drawn once, and step t draws from group t mod ``noise_bands``
    (Choquette-Choo et al. 2023, arXiv 2306.08153). ``sampling_probability`` is that of a unit of the group.

    Raises:
        ValueError: fewer than two bands of noise, or bands of rho.
    """

    step: ClassVar[str] = "tacit.training.correlated:CorrelatedStep"

    noise_bands: int = 2

    def __post_init__(self) -> None:
        if self.bands is not None or self.noise_bands < 2:
            raise ValueError("correlated noise has two bands or more, and units that all count alike")

    @property
    def steps_a_payment(self) -> int:
        return self.noise_bands

    @property
    def event(self) -> CorrelatedPoissonGaussian:
        """What ``noise_bands`` steps cost."""
        return CorrelatedPoissonGaussian(self.sampling_probability, self.noise_multiplier, self.noise_bands)

    def event_on(self, stream: str) -> Event | None:
        if stream == "marked":
            raise ValueError("the account of marked text knows steps with independent noise alone")
        return self.event

    def groups(self, records: int, streams: KeyedRandomness) -> np.ndarray:
        """The group of each unit (records,): drawn independently, the same in every step."""
        return streams.generator("groups").integers(self.noise_bands, size=records)

    def batch(self, records: int, streams: KeyedRandomness, step: int) -> np.ndarray:
        """Indices of the step's units: a Poisson draw from the group whose turn it is, which may be empty."""
        members = np.flatnonzero(self.groups(records, streams) == step % self.noise_bands)
        return members[super().batch(len(members), streams, step)]

    def mechanism(self, stream: str) -> str:
        return "DP-SGD: cyclic Poisson sampling, clipping, Gaussian noise correlated by a banded matrix"

    def numbers(self) -> dict[str, float | int | str]:
        return super().numbers() | {"noise_bands": self.noise_bands}

    def noise_in_mean(self, steps: int) -> float:
        return self.noise_multiplier * noise_in_mean(banded_column(self.noise_bands), steps)


@dataclass(frozen=True)
class LiteralPlan(DpPlan):
    """Adaptive-DP-Adam as published (Wu et al. 2022, algorithm 1): the batch's mean rho multiplies the noise. A heuristic.

    The scale of the noise is a function of the private batch, and is read off a gradient of many parameters: no epsilon is
    finite (`tacit.privacy.literal_adp`).

    Args:
        parameters: how many numbers the gradient has, at most; for the event's words.
    """

    parameters: int = 1

    @property
    def is_on_grid(self) -> bool:
        """What has no guarantee is as published."""
        return False

    @property
    def event(self) -> NonPrivate:
        """No guarantee, and why."""
        return NonPrivate(
            literal_reason(self.parameters, self.normaliser, self.sampling_probability, self.noise_multiplier)
        )

    def mechanism(self, stream: str) -> str:
        return "DP-SGD whose noise is scaled by the batch's mean rho (literal ADP), without a guarantee"

    def noise_on(self, rho_B: np.ndarray | None) -> float:
        """Equation 6: mean rho of the batch, times s C. An empty batch, of which the paper says nothing, gets none."""
        if rho_B is None:
            raise ValueError("the literal plan needs a rho of every unit")
        return float(np.mean(rho_B)) * self.noise_stddev if len(rho_B) else 0.0

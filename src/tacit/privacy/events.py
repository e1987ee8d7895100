"""Events: what an accountant needs to know of a mechanism that was run on the private records.

An event is a public, frozen description. It is made by the plan that also makes the sampler, the clip and the noise, goes
into the ledger before the mechanism runs, and is all that epsilon is ever computed from.

To add a kind: a frozen dataclass here, one line in ``EVENTS``, its law in composition.py and renyi.py; the suite in
tests/contracts/test_accountants.py then checks it against every accountant.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tacit.errors import RefusedError, UsageError
from tacit.privacy.bands import Bands
from tacit.privacy.checks import require_finite, require_positive

__all__ = [
    "EVENTS",
    "EVERY_PART",
    "BandedPoissonGaussian",
    "BandsFrom",
    "Chosen",
    "Event",
    "Exchange",
    "Gaussian",
    "NonPrivate",
    "PoissonGaussian",
    "Relation",
    "Spend",
    "ThresholdedHistogram",
    "WeightedHistogram",
    "WordCounts",
    "check_relation",
    "event_from_dict",
    "event_to_dict",
    "of_run",
    "split_of",
]

Relation = Literal["add-or-remove", "replace"]
"""Neighbouring corpora differ by one unit added or removed, or by one unit replaced."""


BandsFrom = Literal["unit", "unit-and-releases"]
"""What decides which band a unit is in: the unit alone, or also what was released before the units were scored."""


def check_relation(relation: str) -> None:
    """Refuse an unknown relation: what is not understood is never counted as the cheaper one."""
    if relation not in get_args(Relation):
        raise UsageError(f"relation is {relation!r}; it must be one of {', '.join(get_args(Relation))}")


def _require(condition: bool, name: str, value: float, wanted: str) -> None:
    if not condition:
        raise UsageError(f"{name} is {value!r}; it must be {wanted}")


SMALLEST_NOISE_MULTIPLIER = 0.05
"""Below it epsilon is in the hundreds: no guarantee worth the name, and its loss distribution fills the memory."""


def _require_noise(noise_multiplier: float) -> None:
    require_positive("noise_multiplier", noise_multiplier)
    if noise_multiplier < SMALLEST_NOISE_MULTIPLIER:
        raise RefusedError(
            "noise-too-small",
            f"noise_multiplier is {noise_multiplier:g}; below {SMALLEST_NOISE_MULTIPLIER} nothing is protected: raise it",
        )


@dataclass(frozen=True)
class PoissonGaussian:
    """One step of DP-SGD: Poisson sampling of units, clipping, Gaussian noise on the sum (Abadi et al. 2016).

    Args:
        sampling_probability: each unit is in the step's batch with this probability, independently; in (0, 1].
        noise_multiplier: standard deviation of the noise divided by the clip norm.
    """

    sampling_probability: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        q = self.sampling_probability
        _require(0 < q <= 1, "sampling_probability", q, "above 0 and at most 1")
        _require_noise(self.noise_multiplier)


@dataclass(frozen=True)
class BandedPoissonGaussian:
    """One step of DP-SGD in which a unit counts by its band of privacy probability (docs/adaptive.md).

    A unit whose band has weight w is clipped at w times the clip norm; with weight 0 it takes no part.

    Args:
        sampling_probability: of each unit that takes part; in (0, 1].
        noise_multiplier: standard deviation of the noise divided by the clip norm, whatever is drawn.
        thresholds, weights: see `Bands`.
        bands_from: ``unit-and-releases``, unless it is known that no release on private text came before the scorer: then what
            was released may have chosen the band, and the worst band counts after each of its outcomes.
        rho: whose privacy probability; a unit has the same rho in events of one name, and may have any other in those of another.
    """

    sampling_probability: float
    noise_multiplier: float
    thresholds: tuple[float, ...]
    weights: tuple[float, ...]
    bands_from: BandsFrom = "unit-and-releases"
    rho: str = ""

    def __post_init__(self) -> None:
        if self.bands_from not in get_args(BandsFrom):
            raise UsageError(f"bands_from is {self.bands_from!r}; it must be one of {', '.join(get_args(BandsFrom))}")
        bands = self.bands
        object.__setattr__(self, "thresholds", bands.thresholds)
        object.__setattr__(self, "weights", bands.weights)
        _ = self.worst  # checks the rest

    @property
    def bands(self) -> Bands:
        """The weight as a function of rho."""
        return Bands(self.thresholds, self.weights)

    @property
    def worst(self) -> PoissonGaussian:
        """What it costs a unit of the largest weight; a unit of another one no more."""
        return PoissonGaussian(self.sampling_probability, self.noise_multiplier / max(self.weights))


@dataclass(frozen=True)
class Exchange:
    """One step of DP-SGD as an accountant sees it when a unit is replaced by one of another weight; never in a ledger.

    In the worst case the step is (1-q) N(0, s^2) + q N(w, s^2) in one world and (1-q) N(0, s^2) + q N(-w', s^2) in the other.

    Args:
        sampling_probability: q.
        noise_multiplier: s, standard deviation of the noise divided by the clip norm.
        leaves: w, the weight of the unit that leaves; 0: it takes no part.
        enters: w', the weight of the unit that comes.
    """

    sampling_probability: float
    noise_multiplier: float
    leaves: float
    enters: float

    def __post_init__(self) -> None:
        for name, weight in (("leaves", self.leaves), ("enters", self.enters)):
            _require(0 <= weight <= 1, name, weight, "from 0 to 1")
        largest = max(self.leaves, self.enters)
        _require(largest > 0, "leaves", self.leaves, "above 0, or enters must be")
        _ = PoissonGaussian(self.sampling_probability, self.noise_multiplier / largest)  # checks the rest


@dataclass(frozen=True)
class Chosen:
    """Several events as one, in an account: which of the alternatives ran, an earlier release may have chosen; never in a ledger.

    Args:
        alternatives: what each of them spends: `PoissonGaussian` and `Exchange` alone.
    """

    alternatives: tuple[tuple[Spend, ...], ...]

    @property
    def steps(self) -> int:
        """Of the longest alternative."""
        return max(sum(spend.count for spend in spends) for spends in self.alternatives)


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise on a sum in which one unit's vector has l2 norm at most 1 (2 under replacement).

    Args:
        noise_multiplier: standard deviation of the noise divided by that norm bound.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _require_noise(self.noise_multiplier)


@dataclass(frozen=True)
class ThresholdedHistogram:
    """The word histogram of Hoory et al. 2021, section 3.2, under its exact law (tacit.privacy.accounting.histogram).

    A unit adds 1 to at most ``max_words`` counts; words that occur get noise; noisy counts of at least ``threshold`` are
    released.

    Args:
        noise_stddev: standard deviation of the noise on each count (not divided by the sensitivity).
        threshold: smallest noisy count that is released; a whole number for ``discrete-gaussian``.
        max_words: N, the number of distinct words of one unit that count.
        noise: ``gaussian`` (real-valued) or ``discrete-gaussian`` (integers, Canonne et al. 2020).
    """

    noise_stddev: float
    threshold: float
    max_words: int
    noise: Literal["gaussian", "discrete-gaussian"] = "discrete-gaussian"

    def __post_init__(self) -> None:
        require_positive("noise_stddev", self.noise_stddev)
        require_finite("threshold", self.threshold)
        _require(self.max_words >= 1, "max_words", self.max_words, "at least 1")
        if self.noise not in ("gaussian", "discrete-gaussian"):
            raise UsageError(f"noise is {self.noise!r}; it must be 'gaussian' or 'discrete-gaussian'")
        if self.noise == "discrete-gaussian":
            # Below 3 the sum of discrete Gaussians is no longer a discrete Gaussian to within 1e-30 (histogram.py).
            if self.noise_stddev < 3:
                raise RefusedError("discrete-noise-too-small", "integer histogram noise below 3 has no exact law here")
            if self.threshold != int(self.threshold):
                raise UsageError(f"threshold is {self.threshold}; integer noise needs a whole number")


_SMALLEST_INTEGER_NOISE = 3.0
"""In steps of the integers. From here on discrete Gaussian noise is a function of Gaussian noise
(tacit.privacy.accounting.weighted)."""


def _require_integer_noise(noise_stddev: float) -> None:
    require_positive("noise_stddev", noise_stddev)
    if noise_stddev < _SMALLEST_INTEGER_NOISE:
        raise RefusedError("discrete-noise-too-small", "integer noise below 3 steps has no law here")


@dataclass(frozen=True)
class WeightedHistogram:
    """One choice of words by a weighted histogram, under its law (tacit.privacy.accounting.weighted; docs/vocabulary.md).

    A unit with k countable words, at most ``max_words``, adds floor(resolution / sqrt(k)) to the weight of each, so that what it
    adds has norm at most ``resolution``. Words that occur get integer (discrete Gaussian) noise; those whose noisy weight is at
    least ``threshold`` are released with it. Which words are countable may depend on what was released before.

    Args:
        noise_stddev: of the noise on each weight, in steps.
        threshold: smallest noisy weight that is released, in steps; above the largest weight of one unit, which is ``resolution``.
        max_words: the most words of one unit that count.
        resolution: steps of the weight 1.
    """

    noise_stddev: float
    threshold: int
    max_words: int
    resolution: int

    def __post_init__(self) -> None:
        _require_integer_noise(self.noise_stddev)
        require_finite("threshold", self.threshold)
        _require(self.max_words >= 1, "max_words", self.max_words, "at least 1")
        _require(self.resolution**2 >= self.max_words, "resolution", self.resolution, "at least sqrt(max_words)")
        _require(self.threshold == int(self.threshold), "threshold", self.threshold, "a whole number")
        _require(self.threshold > self.resolution, "threshold", self.threshold, f"above resolution, {self.resolution}")


@dataclass(frozen=True)
class WordCounts:
    """Noisy counts of words that are public by now: integer (discrete Gaussian) noise, no threshold.

    A unit adds 1 to the counts of at most ``max_words`` of them.

    Args:
        noise_stddev: of the noise on each count.
        max_words: the most counts that one unit moves.
    """

    noise_stddev: float
    max_words: int

    def __post_init__(self) -> None:
        _require_integer_noise(self.noise_stddev)
        _require(self.max_words >= 1, "max_words", self.max_words, "at least 1")


@dataclass(frozen=True)
class NonPrivate:
    """A release with no guarantee: epsilon is infinite. ``reason`` is the heuristic's code."""

    reason: str


Event = (
    PoissonGaussian
    | BandedPoissonGaussian
    | Gaussian
    | ThresholdedHistogram
    | WeightedHistogram
    | WordCounts
    | NonPrivate
)

EVENTS: dict[str, type] = {
    "poisson-gaussian": PoissonGaussian,
    "banded-poisson-gaussian": BandedPoissonGaussian,
    "gaussian": Gaussian,
    "thresholded-histogram": ThresholdedHistogram,
    "weighted-histogram": WeightedHistogram,
    "word-counts": WordCounts,
    "non-private": NonPrivate,
}
_NAMES = {kind: name for name, kind in EVENTS.items()}


EVERY_PART = "every part"
"""The partition of what may have read any unit, whatever part that unit is in: it composes with each of the others."""


_OF_RUN = "/"


def of_run(spend: Spend, run: str) -> Spend:
    """A spend of another run, as a run that takes it over has to count it: that run's parts of the units are not this one's.

    A unit may be in any part of the one split and in any part of the other, so the worst pair of parts counts, and not each name
    with its like.

    Args:
        run: a name that no other run in the same ledger has, such as the fingerprint of its key.
    """
    if spend.partition == EVERY_PART:
        return spend
    return dataclasses.replace(spend, partition=f"{run}{_OF_RUN}{spend.partition}")


def split_of(partition: str) -> str:
    """Which split of the units a part belongs to: empty for this run's own; see `of_run`."""
    return partition.rpartition(_OF_RUN)[0]


@dataclass(frozen=True)
class Spend:
    """An event that was run ``count`` times on one part of the private units.

    Args:
        event: what was run; an `Exchange` or a `Chosen` inside an account only.
        count: how often; at least 1.
        partition: the disjoint part of the units that it read. A unit's part depends on the unit alone, so under
            add-or-remove the guarantee is that of the worst part (parallel composition); under replacement a unit may
            leave one part and enter another, so all parts are composed. `EVERY_PART` composes with every part.
    """

    event: Event | Exchange | Chosen
    count: int = 1
    partition: str = "training"

    def __post_init__(self) -> None:
        if type(self.event) not in _NAMES and not isinstance(self.event, Exchange | Chosen):
            raise UsageError(f"{type(self.event).__qualname__} is not an event that an accountant knows")
        _require(self.count >= 1, "count", self.count, "at least 1")


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event as JSON-ready values, with its kind."""
    fields = dataclasses.asdict(event).items()
    return {"kind": _NAMES[type(event)]} | {k: list(v) if isinstance(v, tuple) else v for k, v in fields}


def event_from_dict(values: dict[str, Any]) -> Event:
    """The inverse of `event_to_dict`.

    Raises:
        UsageError: the kind or a field is unknown: what is not understood is refused, never counted as free.
    """
    fields = dict(values)
    kind = fields.pop("kind", None)
    if kind not in EVENTS:
        raise UsageError(f"unknown event kind {kind!r}; known: {', '.join(EVENTS)}")
    try:
        return EVENTS[kind](**fields)
    except TypeError as error:
        raise UsageError(f"event {kind!r} does not take these fields: {error}") from None

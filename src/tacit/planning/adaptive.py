"""The noise and the weights of adaptive DP: given, or solved so that every band of rho meets its own epsilon (docs/adaptive.md).

A budget of a band is for a unit of that band that is added or removed; under replacement, that is replaced by one of the same band.
Under replacement by a unit of another band it may cost more, and the worst case, which the run's budget bounds, is over all pairs.
Where what was released may decide a unit's band (`bands_from`), the worst case may be above the bands' epsilons, and is bounded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.config import AdaptiveOptions, DpPhase, RunConfig, stratum_number
from tacit.errors import BudgetError
from tacit.planning.stages import TRAINING
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.accountant import epsilon_of_rho, joint_epsilon
from tacit.privacy.bands import Bands
from tacit.privacy.events import SMALLEST_NOISE_MULTIPLIER, BandedPoissonGaussian, BandsFrom, Spend
from tacit.privacy.rounded import upper

__all__ = ["PhaseNoise", "adaptive_noise", "adaptive_notes", "bands_from", "has_given_bands", "sampling_probability"]

_FACTOR_STEP = 0.004


@dataclass(frozen=True)
class PhaseNoise:
    """The noise of a DP phase, and how much a unit counts in it by its rho; None: all alike."""

    multiplier: float
    bands: Bands | None = None


def sampling_probability(config: RunConfig, phase: DpPhase) -> float:
    """The sampling probability of a unit: the expected batch over the stated units, or over its stratum's stated share of them."""
    stratum = stratum_number(phase.stream)
    if config.adaptive is None or stratum is None:
        return phase.expected_batch / config.privacy.units
    return min(1.0, phase.expected_batch / (config.privacy.units * config.adaptive.stated_shares[stratum]))


def bands_from(config: RunConfig) -> BandsFrom:
    """What decides the band of a unit, as far as the configuration proves it.

    The unit alone where the scorer is a public folder of its own, or where nothing that its phase reads may come from private text:
    public words, public text, weights from nowhere. With ``same_people: false`` the folder may be a release on the text of others; an
    account of both releases, of people who are in both, has no such statement to rest on.
    """
    options = config.adaptive
    if options is not None and options.scorer.folder is not None:
        return "unit" if config.same_people else "unit-and-releases"
    public = config.vocabulary.how.is_public(config) and config.model.folder is None
    return "unit" if public else "unit-and-releases"


def adaptive_noise(config: RunConfig, options: AdaptiveOptions, others: Sequence[Spend]) -> dict[str, PhaseNoise]:
    """The noise of all DP phases, by name.

    Args:
        others: what else private units are used for, and pay for.

    Raises:
        BudgetError: no noise meets the budget.
    """
    if options.form == "strata":
        return _strata(config, options, others)
    if options.form == "clip-weights":
        return _clip_weights(config, options, others)
    return {
        phase.name: PhaseNoise(phase.noise_multiplier or 0.0) for phase in config.dp_phases
    }  # given: `check_adaptive`


def _strata(config: RunConfig, options: AdaptiveOptions, others: Sequence[Spend]) -> dict[str, PhaseNoise]:
    own = [_stratum_bands(options, stratum) for stratum in range(options.bands)]
    stratum_of = {phase.name: stratum_number(phase.stream) or 0 for phase in config.dp_phases}
    if options.budget is not None:
        noise = _band_noise(config, options.budget, others, apart=True)
        found = {name: PhaseNoise(noise[stratum], own[stratum]) for name, stratum in stratum_of.items()}
        return _raised(config, others, found)
    assert options.noise_factors is not None  # `check_adaptive`
    factors = options.noise_factors

    def noise_at(solved: float) -> dict[str, PhaseNoise]:
        return {
            phase.name: PhaseNoise(
                factors[stratum_of[phase.name]] * (phase.noise_multiplier or solved), own[stratum_of[phase.name]]
            )
            for phase in config.dp_phases
        }

    return _solved(config, others, noise_at, least=SMALLEST_NOISE_MULTIPLIER / min(factors))


def _stratum_bands(options: AdaptiveOptions, stratum: int) -> Bands:
    """Units of one stratum count in whole, those of the others take no part."""
    return Bands(options.thresholds, tuple(float(band == stratum) for band in range(options.bands)))


def has_given_bands(options: AdaptiveOptions, phase: DpPhase, spend: Spend) -> bool:
    """Whether a phase's event has the thresholds, weights and noise that the options give, where they are not left to be solved."""
    event = spend.event
    bands = event.bands
    if bands is None:
        return options.form == "literal"
    stratum, given, factor = stratum_number(phase.stream), options.weights, 1.0
    if stratum is not None:
        given = _stratum_bands(options, stratum).weights
        factor = options.noise_factors[stratum] if options.noise_factors else 1.0
    noise = event.step_noise_multiplier if phase.noise_multiplier is None else factor * phase.noise_multiplier
    return (
        bands.thresholds == options.thresholds
        and bands.weights == (given or bands.weights)
        and event.step_noise_multiplier == noise
    )


def _clip_weights(config: RunConfig, options: AdaptiveOptions, others: Sequence[Spend]) -> dict[str, PhaseNoise]:
    if options.budget is not None:
        noise = _band_noise(config, options.budget, others, apart=False)
        least = min(noise)
        # Rounded down, so that no band's noise over its weight falls below what its epsilon needs.
        weights = tuple(math.floor(least / own * 1e4) / 1e4 if own > least else 1.0 for own in noise)
        bands = Bands(options.thresholds, weights)
        return {phase.name: PhaseNoise(least, bands) for phase in config.dp_phases}
    assert options.weights is not None  # `check_adaptive`
    bands = Bands(options.thresholds, options.weights)

    def noise_at(solved: float) -> dict[str, PhaseNoise]:
        return {phase.name: PhaseNoise(phase.noise_multiplier or solved, bands) for phase in config.dp_phases}

    return _solved(config, others, noise_at, least=SMALLEST_NOISE_MULTIPLIER)


def _band_noise(config: RunConfig, budget: dict[str, float], others: Sequence[Spend], apart: bool) -> list[float]:
    """The smallest noise multiplier of each band at which a unit of weight 1 has the band's epsilon.

    Args:
        apart: whether each band has phases of its own. One without any needs no noise of its own.
    """
    privacy = config.privacy
    found = []
    for band, target in enumerate(budget.values()):
        schedule = [
            (sampling_probability(config, phase), config.rounds * phase.steps)
            for phase in config.dp_phases
            if not apart or stratum_number(phase.stream) == band
        ]
        found.append(
            calibrate.training_noise(target, privacy.budget.delta, schedule, privacy.relation, others)
            if schedule
            else math.inf
        )
    return found


def _solved(
    config: RunConfig, others: Sequence[Spend], noise_at: Callable[[float], dict[str, PhaseNoise]], least: float
) -> dict[str, PhaseNoise]:
    """The noise with the s that is not given solved, such that the worst case meets the run's budget."""
    privacy = config.privacy
    if all(phase.noise_multiplier is not None for phase in config.dp_phases):
        return noise_at(0.0)

    def spends_at(solved: float) -> list[Spend]:
        return [*others, *_spends(config, noise_at(solved))]

    if others and joint_epsilon(others, privacy.budget.delta, privacy.relation) >= privacy.budget.epsilon:
        raise BudgetError(
            f"the other releases alone use epsilon {privacy.budget.epsilon:g}: nothing is left for training"
        )
    solved = calibrate.scaled_noise(
        privacy.budget.epsilon, privacy.budget.delta, spends_at, privacy.relation, least=least
    )
    return noise_at(solved)


def _raised(config: RunConfig, others: Sequence[Spend], noise: dict[str, PhaseNoise]) -> dict[str, PhaseNoise]:
    """The noise of all bands times one factor, where each band meets the run's budget and the choice between them does not.

    What was released may decide a unit's band, so the worst case can be above every band's epsilon.
    """
    privacy = config.privacy
    target, delta = privacy.budget.epsilon, privacy.budget.delta
    fixed = [_by_unit(spend) for spend in _spends(config, noise)]

    def noise_at(factor: float) -> dict[str, PhaseNoise]:
        return {name: PhaseNoise(factor * own.multiplier, own.bands) for name, own in noise.items()}

    def meets(factor: float) -> bool:
        return joint_epsilon([*others, *_spends(config, noise_at(factor))], delta, privacy.relation) <= target

    if bands_from(config) == "unit" or joint_epsilon([*others, *fixed], delta, privacy.relation) > target or meets(1.0):
        return noise
    return noise_at(_smallest_factor(meets))


def _smallest_factor(meets: Callable[[float], bool]) -> float:
    """The smallest factor above 1 that is enough, to 0.2 %: an account with a choice takes seconds, and little is lacking."""
    low, high = 1.0, 1.0 + _FACTOR_STEP
    while not meets(high):
        low, high = high, 1 + 2 * (high - 1)
    while high - low > _FACTOR_STEP / 2:
        middle = (low + high) / 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def _by_unit(spend: Spend) -> Spend:
    return dataclasses.replace(spend, event=spend.event.decided_by_unit())


def _spends(config: RunConfig, noise: dict[str, PhaseNoise]) -> list[Spend]:
    spends = []
    for phase in config.dp_phases:
        own = noise[phase.name]
        assert own.bands is not None
        event = BandedPoissonGaussian(
            sampling_probability(config, phase),
            own.multiplier,
            own.bands.thresholds,
            own.bands.weights,
            bands_from(config),
        )
        spends.append(Spend(event, config.rounds * phase.steps, TRAINING))
    return spends


def adaptive_notes(config: RunConfig, spends: Sequence[Spend]) -> list[str]:
    """What a reader of the plan should know: epsilon as a function of rho, and the worst case."""
    options, privacy = config.adaptive, config.privacy
    if options is None:
        return []
    if options.form == "literal":
        return [
            "literal ADP (the published algorithm): the batch's own mean rho scales its noise, which the noise shows, so epsilon is "
            "infinite and the budget bounds nothing (docs/adaptive.md)"
        ]
    rows = epsilon_of_rho(spends, privacy.budget.delta, privacy.relation)
    notes = []
    for name, row in zip(options.names, rows, strict=True):  # all events have the thresholds of the section
        within = "" if row.worst_partner is None else f" ({upper(row.within)} if replaced by a unit of the same band)"
        notes.append(
            f"adaptive: a unit with rho from {row.begin:g} to {row.end:g} ({name}) has epsilon {upper(row.epsilon)}{within}"
        )
    worst = joint_epsilon(spends, privacy.budget.delta, privacy.relation)
    notes.append(
        f"adaptive: the worst case is {upper(worst)}. Which rho a unit has, and how many have it, is private; so is whether any has"
    )
    return notes

"""Adaptive DP by privacy probability: the section ``adaptive`` (Wu et al. 2022; docs/adaptive.md)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import field_validator

from tacit.config.base import Count, Options, Positive, Probability, Share
from tacit.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["LEAST_WEIGHT", "AdaptiveOptions", "RhoScorer", "check_adaptive", "stratum_number"]

LEAST_WEIGHT = 1e-4
"""Of a unit that takes part: with a grid that is fine enough for less float64 has too few digits for the sum of many units."""


class RhoScorer(Options):
    """The public model whose perplexity is a unit's privacy probability; one of the two is given.

    Args:
        phase: a phase on public text of this run, in its first round: the model as it ends.
        folder: a local Hugging Face folder with a causal model, or a run whose phases read public text alone.
        public: the folder was made from public text alone; needed where no certificate lies beside it.
        length: tokens of a window of that folder; as many as its model has positions when not given.
    """

    added_later = frozenset({"public"})

    phase: str | None = None
    folder: str | None = None
    public: bool = False
    length: Count | None = None

    @property
    def resolved_folder(self) -> Path:
        """Where there is a folder: it with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        assert self.folder is not None
        return self.located(self.folder)


class AdaptiveOptions(Options):
    """How much a unit counts by its privacy probability rho, which a public scorer gives it (docs/adaptive.md).

    Not together with ``screening`` or ``marking``.

    Args:
        form: ``strata``, each band of rho has its own phases (``stream: stratum-1`` has the lowest rho) with their own noise;
            ``clip-weights``, a unit is clipped at its band's weight times the clip norm, under one noise; ``literal``, the published
            algorithm, a heuristic (``allow: [heuristic:adp]``).
        scorer: where rho comes from.
        lower: ln PPL at which rho is 0, a public constant; given together with ``upper``. Not given: both are taken from public
            held-out text of at least 100 records, as its 5 % and its 95 % quantile.
        upper: ln PPL at which rho is 1.
        thresholds: of rho, rising: K - 1 of them make K bands; not given: one band.
        noise_factors: strata: the noise multiplier of each is this times s; at most 1, and 1 for the last, the most private.
        weights: clip weights, one for each band, at most 1.
        shares: strata: the public statement of which share of the units each has, as ``privacy.units`` is one; equal when not given.
            The sampling probability of a phase is its ``expected_batch`` over its stratum's share of the units.
        budget: epsilon of each band by a name for it: then factors or weights are solved. The largest is of the lowest rho, and so on
            down: the order in the file says nothing.
    """

    form: Literal["strata", "clip-weights", "literal"]
    scorer: RhoScorer
    lower: float | None = None
    upper: float | None = None
    thresholds: tuple[float, ...] = ()
    noise_factors: tuple[Positive, ...] | None = None
    weights: tuple[Probability, ...] | None = None
    shares: tuple[Share, ...] | None = None
    budget: dict[str, Positive] | None = None

    @field_validator("budget")
    @classmethod
    def _falling(cls, budget: dict[str, float] | None) -> dict[str, float] | None:
        """A mapping has no order that a digest or a stored copy would keep, so the values have to give one."""
        return None if budget is None else dict(sorted(budget.items(), key=lambda item: (-item[1], item[0])))

    @property
    def bands(self) -> int:
        """K."""
        return len(self.thresholds) + 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the bands: those of the budget, else by number."""
        return tuple(self.budget) if self.budget else tuple(f"stratum-{number + 1}" for number in range(self.bands))

    @property
    def stated_shares(self) -> tuple[float, ...]:
        """The stated share of the units in each band; all are equal when not given."""
        return self.shares or (1 / self.bands,) * self.bands


def stratum_number(stream: str) -> int | None:
    """The number, from 0, of the stream ``stratum-1`` and so on; None for another stream."""
    kind, _, number = stream.partition("-")
    return int(number) - 1 if kind == "stratum" else None


def check_adaptive(config: RunConfig) -> None:
    """Adaptive DP: bands that are bands, a public scorer, and phases that the form is about."""
    options = config.adaptive
    strata = [phase for phase in config.dp_phases if stratum_number(phase.stream) is not None]
    if options is None:
        if strata:
            raise UsageError(
                f"phases: stream: {strata[0].stream} needs the section `adaptive` with form: strata, which says what a stratum is"
            )
        return
    if config.screening is not None or config.marking is not None:
        raise UsageError("adaptive: it reads the raw private corpus; leave out screening and marking")
    if options.form == "literal" and "heuristic:adp" not in config.allow:
        raise RefusedError(
            "noise-from-the-batch",
            "adaptive.form: literal scales the noise by the private batch's own mean rho, which the noise shows: no epsilon holds. "
            "Use form: strata or form: clip-weights, or add heuristic:adp to allow (reported with epsilon = infinity)",
        )
    _check_bands(options)
    _check_scorer(config, options)
    _check_adaptive_phases(config, options)


def _check_bands(options: AdaptiveOptions) -> None:
    """Thresholds rise, and one of factors, weights and budget says what a band has, for every band."""
    edges = (0.0, *options.thresholds, 1.0)
    if not all(low < high for low, high in itertools.pairwise(edges)):
        raise UsageError(
            f"adaptive.thresholds are {list(options.thresholds)}; they must rise, each above 0 and below 1"
        )
    wanted = {"strata": "noise_factors", "clip-weights": "weights", "literal": None}[options.form]
    given = {"noise_factors": options.noise_factors, "weights": options.weights, "shares": options.shares}
    for name, values in {**given, "budget": options.budget}.items():
        if values is not None and options.form == "literal":
            raise UsageError(f"adaptive.{name}: form: literal has no bands, only the batch's mean rho; leave it out")
        if values is not None and len(values) != options.bands:
            raise UsageError(
                f"adaptive.{name} has {len(values)} values for {options.bands} bands; give one more than thresholds"
            )
    if options.form == "literal":
        if options.thresholds:
            raise UsageError("adaptive.thresholds: form: literal has no bands; leave them out")
        return
    other = "weights" if wanted == "noise_factors" else "noise_factors"
    if given[other] is not None:
        raise UsageError(f"adaptive.{other}: form: {options.form} has {wanted}; leave it out")
    if options.shares is not None and options.form != "strata":
        raise UsageError("adaptive.shares: only strata are sampled apart; leave it out")
    if (given[wanted or ""] is None) == (options.budget is None):
        raise UsageError(f"adaptive: give either {wanted}, or a budget from which they are solved")
    if any(0 < weight < LEAST_WEIGHT for weight in options.weights or ()):
        raise UsageError(f"adaptive.weights: one is below {LEAST_WEIGHT:g}; let these units count 0, or more")
    factors = options.noise_factors
    if factors is not None and (max(factors) > 1 or factors[-1] != 1):
        raise UsageError("adaptive.noise_factors are at most 1, and 1 for the last band, which is the most private")
    if options.shares is not None and sum(options.shares) > 1 + 1e-9:
        raise UsageError(f"adaptive.shares add up to {sum(options.shares):g}; together they are at most 1")


def _check_scorer(config: RunConfig, options: AdaptiveOptions) -> None:
    """One scorer, public, and there before it is needed."""
    scorer = options.scorer
    if (scorer.phase is None) == (scorer.folder is None):
        raise UsageError("adaptive.scorer: give either phase or folder")
    if scorer.public and scorer.folder is None:
        raise UsageError(
            "adaptive.scorer.public is about a folder; the phases of a run are public or not by their stream"
        )
    if scorer.length is not None and scorer.folder is None:
        raise UsageError(
            "adaptive.scorer.length is for a folder; the model of a phase reads model.length; leave it out"
        )
    if (options.lower is None) != (options.upper is None):
        raise UsageError("adaptive: give lower and upper together, or neither to take them from public held-out text")
    if options.lower is None and not config.public:
        raise UsageError("adaptive: give lower and upper; there is no public corpus that they could be taken from")
    if options.lower is not None and options.upper is not None and options.lower >= options.upper:
        raise UsageError(f"adaptive: lower is {options.lower:g} and must be below upper, {options.upper:g}")
    if scorer.phase is None:
        return
    if not config.model.is_causal:
        raise UsageError(
            "adaptive.scorer.phase: only a causal model scores text: set model.kind to gpt2 or lstm, or name a folder"
        )
    names = [phase.name for phase in config.phases]
    private = [number for number, phase in enumerate(config.phases) if phase.stream != "public"]
    if scorer.phase not in names or names.index(scorer.phase) in private:
        raise UsageError(f"adaptive.scorer.phase: {scorer.phase!r} is no phase with stream: public")
    if private and names.index(scorer.phase) > private[0]:
        raise RefusedError(
            "scorer-not-public",
            f"adaptive.scorer.phase: {scorer.phase} comes after {names[private[0]]}, so its model has read private text; put it "
            "first",
        )


def _check_adaptive_phases(config: RunConfig, options: AdaptiveOptions) -> None:
    if not config.dp_phases:
        raise UsageError("adaptive: no phase has plan: dp; add one, or leave the section out")
    for phase in config.phases:
        stratum = stratum_number(phase.stream)
        if stratum is not None and options.form != "strata":
            raise UsageError(f"phases: {phase.name}: stream: {phase.stream} is for form: strata; use stream: private")
        if stratum is not None and stratum >= options.bands:
            raise UsageError(f"phases: {phase.name}: there are {options.bands} strata, and no {phase.stream}")
        if stratum is None and phase.stream == "private" and options.form == "strata":
            raise UsageError(
                f"phases: {phase.name}: with form: strata private text is read by stream: stratum-1 and so on alone"
            )
    for phase in config.dp_phases:
        if options.form == "literal" and phase.noise_multiplier is None:
            raise UsageError(
                f"phases: {phase.name}: give noise_multiplier; form: literal has no epsilon to solve it from"
            )
        if options.budget is not None and phase.noise_multiplier is not None:
            raise UsageError(f"phases: {phase.name}: noise_multiplier is solved from adaptive.budget; leave it out")

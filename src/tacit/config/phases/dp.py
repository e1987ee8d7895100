"""Training with DP-SGD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from tacit.clipping import CLIPPINGS
from tacit.config.adaptive import stratum_number
from tacit.config.base import ClipNorm, Count, Noise, Share, name_in
from tacit.config.phases.phase import PhaseOptions, PhaseWords
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["ClippingName", "DpPhase"]

ClippingName = Annotated[str, name_in(lambda: CLIPPINGS)]

_ADAPTIVE = {"clip-weights": "the clip norm times the weight of rho", "literal": "the noise times the batch's mean rho"}
"""By the form of adaptive DP: what rho changes in a step; with strata it chooses the phase."""


class DpPhase(PhaseOptions):
    """DP training on the private stream.

    Args:
        plan: the kind of this phase.
        stream: ``private``; ``marked``: the private tokens alone of a marked corpus (selective DP), with a given noise; or, with
            ``adaptive: {form: strata}``, ``stratum-1`` and so on: the units of one band of rho, the lowest first.
        expected_batch: units in a step's batch on average; the sampling probability is this over ``privacy.units`` (of a stratum,
            over its stated share of them), and it is the public constant that the noisy sum is divided by.
        clip_norm: C, bound on the l2 norm of one unit's gradient.
        clipping: how a unit's gradient is scaled under that bound: flat (Abadi et al. 2016), automatic (Bu et al. 2022) or
            per-layer.
        sequences_per_unit: a unit shows at most this many sequences a step (a fresh keyed choice).
        maskings: each of them is shown this many times a step, with other masks, and all are clipped as one; of a masked model.
        average: the phase ends with the mean of its iterates, in which each counts this much less than the one after it (0.9:
            about the last ten); not given: with the last one. The iterates are released, so their mean costs nothing.
        keep: the phase ends with this part of the way from the weights that it began with to those it came to, ``average``
            included; not given: all of it. Both are released, so it costs nothing. With ``rounds``, of every round's part of the
            phase; a control without DP keeps all.
        noise_multiplier: noise over ``clip_norm``, given instead of solved from the budget (one number is solved for all phases that
            leave it out); of a stratum the s that its noise factor multiplies. It must be given with ``stream: marked`` and with
            ``adaptive: {form: literal}``.
        noise_bands: from 2: each step's noise takes back a part of that of the steps before it (banded matrix factorisation,
            Choquette-Choo et al. 2023), so many steps less one; the units are in as many groups, from which the steps sample by
            turns. Less noise remains where steps sample few of the units, and at large epsilon; more where they sample many
            (docs/guarantees.md). One process keeps so many copies of the trained weights, less one, in float64. Not with
            ``adaptive``, ``marking``, ``screening``, ``compute.shard``, ``audit.white_box``, ``audit.control: without-noise`` or
            torchrun.
    """

    made_by: ClassVar[str] = "tacit.planning.phases:dp_plan"
    added_later: ClassVar = frozenset({"maskings", "average", "keep", "noise_bands"})

    plan: Literal["dp"]
    stream: Annotated[str, Field(pattern=r"^(private|marked|stratum-[1-9][0-9]?)$")]
    expected_batch: Count
    clip_norm: ClipNorm
    clipping: ClippingName = "flat"
    sequences_per_unit: Count = 1
    maskings: Count = 1
    average: Share | None = None
    keep: Share | None = None
    noise_multiplier: Noise | None = None
    noise_bands: Annotated[int, Field(ge=1, le=64)] = 1

    def words(self, config: RunConfig, noise_multiplier: float | None) -> PhaseWords:
        found = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        assert found is not None
        batch = f"{self.expected_batch} units expected (Poisson), at most {self.sequences_per_unit} sequences each"
        if self.maskings > 1:
            batch += f" with {self.maskings} maskings"
        plan = f"DP-SGD, {self.clipping} clipping, clip norm {self.clip_norm:g}, noise multiplier {found:g}"
        if config.adaptive is not None and config.adaptive.form in _ADAPTIVE:
            plan += f", {_ADAPTIVE[config.adaptive.form]}"
        if self.noise_bands > 1:
            plan += f", noise correlated over {self.noise_bands} steps (banded square root)"
            batch += f", from one of {self.noise_bands} groups of units by turns"
        if self.average is not None:
            plan += f", ends with the mean of its iterates (decay {self.average:g})"
        if self.keep is not None:
            plan += f", keeps {self.keep:g} of the way from its start"
        return PhaseWords(plan, batch)

    def check(self, config: RunConfig) -> None:
        """No batch is larger than the corpus."""
        stratum = stratum_number(self.stream)
        share = config.adaptive.stated_shares[stratum] if config.adaptive and stratum is not None else 1.0
        if self.expected_batch > share * config.privacy.units:
            units = f"privacy.units {config.privacy.units}"
            if stratum is not None:
                units = f"its stratum's stated share of {units}, {share:g}"
            raise UsageError(f"phases: {self.name}: expected_batch {self.expected_batch} exceeds {units}")
        if self.noise_bands > 1:
            self._check_correlated(config)

    def _check_correlated(self, config: RunConfig) -> None:
        """Nobody has shown more of correlated noise than what its event says of one unit."""
        place = f"phases: {self.name}: noise_bands"
        if self.noise_bands * self.expected_batch > config.privacy.units:
            raise UsageError(
                f"{place}: a step samples one of {self.noise_bands} groups of units, and {self.noise_bands} times expected_batch "
                f"{self.expected_batch} exceeds privacy.units {config.privacy.units}; lower one of them"
            )
        others = {
            "adaptive": config.adaptive is not None,
            "marking": config.marking is not None,
            "screening": config.screening is not None,
            "compute.shard": config.compute.shard,
            "audit.white_box": config.audit is not None and config.audit.white_box,
            "audit.control: without-noise": config.audit is not None and config.audit.control == "without-noise",
        }
        for name, is_there in others.items():
            if is_there:
                raise UsageError(f"{place}: not with {name}; leave one of them out")

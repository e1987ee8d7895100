"""The training phases, by their plan: the section ``phases``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from tacit.config.adaptive import stratum_number
from tacit.config.base import ClipNorm, Count, Noise, Options, Positive, Rate, Share, Steps
from tacit.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = [
    "PHASES",
    "ClippingName",
    "DpPhase",
    "Phase",
    "PhaseOptions",
    "PlainPhase",
    "SelectivePhase",
    "check_phases",
    "check_streams",
]

ClippingName = Literal["flat", "automatic", "per-layer"]
"""The keys of `tacit.engine.CLIPPINGS`, which needs torch."""


class PhaseOptions(Options):
    """What every training phase has: its name, steps and AdamW's options (linear warm-up, then linear decay).

    Args:
        name: unique; not ``vocabulary``, ``evaluation`` or ``control-...``.
        steps: optimizer steps; fixed beforehand.
        learning_rate: AdamW's peak learning rate.
        warmup: share of the steps in which the rate rises.
        weight_decay: AdamW's weight decay.
        adam_betas: AdamW's betas.
        adam_epsilon: AdamW's epsilon.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    steps: Steps
    learning_rate: Rate
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    adam_betas: tuple[Share, Share] = (0.9, 0.98)
    adam_epsilon: Positive = 1e-6


class PlainPhase(PhaseOptions):
    """Ordinary training.

    Args:
        plan: the kind of this phase.
        stream: ``public``, the public corpora; ``screened``, the part of the private corpus that screening lets through; and
            two baselines without any guarantee (``allow: [heuristic:non-private]``): ``private``, what is private, and
            ``redacted``, everything, as screening has redacted it.
        batch_size: sequences a step.
    """

    plan: Literal["plain"]
    stream: Literal["public", "screened", "private", "redacted"]
    batch_size: Count


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
            phase; the control of an audit keeps all.
        noise_multiplier: noise over ``clip_norm``, given instead of solved from the budget (one number is solved for all phases that
            leave it out); of a stratum the s that its noise factor multiplies. It must be given with ``stream: marked`` and with
            ``adaptive: {form: literal}``.
    """

    added_later: ClassVar = frozenset({"maskings", "average", "keep"})

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


class SelectivePhase(PhaseOptions):
    """Ordinary training on the public tokens of a marked corpus (selective DP; Shi et al. 2021), for an LSTM.

    The state that goes from a private token to a public one is clipped, and gets noise.

    Args:
        plan: the kind of this phase.
        stream: the marked corpus.
        batch_size: rows a step, one of each record; the divisor of the step, also where slots are empty.
        segments: runs of private tokens whose state is released, at most, in a row; the loss leaves out what follows the last.
        state_clip: bound on the l2 norm of the state, the hidden and the cell state of all layers together.
        state_noise_multiplier: standard deviation of the noise on each of its numbers, over ``state_clip``.
    """

    plan: Literal["selective"]
    stream: Literal["marked"]
    batch_size: Count
    segments: Count
    state_clip: Positive
    state_noise_multiplier: Noise


Phase = Annotated[PlainPhase | DpPhase | SelectivePhase, Field(discriminator="plan")]
PHASES: dict[str, type[PhaseOptions]] = {"plain": PlainPhase, "dp": DpPhase, "selective": SelectivePhase}
"""By their ``plan``, as in `Phase`; it is a part of an error's place."""


_OTHER_STAGES = ("vocabulary", "evaluation")
"""Stages of the ledger beside the phases. A name with ``control-`` would share a checkpoint with the control without DP."""


def check_streams(config: RunConfig) -> None:
    """Every phase has text to read, and text without noise is wanted as such."""
    streams = {phase.stream for phase in config.phases}
    for stream in sorted(streams & {"screened", "redacted"} if config.screening is None else ()):
        raise UsageError(
            f"phases: stream: {stream} needs the section `screening`, which says how the private corpus is screened"
        )
    own_words = config.screening is not None or config.marking is not None
    if not config.public and (not own_words or "public" in streams):
        raise UsageError("public: name at least one public corpus; a run without screening starts from public text")
    unclipped = config.unclipped_phases
    if unclipped and "heuristic:non-private" not in config.allow:
        raise RefusedError(
            "private-text-without-noise",
            f"phases: {unclipped[0].name} trains on private text without noise, which has no guarantee; use plan: dp, or add "
            "heuristic:non-private to allow (reported with epsilon = infinity)",
        )


def check_phases(config: RunConfig) -> None:
    """Names are free and distinct, and no batch is larger than the corpus."""
    names = [phase.name for phase in config.phases]
    for name in names:
        if name in _OTHER_STAGES or name.startswith("control-"):
            raise UsageError(f"phases: the name {name!r} is used by the run itself; choose another")
    if len(set(names)) < len(names):
        raise UsageError(f"phases: two phases share a name ({', '.join(names)})")
    for phase in config.dp_phases:
        stratum = stratum_number(phase.stream)
        share = config.adaptive.stated_shares[stratum] if config.adaptive and stratum is not None else 1.0
        if phase.expected_batch > share * config.privacy.units:
            units = f"privacy.units {config.privacy.units}"
            if stratum is not None:
                units = f"its stratum's stated share of {units}, {share:g}"
            raise UsageError(f"phases: {phase.name}: expected_batch {phase.expected_batch} exceeds {units}")

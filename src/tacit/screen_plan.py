"""How a run's private corpus is screened, from its configuration alone."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.config import RunConfig
from tacit.errors import UsageError
from tacit.screening.corpus import ScreenPlan
from tacit.screening.groups import GroupLimit
from tacit.screening.identifiers import IDENTIFIERS
from tacit.screening.policy import load_policy_options
from tacit.screening.split import Stream
from tacit.screening.tokens import TokenPolicyOptions

__all__ = ["LookedFor", "looked_for", "plan_of", "streams_needed"]


def plan_of(config: RunConfig) -> ScreenPlan:
    """How a run's private corpus is screened.

    Raises:
        UsageError: the configuration has no section ``screening``.
    """
    options = config.screening
    if options is None:
        raise UsageError("the configuration has no section `screening`; add one (`screening: {}` takes every default)")
    return ScreenPlan(
        policies=options.policies,
        data_point=options.data_point,
        balanced=options.policy_paths["balanced"],
        conservative=options.policy_paths["conservative"],
        missed=options.missed,
        deduplicate=options.deduplicate,
        normalisation=options.normalisation,
        held_out=config.evaluation.held_out,
        group=None if options.group is None else GroupLimit(options.group.by, options.group.most),
        workers=config.compute.workers,
    )


def streams_needed(config: RunConfig) -> set[Stream]:
    """The streams of screening that must not be empty: the public one, where a phase or the vocabulary is made from it.

    Not the private one: whether it is empty may hang on a single secret, and a run that stops there would say so.
    """
    phases = {str(phase.stream) for phase in config.phases}
    return {"public"} if phases & {"screened", "redacted"} or not config.public else set()


@dataclass(frozen=True)
class LookedFor:
    """One identifier of HIPAA's safe harbour, and what the policy that masks, or marks, looks for of it.

    Args:
        name: the identifier, with the letter of its paragraph.
        labels: of the detections that it acts on.
        note: what of it is not looked for.
    """

    name: str
    labels: tuple[str, ...]
    note: str


def looked_for(config: RunConfig) -> tuple[LookedFor, ...]:
    """All 18, by the core detector and the policy as its file is now; none of a run without it, or that neither redacts nor marks.

    What a policy's own patterns and other detectors find beside is not sorted under them.

    Raises:
        DataError: the policy's file cannot be read.
    """
    if config.screening is not None:
        path = config.screening.policy_paths["balanced"]
    elif config.marking is not None:
        path = config.marking.policy_path
    else:
        return ()
    policy = None if path is None else load_policy_options(path)
    if isinstance(policy, TokenPolicyOptions):
        return ()
    kept = None if policy is None else policy.labels
    return tuple(
        LookedFor(
            f"({row.letter}) {row.name}",
            tuple(label for label in row.labels if kept is None or label in kept),
            row.note,
        )
        for row in IDENTIFIERS
    )

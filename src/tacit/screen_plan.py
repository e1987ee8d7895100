"""How a run's private corpus is screened, from its configuration alone."""

from __future__ import annotations

from tacit.config import RunConfig
from tacit.errors import UsageError
from tacit.screening.corpus import ScreenPlan
from tacit.screening.groups import GroupLimit
from tacit.screening.split import Stream

__all__ = ["plan_of", "streams_needed"]


def plan_of(config: RunConfig) -> ScreenPlan:
    """How a run's private corpus is screened.

    Raises:
        UsageError: the configuration has no section ``screening``.
    """
    options = config.screening
    if options is None:
        raise UsageError("the configuration has no section `screening`; add one (`screening: {}` takes every default)")
    return ScreenPlan(
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

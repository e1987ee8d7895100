"""The training phases, the section ``phases``: one file a plan, and one line here.

The options of a plan say what it takes, what a report says of it, and who makes the `tacit.training.plans.Plan` of it (``made_by``).
That plan says the rest: its batches, its event, and its step.
"""

from typing import Annotated

from tacit.by_name import ByName
from tacit.config.phases.checks import check_phases, check_streams
from tacit.config.phases.dp import ClippingName, DpPhase
from tacit.config.phases.phase import PhaseOptions, PhaseWords
from tacit.config.phases.plain import PlainPhase
from tacit.config.phases.selective import SelectivePhase

__all__ = [
    "PHASES",
    "ClippingName",
    "DpPhase",
    "Phase",
    "PhaseOptions",
    "PhaseWords",
    "PlainPhase",
    "SelectivePhase",
    "check_phases",
    "check_streams",
]

PHASES: dict[str, type[PhaseOptions]] = {
    "plain": PlainPhase,
    "dp": DpPhase,
    "selective": SelectivePhase,
}
"""By the word that ``plan`` has; it is a part of an error's place. tests/contracts/test_phases.py tests each of them."""

Phase = Annotated[PhaseOptions, ByName("plan", PHASES)]
"""A phase of the section: the options of its own plan."""

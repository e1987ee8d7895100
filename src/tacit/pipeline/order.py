"""The stages of a run in order, one row each. The command line has their names from here, without importing what they do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from tacit.attack_stages import ATTACK_STAGES
from tacit.runs.stages import RELEASE

__all__ = ["STAGES", "in_order", "stage_names"]

STAGES: dict[str, str] = {
    "screening": "tacit.pipeline.corpus:SCREENING",
    "vocabulary": "tacit.pipeline.vocabulary:STAGE",
    "pretraining": "tacit.pipeline.training:PRETRAINING",
    "scoring": "tacit.pipeline.training:SCORING",
    "training": "tacit.pipeline.training:TRAINING",
    "control": "tacit.pipeline.training:CONTROL",
    "evaluation": "tacit.pipeline.evaluation:STAGE",
    RELEASE: "tacit.pipeline.release:STAGE",
    "report": "tacit.pipeline.pages:STAGE",
}
"""``"module:name"`` of a `tacit.runs.stages.Stage`, by its name. What one leaves is what those after it read.

Each attack is a stage too (`tacit.attack_stages`); all of them stand before the release.
"""

_Row = TypeVar("_Row")


def in_order(stages: Mapping[str, _Row], attacks: Iterable[_Row]) -> list[_Row]:
    """All stages of a run.

    Args:
        stages: those of `STAGES`, by name.
        attacks: those of the attacks.
    """
    before = list(stages).index(RELEASE)
    rows = list(stages.values())
    return [*rows[:before], *attacks, *rows[before:]]


def stage_names() -> list[str]:
    """Names of all stages. An attack that somebody has added to `tacit.audit.attacks.ATTACKS` is a stage as well, and not here."""
    return in_order({name: name for name in STAGES}, ATTACK_STAGES)

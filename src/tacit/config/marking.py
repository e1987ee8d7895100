"""Which tokens of the private corpus are private: the section ``marking``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from tacit.config.base import Options
from tacit.config.privacy import check_data_points
from tacit.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["MarkingOptions", "check_marking"]


class MarkingOptions(Options):
    """Which tokens of the raw private text are private, for selective DP (Shi et al. 2021; docs/selective-dp.md).

    It is a baseline without a guarantee for the record, and needs ``model.kind: lstm``, ``relation: replace``, ``unit: record``,
    ``vocabulary.method: public`` (or ``given``, of a WordPiece that cuts words as BERT) and ``allow: [heuristic:selective-dp]``.

    Args:
        data_point: ``record``, or ``line``: every line of a record is a unit of its own, such as a turn of a dialogue.
        balanced: the policy file that marks private tokens; the package's own when not given.
        missed: as an experiment the policy misses this share of the secrets that it finds, by a keyed hash of each.
    """

    data_point: Literal["record", "line"] = "record"
    balanced: str | None = None
    missed: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def policy_path(self) -> Path | None:
        """Where the policy is; None: in the package."""
        return None if self.balanced is None else self.located(self.balanced)


def check_marking(config: RunConfig) -> None:
    """Selective DP: it is a baseline, and its account covers the phases on marked text and nothing else."""
    marked = [phase for phase in config.phases if phase.stream == "marked"]
    if config.marking is None:
        if marked:
            raise UsageError("phases: stream: marked needs the section `marking`, which says what marks private tokens")
        return
    if config.screening is not None:
        raise UsageError("marking and screening: one reads raw text and the other redacts it; leave one of them out")
    if not marked:
        raise UsageError(
            "marking: no phase has stream: marked; add one (plan: selective, or plan: dp), or leave it out"
        )
    for phase in config.phases:
        if phase.stream in ("private", "screened"):
            raise UsageError(f"phases: {phase.name}: with marking, private text is read by stream: marked alone")
    if not config.model.row.releases_state:
        raise UsageError(
            f"model.kind is {config.model.kind}; it must be lstm with marking: the state of an LSTM is all that goes from one "
            "token to the next, where attention sees every private token again"
        )
    if "heuristic:selective-dp" not in config.allow:
        raise RefusedError(
            "public-tokens-without-noise",
            f"phases: {marked[0].name} is selective DP, which trains on the public tokens of private text without noise: no "
            "epsilon holds for the record. Use plan: dp on stream: private, or add heuristic:selective-dp to allow",
        )
    check_data_points(
        config,
        "marking",
        RefusedError(
            "marking-needs-replace",
            "privacy.relation must be replace with marking: a record's private tokens are replaced by others, and no record "
            "is added or removed (docs/selective-dp.md)",
        ),
        "no private token may be counted",
    )
    for phase in config.dp_phases:
        if phase.noise_multiplier is None:
            raise UsageError(
                f"phases: {phase.name}: give noise_multiplier; on marked text it is not solved, as no budget holds there"
            )

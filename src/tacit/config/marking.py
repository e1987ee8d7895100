"""Which tokens of the private corpus are private: the section ``marking``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tacit.config.base import Options

__all__ = ["MarkingOptions"]


class MarkingOptions(Options):
    """Which tokens of the raw private text are private, for selective DP (Shi et al. 2021; docs/selective-dp.md).

    It is a baseline without a guarantee for the record, and needs ``model.kind: lstm``, ``relation: replace``, ``unit: record``,
    ``vocabulary.method: public`` and ``allow: [heuristic:selective-dp]``.

    Args:
        data_point: ``record``, or ``line``: every line of a record is a unit of its own, such as a turn of a dialogue.
        balanced: the policy file that marks private tokens; the package's own when not given.
        missed: as an experiment the policy misses this share of the secrets that it finds, by a keyed hash of each.
    """

    data_point: Literal["record", "line"] = "record"
    balanced: str | None = None
    missed: Annotated[float, Field(ge=0, lt=1)] = 0.0

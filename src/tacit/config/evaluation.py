"""Held-out evaluation: the section ``evaluation``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tacit.config.base import Count, Options

__all__ = ["EvaluationOptions"]


class EvaluationOptions(Options):
    """Held-out evaluation.

    Args:
        held_out: share of the private units (with ``screening`` of the documents, with ``marking`` of the records as they are read)
            kept from training; a unit's side depends on its own id alone. 0: no private evaluation.
        public_sequences: sequences of held-out public text.
        sequences_per_unit: sequences of a held-out unit that count.
    """

    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    public_sequences: Count = 256
    sequences_per_unit: Count = 4

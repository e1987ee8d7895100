"""Held-out evaluation: the section ``evaluation``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from tacit.config.base import Count, Options
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["EvaluationOptions", "check_evaluation"]


class EvaluationOptions(Options):
    """Held-out evaluation.

    Args:
        held_out: share of the private units (with ``screening`` of the documents, with ``marking`` of the records as they are read)
            kept from training; a unit's side depends on its own id alone. 0: no private evaluation.
        public_sequences: sequences of held-out public text.
        sequences_per_unit: sequences of a held-out unit that count.
        words_and_bytes: of a causal model, release perplexity per word and bits per byte of the private held-out units too. They cost
            no epsilon, but two more numbers lie under the same noise, so with three models all have about 1.2 times as much of it.
    """

    added_later: ClassVar = frozenset({"words_and_bytes"})

    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    public_sequences: Count = 256
    sequences_per_unit: Count = 4
    words_and_bytes: bool = False


def check_evaluation(config: RunConfig) -> None:
    """Words and bytes are asked for where a release can hold them."""
    if not config.evaluation.words_and_bytes:
        return
    if not config.model.is_causal:
        raise UsageError(
            "evaluation.words_and_bytes: a masked model predicts gaps, and has no perplexity of a text; leave it out"
        )
    if config.evaluation.held_out == 0 or config.screening is not None or config.marking is not None:
        raise UsageError(
            "evaluation.words_and_bytes: there is no private evaluation to release them in (held_out is 0, or the run has "
            "screening or marking, whose exact numbers the curator has anyway); leave it out"
        )

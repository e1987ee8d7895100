"""The attack on planted canaries in the very rows that they were planted in, where a masked model remembers them best.

`tacit.audit.exposure_attack` asks in public contexts, and is public. Rows of the training are private text, so this is the curator's
alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tacit.audit.attack import Answer, Attack, Given, Measure, UndecidedError
from tacit.audit.exposure_attack import exposure_rows
from tacit.config import RunConfig
from tacit.config.base import Count, Options
from tacit.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["PLANTED_CONTEXTS"]

_NAME = "planted-contexts"


class _Options(Options):
    """``audit.attacks.planted-contexts``.

    Args:
        contexts: training rows of each canary, at most.
    """

    contexts: Count = 8


def _prepare(given: Given) -> Measure:
    """Exposure of each pattern, over the canaries that stand somewhere."""
    from tacit.audit.exposure import measure_exposure

    assert given.config.audit is not None
    most = _Options.model_validate(given.config.audit.attacks[_NAME]).contexts
    contexts, masking = given.planted_contexts(most), given.masking()
    if not contexts:
        raise UndecidedError("no canary stands in a training row")
    canaries = given.canaries()
    there = [canaries[number] for number in sorted(contexts)]
    own = [contexts[number] for number in sorted(contexts)]

    def measure(model: PreTrainedModel) -> list[dict[str, Any]]:
        return [dataclasses.asdict(exposure) for exposure in measure_exposure(model, there, own, masking)]

    return measure


def _answer(config: RunConfig, found: Mapping[str, Any]) -> Answer:
    return Answer(tuple(exposure_rows(config, found)), (_INTRODUCTION,), _NOTE)


def _check(config: RunConfig) -> None:
    if config.model.is_causal:
        raise UsageError(
            f"audit.attacks.{_NAME} masks the secrets of a masked model's canaries; those of a causal one are whole texts, which "
            "`audit` already tries as they were planted: leave it out"
        )


_INTRODUCTION = (
    "The same canaries, each in training rows that it was planted in, with its secret masked: what somebody who holds the training "
    "text without the secrets would gain."
)
_NOTE = (
    "Of canaries that were planted at least once. The secret was drawn independently of the row and of its place in it, so chance is "
    "that of public contexts. The rows are private text, which no certificate covers here."
)

PLANTED_CONTEXTS = Attack(
    name=_NAME,
    title="Exposure of planted canaries where they were planted",
    public=False,
    prepare=_prepare,
    answer=_answer,
    subject="the planted secrets",
    counted="pattern",
    options=_Options,
    check=_check,
    remedy="in a new run, raise audit.probability",
)
"""Whether a model remembers secrets in the rows of its training."""

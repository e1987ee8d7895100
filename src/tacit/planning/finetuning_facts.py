"""What a fine-tuned model guarantees, for the records of the fine-tuning and for those of the pre-training, in words."""

from __future__ import annotations

import math
from typing import Any

from tacit.config.finetune import FinetuneConfig
from tacit.planning.finetuning_origin import certified_epsilon
from tacit.privacy.provenance import Ancestor
from tacit.privacy.rounded import upper
from tacit.privacy.strict_json import write_number

__all__ = ["finetuning_facts"]


def finetuning_facts(
    config: FinetuneConfig, pretraining: Ancestor | None, epsilon: float, delta: float
) -> dict[str, Any]:
    """The part of the certificate that says whom it is about, JSON-ready; ``statement`` is the paragraph for people."""
    return {
        "with_dp": config.dp is not None,
        "same_people": config.same_people,
        "pretraining": None
        if pretraining is None
        else {
            "unit": pretraining.unit,
            "relation": pretraining.relation,
            "epsilon": write_number(certified_epsilon(pretraining)),
            "delta": pretraining.delta,
            "ledger_head": pretraining.head,
        },
        "statement": _statement(config, pretraining, epsilon, delta),
        **({} if config.dp is None else {"assumed": [*_DOMAIN, *_units_agree(config, pretraining)]}),
    }


def _statement(config: FinetuneConfig, pretraining: Ancestor | None, epsilon: float, delta: float) -> str:
    if config.dp is None:
        return f"{_NO_GUARANTEE} {_beside(config, pretraining)}"
    unit, change = config.dp.unit, _CHANGES[config.dp.relation]
    together = pretraining is not None and config.same_people
    whose = "the fine-tuning and the pre-training together" if together else "the fine-tuning"
    return (
        f"Guaranteed for every {unit} of {whose}: when {_ONE[unit]} is {change}, the probability of anything that can be seen of the "
        f"model changes by at most a factor of e^{upper(epsilon, '.2f')}, give or take {upper(delta)} (differential privacy with "
        f"epsilon {upper(epsilon, '.2f')}). {_beside(config, pretraining)}"
    )


_DOMAIN = (
    "Every set of documents that could stand in this one's place can be read: at least one document, none in two files, tags "
    "in IOB2, and memory, disk and time suffice for it.",
    "Every tag is of a type that the option labels names.",
    "No document stands in the test documents too.",
)
"""On other documents a fine-tuning stops, and that it stops can be seen."""


def _units_agree(config: FinetuneConfig, pretraining: Ancestor | None) -> tuple[str, ...]:
    """That the two texts were cut alike; only where they are counted together."""
    if config.dp is None or pretraining is None or not config.same_people:
        return ()
    unit = config.dp.unit
    return (
        f"A {unit} of the fine-tuning is one whole {unit} of the pre-training, or none of its text was in that: it was "
        "neither spread over several there, nor a part of one.",
    )


_NO_GUARANTEE = (
    "No guarantee for the documents of the fine-tuning: they were trained on without noise, so epsilon is infinite for every "
    "one of them."
)
_ONE = {"user": "all text of one user", "document": "one document", "sentence": "one sentence"}
_CHANGES = {"add-or-remove": "added or removed", "replace": "exchanged for another"}
_DECLARED = "as the user declares that nobody is in both (same_people: false), which nothing here can check"


def _beside(config: FinetuneConfig, pretraining: Ancestor | None) -> str:
    """What holds of the pre-training beside what is said of the fine-tuning."""
    if pretraining is None:
        return _without_certificate(config)
    own = _own_certificate(pretraining)
    if config.same_people and config.dp is None:
        return f"The people of the pre-training's text may be the same, and nothing holds for those who are. For others {own}."
    if config.same_people:
        return f"That counts what the pre-training spent; of its release alone {own}."
    apart = "" if config.dp is None else ". The two do not add up"
    return f"For the pre-training's text {own}{apart}, {_DECLARED}."


def _own_certificate(pretraining: Ancestor) -> str:
    if math.isinf(certified_epsilon(pretraining)):
        return "its own certificate says that there is no guarantee"
    epsilon, delta = upper(certified_epsilon(pretraining), ".2f"), upper(pretraining.delta)
    return f"its own certificate holds: epsilon {epsilon} at delta {delta} for every {pretraining.unit}"


def _without_certificate(config: FinetuneConfig) -> str:
    if config.model.public:
        return "The model that it began with is public, as the user declares."
    what = "tokenizer" if config.model.from_scratch else "model"
    return f"Of the text behind the {what} that it began with nothing is known here."

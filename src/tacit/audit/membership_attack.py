"""The attack on the texts themselves: membership inference (`tacit.audit.membership`) on texts of the run's own corpus.

A function of private text beside the model, so it is the curator's alone; and so is whether there are texts enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.audit.attack import SHARE, Answer, Attack, AttackRow, Estimated, Given, Measure, UndecidedError
from tacit.audit.inference import FALSE_POSITIVE_RATE
from tacit.audit.shadow_models import shadow_losses
from tacit.config import MembershipOptions, RunConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["MEMBERSHIP"]


def _options(config: RunConfig) -> MembershipOptions:
    assert config.audit is not None
    assert config.audit.membership is not None
    return config.audit.membership


def _prepare(given: Given) -> Measure:
    from tacit.audit.membership import (  # it imports torch, which no report needs
        mean_nll,
        measure_against_shadows,
        measure_membership,
    )

    options, special = _options(given.config), given.special
    samples = given.membership_samples()  # how many these are is private, and no line of progress says it
    if len(samples.members) < options.least_pairs:
        raise UndecidedError("too few texts qualify")

    start, end, length = [special.start], [special.end], given.config.model.length

    def shadow(number: int, texts: Sequence[str]) -> Callable[[Sequence[str]], np.ndarray]:
        model = given.shadow_model(number, texts)
        return lambda others: mean_nll(model, given.tokenizer, others, start, end, length=length)

    shadows = shadow_losses(samples, options.shadow_models, given.streams, shadow) if options.shadow_models else None

    def measure(model: PreTrainedModel) -> dict[str, Any]:
        report = measure_membership(
            model, given.tokenizer, samples, start, given.streams, options.group_size, end, length
        )
        found = dataclasses.asdict(report)
        if shadows is not None:
            single, group = measure_against_shadows(
                model, given.tokenizer, samples, shadows, start, given.streams, options.group_size, end, length
            )
            found["shadow"] = {"single": dataclasses.asdict(single), "group": dataclasses.asdict(group)}
        return found

    return measure


def _answer(config: RunConfig, found: Mapping[str, Any]) -> Answer:
    rows = [
        row
        for model, report in found.items()
        for part, texts in (("single", 1), ("group", int(report["group_size"])))
        for name, attacks in (("", report), (_SHADOWS, report.get("shadow", {})))
        if part in attacks
        for row in _rows(model, texts, attacks[part], report[f"{part}_blind"], name)
    ]
    pairs, wanted = max(int(report["single"]["members"]) for report in found.values()), _options(config).pairs
    fewer = f" ({wanted:,} were asked for; no more qualify)" if pairs < wanted else ""
    introduction = (
        f"An attacker is shown {pairs:,} texts with a secret from the part that the model was trained on and as many from the part "
        f"that was held out{fewer}, and says of each which it is, by how likely the model finds it; then of whole groups. Whoever "
        "guesses is right half of the time."
    )
    blind = "For comparison the same is tried without any model, by their characters and length alone."
    shadows = (
        "Then how likely a text is to the model is compared with how likely it is to shadow models that were trained on other such "
        f"texts ({_options(config).shadow_models // 2} for each text)."
    )
    introductions = (introduction, shadows, blind) if _options(config).shadow_models else (introduction, blind)
    return Answer(tuple(rows), introductions, _NOTE)


_SHADOWS = ", against shadow models"


def _rows(
    model: str, texts: int, attack: Mapping[str, Any], blind: Mapping[str, Any], against: str
) -> Iterator[AttackRow]:
    """Accuracy, which is judged; AUC; and the share of members found among few false alarms, where the texts are enough for that."""
    of = ("single texts" if texts == 1 else f"groups of {texts}") + against
    members = f"{attack['members']} texts" if texts == 1 else f"{attack['members']} groups of {texts}"
    measures: list[tuple[str, Estimated, Estimated | None, float]] = [
        ("accuracy", Estimated(**attack["accuracy"]), Estimated(**blind["accuracy"]), 0.5),
        ("AUC", Estimated(**attack["auc"]), Estimated(**blind["auc"]), 0.5),
    ]
    if attack["tpr"] is not None:
        measures.append(("found at 1 %", Estimated(**attack["tpr"]), None, FALSE_POSITIVE_RATE))
    for name, measured, baseline, null in measures:
        is_accuracy = name == "accuracy"
        yield AttackRow(
            model=model,
            name=f"{name}, {of}",
            value=measured.value,
            unit=SHARE,
            null=null,
            interval=(measured.low, measured.high),
            ceiling=1.0,
            baseline=baseline,
            judged=is_accuracy,
            parameters={"members": members},
            words=_words(model, of, measured) if is_accuracy else "",
            false_alarms=FALSE_POSITIVE_RATE if name == "found at 1 %" else None,
        )


def _words(model: str, of: str, found: Estimated) -> str:
    value, low, high = (100 * number for number in (found.value, found.low, found.high))
    return (
        f"With the {model}, of {of}, the attacker is right {value:.1f} % of the time (95 % interval {low:.1f} to "
        f"{high:.1f})"
    )


_NOTE = (
    "Member: a text of the training part with a secret that occurs nowhere else; against them stand as many such texts of "
    "the held-out part. A keyed random choice decided which part a text is in, so chance is exactly 50 %. Accuracy: the "
    "threshold of one half of the texts, judged on the other half. AUC: how often a member looks more like one than another "
    "text does. Found at 1 %: the share of members that are recognised when 1 % of the others are taken for members; left "
    "out below 100 of them. Without a model: the two kinds of text told apart by their characters and length."
)

MEMBERSHIP = Attack(
    name="membership",
    title="Membership inference on the texts themselves",
    public=False,
    prepare=_prepare,
    answer=_answer,
    subject="its training texts",
    counted="comparison",
    asked=lambda config: config.audit is not None and config.audit.membership is not None,
    remedy="in a new run, lower audit.membership.group_size or raise evaluation.held_out",
)
"""Whether a model tells texts that it was trained on from others."""

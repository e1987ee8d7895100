"""The attack on planted canaries: `tacit.audit.exposure` of a masked model, `tacit.audit.candidates` of a causal one.

It reads public contexts and keyed secrets only, so of the released model it costs no privacy, and it is public. What asks a model is
imported where an attack is prepared: a report tells what was found, and needs no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.audit.attack import Answer, Attack, AttackRow, Given, Measure
from tacit.audit.exposed import Exposure
from tacit.config import RunConfig
from tacit.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tacit.audit.trie import Trie

__all__ = ["EXPOSURE", "exposure_rows"]


def _prepare(given: Given) -> Measure:
    return _prepare_secrets(given) if given.config.model.is_causal else _prepare_canaries(given)


def _prepare_canaries(given: Given) -> Measure:
    """Exposure of each pattern of a masked model's canaries, which are written to run/private/canaries.json."""
    from tacit.audit.exposure import inserted, measure_exposure

    assert given.config.audit is not None
    canaries, contexts, masking = given.canaries(), given.public_rows(), given.masking()
    given.keep("canaries.json", [dataclasses.asdict(canary) for canary in canaries])
    rows = slice(0, min(given.config.audit.contexts, contexts.sequences))
    own = inserted(canaries, contexts.ids_ST[rows], contexts.lengths_S[rows], given.streams)

    def measure(model: PreTrainedModel) -> list[dict[str, Any]]:
        return [dataclasses.asdict(exposure) for exposure in measure_exposure(model, canaries, own, masking)]

    return measure


def _prepare_secrets(given: Given) -> Measure:
    """Exposure of a causal model's canaries by their exact rank among all candidates: mean and highest over the canaries."""
    from tacit.audit.candidates import candidate_exposure
    from tacit.audit.trie import build_trie

    form, secrets = given.secrets()
    given.keep("canaries.json", [form.text(secret) for secret in secrets])
    trie = build_trie(given.tokenizer, form)

    def measure(model: PreTrainedModel) -> list[dict[str, Any]]:
        model.eval()
        measured = candidate_exposure(_candidate_scores(model, trie, given.special.start), secrets)
        exposure = Exposure(
            pattern=form.prefix + "d" * form.digits,
            canaries=measured.canaries,
            mean_rank=float(np.mean(measured.ranks)),
            bits=measured.mean_bits,
            null_bits=measured.null_mean_bits,
            p_value=measured.mean_p_value,
            ceiling_bits=measured.ceiling_bits,
            max_bits=measured.max_bits,
            null_max_bits=measured.null_max_bits,
            max_p_value=measured.max_p_value,
        )
        return [dataclasses.asdict(exposure)]

    return measure


def _candidate_scores(model: PreTrainedModel, trie: Trie, start: int) -> np.ndarray:
    """Scores of the candidates. A model that diverged scores all alike (exposure as by chance): the control must not stop a run."""
    from tacit.audit.scorers import scorer_of
    from tacit.audit.trie import score_candidates

    try:
        return score_candidates(scorer_of(model), trie, [start])
    except DataError:
        return np.full(len(trie.node_N), -np.inf)


def _answer(config: RunConfig, found: Mapping[str, Any]) -> Answer:
    rows = exposure_rows(config, found)
    several = any(row.test != row.name for row in rows)
    return Answer(tuple(rows), note=_NOTE + (_SEVERAL if several else ""))


def exposure_rows(config: RunConfig, found: Mapping[str, Any]) -> list[AttackRow]:
    """Rows of what was measured, the values of an `Exposure` for each pattern, by model."""
    return [
        row
        for model, exposures in found.items()
        for values in exposures
        for row in _rows(model, Exposure(**values), _insertion_probability(config))
    ]


def _rows(model: str, found: Exposure, inserted: float) -> Iterator[AttackRow]:
    """The exposure of one pattern; where there is a highest one too, mean and highest, which are one test."""
    parameters = {"canaries": found.canaries, "inserted with": inserted}
    several = found.max_bits is not None
    yield AttackRow(
        model=model,
        name=f"{found.pattern}, mean of {found.canaries}" if several else found.pattern,
        test=found.pattern,
        value=found.bits,
        unit="bits",
        null=found.null_bits,
        p_value=found.p_value,
        ceiling=found.ceiling_bits,
        parameters=parameters | {"mean rank": found.mean_rank},
        words=_words(found, "mean", found.bits, found.null_bits) if several else "",
    )
    if found.max_bits is not None and found.null_max_bits is not None:
        yield AttackRow(
            model=model,
            name=f"{found.pattern}, highest of {found.canaries}",
            test=found.pattern,
            value=found.max_bits,
            unit="bits",
            null=found.null_max_bits,
            p_value=found.max_p_value,
            ceiling=found.ceiling_bits,
            parameters=parameters,
            words=_words(found, "highest", found.max_bits, found.null_max_bits),
        )


def _words(found: Exposure, which: str, bits: float, chance: float) -> str:
    return (
        f"Of {found.canaries} secrets “{found.pattern}” the {which} exposure is {bits:.3g} bits, where chance gives {chance:.3g} and "
        f"perfect recall would be {found.ceiling_bits:.3g}"
    )


def _insertion_probability(config: RunConfig) -> float:
    """The chance of one canary in one unit: of a masked model for each sequence; a causal one's are so many units of their own."""
    assert config.audit is not None
    if config.model.is_causal:
        return min(1.0, config.audit.copies / config.privacy.units)
    return config.audit.probability


_NOTE = (
    "Exposure: how many bits of a planted secret an attacker saves by asking the model. Chance (the null): the exposure of a model "
    "that never saw the secret. Ceiling: perfect recall. p-value: how often chance alone gives at least this exposure; small means "
    "remembered. Inserted with: the probability with which a unit received a canary."
)
_SEVERAL = " Mean and highest are two tests of one model: the sentences above count twice the smaller p-value."

EXPOSURE = Attack(
    name="exposure",
    title="Exposure of planted canaries",
    public=True,
    prepare=_prepare,
    answer=_answer,
    subject="the planted secrets",
    counted="pattern",
    asked=lambda config: config.audit is not None,
    stage="audit",
    terms=(
        ("Canary", "A made-up secret that is planted in the training text to see whether the model gives it away."),
        (
            "Exposure",
            "Bits that the model saves an attacker in guessing a canary: log₂ of the number of candidates less log₂ of the "
            "secret’s mean rank.",
        ),
    ),
)
"""How well planted secrets can be read out of a model."""

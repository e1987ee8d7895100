"""From the models' results to the tables behind table 2 and the figures: a CSV for each, and rows for the page.

Intervals here are at 95 % each; those that the claims are judged by are at the level of the whole page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.audit.inference import Estimate
from tacit.entities.baselines import BASELINES
from tacit.reproduce.hoory.cells import EPSILONS, FAMILIES, MAIN, UNITS, DpTraining, Model, row_of
from tacit.reproduce.hoory.claims import measures_of
from tacit.reproduce.hoory.evidence import Evidence, Measure, dictionary
from tacit.reproduce.hoory.models import REFERENCE
from tacit.reproduce.hoory.scale import Scale
from tacit.reproduce.judging import over_documents
from tacit.reproduce.writing import Row, number

__all__ = [
    "Results",
    "figure1_rows",
    "lexicon_rows",
    "loss_rows",
    "table2_rows",
    "trick_rows",
    "vocabulary_rows",
]

Results = Mapping[str, Mapping[str, Any]]
"""Of the jobs that are done, by name."""

_LEVEL = 0.05


def _named(name: str, estimate: Estimate | None) -> Row:
    values = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _rows(models: Sequence[Model], results: Results, part: str) -> list[Model]:
    """The first training of each row that is there."""
    found: dict[str, Model] = {}
    for model in models:
        if model.part == part and model.name in results:
            found.setdefault(row_of(model.name), model)
    return list(found.values())


def _family(row: str) -> str:
    """
    >>> _family("dialogues-dp-dp-8")
    'dialogues-dp'
    """
    return next(name for name in FAMILIES if row.startswith(f"{name}-"))


def _price(result: Mapping[str, Any]) -> Row:
    account = result["account"]
    names = {"epsilon_vocabulary": "vocabulary", "epsilon_training": "training", "epsilon": "joint"}
    return {name: number(account[key]) for name, key in names.items()}


def loss_rows(models: Sequence[Model], results: Results) -> list[Row]:
    """Masked loss of each row on left-out text, its gain over BERT of the same pieces, and the share of BERT-M's gain."""
    of = Evidence(results, _LEVEL)
    rows: list[Row] = []
    for model in _rows(models, results, "table2"):
        row = row_of(model.name)
        family = _family(row)
        for part in ("seen", "unseen") if model.private == "dialogues" else ("seen",):
            measure = Measure(part=part)
            mean = of.mean(measure, row)
            loss = None if mean is None else Estimate(-mean.value, -mean.high, -mean.low)
            rows.append(
                {
                    "model": row,
                    "words": model.words,
                    "text": part,
                    "trainings": len(of.of_row(row)),
                    **_price(results[model.name]),
                    **_named("loss", loss),
                    **_compared(of, measure, row, family),
                }
            )
    return rows


def _compared(of: Evidence, measure: Measure, row: str, family: str) -> Row:
    """Beside the models of its family that have read no private text, and all of it."""
    bert, best = f"{family}-bert", f"{family}-bert-m"
    gain = of.gain(measure, row, bert) if row != bert and of.of_row(bert) else None
    share = (
        of.share(measure, row, bert, best) if row not in (bert, best) and of.of_row(bert) and of.of_row(best) else None
    )
    return {**_named("gain", gain), **_named("share", share)}


def table2_rows(models: Sequence[Model], results: Results, scale: Scale) -> list[Row]:
    """F1 of each row on each task, its gain over BERT of the main family, and the share of BERT-M's gain there."""
    of = Evidence(results, _LEVEL)
    rows: list[Row] = []
    for task, size in scale.tasks.items():
        for measure in measures_of(task, scale):
            known = {"task": task, "part": measure.part}
            for name in BASELINES if f"baselines-{task}" in results else ():
                (own_SD,) = of.values(measure, dictionary(task, name))
                nothing = {**dict.fromkeys(("epsilon_vocabulary", "epsilon_training", "epsilon")), "trainings": None}
                f1 = _named("f1", Estimate(float(own_SD.mean()), float("-inf"), float("inf")))
                rest = {**_named("gain", None), **_named("share", None)}
                rows.append({**known, "model": name, "words": "trivial tagger", **nothing, **f1, **rest})
            for model in _rows(models, results, "table2"):
                if task in model.tasks:
                    row = row_of(model.name)
                    rows.append(
                        {
                            **known,
                            "model": row,
                            "words": model.words,
                            **_price(results[model.name]),
                            "trainings": len(of.of_row(row)),
                            **_named("f1", of.mean(measure, row)),
                            **_compared(of, measure, row, MAIN[size.private]),
                        }
                    )
    return rows


def figure1_rows(models: Sequence[Model], results: Results) -> list[Row]:
    """Epsilon and masked loss against noise, steps and batch; the reference is in every part."""
    of = Evidence(results, _LEVEL)
    reference = f"{MAIN['notes']}-dp-{EPSILONS[0]:g}"
    shown = [model for model in models if row_of(model.name) == reference and model.name in results][:1]
    rows: list[Row] = []
    for model in [*shown, *_rows(models, results, "figure1")]:
        training, row, result = model.training, row_of(model.name), results[model.name]
        assert isinstance(training, DpTraining)
        (noise,) = result["account"]["noise_multipliers"]
        names = ("noise", "steps", "batch", "root", "passes") if row == reference else (row.split("-")[1],)
        mean = of.mean(Measure(), row)
        assert mean is not None
        loss = Estimate(-mean.value, -mean.high, -mean.low)
        for varied in names:
            values = {"noise": noise, "steps": training.steps}
            rows.append(
                {
                    "varied": varied,
                    "value": values.get(varied, training.expected_batch),
                    "row": row,
                    "noise": noise,
                    "epsilon": number(result["account"]["joint"]),
                    **_named("loss", loss),
                }
            )
    order = ("noise", "steps", "batch", "root", "passes")
    return sorted(rows, key=lambda row: (order.index(row["varied"]), row["value"]))


def trick_rows(models: Sequence[Model], results: Results) -> list[Row]:
    """Each change of a DP training alone, on public text in the private text's place: masked loss, and what it gains."""
    rows: list[Row] = []
    for model in models:
        reference = REFERENCE[model.private]
        if model.part == "tricks" and model.name in results and reference in results:
            result = results[model.name]
            of_each_D = _losses(result) - _losses(results[reference])
            change = None if model.name == reference else over_documents(of_each_D, _LEVEL)
            rows.append(
                {
                    "model": model.name,
                    "units": UNITS[model.private],
                    "words": model.words,
                    "loss": float(_losses(result).mean()),
                    **_named("change", change),
                    "training_seconds": result["training_seconds"],
                }
            )
    return rows


def _losses(result: Mapping[str, Any]) -> np.ndarray:
    return np.array(result["loss"]["seen"]["of_texts"])


def vocabulary_rows(results: Results) -> list[Row]:
    """A row a base of the first replicate: its pieces, and how left-out text is cut into them."""
    bases = [result for result in results.values() if "base" in result and result["base"]["replicate"] == 1]
    names = ("pieces", "own_words", *(f"pieces_a_word_of_{private}" for private in UNITS))
    return [{**base["base"], **{name: base.get(name) for name in names}} for base in bases]


def lexicon_rows(results: Results) -> list[Row]:
    """Vocabularies from private words alone, as large as their budget makes them."""
    found = [result for result in results.values() if "lexicon" in result]
    names = ("epsilon", "words", "pieces", "pieces_a_word")
    return [
        {
            "private": one["lexicon"]["private"],
            "budget": one["lexicon"]["epsilon"],
            **{name: one[name] for name in names},
        }
        for one in found
    ]

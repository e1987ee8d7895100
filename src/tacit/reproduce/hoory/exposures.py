"""Figure 2 as rows: how far each pattern of canaries is exposed, by training and over the trainings of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.reproduce.hoory.cells import DpTraining, Model, row_of
from tacit.reproduce.hoory.scale import Scale
from tacit.reproduce.judging import fishers
from tacit.reproduce.writing import Row, number

__all__ = ["exposure_rows", "mean_exposures"]


def exposure_rows(models: Sequence[Model], results: Mapping[str, Mapping[str, Any]], scale: Scale) -> list[Row]:
    """Figure 2: exposure of each pattern against how often a canary occurs; in public contexts, and in the training's own.

    A row a training; `mean_exposures` has one of all trainings of a row.
    """
    each = scale.canaries_each * len(scale.patterns)
    rows: list[Row] = []
    for model in models:
        if model.name not in results or model.canaries is None:
            continue
        result, training = results[model.name], model.training
        dp = isinstance(training, DpTraining)
        words = (
            f"{training.steps} steps of {training.expected_batch}" if isinstance(training, DpTraining) else "without DP"
        )
        for contexts, found in (("public contexts", result["exposure"]), ("training contexts", result["planted"])):
            for one in found:
                rows.append(
                    {
                        "model": model.name,
                        "contexts": contexts,
                        "dp": dp,
                        "words": words,
                        "epsilon": number(result["account"]["joint"]),
                        "probability": model.canaries,
                        "occurrences": model.canaries * result["sequences"] / each,
                        "pattern": one["pattern"],
                        **{name: one[name] for name in ("canaries", "bits", "null_bits", "ceiling_bits", "p_value")},
                    }
                )
    return rows


def mean_exposures(rows: Sequence[Row]) -> list[Row]:
    """The rows of `exposure_rows` with the trainings of one row as one: mean bits, and p-values combined by Fisher's rule, since
    their canaries and keys are independent.
    """
    alike: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        alike.setdefault((row_of(row["model"]), row["contexts"], row["pattern"]), []).append(row)
    return [
        {
            **own[0],
            "model": model,
            "trainings": len(own),
            "occurrences": float(np.mean([row["occurrences"] for row in own])),
            "bits": float(np.mean([row["bits"] for row in own])),
            "p_value": fishers([row["p_value"] for row in own]),
        }
        for (model, _, _), own in alike.items()
    ]

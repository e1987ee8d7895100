"""From the results to the tables: table 1 of the paper, exposure against insertions, and the public models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.reproduce.writing import Row, number

__all__ = ["PAPER", "model_rows", "public_rows"]

PAPER: tuple[Row, ...] = (
    {"training": "No-DP", "noise": None, "loss": 7.08, "perplexity": 256.66, "epsilon": None},
    {"training": "DP-SGD", "noise": 1.0, "loss": 13.08, "perplexity": 7582.65, "epsilon": 4.22},
    {"training": "ADP", "noise": 1.0, "loss": 12.65, "perplexity": 4426.05, "epsilon": 6.35},
    {"training": "DP-SGD", "noise": 5.0, "loss": 17.65, "perplexity": 20815.23, "epsilon": 0.10},
    {"training": "ADP", "noise": 5.0, "loss": 14.85, "perplexity": 8635.66, "epsilon": 2.47},
)
"""Table 1 as published. Its losses and perplexities do not agree: exp(7.08) is 1,188."""


def model_rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row a model: utility, epsilon of the worst case and of the private-like band, and exposure of the canary."""
    return [
        {
            **result["cell"],
            **result["test"],
            "epsilon": number(result["epsilon"]),
            "epsilon_private_like": _private_like(result),
            **{f"exposure_{name}": value for name, value in result["exposure"].items()},
            "seconds": round(result["seconds"], 1),
        }
        for result in results
    ]


def _private_like(result: Mapping[str, Any]) -> float | None:
    """Of the highest band; where all records are alike, of all."""
    bands = result["epsilon_of_rho"]
    return number(bands[-1]["epsilon"] if bands else result["epsilon"])


def public_rows(public: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """A row a public model, and the two baselines that know no order."""
    rows: list[Row] = []
    for name in ("public", "frequent"):
        found = public[name]
        rows.append(
            {
                "model": name,
                **found["test"]["model"],
                "canary_ln_ppl": found["canary_log_perplexity"],
                "canary_rho": found["canary_rho"],
                "lower": found["lower"],
                "upper": found["upper"],
                **{f"exposure_{key}": value for key, value in found["exposure"].items()},
            }
        )
    first = public["public"]
    empty = dict.fromkeys(list(rows[0])[5:])
    rows += [{"model": name, **first["test"][name], **empty} for name in ("unigram", "uniform")]
    return rows


def agrees(row: Row) -> bool:
    """Whether a row's perplexity is the exponential of its loss, as it must be."""
    return math.isclose(row["perplexity"], math.exp(row["loss"]), rel_tol=1e-6)

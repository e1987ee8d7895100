"""From the results to the tables: table 1 of the paper, exposure against insertions, and the public models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.reproduce.writing import Row, number

__all__ = ["PAPER", "agrees", "model_rows", "public_rows", "rate_rows", "rho_rows"]

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
            **_utility(result["test"]["wikipedia"]),
            "perplexity_chats": result["test"]["chats"]["perplexity"],
            "epsilon": number(result["epsilon"]),
            "epsilon_private_like": _private_like(result),
            **{f"exposure_{name}": value for name, value in result["exposure"].items()},
            "seconds": round(result["seconds"], 1),
        }
        for result in results
    ]


_MEASURES = ("loss", "perplexity", "perplexity_per_word", "bits_per_byte")


def _utility(test: Mapping[str, Any]) -> Row:
    return {name: test[name] for name in _MEASURES}


def _private_like(result: Mapping[str, Any]) -> float | None:
    """The epsilon of the highest band; where all records are alike, of all."""
    bands = result["epsilon_of_rho"]
    return number(bands[-1]["epsilon"] if bands else result["epsilon"])


def public_rows(public: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """A row a public model, and the two baselines that know no order."""
    rows: list[Row] = []
    for name, found in public.items():
        rows.append(
            {
                "model": name,
                **_tests(found["test"], "model"),
                "canary_ln_ppl": found["canary_log_perplexity"][0],
                "canary_rho": found["canary_rho"][0],
                "canary_rho_least": min(found["canary_rho"]),
                "canary_rho_most": max(found["canary_rho"]),
                "lower": found["lower"],
                "upper": found["upper"],
                **{f"exposure_{key}": value for key, value in found["exposure"].items()},
                "seconds": round(found["seconds"], 1),
            }
        )
    baselines = [{"model": name, **_tests(public["public"]["test"], name)} for name in ("unigram", "uniform")]
    return [*rows, *(dict.fromkeys(rows[0]) | row for row in baselines)]


def _tests(test: Mapping[str, Mapping[str, Any]], model: str) -> Row:
    return {**_utility(test["wikipedia"][model]), "perplexity_chats": test["chats"][model]["perplexity"]}


def rho_rows(scores: Mapping[str, Any] | None) -> list[Row]:
    """A row a kind of private line: how many there are, and how many of them rho finds private-like."""
    return [
        {
            "kind": kind,
            "documents": len(found["lines"]),
            "lines": sum(found["lines"]),
            "private_like": sum(found["private_like"]),
            "share": sum(found["private_like"]) / sum(found["lines"]),
            "mean_rho": found["mean_rho"],
        }
        for kind, found in (scores["kinds"] if scores else {}).items()
    ]


def rate_rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row a learning rate and s: what DP-SGD makes of the loss of public text, in nats a token."""
    return [
        {
            **result["trial"],
            **{f"change_{text}": loss - result["before"][text] for text, loss in result["loss"].items()},
            "change": sum(result["loss"].values()) - sum(result["before"].values()),
        }
        for result in results
    ]


def agrees(row: Row) -> bool:
    """Whether a row's perplexity is the exponential of its loss, as it must be, up to a loss printed with two decimals."""
    return math.isclose(row["perplexity"], math.exp(row["loss"]), rel_tol=0.006)

"""The page of the results: what was run, the claims as our numbers judge them, and the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit.reproduce.adp.scale import ARMS, DELTA, Scale
from tacit.reproduce.adp.tables import PAPER
from tacit.reproduce.writing import Claim, Row, claims_table, markdown_table

__all__ = ["results_page"]


def results_page(
    scale: Scale, models: Sequence[Row], public: Sequence[Row], claims: Sequence[Claim], cells: int
) -> str:
    """Markdown.

    Args:
        models: a row a model.
        public: the public models, unigram and uniform.
        cells: how many models there are when all are done.
    """
    seconds = sum(row["seconds"] for row in models)
    parts = [
        f"Scale `{scale.name}`: {len(models)} of {cells} models, {seconds / 60:.0f} process-minutes beside the public models and the "
        f"scores; {scale.steps} DP steps of {scale.expected_batch} lines on average of about {scale.units:,}, delta {DELTA:g}, "
        f"{scale.seeds} seed(s).",
        "### The claims",
        claims_table(claims, "at noise"),
        f"### Table 1: utility and epsilon, {scale.insertions[0]} copies of the canary",
        markdown_table(
            ["training", "s", "loss", "perplexity", "a word", "ε worst case", "ε private-like", "beside the unigram"],
            [*_baselines(public), *_utility(models, public, scale)],
        ),
        "The paper's own table, for comparison (WikiText-103, 12 layers, width 1,024; its losses and perplexities do not agree):",
        markdown_table(
            ["training", "s", "loss", "perplexity", "ε as published"],
            [
                [
                    row["training"],
                    _some(row["noise"]),
                    f"{row['loss']:.2f}",
                    f"{row['perplexity']:.2f}",
                    _some(row["epsilon"]),
                ]
                for row in PAPER
            ],
        ),
        f'### Exposure of "{scale.canary_text}" in bits (p-value), s = {scale.noise[0]:g}',
        markdown_table(
            ["training", "scorer", *(f"{copies:,} copies" for copies in scale.insertions)], _exposure(models, scale)
        ),
        "### What scores",
        markdown_table(
            [
                "public model",
                "perplexity of the test text",
                "a",
                "b",
                "ln PPL of the canary",
                "its rho",
                "its exposure",
            ],
            [
                [
                    _SCORERS[row["model"]].format(copies=scale.frequent),
                    f"{row['perplexity']:.2f}",
                    *(f"{row[name]:.2f}" for name in ("lower", "upper", "canary_ln_ppl", "canary_rho")),
                    f"{row['exposure_bits']:.1f} bits",
                ]
                for row in public
                if row["model"] in _SCORERS
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


_SCORERS = {"public": "without the canary", "frequent": "with {copies:,} copies of it in its own training text"}


def _some(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.2f}"


def _baselines(public: Sequence[Row]) -> list[list[str]]:
    names = {"public": "the public model, where all begin", "unigram": "unigram of the test text", "uniform": "uniform"}
    return [
        [
            names[row["model"]],
            "",
            f"{row['loss']:.3f}",
            f"{row['perplexity']:.2f}",
            f"{row['perplexity_per_word']:.0f}",
            "0",
            "0",
            "",
        ]
        for row in public
        if row["model"] in names
    ]


def _utility(models: Sequence[Row], public: Sequence[Row], scale: Scale) -> list[list[str]]:
    [unigram] = [row["perplexity"] for row in public if row["model"] == "unigram"]
    rows = [row for row in models if row["copies"] == scale.insertions[0] and not row["frequent"]]
    return [
        [
            ARMS[row["arm"]],
            "" if row["arm"] == "plain" else f"{row['noise']:g}",
            f"{row['loss']:.3f}",
            f"{row['perplexity']:.2f}",
            f"{row['perplexity_per_word']:.0f}",
            _epsilon(row["epsilon"]),
            _epsilon(row["epsilon_private_like"]),
            "better" if row["perplexity"] < unigram else "**worse than counting words**",
        ]
        for row in rows
    ]


def _exposure(models: Sequence[Row], scale: Scale) -> list[list[str]]:
    rows = [row for row in models if row["noise"] in (0.0, scale.noise[0]) and row["arm"] != "dp-sgd-protected"]
    found = []
    for arm, frequent in dict.fromkeys((row["arm"], row["frequent"]) for row in rows):
        own = [row for row in rows if (row["arm"], row["frequent"]) == (arm, frequent)]
        adaptive = arm not in ("plain", "dp-sgd")
        scorer = "" if not adaptive else "has the canary" if frequent else "clean"
        found.append([ARMS[arm], scorer, *(_bits(own, copies) for copies in scale.insertions)])
    return found


def _bits(rows: Sequence[Row], copies: int) -> str:
    return "; ".join(
        f"{row['exposure_bits']:.1f} ({row['exposure_p_value']:.2g})" for row in rows if row["copies"] == copies
    )

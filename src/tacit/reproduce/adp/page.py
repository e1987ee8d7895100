"""The tables of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tacit.reproduce.adp.scale import ARMS, DELTA, Scale
from tacit.reproduce.adp.tables import PAPER
from tacit.reproduce.driver import Page
from tacit.reproduce.writing import Row, markdown_table

__all__ = ["results_page"]


def results_page(scale: Scale, tables: Mapping[str, Sequence[Row]]) -> Page:
    """The page from ``models`` and ``public``, and the paper's own numbers."""
    models, public = tables["models"], tables["public"]
    minutes = sum(row["seconds"] for row in models) / 60
    summary = (
        f", {minutes:.0f} process-minutes beside the public models and the scores; {scale.steps} DP steps of "
        f"{scale.expected_batch} lines on average of about {scale.units:,}, delta {DELTA:g}, {scale.seeds} seed(s)."
    )
    return Page(
        summary,
        {
            f"Table 1: utility and epsilon, {scale.insertions[0]} copies of the canary": markdown_table(
                ["training", "s", "loss", "perplexity", "a word", "ε worst case", "ε private-like", "unigram"],
                [*_baselines(public), *_utility(models, public, scale)],
            ),
            "The paper's table 1": markdown_table(
                ["training", "s", "loss", "perplexity", "ε as published"], [_published(row) for row in PAPER]
            ),
            f'Exposure of "{scale.canary_text}" in bits (p-value), s = {scale.noise[0]:g}': markdown_table(
                ["training", "scorer", *(f"{copies:,} copies" for copies in scale.insertions)],
                _exposure(models, scale),
            ),
            "What scores": markdown_table(
                ["public model", "perplexity", "a", "b", "ln PPL of the canary", "its rho", "its exposure"],
                [_scorer(row, scale) for row in public if row["model"] in _SCORERS],
            ),
        },
    )


def _published(row: Row) -> list[str]:
    return [
        row["training"],
        _some(row["noise"]),
        f"{row['loss']:.2f}",
        f"{row['perplexity']:.2f}",
        _some(row["epsilon"]),
    ]


def _scorer(row: Row, scale: Scale) -> list[str]:
    return [
        _SCORERS[row["model"]].format(copies=scale.frequent),
        f"{row['perplexity']:.2f}",
        *(f"{row[name]:.2f}" for name in ("lower", "upper", "canary_ln_ppl", "canary_rho")),
        f"{row['exposure_bits']:.1f} bits",
    ]


_SCORERS = {"public": "without the canary", "frequent": "with {copies:,} copies of it"}


def _some(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.2f}"


def _baselines(public: Sequence[Row]) -> list[list[str]]:
    names = {"public": "public model", "unigram": "unigram", "uniform": "uniform"}
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
            "better" if row["perplexity"] < unigram else "**worse**",
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

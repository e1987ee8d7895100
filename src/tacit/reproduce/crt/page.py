"""The page of the results: what was run, the paper's claims as our numbers judge them, and the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tacit.reproduce.crt.runs import DELTA
from tacit.reproduce.crt.scale import ARMS, Scale
from tacit.reproduce.writing import Claim, Row, claims_table, markdown_table

__all__ = ["results_page"]


def results_page(
    scale: Scale,
    utility: Sequence[Row],
    attacks: Sequence[Row],
    baselines: Sequence[Row],
    claims: Sequence[Claim],
    cells: int,
) -> str:
    """Markdown.

    Args:
        baselines: perplexity of the unigram and the uniform model on each corpus's test lines.
        cells: how many models there are when all are done.
    """
    done, seconds = len(attacks), sum(row["seconds"] for row in attacks)
    parts = [
        f"Scale `{scale.name}`: {done} of {cells} models, {seconds / 3600:.1f} process-hours in all; noise multiplier "
        f"{scale.noise_multiplier:g} in every DP phase, delta {DELTA:g}, {scale.rounds} rounds, {scale.seeds} seed(s).",
        "### The claims",
        claims_table(claims, "corpus, model"),
        "### Figure 2: utility and epsilon after the last round",
        markdown_table(
            [
                "corpus",
                "model",
                "training",
                "γ",
                "redacted",
                "raw",
                "without secrets",
                "bits a byte (without secrets)",
                "ε paper",
                "ε ours",
            ],
            _utility(utility, baselines),
        ),
        "### Figure 3: exposure of the canaries, highest of ten",
        markdown_table(["corpus", "model", "training", *_gamma_heads(attacks)], _by_gamma(attacks, _exposure)),
        "### Figures 4 and 5: membership accuracy (95 % interval), and of groups",
        markdown_table(["corpus", "model", "training", *_gamma_heads(attacks)], _by_gamma(attacks, _single)),
        markdown_table(["corpus", "model", "training", *_gamma_heads(attacks)], _by_gamma(attacks, _group)),
        "### Copies of the canaries, and the ablation",
        markdown_table(
            ["corpus", "model", "training", "γ", "copies", "highest exposure (p)", "mean exposure (p)"],
            _ablation(attacks),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _utility(rows: Sequence[Row], baselines: Sequence[Row]) -> list[list[str]]:
    last = max((row["round"] for row in rows), default=0)
    chosen = [row for row in rows if row["round"] == last and row["copies"] == 20]
    told = [
        [
            row["corpus"],
            row["model"],
            ARMS[row["arm"]],
            _gamma(row),
            *(f"{row[f'perplexity_{text}']:.2f}" for text in ("redacted", "raw", "without_secrets")),
            f"{row['bits_per_byte_without_secrets']:.3f}",
            _epsilon(row["epsilon_paper"]),
            _epsilon(row["epsilon_ours"]),
        ]
        for row in chosen
        if row["gamma"] in (0.0, 0.1, 0.5)
    ]
    for row in baselines:
        texts = [f"{row[text]:.1f}" for text in ("redacted", "raw", "without_secrets")]
        told.append(
            [row["corpus"], "", row["model"], "", *texts, f"{row['bits_per_byte_without_secrets']:.3f}", "", ""]
        )
    return told


def _gamma(row: Row) -> str:
    return "" if row["arm"] in ("raw", "dp-sgd") else f"{row['gamma']:g}"


def _epsilon(value: float | None) -> str:
    return "see below" if value is None else "∞" if math.isinf(value) else f"{value:.2f}"


def _gammas(rows: Sequence[Row]) -> list[float]:
    return sorted({row["gamma"] for row in rows})


def _gamma_heads(rows: Sequence[Row]) -> list[str]:
    return [f"γ = {gamma:g}" for gamma in _gammas(rows)]


def _by_gamma(rows: Sequence[Row], cell: Any) -> list[list[str]]:
    rows = [row for row in rows if row["copies"] == 20 and row["arm"] in ("raw", "redacted", "dp-sgd", "s-dp", "crt")]
    found = []
    for corpus, model, arm in dict.fromkeys((row["corpus"], row["model"], row["arm"]) for row in rows):
        own = [row for row in rows if (row["corpus"], row["model"], row["arm"]) == (corpus, model, arm)]
        texts = ["; ".join(cell(row) for row in own if row["gamma"] == gamma) for gamma in _gammas(rows)]
        found.append([corpus, model, ARMS[arm], *texts])
    return found


def _exposure(row: Row) -> str:
    return f"{row['exposure_max_bits']:.1f} (p {row['exposure_max_p_value']:.2g})"


def _single(row: Row) -> str:
    return f"{row['single_accuracy_value']:.3f} ({row['single_accuracy_low']:.2f}, {row['single_accuracy_high']:.2f})"


def _group(row: Row) -> str:
    return f"{row['group_accuracy_value']:.2f} ({row['group_accuracy_low']:.2f}, {row['group_accuracy_high']:.2f})"


def _ablation(rows: Sequence[Row]) -> list[list[str]]:
    chosen = [
        row
        for row in rows
        if (row["corpus"], row["model"]) == ("customersim", "lstm")
        and (row["gamma"] == 0.5 or row["arm"] in ("raw", "dp-sgd"))
    ]
    return [
        [
            row["corpus"],
            row["model"],
            ARMS[row["arm"]],
            _gamma(row),
            str(row["copies"]),
            f"{row['exposure_max_bits']:.1f} (p {row['exposure_max_p_value']:.2g})",
            f"{row['exposure_mean_bits']:.2f} (p {row['exposure_mean_p_value']:.2g})",
        ]
        for row in sorted(chosen, key=lambda row: (row["arm"], row["copies"]))
    ]

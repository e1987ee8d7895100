"""The tables of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, geometric_mean

from tacit.audit.candidates import mean_exposure_p_value
from tacit.reproduce.adp.corpora import TEXTS
from tacit.reproduce.adp.scale import ARMS, DELTA, Scale
from tacit.reproduce.adp.tables import PAPER
from tacit.reproduce.driver import Page
from tacit.reproduce.writing import Row, markdown_table

__all__ = ["results_page"]


def results_page(scale: Scale, tables: Mapping[str, Sequence[Row]]) -> Page:
    """The page from the tables, and the paper's own numbers."""
    models, public = tables["models"], tables["public"]
    minutes = sum(row["seconds"] for row in [*models, *public] if row["seconds"] is not None) / 60
    summary = (
        f", {minutes:.0f} process-minutes beside the scores; {scale.steps} DP steps of {scale.expected_batch} lines on "
        f"average of about {scale.units:,}, delta {DELTA:g}, {scale.seeds} replicates; {scale.device}."
    )
    return Page(
        summary,
        {
            f"Table 1: utility and epsilon, {scale.insertions[0]} copies of the canary": markdown_table(
                ["training", "s", "loss", "perplexity", "a word", "customers' lines", "ε worst case", "ε private-like"],
                [*_baselines(public), *_utility(models, scale)],
            ),
            "The paper's table 1": markdown_table(
                ["training", "s", "loss", "perplexity", "ε as published"], [_published(row) for row in PAPER]
            ),
            "Which epsilon sigma 5 has where sigma 1 has 4.22": markdown_table(
                ["sampling probability", "steps", "ε at sigma 1", "ε at sigma 5"],
                [_epsilons(row) for row in tables["table1-epsilon"]],
            ),
            f"Exposure of the canary in bits (p-value), s = {scale.noise[0]:g}": markdown_table(
                ["training", "scorer", *(f"{copies:,} copies" for copies in scale.insertions), "as one record"],
                _exposure(models, scale),
            ),
            "Learning rates on public text in the private text's place: change of the loss by DP-SGD, nats a token": markdown_table(
                ["s", "learning rate", *TEXTS.values(), "both"], [_rate(row) for row in tables["rates"]]
            ),
            "What scores": markdown_table(
                ["public model", "perplexity", "a", "b", "ln PPL of the canary", "its rho", "its exposure"],
                [_scorer(row, scale) for row in public if row["model"] in _SCORERS],
            ),
            "What rho finds": markdown_table(
                ["private line", "lines", "private-like", "mean rho"], [_found(row) for row in tables["rho"]]
            ),
        },
    )


def _epsilons(row: Row) -> list[str]:
    return [
        f"{row['sampling_probability']:g}",
        f"{row['steps']:,}",
        f"{row['epsilon_sigma_1']:.2f}",
        f"{row['epsilon_sigma_5']:.2f}",
    ]


def _rate(row: Row) -> list[str]:
    changes = [row[f"change_{text}"] for text in TEXTS] + [row["change"]]
    return [f"{row['noise']:g}", f"{row['rate']:g}", *(f"{change:+.3f}" for change in changes)]


def _found(row: Row) -> list[str]:
    return [row["kind"], f"{row['lines']:,}", f"{100 * row['share']:.0f} %", f"{row['mean_rho']:.2f}"]


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
    return [[names[row["model"]], "", *_measures([row]), "0", "0"] for row in public if row["model"] in names]


def _utility(models: Sequence[Row], scale: Scale) -> list[list[str]]:
    """A row an arm and noise: means over the replicates, of perplexities geometric ones."""
    rows = [
        row
        for row in models
        if row["copies"] == scale.insertions[0] and not row["frequent"] and not row["deduplicated"]
    ]
    found = []
    for arm, noise in dict.fromkeys((row["arm"], row["noise"]) for row in rows):
        own = [row for row in rows if (row["arm"], row["noise"]) == (arm, noise)]
        found.append(
            [
                ARMS[arm],
                "" if arm == "plain" else f"{noise:g}",
                *_measures(own),
                _epsilon(own[0]["epsilon"]),
                _epsilon(own[0]["epsilon_private_like"]),
            ]
        )
    return found


def _measures(rows: Sequence[Row]) -> list[str]:
    return [
        f"{fmean(row['loss'] for row in rows):.3f}",
        f"{geometric_mean(row['perplexity'] for row in rows):.2f}",
        f"{geometric_mean(row['perplexity_per_word'] for row in rows):.0f}",
        f"{geometric_mean(row['perplexity_chats'] for row in rows):.2f}",
    ]


def _exposure(models: Sequence[Row], scale: Scale) -> list[list[str]]:
    rows = [row for row in models if row["noise"] in (0.0, scale.noise[0]) and row["arm"] != "dp-sgd-protected"]
    found = []
    for arm, frequent in dict.fromkeys((row["arm"], row["frequent"]) for row in rows):
        own = [row for row in rows if (row["arm"], row["frequent"]) == (arm, frequent)]
        adaptive = arm not in ("plain", "dp-sgd")
        scorer = "" if not adaptive else "has the canary" if frequent else "clean"
        all_copies = [
            _bits([row for row in own if row["copies"] == copies and not row["deduplicated"]], scale)
            for copies in scale.insertions
        ]
        found.append([ARMS[arm], scorer, *all_copies, _bits([row for row in own if row["deduplicated"]], scale)])
    return found


def _bits(rows: Sequence[Row], scale: Scale) -> str:
    """Mean over the replicates' canaries; its p-value where nothing was learned."""
    if not rows:
        return ""
    mean = fmean(row["exposure_bits"] for row in rows)
    return f"{mean:.1f} ({mean_exposure_p_value(mean, scale.canary.candidates, len(rows)):.2g})"

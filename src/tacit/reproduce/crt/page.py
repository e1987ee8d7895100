"""The tables of the page: a table for each corpus and model with a row a training, and what copies and deduplication do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit.reproduce.crt.runs import DELTA
from tacit.reproduce.crt.scale import ARMS, Scale
from tacit.reproduce.driver import Page
from tacit.reproduce.writing import Row, markdown_table

__all__ = ["results_page"]

_TEXTS = ("redacted", "raw", "without_secrets")
_GAMMAS = (0.0, 0.1, 0.5)
_ATTACKED = ("raw", "redacted", "dp-sgd", "s-dp", "crt")
"""Arms whose attacks are in figures 3 to 5; of the others the ablation tells."""
_HEADS = [
    "training",
    "γ",
    "redacted",
    "raw",
    "no secrets",
    "exposure (p)",
    "membership (95 %)",
    "groups (95 %)",
    "twins (95 %)",
]


def results_page(scale: Scale, tables: Mapping[str, Sequence[Row]]) -> Page:
    """The page from ``figure2``, ``figures3-5`` and ``baselines``."""
    utility, attacks = tables["figure2"], tables["figures3-5"]
    hours = sum(row["seconds"] for row in attacks) / 3600
    summary = (
        f", {hours:.1f} process-hours in all; noise multiplier {scale.noise_multiplier:g} in every DP phase, delta {DELTA:g}, "
        f"{scale.rounds} rounds, {scale.seeds} seed(s)."
    )
    panels = dict.fromkeys((row["corpus"], row["model"]) for row in attacks)
    sections = {
        f"Figures 2 to 5: {corpus}, {model}": markdown_table(_HEADS, _panel(corpus, model, utility, attacks))
        for corpus, model in panels
    }
    sections |= {
        "Epsilon of DP-SGD and CRT": markdown_table(
            ["corpus", "training", "γ", "ε paper", "ε ours"], _epsilons(utility)
        ),
        "Models that know no order": markdown_table(
            ["corpus", "model", "redacted", "raw", "no secrets"],
            [[row["corpus"], row["model"], *(f"{row[text]:.1f}" for text in _TEXTS)] for row in tables["baselines"]],
        ),
        "Copies of the canaries and deduplication: customersim, lstm, γ = 0.5": markdown_table(
            ["training", "copies", "highest exposure (p)", "mean exposure (p)"], _ablation(attacks)
        ),
    }
    return Page(summary, sections)


def _last(utility: Sequence[Row]) -> list[Row]:
    """After the last round."""
    last = max((row["round"] for row in utility), default=0)
    return [row for row in utility if row["round"] == last]


def _panel(corpus: str, model: str, utility: Sequence[Row], attacks: Sequence[Row]) -> list[list[str]]:
    """Utility after the last round, and attacks."""
    mine = [row for row in attacks if (row["corpus"], row["model"], row["copies"]) == (corpus, model, 20)]
    after = {_key(row): row for row in _last(utility)}
    return [[ARMS[row["arm"]], _gamma(row), *_utility(after[_key(row)]), *_attacks(row)] for row in mine]


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("corpus", "model", "arm", "gamma", "copies", "seed"))


def _utility(row: Row) -> list[str]:
    """Of three shares of misses; the others are in the CSV file."""
    if row["gamma"] not in _GAMMAS:
        return [""] * 3
    return [f"{row[f'perplexity_{text}']:.2f}" for text in _TEXTS]


def _epsilons(utility: Sequence[Row]) -> list[list[str]]:
    """Both kinds of model have the same."""
    rows = [row for row in _last(utility) if row["gamma"] in _GAMMAS and row["copies"] == 20]
    found = [
        (row["corpus"], ARMS[row["arm"]], _gamma(row), f"{row['epsilon_paper']:.2f}", f"{row['epsilon_ours']:.2f}")
        for row in rows
        if row["arm"].startswith(("crt", "dp-sgd"))
    ]
    return [list(row) for row in dict.fromkeys(found)]


def _attacks(row: Row) -> list[str]:
    if row["arm"] not in _ATTACKED:
        return [""] * 4
    return [_bits(row, "max", 1), _interval(row, "single", 3), _interval(row, "group", 2), _interval(row, "twin", 3)]


def _bits(row: Row, name: str, digits: int) -> str:
    return f"{row[f'exposure_{name}_bits']:.{digits}f} ({row[f'exposure_{name}_p_value']:.2g})"


def _interval(row: Row, attack: str, digits: int) -> str:
    value, low, high = (row[f"{attack}_accuracy_{part}"] for part in ("value", "low", "high"))
    if value is None:
        return "too few"
    return f"{value:.{digits}f} ({low:.2f}–{high:.2f})"


def _gamma(row: Row) -> str:
    return "" if row["arm"] in ("raw", "dp-sgd") else f"{row['gamma']:g}"


def _ablation(rows: Sequence[Row]) -> list[list[str]]:
    chosen = [
        row
        for row in rows
        if (row["corpus"], row["model"]) == ("customersim", "lstm")
        and (row["gamma"] == 0.5 or row["arm"] in ("raw", "dp-sgd"))
    ]
    return [
        [ARMS[row["arm"]], str(row["copies"]), _bits(row, "max", 1), _bits(row, "mean", 2)]
        for row in sorted(chosen, key=lambda row: (row["arm"], row["copies"]))
    ]

"""Figures 1 and 2 of the paper from our tables, and the tricks, each as PNG and SVG."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.reproduce.hoory.exposures import mean_exposures
from tacit.reproduce.writing import FIGURE_STYLE, Row, save_figure

__all__ = ["draw_figures"]

_EPSILON, _LOSS, _SECOND, _GREY = "#a12a1d", "#1f6f8b", "#8a6d1d", "#5b6270"
_LABELS = {"noise": "noise multiplier", "steps": "steps", "batch": "expected batch (notes)"}
_MARKERS = {"HS": "o", "HSH": "s", "HHSHH": "^"}


def draw_figures(figure1: Sequence[Row], exposures: Sequence[Row], tricks: Sequence[Row], folder: Path) -> list[str]:
    """Write the figures that the rows are enough for; their names."""
    drawn: list[str] = []
    with style.context(["default", FIGURE_STYLE]):
        save_figure(_figure1(figure1), folder, "figure1", drawn)
        save_figure(_figure2(exposures), folder, "figure2", drawn)
        save_figure(_tricks(tricks), folder, "tricks", drawn)
    return drawn


def _figure1(rows: Sequence[Row]) -> Figure | None:
    """A panel for each varied number: epsilon at the left, as the paper has it, masked loss at the right, where that has F1."""
    varied = [name for name in _LABELS if any(row["varied"] == name for row in rows)]
    if not varied:
        return None
    figure = Figure(figsize=(3.4 * len(varied), 3.0), layout="constrained")
    for place, name in zip(figure.subplots(1, len(varied), squeeze=False)[0], varied, strict=True):
        own = [row for row in rows if row["varied"] == name]
        _two_lines(place, own)
        place.set_xlabel(_LABELS[name])
    return figure


def _two_lines(place: Axes, rows: Sequence[Row]) -> None:
    values = [row["value"] for row in rows]
    place.plot(values, [row["epsilon"] for row in rows], color=_EPSILON, marker="o", markersize=4, linewidth=1)
    place.set_ylabel("epsilon, vocabulary included", color=_EPSILON)
    place.set_ylim(bottom=0)
    other = place.twinx()
    sides = [("loss_low", -1), ("loss_high", 1)]
    known = all(math.isfinite(row[side]) for row in rows for side, _ in sides)
    other.errorbar(
        values,
        [row["loss"] for row in rows],
        yerr=[[sign * (row[side] - row["loss"]) for row in rows] for side, sign in sides] if known else None,
        color=_LOSS,
        marker="s",
        markersize=4,
        linewidth=1,
        elinewidth=0.7,
        capsize=2,
    )
    other.set_ylabel("masked loss (nats)", color=_LOSS)
    other.spines["right"].set_visible(True)


def _figure2(every: Sequence[Row]) -> Figure | None:
    """Figure 2 in public contexts: a line for each pattern and epsilon."""
    rows = [row for row in mean_exposures(every) if row["contexts"] == "public contexts"]
    if not rows:
        return None
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    place = figure.subplots()
    place.axhline(
        rows[0]["null_bits"], color=_GREY, linestyle=(0, (4, 3)), linewidth=1, label="where nothing was learned"
    )
    place.axhline(rows[0]["ceiling_bits"], color=_GREY, linestyle=":", linewidth=1, label="fully exposed")
    of_dp = itertools.cycle((_LOSS, _SECOND))
    for epsilon in sorted({row["epsilon"] for row in rows}, reverse=True):
        noisy = math.isfinite(epsilon)
        color = next(of_dp) if noisy else _EPSILON
        for pattern, marker in _MARKERS.items():
            own = sorted(
                (row for row in rows if row["epsilon"] == epsilon and row["pattern"] == pattern),
                key=lambda row: row["occurrences"],
            )
            if own:
                place.plot(
                    [row["occurrences"] for row in own],
                    [row["bits"] for row in own],
                    color=color,
                    marker=marker,
                    markersize=4,
                    linewidth=1,
                    label=f"{pattern}, " + (f"DP, epsilon {epsilon:.1f}" if noisy else "without DP"),
                )
    place.set_xscale("log")
    place.set_xlabel("occurrences of a canary")
    place.set_ylabel("exposure (bits)")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _tricks(rows: Sequence[Row]) -> Figure | None:
    """Masked loss of each change beside the reference's, with the interval of the paired difference; lower is better."""
    changed = [row for row in rows if row["change"] is not None]
    if not changed:
        return None
    figure = Figure(figsize=(6.4, 0.8 + 0.34 * len(changed)), layout="constrained")
    place = figure.subplots()
    place.axvline(0.0, color=_GREY, linewidth=1)
    for height, row in enumerate(reversed(changed)):
        errors = [[row["change"] - row["change_low"]], [row["change_high"] - row["change"]]]
        place.errorbar(
            row["change"], height, xerr=errors, color=_LOSS, marker="o", markersize=4, elinewidth=1, capsize=2
        )
    place.set_yticks(range(len(changed)), [f"{row['units']}: {row['words']}" for row in reversed(changed)])
    place.locator_params(axis="x", nbins=5)
    place.set_xlabel("difference of the masked loss (nats)")
    return figure

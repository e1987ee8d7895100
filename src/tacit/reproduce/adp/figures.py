"""Figure 1 of the paper, exposure against insertions, and utility against epsilon; each as PNG and SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure

from tacit.reproduce.adp.scale import ARMS, Scale
from tacit.reproduce.writing import FIGURE_STYLE, Row, save_figure

__all__ = ["draw_figures"]

_COLOURS = {
    "plain": "#5b6270",
    "dp-sgd": "#7a4fa3",
    "dp-sgd-protected": "#b79fd0",
    "literal": "#a12a1d",
    "strata": "#1f6f8b",
    "clip-weights": "#2f9e6e",
}
_MARKERS = {"plain": "x", "dp-sgd": "^", "dp-sgd-protected": "v", "literal": "D", "strata": "o", "clip-weights": "s"}


def draw_figures(models: Sequence[Row], public: Sequence[Row], scale: Scale, folder: Path) -> list[str]:
    """Write the figures that the rows are enough for; their names."""
    drawn: list[str] = []
    with style.context(["default", FIGURE_STYLE]):
        save_figure(_exposure(models, scale), folder, "exposure", drawn)
        save_figure(_utility(models, public, scale), folder, "utility", drawn)
    return drawn


def _exposure(models: Sequence[Row], scale: Scale) -> Figure | None:
    """Bits against copies at the first noise; means over the seeds."""
    rows = [
        row
        for row in models
        if row["noise"] in (0.0, scale.noise[0]) and not row["frequent"] and not row["deduplicated"]
    ]
    if not rows:
        return None
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    place = figure.subplots()
    for arm in _COLOURS:
        own = [row for row in rows if row["arm"] == arm]
        copies = sorted({row["copies"] for row in own})
        if len(copies) < 2:
            continue
        bits = [_mean([row["exposure_bits"] for row in own if row["copies"] == count]) for count in copies]
        place.plot(copies, bits, color=_COLOURS[arm], marker=_MARKERS[arm], label=ARMS[arm], linewidth=1.2)
    place.axhline(rows[0]["exposure_null_bits"], color="#9aa1ab", linestyle=":", label="nothing learned")
    place.set_xscale("log")
    place.set_xticks(scale.insertions, [f"{count:,}" for count in scale.insertions])
    place.set_xlabel("copies of the canary in the private text")
    place.set_ylabel("exposure (bits, of 19.9)")
    place.legend()
    return figure


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _utility(models: Sequence[Row], public: Sequence[Row], scale: Scale) -> Figure | None:
    """Perplexity against epsilon of a private-like record, and of the worst case; the public model as a line."""
    rows = [row for row in models if row["copies"] == scale.insertions[0] and math.isfinite(row["epsilon"])]
    if not rows:
        return None
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for place, column, label in zip(
        axes,
        ("epsilon", "epsilon_private_like"),
        ("epsilon, worst case", "epsilon of a private-like record"),
        strict=True,
    ):
        for arm in _COLOURS:
            own = sorted((row for row in rows if row["arm"] == arm), key=lambda row: row[column])
            if own:
                values = [row["perplexity"] for row in own]
                place.plot(
                    [row[column] for row in own],
                    values,
                    color=_COLOURS[arm],
                    marker=_MARKERS[arm],
                    label=ARMS[arm],
                    linewidth=1,
                )
        place.axhline(public[0]["perplexity"], color="#9aa1ab", linestyle=":", label="public model, no private text")
        place.set_xscale("log")
        place.set_xlabel(label)
    axes[0].set_ylabel("test perplexity a piece")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure

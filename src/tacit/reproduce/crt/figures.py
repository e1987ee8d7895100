"""Figures 2 to 6 of the paper from our tables, each as PNG and SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.reproduce.crt.panel import COPIES
from tacit.reproduce.crt.scale import ARMS
from tacit.reproduce.writing import FIGURE_STYLE, Row, save_figure

__all__ = ["draw_figures"]

_COLOURS = {
    "raw": "#5b6270",
    "public-lines": "#8a9a5b",
    "redacted": "#d08c2f",
    "dp-sgd": "#7a4fa3",
    "s-dp": "#a12a1d",
    "crt": "#1f6f8b",
}
_MARKERS = {"raw": "x", "public-lines": "v", "redacted": "s", "dp-sgd": "^", "s-dp": "D", "crt": "o"}
_MEMBERSHIP = (
    ("figure4", "single", "membership accuracy"),
    ("figure4-shadows", "shadow_single", "membership accuracy against shadow models"),
    ("figure5", "group", "group membership accuracy"),
    ("figure5-shadows", "shadow_group", "group membership accuracy against shadow models"),
)


def draw_figures(
    utility: Sequence[Row], attacks: Sequence[Row], amplification: Sequence[Row], folder: Path
) -> list[str]:
    """Write the figures that the rows are enough for; their names."""
    utility = _over_seeds([row for row in utility if row["copies"] == COPIES and row["arm"] in _COLOURS])
    main = [row for row in attacks if row["copies"] == COPIES and row["arm"] in _COLOURS]
    drawn: list[str] = []
    with style.context(["default", FIGURE_STYLE]):
        save_figure(_utility(utility), folder, "figure2", drawn)
        save_figure(
            _by_gamma(main, "canary exposure, highest of ten (bits)", _exposure_of, _exposure_null),
            folder,
            "figure3",
            drawn,
        )
        attacked = [row for row in main if row["single_accuracy_value"] is not None]
        for name, attack, label in _MEMBERSHIP:
            save_figure(_by_gamma(attacked, label, _accuracy_of(attack), _half), folder, name, drawn)
        save_figure(_amplification(amplification), folder, "figure6", drawn)
    return drawn


def _over_seeds(rows: Sequence[Row]) -> list[Row]:
    """The mean over the seeds of each training and round."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in ("corpus", "model", "arm", "gamma", "round")), []).append(row)
    texts = ("redacted", "raw", "without_secrets")
    return [
        own[0] | {f"perplexity_{text}": fmean(row[f"perplexity_{text}"] for row in own) for text in texts}
        for own in groups.values()
    ]


def _grid(rows: Sequence[Row]) -> tuple[Figure, list[tuple[Axes, list[Row]]]]:
    """A panel for each corpus and model, and the rows that belong in it."""
    panels: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        panels.setdefault((row["corpus"], row["model"]), []).append(row)
    figure = Figure(figsize=(max(6.4, 3.6 * len(panels)), 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, (corpus, model) in zip(axes, panels, strict=True):
        place.set_title(f"{corpus}, {model}", loc="left")
    return figure, list(zip(axes, panels.values(), strict=True))


def _finish(figure: Figure, label: str) -> Figure:
    """Name what all panels share: the axis at the left, and the lines."""
    axes = figure.axes
    axes[0].set_ylabel(label)
    found = {label: handle for place in axes for handle, label in zip(*place.get_legend_handles_labels(), strict=True)}
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=3)
    return figure


def _utility(rows: Sequence[Row]) -> Figure | None:
    """Perplexity of lines without secrets, the one text that all arms share, against ours epsilon; infinite ones at the right."""
    if not rows:
        return None
    figure, panels = _grid(rows)
    for place, own in panels:
        finite = [row["epsilon_ours"] for row in own if row["epsilon_ours"] not in (None, math.inf)]
        edge = 1.25 * max(finite, default=1.0)
        for arm in _COLOURS:
            of_arm = [row for row in own if row["arm"] == arm]
            if not of_arm:
                continue
            gamma = min((row["gamma"] for row in of_arm if row["gamma"] > 0), default=0.0)
            points = [row for row in of_arm if row["gamma"] == gamma]
            where = [edge if row["epsilon_ours"] in (None, math.inf) else row["epsilon_ours"] for row in points]
            place.plot(
                where,
                [row["perplexity_without_secrets"] for row in points],
                color=_COLOURS[arm],
                marker=_MARKERS[arm],
                label=ARMS[arm],
                linewidth=1,
            )
        place.axvline(edge, color="#d9dde3", zorder=0)
        ticks = [tick for tick in place.get_xticks() if tick < 0.93 * edge]
        place.set_xticks([*ticks, edge], [*(f"{tick:g}" for tick in ticks), "∞"])
        place.set_xlim(0, 1.05 * edge)
        place.set_yscale("log")
        place.yaxis.set_major_formatter("{x:g}")
        place.yaxis.set_minor_formatter("{x:g}")
        place.set_xlabel("epsilon of definition 4, ours")
    return _finish(figure, "perplexity, lines without secrets")


Measured = Callable[[Row], float]


def _by_gamma(rows: Sequence[Row], label: str, measured: Measured, null: Callable[[Row], float]) -> Figure | None:
    if not rows:
        return None
    figure, panels = _grid(rows)
    for place, own in panels:
        place.axhline(
            null(own[0]), color="#5b6270", linestyle=(0, (4, 3)), linewidth=1, label="where nothing was learned"
        )
        for arm, colour in _COLOURS.items():
            _series(place, [row for row in own if row["arm"] == arm], arm, colour, measured)
        place.set_xlabel("share of secrets that the policy misses, γ")
        place.set_xlim(-0.03, 0.53)
    return _finish(figure, label)


def _series(place: Axes, rows: Sequence[Row], arm: str, colour: str, measured: Measured) -> None:
    if not rows:
        return
    gammas = sorted({row["gamma"] for row in rows})
    at_each = [[measured(row) for row in rows if row["gamma"] == gamma] for gamma in gammas]
    value = [fmean(own) for own in at_each]
    if arm in ("raw", "dp-sgd"):  # nothing is screened: no gamma
        place.axhline(
            sum(value) / len(value), color=colour, linewidth=1, linestyle=":", label=f"{ARMS[arm]} (no screening)"
        )
        return
    below = [mid - min(own) for mid, own in zip(value, at_each, strict=True)]  # bars: the range of the seeds
    above = [max(own) - mid for mid, own in zip(value, at_each, strict=True)]
    place.errorbar(
        gammas,
        value,
        yerr=[below, above],
        color=colour,
        marker=_MARKERS[arm],
        markersize=4,
        linewidth=1,
        elinewidth=0.7,
        capsize=2,
        label=ARMS[arm],
    )


def _exposure_of(row: Row) -> float:
    return float(row["exposure_max_bits"])


def _exposure_null(row: Row) -> float:
    return float(row["exposure_null_max_bits"])


def _accuracy_of(attack: str) -> Measured:
    return lambda row: float(row[f"{attack}_accuracy_value"])


def _half(row: Row) -> float:
    del row
    return 0.5


def _amplification(rows: Sequence[Row]) -> Figure | None:
    if not rows:
        return None
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = list(figure.subplots(1, 2, sharey=True))
    titles = {"paper": "the paper's formula", "ours": "sound; dotted: policies that read context"}
    noises = sorted({row["noise_multiplier"] for row in rows})
    for place, name in zip(axes, titles, strict=True):
        place.set_title(titles[name], loc="left")
        for number, noise in enumerate(noises):
            own = sorted((row for row in rows if row["noise_multiplier"] == noise), key=lambda row: row["gamma"])
            shade = (0.12, 0.25 + 0.5 * number / len(noises), 0.55)
            gammas = [row["gamma"] for row in own]
            place.plot(gammas, [row[name] for row in own], color=shade, label=f"ε' = {own[0]['epsilon_before']:.2f}")
            if name == "ours":
                place.plot(gammas, [row["ours_context"] for row in own], color=shade, linestyle=":", linewidth=1)
        place.set_xlabel("share of secrets that the policy misses, γ")
        place.set_yscale("symlog", linthresh=0.1)
    axes[0].set_ylim(bottom=0)  # of both: they share it
    axes[0].set_ylabel("epsilon of definition 4")
    axes[0].legend()
    return figure

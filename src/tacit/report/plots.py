"""The report's plots as inline SVG.

Matplotlib draws; `_inline` then takes away what a standalone file needs and a page must not have (namespaces, a style
sheet that would reach the whole page, sizes, identifiers that two figures would share) and adds a title and a label for
screen readers. Text stays text, so it can be searched, and takes the page's font and a white halo from its style sheet.
Equal data give equal bytes, so what is on the page of a release and on its curator's copy is drawn once.

Labels stand above their row, not in a margin, so that the figure is readable at any width.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tacit.report.prose import FALSE_ALARMS, CurvePoint, bound_text, most_found, number_text, percent_text, value_text
from tacit.report.schema import (
    RELEASED,
    SHARE,
    AttackFacts,
    AttackRow,
    CumulativePoint,
    ProvedCurve,
    ReportData,
    UtilityRow,
)

__all__ = ["attack", "cumulative_epsilon", "epsilon_of_rho", "perplexities", "trade_off"]

WIDTH = 440.0
"""Width of a figure in its own units; the page scales it, and text of this size stays readable from 340 pixels on."""
ROW_HEIGHT = 40.0
TEXT_SIZE = 11.5
LABEL_LENGTH = 54
"""A longer row label is cut; the tables have it in full."""

INK = "#1d2129"
MUTED = "#5b6270"
RULE = "#d9dde3"
BEFORE = "#c3d3e4"
ADDED = "#2a5a8c"
ALARM = "#a12a1d"


_drawn_once = functools.lru_cache(maxsize=32)


def cumulative_epsilon(data: ReportData) -> Markup:
    """The joint epsilon after each stage, with what the stage added in the darker colour, as an SVG element.

    An infinite epsilon fills its row. The budget, if the run had one, is a dashed line. There must be a stage.
    """
    return _cumulative_epsilon(data.cumulative, data.guarantee.certified.delta, data.budget_epsilon)


@_drawn_once
def _cumulative_epsilon(points: tuple[CumulativePoint, ...], delta: float, budget: float | None) -> Markup:
    finite = [point.epsilon for point in points if math.isfinite(point.epsilon)]
    right = max([*finite, budget or 0.0, 1e-9]) * 1.12
    with _style("cumulative-epsilon"):
        figure, axes = _frame(len(points), 0.0, right, f"joint ε at δ = {bound_text(delta)}")
        spent = 0.0
        for row, point in enumerate(points):
            _epsilon_row(axes, row, point.label, spent, point.epsilon)
            spent = point.epsilon
        if budget is not None:
            _marked_line(axes, [budget] * len(points), f"budget {bound_text(budget)}")
        label = "; ".join(f"after {point.label}: {bound_text(point.epsilon)}" for point in points)
        return _inline(figure, "cumulative-epsilon", "Joint epsilon after each stage", label)


def epsilon_of_rho(data: ReportData) -> Markup:
    """Epsilon as a step function of the privacy probability, a row a band, as an SVG element. There must be a band.

    An infinite epsilon fills its band to the top.
    """
    assert data.adaptive is not None
    bands = data.adaptive.bands
    finite = [band.epsilon for band in bands if math.isfinite(band.epsilon)]
    top = max([*finite, 1e-9]) * 1.25
    with _style("epsilon-of-rho"):
        figure = Figure(figsize=(WIDTH / 72, 190 / 72), facecolor="none")
        axes = figure.add_axes((0.1, 0.2, 0.87, 0.74), facecolor="none")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, top)
        axes.set_xlabel("privacy probability ρ", color=MUTED, labelpad=4)
        axes.set_ylabel("ε", color=MUTED, rotation=0, labelpad=9)
        _open_frame(axes)
        for band in bands:
            height, color = (band.epsilon, ADDED) if math.isfinite(band.epsilon) else (top, ALARM)
            axes.fill_between([band.begin, band.end], [height] * 2, color=BEFORE, linewidth=0)
            axes.plot([band.begin, band.end], [height] * 2, color=color, linewidth=2.5, solid_capstyle="butt")
            middle, said = (band.begin + band.end) / 2, f"{bound_text(band.epsilon)}"
            axes.annotate(
                said, (middle, height), (0, 4), textcoords="offset points", ha="center", color=INK, weight="bold"
            )
        words = "; ".join(f"{band.begin:g} to {band.end:g}: {bound_text(band.epsilon)}" for band in bands)
        return _inline(figure, "epsilon-of-rho", "Epsilon as a function of the privacy probability", words)


def trade_off(curve: ProvedCurve, points: Sequence[CurvePoint]) -> Markup:
    """The proved limit on an attacker, units found against false alarms, as an SVG element; what attacks reached is dots."""
    return _trade_off(curve.corners, tuple(points))


@_drawn_once
def _trade_off(corners: tuple[tuple[float, float], ...], points: tuple[CurvePoint, ...]) -> Markup:
    rates, most = zip(*corners, strict=True)
    with _style("trade-off"):
        figure = Figure(figsize=(WIDTH / 72, 300 / 72), facecolor="none")
        axes = figure.add_axes((0.15, 0.135, 0.8, 0.83), facecolor="none")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.005)
        axes.set_xlabel("accused wrongly: share of units that are not there", color=MUTED, labelpad=4)
        axes.set_ylabel("found: share of units that are there", color=MUTED, labelpad=5)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5))
            axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        _open_frame(axes)
        axes.fill_between(rates, most, color=BEFORE, alpha=0.45, linewidth=0)
        axes.plot(rates, most, color=ADDED, linewidth=2)
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, dashes=(3, 2.5))
        axes.text(0.63, 0.57, "chance", color=MUTED, va="center")
        axes.text(0.97, 0.06, "no attack gets above the line", color=INK, ha="right")
        for point in points:
            color = INK if point.model == RELEASED else ALARM
            if point.interval is not None:
                axes.plot([point.false_alarms] * 2, point.interval, color=color, linewidth=1.5, solid_capstyle="butt")
            axes.plot([point.false_alarms], [point.found], "o", color=color, markersize=6, clip_on=False)
        return _inline(figure, "trade-off", "The proved limit on every attacker", _trade_off_words(corners, points))


def _trade_off_words(corners: tuple[tuple[float, float], ...], points: Sequence[CurvePoint]) -> str:
    curve = ProvedCurve(corners=corners)
    words = [
        f"accusing {percent_text(rate)} wrongly: at most {percent_text(most_found(curve, rate))} found"
        for rate in FALSE_ALARMS
    ]
    words += [
        f"{point.name}, {point.model}: found {_interval_words(point.found, point.interval)} at {number_text(point.false_alarms, 3)}"
        for point in points
    ]
    return "; ".join(words)


def _open_frame(axes: Axes) -> None:
    """Left and bottom alone, and quiet."""
    axes.tick_params(colors=MUTED, length=3, color=RULE)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("bottom", "left"))
        spine.set_color(RULE)


def perplexities(rows: Sequence[UtilityRow]) -> Markup:
    """The perplexity of each model on each text, as a bar of bits a token, with the interval of the noise, as an SVG element.

    Bits are the logarithm to base 2: equal steps are equal factors, and 0 is a text that is known beforehand.

    Args:
        rows: those with a perplexity; there must be one.
    """
    return _perplexities(tuple(rows))


@_drawn_once
def _perplexities(rows: tuple[UtilityRow, ...]) -> Markup:
    measured = [(row, row.perplexity) for row in rows if row.perplexity is not None]
    ends = [math.log2(end) for row, _ in measured for end in row.perplexity_interval95 or () if end >= 1]
    right = max(*ends, *(math.log2(max(value, 1)) for _, value in measured), 1e-9) * 1.12
    with _style("perplexities"):
        figure, axes = _frame(len(measured), 0.0, right, "bits a token (fewer are better); at the right the perplexity")
        for place, (row, value) in enumerate(measured):
            _row_text(axes, place, f"{row.model}, {row.corpus.partition(' (')[0]}", "left", color=INK)
            _row_text(axes, place, number_text(value, 4), "right", color=INK, weight="bold")
            color = ADDED if row.model == RELEASED else BEFORE
            axes.barh(place + 0.2, math.log2(max(value, 1)), height=0.3, color=color)
            if row.perplexity_interval95 is not None:
                reach = [math.log2(max(end, 1)) for end in row.perplexity_interval95]
                axes.plot(reach, [place + 0.2] * 2, color=MUTED, linewidth=1.5, solid_capstyle="butt")
        words = [f"{row.model} on {row.corpus}: perplexity {number_text(value, 4)}" for row, value in measured]
        return _inline(figure, "perplexities", "Perplexity of each model on each text", "; ".join(words))


def attack(found: AttackFacts) -> tuple[Markup, ...]:
    """The rows of an attack as SVG elements, one a unit: value and interval, below them thin and grey the same without any model.

    What chance gives each row, and where it is known what giving everything away would be, are dashed lines.
    """
    units = dict.fromkeys(row.unit for row in found.rows)
    by_unit = {unit: [_Point(row) for row in found.rows if row.unit == unit] for unit in units}
    return tuple(
        _dot_plot(f"{found.name}-{number}", found.title, points, unit)
        for number, (unit, points) in enumerate(by_unit.items(), start=1)
    )


@dataclass(frozen=True)
class _Point:
    """One row of the plot of an attack."""

    row: AttackRow

    @property
    def label(self) -> str:
        return f"{self.row.name}, {self.row.model}"

    @property
    def numbers(self) -> list[float]:
        """All numbers that are drawn, but for the ceiling."""
        row = self.row
        own = [row.value, *(row.interval or ()), *(() if row.null is None else (row.null,))]
        return own if row.baseline is None else [*own, row.baseline.low, row.baseline.high]

    @property
    def words(self) -> str:
        row = self.row
        parts = [_interval_words(row.value, row.interval) + ("" if row.unit == SHARE else f" {row.unit}")]
        if row.null is not None:
            parts.append(f"chance {number_text(row.null, 3)}")
        if row.ceiling is not None and row.unit != SHARE:
            parts.append(f"ceiling {number_text(row.ceiling, 3)}")
        if row.baseline is not None:
            parts.append(
                f"without a model {_interval_words(row.baseline.value, (row.baseline.low, row.baseline.high))}"
            )
        return f"{self.label}: {', '.join(parts)}"

    def draw(self, axes: Axes, place: int) -> None:
        row, color = self.row, ADDED if self.row.model == RELEASED else ALARM
        _row_text(axes, place, self.label, "left", color=INK)
        _row_text(axes, place, value_text(row.value, row.unit), "right", color=INK, weight="bold")
        if row.baseline is not None:
            axes.plot([row.baseline.low, row.baseline.high], [place + 0.34] * 2, color=MUTED, linewidth=1)
            axes.plot([row.baseline.value], [place + 0.34], "o", color=MUTED, markersize=3.5, clip_on=False)
        reach = (0.0, row.value) if row.interval is None else row.interval
        axes.plot(reach, [place + 0.14] * 2, color=color, linewidth=2, solid_capstyle="butt")
        axes.plot([row.value], [place + 0.14], "o", color=color, markersize=7, clip_on=False)


def _interval_words(value: float, interval: tuple[float, float] | None) -> str:
    shown = number_text(value, 3)
    return shown if interval is None else f"{shown} ({number_text(interval[0], 3)} to {number_text(interval[1], 3)})"


def _limits(points: Sequence[_Point]) -> tuple[float, float]:
    """Limits of the axis: from 0 (with intervals alone, from a little below all numbers) to a little above them and the ceilings."""
    least = min(number for point in points for number in point.numbers)
    ceilings = [point.row.ceiling for point in points if point.row.ceiling is not None]
    most = max(*ceilings, *(number for point in points for number in point.numbers), 1e-9)
    if least >= 0 and all(point.row.interval is not None for point in points):
        least = max(0.0, least - 0.04 * most)
    else:
        least = min(0.0, least)
    return least, most + 0.04 * (most - least)


def _dot_plot(name: str, title: str, points: Sequence[_Point], unit: str) -> Markup:
    """A row a point, with dashed lines through neighbours, by their name at each row's value."""
    with _style(name):
        figure, axes = _frame(len(points), *_limits(points), unit)
        for place, point in enumerate(points):
            point.draw(axes, place)
        _marked_line(axes, [point.row.null for point in points], "chance")
        if unit != SHARE:  # a share's is at the end of the axis
            _marked_line(axes, [point.row.ceiling for point in points], "ceiling")
        return _inline(figure, name, title, "; ".join(point.words for point in points))


def _style(salt: str) -> AbstractContextManager[None]:
    options = {"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": TEXT_SIZE, "text.parse_math": False}
    return style.context(["default", options])


def _frame(rows: int, left: float, right: float, unit: str) -> tuple[Figure, Axes]:
    """A figure with the first row on top at y = 0; row i fills [i - 0.5, i + 0.5], its label above its middle."""
    above, below, side = 21.0, 37.0, 9.0
    height = above + rows * ROW_HEIGHT + below
    figure = Figure(figsize=(WIDTH / 72, height / 72), facecolor="none")
    box = (side / WIDTH, below / height, 1 - 2 * side / WIDTH, rows * ROW_HEIGHT / height)
    axes = figure.add_axes(box, facecolor="none")
    axes.set_xlim(left, right)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(axis="x", colors=MUTED, length=3, color=RULE)
    axes.set_xlabel(unit, color=MUTED, labelpad=4)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(RULE)
    return figure, axes


def _epsilon_row(axes: Axes, row: int, label: str, before: float, after: float) -> None:
    _row_text(axes, row, label, "left", color=INK)
    if math.isinf(after):
        axes.barh(row + 0.2, axes.get_xlim()[1], height=0.3, color=ALARM)
        _row_text(axes, row, bound_text(after), "right", color=ALARM, weight="bold")
        return
    axes.barh(row + 0.2, min(before, after), height=0.3, color=BEFORE)
    axes.barh(row + 0.2, max(after - before, 0), left=before, height=0.3, color=ADDED)
    axes.annotate(
        bound_text(after), (after, row + 0.2), (4, 0), textcoords="offset points", va="center", color=INK, weight="bold"
    )


def _row_text(
    axes: Axes, row: int, text: str, side: Literal["left", "right"], color: str, weight: str = "normal"
) -> None:
    """A text above the row's middle, at one end of the axes."""
    shown = text if len(text) <= LABEL_LENGTH else text[: LABEL_LENGTH - 1] + "…"
    end, rows = (1.0 if side == "right" else 0.0), axes.get_yaxis_transform()
    axes.text(end, row - 0.2, shown, color=color, weight=weight, ha=side, va="center", transform=rows)


def _marked_line(axes: Axes, values: Sequence[float | None], label: str) -> None:
    """A dashed line through the rows, at each row's own value, named above the first row that has one."""
    given = [(place, value) for place, value in enumerate(values) if value is not None]
    for place, value in given:
        axes.plot([value, value], [place - 0.5, place + 0.5], color=MUTED, linewidth=0.9, dashes=(3, 2.5), zorder=0)
    for place, value in given[:1]:
        side = "right" if value > sum(axes.get_xlim()) / 2 else "left"
        above = (value, place - 0.5), (0, 4)
        axes.annotate(label, *above, textcoords="offset points", ha=side, va="bottom", color=MUTED, clip_on=False)


def _inline(figure: Figure, name: str, title: str, label: str) -> Markup:
    """The figure as an SVG element for a page: identifiers begin with ``name``, and no markup comes from any text."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in root.iter():
        for child in [child for child in parent if child.tag.rpartition("}")[2] == "style"]:
            parent.remove(child)
    referenced = _references(root)
    for element in root.iter():
        _localise(element, name, referenced)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib |= {"role": "img", "aria-label": f"{title}. {label}", "class": "plot"}
    heading = ElementTree.Element("title")
    heading.text = title
    root.insert(0, heading)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _references(root: ElementTree.Element) -> set[str]:
    """The identifiers that something in the figure points to; all others are dropped."""
    values = [value for element in root.iter() for value in element.attrib.values()]
    pointers = {value.removeprefix("url(").removesuffix(")") for value in values}
    return {pointer[1:] for pointer in pointers if pointer.startswith("#")}


def _localise(element: ElementTree.Element, name: str, referenced: set[str]) -> None:
    element.tag = element.tag.rpartition("}")[2]
    attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    identifier = attributes.pop("id", None)
    if identifier in referenced:
        attributes["id"] = f"{name}-{identifier}"
    for key, value in attributes.items():
        for pointer in ("#", "url(#"):
            if value.startswith(pointer) and value.removeprefix(pointer).removesuffix(")") in referenced:
                attributes[key] = value.replace(pointer, f"{pointer}{name}-", 1)
    element.attrib.clear()
    element.attrib.update(attributes)

"""The report's plots as inline SVG.

Matplotlib draws; `_inline` then takes away what a standalone file needs and a page must not have (namespaces, a style
sheet that would reach the whole page, sizes, identifiers that two figures would share) and adds a title and a label for
screen readers. Text stays text, so it can be searched, and takes the page's font and a white halo from its style sheet.
Equal data give equal bytes.

Labels stand above their row, not in a margin, so that the figure is readable at any width.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
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

from tacit.report.prose import bound_text, number_text
from tacit.report.schema import CONTROL, Estimated, ExposureRow, ReportData

__all__ = ["cumulative_epsilon", "exposure", "membership"]

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


def cumulative_epsilon(data: ReportData) -> Markup:
    """The joint epsilon after each stage, with what the stage added in the darker colour, as an SVG element.

    An infinite epsilon fills its row. The budget, if the run had one, is a dashed line. There must be a stage.
    """
    points = data.cumulative
    finite = [point.epsilon for point in points if math.isfinite(point.epsilon)]
    right = max([*finite, data.budget_epsilon or 0.0, 1e-9]) * 1.12
    with _style("cumulative-epsilon"):
        figure, axes = _frame(len(points), 0.0, right, f"joint ε at δ = {bound_text(data.guarantee.certified.delta)}")
        spent = 0.0
        for row, point in enumerate(points):
            _epsilon_row(axes, row, point.label, spent, point.epsilon)
            spent = point.epsilon
        if data.budget_epsilon is not None:
            _marked_line(axes, [data.budget_epsilon] * len(points), f"budget {bound_text(data.budget_epsilon)}")
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
        axes.tick_params(colors=MUTED, length=3, color=RULE)
        for name, spine in axes.spines.items():
            spine.set_visible(name in ("bottom", "left"))
            spine.set_color(RULE)
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


def exposure(data: ReportData) -> Markup:
    """Exposure per pattern and model, with the value that chance gives and the ceiling as lines, as an SVG element.

    Where there are mean and highest exposure, each is a row of its own, for chance gives them different values. There must be a row.
    """
    points = [point for row in data.exposure for point in _points(row)]
    right = max(max(point.ceiling, point.bits) for point in points) * 1.04
    left = min(0.0, *(point.bits for point in points))
    lines = {
        "chance": [point.chance for point in points],
        "ceiling: perfect recall": [point.ceiling for point in points],
    }
    return _dot_plot("exposure", "Exposure of the planted secrets", points, (left, right), "exposure in bits", lines)


@dataclass(frozen=True)
class _Point:
    """One row of the exposure plot."""

    label: str
    control: bool
    bits: float
    chance: float
    ceiling: float

    @property
    def words(self) -> str:
        bits, chance, ceiling = (number_text(value, 3) for value in (self.bits, self.chance, self.ceiling))
        return f"{self.label}: {bits} bits, chance {chance}, ceiling {ceiling}"

    def draw(self, axes: Axes, row: int) -> None:
        color = ALARM if self.control else ADDED
        _row_text(axes, row, self.label, "left", color=INK)
        axes.plot([0, self.bits], [row + 0.2] * 2, color=color, linewidth=1.5, solid_capstyle="butt")
        axes.plot([self.bits], [row + 0.2], "o", color=color, markersize=7, clip_on=False)
        near_end = self.bits > 0.8 * axes.get_xlim()[1]
        axes.annotate(
            number_text(self.bits, 3),
            (self.bits, row + 0.2),
            (-8 if near_end else 8, 7 if near_end else 0),
            textcoords="offset points",
            ha="right" if near_end else "left",
            va="center",
            color=INK,
            weight="bold",
        )


def _points(row: ExposureRow) -> list[_Point]:
    label, control = f"{row.pattern}, {row.model}", row.model == CONTROL
    if row.max_bits is None or row.null_max_bits is None:
        return [_Point(label, control, row.exposure_bits, row.null_bits, row.ceiling_bits)]
    return [
        _Point(f"{label}, mean", control, row.exposure_bits, row.null_bits, row.ceiling_bits),
        _Point(f"{label}, highest of {row.canaries}", control, row.max_bits, row.null_max_bits, row.ceiling_bits),
    ]


def membership(data: ReportData) -> Markup:
    """Accuracy and AUC of the membership attack with their intervals, above the same without a model, as an SVG element.

    Chance (1/2) is a dashed line. There must be membership facts.
    """
    assert data.membership is not None
    points = [
        _Told(f"{name} on {_asked(row.texts)}, {row.model}", row.model == CONTROL, value, blind)
        for row in data.membership.rows
        for name, value, blind in (
            ("accuracy", row.accuracy, row.blind_accuracy),
            ("AUC", row.auc, row.blind_auc),
        )
    ]
    left = min(min(point.value.low, point.blind.low) for point in points)
    limits, unit = (max(0.0, min(0.4, left) - 0.02), 1.02), "accuracy, and area under the ROC curve"
    lines = {"chance: 0.5": [0.5] * len(points)}
    return _dot_plot("membership", "Telling members from non-members", points, limits, unit, lines)


@dataclass(frozen=True)
class _Told:
    """One row of the membership plot: the attack's dot and interval; below them, thin and grey, what is told without a model."""

    label: str
    control: bool
    value: Estimated
    blind: Estimated

    @property
    def words(self) -> str:
        return f"{self.label}: {_interval_words(self.value)}, without a model {_interval_words(self.blind)}"

    def draw(self, axes: Axes, row: int) -> None:
        color = ALARM if self.control else ADDED
        _row_text(axes, row, self.label, "left", color=INK)
        _row_text(axes, row, number_text(self.value.value, 3), "right", color=INK, weight="bold")
        axes.plot([self.blind.low, self.blind.high], [row + 0.34] * 2, color=MUTED, linewidth=1)
        axes.plot([self.blind.value], [row + 0.34], "o", color=MUTED, markersize=3.5, clip_on=False)
        axes.plot([self.value.low, self.value.high], [row + 0.14] * 2, color=color, linewidth=2)
        axes.plot([self.value.value], [row + 0.14], "o", color=color, markersize=7, clip_on=False)


def _asked(texts: int) -> str:
    return "single texts" if texts == 1 else f"groups of {texts}"


def _interval_words(found: Estimated) -> str:
    value, low, high = (number_text(number, 3) for number in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"


def _dot_plot(
    name: str,
    title: str,
    points: Sequence[_Point] | Sequence[_Told],
    limits: tuple[float, float],
    unit: str,
    lines: Mapping[str, Sequence[float]],
) -> Markup:
    """A row a point, with dashed lines through all of them, by their name at each row's value."""
    with _style(name):
        figure, axes = _frame(len(points), *limits, unit)
        for row, point in enumerate(points):
            point.draw(axes, row)
        for label, values in lines.items():
            _marked_line(axes, values, label)
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


def _marked_line(axes: Axes, values: Sequence[float], label: str) -> None:
    """A dashed line through the rows, at each row's own value, named above the first row."""
    for row, value in enumerate(values):
        axes.plot([value, value], [row - 0.5, row + 0.5], color=MUTED, linewidth=0.9, dashes=(3, 2.5), zorder=0)
    side = "right" if values[0] > axes.get_xlim()[1] / 2 else "left"
    above = (values[0], -0.5), (0, 4)
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

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
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tacit.report.card import bound_text, number_text
from tacit.report.data import CONTROL, ExposureRow, ReportData

__all__ = ["cumulative_epsilon", "exposure"]

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


def exposure(data: ReportData) -> Markup:
    """Exposure per pattern and model, with the value that chance gives and the ceiling as lines, as an SVG element.

    There must be a row.
    """
    rows = data.exposure
    right = max(max(row.ceiling_bits, row.exposure_bits) for row in rows) * 1.04
    left = min(0.0, *(row.exposure_bits for row in rows))
    with _style("exposure"):
        figure, axes = _frame(len(rows), left, right, "exposure in bits")
        for number, row in enumerate(rows):
            _exposure_row(axes, number, row)
        _marked_line(axes, [row.null_bits for row in rows], "chance")
        _marked_line(axes, [row.ceiling_bits for row in rows], "ceiling: perfect recall")
        label = "; ".join(_exposure_words(row) for row in rows)
        return _inline(figure, "exposure", "Exposure of the planted secrets", label)


def _exposure_words(row: ExposureRow) -> str:
    bits, chance, ceiling = (number_text(value, 3) for value in (row.exposure_bits, row.null_bits, row.ceiling_bits))
    return f"{row.pattern}, {row.model}: {bits} bits, chance {chance}, ceiling {ceiling}"


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


def _exposure_row(axes: Axes, number: int, row: ExposureRow) -> None:
    color = ALARM if row.model == CONTROL else ADDED
    _row_text(axes, number, f"{row.pattern}, {row.model}", "left", color=INK)
    axes.plot([0, row.exposure_bits], [number + 0.2] * 2, color=color, linewidth=1.5, solid_capstyle="butt")
    axes.plot([row.exposure_bits], [number + 0.2], "o", color=color, markersize=7, clip_on=False)
    near_end = row.exposure_bits > 0.8 * axes.get_xlim()[1]
    axes.annotate(
        number_text(row.exposure_bits, 3),
        (row.exposure_bits, number + 0.2),
        (-8 if near_end else 8, 7 if near_end else 0),
        textcoords="offset points",
        ha="right" if near_end else "left",
        va="center",
        color=INK,
        weight="bold",
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

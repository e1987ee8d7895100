"""The plots: drawn to scale, labelled for eyes and for screen readers, and harmless inside a page."""

from __future__ import annotations

import io
import math
import re
from xml.etree import ElementTree

import pytest
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from tacit.report.plots import attack, cumulative_epsilon, perplexities
from tacit.report.schema import Estimated, ReportData

from .example import example_report_data, with_highest
from .pages import duplicate_ids, foreign_markup

HOSTILE = '</text><script>alert(1)</script> $\\frac{$ "&'


def exposure(data: ReportData) -> str:
    (figure,) = attack(data.attacks[0])
    return figure


def membership(data: ReportData) -> str:
    (figure,) = attack(data.attacks[1])
    return figure


def _texts(svg: str) -> list[tuple[str, float, float]]:
    """Every text with its anchor."""
    root = ElementTree.fromstring(svg)
    return [(node.text or "", float(node.attrib["x"]), float(node.attrib["y"])) for node in root.iter("text")]


def _x(svg: str, text: str) -> float:
    return next(x for found, x, _ in _texts(svg) if found == text)


def _bars(svg: str) -> list[tuple[float, float]]:
    """Left and right end of every filled rectangle of the axes, in drawing order."""
    paths = [node for node in ElementTree.fromstring(svg).iter("path") if "fill: #" in node.attrib.get("style", "")]
    ends = []
    for path in paths:
        xs = [float(x) for x in re.findall(r"[ML] (-?[\d.]+) -?[\d.]+", path.attrib["d"])]
        if len(xs) == 4 and "clip-path" in path.attrib:
            ends.append((min(xs), max(xs)))
    return ends


def test_cumulative_bars_are_to_scale() -> None:
    data = example_report_data()
    svg = cumulative_epsilon(data)
    zero, unit = _x(svg, "0"), _x(svg, "1") - _x(svg, "0")
    assert data.budget_epsilon is not None
    assert _x(svg, "budget 3") == pytest.approx(zero + data.budget_epsilon * unit, abs=0.01)
    bars = [((left - zero) / unit, (right - zero) / unit) for left, right in _bars(svg)]
    spent = 0.0
    for (before, added), point in zip(zip(bars[::2], bars[1::2], strict=True), data.cumulative, strict=True):
        assert before == pytest.approx((0, min(spent, point.epsilon)), abs=1e-4)
        assert added == pytest.approx((spent, point.epsilon), abs=1e-4)
        spent = point.epsilon


def test_bars_of_perplexity_are_bits_to_scale() -> None:
    """Known wrong: a bar of the perplexity itself, beside which a good model is not seen."""
    rows = [row for row in example_report_data().utility if row.perplexity is not None]
    svg = perplexities(rows)
    zero, unit = _x(svg, "0"), (_x(svg, "10") - _x(svg, "0")) / 10
    found = [(right - zero) / unit for _, right in _bars(svg)]
    wanted = [math.log2(row.perplexity) for row in rows if row.perplexity is not None]
    assert found == pytest.approx(wanted, abs=1e-3)
    assert found != pytest.approx([row.perplexity for row in rows], abs=1e-3)
    label = ElementTree.fromstring(svg).attrib["aria-label"]
    assert all(f"{row.model} on {row.corpus}: perplexity" in label for row in rows)


def test_infinite_epsilons_fill_their_row() -> None:
    svg = cumulative_epsilon(example_report_data(proved=False))
    assert [text for text, _, _ in _texts(svg)].count("infinity") == 2
    right = max(end for _, end in _bars(svg))
    assert right == pytest.approx(440 - 9, abs=0.1)
    assert math.isfinite(right)


def test_exposure_lines_are_at_chance_and_ceiling() -> None:
    data = example_report_data(curator_copy=True)
    svg = exposure(data)
    zero, unit = _x(svg, "0"), (_x(svg, "10") - _x(svg, "0")) / 10
    assert _x(svg, "chance") == pytest.approx(zero + _null(data) * unit, abs=0.01)
    assert _x(svg, "ceiling") == pytest.approx(zero + 13.0 * unit, abs=0.01)
    uses = [node for node in ElementTree.fromstring(svg).iter("use") if "stroke: #5b6270" not in node.attrib["style"]]
    dots = [float(node.attrib["x"]) for node in uses if "fill: #" in node.attrib["style"]]
    wanted = [zero + row.value * unit for row in data.attacks[0].rows]
    assert [x for x in dots if any(math.isclose(x, w, abs_tol=0.01) for w in wanted)] == pytest.approx(wanted, abs=0.01)


def _dots(svg: str) -> list[float]:
    """The x of every dot that is no tick, in drawing order."""
    uses = [node for node in ElementTree.fromstring(svg).iter("use") if "fill: #" in node.attrib["style"]]
    return [float(node.attrib["x"]) for node in uses]


def _lines(svg: str) -> list[tuple[float, float]]:
    """Left and right end of every horizontal line of the axes, in drawing order."""
    found = []
    for path in ElementTree.fromstring(svg).iter("path"):
        points = re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path.attrib.get("d", ""))
        if len(points) == 2 and points[0][1] == points[1][1] and "clip-path" in path.attrib:
            found.append((float(points[0][0]), float(points[1][0])))
    return found


def _null(data: ReportData) -> float:
    null = data.attacks[0].rows[0].null
    assert null is not None
    return null


def test_mean_and_highest_stand_beside_their_own_chance() -> None:
    data = with_highest(example_report_data(curator_copy=True))
    svg = exposure(data)
    zero, unit = _x(svg, "0"), (_x(svg, "10") - _x(svg, "0")) / 10
    wanted = [row.value for row in data.attacks[0].rows]
    assert [(x - zero) / unit for x in _dots(svg)][-len(wanted) :] == pytest.approx(wanted, abs=1e-3)
    chance = [row.null for row in data.attacks[0].rows]
    dashes = [
        float(re.findall(r"M (-?[\d.]+)", path.attrib["d"])[0])
        for path in ElementTree.fromstring(svg).iter("path")
        if "stroke-dasharray" in path.attrib.get("style", "")
    ]
    assert [(x - zero) / unit for x in dashes][: len(chance)] == pytest.approx(chance, abs=1e-3)
    label = ElementTree.fromstring(svg).attrib["aria-label"]
    assert "HS, mean of 10, released model: 1.21 bits, chance 1.02" in label
    assert "HS, highest of 10, control without DP: 12.9 bits, chance 4.23" in label


def test_membership_is_to_scale() -> None:
    data = example_report_data(curator_copy=True)
    svg = membership(data)
    left, unit = _x(svg, "0.4"), (_x(svg, "1") - _x(svg, "0.4")) / 0.6
    assert _x(svg, "chance") == pytest.approx(left + 0.1 * unit, abs=0.01)
    wanted = [
        found
        for row in data.attacks[1].rows
        for found in (row.baseline, Estimated(value=row.value, low=row.interval[0], high=row.interval[1]))
        if found is not None
    ]
    lines = [tuple(0.4 + (x - left) / unit for x in line) for line in _lines(svg)]
    assert lines == [pytest.approx((found.low, found.high), abs=1e-3) for found in wanted]
    dots = [0.4 + (x - left) / unit for x in _dots(svg)]
    assert dots[-len(wanted) :] == pytest.approx([found.value for found in wanted], abs=1e-3)


@pytest.mark.parametrize("draw", [cumulative_epsilon, exposure, membership])
def test_a_plot_says_what_it_shows(draw) -> None:
    data = example_report_data(curator_copy=True)
    root = ElementTree.fromstring(draw(data))
    assert root.attrib["role"] == "img"
    assert root[0].tag == "title"
    assert root[0].text
    numbers = {
        "cumulative_epsilon": ["1.14", "1.27", "2.79"],
        "exposure": ["1.21", "11.9", "1.02", "13"],
        "membership": ["0.516 (0.476 to 0.556)", "without a model 0.487", "0.842", "groups of 20"],
    }[draw.__name__]
    assert all(number in root.attrib["aria-label"] for number in numbers)
    assert "viewBox" in root.attrib
    assert not {"width", "height"} & set(root.attrib)
    assert not list(root.iter("style"))


@pytest.mark.parametrize("draw", [cumulative_epsilon, exposure])
def test_hostile_labels_stay_text(draw) -> None:
    values = example_report_data().model_dump()
    for row in values["cumulative"]:
        row["label"] = HOSTILE
    for number, row in enumerate(values["attacks"][0]["rows"]):
        row["name"] = f"{HOSTILE} {number}"
    svg = draw(ReportData.model_validate(values))
    assert foreign_markup(svg) == []
    assert any(text.startswith(HOSTILE) for text, _, _ in _texts(svg))


def test_long_labels_are_cut_and_whole_for_screen_readers() -> None:
    values = example_report_data().model_dump()
    values["cumulative"][0]["label"] = "a very long stage " * 10
    svg = cumulative_epsilon(ReportData.model_validate(values))
    assert max(len(text) for text, _, _ in _texts(svg)) <= 54
    assert "a very long stage " * 10 in ElementTree.fromstring(svg).attrib["aria-label"]


def test_two_plots_share_no_identifier_and_raw_figures_would() -> None:
    data = example_report_data(curator_copy=True)
    assert duplicate_ids(cumulative_epsilon(data) + exposure(data) + membership(data)) == set()

    def raw() -> str:
        figure, buffer = Figure(), io.StringIO()
        figure.add_axes((0, 0, 1, 1))
        FigureCanvasSVG(figure).print_svg(buffer)
        return buffer.getvalue()

    assert duplicate_ids(raw() + raw())

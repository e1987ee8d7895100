"""The plot of a privacy loss: what it says, that it repeats byte for byte, and that it never leaves half a file."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from tacit.errors import UsageError
from tacit.privacy.textbook.loss import DiscreteLoss, GaussianLoss
from tacit.report.loss_plot import plot_loss_distribution

PAIR = DiscreteLoss.of_pair([0.5, 0.3, 0.15, 0.05], [0.3, 0.5, 0.2, 0.0])
LOSSES, PROBABILITIES = np.array(PAIR.losses), np.array(PAIR.probabilities)
SHADE = "#f8e0c4"


def drawn(path: Path, epsilon: float | None = 0.2, title: str = "a title") -> str:
    plot_loss_distribution(LOSSES, PROBABILITIES, epsilon, path, title)
    return path.read_text()


def patch_box(svg: str, colour: str) -> list[float]:
    """Left, right, bottom, top of the first patch of this colour, in points; y grows downwards."""
    root = ElementTree.fromstring(svg)
    patch = next(
        node for node in root.iter("{http://www.w3.org/2000/svg}path") if f"fill: {colour}" in node.get("style", "")
    )
    x, y = np.array(re.findall(r"[ML] (\S+) (\S+)", patch.get("d", "")), dtype=float).T
    return [x.min(), x.max(), y.max(), y.min()]


def test_legend_states_the_hockey_stick_and_the_tail(tmp_path):
    svg = drawn(tmp_path / "pair.svg")
    # by hand: 0.5 - e^0.2 0.3 + 0.05, and 0.5 + 0.05
    assert f"δ = {0.55 - math.exp(0.2) * 0.3:.3g}," in svg
    assert "P[L &gt; ε] = 0.55" in svg
    assert "infinite loss: 0.05" in svg
    assert "∞" in svg
    assert "a title" in svg


def test_samples_state_the_delta_of_their_law(tmp_path):
    sample = GaussianLoss(1.0).sample(200_000, np.random.default_rng(3))
    path = tmp_path / "gaussian.svg"
    plot_loss_distribution(sample, np.full(sample.size, 1 / sample.size), 1.0, path, "mu 1")
    found = re.search(r"δ = (\S+), P\[L &gt; ε\] = (\S+)<", path.read_text())
    assert found is not None
    assert float(found[1]) == pytest.approx(GaussianLoss(1.0).delta(1.0), abs=0.003)
    assert float(found[2]) == pytest.approx(GaussianLoss(1.0).tail(1.0), abs=0.006)
    assert float(found[1]) < float(found[2]) / 2


def test_the_region_above_epsilon_is_shaded_and_it_moves_with_epsilon(tmp_path):
    narrow, wide = (patch_box(drawn(tmp_path / "a.svg", epsilon), SHADE) for epsilon in (0.4, -0.4))
    assert narrow[1] == pytest.approx(wide[1], abs=0.1)  # both reach the right edge
    assert wide[0] < narrow[0] - 100


def test_without_epsilon_nothing_is_shaded(tmp_path):
    svg = drawn(tmp_path / "pair.svg", None)
    assert SHADE not in svg
    assert "δ" not in svg


def test_bar_heights_are_the_masses(tmp_path):
    """Equal losses are added; the axis is linear from 0."""
    path = tmp_path / "bars.svg"
    plot_loss_distribution(np.array([0.0, 1.0, 0.0, math.inf]), np.array([0.2, 0.25, 0.3, 0.25]), None, path, "bars")
    boxes = [patch_box(path.read_text(), colour) for colour in ("#30608f", "#b22222")]
    heights = [bottom - top for _, _, bottom, top in boxes]
    assert heights[0] / heights[1] == pytest.approx(0.5 / 0.25, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["svg", "png"])
def test_equal_arguments_give_equal_bytes_also_in_another_process(tmp_path, ending):
    here = tmp_path / f"here.{ending}"
    there = tmp_path / f"there.{ending}"
    plot_loss_distribution(LOSSES, PROBABILITIES, 0.2, here, "t")
    code = (
        "import numpy as np, pathlib, sys; from tacit.report.loss_plot import plot_loss_distribution as plot;"
        f"plot(np.array([{', '.join(f'float({str(x)!r})' for x in LOSSES)}]), np.array({PROBABILITIES.tolist()}), 0.2,"
        " pathlib.Path(sys.argv[1]), 't')"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(there)], check=True, env={**os.environ, "PYTHONPATH": _source_path()}
    )
    assert here.read_bytes() == there.read_bytes()
    assert b"dc:date" not in here.read_bytes()


def _source_path() -> str:
    return str(Path(sys.modules[plot_loss_distribution.__module__].__file__ or "").parents[2])


def test_png_is_a_picture(tmp_path):
    path = tmp_path / "PAIR.PNG"
    plot_loss_distribution(LOSSES, PROBABILITIES, 0.2, path, "t")
    with Image.open(path) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.size == (1050, 600)


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.svg.gz", ".svg"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        drawn(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UsageError, match="folder does not exist"):
        drawn(tmp_path / "missing" / "a.svg")


@pytest.mark.parametrize(
    ("losses", "probabilities", "epsilon"),
    [
        ([], [], 1.0),
        ([1.0], [0.5, 0.5], 1.0),
        ([[1.0]], [[1.0]], 1.0),
        ([1.0, math.nan], [0.5, 0.5], 1.0),
        ([1.0, -math.inf], [0.5, 0.5], 1.0),
        ([1.0, 2.0], [0.5, 0.6], 1.0),
        ([1.0, 2.0], [1.5, -0.5], 1.0),
        ([1.0, 2.0], [math.nan, 1.0], 1.0),
        ([1.0, 2.0], [0.5, 0.5], math.nan),
        ([1.0, 2.0], [0.5, 0.5], math.inf),
    ],
)
def test_what_is_no_law_is_refused_and_leaves_no_file(tmp_path, losses, probabilities, epsilon):
    with pytest.raises(UsageError, match=r"^[^\n]*$"):
        plot_loss_distribution(np.array(losses), np.array(probabilities), epsilon, tmp_path / "a.svg", "t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("losses", "probabilities", "epsilon"),
    [
        ([0.0], [1.0], 0.0),
        ([math.inf], [1.0], 0.2),
        ([math.inf], [1.0], None),
        ([1.0, 2.0], [0.5, 0.5], 40.0),
        ([1.0, 2.0], [0.5, 0.5], -40.0),
        (np.linspace(-1, 1, 500), np.full(500, 1 / 500), 0.2),
    ],
)
def test_odd_laws_are_drawn(tmp_path, losses, probabilities, epsilon):
    path = tmp_path / "a.svg"
    plot_loss_distribution(np.array(losses), np.array(probabilities), epsilon, path, "t")
    left, right, bottom, top = patch_box(path.read_text(), SHADE if epsilon is not None else "#b22222")
    assert right > left
    assert bottom > top


def test_the_old_file_survives_until_the_new_one_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.svg"
    first = drawn(path, title="first")

    def power_cut(source: object, target: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", power_cut)
    with pytest.raises(OSError, match="no space"):
        drawn(path, title="second")
    assert path.read_text() == first
    assert list(tmp_path.iterdir()) == [path]


def test_title_is_taken_literally(tmp_path):
    title = "price $x_1$ <script>alert(1)</script> & co"
    svg = drawn(tmp_path / "a.svg", title=title)
    texts = [node.text for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert title in texts
    assert "<script" not in svg


def test_no_global_state_of_matplotlib_is_left_behind(tmp_path):
    before = dict(mpl.rcParams)
    code = "import sys, tacit.report.loss_plot; print('matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": _source_path()},
    )
    drawn(tmp_path / "a.svg")
    assert dict(mpl.rcParams) == before
    assert result.stdout.split() == ["False", "False"]

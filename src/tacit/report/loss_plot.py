"""The picture of a privacy loss distribution: how often an output reveals how much, and what delta pays for."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.errors import UsageError
from tacit.privacy.rounded import upper
from tacit.privacy.textbook.loss import hockey_stick

__all__ = ["plot_loss_distribution", "write_figure"]

_METADATA: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".png": {}}
_MOST_BARS = 60
_BINS = 100


def plot_loss_distribution(
    losses: np.ndarray, probabilities: np.ndarray, epsilon: float | None, path: Path, title: str
) -> None:
    """Draws a privacy loss distribution and writes it atomically; equal arguments give equal bytes.

    Up to 60 different losses are drawn as bars, more as a histogram of 100 bins. With ``epsilon``, the region of losses
    above it is shaded, and the legend gives delta (the hockey-stick, in which a loss just above epsilon counts for
    almost nothing) beside P[L > epsilon] (in which it counts in full); the two are not the same.

    Args:
        losses: values of the loss in nats [K], for instance of a discrete pair, or samples; ``inf`` is allowed.
        probabilities: their masses [K], which sum to 1; for n samples, 1/n each.
        epsilon: where the shaded region begins, or None for no region.
        path: the file to write; its ending, .svg or .png, is the format.
        title: the heading, taken literally.

    Raises:
        UsageError: another ending, a folder that does not exist, lengths that differ, a number that is not one, masses
            that do not sum to 1.
    """
    _kind_of(path)
    losses, probabilities = np.asarray(losses, dtype=float), np.asarray(probabilities, dtype=float)
    _check(losses, probabilities, epsilon)
    write_figure(_draw(losses, probabilities, epsilon, title), path)


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically; equal figures give equal bytes.

    Raises:
        UsageError: another ending than .svg or .png, or a folder that does not exist.
    """
    _write_atomically(path, _render(figure, _kind_of(path)))


def _kind_of(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in _METADATA:
        raise UsageError(f"{path}: a plot is written as .svg or .png, so the file's name must end so")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: its folder does not exist; create it first")
    return kind


def _check(losses: np.ndarray, probabilities: np.ndarray, epsilon: float | None) -> None:
    if losses.ndim != 1 or losses.shape != probabilities.shape or losses.size == 0:
        raise UsageError("losses and probabilities must be two arrays of one length, at least 1")
    if np.isnan(losses).any() or np.isneginf(losses).any():
        raise UsageError("a loss is NaN or minus infinity; it must be a number or infinity")
    if not (np.all(probabilities >= 0) and abs(probabilities.sum() - 1) <= 1e-6):
        raise UsageError("probabilities must be numbers of at least 0 that sum to 1")
    if epsilon is not None and not math.isfinite(epsilon):
        raise UsageError(f"epsilon is {epsilon!r}; it must be a finite number, or None")


def _draw(losses: np.ndarray, probabilities: np.ndarray, epsilon: float | None, title: str) -> Figure:
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")  # the object API: no pyplot, no global current figure
    axes = figure.add_subplot()
    axes.set_title(title, parse_math=False)
    axes.set_xlabel("privacy loss (nats)")
    axes.set_ylabel("probability")
    finite = np.isfinite(losses)
    if finite.any():
        _draw_finite(axes, losses[finite], probabilities[finite])
    if epsilon is not None:
        axes.axvline(epsilon, color="#e08020", linewidth=1)
    _draw_infinite(axes, float(probabilities[~finite].sum()))
    if epsilon is not None:
        _shade(axes, losses, probabilities, epsilon)
    axes.set_ylim(bottom=0.0)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", frameon=False, ncols=2)
    return figure


def _draw_finite(axes: Axes, losses: np.ndarray, probabilities: np.ndarray) -> None:
    values, places = np.unique(losses, return_inverse=True)
    if len(values) <= _MOST_BARS:
        masses = np.bincount(places, weights=probabilities)
        width = (values[-1] - values[0]) / 100 or 0.01
        axes.bar(values, masses, width=width, color="#30608f")
        return
    masses, edges = np.histogram(losses, bins=_BINS, weights=probabilities)
    axes.stairs(masses, edges, fill=True, color="#30608f")


def _draw_infinite(axes: Axes, mass: float) -> None:
    """An infinite loss has no place on the axis: its bar stands right of everything, marked."""
    if mass == 0:
        return
    left, right = axes.get_xlim()
    width = (right - left) / 50
    axes.bar([right], [mass], width=width, color="#b22222", label=f"infinite loss: {upper(mass, '.3g')}")
    axes.annotate("∞", (right, mass), ha="center", va="bottom")
    axes.set_xlim(left, right + 2 * width)


def _shade(axes: Axes, losses: np.ndarray, probabilities: np.ndarray, epsilon: float) -> None:
    left, right = axes.get_xlim()
    delta = hockey_stick(losses, probabilities, epsilon)
    tail = float(probabilities[losses > epsilon].sum())
    label = f"loss > ε = {epsilon:.4g}: δ = {upper(delta, '.3g')}, P[L > ε] = {upper(tail, '.3g')}"
    axes.axvspan(epsilon, right, color="#f8e0c4", linewidth=0, label=label, zorder=0)
    axes.set_xlim(left, right)


def _render(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    # Without a salt the ids inside an SVG are random; "none" keeps text as text, so that it can be searched and read
    # aloud.
    with mpl.rc_context({"svg.hashsalt": "tacit", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind[1:], dpi=150, metadata=_METADATA[kind])
    return buffer.getvalue()


def _write_atomically(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)

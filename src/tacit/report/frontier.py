"""Utility against epsilon, of several runs: from the facts of their reports alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tacit.report.build import read_report
from tacit.report.loss_plot import write_figure
from tacit.report.prose import bound_text
from tacit.report.schema import CURATOR_TEXT, RELEASED

__all__ = ["MEASURES", "Point", "Useful", "plot_frontier", "usefulness"]

MEASURES = {"bits": "bits a byte", "perplexity": "perplexity", "accuracy": "masked-token accuracy"}
"""What a released model is compared by; perplexity a token is comparable between equal vocabularies alone."""


@dataclass(frozen=True)
class Useful:
    """How well a released model predicts one text.

    Args:
        corpus: which text.
        bits, perplexity, accuracy: None where it was not measured.
        perplexity_interval: of the noise.
        vocabulary: entries of its vocabulary.
    """

    corpus: str
    bits: float | None
    perplexity: float | None
    perplexity_interval: tuple[float, float] | None
    accuracy: float | None
    vocabulary: int


def usefulness(release: Path) -> tuple[Useful, ...]:
    """What the report of a release says of its released model; nothing where there is no report, as of a training loop of one's own.

    Raises:
        DataError: the report is damaged, or of another version of tacit.
    """
    data = read_report(release)
    if data is None:
        return ()
    return tuple(
        Useful(
            corpus=row.corpus,
            bits=row.bits_per_byte,
            perplexity=row.perplexity,
            perplexity_interval=row.perplexity_interval95,
            accuracy=row.masked_token_accuracy,
            vocabulary=data.vocabulary.size,
        )
        for row in data.utility
        if row.model == RELEASED and row.corpus != CURATOR_TEXT
    )


@dataclass(frozen=True)
class Point:
    """A run in the plot: its name, its epsilon, a value on one text, and the interval of that."""

    name: str
    epsilon: float
    value: float
    interval: tuple[float, float] | None


def plot_frontier(points: Mapping[str, Sequence[Point]], measure: str, delta: str, path: Path) -> None:
    """Draw utility against epsilon, a panel a text, and write it; equal arguments give equal bytes.

    Args:
        points: by text; there must be a point. An infinite epsilon stands at the right end.
        measure: what the values are, in words.
        delta: of the epsilons, in words.
        path: ending in .svg or .png.

    Raises:
        UsageError: another ending, or a folder that does not exist.
    """
    figure = Figure(figsize=(7.0, 3.6 * len(points)), layout="constrained")
    for place, (corpus, of_corpus) in enumerate(points.items()):
        axes = figure.add_subplot(len(points), 1, place + 1)
        axes.set_title(corpus, parse_math=False)
        _draw(axes, of_corpus)
        axes.set_ylabel(measure)
        axes.set_xlabel(f"epsilon at delta {delta}")
    write_figure(figure, path)


def _draw(axes: Axes, points: Sequence[Point]) -> None:
    finite = [point.epsilon for point in points if math.isfinite(point.epsilon)]
    end = 1.15 * max(finite, default=1.0)
    for point in sorted(points, key=lambda point: point.epsilon):
        at = min(point.epsilon, end)
        if point.interval is not None:
            axes.plot([at, at], point.interval, color="#5b6270", linewidth=1.5)
        axes.plot([at], [point.value], "o", color="#2a5a8c" if math.isfinite(point.epsilon) else "#a12a1d")
        said = f"{point.name} (no guarantee)" if math.isinf(point.epsilon) else point.name
        axes.annotate(said, (at, point.value), (6, 4), textcoords="offset points", parse_math=False, fontsize=9)
    axes.set_xlim(0, 1.25 * end)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(lambda value, _: bound_text(value) if value <= end else "")
    axes.margins(y=0.2)

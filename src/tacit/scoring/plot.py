"""How rho is distributed over a private corpus, drawn for the curator alone: every bar counts private records.

Shapes: S scores.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scores import read_scores

__all__ = ["plot_scores"]

_BINS = 40


def plot_scores(folder: Path, rho: PrivacyProbability) -> None:
    """Write rho.png and rho.svg (0600) into a private folder with scores; equal scores give equal bytes.

    Raises:
        DataError: the folder has no scores.
    """
    pairs = ((score.rho, score.log_perplexity) for score in read_scores(folder))
    pairs_S2 = np.fromiter(pairs, dtype=np.dtype((np.float64, 2)))
    figure = _figure(pairs_S2[:, 0], pairs_S2[:, 1], rho)
    for name, canvas, metadata in (
        ("rho.png", FigureCanvasAgg(figure), {"Software": None}),
        ("rho.svg", FigureCanvasSVG(figure), {"Date": None, "Creator": None}),
    ):
        path = folder / name
        with rc_context({"svg.hashsalt": "rho"}), path.open("wb") as file:
            path.chmod(0o600)
            canvas.print_figure(file, format=path.suffix[1:], metadata=metadata)


def _figure(rho_S: np.ndarray, log_perplexity_S: np.ndarray, rho: PrivacyProbability) -> Figure:
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist(rho_S, bins=np.linspace(0, 1, _BINS + 1).tolist(), color="#2a5a8c")
    left.set(xlabel="privacy probability ρ", ylabel="records (private)", xlim=(0, 1))
    finite_S = log_perplexity_S[np.isfinite(log_perplexity_S)]
    # Public edges: bins of the private range do not exist where its ends are neighbouring numbers, and one record decides that.
    around = max(rho.upper - rho.lower, 1e-3)
    edges = np.linspace(rho.lower - around, rho.upper + around, _BINS + 1)
    right.hist(np.clip(finite_S, edges[0], edges[-1]), bins=edges.tolist(), color="#2a5a8c")
    for bound, name in ((rho.lower, "a"), (rho.upper, "b")):
        right.axvline(bound, color="#a12a1d", linestyle="--")
        right.annotate(
            name, (bound, 1), xycoords=("data", "axes fraction"), xytext=(3, -12), textcoords="offset points"
        )
    right.set(xlabel="ln PPL, what is beyond at the ends", ylabel="records (private)")
    return figure

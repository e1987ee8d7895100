"""F1 of every model with its interval, a panel a task, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure

from tacit.entities.tables import Row

__all__ = ["draw_figure"]

_BASELINE, _MODEL = "#5b6270", "#1f6f8b"
_STYLE = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#5b6270",
    "svg.hashsalt": "tacit compare",
}


def draw_figure(rows: Sequence[Row], folder: Path) -> None:
    """Write ``f1.png`` and ``f1.svg``."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    models = len({row.model for row in rows})
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=(1.5 + 3.4 * len(tasks), 1.1 + 0.34 * models), layout="constrained")
        axes = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        for place, task in zip(axes, tasks, strict=True):
            own = [row for row in rows if row.task == task]
            for height, row in enumerate(own):
                colour = _BASELINE if row.pretraining == "trivial baseline" else _MODEL
                if row.f1_low is not None and row.f1_high is not None:
                    place.plot([row.f1_low, row.f1_high], [height, height], color=colour, linewidth=1.6)
                place.plot([row.f1], [height], "o", color=colour, markersize=5)
            place.set_yticks(range(len(own)), [row.model for row in own])
            place.invert_yaxis()
            place.set_title(task, loc="left")
            place.set_xlabel("entity-level F1, 95 % interval")
            place.grid(axis="x", color="#d9dce1", linewidth=0.6)
        figure.savefig(folder / "f1.png", dpi=150)
        figure.savefig(folder / "f1.svg", metadata={"Date": None})

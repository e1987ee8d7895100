"""A plan in words, for a terminal of any width and for a notebook. No number is ever cut at the end of a line."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tacit.planning.duration import LAPTOP_SECONDS, Work, about
from tacit.planning.stages import EVALUATION, PUBLIC_KEY, Stage
from tacit.privacy.rounded import upper

if TYPE_CHECKING:
    from tacit.planning.plan import RunPlan

__all__ = ["columns", "plan_html", "plan_text", "wrapped"]

_BEFORE = ("planning", "screening")


def _parameters(plan: RunPlan) -> str:
    said = f"{plan.parameters:,}\xa0parameters"
    return said if plan.trained == plan.parameters else f"{said}, of which about {plan.trained:,}\xa0are trained"


def plan_text(plan: RunPlan, width: int, unit: str | None = None) -> str:
    """The whole plan but for its confidentiality account: a table, how each mechanism runs, the joint price, warnings and notes.

    Args:
        width: of the window, in columns.
        unit: in words, where they are more than its name.
    """
    parts = [
        columns(["stage", "steps", "epsilon", "so far", "about"], _rows(plan)),
        "\n".join(_mechanisms(plan.stages, width)),
        "\n".join(wrapped(line, width) for line in [*_summary(plan, unit or plan.unit), *_time(plan)]),
        "\n".join(wrapped(f"warning: {line}", width, "  ") for line in plan.warnings),
        "\n".join(wrapped(f"note: {line}", width, "  ") for line in plan.notes),
    ]
    return "\n\n".join(part for part in parts if part)


def columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column to the left, the others, which hold numbers, to the right."""
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in [headers, *rows]
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def wrapped(text: str, width: int, indent: str = "") -> str:
    """Broken at blanks alone, so that a number or a path stays whole; further lines are indented."""
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ).replace("\xa0", " ")  # fmt: skip


def _rows(plan: RunPlan) -> list[list[str]]:
    own = [stage for stage in plan.stages if stage.name not in (EVALUATION, PUBLIC_KEY)]
    late = [stage for stage in plan.stages if stage.name in (EVALUATION, PUBLIC_KEY)]
    before = [_work_row(one) for one in plan.work if one.name in _BEFORE]
    after = [_work_row(one) for one in plan.work if one.name not in _BEFORE]
    split = next((place for place, row in enumerate(after) if row[0] not in ("scoring", "control")), len(after))
    return [*before, *map(_stage_row, own), *after[:split], *map(_stage_row, late), *after[split:]]


def _stage_row(stage: Stage) -> list[str]:
    alone = upper(stage.epsilon_alone, ".3f") if stage.event is not None else "-"
    return [stage.name, str(stage.steps), alone, upper(stage.epsilon_joint, ".3f"), about(stage.seconds)]


def _work_row(work: Work) -> list[str]:
    return [work.name, str(work.steps) if work.steps else "-", "-", "-", about(work.seconds)]


def _mechanisms(stages: Iterable[Stage], width: int) -> list[str]:
    """How each stage runs; stages that run alike (the rounds of a phase) are told of once."""
    alike: dict[tuple[str, str], list[str]] = {}
    for stage in stages:
        numbers = ", ".join(
            f"{name}\xa0{value:g}" for name, value in stage.parameters.items() if not isinstance(value, str)
        )
        alike.setdefault((stage.mechanism, numbers), []).append(stage.name)
    lines = []
    for (mechanism, numbers), names in alike.items():
        named = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        lines.append(wrapped(f"{named}: {mechanism}" + (f"; {numbers}" if numbers else ""), width, "  "))
    return lines


def _summary(plan: RunPlan, unit: str) -> list[str]:
    return [
        f"unit: {unit}; neighbours: one unit {plan.relation}; {_parameters(plan)}",
        f"joint epsilon\xa0{upper(plan.epsilon, '.4f')} at delta\xa0{upper(plan.delta)} (like a Gaussian mechanism with "
        f"mu\xa0{upper(plan.mu, '.3f')})",
    ]


def _time(plan: RunPlan) -> list[str]:
    memory = f"{plan.memory_bytes / 1e9:.1f}\xa0GB of memory"
    if plan.seconds is not None:
        return [f"expected: about {about(plan.seconds)} on two laptop cores, {memory}"]
    if any(stage.seconds is None for stage in plan.stages):
        hours = f"{LAPTOP_SECONDS / 3600:g}\xa0hours"
        return [
            f"expected: {memory}; time unknown: this is work for a GPU (compute.device: cuda), or above {hours} on two laptop "
            "cores, and how fast your GPU is is not known here; `tacit run` says what is left after its first steps"
        ]
    return [f"expected: {memory}; time unknown: an attack of your own has no estimate"]


def plan_html(plan: RunPlan) -> str:
    """The lines of a plan for a notebook, as text of fixed width."""
    return f"<pre>{html.escape(plan_text(plan, 100))}</pre>"

"""Rows of results, their bars, and the tables made of them: no measuring here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine_parts.cases import CASES, Bar
from engine_parts.methods import METHODS

__all__ = [
    "BEGIN",
    "END",
    "LogicalRow",
    "Memory",
    "Results",
    "Row",
    "case_table",
    "failed_bars",
    "markdown",
    "replace_block",
]

BEGIN = "<!-- begin: written by `python benchmarks/engine.py --markdown docs/benchmarks.md` -->"
END = "<!-- end -->"
COLUMNS = ("method", "ms", "ratio", "bar", "memory", "bar", "peak MiB", "whole peak", "above states", "error", "ok")


@dataclass(frozen=True)
class Memory:
    """MiB in a process of its own: after the imports; parameters and optimizer states, counted; the highest of all."""

    imports: float
    states: float
    peak: float

    @property
    def net(self) -> float:
        """What the model and its training took: the figure that the bars judge."""
        return self.peak - self.imports

    @property
    def work(self) -> float:
        """Gradients and activations: the peak above imports, parameters and optimizer states."""
        return self.net - self.states


@dataclass(frozen=True)
class Row:
    """One method on one case. ``ratio``: the median over the rounds of its time to its reference's in that round."""

    case: str
    method: str
    reference: str
    milliseconds: float | None = None
    ratio: float | None = None
    quartiles: tuple[float, float] | None = None
    error: float | None = None
    memory: Memory | None = None
    failure: str | None = None


@dataclass(frozen=True)
class LogicalRow:
    """A logical batch: ``run`` of its ``micro_batches`` were run, the rest is extrapolated."""

    case: str
    units: int
    micro_batches: int
    run: int
    milliseconds_per_unit: float
    noise_milliseconds: float
    noise_share: float
    peak: float | None


@dataclass(frozen=True)
class Results:
    machine: str
    rows: tuple[Row, ...]
    logical: tuple[LogicalRow, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: dict[str, Any]) -> Results:
        rows = tuple(
            Row(**{**row, "memory": Memory(**row["memory"]) if row["memory"] else None}) for row in found["rows"]
        )
        return Results(found["machine"], rows, tuple(LogicalRow(**row) for row in found["logical"]))


def merge(parts: Sequence[Results]) -> Results:
    """Several runs as one, in the order of ``CASES``; of a case measured twice the later run counts."""
    rows = {(row.case, row.method): row for part in parts for row in part.rows}
    logical = {(row.case, row.units): row for part in parts for row in part.logical}
    order = list(CASES)
    return Results(
        "; ".join(dict.fromkeys(part.machine for part in parts)),
        tuple(sorted(rows.values(), key=lambda row: order.index(row.case))),
        tuple(logical.values()),
    )


def memory_ratios(row: Row, rows: Sequence[Row]) -> tuple[float, float, float] | None:
    """Net, whole and work peak to those of the row's reference; None where either was not measured."""
    other = next((r.memory for r in rows if (r.case, r.method) == (row.case, row.reference)), None)
    if row.memory is None or other is None:
        return None
    return row.memory.net / other.net, row.memory.peak / other.peak, row.memory.work / other.work


def complaints(row: Row, rows: Sequence[Row]) -> list[str]:
    """Which bars of its case the row misses; a bar without a measurement is missed."""
    bar = CASES[row.case].bars.get(row.method, Bar())
    found: list[str] = []
    if bar.time is not None and (row.ratio is None or row.ratio > bar.time):
        found.append(f"time {_two(row.ratio)} > {bar.time:.2f}")
    memory = memory_ratios(row, rows)
    if bar.memory is not None and (memory is None or memory[0] > bar.memory):
        found.append(f"memory {_two(memory[0] if memory else None)} > {bar.memory:.2f}")
    if bar.beats_peers:
        found += [f"slower than {METHODS[r.method].title}" for r in _faster_peers(row, rows)]
    return found


def _faster_peers(row: Row, rows: Sequence[Row]) -> list[Row]:
    peers = [r for r in rows if r.case == row.case and METHODS[r.method].peer and r.milliseconds is not None]
    return [r for r in peers if row.milliseconds is None or (r.milliseconds or 0) <= row.milliseconds]


def failed_bars(results: Results) -> list[str]:
    """One line for each row that misses a bar."""
    return [
        f"{row.case}, {METHODS[row.method].title}: {', '.join(found)}"
        for row in results.rows
        if (found := complaints(row, results.rows))
    ]


def case_table(case: str, rows: Sequence[Row]) -> str:
    """The case's title, its table, and why methods without numbers have none."""
    own = [row for row in rows if row.case == case]
    lines = [CASES[case].title, "", *aligned(COLUMNS, [_cells(row, own) for row in own])]
    failures = [f"- {METHODS[row.method].title} {row.failure}" for row in own if row.failure]
    return "\n".join([*lines, *([""] if failures else []), *failures])


def _cells(row: Row, rows: Sequence[Row]) -> list[str]:
    bar = CASES[row.case].bars.get(row.method)
    memory = memory_ratios(row, rows) or (None, None, None)
    title = METHODS[row.method].title
    return [
        title if row.reference == "ordinary" or row.method == row.reference else f"{title} (to untied)",
        "fails" if row.failure else f"{row.milliseconds:.1f}",
        _two(row.ratio),
        _two(bar.time if bar else None),
        _two(memory[0]),
        _two(bar.memory if bar else None),
        f"{row.memory.net:.0f}" if row.memory else "-",
        _two(memory[1]),
        _two(memory[2]),
        "-" if row.error is None else f"{row.error:.0e}",
        "" if bar is None else "no" if complaints(row, rows) else "yes",
    ]


def logical_table(rows: Iterable[LogicalRow]) -> str:
    """Time and memory of logical batches of several sizes, noise and optimizer included."""
    columns = (
        "logical batch",
        "micro-batches",
        "of them run",
        "ms an example",
        "noise, ms",
        "noise, share",
        "peak MiB",
    )
    cells = [
        [
            f"{row.units:,}",
            f"{row.micro_batches:,}",
            f"{row.run:,}",
            f"{row.milliseconds_per_unit:.2f}",
            f"{row.noise_milliseconds:.0f}",
            f"{100 * row.noise_share:.3g} %",
            "-" if row.peak is None else f"{row.peak:.0f}",
        ]
        for row in rows
    ]
    return "\n".join(aligned(columns, cells))


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table that also reads well on a terminal: first column to the left, others to the right."""
    widths = [max(3, *(len(line[i]) for line in (columns, *rows))) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return f"| {' | '.join(padded)} |"

    rule = [("-" * w) if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return [line(columns), line(rule), *(line(row) for row in rows)]


def markdown(results: Results, command: str) -> str:
    """The block for docs/benchmarks.md, without its markers."""
    parts = [f"`{command}`", results.machine]
    parts += [f"### {case_table(case, results.rows)}" for case in dict.fromkeys(row.case for row in results.rows)]
    if results.logical:
        parts += [f"### Logical batches: {CASES[results.logical[0].case].title}", logical_table(results.logical)]
    return "\n\n".join(parts)


def replace_block(text: str, block: str) -> str:
    """The text with what stands between the markers replaced.

    Raises:
        ValueError: the markers are not there once each, in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the file needs the line {BEGIN} and, below it, the line {END}, once each")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{rest.split(END)[1]}"


def read_and_replace(path: Path, block: str) -> None:
    path.write_text(replace_block(path.read_text(encoding="utf-8"), block), encoding="utf-8")


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"

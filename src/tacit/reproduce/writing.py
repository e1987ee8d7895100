"""What every reproduction writes: tables as CSV and Markdown, claims with their numbers, its part of a page, figures."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import UsageError
from tacit.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "BEGIN",
    "END",
    "FIGURE_STYLE",
    "Claim",
    "Row",
    "claims_list",
    "finite",
    "markdown_table",
    "number",
    "replace_part",
    "save_figure",
    "write_csv",
    "write_text",
]

Row = dict[str, Any]

BEGIN = "<!-- results -->"
END = "<!-- end of results -->"
"""What lies between them in a page is replaced by the results of a run."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, as our own numbers judge it.

    Args:
        text: what is claimed.
        panel: of which corpus, model or setting; empty where it is of all.
        holds: whether our numbers agree; None where they cannot say.
        numbers: what was measured.
        paper: what the paper says or measured, where ``text`` does not say it.
        passed_by: a model that has nothing of what is claimed and passes too, such as one that never saw the private text: then
            the claim says nothing, whatever ``holds`` is.
        computed: whether nothing is estimated: an account, a formula, sums of printed numbers. Such a claim has no interval, and so
            no share in the level of a page.
    """

    text: str
    panel: str
    holds: bool | None
    numbers: str
    paper: str = ""
    passed_by: str = ""
    computed: bool = False

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.holds and self.passed_by:
            return f"says nothing, since {self.passed_by} passes too"
        return "undecided" if self.holds is None else "holds" if self.holds else "does not hold"


def claims_list(claims: Sequence[Claim]) -> str:
    """Markdown: each claim once, and below it its verdict in every panel. What the paper has for all of several is said once.

    >>> print(claims_list([Claim("A is below B", "x", True, "1, 2", "3, 4"), Claim("A is below B", "y", None, "no model")]))
    - A is below B
      - x: **holds**, 1, 2; the paper: 3, 4
      - y: **undecided**, no model
    """
    lines: list[str] = []
    for text in dict.fromkeys(claim.text for claim in claims):
        alike = [claim for claim in claims if claim.text == text]
        papers = {claim.paper for claim in alike}
        shared = papers.pop() if len(papers) == 1 and len(alike) > 1 else ""
        lines.append(f"- {text}{_paper(shared)}")
        for claim in alike:
            place = f"{claim.panel}: " if claim.panel else ""
            lines.append(f"  - {place}**{claim.verdict}**, {claim.numbers}{_paper('' if shared else claim.paper)}")
    return "\n".join(lines)


def _paper(said: str) -> str:
    return f"; the paper: {said}" if said else ""


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    written = ["| " + " | ".join(line) + " |" for line in (heads, *rows)]
    return "\n".join([written[0], "|---" * len(heads) + "|", *written[1:]])


def finite(value: Any) -> Any:
    """JSON has no infinity: in a result it is the word "infinity"."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return "infinity" if isinstance(value, float) and math.isinf(value) else value


def number(value: Any) -> float | None:
    """A number of a result; "infinity" is a word there (`finite`)."""
    return None if value is None else math.inf if value == "infinity" else float(value)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """A table with a header; an infinite number is ``inf``, what is not there is empty."""
    buffer = io.StringIO()
    if rows:
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    write_text(path, buffer.getvalue())


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""

    def write(partial: Path) -> None:
        partial.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def replace_part(page: Path, text: str) -> None:
    """Put the results between the two markers of a page.

    Raises:
        UsageError: it does not have them.
    """
    old = page.read_text(encoding="utf-8")
    if old.count(BEGIN) != 1 or old.count(END) != 1:
        raise UsageError(f"{page}: the page needs one line {BEGIN} and one {END}")
    head, tail = old.split(BEGIN)[0], old.split(END)[1]
    write_text(page, f"{head}{BEGIN}\n\n{text}\n{END}{tail}")


FIGURE_STYLE = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#5b6270",
    "legend.frameon": False,
    "svg.hashsalt": "tacit reproduce",
}
"""Of all figures."""


def save_figure(figure: Figure | None, folder: Path, name: str, drawn: list[str]) -> None:
    """Save a figure as PNG and SVG, and add its name to ``drawn``; None is a figure for which there are no numbers yet."""
    if figure is None:
        return
    figure.savefig(folder / f"{name}.png", dpi=150)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    drawn.append(name)

"""Write the report of a run: report.html for people, report.json for programs, README.md as the model card.

All three are rendered before the first is written, and each replaces its predecessor in one step, so a failure leaves
the old report whole. Equal data give equal bytes: nothing here reads a clock or another file of the run.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from tacit.errors import DataError
from tacit.report import plots, prose
from tacit.report.schema import RELEASED, SHARE, AttackFacts, AttackRow, ReportData, Said

__all__ = ["CARD", "HTML", "JSON", "build_report", "context", "environment", "read_report", "render"]

HTML = "report.html"
JSON = "report.json"
CARD = "README.md"


def environment() -> jinja2.Environment:
    """The templates with their filters. Every value is escaped; an unknown name is an error, not an empty string."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("tacit.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "amount": prose.amount_text,
        "bound": prose.bound_text,
        "md": prose.markdown,
        "number": prose.number_text,
        "percent": prose.percent_text,
    }
    return made


@dataclass(frozen=True)
class AttackPart:
    """What a page says of one attack: its facts, sentences, and a figure a unit of its rows."""

    facts: AttackFacts
    sentences: tuple[str, ...]
    figures: tuple[Markup, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters of its rows, each once: columns of its table."""
        return tuple(dict.fromkeys(name for row in self.facts.rows for name in row.parameters))

    @property
    def has(self) -> dict[str, bool]:
        """Whether any row has something in a column, by the name of each column that may be empty."""
        return {name: any(given(row) for row in self.facts.rows) for name, given in _OPTIONAL.items()}

    @property
    def without_null(self) -> dict[str, str]:
        """Why rows have no null, by their name."""
        return {row.name: row.without_null for row in self.facts.rows if row.without_null is not None}


_OPTIONAL: dict[str, Callable[[AttackRow], bool]] = {
    "p_value": lambda row: row.p_value is not None,
    "ceiling": lambda row: row.ceiling is not None,
    "baseline": lambda row: row.baseline is not None,
    "interval": lambda row: row.interval is not None,
    "control": lambda row: row.model != RELEASED,
}


def context(data: ReportData) -> dict[str, Any]:
    """What the templates may use."""
    points = prose.curve_points(data.attacks)
    said = prose.verdict(data.guarantee, data.confidentiality, data.missed_shares)
    return {
        "data": data,
        "released": RELEASED,
        "share": SHARE,
        "verdict": said,
        "attacks": [
            AttackPart(attack, prose.attack_sentences(attack, bool(data.confidentiality)), plots.attack(attack))
            for attack in data.attacks
        ],
        "no_attack": prose.NO_ATTACK,
        "terms": {term.word: term.meaning for attack in data.attacks for term in attack.terms},
        "beside": prose.beside(data.guarantee, data.attacks, said.tone == "conditional"),
        "asked": prose.asked(data),
        "guides": prose.GUIDES,
        "curve": _curve_rows(data),
        "points": points,
        "usefulness": prose.utility_sentences(data.utility),
        "plots": {
            "adaptive": plots.epsilon_of_rho(data) if data.adaptive and data.adaptive.bands else None,
            "trade_off": plots.trade_off(data.curve, points) if data.curve is not None else None,
            "cumulative": plots.cumulative_epsilon(data) if data.cumulative else None,
            "perplexities": plots.perplexities(data.utility) if _has_perplexities(data) else None,
        },
        "front_matter": Markup(prose.front_matter(data)),
        "usage": Markup(prose.usage(data.model)),
    }


def _curve_rows(data: ReportData) -> list[tuple[float, float]]:
    """(false alarms, most found) where the table reads the proved curve; none without one."""
    curve = data.curve
    return [] if curve is None else [(rate, prose.most_found(curve, rate)) for rate in prose.FALSE_ALARMS]


def _has_perplexities(data: ReportData) -> bool:
    return any(row.perplexity is not None for row in data.utility)


@functools.cache
def _template(name: str) -> jinja2.Template:
    """A template, compiled once in a process: that takes longer than to fill it."""
    return environment().get_template(name)


def render(data: ReportData) -> dict[str, str]:
    """The three files' text by file name."""
    values = context(data)
    return {
        HTML: _template("report.html.j2").render(values),
        JSON: data.model_copy(update={"verdict": _said(values["verdict"])}).model_dump_json(indent=2) + "\n",
        CARD: _template("card.md.j2").render(values),
    }


def _said(verdict: prose.Verdict) -> Said:
    return Said(headline=verdict.headline, paragraph=verdict.paragraph, known=verdict.known)


def read_report(folder: Path) -> ReportData | None:
    """The facts of the report in a folder; None where there is none.

    Raises:
        DataError: it is damaged, or of another version of tacit.
    """
    path = folder / JSON
    if not path.is_file():
        return None
    try:
        return ReportData.model_validate(json.loads(path.read_bytes()))
    except (ValueError, RecursionError):  # a ValidationError is a ValueError
        raise DataError(f"{path}: damaged, or of another version; `tacit report RUN` makes it again") from None


def build_report(data: ReportData, folder: Path) -> None:
    """Write report.html, report.json and README.md into ``folder``, which is created when it is missing.

    Raises:
        DataError: the folder cannot be written.
    """
    rendered = render(data)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder, rendered)
    except OSError as error:
        raise DataError(f"cannot write the report into {folder}: {error.strerror}; check the folder") from error


def _replace(folder: Path, texts: Mapping[str, str]) -> None:
    """Write all texts beside their targets, then move each into place."""
    partials = {name: folder / f".{name}.{os.getpid()}.partial" for name in texts}
    try:
        for name, partial in partials.items():
            with partial.open("w", encoding="utf-8", newline="\n") as file:
                file.write(texts[name])
                file.flush()
                os.fsync(file.fileno())
        for name, partial in partials.items():
            os.replace(partial, folder / name)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)

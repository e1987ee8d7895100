"""`tacit tradeoff`: utility against epsilon of several runs, and what it costs to publish them all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import JsonOption, print_json, say, say_lines, table
from tacit.errors import UsageError
from tacit.privacy.rounded import upper

if TYPE_CHECKING:
    from tacit.release.composing import Composed, Published
    from tacit.report.frontier import Useful

__all__ = ["command"]

RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run folders, or released folders alone (RUN/release).")
]


def command(
    runs: RunsArgument,
    delta: Annotated[
        float | None, typer.Option(help="Delta of the composed epsilon; left out: the largest certified one.")
    ] = None,
    same_people: Annotated[
        bool,
        typer.Option(
            "--same-people/--other-people",
            help="Whether one person's text may be in several of the runs. The second is an assumption that nobody checks.",
        ),
    ] = True,
    plot: Annotated[Path | None, typer.Option(help="Also draw it into this file: .svg or .png.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Utility against epsilon of finished runs, and the composed epsilon of publishing them all.

    Epsilon is composed from the events in their ledgers, each release behind them once. Refused in words where the certificates are
    about different units or relations.
    """
    from tacit.privacy.checks import require_delta
    from tacit.release.composing import compose, published
    from tacit.report.frontier import usefulness

    if delta is not None:
        require_delta(delta)
    releases = [published(place) for place in runs]
    useful = [usefulness(one.release) for one in releases]
    composed = compose(releases, delta, same_people)
    if plot is not None:
        _plot(releases, useful, plot)
    if as_json:
        print_json({"runs": [*map(_values, releases, useful)], "together": _composed_values(composed)})
        return
    say_lines(table(*_table(releases, useful)))
    typer.echo()
    for line in _words(releases, useful, composed):
        say(line)
    if plot is not None:
        say(f"plot: {plot}")


def _names(releases: Sequence[Published]) -> list[str]:
    """What each is called; its whole path where another one is called so too."""
    short = [release.name for release in releases]
    return [
        name if short.count(name) == 1 else str(release.place) for name, release in zip(short, releases, strict=True)
    ]


def _values(release: Published, useful: Sequence[Useful]) -> dict[str, Any]:
    stated = release.certificate
    return {
        "run": str(release.place),
        "epsilon": release.epsilon,
        "delta": release.delta,
        "unit": stated["unit"],
        "relation": stated["relation"],
        "ledger_head": stated["ledger_head"],
        "from_ledger": release.from_ledger,
        "utility": [
            {
                "text": row.corpus,
                "bits_per_byte": row.bits,
                "perplexity": row.perplexity,
                "perplexity_interval": row.perplexity_interval,
                "masked_token_accuracy": row.accuracy,
                "vocabulary": row.vocabulary,
            }
            for row in useful
        ],
    }


def _composed_values(composed: Composed) -> dict[str, Any]:
    return {
        "epsilon": composed.epsilon,
        "delta": composed.delta,
        "unit": composed.unit,
        "releases": composed.releases,
        "assumed": composed.assumed,
        "refused": composed.refused,
    }


def _table(releases: Sequence[Published], useful: Sequence[Sequence[Useful]]) -> tuple[list[str], list[list[str]]]:
    """A row a run, by epsilon; a column a text and measure that any run has."""
    corpora = list(dict.fromkeys(row.corpus for rows in useful for row in rows))
    columns = [
        (corpus, name)
        for corpus in corpora
        for name in ("perplexity", "bits", "accuracy")
        if any(row.corpus == corpus and getattr(row, name) is not None for rows in useful for row in rows)
    ]
    headers = ["run", "epsilon", "delta", "unit", *(f"{_WORDS[name]}, {_short(corpus)}" for corpus, name in columns)]
    names = _names(releases)
    order = sorted(range(len(releases)), key=lambda place: releases[place].epsilon)
    return headers, [
        [
            names[place],
            upper(releases[place].epsilon, ".3f"),
            upper(releases[place].delta),
            releases[place].certificate["unit"],
            *(_cell(useful[place], corpus, name) for corpus, name in columns),
        ]
        for place in order
    ]


_WORDS = {"perplexity": "perplexity", "bits": "bits a byte", "accuracy": "accuracy"}


def _short(corpus: str) -> str:
    return corpus.split()[0]


def _cell(rows: Sequence[Useful], corpus: str, name: str) -> str:
    for row in rows:
        value = getattr(row, name)
        if row.corpus == corpus and value is not None:
            interval = row.perplexity_interval if name == "perplexity" else None
            return f"{value:.4g}" + ("" if interval is None else f" ({interval[0]:.4g} to {interval[1]:.4g})")
    return "-"


def _words(releases: Sequence[Published], useful: Sequence[Sequence[Useful]], composed: Composed) -> list[str]:
    lines = []
    if len({row.vocabulary for rows in useful for row in rows}) > 1:
        lines.append("Perplexities of different vocabularies do not compare; bits a byte do.")
    if any(not one.from_ledger for one in releases):
        lines.append(
            "Released folders alone: what was spent is read from their certificates, and no ledger was looked at."
        )
    counted = f"{composed.releases} release{'' if composed.releases == 1 else 's'}"
    if composed.refused:
        lines.append(f"Publishing them all: no epsilon: {composed.refused}.")
    elif composed.epsilon is None or math.isinf(composed.epsilon):
        lines.append(
            f"Publishing them all ({counted}): epsilon infinity: one of them has no guarantee, or none at this delta."
        )
    else:
        lines.append(
            f"Publishing them all ({counted}): epsilon {upper(composed.epsilon, '.4f')} at delta {upper(composed.delta)} for every "
            f"{composed.unit}."
        )
    return [*lines, f"Assumed: {composed.assumed}"]


def _plot(releases: Sequence[Published], useful: Sequence[Sequence[Useful]], path: Path) -> None:
    from tacit.report.frontier import MEASURES, Point, plot_frontier

    named = zip(_names(releases), releases, useful, strict=True)
    rows = [(name, release, row) for name, release, of_release in named for row in of_release]
    measures = [measure for measure in MEASURES if rows and all(getattr(row, measure) is not None for *_, row in rows)]
    if not measures:
        raise UsageError("no measure that all of these runs have: there is nothing to draw; leave --plot out")
    points: dict[str, list[Point]] = {}
    for name, release, row in rows:
        interval = row.perplexity_interval if measures[0] == "perplexity" else None
        points.setdefault(row.corpus, []).append(Point(name, release.epsilon, getattr(row, measures[0]), interval))
    deltas = sorted({release.delta for release in releases})
    plot_frontier(points, MEASURES[measures[0]], " and ".join(f"{delta:g}" for delta in deltas), path)

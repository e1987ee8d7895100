"""`tacit screen`: find what must not leak. So far: how well the policies find it, on gold labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.options import JsonOption, print_json, table

__all__ = ["command"]

MeasureOption = Annotated[
    Path,
    typer.Option(
        metavar="GOLD",
        help='Gold labels, JSON lines: {"text": ..., "spans": [[start, end, label], ...]}.',
    ),
]
BalancedOption = Annotated[Path | None, typer.Option(metavar="FILE", help="A policy of your own as pi.")]
ConservativeOption = Annotated[Path | None, typer.Option(metavar="FILE", help="A policy of your own as pi_c.")]


def command(
    measure: MeasureOption,
    balanced: BalancedOption = None,
    conservative: ConservativeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure both screening policies on gold labels: recall, precision, and bounds on what they miss.

    A gold span is found when every character of it is marked. The file is read; nothing is written.
    """
    from tacit.screening.measure import measure as measured
    from tacit.screening.measure import read_gold
    from tacit.screening.policy import POLICIES, load_policy, package_policy

    files = dict(zip(POLICIES, (balanced, conservative), strict=True))
    policies = [package_policy(name) if file is None else load_policy(file) for name, file in files.items()]
    found = {name: result.to_dict() for name, result in zip(files, measured(policies, read_gold(measure)), strict=True)}
    if as_json:
        print_json(found)
        return
    typer.echo(table(["", *files], _rows(found)))


def _rows(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """A row for each number and for each label."""
    both = list(found.values())
    labels = both[0]["spans_per_label"]
    percent = int(100 * both[0]["confidence"])
    numbers = {
        f"recall of {sum(labels.values())} spans": "recall",
        "precision by characters": "precision",
        "documents with a miss": "documents_with_a_miss",
        "characters marked": "marked_share",
    }
    rows = [[title, *(f"{values[key]:.4f}" for values in both)] for title, key in numbers.items()]
    rows.append([f"gamma at most ({percent} %)", f"{both[0]['gamma_upper']:.4g}", "-"])
    rows.append([f"delta_2 at most ({percent} %)", "-", f"{both[1]['delta2_upper']:.4g}"])
    for label, count in labels.items():
        rows.append([f"recall of {count} {label}", *(f"{values['per_label'][label]:.4f}" for values in both)])
    return rows

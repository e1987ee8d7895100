"""docs/reliability.md from stored trials: a section a family of attacks, and what failed with the command that repeats it."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from hostile.attack import Attack
from hostile.results import CONTROL, Results, Sum, Trial, about

__all__ = ["failures", "repeat", "section", "write_page"]

_BEGIN, _END = "<!-- begin: written by `make hostile` -->", "<!-- end -->"


def repeat(trial: Trial) -> str:
    """The command that does a trial again."""
    return f"python -m hostile --only {trial.attack} --row '{trial.row}' --number {trial.number} --seed {trial.seed}"


def failures(results: Results, attacks: Sequence[str], seed: int) -> list[str]:
    """One line each, with the command that repeats it."""
    failed = [trial for trial in results.trials() if trial.failures and trial.attack in attacks and trial.seed == seed]
    return [f"{trial.attack}, {trial.row}: {line}\n    {repeat(trial)}" for trial in failed for line in trial.failures]


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    ]
    rule = (
        "| "
        + " | ".join("-" * width if place == 0 else "-" * (width - 1) + ":" for place, width in enumerate(widths))
        + " |"
    )
    return "\n".join([lines[0], rule, *lines[1:]])


def _notes(found: Sum) -> str:
    """Notes that are alike, counted; the most common ones."""
    counted = Counter(found.notes).most_common(6)
    return ", ".join(f"{note}, {number:,} times" for note, number in counted)


def _parts(name: str, attack: Attack, results: Results) -> list[str]:
    parts = [f"## {attack.title}", attack.says]
    reason = results.unavailable(name)
    sums = results.sums(name, attack.rows)
    control = next((found for found in sums if found.row == CONTROL), None)
    rows = [found for found in sums if found.row != CONTROL]
    if reason:
        parts.append(f"Not tried on this machine: {reason}")
    if rows:
        body = [
            [found.row, f"{found.tried:,}", f"{found.expected:,}", f"{found.tried - found.expected:,}"]
            for found in rows
        ]
        total = [sum(found.tried for found in rows), sum(found.expected for found in rows)]
        body.append(["all", f"{total[0]:,}", f"{total[1]:,}", f"{total[0] - total[1]:,}"])
        parts.append(_table([["what", "tried", "as expected", "otherwise"], *body]))
        notes = [f"{found.row}: {_notes(found)}" for found in rows if _notes(found)]
        parts += ["How they ended: " + "; ".join(notes) + "."] if notes else []
    if control is not None:
        said = "was not caught" if control.failed else f"was caught: {control.notes[0] if control.notes else ''}"
        parts.append(f"Control ({attack.control_says}): {said}.")
    failed = [trial for found in rows for trial in found.failed]
    if failed:
        lines = [f"- {trial.row}: {trial.failures[0]}\n  `{repeat(trial)}`" for trial in failed[:20]]
        more = f"\n\nand {len(failed) - 20} more trials" if len(failed) > 20 else ""
        parts.append("What was otherwise:\n\n" + "\n".join(lines) + more)
    return parts


def section(name: str, attack: Attack, results: Results, seed: int) -> str:
    """A family of attacks: what was attacked, its table, its control, and what failed."""
    title, *rest = _parts(name, attack, results)
    where = about()
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    made = (
        f"Made on {day} by `python -m hostile --only {name} --seed {seed}`: tacit {where['tacit']}; {where['versions']}; "
        f"Python {where['python']}, {where['system']}, {where['cores']} cores."
    )
    return "\n\n".join([title, made, *rest])


def write_page(
    path: Path, attacks: Mapping[str, Attack], results: Results, seed: int, names: Sequence[str] = ()
) -> None:
    """Replace sections between the markers; the others there, and the words around them, stay.

    Args:
        path: the page.
        attacks: all families, in the page's order. A section of another title goes.
        results: what is stored.
        seed: of the harness's choices.
        names: the families whose sections are replaced; empty: all that have results.

    Raises:
        SystemExit: the file has no markers.
    """
    text = path.read_text() if path.exists() else f"{_BEGIN}\n{_END}\n"
    if _BEGIN not in text or _END not in text:
        raise SystemExit(f"hostile: {path} has no markers {_BEGIN} and {_END}")
    before, _, rest = text.partition(_BEGIN)
    inside, _, after = rest.partition(_END)
    sections = _sections(inside)
    for name in names or attacks:
        if results.sums(name) or results.unavailable(name):
            sections[attacks[name].title] = section(name, attacks[name], results, seed)
    kept = [sections[attack.title] for attack in attacks.values() if attack.title in sections]
    path.write_text("\n\n".join([f"{before}{_BEGIN}", *kept, f"{_END}{after}"]))


def _sections(text: str) -> dict[str, str]:
    """By title."""
    parts = text.split("\n## ")[1:]
    return {part.partition("\n")[0]: f"## {part.strip()}" for part in parts}

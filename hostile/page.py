"""docs/reliability.md from stored trials: a section a family of attacks, and what failed with the command that repeats it."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from hostile.attack import Attack
from hostile.results import CONTROL, Results, Sum, Trial, about

__all__ = ["failures", "here", "repeat", "section", "write_page"]

_BEGIN, _END = "<!-- begin: written by `make hostile` -->", "<!-- end -->"
_EXIT = "exit "
_VERSIONS = re.compile(r"^Versions (\d+): (.*)$", re.MULTILINE)


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


def _exits(found: Sum) -> str:
    """Exit codes with how often each was seen, the most common ones first: ``4:266 0:48``."""
    counted = Counter(note.removeprefix(_EXIT) for note in found.notes if note.startswith(_EXIT))
    return " ".join(f"{code}:{number:,}" for code, number in counted.most_common(6))


def _notes(found: Sum) -> str:
    """Notes that are alike and are no exit codes, counted; the most common ones."""
    counted = Counter(note for note in found.notes if not note.startswith(_EXIT)).most_common(6)
    return ", ".join(f"{note}, {number:,} times" for note, number in counted)


def _figures(rows: Sequence[Sum]) -> str:
    """What was tried, with a column for how much of it was as expected where not all was, and the exit codes where some are known."""
    otherwise = any(found.tried != found.expected for found in rows)
    exits = any(_exits(found) for found in rows)
    tried, expected = sum(found.tried for found in rows), sum(found.expected for found in rows)
    body = [(found.row, found.tried, found.expected, _exits(found)) for found in rows]
    lines = [["what", "tried" if otherwise else "tried, all as expected", "as expected", "exit code:times"]]
    lines += [
        [what, f"{one:,}", f"{other:,}", codes] for what, one, other, codes in [*body, ("all", tried, expected, "")]
    ]
    shown = (True, True, otherwise, exits)
    return _table([[cell for cell, show in zip(line, shown, strict=True) if show] for line in lines])


def _parts(name: str, attack: Attack, results: Results) -> list[str]:
    parts = [f"## {attack.title}", attack.says]
    reason = results.unavailable(name)
    sums = results.sums(name, attack.rows)
    control = next((found for found in sums if found.row == CONTROL), None)
    rows = [found for found in sums if found.row != CONTROL]
    if reason:
        parts.append(f"Not tried on this machine: {reason}")
    if rows:
        parts.append(_figures(rows))
        parts += [f"{found.row}: {_notes(found)}." for found in rows if _notes(found)]
    if control is not None:
        first = control.notes[0].partition("; ")[0] if control.notes else ""
        said = "was not caught" if control.failed else f"was caught: {first}"
        parts.append(f"Control ({attack.control_says}): {said}.")
    failed = [trial for found in rows for trial in found.failed]
    if failed:
        lines = [f"- {trial.row}: {trial.failures[0]}\n  `{repeat(trial)}`" for trial in failed[:20]]
        more = f"\n\nand {len(failed) - 20} more trials" if len(failed) > 20 else ""
        parts.append("What was otherwise:\n\n" + "\n".join(lines) + more)
    return parts


def section(name: str, attack: Attack, results: Results, seed: int, place: str = "1", day: str = "") -> str:
    """A family of attacks: what was attacked, its table, its control, and what failed.

    Args:
        name: of the family.
        attack: the family.
        results: what is stored.
        seed: of the harness's choices.
        place: the number under which the head of the page says versions and machine.
        day: on which it was made; empty: today.
    """
    title, *rest = _parts(name, attack, results)
    day = day or datetime.datetime.now(datetime.UTC).date().isoformat()
    made = f"`python -m hostile --only {name} --seed {seed}`, {day}, versions {place}."
    return "\n\n".join([title, made, *rest])


def here() -> str:
    """Versions, source and machine in a line."""
    where = about()
    return f"tacit {where['tacit']}; {where['versions']}; Python {where['python']}, {where['system']}, {where['cores']} cores."


def write_page(
    path: Path, attacks: Mapping[str, Attack], results: Results, seed: int, names: Sequence[str] = ()
) -> None:
    """Replace sections between the markers; the others there, and the words around them, stay.

    The head of the block says once what was attacked and where, a numbered line for each that a section names.

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
    sections, versions = _sections(inside), dict(_VERSIONS.findall(inside))
    now = here()
    unused = next(str(number) for number in range(1, len(versions) + 2) if str(number) not in versions)
    place = next((number for number, words in versions.items() if words == now), unused)
    for name in names or attacks:
        if results.sums(name) or results.unavailable(name):
            sections[attacks[name].title] = section(name, attacks[name], results, seed, place)
            versions[place] = now
    kept = [sections[attack.title] for attack in attacks.values() if attack.title in sections]
    head = [
        f"Versions {number}: {words}"
        for number, words in sorted(versions.items(), key=lambda pair: int(pair[0]))
        if any(f", versions {number}.\n" in part for part in kept)
    ]
    path.write_text("\n\n".join([f"{before}{_BEGIN}", *head, *kept, f"{_END}{after}"]))


def _sections(text: str) -> dict[str, str]:
    """By title."""
    parts = text.split("\n## ")[1:]
    return {part.partition("\n")[0]: f"## {part.strip()}" for part in parts}

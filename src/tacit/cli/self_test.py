"""`tacit audit --self-test`: what the self-test found, as tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tacit.cli.options import print_json, table
from tacit.errors import AuditError, UsageError

if TYPE_CHECKING:
    from tacit.audit.self_test.run import SelfTest
    from tacit.audit.self_test.simulated import Calibration

__all__ = ["show_self_test"]


def show_self_test(size: str, seed: str, as_json: bool) -> None:
    """Make the self-test and print what it found.

    Raises:
        UsageError: an unknown size.
        AuditError: a break was not found, or something correct is accused.
    """
    from tacit.audit.self_test.run import SIZES, self_test
    from tacit.progress import TerminalReporter
    from tacit.randomness import KeyedRandomness, key_of

    if size not in SIZES:
        raise UsageError(f"--size is {size!r}; it must be one of {', '.join(SIZES)}")
    found = self_test(KeyedRandomness(key_of(seed)), SIZES[size], TerminalReporter())
    if as_json:
        print_json({**asdict(found), "failures": found.failures})
    else:
        typer.echo(_shown(found))
    if found.failures:
        raise AuditError(f"self-test: {'; '.join(found.failures)}. Do not rely on this installation")


def _shown(found: SelfTest) -> str:
    from tacit.audit.self_test.run import DELTA, FALSE_ALARM

    breaks = [
        [
            row.title,
            row.bound,
            f"{row.coins:,}",
            *(f"{value:.2f}" for value in (row.claimed, row.capacity, row.broken)),
            row.verdict.upper() if row.verdict == "violated" else row.verdict,
            f"{row.correct:.2f}",
            row.verdict_on_correct,
        ]
        for row in found.tried
    ]
    headers = [
        "the engine is broken",
        "bound",
        "coins",
        "claimed",
        "capacity",
        "found",
        "verdict",
        "of the correct one",
        "verdict",
    ]
    calibrated = [
        [row.what, row.bound, f"{row.accused:,} of {row.audits:,}", _least_shown(row)] for row in found.calibrations
    ]
    return "\n".join(
        [
            table(headers, breaks),
            "",
            table(["nothing is broken", "bound", "accused", "shows of 4.38"], calibrated),
            "",
            f"Epsilons at delta {DELTA:g}: claimed by the plan's account, and lower bounds of the audits. With another seed a",
            f"correct engine is accused in the first table with probability {FALSE_ALARM:g} at most, and in the second in at most",
            "5 % of the audits.",
        ]
    )


def _least_shown(row: Calibration) -> str:
    return "-" if row.shown is None else f"{row.shown:.2f} (at least {row.least:.2f})"

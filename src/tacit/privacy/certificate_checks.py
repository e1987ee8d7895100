"""The verification of a certificate: everything in it is computed again from the ledger, and compared.

The chain of the ledger, the pinned head, epsilon by privacy loss distributions, Renyi DP as a second opinion, an optimistic estimate
below both, and the digests of the released files.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import LedgerError, UsageError
from tacit.privacy.accounting.accountant import account_parts, joint_epsilon
from tacit.privacy.accounting.composition import Account, composed_steps
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.certificate import (
    adaptive_statement,
    bound_model,
    file_digests,
    make_certificate,
    model_digest,
    total_variation,
)
from tacit.privacy.certificate_file import check_certificate
from tacit.privacy.events import Relation, Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.rounded import upper
from tacit.privacy.strict_json import read_number

__all__ = ["Check", "check_adaptive_statement", "check_epsilons", "second_opinion", "some_names", "verify_certificate"]

_SHOWN = 5


@dataclass(frozen=True)
class Check:
    """One check of `verify_certificate`: what was compared, whether it holds, and the numbers."""

    name: str
    holds: bool
    detail: str


def verify_certificate(ledger: Ledger, certificate: dict[str, Any], release: Path) -> list[Check]:
    """Recompute a certificate from its ledger and compare.

    Opening the ledger has checked its chain already. The caller fails when any check does not hold.

    Raises:
        LedgerError: the certificate is not one of ours.
    """
    certificate = check_certificate(certificate, str(release))
    try:
        return [
            *_check_ledger(ledger, certificate),
            *check_epsilons(ledger.spends(), certificate),
            _check_files(certificate["files"], release),
        ]
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, MemoryError, UsageError):
        raise LedgerError(f"{release}: certificate.json is damaged or of another version") from None


_COMPARED_APART = {
    *("epsilons", "total_variation", "mu", "adaptive"),  # numbers, to the last digits but a few
    "ledger_head",  # beside the rows of the release, which come after it
    *("fine_tuning", "own_loop"),  # not in the ledger alone: `tacit.release.configured`
}


def _check_ledger(ledger: Ledger, certificate: dict[str, Any]) -> list[Check]:
    header = ledger.header
    mine = make_certificate(ledger, certificate["files"], certificate["randomness"], certificate.get("confidentiality"))
    names = {*mine, *certificate} - _COMPARED_APART
    if certificate.get("domain") is None:  # made before certificates said it
        names -= {"domain"}
    different = sorted(name for name in names if mine.get(name) != certificate.get(name))
    if [pair["delta"] for pair in certificate["epsilons"]] != [pair["delta"] for pair in mine["epsilons"]]:
        different.append("deltas")
    if not _close(read_number(mine["mu"]), read_number(certificate["mu"])):
        different.append("mu")
    if not _same_adaptive(mine.get("adaptive"), certificate.get("adaptive")):
        different.append("adaptive")
    released = bound_model(ledger)
    if released is not None and released != model_digest(certificate["files"]):
        different.append("files")
    over = math.isfinite(header.epsilon) and read_number(mine["epsilons"][0]["epsilon"]) > header.epsilon
    return [
        Check("ledger's chain", True, f"{len(ledger.rows)} rows"),
        Check(
            "ledger's head is the certified one",
            ledger.certified_head == certificate["ledger_head"],
            ledger.certified_head,
        ),
        Check("certificate's statements", not different, ", ".join(different) or "all as in the ledger"),
        Check("budget", not over, f"epsilon {header.epsilon:g} at delta {header.delta:g}"),
    ]


def check_adaptive_statement(spends: list[Spend], certificate: dict[str, Any]) -> Check:
    """Whether the function from rho to epsilon follows from these spends."""
    mine = adaptive_statement(spends, float(certificate["budget"]["delta"]), certificate["relation"])
    holds = _same_adaptive(mine, certificate.get("adaptive"))
    return Check("epsilon of rho", holds, "none" if mine is None else "as recomputed" if holds else "differs")


def _same_adaptive(mine: dict[str, Any] | None, stated: dict[str, Any] | None) -> bool:
    """Whether two functions from rho to epsilon are the same, but for the last digits."""
    if mine is None or stated is None:
        return mine is stated
    numbers = [[*_numbers(block)] for block in (mine, stated)]
    return len(numbers[0]) == len(numbers[1]) and all(
        _close(one, other) if isinstance(one, float) and isinstance(other, float) else one == other
        for one, other in zip(*numbers, strict=True)
    )


def _numbers(block: dict[str, Any]) -> Iterator[float | str]:
    """All names and values of the block, by name; numbers as floats."""
    for name, value in sorted(block.items()):
        rows = value if name == "epsilon_of_rho" else [{name: value}]
        for row in rows:
            for key, entry in sorted(row.items()):
                yield key
                yield entry if key in ("relation", "bands_from") else read_number(entry)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6)  # also true of two infinities


def check_epsilons(spends: list[Spend], certificate: dict[str, Any]) -> list[Check]:
    """Compute the numbers of a certificate again, by two accountants and an optimistic estimate.

    Args:
        spends: from the ledger, or from the certificate itself where there is no ledger.
        certificate: of the right shape.
    """
    relation, first_delta = certificate["relation"], float(certificate["epsilons"][0]["delta"])
    checks = []
    for pair in certificate["epsilons"]:
        delta, stated = float(pair["delta"]), read_number(pair["epsilon"])
        found = joint_epsilon(spends, delta, relation)
        holds = _close(found, stated)
        checks.append(
            Check(
                f"epsilon at delta {delta:g}", holds, f"stated {upper(stated, '.4f')}, recomputed {upper(found, '.4f')}"
            )
        )
    found = total_variation(spends, relation)
    stated = float(certificate["total_variation"])
    checks.append(Check("total variation", _close(found, stated), f"{stated:.4f}, {found:.4f}"))
    stated = read_number(certificate["epsilons"][0]["epsilon"])
    for number, part in enumerate(account_parts(spends, relation), start=1):
        renyi, lower = second_opinion(part, first_delta, relation)
        if renyi is not None:
            detail = f"{renyi:.4f} against at least {lower:.4f}"
            checks.append(
                Check(f"Renyi DP is not below the optimistic estimate, part {number}", renyi >= lower, detail)
            )
        detail = f"{stated:.4f} against at least {lower:.4f}"
        checks.append(Check(f"epsilon is not below the optimistic estimate, part {number}", stated >= lower, detail))
    return checks


def second_opinion(part: tuple[Spend, ...], delta: float, relation: Relation) -> tuple[float | None, float]:
    """(Renyi upper bound or None, optimistic PLD estimate) of spends on the same units: no valid bound lies below the second.

    The optimistic estimate rounds every loss down, which costs about half a grid step a training step: the grid is as fine as
    the number of steps asks for.
    """
    grid = min(1e-4, max(2e-6, 0.05 / composed_steps(part)))
    return rdp_epsilon(part, delta, relation), _optimistic(part, delta, relation, grid)


@functools.lru_cache(maxsize=64)
def _optimistic(part: tuple[Spend, ...], delta: float, relation: Relation, grid: float) -> float:
    return Account(part, relation, grid, pessimistic=False).epsilon(delta)


def _check_files(stated: dict[str, str], release: Path) -> Check:
    found = file_digests(release / "model")
    present = {f"model/{name}": digest for name, digest in found.items()}
    changed = sorted(name for name in {*stated, *present} if stated.get(name) != present.get(name))
    return Check("released files", not changed, some_names(changed) or f"{len(stated)} files as certified")


def some_names(names: list[str]) -> str:
    """The first names of files; what no terminal should print is escaped, as whoever has the folder names them."""
    shown = ", ".join(ascii(name)[1:-1] for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"

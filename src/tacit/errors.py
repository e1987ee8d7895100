"""Every error that tacit raises on purpose, and the exit code that the command line gives it.

    TacitError
    ├── UsageError        2   the command or the configuration is wrong
    │   └── RefusedError  2   the configuration asks for a guarantee that cannot be proved
    ├── BudgetError       3   the privacy budget would be exceeded
    ├── DataError         4   a file is missing, empty, malformed or over a cap
    │   ├── LedgerError   4   the ledger was altered, or disagrees with the certificate
    │   └── StorageError  4   a disk is full, or cannot be written
    ├── AuditError        5   the audit's gate failed
    │   └── ContradictedError  6   a lower bound on epsilon is above the proven one
    └── LostError         7   another of several processes ended, or is silent
        └── OtherRankError    its exit code   another of several processes failed first, and says why

An error's message is one line: what is wrong, where, and what to do. It holds no private text: readers name a file and a line
number, never the line. It may hold names of columns, for which the first row of a CSV file without a header may be taken
(docs/sharp-edges.md).
"""

from __future__ import annotations

__all__ = [
    "AuditError",
    "BudgetError",
    "ContradictedError",
    "DataError",
    "LedgerError",
    "LostError",
    "OtherRankError",
    "RefusedError",
    "StorageError",
    "TacitError",
    "UsageError",
]


class TacitError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line returns."""

    exit_code = 1


class UsageError(TacitError):
    """The command or the configuration is wrong (exit code 2)."""

    exit_code = 2


class RefusedError(UsageError):
    """A configuration whose guarantee cannot be proved (exit code 2).

    Args:
        reason: the stable reason code, such as ``"delta-too-large"``; documented in docs/guarantees.md.
        message: one line: what is refused and what to do instead.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"refused ({reason}): {message}")
        self.reason = reason


class BudgetError(TacitError):
    """The privacy budget would be exceeded; nothing was spent (exit code 3)."""

    exit_code = 3


class DataError(TacitError):
    """A file is missing, empty, malformed or over a cap (exit code 4)."""

    exit_code = 4


class LedgerError(DataError):
    """The ledger was altered, or disagrees with the certificate (exit code 4)."""


class StorageError(DataError):
    """A disk is full, or cannot be written (exit code 4). What was done until then is there, and the same command goes on with it.

    Args:
        full: whether it is full.
    """

    def __init__(self, message: str, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class AuditError(TacitError):
    """The audit's gate failed (exit code 5)."""

    exit_code = 5


class ContradictedError(AuditError):
    """The audit's lower bound on epsilon is above the proven epsilon (exit code 6)."""

    exit_code = 6


class LostError(TacitError):
    """Another of several processes ended, or is silent (exit code 7); the same command goes on."""

    exit_code = 7


class OtherRankError(LostError):
    """Another of several processes failed first, and has said why (exit code: that one's).

    Args:
        message: what that one says.
        exit_code: of that one.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

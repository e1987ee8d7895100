"""The ledger: every release of a run, on disk and synced before its value exists.

One SQLite file (write-ahead log, synchronous=FULL) with one table of rows. A row is of kind

    open    what the run promises: unit, relation, budget, configuration, key commitment (always the first row)
    plan    a stage's event, its partition of the units and how often it may run
    bind    a public fingerprint that must not change between two starts of the run
    spend   a stage ran ``count`` times, from step ``first`` on
    release the manifest of a released folder, by its digest; the certificate's head is the row before the first of them

and holds a SHA-256 digest over the row before it and its own content, so a row that is altered, dropped or reordered breaks
the chain. Only the last row ever changes: a spend of the same stage raises its count (thousands of steps are one row).
The end of the chain is pinned by the certificate, which holds its digest.

Steps are numbered, and noise, sampling and masks are functions of (key, step). A killed run that repeats a step repeats its
very output, so `Ledger.charge` for a step that is already paid is free; restoring an older checkpoint never un-spends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tacit.errors import BudgetError, LedgerError, UsageError
from tacit.files import storage_error
from tacit.privacy.events import Chosen, Event, Exchange, Spend, event_from_dict, event_to_dict
from tacit.privacy.ledger_rows import LedgerHeader, LedgerRow, StagePlan, check_rows
from tacit.privacy.provenance import is_inherited
from tacit.privacy.rounded import upper
from tacit.privacy.strict_json import parse_strict

__all__ = ["Ledger", "LedgerHeader", "LedgerRow", "StagePlan"]

_SCHEMA = """
CREATE TABLE rows (
    sequence INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    digest TEXT NOT NULL
)"""


_TABLES = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'"
"""Of all that is in the file; nobody can give a name of SQLite's own."""


def _canonical(values: Any) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _digest(previous: str, kind: str, body: str, first: int, count: int) -> str:
    return hashlib.sha256(_canonical([previous, kind, body, first, count]).encode()).hexdigest()


def _log_of(path: Path) -> Path:
    """SQLite's write-ahead log."""
    return path.with_name(path.name + "-wal")


def _number(value: float) -> float | str:
    return "infinity" if math.isinf(value) else value


class Ledger:
    """The ledger of one run. Use `Ledger.create` or `Ledger.open`; close it when done (or use it in ``with``)."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._rows = list(self._read())
        self._check_chain()

    @classmethod
    def create(cls, path: Path, header: LedgerHeader) -> Ledger:
        """A new ledger whose first row is the header.

        Raises:
            LedgerError: the file exists, or the write-ahead log of a lost one: SQLite would read it into the new ledger.
        """
        if path.exists():
            raise LedgerError(f"{path} exists already: open it, or choose another run folder")
        log = _log_of(path)
        if log.exists():
            raise LedgerError(f"{log}: left by a ledger that is gone; bring {path.name} back, or remove this file")
        partial = path.with_name(path.name + ".partial")
        partial.unlink(missing_ok=True)
        body = _canonical({**header.__dict__, "epsilon": _number(header.epsilon)})
        connection = sqlite3.connect(partial)
        with connection:
            connection.execute(_SCHEMA)
            connection.execute(
                "INSERT INTO rows VALUES (0, 'open', ?, 0, 0, ?)", (body, _digest("", "open", body, 0, 0))
            )
        connection.close()
        partial.replace(path)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, *, readonly: bool = False) -> Ledger:
        """An existing ledger; its chain is checked.

        Raises:
            LedgerError: no such file, not a ledger, a broken chain, or a row that tacit does not write.
        """
        if not path.is_file():
            raise LedgerError(f"{path}: no ledger there; `tacit run CONFIG` makes one")
        uri = f"{path.resolve().as_uri()}?mode={'ro' if readonly else 'rw'}"
        if readonly and not _log_of(path).exists() and not os.access(path.parent, os.W_OK):
            uri += "&immutable=1"  # SQLite cannot make its log there; without one the file alone is the whole ledger
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10)
        try:
            if not readonly:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
            if connection.execute(_TABLES).fetchall() != [(_SCHEMA.strip(),)]:
                raise LedgerError(f"{path}: it holds more than a ledger's rows, or others")  # such as a trigger
            return cls(connection, path)
        except (
            sqlite3.DatabaseError,
            TypeError,
            ValueError,
            RecursionError,
        ) as error:  # the last three: a value of a type, coding or depth that no row has
            connection.close()
            refusal = storage_error(error, path)
            if refusal is not None and (refusal.full or not readonly):
                raise refusal from None
            raise LedgerError(f"{path}: not a ledger, or damaged") from None
        except LedgerError:
            connection.close()
            raise

    def close(self) -> None:
        """Close the file; afterwards the write-ahead log is folded in."""
        self._connection.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # reading ---------------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[LedgerRow, ...]:
        """All rows in order."""
        return tuple(self._rows)

    @property
    def head(self) -> str:
        """The digest of the last row: it pins the whole ledger."""
        return self._rows[-1].digest

    @property
    def certified_head(self) -> str:
        """The digest of the last row that is not of a release: what a certificate pins. Only rows of releases come after it."""
        return next(row.digest for row in reversed(self._rows) if row.kind != "release")

    @property
    def header(self) -> LedgerHeader:
        """The first row."""
        body = dict(self._rows[0].body)
        body["epsilon"] = float(body["epsilon"])
        return LedgerHeader(**body)

    @property
    def plans(self) -> dict[str, StagePlan]:
        """The planned stages by name, in the order in which they were planned."""
        plans = (self._plan_of(row.body) for row in self._rows if row.kind == "plan")
        return {plan.stage: plan for plan in plans}

    def spent(self, stage: str) -> int:
        """How often the stage's event has been paid for."""
        return sum(row.count for row in self._rows if row.kind == "spend" and row.body["stage"] == stage)

    def bound(self, name: str) -> str | None:
        """The fingerprint or statement that was bound under a name; None where there is none."""
        return next((row.body["value"] for row in self._rows if row.kind == "bind" and row.body["name"] == name), None)

    def spends(self) -> list[Spend]:
        """All that was paid so far, in the order in which it was first paid for: what epsilon is computed from."""
        return list(self.spends_by_stage().values())

    def spends_by_stage(self) -> dict[str, Spend]:
        """The spends of `spends`, in the same order, with the stage that paid."""
        return {
            plan.stage: Spend(plan.event, self.spent(plan.stage), plan.partition)
            for plan in self._in_order(self.plans.values())
            if self.spent(plan.stage)
        }

    @property
    def has_paid(self) -> bool:
        """Whether this run has paid for anything itself, beside what it took over."""
        return any(row.kind == "spend" and not is_inherited(row.body["stage"]) for row in self._rows)

    # writing ---------------------------------------------------------------------------------------------------------

    def plan(self, stage: str, event: Event, limit: int, partition: str = "training") -> None:
        """Declare a stage before it touches data; planning the same again is free.

        Raises:
            BudgetError: all planned stages with this one would exceed the run's budget. Nothing is written.
            LedgerError: the stage was planned differently before.
        """
        from tacit.privacy.accounting.accountant import (
            joint_epsilon,  # with half a second of imports, for who plans alone
        )

        wanted = StagePlan(stage, event, limit, partition)
        known = self.plans.get(stage)
        if known == wanted:
            return
        if known is not None:
            raise LedgerError(f"{self._path}: stage {stage!r} was planned differently: use a new run folder")
        stages = self._in_order((*self.plans.values(), wanted))
        planned = [Spend(plan.event, plan.limit, plan.partition) for plan in stages]
        header = self.header
        if not math.isinf(header.epsilon):
            total = joint_epsilon(planned, header.delta, header.relation)
            if total > header.epsilon:
                raise BudgetError(
                    f"stage {stage!r} would bring epsilon to {upper(total)} at delta {header.delta:g}; "
                    f"the budget is {header.epsilon:g}. Nothing was spent: lower its steps or raise its noise"
                )
        body = {"stage": stage, "event": event_to_dict(event), "limit": limit, "partition": partition}
        self._append("plan", body)

    def bind(self, name: str, value: str) -> None:
        """Record a public fingerprint; the same value again is free.

        Raises:
            LedgerError: another value was bound under this name: what it stands for has changed.
        """
        for row in self._rows:
            if row.kind == "bind" and row.body["name"] == name:
                if row.body["value"] != value:
                    raise LedgerError(
                        f"{self._path}: {name} changed since this run began; the guarantee would not hold: "
                        "restore it, end the run with the tacit that began it, or use a new run folder"
                    )
                return
        self._append("bind", {"name": name, "value": value})

    def release(self, digest: str) -> None:
        """Record the manifest of a release that is about to be complete; the same one again is free.

        Args:
            digest: SHA-256 of the manifest's bytes.
        """
        last = self._rows[-1]
        if last.kind != "release" or last.body["manifest"] != digest:
            self._append("release", {"manifest": digest})

    def charge(self, stage: str, step: int = 0) -> None:
        """Pay for step ``step`` (counted from 0) of a planned stage; on disk and synced when this returns.

        A step that is already paid is free (see the module's text). Steps are paid in order.

        Raises:
            BudgetError: the step lies beyond the stage's limit. Nothing is written.
            UsageError: the stage was not planned, or a step is negative.
            LedgerError: steps would be skipped: the ledger is older than what asks.
        """
        if step < 0:
            raise UsageError(f"stage {stage!r}: step is {step}; steps are counted from 0")
        plan = self.plans.get(stage)
        if plan is None:
            raise UsageError(f"stage {stage!r} was not planned in the ledger")
        paid = self.spent(stage)
        if step < paid:
            return
        if step >= plan.limit:
            raise BudgetError(f"stage {stage!r} has used all its {plan.limit} steps; step {step} is refused")
        if step > paid:
            raise LedgerError(
                f"the ledger has {paid} steps of stage {stage!r} and step {step} would skip some: it is older than what lies beside "
                "it; put back the whole folder as it was, ledger.sqlite-wal included"
            )
        last = self._rows[-1]
        if last.kind == "spend" and last.body["stage"] == stage:
            self._extend(last)
        else:
            self._append("spend", {"stage": stage}, first=paid, count=1)

    def inherit(self, stage: str, spend: Spend) -> None:
        """Take over what another run has spent on the same units: planned and paid in whole; the same again is free.

        Args:
            stage: its name here, which no stage of this run has.
            spend: from the other run's ledger or certificate.

        Raises:
            BudgetError: it exceeds this run's budget, alone or with what is planned. Nothing is written.
            LedgerError: the stage was taken over differently before.
        """
        assert not isinstance(spend.event, Exchange | Chosen)  # accounts alone have these
        self.plan(stage, spend.event, spend.count, spend.partition)
        if self.spent(stage) == 0:
            self._append("spend", {"stage": stage}, first=0, count=spend.count)

    # inside ----------------------------------------------------------------------------------------------------------

    def _in_order(self, plans: Iterable[StagePlan]) -> list[StagePlan]:
        """The stages that were paid for first, then the others as planned: no release can have chosen what came before it."""
        first = {row.body["stage"]: row.sequence for row in reversed(self._rows) if row.kind == "spend"}
        return sorted(plans, key=lambda plan: first.get(plan.stage, math.inf))

    @staticmethod
    def _plan_of(body: dict[str, Any]) -> StagePlan:
        return StagePlan(body["stage"], event_from_dict(body["event"]), body["limit"], body["partition"])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            stored = self._connection.execute("SELECT digest FROM rows ORDER BY sequence DESC LIMIT 1").fetchone()
            if stored[0] != self.head:
                raise LedgerError(f"{self._path}: another process wrote to this ledger; stop it and start again")
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite has rolled back itself where the disk is full
                self._connection.execute("ROLLBACK")
            raise

    def _append(self, kind: str, body: dict[str, Any], first: int = 0, count: int = 0) -> None:
        text = _canonical(body)
        digest = _digest(self.head, kind, text, first, count)
        row = LedgerRow(len(self._rows), kind, body, first, count, digest)
        with self._transaction():
            self._connection.execute(
                "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", (row.sequence, kind, text, first, count, digest)
            )
        self._rows.append(row)

    def _extend(self, last: LedgerRow) -> None:
        previous = self._rows[-2].digest
        count = last.count + 1
        digest = _digest(previous, last.kind, _canonical(last.body), last.first, count)
        with self._transaction():
            self._connection.execute(
                "UPDATE rows SET count = ?, digest = ? WHERE sequence = ?", (count, digest, last.sequence)
            )
        self._rows[-1] = LedgerRow(last.sequence, last.kind, last.body, last.first, count, digest)

    def _read(self) -> Iterator[LedgerRow]:
        query = "SELECT sequence, kind, body, first, count, digest FROM rows ORDER BY sequence"
        for sequence, kind, body, first, count, digest in self._connection.execute(query):
            try:
                parsed = parse_strict(body)
            except ValueError:
                raise LedgerError(f"{self._path}: row {sequence} was altered (not JSON)") from None
            yield LedgerRow(sequence, kind, parsed, first, count, digest)

    def _check_chain(self) -> None:
        if not self._rows or self._rows[0].kind != "open":
            raise LedgerError(f"{self._path}: the first row is missing")
        previous = ""
        for position, row in enumerate(self._rows):
            expected = _digest(previous, row.kind, _canonical(row.body), row.first, row.count)
            if row.sequence != position or row.digest != expected:
                raise LedgerError(f"{self._path}: row {row.sequence} was altered, or a row before it is missing")
            previous = row.digest
        try:
            check_rows(self._rows)
        except ValueError as error:
            raise LedgerError(
                f"{self._path}: its digests hold, but tacit did not write it ({error}); bring the ledger back"
            ) from None

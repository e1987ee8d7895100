"""Which units an entry of the ledger read, in the report's words."""

from __future__ import annotations

from pathlib import Path

from tacit.planning import HELD_OUT, TRAINING
from tacit.privacy.events import EVERY_PART, Gaussian, Spend, of_run
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.report.collect.ledger import ledger_rows

WORDS = {TRAINING: "training units", HELD_OUT: "held-out units", EVERY_PART: "all units", "training": "training units"}


def test_an_entry_of_an_earlier_run_read_what_it_read_there(tmp_path: Path) -> None:
    """An inherited evaluation, and the event of a key that everyone can make, were "training units"."""
    header = LedgerHeader("user", "add-or-remove", 1000, 80.0, 1e-5, "config", "key")
    with Ledger.create(tmp_path / "ledger.sqlite", header) as ledger:
        for number, part in enumerate(WORDS):
            ledger.inherit(f"own {number}", Spend(Gaussian(9.0), 1, part))
            ledger.inherit(f"earlier {number}", of_run(of_run(Spend(Gaussian(9.0), 1, part), "a"), "b"))
        rows = ledger_rows(ledger)
    assert [row.partition for row in rows] == [word for word in WORDS.values() for _ in range(2)]

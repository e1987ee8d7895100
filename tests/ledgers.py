"""Ledgers whose rows somebody has rewritten, with digests that hold: made without the code that is tested."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

Row = tuple[str, Any, Any, Any]
"""Kind, body, first, count."""


def rewrite_rows(path: Path, change: Callable[[list[Row]], list[Row]]) -> None:
    """Replace all rows of a ledger by changed ones, and compute the chain again."""
    with closing(sqlite3.connect(path)) as connection, connection:
        found = connection.execute("SELECT kind, body, first, count FROM rows ORDER BY sequence").fetchall()
        rows = change([(kind, json.loads(body), first, count) for kind, body, first, count in found])
        connection.execute("DELETE FROM rows")
        previous = ""
        for number, (kind, body, first, count) in enumerate(rows):
            text = _canonical(body)
            previous = hashlib.sha256(_canonical([previous, kind, text, first, count]).encode()).hexdigest()
            values = (number, kind, text, first, count, previous)
            connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", values)


def _canonical(values: Any) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

"""The papers that `tacit reproduce` knows, a row a paper."""

from __future__ import annotations

from typing import Any

from tacit.reproduce.adp.paper import ADP
from tacit.reproduce.crt.paper import CRT
from tacit.reproduce.driver import Paper
from tacit.reproduce.hoory.paper import HOORY

__all__ = ["PAPERS"]

PAPERS: dict[str, Paper[Any]] = {
    "crt": CRT,
    "adp": ADP,
    "hoory": HOORY,
}
"""To add one: its package and a line here (docs/adding.md)."""

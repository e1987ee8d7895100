"""The attacks: one line each."""

from __future__ import annotations

from hostile.attack import Attack
from hostile.kills import KILLS

__all__ = ["ATTACKS"]

ATTACKS: dict[str, Attack] = {
    "kills": KILLS,
}

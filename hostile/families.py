"""The attacks: one line each."""

from __future__ import annotations

from hostile.attack import Attack
from hostile.clock_trials import CLOCKS
from hostile.configurations import CONFIGURATIONS
from hostile.corpora import CORPORA
from hostile.disks import DISKS
from hostile.folders import FOLDERS_ATTACK
from hostile.kills import KILLS
from hostile.memory import MEMORY
from hostile.readonly import READONLY
from hostile.rivals import RIVALS
from hostile.sentinel import SENTINELS

__all__ = ["ATTACKS"]

ATTACKS: dict[str, Attack] = {
    "kills": KILLS,
    "disks": DISKS,
    "readonly": READONLY,
    "clocks": CLOCKS,
    "memory": MEMORY,
    "rivals": RIVALS,
    "corpora": CORPORA,
    "configurations": CONFIGURATIONS,
    "folders": FOLDERS_ATTACK,
    "sentinel": SENTINELS,
}

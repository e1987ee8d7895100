"""What the stages of the attacks have left in run/private, by attack; a report reads it, which needs no torch."""

from __future__ import annotations

from pathlib import Path

from tacit.audit.attack import Attack, Found
from tacit.audit.attacks import asked_attacks
from tacit.config import RunConfig
from tacit.files import read_result, write_json
from tacit.runs.folder import RunFolder

__all__ = ["attack_file", "store", "stored_attacks"]


def store(folder: RunFolder, attack: Attack, found: Found) -> None:
    """Write what an attack found to its file in run/private."""
    write_json(attack_file(folder, attack), found)


def stored_attacks(config: RunConfig, folder: RunFolder) -> dict[str, Found]:
    """What the stages of the attacks found, by attack, of those that the configuration asks for and that have been made."""
    attacks = [attack for attack in asked_attacks(config) if attack_file(folder, attack).exists()]
    return {attack.name: read_result(attack_file(folder, attack)) for attack in attacks}


def attack_file(folder: RunFolder, attack: Attack) -> Path:
    """Where it is in run/private."""
    return folder.private / f"{attack.stage_name}.json"

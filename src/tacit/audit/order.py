"""The attacks that a run can make, in order, each by its stage: one row an attack, whose module is imported when it is asked for."""

from __future__ import annotations

__all__ = ["ATTACK_STAGES"]

ATTACK_STAGES: dict[str, str] = {
    "audit": "tacit.audit.exposure_attack:EXPOSURE",
    "planted-contexts": "tacit.audit.planted_contexts_attack:PLANTED_CONTEXTS",
    "membership": "tacit.audit.membership_attack:MEMBERSHIP",
    "coins": "tacit.audit.coins_attack:COINS",
    "white-box": "tacit.audit.white_box_attack:WHITE_BOX",
}
"""``"module:name"`` of an `Attack`, by its `Attack.stage_name`. A run makes them, and a report tells them, in this order."""

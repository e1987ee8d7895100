"""The attacks that a run can make, by name: `ATTACKS`. A new one is one file and one line of `tacit.attack_stages`
(docs/adding.md#an-attack)."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.attack_stages import ATTACK_STAGES
from tacit.audit.attack import RELEASED, Answer, Attack, Found, joint_p_values, shown
from tacit.audit.coins_plan import check_coin_names
from tacit.config import RunConfig
from tacit.config.base import named
from tacit.config.load import validated
from tacit.errors import AuditError, ContradictedError, UsageError

__all__ = ["ATTACKS", "answer_of", "asked_attacks", "check_attacks", "check_gate"]

ATTACKS: dict[str, Attack] = {attack.name: attack for attack in (named(row.place) for row in ATTACK_STAGES.values())}
"""In the order in which a run makes them and a report tells them."""


def asked_attacks(config: RunConfig) -> list[Attack]:
    """The attacks that a configuration asks for, in order."""
    return [attack for attack in ATTACKS.values() if attack.is_asked(config)]


def check_attacks(config: RunConfig) -> None:
    """Check the section ``audit.attacks``, whose options are each attack's own, and the names in ``audit.coins``.

    Raises:
        UsageError: it names no attack that is asked for there, the options are not those of the attack, or it cannot be made; or
            there is no such score, bound or kind of examples.
    """
    check_coin_names(config)
    for name, values in config.audit.attacks.items() if config.audit else ():
        known = [other for other, attack in ATTACKS.items() if attack.asked is None]
        if name not in known:
            there = ", ".join(known) if known else "none"
            raise UsageError(f"audit.attacks: there is no attack {name!r} to ask for there; there are: {there}")
        validated(ATTACKS[name].options, values, f"configuration: audit.attacks.{name}")
        ATTACKS[name].check(config)


def answer_of(attack: Attack, config: RunConfig, found: Found, curator: bool) -> Answer | str | None:
    """What the attack tells a reader: rows, or why it is undecided; None: nothing that the reader may see.

    Raises:
        UsageError: the attack answers with rows of another model than it was asked about, such as the control's for the public.
    """
    seen = shown(attack, found, curator)
    if not seen:
        return None
    if "undecided" in seen:
        return str(seen["undecided"])
    answer = attack.answer(config, seen)
    if any(row.model not in seen for row in answer.rows):
        raise UsageError(
            f"attack {attack.name}: its answer has rows of a model that it was not asked about; such rows are the curator's alone"
        )
    return answer if answer.rows else None


def check_gate(config: RunConfig, found: Mapping[str, Found]) -> None:
    """Fail when a public attack contradicts the certificate, or a test of one finds the released model below the configured p-value.

    What is the curator's alone decides nothing here: whether a release is made must not hang on it.

    Args:
        found: by attack.

    Raises:
        ContradictedError: a lower bound is above the proven epsilon.
        AuditError: a test is below the gate; several rows may be one test.
    """
    for attack in asked_attacks(config):
        seen = shown(attack, found.get(attack.name, {}), curator=False) or {}
        why = attack.refuted(config, seen[RELEASED]) if attack.refuted is not None and RELEASED in seen else None
        if why is not None:
            raise ContradictedError(f"audit: {why}; do not publish this release: check the engine and the ledger")
    gate = config.audit.max_exposure_p_value if config.audit else 0.0
    for attack in asked_attacks(config):
        answer = answer_of(attack, config, found[attack.name], curator=False) if attack.name in found else None
        if not isinstance(answer, Answer):
            continue
        rows = [row for row in answer.rows if row.model == RELEASED]
        for test, p_value in joint_p_values(rows).items():
            if p_value < gate:
                values = ", ".join(
                    f"{row.name} by {row.value:.2f} {row.unit}" for row in rows if test in (row.test, row.name)
                )
                raise AuditError(
                    f"audit: {attack.subject} are given away: {values}, p = {p_value:.2g}, below the gate {gate:g}; do not "
                    "publish this release: check the engine and the ledger"
                )

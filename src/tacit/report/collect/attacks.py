"""What a report says of the attacks: their answers as rows of its schema. No attack is known here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tacit.audit.attack import Answer, Attack, AttackRow, Found
from tacit.audit.attacks import answer_of, asked_attacks
from tacit.config import RunConfig
from tacit.report import schema

__all__ = ["attack_facts"]


def attack_facts(config: RunConfig, found: Mapping[str, Found], curator: bool) -> tuple[schema.AttackFacts, ...]:
    """What each attack that was asked for tells this reader, in order; one that has nothing for them is left out.

    Args:
        found: by attack, what it measured.
        curator: whether the reader is the curator, who alone sees the control and the attacks that read private text.

    Raises:
        UsageError: an attack answers with rows of a model that this reader may not see.
    """
    answers = [
        (attack, answer_of(attack, config, found[attack.name], curator))
        for attack in asked_attacks(config)
        if attack.name in found
    ]
    return tuple(_facts(attack, answer) for attack, answer in answers if answer is not None)


def _facts(attack: Attack, answer: Answer | str) -> schema.AttackFacts:
    undecided = answer if isinstance(answer, str) else None
    told = Answer(()) if isinstance(answer, str) else answer
    return schema.AttackFacts(
        name=attack.name,
        title=attack.title,
        public=attack.public,
        subject=attack.subject,
        counted=attack.counted,
        introduction=told.introduction,
        note=told.note,
        terms=tuple(schema.Term(word=word, meaning=meaning) for word, meaning in attack.terms),
        rows=tuple(map(_row, sorted(told.rows, key=lambda row: row.model != schema.RELEASED))),
        undecided=undecided,
    )


def _row(row: AttackRow) -> schema.AttackRow:
    values = dataclasses.asdict(row)  # what the schema does not know is refused there
    return schema.AttackRow.model_validate(values | {"test": row.test or row.name})

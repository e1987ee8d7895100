"""What an attack found, in a sentence each; from its rows alone, whichever attack it is.

An attack that finds nothing says as much as its positive control shows, and by itself nothing: it is then called undecided.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.report.prose.numbers import at_least_text, number_text
from tacit.report.schema import EPSILON, RELEASED, SHARE, AttackFacts, AttackRow
from tacit.report.schema.attacks import SIGNIFICANT

__all__ = ["NO_ATTACK", "amount_text", "attack_sentences", "value_text"]

NO_ATTACK = "No attack was run on this model."


def attack_sentences(found: AttackFacts, screened: bool = False) -> tuple[str, ...]:
    """The verdict on one attack. Tests are corrected for each other (Bonferroni), and so are the rows of one test.

    Args:
        screened: whether the control was trained on redacted text.
    """
    if found.undecided is not None:
        return (
            f"Whether the model gives {found.subject} away is {found.undecided}. This says nothing for the model and nothing "
            "against it.",
        )
    released = found.tests_of(RELEASED)
    control = {} if found.control is None else found.tests_of(found.control)
    rows = [row for row in found.rows if row.model == RELEASED]
    sentences = [*found.introduction]
    if released:
        sentences.append(_released_sentence(found, released))
    sentences += [_row_sentence(row) for row in rows if row.words]
    if control:
        sentences.append(_control_sentence(found, control, screened))
    if not any(released.values()) and not any(row.is_lower_bound and row.value > 0 for row in rows):
        sentences.append(_undecided_sentence(control))
    if compared := [row for row in found.rows if row.judged and row.baseline is not None]:
        sentences.append(_baseline_sentence(compared))
    sentences.append(_CLOSING if found.public else _CURATORS_CLOSING)
    return tuple(sentences)


_CLOSING = "This is a test of one attack. One that fails proves nothing: a better one may exist."
_CURATORS_CLOSING = (
    "This is one attack: a better one may exist. It reads what is not released, and no certificate covers its numbers."
)


def _counted(found: AttackFacts, count: int) -> str:
    return f"{count} {found.counted}" if count == 1 else f"{count} {found.counted}s"


def _level(tests: int) -> str:
    return f"{SIGNIFICANT}" if tests == 1 else f"{SIGNIFICANT} / {tests}"


def _released_sentence(found: AttackFacts, tests: dict[str, bool]) -> str:
    """How many tests the released model stands out in, and by which rule."""
    joint, standing_out, all_tests = found.joint_p_values(RELEASED), sum(tests.values()), _counted(found, len(tests))
    level = _level(len(tests))
    if standing_out:
        rule = f"p-value below {level}" if joint else "by 95 % intervals"
        return (
            f"The released model gives {found.subject} away more than chance would in {standing_out} of {all_tests} ({rule}): it "
            "remembers something of them."
        )
    rule = (
        f"smallest p-value {number_text(min(joint.values()), 2)}; below {level} would stand out"
        if joint
        else "by 95 % intervals"
    )
    where = f"In none of {all_tests} does" if len(tests) > 1 else f"Not in the one {all_tests.removeprefix('1 ')} does"
    return f"{where} the released model give {found.subject} away more than chance would ({rule})."


def _row_sentence(row: AttackRow) -> str:
    """The row's words; where its interval is judged, with what that says."""
    if not row.judged or row.p_value is not None or row.null is None or row.interval is None:
        return f"{row.words}."
    if row.above_chance:
        verdict = "better than chance: the model remembers something"
    elif row.interval[0] > row.null:
        verdict = "better than chance, but so is an attacker without the model"
    elif row.interval[1] < row.null:
        verdict = "worse than chance, as happens to one such attack in forty by chance"
    else:
        verdict = "no better than chance"
    return f"{row.words}: {verdict}."


def _control_sentence(found: AttackFacts, tests: dict[str, bool], screened: bool) -> str:
    standing_out = sum(tests.values())
    if standing_out:
        best = _largest(found, tests)
        return (
            f"The {found.control} gives {found.subject} away in {standing_out} of {_counted(found, len(tests))}, up to "
            f"{amount_text(best.value, best.unit)}{_chance(best)}: the attack can see memory."
        )
    return f"The {found.control} does not give them away either: {_why_nothing(screened)}."


def _largest(found: AttackFacts, tests: dict[str, bool]) -> AttackRow:
    """The row with the largest value among the control's rows that stand out."""
    rows = [row for row in found.rows if row.model != RELEASED and row.judged and tests[row.test]]
    return max(rows, key=lambda row: row.value)


def amount_text(value: float, unit: str) -> str:
    """What a row found, with its unit."""
    return value_text(value, unit) if unit == SHARE else f"{value_text(value, unit)} {unit}"


def value_text(value: float, unit: str) -> str:
    """What a row found; a lower bound is rounded down."""
    return at_least_text(value) if unit == EPSILON else number_text(value, 3)


def _chance(row: AttackRow) -> str:
    return "" if row.null is None else f" where chance gives {number_text(row.null, 3)}"


def _why_nothing(screened: bool) -> str:
    """Why an attack may find nothing in the control; with screening it was trained on redacted text."""
    if screened:
        return "either the redaction, which it has too, keeps them out, or this attack is too weak to show anything"
    return "this attack is too weak to show anything"


def _undecided_sentence(control: dict[str, bool]) -> str:
    """What finding nothing is worth: as much as the positive control shows, and by itself nothing.

    The control is trained without DP or noise on private text, so what it shows is the curator's alone. The public page must not
    depend on it, not even by a word: there it is undecided, whatever the control has shown.
    """
    if not control:
        return (
            "This attack decides nothing by itself: only a positive control, trained on the private text without DP, shows whether "
            "it could have found anything, and the control is for the curator only. Undecided."
        )
    if any(control.values()):
        return "So the attack could have seen memory, and saw none in the released model."
    return "Undecided: an attack that finds nothing even in the control says nothing of the released model."


def _baseline_sentence(rows: Sequence[AttackRow]) -> str:
    """Whether what is found comes from the model."""
    if all(_is_at_chance(row) for row in rows):
        return (
            "Without the model an attacker does no better than chance, so what the attack finds comes from the model."
        )
    return (
        "Without the model an attacker differs from chance too: where this is so, the numbers say nothing about the model "
        "and are undecided."
    )


def _is_at_chance(row: AttackRow) -> bool:
    """Whether the row is at its null without any model."""
    return row.baseline is not None and row.null is not None and row.baseline.low <= row.null <= row.baseline.high

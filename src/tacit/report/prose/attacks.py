"""What the attacks found, in a sentence each: exposure of canaries, and for the curator membership inference."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.report.prose.numbers import NBSP, number_text
from tacit.report.schema import CONTROL, RELEASED, ExposureRow, MembershipFacts, MembershipRow

__all__ = ["audit_sentences", "membership_sentences"]

SIGNIFICANT = 0.05


def audit_sentences(rows: Sequence[ExposureRow], screened: bool = False) -> tuple[str, ...]:
    """What the attack on the model found, with a Bonferroni correction over the patterns of each model (and mean and highest)."""
    if not rows:
        return ("No attack was run on this model.",)
    released = [row for row in rows if row.model == RELEASED]
    control = [row for row in rows if row.model == CONTROL]
    sentences = [_released_sentence(released)] if released else []
    sentences += [_bits_sentence(row) for row in released if row.max_bits is not None]
    if control:
        sentences.append(_control_sentence(control, screened))
    if released and not _standing_out(released):
        sentences.append(_undecided_sentence(control))
    sentences.append("This is a test of one attack. One that fails proves nothing: a better one may exist.")
    return tuple(sentences)


def _undecided_sentence(control: Sequence[ExposureRow]) -> str:
    """What finding nothing is worth: as much as the positive control shows, and by itself nothing.

    The control is trained without DP on private text, so what it shows is the curator's alone. The public page must not depend on
    it, not even by a word: there it is undecided, whatever the control has shown.
    """
    if not control:
        return (
            "So this attack decides nothing by itself: whether it could have seen anything is shown by a positive control, which is "
            "trained on the private text without DP and is the curator’s alone. Undecided."
        )
    if _standing_out(control):
        return "So the attack could have seen memory, and saw none in the released model."
    return "Undecided: an attack that finds nothing even in the control says nothing of the released model."


def _standing_out(rows: Sequence[ExposureRow]) -> int:
    return sum(row.joint_p_value < SIGNIFICANT / len(rows) for row in rows)


def _level(rows: Sequence[ExposureRow]) -> str:
    return f"{SIGNIFICANT}" if len(rows) == 1 else f"{SIGNIFICANT} / {len(rows)}"


def _patterns(count: int) -> str:
    return f"{count} pattern" if count == 1 else f"{count} patterns"


def _released_sentence(rows: Sequence[ExposureRow]) -> str:
    found, total = _standing_out(rows), len(rows)
    if found:
        return (
            f"The released model ranks the planted secrets higher than chance in {found} of {_patterns(total)} "
            f"(p-value below {_level(rows)}): it remembers something of them."
        )
    smallest = min(row.joint_p_value for row in rows)
    return (
        f"In none of {_patterns(total)} does the released model rank the planted secrets higher than chance would "
        f"(smallest p-value {number_text(smallest, 2)}; below {_level(rows)} would stand out)."
    )


def _control_sentence(rows: Sequence[ExposureRow], screened: bool) -> str:
    found, total = _standing_out(rows), len(rows)
    if found:
        return f"The control without DP gives them away in {found} of {_patterns(total)}: the attack can see memory."
    return f"The control without DP does not give them away either: {_why_nothing(screened)}."


def _why_nothing(screened: bool) -> str:
    """Why an attack may find nothing in the control; with screening it was trained on redacted text."""
    if screened:
        return "either the redaction, which it has too, keeps them out, or this attack is too weak to show anything"
    return "this attack is too weak to show anything"


def _bits_sentence(row: ExposureRow) -> str:
    assert row.max_bits is not None
    assert row.null_max_bits is not None
    mean, chance, highest, chance_of_highest, ceiling = (
        number_text(value, 3)
        for value in (row.exposure_bits, row.null_bits, row.max_bits, row.null_max_bits, row.ceiling_bits)
    )
    return (
        f"Of {row.canaries} secrets “{row.pattern}” the mean exposure is {mean} bits, where chance gives {chance}, and the "
        f"highest is {highest}, where chance gives {chance_of_highest}; perfect recall would be {ceiling}."
    )


def membership_sentences(found: MembershipFacts | None, screened: bool = False) -> tuple[str, ...]:
    """What the attack on the private texts themselves found: for the curator alone."""
    if found is None:
        return ()
    if found.undecided is not None:
        return (
            f"Whether the model tells texts that it was trained on from others is {found.undecided}. This says nothing for the "
            "model and nothing against it.",
        )
    released = [row for row in found.rows if row.model == RELEASED]
    control = [row for row in found.rows if row.model == CONTROL]
    pairs = max(row.members for row in found.rows)
    fewer = f" ({found.pairs_wanted:,} were asked for; no more qualify)" if pairs < found.pairs_wanted else ""
    sentences = [
        f"An attacker is shown {pairs:,} texts with a secret from the part that the model was trained on and as many from the "
        f"part that was held out{fewer}, and says of each which it is, by how likely the model finds it; then of whole groups. "
        f"A coin is right 50{NBSP}% of the time.",
        *(_told_sentence(row) for row in released),
    ]
    if control:
        sentences.append(_told_control_sentence(control, screened))
    sentences.append(_blind_sentence(found.rows))
    sentences.append("This is one attack: a better one may exist. It reads private text, and no certificate covers it.")
    return tuple(sentences)


def _tells(row: MembershipRow) -> bool:
    """Whether the model gives something away: better than chance, where an attacker without the model is not."""
    return not row.at_chance and row.accuracy.value > 0.5 and row.blind_at_chance


def _share(row: MembershipRow) -> str:
    low, high = 100 * row.accuracy.low, 100 * row.accuracy.high
    return f"{100 * row.accuracy.value:.1f}{NBSP}% of the time (95{NBSP}% interval {low:.1f} to {high:.1f})"


def _told_sentence(row: MembershipRow) -> str:
    if _tells(row):
        verdict = "better than a coin: the model remembers something of its texts"
    elif row.at_chance:
        verdict = "no better than a coin"
    elif row.accuracy.value < 0.5:
        verdict = "worse than a coin, as chance makes one attack in forty"
    else:
        verdict = "better than a coin, but so is an attacker without the model"
    texts = "single texts" if row.texts == 1 else f"groups of {row.texts}"
    return f"With the released model, of {texts}, the attacker is right {_share(row)}: {verdict}."


def _told_control_sentence(rows: Sequence[MembershipRow], screened: bool) -> str:
    if any(map(_tells, rows)):
        best = max(filter(_tells, rows), key=lambda row: row.accuracy.value)
        return (
            f"With the control without DP the attacker is right up to {100 * best.accuracy.value:.1f}{NBSP}% of the time: the attack "
            "can see memory."
        )
    return (
        f"With the control without DP nothing is found: {_why_nothing(screened)}. What is not found in the released model is "
        "undecided."
    )


def _blind_sentence(rows: Sequence[MembershipRow]) -> str:
    if all(row.blind_at_chance for row in rows):
        return (
            "Without any model, by their characters and length, the two kinds of text are not told apart, so whatever is "
            "found comes from the model."
        )
    return (
        "Without any model, by their characters and length, the two kinds of text are told apart too: where that is so, the "
        "numbers say nothing about the model."
    )

"""What the report says in words: numbers as text, the verdict, the audit and the utility in a sentence each.

An upper bound is rounded up and a "1 in N" down, so that no rounded number claims more than the certificate. Sentences
are computed from the data alone and are plain text; the templates escape them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

import yaml
from markupsafe import Markup

from tacit.report.data import (
    CONTROL,
    INFINITY,
    RELEASED,
    UNIGRAM,
    EpsilonPair,
    ExposureRow,
    Guarantee,
    MembershipFacts,
    MembershipRow,
    ReportData,
    UtilityRow,
)

__all__ = [
    "Verdict",
    "audit_sentences",
    "bound_text",
    "even_odds_bound",
    "front_matter",
    "guess_bound",
    "loading_class",
    "markdown",
    "membership_sentences",
    "number_text",
    "odds_text",
    "outcome_factor",
    "percent_text",
    "power_text",
    "utility_sentences",
    "verdict",
]

SECRET_CHANCE = 1e-4
"""The chance of guessing a four-digit number: the secret that the verdict speaks of."""
WEAK = 0.99
"""An even-odds attacker who may be right more often than this is hardly limited, and the verdict says so."""
SIGNIFICANT = 0.05

NBSP = "\N{NO-BREAK SPACE}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# model kind -> (pipeline tag of the model hub, class that loads the model)
_TASKS = {"bert": ("fill-mask", "AutoModelForMaskedLM"), "gpt2": ("text-generation", "AutoModelForCausalLM")}


# --- numbers as text -------------------------------------------------------------------------------------------------


def power_text(value: float, digits: int = 3) -> str:
    """A small or large number as a power of ten, rounded up: ``2.5e-6`` is ``2.5 × 10⁻⁶``, ``1e-6`` is ``10⁻⁶``."""
    mantissa, exponent = f"{_ceiling(value, digits):e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return power if mantissa == "1" else f"{mantissa}{NBSP}×{NBSP}{power}"


def bound_text(value: float, digits: int = 3) -> str:
    """An upper bound, rounded up to significant digits: ``3.7612`` is ``3.77``, infinity is ``infinity``."""
    if math.isinf(value):
        return INFINITY
    if value == 0:
        return "0"
    if not 1e-3 <= value < 1e6:
        return power_text(value, digits)
    rounded = _ceiling(value, digits)
    return f"{rounded.to_integral():,f}" if rounded == rounded.to_integral() else f"{rounded:,f}"


def number_text(value: float | int | str, digits: int = 6) -> str:
    """A parameter or a measurement, rounded to the nearest: ``12000`` is ``12,000``, ``1e-06`` is ``10⁻⁶``."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    rounded = f"{value:,.{digits}g}"
    return power_text(float(rounded), digits) if "e" in rounded else rounded


def percent_text(probability: float) -> str:
    """An upper bound on a probability in per cent, rounded up; near 100 with as many digits as tell it from 100."""
    percent = Decimal(str(probability)) * 100
    decimals = 1 if percent < 99 else min(4, 1 - (100 - percent).adjusted()) if percent < 100 else 0
    rounded = percent.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING)
    return f"{100 if rounded == 100 else rounded}{NBSP}%"


def odds_text(probability: float) -> str:
    """An upper bound on a small probability as ``1 in N``, N rounded down; from a tenth on in per cent."""
    return f"1{NBSP}in{NBSP}{math.floor(1 / probability + 1e-9):,}" if probability < 0.1 else percent_text(probability)


def _ceiling(value: float, digits: int) -> Decimal:
    # str gives the shortest decimal that means this float: 1e-5 must not become 1.01e-5 by its last binary digit
    return Context(prec=digits, rounding=ROUND_CEILING).create_decimal(str(value))


# --- bounds that follow from (epsilon, delta) ------------------------------------------------------------------------


def outcome_factor(epsilon: float) -> float:
    """e^epsilon, infinite where a float ends."""
    return math.exp(epsilon) if epsilon < 700 else math.inf


def even_odds_bound(pair: EpsilonPair) -> float:
    """The largest chance with which an attacker who gives even odds to two neighbouring corpora names the right one.

    (e^epsilon + delta) / (1 + e^epsilon), half of one plus the largest total variation distance that (epsilon, delta)
    allows; the four-outcome mechanism of Kairouz, Oh, Viswanath 2015 reaches it. 1 for an infinite epsilon.
    """
    inverse = math.exp(-pair.epsilon)
    return (1 + pair.delta * inverse) / (1 + inverse)


def guess_bound(pair: EpsilonPair, chance: float) -> float:
    """The largest chance of guessing a secret of one unit that could be guessed with ``chance`` without the unit."""
    return min(1.0, outcome_factor(pair.epsilon) * chance + pair.delta)


# --- the verdict -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The report's first words.

    Args:
        headline: what it comes to.
        paragraph: the guarantee in plain words, for whom, and what an attacker gains.
        limited: what an attacker cannot do, one sentence each.
        not_covered: what the guarantee does not say, one sentence each.
        success: the even-odds attacker's largest chance of being right.
        basis: the formulas, and the points of the privacy curve that they were taken at.
    """

    headline: str
    paragraph: str
    limited: tuple[str, ...]
    not_covered: tuple[str, ...]
    success: float
    basis: str


def verdict(guarantee: Guarantee) -> Verdict:
    """The guarantee in plain words, computed from its numbers."""
    return _proved_verdict(guarantee) if guarantee.is_proved else _no_guarantee(guarantee)


def _proved_verdict(guarantee: Guarantee) -> Verdict:
    told = min(guarantee.epsilons, key=even_odds_bound)
    guessed = min(guarantee.epsilons, key=lambda pair: guess_bound(pair, SECRET_CHANCE))
    success = even_odds_bound(told)
    return Verdict(
        headline=f"A proved limit on what the release reveals about any one {guarantee.unit}"
        + (", but a weak one" if success >= WEAK else ""),
        paragraph=" ".join(
            (_promise(guarantee), _attacker(guarantee, success), *_weakness(success), *_rests(guarantee))
        ),
        limited=(*_limits(guarantee, success, guess_bound(guessed, SECRET_CHANCE)), _covered(guarantee)),
        not_covered=(_learned_from_many(guarantee), *guarantee.not_covered),
        success=success,
        basis=f"The attacker’s bound is (e^ε + δ) / (1 + e^ε) at {_at(told)}; that of the secret is e^ε times its "
        f"chance, plus δ, at {_at(guessed)}. Each is the point of the proved privacy curve that limits most.",
    )


def _at(pair: EpsilonPair) -> str:
    return f"ε{NBSP}={NBSP}{bound_text(pair.epsilon)}, δ{NBSP}={NBSP}{bound_text(pair.delta)}"


def _no_guarantee(guarantee: Guarantee) -> Verdict:
    unit = guarantee.unit
    return Verdict(
        headline="No guarantee",
        paragraph=f"Epsilon is infinite: nothing is proved about what the released files reveal about any one {unit}. "
        f"One {unit} here is {guarantee.unit_description}. Some step of this run has no proof, and noise added "
        "elsewhere does not make up for it. Treat the released files as you would treat the private text itself.",
        limited=("Nothing. An attacker may be right every time, as far as any proof goes.",),
        not_covered=("Everything: no outcome of any attack is excluded.", *guarantee.not_covered),
        success=1.0,
        basis=f"Without a finite epsilon there is no bound below 100{NBSP}%.",
    )


def _promise(guarantee: Guarantee) -> str:
    unit, pair = guarantee.unit, guarantee.certified
    change = {
        "add-or-remove": f"the presence or absence of any one {unit}’s text",
        "replace": f"exchanging any one {unit}’s text for any other text",
    }[guarantee.relation]
    return (
        f"Whatever the released files are used for, now or later, and whatever else is known, {change} changes the "
        f"probability of any outcome by at most a factor of {bound_text(outcome_factor(pair.epsilon))} (e^ε with "
        f"ε{NBSP}={NBSP}{bound_text(pair.epsilon)}), give or take {bound_text(pair.delta)} "
        f"(δ, {odds_text(pair.delta)}). One {unit} here is {guarantee.unit_description}."
    )


def _attacker(guarantee: Guarantee, success: float) -> str:
    unit = guarantee.unit
    question = {
        "add-or-remove": f"An attacker who gives even odds that a given {unit}’s text was used",
        "replace": f"An attacker who gives even odds to two texts of a given {unit}, one of which was used",
    }[guarantee.relation]
    return (
        f"{question}, and who sees everything that was released, can be right at most {percent_text(success)} of the "
        f"time; a coin is right 50{NBSP}% of the time."
    )


def _weakness(success: float) -> tuple[str, ...]:
    if success < WEAK:
        return ()
    return ("That is close to certainty: by itself this limit excludes little.",)


def _rests(guarantee: Guarantee) -> tuple[str, ...]:
    unproved = sum(assumption.label != "proved" for assumption in guarantee.assumptions)
    if not unproved:
        return ()
    statements = "one statement that is" if unproved == 1 else f"{unproved} statements that are"
    return (f"The proof rests on {statements} assumed or measured, not proved; see the list below.",)


def _limits(guarantee: Guarantee, success: float, guess: float) -> tuple[str, str]:
    unit = guarantee.unit
    telling = {
        "add-or-remove": f"Telling whether a given {unit}’s text was used",
        "replace": f"Telling which of two texts of a given {unit} was used",
    }[guarantee.relation]
    limit = f"becomes at most {odds_text(guess)} with it" if guess < 1 else "is not limited at this epsilon"
    return (
        f"{telling}: from even odds, right at most {percent_text(success)} of the time.",
        f"Guessing a secret in one {unit}’s text, such as a four-digit number: a chance of {odds_text(SECRET_CHANCE)} "
        f"without that text {limit}.",
    )


def _covered(guarantee: Guarantee) -> str:
    return f"This holds for all of these taken together: {'; '.join(guarantee.covered_outputs)}."


def _learned_from_many(guarantee: Guarantee) -> str:
    return (
        f"What is learned from many {guarantee.unit}s together. The files are made to teach it, and it may say "
        f"something about a person whether or not that person’s text was used."
    )


# --- audit and utility -----------------------------------------------------------------------------------------------


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
    sentences.append("This is a test of one attack. One that fails proves nothing: a better one may exist.")
    return tuple(sentences)


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
    """Whether the model gives something away: better than a coin, where an attacker without the model is not."""
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
    return f"With the control without DP nothing is found: {_why_nothing(screened)}."


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


def utility_sentences(rows: Iterable[UtilityRow]) -> tuple[str, ...]:
    """Whether the released model beats counting words (the unigram), one sentence a corpus that has both."""
    perplexities = {(row.corpus, row.model): row.perplexity for row in rows if row.perplexity is not None}
    corpora = dict.fromkeys(corpus for corpus, _ in perplexities)
    return tuple(
        _against_unigram(corpus, perplexities[corpus, RELEASED], perplexities[corpus, UNIGRAM])
        for corpus in corpora
        if (corpus, RELEASED) in perplexities and (corpus, UNIGRAM) in perplexities
    )


def _against_unigram(corpus: str, released: float, unigram: float) -> str:
    numbers = f"perplexity {number_text(released, 4)} against {number_text(unigram, 4)}"
    if released < unigram:
        return f"On {corpus} the released model predicts better than counting words ({numbers} of the unigram)."
    word = "no better" if released == unigram else "worse"
    return (
        f"On {corpus} the released model is {word} than counting words ({numbers} of the unigram): it has learned "
        "nothing useful about the order of words there."
    )


# --- the model card --------------------------------------------------------------------------------------------------


def loading_class(kind: str) -> str | None:
    """The transformers class that loads a model of this kind; None where there is none."""
    task = _TASKS.get(_kind_key(kind))
    return task[1] if task else None


def front_matter(data: ReportData) -> str:
    """The YAML that the model hub reads. The tag "differential-privacy" is given to proved runs only."""
    privacy = "differential-privacy" if data.guarantee.is_proved else "no-privacy-guarantee"
    facts: dict[str, object] = {"license": data.license, "tags": ["tacit", privacy]}
    task = _TASKS.get(_kind_key(data.model.kind))
    if task:
        facts |= {"library_name": "transformers", "pipeline_tag": task[0]}
    return yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)


def _kind_key(kind: str) -> str:
    return re.sub(r"[^a-z0-9]", "", kind.lower())


def markdown(value: object) -> Markup:
    """Text that Markdown shows as it is: no HTML, links, images, emphasis, lists or table cells come from it."""
    text = re.sub(r"([\\`*_\[\]|~#$!])", r"\\\1", " ".join(str(value).split()))
    text = re.sub(r"^(\d*)([-+.)])(?= |$)", r"\1\\\2", text)
    return Markup(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))

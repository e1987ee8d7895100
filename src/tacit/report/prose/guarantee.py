"""The verdict of a run: differential privacy, confidentiality (confidentiality.py), or nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.report.prose.confidentiality import confidentiality_verdict
from tacit.report.prose.numbers import NBSP, bound_text, odds_text, percent_text
from tacit.report.prose.verdict import WEAK, Verdict, even_odds_bound, guess_bound, outcome_factor
from tacit.report.schema import ConfidentialityLine, EpsilonPair, Guarantee, MissedShare

__all__ = ["verdict"]

SECRET_CHANCE = 1e-4
"""The chance of guessing a four-digit number: the secret that the verdict speaks of."""


def verdict(
    guarantee: Guarantee, confidentiality: Sequence[ConfidentialityLine] = (), shares: Sequence[MissedShare] = ()
) -> Verdict:
    """The guarantee in plain words, computed from its numbers; of a run on screened text what is kept confidential."""
    if guarantee.is_proved:
        return _proved_verdict(guarantee)
    if confidentiality:
        return confidentiality_verdict(confidentiality, shares, guarantee.not_covered)
    return _no_guarantee(guarantee)


def _proved_verdict(guarantee: Guarantee) -> Verdict:
    told = min(guarantee.epsilons, key=even_odds_bound)
    guessed = min(guarantee.epsilons, key=lambda pair: guess_bound(pair, SECRET_CHANCE))
    success = even_odds_bound(told)
    return Verdict(
        tone="proved",
        headline=f"A proved limit on what the release reveals about any one {guarantee.unit}"
        + (", but a weak one" if success >= WEAK else ""),
        paragraph=" ".join(
            (_promise(guarantee), _attacker(guarantee, success), *_weakness(success), *_rests(guarantee))
        ),
        limited=(*_limits(guarantee, success, guess_bound(guessed, SECRET_CHANCE)), _covered(guarantee)),
        not_covered=(_learned_from_many(guarantee), *guarantee.not_covered),
        says=f"An attacker with even odds is right at most {percent_text(success)} of the time",
        success=success,
        basis=f"The attacker’s bound is (e^ε + δ) / (1 + e^ε) at {_at(told)}; that of the secret is e^ε times its "
        f"chance, plus δ, at {_at(guessed)}. Each is the point of the proved privacy curve that limits most.",
    )


def _at(pair: EpsilonPair) -> str:
    return f"ε{NBSP}={NBSP}{bound_text(pair.epsilon)}, δ{NBSP}={NBSP}{bound_text(pair.delta)}"


def _no_guarantee(guarantee: Guarantee) -> Verdict:
    unit = guarantee.unit
    return Verdict(
        tone="none",
        headline="No guarantee",
        paragraph=f"Epsilon is infinite: nothing is proved about what the released files reveal about any one {unit}. "
        f"One {unit} here is {guarantee.unit_description}. Some step of this run has no proof, and noise added "
        "elsewhere does not make up for it. Treat the released files as you would treat the private text itself.",
        limited=("Nothing. An attacker may be right every time, as far as any proof goes.",),
        not_covered=("Everything: no outcome of any attack is excluded.", *guarantee.not_covered),
        says="No limit: an attacker may be right every time",
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
        f"time; guessing by chance is right 50{NBSP}% of the time."
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

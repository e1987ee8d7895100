"""The verdict of a run on screened text: what is kept confidential, for which secrets, and how well each number is known.

The only place of these words: page one of the report, report.json, the model card and the terminal all have them from here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit.report.prose.numbers import NBSP, bound_text, number_text, percent_text
from tacit.report.prose.verdict import WEAK, Verdict, even_odds_bound
from tacit.report.schema import ConfidentialityLine, EpsilonPair, MissedShare

__all__ = ["confidentiality_verdict", "share_sentence"]

_NO_DP = (
    "No differential privacy of the corpus: text that the screening lets through is trained on without noise, and may come out word "
    "for word."
)
_POLICIES = {
    "gamma": "gamma, the share of secrets that the balanced policy misses",
    "delta_2": "delta_2, the share that both policies miss",
}


def confidentiality_verdict(
    lines: Sequence[ConfidentialityLine], shares: Sequence[MissedShare], not_covered: Sequence[str] = ()
) -> Verdict:
    """What a run keeps confidential, from the lines of its statement; or that it keeps nothing so."""
    holding = [line for line in lines if math.isfinite(line.epsilon)]
    failing = [line.sentence for line in lines if math.isinf(line.epsilon)]
    return (
        _holds(holding, shares, (*failing, *not_covered))
        if holding
        else _nothing(lines, shares, (*failing, *not_covered))
    )


def _holds(
    lines: Sequence[ConfidentialityLine], shares: Sequence[MissedShare], not_covered: tuple[str, ...]
) -> Verdict:
    first = lines[0]  # the one that assumes least
    pair = EpsilonPair(epsilon=first.epsilon, delta=first.delta)
    success = even_odds_bound(pair)
    known = [share_sentence(share) for share in shares] if first.kind != "worst-case" else []
    weak = success >= WEAK
    return Verdict(
        tone="conditional",
        headline="No differential privacy; what holds is confidentiality of single secrets, under assumptions"
        + (", and weakly" if weak else ""),
        paragraph=" ".join(
            (
                _NO_DP,
                f"What holds is confidentiality. {first.sentence} {first.assumption}",
                *known,
                *(("That limit is close to certainty: by itself it excludes little.",) if weak else ()),
                "Where an assumption fails, nothing is guaranteed: if you publish the released files, you rely on all of them.",
            )
        ),
        limited=(
            f"Telling whether such a secret or <MASK> stood in the text: from even odds, right at most {percent_text(success)} of "
            "the time.",
            *(line.sentence for line in lines[1:]),
        ),
        not_covered=("Text that the policies judge to be safe: it may come out word for word.", *not_covered),
        says="Under the assumptions, an attacker with even odds is right about one secret at most "
        f"{percent_text(success)} of the time",
        success=success,
        basis=f"(e^ε + δ) / (1 + e^ε) at ε{NBSP}={NBSP}{bound_text(pair.epsilon)}, δ{NBSP}={NBSP}{bound_text(pair.delta)}, of the "
        f"{first.kind} line. It is about one secret against its mask, not about a text or a person.",
        known=(*(_line_known(line) for line in lines), *_shares_known(shares)),
    )


def _nothing(
    lines: Sequence[ConfidentialityLine], shares: Sequence[MissedShare], not_covered: tuple[str, ...]
) -> Verdict:
    unstated = () if len(lines) > 1 else ("Nothing was measured or stated of what the policies miss.",)
    return Verdict(
        tone="none",
        headline="No guarantee: nothing is kept confidential",
        paragraph=" ".join(
            (
                _NO_DP,
                "Neither is there a limit on what the release reveals of a single secret: each line of the confidentiality statement "
                "is infinite.",
                *unstated,
                "Treat the released files as you would treat the private text itself.",
            )
        ),
        limited=("Nothing. An attacker may be right every time, as far as any proof goes.",),
        not_covered=("Everything: no outcome of any attack is excluded.", *not_covered),
        says="No limit: an attacker may be right every time",
        success=1.0,
        basis=f"Without a finite epsilon there is no bound below 100{NBSP}%.",
        known=_shares_known(shares),
    )


def _line_known(line: ConfidentialityLine) -> tuple[str, str]:
    label = "assumed" if line.status == "heuristic" else line.status
    how = {
        "proved": "from the noise in the ledger, if what the line assumes is so",
        "measured": "from the noise in the ledger and the measured shares, if what the line assumes is so",
        "assumed": "from the noise in the ledger and shares that nobody measured, if what the line assumes is so",
    }[label]
    return (
        label,
        f"{line.kind}: ε{NBSP}={NBSP}{bound_text(line.epsilon)} at δ{NBSP}={NBSP}{bound_text(line.delta)}, {how}.",
    )


def _shares_known(shares: Sequence[MissedShare]) -> tuple[tuple[str, str], ...]:
    return tuple((share.label, share_sentence(share)) for share in shares)


def share_sentence(share: MissedShare) -> str:
    """A bound on the misses in words, and how well it is known; a measured one with its sample and confidence."""
    policy = _POLICIES[share.name]
    if share.label == "measured":
        assert share.labelled is not None
        assert share.missed is not None
        assert share.confidence is not None
        return (
            f"Measured: {policy}, is at most {bound_text(share.value)} with confidence "
            f"{number_text(100 * share.confidence)}{NBSP}%, as {share.missed:,} of {share.labelled:,} labelled secrets were missed "
            "(`tacit screen --measure`)."
        )
    if share.value >= 1:
        return f"Assumed of {policy}: nothing. It may be 1."
    return (
        f"Assumed: {policy}, is at most {bound_text(share.value)}, as the configuration states it; no measurement is bound to "
        "this run."
    )

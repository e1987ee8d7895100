"""What two guides ask a report of differential privacy to say, in our words, and what this one answers.

NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (Near, Darais, Lefkovitz and Howarth 2025), and Ponomareva
et al. 2023, How to DP-fy ML, the list for stating guarantees. An answer may be that something is not known or not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from tacit.report.prose.numbers import NBSP, bound_text
from tacit.report.schema import Guarantee, ReportData

__all__ = ["GUIDES", "Asked", "asked", "asked_answers"]

NIST = "NIST SP 800-226"
PONOMAREVA = "Ponomareva et al. 2023"
GUIDES = {
    NIST: "Guidelines for Evaluating Differential Privacy Guarantees, March 2025: the parts of its pyramid and its hazards",
    PONOMAREVA: "How to DP-fy ML, Journal of Artificial Intelligence Research 77: what a stated guarantee has to name",
}


@dataclass(frozen=True)
class Asked:
    """A question of one guide, and the answer."""

    guide: str
    question: str
    answer: str


def asked(data: ReportData) -> tuple[Asked, ...]:
    """The table, NIST first."""
    said, guarantee = asked_answers(data), data.guarantee
    checked = f"{said['verify']} Made by tacit {data.tacit_version}."
    nist = (
        (
            "How large are epsilon and delta, and what do they mean here?",
            f"{said['statement']} The first page has it in words.",
        ),
        ("Which variant of differential privacy?", _variant(guarantee)),
        ("What is the unit of privacy, and who has several?", f"{said['unit']} {_others(data)}"),
        ("Which mechanisms, and are they right?", f"{said['mechanisms']} {said['verify']}"),
        ("What of other releases from the same data?", _OTHER_RELEASES),
        (
            "How useful is the output, and is it biased?",
            f"{_utility(data)} How it differs between groups of people was not measured.",
        ),
        (
            "How is noise drawn, and what of floating point?",
            f"{guarantee.randomness} What a double's precision leaves of the exact law of noise is not modelled.",
        ),
        ("Which side channels are there?", "Time, memory and what the machine shows while it runs are not covered."),
        ("Whom must one trust?", said["trust"]),
        ("Who has access to the raw data?", said["access"]),
        ("How was the data collected?", "Not known to tacit; for the curator to say."),
    )
    ponomareva = (
        ("Setting: central, local, or between?", said["trust"]),
        ("Which uses of the data are covered?", f"All of this run: {_stages(data)}. {said['tuning']}"),
        ("What output is covered?", _outputs(guarantee)),
        ("Unit of privacy?", said["unit"]),
        ("When are two data sets neighbours?", said["neighbours"]),
        ("Which accounting?", said["accounting"]),
        ("What does it assume, and does that hold?", _assumed(guarantee)),
        ("The formal statement, of the model and of the tuning?", f"{said['statement']} {said['tuning']}"),
        ("Can others check it?", checked),
    )
    return tuple(
        Asked(guide, question, answer)
        for guide, rows in ((NIST, nist), (PONOMAREVA, ponomareva))
        for question, answer in rows
    )


def asked_answers(data: ReportData) -> dict[str, str]:
    """The answers that more than one question, or another page, needs."""
    guarantee = data.guarantee
    mechanisms = "; ".join(dict.fromkeys(row.mechanism for row in data.ledger)) or "none"
    return {
        "statement": _statement(guarantee),
        "unit": f"One {guarantee.unit}, which is {guarantee.unit_description}.",
        "neighbours": _NEIGHBOURS[guarantee.relation].format(guarantee.unit),
        "trust": "Central: whoever runs tacit reads the raw text and is trusted with it.",
        "mechanisms": f"{mechanisms}.",
        "verify": "The certificate lists every mechanism; tacit verify computes all numbers again, and the source is open.",
        "accounting": "The joint privacy loss distribution of all events, by dp-accounting; Renyi DP as a second bound.",
        "tuning": "Options that a person chose after earlier runs on the same text are not covered.",
        "access": "run/private is closed to other accounts (mode 0700); all else is for the curator to say.",
    }


_OTHER_RELEASES = (
    "Counted for the releases that this run began from, and not for others; tacit tradeoff composes several runs."
)
_NEIGHBOURS = {
    "add-or-remove": "One {} is added or removed.",
    "replace": "One {} is replaced by another.",
}


def _statement(guarantee: Guarantee) -> str:
    pair = guarantee.certified
    if not guarantee.is_proved:
        return "No differential privacy: epsilon is infinite."
    return f"({bound_text(pair.epsilon)}, {bound_text(pair.delta)})-differential privacy."


def _variant(guarantee: Guarantee) -> str:
    if not guarantee.is_proved:
        return "None is claimed."
    mu = f"mu{NBSP}={NBSP}{bound_text(guarantee.mu)}"
    return f"Approximate DP (epsilon, delta), with the whole trade-off curve. As one Gaussian: {mu}."


def _others(data: ReportData) -> str:
    return "The first part has epsilon of more and of less than one." if data.whose else ""


def _utility(data: ReportData) -> str:
    return "Its part of this page has scores beside baselines." if data.utility else "Nothing was measured."


def _stages(data: ReportData) -> str:
    return ", ".join(dict.fromkeys(row.stage for row in data.ledger)) or "nothing was released from the private side"


def _outputs(guarantee: Guarantee) -> str:
    if not guarantee.is_proved:
        return "None is covered."
    return f"{'; '.join(guarantee.covered_outputs)}. Every iterate of the private training is covered with them."


def _assumed(guarantee: Guarantee) -> str:
    heuristic = sum(assumption.label == "heuristic" for assumption in guarantee.assumptions)
    sampled = "Sampler, noise and account are made from one plan, so what is accounted is what is run."
    if not heuristic:
        return f"{sampled} What the proof needs beside is listed under the guarantee, each with how well it is known."
    return f"{sampled} Statements under the guarantee that are called heuristic do not hold as a proof needs them."

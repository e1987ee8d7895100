"""What the report says in words: numbers as text, the verdict, the attacks and the utility in a sentence each.

An upper bound is rounded up and a "1 in N" down, so that no rounded number claims more than the certificate. Sentences
are computed from the data alone and are plain text; the templates escape them.
"""

from tacit.report.prose.attacks import NO_ATTACK, attack_sentences
from tacit.report.prose.confidentiality import confidentiality_verdict, share_sentence
from tacit.report.prose.guarantee import verdict
from tacit.report.prose.hub import front_matter, markdown, usage
from tacit.report.prose.numbers import bound_text, number_text, odds_text, percent_text, power_text
from tacit.report.prose.utility import utility_sentences
from tacit.report.prose.verdict import Verdict, even_odds_bound, guess_bound, outcome_factor

__all__ = [
    "NO_ATTACK",
    "Verdict",
    "attack_sentences",
    "bound_text",
    "confidentiality_verdict",
    "even_odds_bound",
    "front_matter",
    "guess_bound",
    "markdown",
    "number_text",
    "odds_text",
    "outcome_factor",
    "percent_text",
    "power_text",
    "share_sentence",
    "usage",
    "utility_sentences",
    "verdict",
]

"""What the report says in words: numbers as text, the verdict, the attacks and the utility in a sentence each.

An upper bound is rounded up and a "1 in N" down, so that no rounded number claims more than the certificate. Sentences
are computed from the data alone and are plain text; the templates escape them.
"""

from tacit.report.prose.asked import GUIDES, Asked, asked
from tacit.report.prose.attacks import NO_ATTACK, amount_text, attack_sentences, value_text
from tacit.report.prose.beside import Beside, beside
from tacit.report.prose.confidentiality import confidentiality_verdict, share_sentence
from tacit.report.prose.curve import FALSE_ALARMS, CurvePoint, curve_points, most_found
from tacit.report.prose.guarantee import verdict
from tacit.report.prose.hub import front_matter, markdown, usage
from tacit.report.prose.numbers import at_least_text, bound_text, number_text, odds_text, percent_text, power_text
from tacit.report.prose.utility import utility_sentences
from tacit.report.prose.verdict import Verdict, even_odds_bound, guess_bound, outcome_factor

__all__ = [
    "FALSE_ALARMS",
    "GUIDES",
    "NO_ATTACK",
    "Asked",
    "Beside",
    "CurvePoint",
    "Verdict",
    "amount_text",
    "asked",
    "at_least_text",
    "attack_sentences",
    "beside",
    "bound_text",
    "confidentiality_verdict",
    "curve_points",
    "even_odds_bound",
    "front_matter",
    "guess_bound",
    "markdown",
    "most_found",
    "number_text",
    "odds_text",
    "outcome_factor",
    "percent_text",
    "power_text",
    "share_sentence",
    "usage",
    "utility_sentences",
    "value_text",
    "verdict",
]

"""The paper's claims, judged by our results: each as one line, with its numbers, that says whether it shows.

These are its sentences on figures 2 to 6, what the figures show, and its numbered statements (propositions 5 to 7 and theorem 8, in
`tacit.reproduce.crt.printed`). What decides and what must have power beside it is `tacit.reproduce.judging`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit.reproduce.crt.attacked import QUESTIONS_OF_ATTACKS
from tacit.reproduce.crt.panel import PanelResults
from tacit.reproduce.crt.printed import printed_propositions
from tacit.reproduce.crt.utility import QUESTIONS_OF_UTILITY, by_model, easier
from tacit.reproduce.writing import Claim, Row

__all__ = ["judge"]


def judge(
    panels: Sequence[PanelResults], baselines: Sequence[Row], amplified: Mapping[str, float], level: float
) -> list[Claim]:
    """All claims.

    Args:
        panels: of the scale, also those of which nothing was run.
        baselines: perplexities of models that know no order, by corpus.
        amplified: epsilon of figure 6 at (epsilon' 1, gamma 0.1): ``paper``, ``ours``, ``ours_context``.
        level: of each claim that is estimated.
    """
    return [
        *(
            claim
            for question in (*QUESTIONS_OF_UTILITY, *QUESTIONS_OF_ATTACKS)
            for claim in question.claims(panels, level)
        ),
        *by_model(panels, level),
        *easier(panels, baselines, level),
        _amplifies(amplified),
        *printed_propositions(),
    ]


def _amplifies(epsilon: Mapping[str, float]) -> Claim:
    """Computed, and no estimate: for our policies, which read context, nothing is amplified."""
    text = "figure 6: redaction with gamma 0.1 makes epsilon' 1 an epsilon of definition 4 of 0.12"
    numbers = (
        f"the paper's formula gives {epsilon['paper']:.3f}; replace-one, policies of tokens {epsilon['ours']:.3f}, "
        f"policies that read context {epsilon['ours_context']:.3f}"
    )
    return Claim(text, "", epsilon["ours_context"] <= 0.12, numbers, computed=True)

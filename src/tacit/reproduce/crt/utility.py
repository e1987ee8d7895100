"""The claims of figure 2: perplexities, of one panel and of two."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from tacit.audit.inference import Estimate
from tacit.reproduce.crt.asked import CRT, NOT_RUN, TRUNK, Found, Question, claim_of
from tacit.reproduce.crt.panel import Arms, PanelResults, ratio_of_ratios, ratio_of_texts
from tacit.reproduce.crt.scale import UTILITY_GAMMA
from tacit.reproduce.judging import below, beside_controls, over_seeds
from tacit.reproduce.writing import Claim, Row

__all__ = ["QUESTIONS_OF_UTILITY", "by_model", "easier", "percent"]

_CLOSE = math.log(1.1)
_DP, _ALONE = Arms("dp-sgd"), Arms("public-lines", UTILITY_GAMMA)
_S_DP = Arms("s-dp")
"""With a perfect policy, as the paper's figure 2 has it: otherwise its epsilon is infinite."""

# One panel


def _close_to_non_private(panel: PanelResults, level: float) -> Found | None:
    return _below(panel, CRT, Arms("redacted", UTILITY_GAMMA), "redacted", level, _CLOSE)


def _better_than_dp_sgd(panel: PanelResults, level: float) -> Found | None:
    return _below(panel, CRT, _DP, "without_secrets", level)


def _better_than_selective(panel: PanelResults, level: float) -> Found | None:
    return _below(panel, CRT, _S_DP, "without_secrets", level)


def _noise_teaches(text: str) -> Callable[[PanelResults, float], Found | None]:
    """The judge by one text. Of redacted text a model that has read ``<MASK>`` knows more without having learned a word."""
    return lambda panel, level: _below(panel, CRT, _ALONE, text, level)


def _below(panel: PanelResults, own: Arms, other: Arms, text: str, level: float, bound: float = 0.0) -> Found | None:
    """Whether the log of a ratio of perplexities is below a bound, and who passes without the private lines."""
    found = panel.ratio(own, other, text, level)
    if found is None:
        return None
    controls = {"the public model": TRUNK}
    if other != _ALONE and _ALONE.gamma in panel.plans(_ALONE.name):
        controls["training on its public lines alone"] = _ALONE
    ratios = {words: panel.ratio(arm, other, text, level) for words, arm in controls.items()}
    passes = {words: None if ratio is None else below(ratio, bound) for words, ratio in ratios.items()}
    holds, passed_by, doubt = beside_controls(below(found, bound), passes)
    return Found(holds, f"{_compared(panel, own, other, text, found)}{doubt}", passed_by)


def _compared(panel: PanelResults, own: Arms, other: Arms, text: str, ratio: Estimate) -> str:
    against = f"{panel.perplexity(own, text):.2f} against {panel.perplexity(other, text):.2f}"
    return f"{against}, {percent(ratio)}"


def percent(ratio: Estimate) -> str:
    """The log of a ratio as a difference in percent, with its interval."""
    return f"{100 * math.expm1(ratio.value):+.1f} % ({_bound(ratio.low)} to {_bound(ratio.high)})"


def _bound(log: float) -> str:
    """A bound of an interval in percent; of one seed there is none, and that of two may be hundreds wide."""
    return "anything" if math.isinf(log) or log > 3 else f"{100 * math.expm1(log):+.1f}"


# Two panels

_TRAINED = {CRT: "CRT", _DP: "DP-SGD", _S_DP: "S-DP"}


def by_model(panels: Sequence[PanelResults], level: float) -> list[Claim]:
    """Claims that compare GPT-2 with the LSTM on one text and tokenizer, so that perplexities compare; the seeds' keys are the same.

    With one training on redacted text; with two on lines without secrets, which both have seen as they are.
    """
    alike = "figure 2: GPT-2 has a lower perplexity than the LSTM"
    others = "figure 2: GPT-2 with CRT or DP-SGD has a lower perplexity of lines without secrets than an LSTM with another training"
    found = {(panel.corpus, panel.model): panel for panel in panels}
    corpora = [corpus for corpus, model in found if model == "gpt2" and (corpus, "lstm") in found]
    claims: list[Claim] = []
    for corpus, own in itertools.product(corpora, (CRT, _DP)):
        gpt2, lstm = found[corpus, "gpt2"], found[corpus, "lstm"]
        claims.append(
            claim_of(alike, f"{corpus}, {_TRAINED[own]}", _model_below((gpt2, own), (lstm, own), "redacted", level))
        )
    for corpus, own, other in itertools.product(corpora, (CRT, _DP), _TRAINED):
        gpt2, lstm = found[corpus, "gpt2"], found[corpus, "lstm"]
        if own != other and other.gamma in lstm.plans(other.name):
            panel = f"{corpus}, {_TRAINED[own]} against {_TRAINED[other]}"
            claims.append(claim_of(others, panel, _model_below((gpt2, own), (lstm, other), "without_secrets", level)))
    texts = {claim.text for claim in claims}
    return [*claims, *(Claim(text, "", None, NOT_RUN) for text in (alike, others) if text not in texts)]


def _model_below(
    own: tuple[PanelResults, Arms], other: tuple[PanelResults, Arms], text: str, level: float
) -> Found | None:
    """Whether a training of one panel has a lower perplexity than one of another, of the same test text."""
    (gpt2, mine), (lstm, theirs) = own, other
    ratio = ratio_of_texts(gpt2.texts(mine, text), lstm.texts(theirs, text), level)
    if ratio is None:
        return None
    public, other_public = gpt2.texts(TRUNK, text), lstm.texts(TRUNK, text)
    beside = {
        "the public GPT-2": ratio_of_texts(public, lstm.texts(theirs, text), level),
        "the public GPT-2, beside the public LSTM,": ratio_of_texts(public, other_public, level),
    }
    passes = {words: None if found is None else below(found, 0.0) for words, found in beside.items()}
    further = ratio_of_ratios(gpt2.texts(mine, text), lstm.texts(theirs, text), public, other_public, level)
    if further is not None and below(further, 0.0) is True:  # it is further ahead than the public models are
        passes["the public GPT-2, beside the public LSTM,"] = (
            passes["the public GPT-2, beside the public LSTM,"] or False
        )
    holds, passed_by, doubt = beside_controls(below(ratio, 0.0), passes)
    numbers = f"{gpt2.perplexity(mine, text):.2f} against {lstm.perplexity(theirs, text):.2f}, {percent(ratio)}{doubt}"
    return Found(holds, numbers, passed_by)


def easier(panels: Sequence[PanelResults], baselines: Sequence[Row], level: float) -> list[Claim]:
    """Two corpora share no test text: the documents of both are drawn."""
    text, panel = "figure 2: models of CustomerSim have lower perplexities than those of MultiWOZ", "CRT, lstm"
    found = {panel.corpus: panel for panel in panels if panel.model == "lstm"}
    if not {"customersim", "multiwoz"} <= found.keys():
        return [Claim(text, panel, None, NOT_RUN)]
    logs = [_log_perplexities(found[corpus]) for corpus in ("customersim", "multiwoz")]
    seeds = min(len(values) for values, _ in logs)
    if seeds == 0:
        return [Claim(text, panel, None, NOT_RUN)]
    difference = over_seeds(logs[0][0][:seeds] - logs[1][0][:seeds], logs[0][1] + logs[1][1], 100, level)
    unigram = {row["corpus"]: row["redacted"] for row in baselines if row["model"] == "unigram"}
    known = {"customersim", "multiwoz"} <= unigram.keys()
    passes = unigram["customersim"] < unigram["multiwoz"] if known else None
    holds, passed_by, doubt = beside_controls(below(difference, 0.0), {"counting words": passes})
    numbers = " against ".join(
        f"{found[corpus].perplexity(CRT, 'redacted'):.2f}" for corpus in ("customersim", "multiwoz")
    )
    return [Claim(text, panel, holds, f"{numbers}{doubt}", passed_by=passed_by)]


def _log_perplexities(panel: PanelResults) -> tuple[np.ndarray, float]:
    """The log perplexities of CRT by seed, and the variance that their mean has from the draw of dialogues."""
    texts = [cell["rounds"][-1]["texts"]["redacted"] for cell in panel.of(CRT).values()]
    if not texts:
        return np.zeros(0), 0.0
    tokens_D = np.array(texts[0]["tokens"], dtype=float)
    nats_D = np.mean([text["nats"] for text in texts], axis=0)
    rest_D = (nats_D - nats_D.sum() / tokens_D.sum() * tokens_D) / tokens_D.mean()
    return np.array([math.log(text["perplexity"]) for text in texts]), float(rest_D.var(ddof=1)) / len(rest_D)


QUESTIONS_OF_UTILITY: tuple[Question, ...] = (
    Question(
        "figure 2: CRT's perplexity of redacted text is within 10 % of the non-private model's", _close_to_non_private
    ),
    Question(
        "figure 2: CRT's perplexity of lines without secrets is below DP-SGD's at the same epsilon", _better_than_dp_sgd
    ),
    Question(
        "(ours) CRT's perplexity of lines without secrets is below that of S-DP with a perfect policy, whose epsilon is larger",
        _better_than_selective,
        "s-dp",
        misses=False,
    ),
    *(
        Question(
            f"(ours) the private lines teach something: CRT's perplexity of {words} is below that of its public lines alone",
            _noise_teaches(text),
        )
        for text, words in (("redacted", "redacted text"), ("without_secrets", "lines without secrets"))
    ),
)

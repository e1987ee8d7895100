"""Whether the model is of use: against what it was before it read private text, and against the best that needs no model.

A sentence a text and score (perplexity, and of a masked model accuracy). The widest margin of a text's noisy scores is taken for
all, and within sqrt(2) of it nothing is decided: where a ratio r has the margin m sqrt(1 + r^2), the difference of two over one noisy
count has m sqrt(2 + (r - r')^2), which is no more. The uniform model has no sum: its loss is known, and has no noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tacit.report.prose.numbers import number_text
from tacit.report.schema import BEFORE, GIVEN, RELEASED, UNIFORM, UNIGRAM, UtilityRow

__all__ = ["utility_sentences"]


@dataclass(frozen=True)
class _Score:
    """A score on a scale where more is better, and the number as text."""

    value: float
    text: str


@dataclass(frozen=True)
class _Scores:
    """Scores of all models on one text, with their common margin at 95 % (0: exact; infinite: the noise covers the whole scale)."""

    by_model: dict[str, _Score]
    margin: float


def utility_sentences(rows: Iterable[UtilityRow]) -> tuple[str, ...]:
    """The released model against the one before the private phases and the best baseline, for each text that has them."""
    by_corpus: dict[str, dict[str, UtilityRow]] = {}
    for row in rows:
        by_corpus.setdefault(row.corpus, {})[row.model] = row
    return tuple(
        sentence
        for corpus, models in by_corpus.items()
        if RELEASED in models
        for name, scores in (("perplexity", _perplexities(models)), ("masked-token accuracy", _accuracies(models)))
        for sentence in _sentences(corpus, name, scores)
    )


def _sentences(corpus: str, name: str, scores: _Scores) -> list[str]:
    if RELEASED not in scores.by_model:
        return []
    mine = scores.by_model[RELEASED]
    found = []
    before = scores.by_model.get(BEFORE, scores.by_model.get(GIVEN))
    if before is not None:
        said = _against(mine, before, scores.margin)
        found.append(
            f"On {corpus} the released model is {said} the model before the private phases, by {name} ({mine.text} against "
            f"{before.text})" + _cost(said)
        )
    baselines = {model: scores.by_model[model] for model in (UNIGRAM, UNIFORM) if model in scores.by_model}
    if baselines:
        best = max(baselines, key=lambda model: baselines[model].value)
        said = _worst([_against(mine, score, scores.margin) for score in baselines.values()])
        found.append(
            f"On {corpus} the released model is {said} the best baseline, by {name} ({mine.text} against "
            f"{baselines[best].text} of the {best} model)" + _useless(said)
        )
    return found


_BETTER, _WORSE, _EQUAL, _OPEN = "better than", "worse than", "no better than", "not told apart by the noise from"


def _against(mine: _Score, other: _Score, margin: float) -> str:
    difference = mine.value - other.value
    if margin and abs(difference) <= math.sqrt(2) * margin:
        return _OPEN
    return _BETTER if difference > 0 else _WORSE if difference < 0 else _EQUAL


def _worst(found: list[str]) -> str:
    """The least favourable of the comparisons with several baselines: a model that beats the best of them beats all."""
    return max(found, key=[_BETTER, _OPEN, _EQUAL, _WORSE].index)


def _cost(said: str) -> str:
    if said == _WORSE:
        return ": the private phases made it worse there."
    if said == _OPEN:
        return ": whether the private phases have helped there is undecided."
    return "." if said == _BETTER else ": the private phases have not helped there."


def _useless(said: str) -> str:
    if said == _OPEN:
        return ": whether it has learned anything useful there is undecided."
    return "." if said == _BETTER else ": it has learned nothing useful there."


def _perplexities(models: dict[str, UtilityRow]) -> _Scores:
    """Minus the mean loss of each model, on which the noise lies."""
    found = {
        model: _Score(-math.log(row.perplexity), number_text(row.perplexity, 4))
        for model, row in models.items()
        if row.perplexity is not None
    }
    intervals = {
        model: (-math.log(high), -math.log(low))
        for model, row in models.items()
        if row.perplexity_interval95 is not None
        for low, high in (row.perplexity_interval95,)
    }
    return _Scores(found, _margin(found, intervals, lambda _, high: high >= -1e-9))


def _accuracies(models: dict[str, UtilityRow]) -> _Scores:
    found = {
        model: _Score(row.masked_token_accuracy, number_text(row.masked_token_accuracy, 3))
        for model, row in models.items()
        if row.masked_token_accuracy is not None
    }
    intervals = {
        model: row.masked_token_accuracy_interval95
        for model, row in models.items()
        if row.masked_token_accuracy_interval95 is not None
    }
    return _Scores(found, _margin(found, intervals, lambda low, high: low <= 0 and high >= 1))


def _margin(
    found: dict[str, _Score], intervals: dict[str, tuple[float, float]], covers: Callable[[float, float], bool]
) -> float:
    """The common margin. Intervals and values are cut at the ends of the scale, so the longest side of all is taken."""
    if any(covers(low, high) for low, high in intervals.values()):
        return math.inf
    return max((abs(end - found[model].value) for model, ends in intervals.items() for end in ends), default=0.0)

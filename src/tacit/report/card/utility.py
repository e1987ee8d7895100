"""Whether the model is of use, in a sentence a text."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.report.card.numbers import number_text
from tacit.report.data import RELEASED, UNIGRAM, UtilityRow

__all__ = ["utility_sentences"]


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

"""What is computed of Zhao et al. 2022, beside computations of other kinds; each judge has an input with another verdict.

The oracle of an epsilon is a delta from below: the loss of a step on a grid, every loss rounded down, convolved by FFT. The oracle of
changed records is the screening of a few sentences, done here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from tacit.privacy.accounting.replacement import Screening
from tacit.privacy.confidentiality.misses import Labels
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.reproduce.crt.printed import (
    DATA_POINTS,
    DELTA_OF_PAPER,
    PAPER_RUN,
    POLICIES,
    amplification,
    bayesian,
    caught,
    deduplicated,
    figure_6,
    group,
    implied_by_dp,
    missed,
    much_lower,
    printed_propositions,
    several,
    when_gamma_falls,
)
from tacit.reproduce.writing import Claim

RATE, NOISE, STEPS = 256 / 10_000, 2.018, 391
SEVERAL, WHOLE = DATA_POINTS.values()
TOKENS, CONTEXT = POLICIES.values()


@functools.cache
def losses(records: int, added: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Losses of all steps and their masses, each loss rounded down: records replaced by their mirror image, or one added."""
    grid, size = 1e-4, 2**20
    at_X = np.linspace(-8 * NOISE - records, 8 * NOISE + records, 200_001)
    cells_X = np.diff(stats.norm.cdf(at_X[:, None] / NOISE - np.arange(-records, records + 1) / NOISE), axis=0)
    drawn = stats.binom.pmf(np.arange(records + 1), records, RATE)
    p_X = cells_X[:, records:] @ drawn
    q_X = cells_X[:, records] if added else cells_X[:, records::-1] @ drawn
    p_X, q_X = p_X[q_X > 0], q_X[q_X > 0]
    place_X = np.floor(np.log(p_X / q_X) / grid).astype(int)
    one = np.bincount(place_X % size, weights=p_X, minlength=size)
    together = np.fft.irfft(np.fft.rfft(one) ** STEPS, size)
    places = np.arange(size)
    return np.where(places < size // 2, places, places - size) * grid, np.maximum(together, 0)


def least_delta(epsilon: float, records: int, added: bool = False) -> float:
    """A little less than the delta of the paper's run at an epsilon."""
    loss, mass = losses(records, added)
    above = loss > epsilon
    return float((mass[above] * -np.expm1(epsilon - loss[above])).sum())


def first_number(claim: Claim) -> float:
    return float(claim.numbers.replace(":", " ").replace(",", " ").split()[0])


# the run ---------------------------------------------------------------------------------------------------------------


def test_the_run_is_the_papers() -> None:
    [spend] = PAPER_RUN
    assert spend == Spend(PoissonGaussian(RATE, NOISE), STEPS)
    assert math.ceil(10 * 10_000 / 256) == STEPS
    assert DELTA_OF_PAPER == 8e-5


def test_a_replaced_record_costs_more_than_an_added_one() -> None:
    """At epsilon 1 an added record has delta 8e-5 or less, as the paper says, and a replaced one fifty times as much."""
    assert least_delta(1.0, 1, added=True) < DELTA_OF_PAPER
    assert least_delta(1.0, 1) > 50 * DELTA_OF_PAPER
    for claim in (implied_by_dp(), missed("", WHOLE)):
        assert claim.verdict == "does not hold"
        assert "1.74 at delta 8e-5, where the paper's account says 1.00" in claim.numbers
    assert least_delta(1.72, 1) > 0.95 * DELTA_OF_PAPER
    assert least_delta(1.75, 1) < DELTA_OF_PAPER
    # with the epsilon of a replaced record it is a guarantee, where one record changes
    assert implied_by_dp(1.75).verdict == missed("", WHOLE, 1.75).verdict == "holds"
    assert missed("", SEVERAL, 1.75).verdict == "does not hold"


@pytest.mark.parametrize(("records", "epsilon"), [(2, 3.88), (3, 6.30), (5, 11.88)])
def test_several_replaced_records(records: int, epsilon: float) -> None:
    assert least_delta(epsilon - 0.05, records) > DELTA_OF_PAPER > least_delta(epsilon + 0.05, records)


# screening a few sentences ---------------------------------------------------------------------------------------------

MASK, A, M = "<MASK>", "my code is 1", "my code is <MASK>"


def keep_first(sentences: Sequence[str]) -> list[str]:
    return [MASK if sentence in sentences[:place] else sentence for place, sentence in enumerate(sentences)]


def differ(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(left != right for left, right in zip(one, other, strict=True))


def differ_as_sets(one: Sequence[str], other: Sequence[str]) -> int:
    return differ(sorted(one), sorted(other))


def test_deduplication_changes_three_records() -> None:
    here, there = keep_first([A, A, M]), keep_first([M, A, M])
    assert (here, there) == ([A, MASK, M], [M, A, MASK])
    assert differ(here, there) == 3
    assert sorted(here) == sorted(there)  # so where each sentence is a data point this pair is no difference at all
    several_sentences, whole = (deduplicated("", screening) for screening in (SEVERAL, WHOLE))
    assert several_sentences.verdict == "does not hold"
    assert "3 records, which cost 6.30" in several_sentences.numbers
    assert "(a, a, m) and (m, a, m)" in several_sentences.numbers
    assert whole.verdict == "holds"
    assert deduplicated("", Screening("mask-all")).verdict == "does not hold"


def test_a_caught_secret_leaves_a_trace_behind_deduplication() -> None:
    def redacted(sentences: Sequence[str]) -> list[str]:
        return [M if sentence == A else sentence for sentence in sentences]

    here, there = (redacted(keep_first(those)) for those in ([A, A], [M, A]))
    assert (here, there) == ([M, MASK], [M, M])
    assert differ_as_sets(here, there) == 1
    worst = [redacted(keep_first(those)) for those in ([A, A, M], [M, A, M])]
    assert differ(*worst) == 2
    found = [caught("theorem 8.1", "", screening) for screening in (SEVERAL, WHOLE)]
    assert [claim.verdict for claim in found] == ["does not hold"] * 2
    assert ["2 records" in found[0].numbers, "1 record of" in found[1].numbers] == [True, True]
    assert caught("theorem 8.1", "", Screening("keep-first", "redact-first")).verdict == "holds"


def test_a_policy_that_reads_context_leaves_a_trace() -> None:
    """It takes the word after a name for a family name: the name is caught, and the record differs all the same."""
    names = ("Ada", "Will")

    def token(words: Sequence[str]) -> list[str]:
        return [MASK if word in names else word for word in words]

    def context(words: Sequence[str]) -> list[str]:
        own = token(words)
        return [MASK if place and words[place - 1] in names else word for place, word in enumerate(own)]

    here, there = ["ask", "Ada", "Stone"], ["ask", MASK, "Stone"]
    assert token(here) == token(there)
    assert context(here) != context(there)
    assert caught("proposition 5", "", TOKENS).verdict == "holds"
    found = caught("proposition 5", "", CONTEXT)
    assert (found.verdict, "1 record of the training: 1.74" in found.numbers) == ("does not hold", True)


# propositions and the theorem ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_several_missed_secrets(count: int) -> None:
    one = 1.744
    assert least_delta(count * one, count) < count * math.exp(count * one) * DELTA_OF_PAPER
    assert several(count).verdict == "holds"
    assert least_delta(count * 1.0, count) > count * math.exp(count * 1.0) * DELTA_OF_PAPER
    assert several(count, 1.0).verdict == "does not hold"  # an epsilon of adding or removing


def by_quadrature(epsilon: float, share: float, distance: float) -> float:
    at_X = np.linspace(-12, 12 + distance, 2_000_001)
    normal_X = stats.norm.pdf(at_X)
    mixed_X = (1 - share) * normal_X + share * stats.norm.pdf(at_X - distance)
    both = (np.maximum(p - math.exp(epsilon) * q, 0) for p, q in ((mixed_X, normal_X), (normal_X, mixed_X)))
    return max(float(np.trapezoid(one, at_X)) for one in both)


def test_amplification_by_quadrature() -> None:
    distance = 0.3085351  # delta 8e-5 at epsilon 1
    assert by_quadrature(1.0, 1.0, distance) == pytest.approx(8e-5, rel=1e-4)
    promised = math.log1p(0.1 * math.expm1(1.0))
    assert by_quadrature(promised, 0.1, distance) == pytest.approx(8e-6, rel=1e-4)
    claim = amplification("", TOKENS)
    assert claim.verdict == "holds"
    assert f"at epsilon {promised:.3f}" in claim.numbers
    assert amplification("", TOKENS, lambda epsilon, gamma: gamma * epsilon).verdict == "does not hold"
    trace = amplification("", CONTEXT)
    assert trace.verdict == "does not hold"
    assert f"delta is {by_quadrature(promised, 1.0, distance):.2g} " in trace.numbers


def test_theorem_8_2_says_detects() -> None:
    """Five secrets of which none is detected: it promises epsilon 0. Of which all are: what it promises is true, and idle."""
    assert least_delta(11.8, 5) > DELTA_OF_PAPER
    none, some, everything = (group(share) for share in (0.0, 0.4, 1.0))
    assert (none.verdict, some.verdict, everything.verdict) == ("does not hold", "does not hold", "holds")
    assert "0.00 at delta 0; the 5 that are missed cost 11.88" in none.numbers
    assert least_delta(2.0, 3) > 2 * math.exp(2.0) * DELTA_OF_PAPER
    assert "misses" not in everything.numbers


def test_theorem_8_3() -> None:
    """The worst pair of a missed secret, mixed: a share of the loss's distribution. 200 labels without a miss: 1 - 0.05^(1/200)."""
    paper = math.log1p(0.1 * math.expm1(1.0))
    loss, mass = losses(1)
    ratio = 0.9 + 0.1 * np.exp(np.clip(loss, -50, 50))  # of the mixture, where a miss has this loss
    weight = 0.9 * mass * np.exp(-np.clip(loss, -50, 50)) + 0.1 * mass
    gain = np.maximum(weight * (1 - math.exp(paper) / ratio), 0).sum()
    assert gain > 50 * 0.1 * DELTA_OF_PAPER
    alone, labels = bayesian(None), bayesian(Labels(200, 0))
    assert alone.verdict == labels.verdict == "does not hold"
    assert first_number(alone) == pytest.approx(math.log1p(0.1 * math.expm1(1.7405)), abs=2e-3)
    assert f"{-math.expm1(math.log(0.05) / 200):.3g}" in labels.numbers
    # what is right: the epsilon of a replaced record, and a delta_2 that 8e-5 can pay
    assert bayesian(None, 1.75).verdict == "holds"
    many = Labels(400_000, 0)
    assert bayesian(many).verdict == "does not hold"
    assert bayesian(many, 1.75).verdict == "holds"  # at delta 8e-5, ten times the theorem's


# figures ---------------------------------------------------------------------------------------------------------------


def test_figure_6() -> None:
    """Of a missed secret at delta / gamma, from the grid; known wrong: a promise that is kept, and gammas that rise."""
    for gamma in (0.2, 0.5):
        low, high = 0.0, 3.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if least_delta(middle, 1) > DELTA_OF_PAPER / gamma else (low, middle)
        tokens = math.log1p(gamma * math.expm1(low))
        claim = figure_6(gamma)
        assert claim.verdict == "does not hold"
        assert float(claim.numbers.split("tokens ")[1].split(",")[0]) == pytest.approx(tokens, rel=0.03)
        assert figure_6(gamma, tokens + 0.05).verdict == "holds"
    assert figure_6(0.1).numbers.startswith("0.115")  # the 0.12 of the text
    assert when_gamma_falls("", TOKENS).verdict == "holds"
    assert when_gamma_falls("", TOKENS, (0.1, 0.2)).verdict == "does not hold"
    assert when_gamma_falls("", CONTEXT).verdict == "does not hold"


def test_figure_2_is_undecided_with_its_reason() -> None:
    claim = much_lower()
    assert claim.verdict == "undecided"
    assert "prints neither" in claim.numbers


def test_all_of_it_is_computed_and_has_a_row_of_its_own() -> None:
    claims = printed_propositions()
    assert {claim.computed for claim in claims} == {True}
    assert len({(claim.text, claim.panel) for claim in claims}) == len(claims)
    for source in (
        "section 3.1",
        *(f"proposition {number}" for number in (5, 6, 7)),
        *(f"theorem 8.{part}" for part in (1, 2, 3)),
    ):
        assert any(claim.text.startswith(f"{source}:") for claim in claims), source

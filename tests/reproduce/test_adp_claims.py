"""The judges of Wu et al. 2022: each with results that must fail, that must pass, and that cannot say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tacit.audit.inference import Estimate
from tacit.reproduce.adp.claims import judge
from tacit.reproduce.adp.corpora import TEXTS
from tacit.reproduce.adp.epsilons import epsilon_rows
from tacit.reproduce.adp.evidence import exposure_estimate, mean_share, share_difference
from tacit.reproduce.adp.scale import SCALES, Cell, cells_of
from tacit.reproduce.writing import Claim

SCALE = SCALES["night"]
LEVEL = 0.05 / 60
NULL, CEILING = 1.44, math.log2(10**6)
TABLES: dict[str, list[dict[str, Any]]] = {
    "table1-epsilon": [{"epsilon_sigma_5": 0.36}, {"epsilon_sigma_5": 0.54}],
    "models": [{"arm": "literal", "epsilon": math.inf}],
}

LOSS = {"plain": 3.5, "dp-sgd": 4.5, "dp-sgd-protected": 4.8, "literal": 4.3, "strata": 4.4, "clip-weights": 4.45}
"""Where every claim of table 1 shows, and the forms win everywhere; at s = 5 as below."""
LATER = {"plain": 0.0, "dp-sgd": 0.6, "dp-sgd-protected": 0.6, "literal": 0.2, "strata": 0.3, "clip-weights": 0.3}
PUBLIC = {"model": 6.0, "unigram": 6.5, "uniform": 7.6}


PUBLIC_PASSES = "the public model, which read no private line, passes too"


def loss_of(cell: Cell) -> float:
    return LOSS[cell.arm] + LATER[cell.arm] * (cell.noise == 5)


def bits_of(cell: Cell) -> float:
    """DP hides all; the published algorithm tells something, and ordinary training all but at 10 copies."""
    if cell.deduplicated:
        return 15.0 if cell.arm == "plain" else NULL
    if cell.arm == "plain":
        return {10: 8.0, 100: 15.0, 1000: 19.0}[cell.copies]
    return 7.0 if cell.arm == "literal" else NULL


def documents(loss: float, draw: np.random.Generator, spread: float) -> dict[str, Any]:
    """60 of one length, whose difficulty is the same for all models."""
    hard_D = 0.3 * np.random.default_rng(0).standard_normal(60)
    nats_D = 1000 * (loss + hard_D + spread * draw.standard_normal() + 0.02 * draw.standard_normal(60))
    return {"document_nats": nats_D.tolist(), "document_tokens": [1000.0] * 60}


def kind(share: float, documents: int = 200) -> dict[str, Any]:
    lines = [10] * documents
    return {"lines": lines, "private_like": [round(10 * share) + (one % 3 - 1) for one in range(documents)]}


KINDS = {
    "paragraph": kind(0.2),
    "customer's line with a number": kind(0.8),
    "customer's line without one": kind(0.7),
}


def made(
    loss: Callable[[Cell], float] = loss_of,
    bits: Callable[[Cell], float] = bits_of,
    public: Mapping[str, float] = PUBLIC,
    kinds: Mapping[str, Any] = KINDS,
    rho: tuple[float, float] = (0.9, 0.1),
    seeds: int = 5,
    spread: float = 0.005,
    noisy: bool = True,
) -> dict[str, Any]:
    """Results of every cell, as `measure` stores them."""
    draw = np.random.default_rng(1)
    results: dict[str, Any] = {
        "public": {
            "test": {text: {name: documents(value, draw, 0) for name, value in public.items()} for text in TEXTS},
            "exposure": {"null_bits": NULL},
            "canary_rho": [rho[0]] * 5,
        },
        "frequent": {"canary_rho": [rho[1]] * 5},
        "scores-copies10-seed0": {"kinds": kinds},
    }
    for cell in cells_of(SCALE):
        if cell.seed < seeds:
            tests = {text: documents(loss(cell), draw, spread) for text in TEXTS}
            own = bits(cell) + 0.2 * draw.standard_normal() * (noisy and bits(cell) < CEILING)
            results[cell.name] = {"test": tests, "exposure": {"bits": own}}
    return results


def claims(results: Mapping[str, Any], **tables: Any) -> list[Claim]:
    return judge(results, TABLES | tables, SCALE, LEVEL)


def verdicts(found: list[Claim], text: str, panel: str = "") -> list[bool | None]:
    rows = [claim.holds for claim in found if text in claim.text and panel in claim.panel]
    assert rows, text
    return rows


GOOD = claims(made())
ARITHMETIC = ("printed perplexities", "at some sampling probability", "a finite epsilon")
ESTIMATED = [claim.text for claim in GOOD if not (claim.computed or "weak point" in claim.text or "band" in claim.text)]


def test_every_claim_has_a_row_before_anything_is_run() -> None:
    empty = claims({}, models=[])
    assert [(claim.text, claim.panel) for claim in empty] == [(claim.text, claim.panel) for claim in GOOD]
    assert len({(claim.text, claim.panel) for claim in GOOD}) == len(GOOD)
    assert {claim.holds for claim in empty if claim.text in ESTIMATED} == {None}


def test_what_must_pass() -> None:
    assert {claim.holds for claim in GOOD if claim.text in ESTIMATED} == {True}


def test_one_replicate_decides_no_claim_on_trained_models() -> None:
    """Of the public model and the scores there is one: those intervals need no replicates."""
    found = claims(made(seeds=1))
    alone = ("the scorer is better", "private-like")
    rest = [claim for claim in found if claim.text in ESTIMATED and not any(text in claim.text for text in alone)]
    assert len(rest) > 30
    assert {claim.holds for claim in rest} == {None}


def test_replicates_that_scatter_decide_nothing() -> None:
    found = claims(made(spread=1.0))
    assert set(verdicts(found, "has a lower perplexity than DP-SGD")) == {None}
    assert set(verdicts(found, "every model is better than")) <= {None, True}


def test_what_must_fail() -> None:
    """Each judge of perplexities and exposures, with the opposite of what is claimed."""
    bad = claims(
        made(
            loss=lambda cell: 11.0 - loss_of(cell),
            bits=lambda cell: (
                {"plain": 0.5, "dp-sgd": 12.0, "literal": 6.0}.get(cell.arm, 10.0) - 0.004 * cell.copies / 10
            ),
            public={"model": 6.0, "unigram": 5.0, "uniform": 7.6},
            kinds={name: kind(0.2 if "customer" in name else 0.4) for name in KINDS},
            rho=(0.1, 0.4),
        ),
        models=[{"arm": "literal", "epsilon": 6.35}],
    )
    control = "without DP"  # these are of training without DP alone, and fail below
    told = [claim for claim in bad if claim.text in ESTIMATED or "weak point" in claim.text or "band" in claim.text]
    assert {claim.holds for claim in told if not claim.text.startswith(control)} == {False}


def test_ordinary_training_that_forgets_the_canary_must_fail() -> None:
    falling = claims(made(bits=lambda cell: {10: 19.0, 100: 10.0, 1000: 3.0}[cell.copies]))
    assert verdicts(falling, "without DP 1,000 copies expose the canary more than 10") == [False]
    hidden = claims(made(bits=lambda cell: 0.02, noisy=False))
    assert verdicts(hidden, "without DP the canary is exposed") == [False] * 3
    assert verdicts(claims(made(bits=lambda cell: NULL)), "without DP the canary is exposed") == [None] * 3


def test_each_form_is_judged_by_itself() -> None:
    """Known wrong: the better of the two, which is what holds where one form loses."""
    found = claims(made(loss=lambda cell: 4.7 if cell.arm == "strata" and cell.noise == 1 else loss_of(cell)))
    text = "at the same worst-case epsilon, {} has a lower perplexity than DP-SGD"
    assert verdicts(found, text.format("ADP, strata"), "s = 1") == [False, False]
    assert verdicts(found, text.format("ADP, clip weights"), "s = 1") == [True, True]
    assert verdicts(found, text.format("ADP, strata"), "s = 5") == [True, True]


def test_all_replicates_count() -> None:
    """Known wrong: the first one alone."""

    def loss(cell: Cell) -> float:
        return loss_of(cell) if cell.seed == 0 or cell.arm != "literal" else 6.0

    text = "the published algorithm has a lower perplexity than DP-SGD"
    assert True not in verdicts(claims(made(loss=loss)), text)


def test_a_claim_that_a_model_without_private_text_passes_says_nothing() -> None:
    found = claims(made(public={"model": 4.6, "unigram": 4.6, "uniform": 7.6}))
    [row] = [
        claim
        for claim in found
        if "at the same epsilon for private-like text, ADP, strata" in claim.text and claim.panel == "s = 1, Wikipedia"
    ]
    assert row.holds is True
    assert "says nothing" in row.verdict
    [other] = [
        claim
        for claim in found
        if "at the same worst-case epsilon, ADP, strata" in claim.text and claim.panel == "s = 1, Wikipedia"
    ]
    assert other.verdict == "holds"


def test_the_published_algorithm_is_not_told_from_training_without_dp() -> None:
    """Both have an infinite epsilon, and both are better than DP-SGD."""
    rows = [claim for claim in GOOD if "its epsilon is infinite" in claim.text]
    assert all("says nothing" in claim.verdict for claim in rows)
    worse = claims(made(loss=lambda cell: 5.8 if cell.arm == "plain" else loss_of(cell)))
    assert [claim.verdict for claim in worse if "its epsilon is infinite" in claim.text] == ["holds", "holds"]
    without = {name: result for name, result in made().items() if not name.startswith("plain")}
    assert [claim.holds for claim in claims(without) if "its epsilon is infinite" in claim.text] == [None, None]


@pytest.mark.parametrize("text", ["DP-SGD has a higher", "the published algorithm has a higher"])
def test_what_dp_costs_is_passed_by_who_learned_nothing(text: str) -> None:
    """The public model is worse than training without DP. Known wrong: such a row holds."""
    rows = [claim for claim in GOOD if text in claim.text and "than training without DP" in claim.text]
    assert [claim.verdict for claim in rows] == [f"says nothing, since {PUBLIC_PASSES}"] * 2
    for plain, wanted in ((6.1, "holds"), (6.0, "undecided")):  # 6.0: nobody can say who passes
        weak = claims(made(loss=lambda cell, plain=plain: plain if cell.arm == "plain" else loss_of(cell) + 2))
        rows = [claim for claim in weak if text in claim.text and "than training without DP" in claim.text]
        assert [claim.verdict for claim in rows] == [wanted] * 2


def test_less_harm_is_no_gain() -> None:
    """Where every DP model is worse than the public one, the better of two is the one that was harmed less."""
    harmed = claims(made(loss=lambda cell: loss_of(cell) + 2 * (cell.arm != "plain")))
    texts = ("DP-SGD has a higher perplexity at s = 5", "has a lower perplexity than DP-SGD")
    for text in texts:
        assert {claim.verdict for claim in GOOD if text in claim.text and "infinite" not in claim.text} == {"holds"}
        rows = [claim for claim in harmed if text in claim.text and "infinite" not in claim.text]
        assert {claim.verdict for claim in rows} == {f"says nothing, since {PUBLIC_PASSES}"}


def test_who_is_not_told_from_the_public_model_gained_nothing() -> None:
    """The strata are told to be better than DP-SGD, the public model between them is told from neither."""
    found = claims(
        made(
            loss=lambda cell: 4.42 if cell.arm == "strata" else loss_of(cell),
            public={"model": 4.475, "unigram": 6.5, "uniform": 7.6},
            spread=0.012,
        )
    )
    text = "at the same worst-case epsilon, ADP, strata"
    [row] = [claim for claim in found if text in claim.text and claim.panel == "s = 1, Wikipedia"]
    assert (row.verdict, "not told to be better than the public model" in row.numbers) == ("undecided", True)


def test_that_words_are_counted_better_the_public_model_shows_too() -> None:
    rows = [claim for claim in GOOD if "every model is better than counting words" in claim.text]
    assert {claim.verdict for claim in rows} == {f"says nothing, since {PUBLIC_PASSES}"}
    weak = claims(made(public={"model": 6.5, "unigram": 6.0, "uniform": 7.6}))
    rows = [claim for claim in weak if "every model is better than counting words" in claim.text]
    assert {claim.verdict for claim in rows} == {"holds"}


def test_a_canary_that_is_found_in_every_replicate_is_not_protected() -> None:
    """Where all ranks are 1 there is no difference to tell; that is no protection."""
    found = claims(made(bits=lambda cell: CEILING if cell.copies == 1000 else bits_of(cell)))
    assert set(verdicts(found, "less exposed than without DP", "1,000")) == {False}
    assert verdicts(found, "exposes the canary more than DP-SGD", "1,000") == [None]
    assert set(verdicts(found, "less exposed than without DP", ", 100 copies")) == {True}


def test_a_model_that_learned_nothing_protects_nothing() -> None:
    found = claims(made(loss=lambda cell: 6.4 if cell.arm == "strata" else loss_of(cell)))
    strata = verdicts(found, "less exposed than without DP", "ADP, strata") + verdicts(
        found, "each different line once", "strata"
    )
    assert set(strata) == {False}
    assert set(verdicts(found, "less exposed than without DP", "clip weights")) == {True}


def test_a_model_that_diverged_is_no_proof_that_another_exposes_more() -> None:
    text = "exposes the canary more than DP-SGD"
    assert set(verdicts(GOOD, text)) == {True}
    diverged = claims(made(loss=lambda cell: 7.0 if cell.arm == "dp-sgd" else loss_of(cell)))
    assert set(verdicts(diverged, text)) == {False}


def test_a_rank_lower_in_every_replicate_is_no_protection() -> None:
    """Known wrong: 18.9 bits for 19.9 in each, an interval without width."""
    second = claims(made(bits=lambda cell: CEILING - (cell.arm != "plain"), noisy=False))
    assert True not in verdicts(second, "less exposed than without DP")


def test_nothing_found_needs_a_control_that_finds() -> None:
    text = "each different line once"
    blind = claims(made(bits=lambda cell: NULL))
    assert set(verdicts(blind, text)) == {None}
    leaking = claims(made(bits=lambda cell: 14.0 if cell.deduplicated else bits_of(cell)))
    assert set(verdicts(leaking, text)) == {False}
    harmless = claims(made(bits=lambda cell: NULL if cell.deduplicated else bits_of(cell)))
    rows = [claim for claim in harmless if text in claim.text]
    assert all(claim.holds and "training without DP" in claim.verdict for claim in rows)


def test_where_paragraphs_are_private_like_too_rho_finds_no_person() -> None:
    found = claims(made(kinds=KINDS | {"paragraph": kind(0.65)}))
    rows = [claim for claim in found if "most of it is private-like" in claim.text]
    assert all("a paragraph of Wikipedia" in claim.verdict for claim in rows)
    few = claims(made(kinds={name: kind(0.6, 3) for name in KINDS}))
    assert set(verdicts(few, "it is private-like more often")) == {None}


def test_the_canary_is_unlikely_in_all_replicates_or_in_none() -> None:
    assert verdicts(GOOD, "in the private-like band") == [True]
    results = made()
    results["public"]["canary_rho"] = [0.9, 0.1, 0.9, 0.9, 0.9]
    assert verdicts(claims(results), "in the private-like band") == [None]
    everything = claims(made(kinds={name: kind(0.9) for name in KINDS}))
    [row] = [claim for claim in everything if "in the private-like band" in claim.text]
    assert row.verdict == "says nothing, since a paragraph of Wikipedia passes too"


def test_copies_in_the_scorers_text_must_take_the_canary_out_of_the_band() -> None:
    text = "the weak point"
    assert [verdicts(claims(made(rho=rho)), text) for rho in ((0.9, 0.1), (1.0, 0.9999), (0.6, 0.1))] == [
        [True],
        [False],
        [False],
    ]


def test_the_arithmetic() -> None:
    assert [verdicts(GOOD, text) for text in ARITHMETIC] == [[False], [False], [False]]
    possible = claims(
        made(), **{"table1-epsilon": [{"epsilon_sigma_5": 0.1}]}, models=[{"arm": "literal", "epsilon": 6.35}]
    )
    assert verdicts(possible, ARITHMETIC[1]) == verdicts(possible, ARITHMETIC[2]) == [True]


def test_no_sampling_probability_gives_both_epsilons() -> None:
    rows = epsilon_rows()
    assert all(3.4 < row["epsilon_sigma_1"] <= 4.22 for row in rows)
    assert all(0.3 < row["epsilon_sigma_5"] < 0.6 for row in rows)


def test_an_exposure_interval_is_exact_where_nothing_was_learned() -> None:
    """Ranks that are uniform: at level 0.1 the mean of all is left out in a tenth of the trials."""
    ranks = np.random.default_rng(3).integers(1, 10**6 + 1, (2000, 5))
    found = [exposure_estimate(np.log2(10**6 / rank), 0.1) for rank in ranks]
    missed = sum(not own.holds(1 / math.log(2)) for own in found)
    assert abs(missed - 200) < 4.9 * math.sqrt(2000 * 0.1 * 0.9)
    alone = exposure_estimate(np.array([10.0]), 0.05)
    assert (alone.value, alone.low) == (10.0, pytest.approx(10 / -math.log(0.025)))


def test_a_share_has_an_interval_over_documents() -> None:
    """Not over lines: ten lines that are alike are one observation."""
    few, many = ({"lines": [size] * 4, "private_like": [size, 0, size, 0]} for size in (10, 1000))
    assert mean_share(few, 0.05) == mean_share(many, 0.05)
    assert mean_share(few, 0.05).holds(0.9)
    assert share_difference(few, few, 0.05).value == 0
    assert share_difference(kind(0.8), kind(0.2), 0.05).value == pytest.approx(0.6, abs=1e-9)
    assert mean_share({"lines": [3], "private_like": [1]}, 0.05) == Estimate(1 / 3, -math.inf, math.inf)

"""The words: every bound against the worst mechanism that (epsilon, delta) allows, every rounding on the safe side."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from decimal import Decimal, getcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from tacit.config.kinds import KINDS
from tacit.report.prose import (
    GUIDES,
    asked,
    at_least_text,
    attack_sentences,
    bound_text,
    curve_points,
    even_odds_bound,
    front_matter,
    guess_bound,
    markdown,
    most_found,
    number_text,
    odds_text,
    outcome_factor,
    percent_text,
    utility_sentences,
    verdict,
)
from tacit.report.schema import (
    CONTROL,
    RELEASED,
    AttackFacts,
    EpsilonPair,
    Estimated,
    Guarantee,
    ReportData,
    UtilityRow,
)

from .example import example_coins, example_exposure, example_membership, example_report_data, with_highest
from .pages import number, parse_markdown

getcontext().prec = 60
PAIRS = [
    EpsilonPair(epsilon=epsilon, delta=delta)
    for epsilon, delta in itertools.product((0.0, 0.1, 1.0, 2.787, 8.0, 30.0), (1e-9, 1e-6, 0.01, 0.3))
]
PERCENT = re.compile(r"right at most (\S+)\N{NO-BREAK SPACE}%")


def _worst_mechanism(pair: EpsilonPair) -> tuple[tuple[Decimal, ...], tuple[Decimal, ...]]:
    """The four-outcome mechanism that dominates every (epsilon, delta)-DP one (Kairouz, Oh, Viswanath 2015)."""
    delta, factor = Decimal(pair.delta), Decimal(pair.epsilon).exp()
    high, low = (1 - delta) * factor / (1 + factor), (1 - delta) / (1 + factor)
    return (delta, high, low, Decimal(0)), (Decimal(0), low, high, delta)


@pytest.mark.parametrize("pair", PAIRS)
def test_even_odds_bound_is_the_best_attack_on_the_worst_mechanism(pair: EpsilonPair) -> None:
    one, other = _worst_mechanism(pair)
    best = sum(max(p, q) for p, q in zip(one, other, strict=True)) / 2
    assert even_odds_bound(pair) == pytest.approx(float(best), rel=1e-14)


@pytest.mark.parametrize("mu", [0.1, 0.6061, 1.0, 3.0])
def test_even_odds_bound_on_the_gaussian_mechanism(mu: float) -> None:
    """Never below Phi(mu / 2), the best attack on one Gaussian release, and equal to it at epsilon 0."""
    pairs = []
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        pairs.append(EpsilonPair(epsilon=epsilon, delta=max(float(delta), 1e-300)))
    bounds = [even_odds_bound(pair) for pair in pairs]
    assert all(bound >= norm.cdf(mu / 2) - 1e-12 for bound in bounds)
    assert bounds[0] == pytest.approx(norm.cdf(mu / 2), rel=1e-12)


def _guess_holds(bound: Callable[[EpsilonPair, float], float], pair: EpsilonPair) -> tuple[bool, float]:
    """Whether P[E] <= bound(Q[E]) for all events E of the worst mechanism, and the smallest gap."""
    one, other = _worst_mechanism(pair)
    events = [event for size in range(5) for event in itertools.combinations(range(4), size)]
    gaps = [
        bound(pair, float(sum(other[i] for i in event))) - float(sum(one[i] for i in event))
        for event in events
        if sum(other[i] for i in event) > 0
    ]
    return min(gaps) >= -1e-12, min(gaps)


@pytest.mark.parametrize("pair", PAIRS)
def test_guess_bound_holds_for_every_event_and_is_reached(pair: EpsilonPair) -> None:
    holds, gap = _guess_holds(guess_bound, pair)
    assert holds
    assert gap == pytest.approx(0, abs=1e-12)


def test_the_check_sees_a_guess_bound_without_delta() -> None:
    holds, _ = _guess_holds(
        lambda pair, chance: min(1, math.exp(pair.epsilon) * chance), EpsilonPair(epsilon=1.0, delta=0.01)
    )
    assert not holds


def test_infinite_and_huge_epsilons_bound_nothing() -> None:
    for epsilon in (800.0, math.inf):
        pair = EpsilonPair(epsilon=epsilon, delta=1e-6)
        assert even_odds_bound(pair) == 1.0
        assert guess_bound(pair, 1e-4) == 1.0
        assert outcome_factor(epsilon) == math.inf


# --- rounding --------------------------------------------------------------------------------------------------------


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_a_bound_is_rounded_up_and_not_far(value: float) -> None:
    assert value <= number(bound_text(value)) * (1 + 1e-15)
    assert number(bound_text(value)) <= value * 1.01


@given(st.floats(min_value=0.5, max_value=1.0))
def test_a_percentage_is_rounded_up_and_not_far(value: float) -> None:
    shown = Decimal(percent_text(value).split("\N{NO-BREAK SPACE}")[0]) / 100
    assert Decimal(str(value)) <= shown <= Decimal(str(value)) + Decimal("0.001")


@given(st.floats(min_value=1e-9, max_value=0.0999))
def test_one_in_n_is_never_too_rare(value: float) -> None:
    shown = number(odds_text(value).split("in")[1])
    assert 1 / shown >= value * (1 - 1e-8)
    assert 1 / shown <= value / (1 - value)


def test_the_check_sees_rounding_to_the_nearest() -> None:
    assert number(f"{2.784:.3g}") < 2.784 <= number(bound_text(2.784))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.7612, "3.77"),
        (3.0, "3"),
        (0.5038, "0.504"),
        (0.0, "0"),
        (1e-6, "10⁻⁶"),
        (1e-5, "10⁻⁵"),
        (math.inf, "infinity"),
        (2.5e-6, "2.5 × 10⁻⁶"),
        (128.0, "128"),
        (4863.2, "4,870"),
        (9.999, "10"),
        (0.99999, "1"),
    ],
)
def test_bounds_as_text(value: float, text: str) -> None:
    assert bound_text(value).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("probability", "text"),
    [(0.61523, "61.6"), (0.9421, "94.3"), (0.99966465, "99.967"), (0.9999999979, "100"), (1.0, "100"), (0.5, "50.0")],
)
def test_percentages_as_text(probability: float, text: str) -> None:
    assert percent_text(probability) == f"{text}\N{NO-BREAK SPACE}%"


@pytest.mark.parametrize(
    ("value", "text"),
    [(12000, "12,000"), (0.0213333333, "0.0213333"), (1e-06, "10⁻⁶"), ("gaussian", "gaussian"), (8.0, "8")],
)
def test_parameters_as_text(value: float | str, text: str) -> None:
    assert number_text(value) == text


# --- the verdict -----------------------------------------------------------------------------------------------------


def _guarantee(**changes: Any) -> Guarantee:
    return Guarantee.model_validate(example_report_data().guarantee.model_dump() | changes)


def _curve(*pairs: tuple[float, float]) -> tuple[EpsilonPair, ...]:
    return tuple(EpsilonPair(epsilon=epsilon, delta=delta) for epsilon, delta in pairs)


def test_the_verdicts_percentage_is_the_closed_form() -> None:
    found = PERCENT.findall(verdict(_guarantee()).paragraph)
    # at epsilon 0 the bound is (1 + delta) / 2, half of one plus the total variation distance
    assert found == [f"{math.ceil((1 + 0.23045626227072477) / 2 * 1000) / 10}"] == ["61.6"]
    without_zero = _guarantee(epsilons=_curve((1.0, 1e-6), (1.2, 1e-7), (0.9, 1e-5)))
    best = min((math.exp(e) + d) / (1 + math.exp(e)) for e, d in ((1.0, 1e-6), (1.2, 1e-7), (0.9, 1e-5)))
    assert PERCENT.findall(verdict(without_zero).paragraph) == [f"{math.ceil(best * 1000) / 10}"]


def test_the_verdict_states_factor_delta_and_unit() -> None:
    paragraph = verdict(_guarantee()).paragraph
    assert f"a factor of {math.ceil(math.exp(2.786987543106079) * 10) / 10} " in paragraph
    assert "10⁻⁶ (δ, 1\N{NO-BREAK SPACE}in\N{NO-BREAK SPACE}1,000,000)" in paragraph
    assert "One user here is one patient: all notes that carry the same patient number." in paragraph
    assert "3 statements that are assumed or measured, not proved" in paragraph


def test_the_secrets_bound_is_the_closed_form() -> None:
    best = min(math.exp(e) * 1e-4 + d for e, d in ((2.786987543106079, 1e-6), (2.461813449859619, 1e-5)))
    assert (
        f"becomes at most 1\N{NO-BREAK SPACE}in\N{NO-BREAK SPACE}{math.floor(1 / best)} with it"
        in verdict(_guarantee()).limited[1]
    )


def test_the_relation_decides_what_is_compared() -> None:
    added, replaced = verdict(_guarantee()), verdict(_guarantee(relation="replace"))
    assert "the presence or absence of any one user’s text" in added.paragraph
    assert "presence" not in replaced.paragraph
    assert "exchanging any one user’s text" in replaced.paragraph
    assert "two texts of a given user" in replaced.limited[0]


def test_a_large_epsilon_is_called_weak() -> None:
    weak = verdict(_guarantee(epsilons=_curve((12.0, 1e-6), (13.0, 1e-7), (11.0, 1e-5))))
    assert "weak" in weak.headline
    assert "close to certainty" in weak.paragraph
    assert "not limited at this epsilon" in weak.limited[1]
    assert "weak" not in verdict(_guarantee()).headline


def test_what_is_not_covered_is_all_there() -> None:
    for proved in (True, False):
        guarantee = example_report_data(proved=proved).guarantee
        assert set(guarantee.not_covered) < set(verdict(guarantee).not_covered)


def test_a_heuristic_run_has_no_percentage_below_a_hundred() -> None:
    words = verdict(example_report_data(proved=False).guarantee)
    assert words.headline == "No guarantee"
    assert words.success == 1.0
    assert "Epsilon is infinite" in words.paragraph
    assert "%" not in words.paragraph


# --- audit and utility -----------------------------------------------------------------------------------------------


def _exposure(*p_values: float, control: tuple[float, ...] = ()) -> AttackFacts:
    """Canaries with these p-values, a pattern each."""
    facts = example_exposure(curator_copy=True)
    rows = tuple(
        facts.rows[0].model_copy(
            update={"p_value": p_value, "model": model, "name": f"pattern {number}", "test": f"pattern {number}"}
        )
        for model, values in ((RELEASED, p_values), (CONTROL, control))
        for number, p_value in enumerate(values)
    )
    return AttackFacts.model_validate(facts.model_dump() | {"rows": [row.model_dump() for row in rows]})


def _said(found: AttackFacts, screened: bool = False) -> str:
    return " ".join(attack_sentences(found, screened)).replace("\N{NO-BREAK SPACE}", " ")


def test_the_audit_corrects_for_several_tests() -> None:
    assert "gives the planted secrets away more than chance would in 1 of 1 pattern (p-value below 0.05)" in _said(
        _exposure(0.03)
    )
    assert "In none of 2 patterns does the released model give the planted secrets away" in _said(_exposure(0.03, 0.4))
    assert "in 1 of 2 patterns (p-value below 0.05 / 2)" in _said(_exposure(0.02, 0.4))


def test_a_blind_attack_is_called_weak() -> None:
    assert "too weak" in _said(_exposure(0.5, control=(0.5,)))
    assert "too weak" not in _said(_exposure(0.5, control=(1e-9,)))


def test_the_rows_of_one_test_are_corrected_for() -> None:
    facts = with_highest(example_report_data()).attacks[0]
    rows = facts.rows[:2]
    one = facts.model_copy(update={"rows": rows})
    assert "Not in the one pattern " in _said(one)
    assert "smallest p-value 0.68" in _said(one)  # twice 0.34
    found = facts.model_copy(update={"rows": (rows[0], rows[1].model_copy(update={"p_value": 1e-3}))})
    assert "more than chance would in 1 of 1 pattern " in _said(found)
    both_nearly = tuple(
        row.model_copy(update={"p_value": p_value}) for row, p_value in zip(rows, (0.03, 0.04), strict=True)
    )
    assert "Not in the one pattern " in _said(facts.model_copy(update={"rows": both_nearly}))


def test_the_words_of_a_row_are_said_of_the_released_model_alone() -> None:
    exposure = _exposure(0.5, control=(0.5,))
    rows = tuple(row.model_copy(update={"words": f"Words of the {row.model}"}) for row in exposure.rows)
    text = _said(exposure.model_copy(update={"rows": rows}))
    assert "Words of the released model." in text
    assert "Words of the control" not in text


def _membership(*, control: bool = True, **changes: Any) -> str:
    """The sentences, with the first row changed."""
    facts = example_membership()
    rows = (facts.rows[0].model_copy(update=changes), *facts.rows[1:])
    return _said(facts.model_copy(update={"rows": tuple(row for row in rows if control or row.model == RELEASED)}))


def test_an_attack_with_intervals_in_words() -> None:
    text = _membership()
    assert text.startswith("An attacker is shown 310 texts")
    assert "the attacker is right 51.6 % of the time: no better than chance." in text
    assert (
        "gives its training texts away in 2 of 2 comparisons, up to 1 where chance gives 0.5: the attack can see memory"
        in text
    )
    assert "could have seen memory, and saw none" in text
    assert "what the attack finds comes from the model" in text
    assert "no certificate covers it" in text
    assert "100.0" not in text  # the control's words


def test_an_attack_that_is_undecided_says_so_and_nothing_else() -> None:
    facts = example_membership().model_dump()
    undecided = AttackFacts.model_validate(facts | {"rows": (), "undecided": "undecided: too few texts qualify"})
    (sentence,) = attack_sentences(undecided)
    assert "is undecided: too few texts qualify" in sentence
    assert "nothing for the model and nothing against it" in sentence
    for wrong in ({"rows": ()}, {"undecided": "undecided"}):
        with pytest.raises(ValueError, match="rows, or a word"):
            AttackFacts.model_validate(facts | wrong)


_BLIND = {True: Estimated(value=0.49, low=0.43, high=0.55), False: Estimated(value=0.6, low=0.55, high=0.65)}


@pytest.mark.parametrize(
    ("accuracy", "blind_at_chance", "said"),
    [
        ((0.6, 0.55, 0.65), True, "the model remembers something"),
        ((0.6, 0.55, 0.65), False, "but so is an attacker without the model"),
        ((0.4, 0.35, 0.45), True, "worse than chance"),
        ((0.4, 0.35, 0.45), False, "worse than chance"),
        ((0.52, 0.48, 0.56), False, "no better than chance"),
    ],
)
def test_memory_is_said_only_where_the_model_adds_something(
    accuracy: tuple[float, float, float], blind_at_chance: bool, said: str
) -> None:
    value, low, high = accuracy
    for control in (True, False):
        text = _membership(control=control, value=value, interval=(low, high), baseline=_BLIND[blind_at_chance])
        assert said in text
        assert ("remembers" in text) == ("remembers" in said)
        assert ("say nothing about the model" in text) == (not blind_at_chance)
        assert ("decides nothing by itself" in text) == (not control and "remembers" not in said)


def test_finding_nothing_is_undecided_on_the_public_page_whatever_the_control_has_shown() -> None:
    """The control is a function of private text without noise, so the page that is published never depends on it.

    Known wrong: "in none of the patterns does the released model ...", and nothing of whether the attack could have seen anything.
    """
    assert "Undecided" in _said(_exposure(0.5))
    blind, seeing = (_said(_exposure(0.5, control=(p_value,))) for p_value in (0.5, 1e-9))
    assert "Undecided" in blind
    assert "Undecided" not in seeing
    assert "could have seen memory" in seeing
    assert "Undecided" not in _said(_exposure(1e-9))  # memory that is seen is seen


def _at_chance(facts: AttackFacts) -> AttackFacts:
    rows = tuple(row.model_copy(update={"value": 0.5, "interval": (0.4, 0.6)}) for row in facts.rows)
    return facts.model_copy(update={"rows": rows})


def test_a_control_in_which_nothing_is_found_is_called_weak() -> None:
    facts = example_membership()
    assert "too weak" in _said(_at_chance(facts))
    assert "Undecided" in _said(_at_chance(facts))
    assert "too weak" not in _said(facts)


def test_a_control_on_redacted_text_may_find_nothing_for_that_reason() -> None:
    for screened in (True, False):
        for found in (_at_chance(example_membership()), _exposure(0.5, control=(0.5,))):
            assert ("either the redaction" in _said(found, screened)) == screened


def _utility(released: float, unigram: float | None) -> tuple[UtilityRow, ...]:
    corpus = "public held-out text"
    return (
        UtilityRow(corpus=corpus, model="released model", perplexity=released),
        UtilityRow(corpus=corpus, model="unigram", perplexity=unigram),
    )


@pytest.mark.parametrize(
    ("released", "unigram", "word"),
    [(812.0, 640.0, "worse than"), (640.0, 640.0, "no better than"), (66.0, 640.0, "better than")],
)
def test_a_model_that_does_not_beat_counting_words_is_said_to(released: float, unigram: float, word: str) -> None:
    (sentence,) = utility_sentences(_utility(released, unigram))
    assert f"{word} the best baseline" in sentence
    assert ("nothing useful" in sentence) == (released >= unigram)


def test_nothing_is_said_without_a_baseline() -> None:
    assert utility_sentences(_utility(66.0, None)) == ()
    assert utility_sentences(()) == ()


def _noisy(model: Any, perplexity: float, accuracy: float, nats: float, share: float) -> UtilityRow:
    """A row of the private release, with its intervals cut as the evaluation cuts them."""
    low, high = max(1.0, perplexity * math.exp(-nats)), perplexity * math.exp(nats)
    return UtilityRow(
        corpus="private held-out units (noisy, in the ledger)",
        model=model,
        masked_token_accuracy=accuracy,
        masked_token_accuracy_interval95=(max(0.0, accuracy - share), min(1.0, accuracy + share)),
        perplexity=perplexity,
        perplexity_interval95=(low, high),
    )


def _trial(nats: float, share: float) -> str:
    """The trial of the issue: accuracy .179 before the private phase and .147 after it, the unigram worse than uniform."""
    rows = (
        _noisy("released model", 310.0, 0.147, nats, share),
        _noisy("after public phase", 700.0, 0.179, nats, share),
        _noisy("unigram", 4029.0, 0.0, nats, share),
        UtilityRow(
            corpus="private held-out units (noisy, in the ledger)",
            model="uniform",
            masked_token_accuracy=1 / 919,
            perplexity=919.0,
        ),
    )
    return " ".join(utility_sentences(rows))


def test_a_private_phase_that_lowered_the_accuracy_is_said_to_and_the_best_baseline_is_uniform() -> None:
    """Known wrong: "predicts better than counting words", with perplexity 310 against 4,029 of the unigram."""
    said = _trial(0.1, 0.01)
    assert "worse than the model before the private phases, by masked-token accuracy (0.147 against 0.179)" in said
    assert "the private phases made it worse there" in said
    assert "better than the model before the private phases, by perplexity (310 against 700)" in said
    assert "better than the best baseline, by perplexity (310 against 919 of the uniform model)" in said
    assert "4,029" not in said


def test_within_the_noise_nothing_is_decided() -> None:
    """A difference of .032 with margins of .028 on each side is within sqrt(2) of them; .022 is the last that decides."""
    assert "not told apart by the noise from the model before the private phases, by masked-token" in _trial(0.1, 0.028)
    assert "not told apart" not in _trial(0.1, 0.022)
    blind = _trial(9.0, 1.0)
    assert blind.count("undecided") == 4
    assert "better" not in blind
    assert "worse" not in blind


def test_an_interval_that_is_cut_at_zero_hides_no_noise() -> None:
    """The unigram's accuracy is cut to 0 with an interval of (0, .0158); its noise is that of the others."""
    rows = [_noisy("released model", 300.0, 0.03, 0.3, 0.028), _noisy("unigram", 4029.0, 0.0, 0.3, 0.0158)]
    assert "not told apart by the noise from the best baseline, by masked-token accuracy" in " ".join(
        utility_sentences(rows)
    )


# --- the model card --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "1. a",
        "12) b",
        "+ c",
        "# d",
        "a | b",
        "<b>x</b>",
        "&lt;",
        "*e* _f_ `g`",
        "[h](i)",
        "![j](k)",
        "2.79",
        "-1.5",
        "<http://x>",
        "\\*",
        "~~s~~",
        "1.",
        "-",
    ],
)
def test_markdown_shows_text_as_it_is(text: str) -> None:
    tokens = parse_markdown(f"---\n---\n{markdown(text)}\n")
    shown = "".join(token.content for token in tokens if token.type in ("text", "text_special"))
    kinds = {token.type for token in tokens}
    assert shown == text
    assert kinds <= {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}


@pytest.mark.parametrize(
    ("kind", "tag", "name"),
    [
        ("bert", "fill-mask", "AutoModelForMaskedLM"),
        ("gpt2", "text-generation", "AutoModelForCausalLM"),
        ("lstm", None, None),
    ],
)
def test_the_hubs_task_follows_the_model(kind: str, tag: str | None, name: str | None) -> None:
    values = example_report_data().model_dump()
    values["model"]["pipeline_tag"] = KINDS[kind].pipeline_tag
    assert KINDS[kind].loading_class == name
    assert (f"pipeline_tag: {tag}" in front_matter(ReportData.model_validate(values))) == (tag is not None)


# both bounds, what is asked, the curve --------------------------------------------------------------------------------


@given(st.floats(0.0011, 50))
def test_a_lower_bound_is_never_rounded_up(value: float) -> None:
    assert 0.99 * value - 0.001 <= float(at_least_text(value)) <= value


def test_the_answers_follow_the_facts() -> None:
    proved, none = (
        {row.question: row.answer for row in asked(example_report_data(proved=kind))} for kind in (True, False)
    )
    question = "The formal statement, of the model and of the tuning?"
    assert "(2.79, 10⁻⁶)-differential privacy" in proved[question]
    assert "epsilon is infinite" in none[question]
    assert none["What output is covered?"] == "None is covered."
    assert {row.guide for row in asked(example_report_data())} == set(GUIDES)
    assert all(answer.strip() for answer in proved.values())


def test_the_curve_is_read_between_its_corners() -> None:
    curve = example_report_data().curve
    assert curve is not None
    assert most_found(curve, 0.38) == 0.61
    assert most_found(curve, 0.69) == pytest.approx((0.61 + 1) / 2)
    assert [point.false_alarms for point in curve_points((example_coins(),))] == [0.05]


def test_a_lower_bound_above_0_decides_by_itself_and_0_decides_nothing() -> None:
    assert not any("ndecided" in sentence for sentence in attack_sentences(example_coins()))
    assert any("ndecided" in sentence for sentence in attack_sentences(example_coins(value=0.0)))

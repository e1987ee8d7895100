"""What a run says of a secret: SOUNDNESS' numbers, brute force over every outcome, and the versions that are wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.errors import RefusedError, UsageError
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.accounting.replacement import Claim, Screening, Stability, replacement_epsilon
from tacit.privacy.confidentiality.account import confidentiality
from tacit.privacy.confidentiality.lines import Line
from tacit.privacy.confidentiality.misses import Labels, amplified_epsilon
from tacit.privacy.confidentiality.statement import ConfidentialityStatement, statement_of_run
from tacit.privacy.events import NonPrivate, Spend, ThresholdedHistogram

from .test_confidentiality_replacement import DELTA, PAPER_RUN, both_ways, released, training

ONE = Stability(1, 0)


def said(**changes: Any) -> ConfidentialityStatement:
    """The paper's run: 10,000 records, batches of 256, 10 epochs."""
    values: dict[str, Any] = {
        "records": 10_000,
        "sampling_probability": 0.0256,
        "noise_multiplier": 2.015,
        "steps": 391,
        "delta": DELTA,
        "stability": ONE,
        "gamma": 0.1,
    }
    return statement_of_run(**values | changes)


def lines(statement: ConfidentialityStatement) -> tuple[Line, Line, Line]:
    assert statement.screened is not None
    assert statement.bayesian is not None
    return statement.worst_case, statement.screened, statement.bayesian


def small(group: int, gamma: float, delta: float, **changes: Any) -> dict[str, Any]:
    """A run small enough for brute force."""
    values = {"records": 10, "sampling_probability": 0.3, "noise_multiplier": 2.0, "steps": 2}
    return values | {"delta": delta, "gamma": gamma, "group_size": group} | changes


# SOUNDNESS' numbers ---------------------------------------------------------------------------------------------------


def test_the_papers_setting() -> None:
    worst, screened, bayesian = lines(said())
    assert bayesian.paper.epsilon == pytest.approx(0.1156, abs=1e-4)
    assert bayesian.epsilon == pytest.approx(0.27, abs=0.005)
    assert worst.epsilon == screened.epsilon == pytest.approx(1.743, abs=1e-3)
    assert screened.epsilon_caught == 0.0
    assert worst.paper.epsilon == rdp_epsilon(PAPER_RUN, DELTA)
    assert worst.paper.epsilon == pytest.approx(1.0, abs=0.01)
    assert all(
        "every record of the private corpus is in the private stream" in line.assumption for line in lines(said())
    )
    assert [line.definition for line in (worst, screened, bayesian)] == ["definition 2"] * 2 + ["definition 4"]
    assert [line.status for line in (worst, screened, bayesian)] == ["proved", "proved", "heuristic"]


def test_the_bound_on_gamma() -> None:
    bayesian = lines(said(gamma=Labels(200, 20)))[2]
    assert bayesian.epsilon == pytest.approx(0.383, abs=1e-3)
    assert bayesian.paper.epsilon == pytest.approx(0.1156, abs=1e-4)
    assert bayesian.status == "measured"
    assert "upper bound" in bayesian.paper.difference


def test_the_notebooks_case() -> None:
    run = {"sampling_probability": 0.1, "steps": 100, "noise_multiplier": 2.426, "delta": 1e-5}
    bayesian = lines(said(**run))[2]
    assert bayesian.paper.epsilon == pytest.approx(0.374, abs=1.5e-3)
    assert bayesian.epsilon == pytest.approx(1.080, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("screening", [Screening(), Screening("keep-first", "redact-first"), Screening("mask-all")])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("delta_2", [None, 1e-6])
def test_the_numbers_are_the_accounts(screening: Screening, group: int, delta_2: float | None) -> None:
    account = confidentiality(PAPER_RUN, DELTA, gamma=0.1, delta_2=delta_2, screening=screening, claim=Claim(group))
    worst, screened, bayesian = lines(said(stability=account.stability, group_size=group, delta_2=delta_2))
    assert worst.epsilon_missed == screened.epsilon_missed == account.worst_case.epsilon
    assert worst.epsilon == (account.worst_case.epsilon if delta_2 is None else math.inf)
    missed = confidentiality(PAPER_RUN, DELTA, screening=screening, claim=Claim(group, missed=1)).worst_case
    assert screened.epsilon == missed.epsilon
    assert account.bayesian is not None
    assert (bayesian.epsilon, bayesian.status) == (account.bayesian.epsilon, account.bayesian.status)
    assert (bayesian.epsilon_missed, bayesian.delta_missed) == (
        account.bayesian.epsilon_missed,
        account.bayesian.delta_missed,
    )


# brute force ----------------------------------------------------------------------------------------------------------


def test_gamma_amplifies_no_fixed_secret() -> None:
    """Definition 2: the reader knows that this secret is one of those missed, so log(1 + gamma (e^epsilon - 1)) is wrong."""
    delta, gamma = 1e-3, 0.1
    secret, mask = (released([gradient], 0.3, 2.0, 2) for gradient in (1.0, -1.0))
    worst, screened, bayesian = lines(statement_of_run(**small(1, gamma, delta, stability=ONE)))
    assert both_ways(secret, mask, screened.epsilon) <= delta
    for wrong in (bayesian.epsilon, amplified_epsilon(worst.epsilon, gamma), gamma * worst.epsilon):
        assert both_ways(secret, mask, wrong) > 10 * delta


def test_a_group_counts_its_misses_by_brute_force() -> None:
    """Of three secrets one is missed (a share of 0.3): a third of theorem 8.2's epsilon would be too small, and so is it."""
    delta = 1e-3
    one_missed, masked = (released([first, -1.0, -1.0], 0.3, 2.0, 2, bins=300) for first in (1.0, -1.0))
    all_missed = released([1.0, 1.0, 1.0], 0.3, 2.0, 2, bins=300)
    worst, screened, _ = lines(statement_of_run(**small(3, 0.3, delta, stability=ONE)))
    assert both_ways(one_missed, masked, screened.epsilon) <= delta
    assert both_ways(all_missed, masked, worst.epsilon) <= delta
    assert both_ways(all_missed, masked, screened.epsilon) > 10 * delta, "more misses than were assumed"
    wrong = 0.3 * 3 * replacement_epsilon(training(0.3, 2.0, 2), delta)  # a share of a secret
    assert both_ways(one_missed, masked, wrong) > delta
    assert screened.status == "heuristic"
    assert "does not prove" in screened.assumption


def test_a_secret_in_the_public_stream_is_published() -> None:
    """Its text is an outcome that the masked world never has, so no epsilon holds at this delta."""
    secret, mask = (np.append(released([gradient], 0.3, 2.0, 2), 0.0) for gradient in (1.0, -1.0))
    published = np.zeros(len(mask))
    published[-1] = 1.0
    worst, screened, _ = lines(statement_of_run(**small(1, 0.1, 1e-3, stability=ONE, delta_2=1e-4)))
    assert both_ways(secret, mask, screened.epsilon) <= 1e-3  # what the conservative policy marks
    assert both_ways(published, mask, worst.epsilon_missed) == 1.0
    assert (worst.epsilon, worst.status) == (math.inf, "heuristic")
    assert "nothing is guaranteed" in worst.sentence
    assert "public stream" in worst.sentence
    assert "conservative policy marks" in worst.paper.difference


# what the lines say ---------------------------------------------------------------------------------------------------


def test_the_screened_group_is_rounded_up_but_not_for_the_last_digit() -> None:
    for group, gamma, missed in ((30, 0.1, 3), (31, 0.1, 4), (3, 1e-3, 1), (3, 1.0, 3), (2, 0.5, 1)):
        screened = lines(said(group_size=group, gamma=gamma, steps=1, noise_multiplier=200.0))[1]
        assert f"misses at most {missed}," in screened.sentence
        assert screened.status == ("proved" if missed == group else "heuristic")


def test_a_policy_that_misses_nothing() -> None:
    worst, screened, bayesian = lines(said(gamma=0.0))
    assert worst.epsilon > 1
    assert (screened.epsilon, bayesian.epsilon) == (0.0, 0.0)
    assert screened.status == "heuristic"  # nothing was measured
    assert "catches" in screened.sentence


def test_a_trace_exempts_nobody() -> None:
    worst, screened, bayesian = lines(said(stability=Stability(3, 3)))
    assert worst.epsilon == screened.epsilon == screened.epsilon_caught == bayesian.epsilon
    assert "still changes 3 records" in screened.paper.difference
    assert "up to 3" in worst.paper.difference


def test_two_hundred_labels_of_the_conservative_policy_prove_nothing() -> None:
    worst, screened, bayesian = lines(said(gamma=Labels(200, 20), delta_2=Labels(200, 0)))
    assert (worst.epsilon, bayesian.epsilon, bayesian.status) == (math.inf, math.inf, "heuristic")
    assert "0.01487" in bayesian.sentence
    assert "not below delta 8e-05" in bayesian.sentence
    assert screened.epsilon == pytest.approx(1.743, abs=1e-3)
    enough = lines(said(gamma=Labels(200, 20), delta_2=Labels(400_000, 0)))[2]
    assert (enough.status, enough.epsilon) == ("measured", pytest.approx(0.40, abs=0.02))


def test_what_was_not_measured_is_not_said() -> None:
    statement = said(gamma=None)
    assert (statement.screened, statement.bayesian) == (None, None)
    assert statement.worst_case.epsilon == lines(said())[0].epsilon
    assert said(gamma=None, delta_2=1.0).worst_case.epsilon == math.inf


def test_all_that_read_private_records_counts() -> None:
    vocabulary = [Spend(ThresholdedHistogram(40.0, 400, 8))]
    without, both = said(), said(others=vocabulary)
    for one, two in zip(lines(without), lines(both), strict=True):
        assert one.epsilon < two.epsilon
    for line in lines(said(others=[Spend(NonPrivate("control"))])):
        assert (line.epsilon, line.status) == (math.inf, "heuristic")
        assert line.paper.epsilon == math.inf


STATEMENTS: list[Callable[[], ConfidentialityStatement]] = [
    said,
    lambda: said(gamma=Labels(200, 20), delta_2=Labels(200, 0), group_size=2, stability=Stability(3, 2)),
    lambda: said(group_size=4, others=[Spend(NonPrivate("control"))]),
    lambda: said(gamma=None),
]


@pytest.mark.slow
@pytest.mark.parametrize("ask", STATEMENTS)
def test_json_and_sentences(ask: Callable[[], ConfidentialityStatement]) -> None:
    statement = ask()
    values = json.loads(json.dumps(statement.to_dict(), allow_nan=False))
    assert list(values) == [
        "apart",
        "records",
        "group_size",
        "stability",
        "worst_case",
        "screened",
        "bayesian",
        "shares",
    ]
    assert "never added" in values["apart"]
    for name in ("worst_case", "screened", "bayesian"):
        line = values[name]
        if line is None:
            continue
        assert line["epsilon"] == "infinity" or line["epsilon"] >= 0
        for sentence in (line["assumption"], line["paper"]["difference"]):
            assert sentence.endswith(".")
            assert ". " not in sentence, "one sentence"
            assert "\n" not in sentence
        assert line["delta"] == statement.worst_case.delta
        assert line["paper"]["source"].startswith("theorem 8.")


# refusals -------------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"delta": 1e-4}, "delta-too-large"),
    ({"records": 20_000}, "delta-too-large"),
    ({"stability": Stability(math.inf, 0)}, "near-duplicates-before-claim"),
    ({"noise_multiplier": 0.01}, "noise-too-small"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED)
def test_what_cannot_be_proved_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError) as caught:
        said(**changes)
    assert caught.value.reason == reason
    assert "\n" not in str(caught.value)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"records": 0}, "records"),
    ({"gamma": 1.5}, "gamma"),
    ({"gamma": math.nan}, "gamma"),
    ({"gamma": 1e-5}, "gamma 1e-05 is not above delta"),
    ({"delta_2": -0.1}, "delta_2"),
    ({"delta": math.nan}, "delta"),
    ({"delta": 0.0}, "delta"),
    ({"group_size": 0}, "group_size"),
    ({"sampling_probability": 1.5}, "sampling_probability"),
    ({"steps": 0}, "count"),
    ({"stability": Stability(1, 2)}, "stability"),
    ({"stability": Stability(0, 0)}, "stability"),
    ({"gamma": Labels(200, 20), "confidence": 1.0}, "confidence"),
]


@pytest.mark.parametrize(("changes", "named"), MISTAKES)
def test_a_mistake_is_one_line(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        said(**changes)
    assert "\n" not in str(caught.value)

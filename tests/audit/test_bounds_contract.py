"""What every member of `BOUNDS` keeps to; a toy that always says 0 shows that a new one needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.audit.audits import perfect_scores

from tacit.audit.bounds.bound import MOST_COINS, Bound
from tacit.audit.bounds.clopper_pearson import ClopperPearson
from tacit.audit.bounds.evidence import Ranks, Scores
from tacit.audit.bounds.gaussian import GaussianDp
from tacit.audit.bounds.guessing import right_guesses
from tacit.audit.bounds.guessing_game import GuessingGame
from tacit.audit.bounds.one_run import OneRun
from tacit.audit.bounds.one_run_fdp import OneRunFdp
from tacit.audit.bounds.registry import BOUNDS
from tacit.audit.bounds.table import capacity_table
from tacit.audit.bounds.verdict import Claim, Verdict, has_power, judge
from tacit.audit.self_test.simulated import gaussian_audits
from tacit.errors import DataError, UsageError


@dataclass(frozen=True)
class Silent(Bound[Scores]):
    """A toy that uses its level for nothing."""

    name: ClassVar[str] = "silent"
    reads: ClassVar[type] = Scores

    def size(self, evidence: Scores) -> int:
        return len(evidence.scores_m)

    def at_level(self, evidence: Scores, delta: float, level: float) -> tuple[float, Mapping[str, int | float]]:
        return 0.0, {}

    def perfect(self, size: int, delta: float, level: float) -> float:
        return 0.0


MEMBERS: dict[str, Bound[Any]] = {
    "one-run": OneRun(),
    "clopper-pearson": ClopperPearson(),
    "one-run-f-dp": OneRunFdp(),
    "gaussian-dp": GaussianDp(),
    "guessing-game": GuessingGame(candidates=10),
    "silent": Silent(),
}
DELTA = 1e-5


def perfect_evidence(bound: Bound[Any], size: int) -> Scores | Ranks:
    return perfect_scores(size) if bound.reads is Scores else Ranks(np.ones(size))


def test_every_bound_is_in_the_contract() -> None:
    assert MEMBERS.keys() - {"silent"} == BOUNDS.keys()
    assert all(type(MEMBERS[name]) is member and member.name == name for name, member in BOUNDS.items())


@pytest.fixture(params=MEMBERS.values(), ids=MEMBERS)
def bound(request: pytest.FixtureRequest) -> Bound[Any]:
    return request.param


def test_a_perfect_attack_shows_the_capacity(bound: Bound[Any]) -> None:
    found = bound.lower_bound(perfect_evidence(bound, 200), DELTA)
    assert found.epsilon == pytest.approx(found.capacity, rel=0.02)  # other halves of the coins may test
    assert found.capacity == bound.capacity(200, DELTA)
    assert (found.bound, found.delta, found.confidence) == (bound.name, DELTA, 0.95)


def test_an_attack_that_is_always_wrong_shows_nothing(bound: Bound[Any]) -> None:
    if bound.reads is Ranks:
        wrong: Scores | Ranks = Ranks(np.full(200, 1.5))
    else:
        perfect = perfect_scores(200)
        wrong = Scores(-perfect.scores_m, perfect.included_m, perfect.order_m)
    assert bound.lower_bound(wrong, DELTA).epsilon == 0


def test_constant_scores_show_nothing_whatever_their_order(bound: Bound[Any]) -> None:
    if bound.reads is Scores:
        for included_m in (np.arange(100) < 50, np.arange(100) >= 50):
            assert bound.lower_bound(Scores(np.zeros(100), included_m, np.arange(100)), DELTA).epsilon == 0


def test_more_examples_less_confidence_and_more_delta_go_the_right_way(bound: Bound[Any]) -> None:
    capacities = [bound.capacity(size, DELTA) for size in (1, 3, 10, 30, 100, 300)]
    assert capacities == sorted(capacities)
    assert bound.capacity(100, DELTA, 0.99) <= bound.capacity(100, DELTA, 0.95) <= bound.capacity(100, DELTA, 0.5)
    assert bound.capacity(100, 0.01) <= bound.capacity(100, DELTA)


def test_coins_needed_are_the_fewest(bound: Bound[Any]) -> None:
    if bound.name == "silent":
        with pytest.raises(UsageError, match=f"at most {MOST_COINS}"):
            bound.coins_needed(1.0, DELTA)
        return
    for epsilon in (0.5, 3.0):
        needed = bound.coins_needed(epsilon, DELTA)
        assert bound.capacity(needed, DELTA) >= epsilon
        assert needed == 1 or bound.capacity(needed - 1, DELTA) < epsilon


def test_senseless_numbers_are_refused(bound: Bound[Any]) -> None:
    evidence = perfect_evidence(bound, 20)
    for delta in (-0.1, 1.0, float("nan")):
        with pytest.raises(UsageError, match="delta"):
            bound.lower_bound(evidence, delta)
    for confidence in (0.0, 1.0, float("nan")):
        with pytest.raises(UsageError, match="confidence"):
            bound.capacity(20, DELTA, confidence)
    with pytest.raises(UsageError, match="at least 1"):
        bound.capacity(0, DELTA)
    with pytest.raises(UsageError, match="epsilon"):
        bound.coins_needed(0.0, DELTA)
    if bound.needs_delta:
        with pytest.raises(UsageError, match="delta above 0"):
            bound.lower_bound(evidence, 0.0)


def test_a_model_is_named(bound: Bound[Any]) -> None:
    assert bound.assumes or not bound.model_based
    with pytest.raises(FrozenInstanceError):
        bound.lower_bound(perfect_evidence(bound, 20), DELTA).epsilon = 0.0


@pytest.mark.parametrize(
    ("epsilon", "size"), [(4.0, 166), (5.0, 447), (5.809, 1000), (8.0, 8932)], ids=["4", "5", "5.81", "8"]
)
def test_the_oracle_of_capacities(epsilon: float, size: int) -> None:
    """A perfect one-run attack at 95 % and delta 0: level^(1/m) = e^epsilon / (1 + e^epsilon)."""
    everything = OneRun(shares=(1.0,))
    assert everything.capacity(size, 0.0) == pytest.approx(epsilon, abs=0.006)
    assert everything.coins_needed(epsilon, 0.0) == size


def test_rates_become_epsilon_in_both_directions_and_mu() -> None:
    """ln((TPR - delta) / FPR) or ln((1 - FPR - delta) / (1 - TPR)); mu = Phi^-1(TPR) - Phi^-1(FPR)."""
    tpr, fpr = np.array([0.5, 0.9, 0.1, 0.0]), np.array([0.1, 0.5, 0.5, 1.0])
    wanted = [np.log(0.45 / 0.1), np.log(0.45 / 0.1), 0.0, 0.0]
    assert ClopperPearson().shown(tpr, fpr, 0.05) == pytest.approx(wanted)
    assert GaussianDp().shown(tpr, fpr, 0.05) == pytest.approx([1.2815516, 1.2815516, 0.0, 0.0])


def test_options_are_checked() -> None:
    for shares in ((), (0.0,), (1.1,)):
        with pytest.raises(UsageError, match="shares"):
            OneRun(shares=shares)
    with pytest.raises(UsageError, match="share of examples"):
        ClopperPearson(choosing=1.0)
    for candidates, units in ((1, 1), (2, 0)):
        with pytest.raises(UsageError, match="whole number"):
            GuessingGame(candidates, units)


def test_evidence_is_checked() -> None:
    scores_m, included_m = np.array([0.5, 1.0]), np.array([True, False])
    for wrong in ((scores_m[:1], included_m), (scores_m[:0], included_m[:0]), (scores_m, included_m.astype(int))):
        with pytest.raises(UsageError):
            Scores(*wrong)
    with pytest.raises(UsageError, match="permutation"):
        Scores(scores_m, included_m, np.array([0, 0]))
    with pytest.raises(UsageError, match="not fair"):
        Scores(np.zeros(1000), np.arange(1000) < 400)
    with pytest.raises(UsageError, match="relation"):
        Scores(scores_m, included_m, relation="swap")
    with pytest.raises(DataError, match="finite"):
        Scores(np.array([0.5, np.nan]), included_m)
    with pytest.raises(UsageError, match="order_m"):
        ClopperPearson().lower_bound(Scores(scores_m, included_m), DELTA)
    for ranks_T in (np.array([]), np.array([0.0]), np.array([np.nan])):
        with pytest.raises(UsageError, match="rank"):
            Ranks(ranks_T)
    with pytest.raises(UsageError, match="candidates"):
        GuessingGame(2).lower_bound(Ranks(np.array([3.0])), DELTA)


def test_guesses_take_both_ends_and_ties_at_their_worst() -> None:
    scores_m, included_m = np.array([5.0, 4.0, 4.0, 4.0, 1.0, 0.0]), np.array([True, True, False, False, True, False])
    given = Scores(scores_m, included_m)
    assert [right_guesses(given, guesses) for guesses in (1, 2, 3, 4, 5)] == [1, 2, 2, 2, 2]
    assert (
        right_guesses(given, 6) == 2
    )  # top three: 5 and two of the tied, both wrong at worst; below: 0, 1 and a tied one
    shuffled = np.random.default_rng(0).permutation(6)
    assert right_guesses(Scores(scores_m[shuffled], included_m[shuffled]), 6) == 2


def test_verdicts() -> None:
    strong, weak, chance = perfect_scores(400), *(next(gaussian_audits(1, 400, mu, seed=3)) for mu in (1.0, 0.0))
    one_run, modelled = OneRun(), OneRunFdp()
    assert has_power(one_run, strong, DELTA)
    assert not has_power(one_run, chance, DELTA)
    found = one_run.lower_bound(weak, DELTA)
    assert 0 < found.epsilon < 4 < found.capacity < 8
    claims = {epsilon: Claim(epsilon, DELTA, "add-or-remove") for epsilon in (2.0, 4.0, 8.0, float("inf"))}
    assert judge(found, claims[4.0], powerful=True) is Verdict.NOT_CONTRADICTED
    assert judge(found, claims[4.0], powerful=False) is Verdict.UNDECIDED
    assert judge(found, claims[8.0], powerful=True) is Verdict.INCONCLUSIVE
    assert judge(found, claims[float("inf")], powerful=True) is Verdict.INCONCLUSIVE
    assert judge(one_run.lower_bound(strong, DELTA), claims[2.0], powerful=False) is Verdict.VIOLATED
    above = modelled.lower_bound(strong, DELTA)
    assert judge(above, claims[2.0], powerful=True) is Verdict.INCONCLUSIVE  # randomised response has no Gaussian curve
    assert judge(above, claims[2.0], powerful=True, granted=True) is Verdict.VIOLATED
    for other in (Claim(4.0, 1e-6, "add-or-remove"), Claim(4.0, DELTA, "replace")):
        with pytest.raises(UsageError, match="cannot be compared"):
            judge(found, other, powerful=True)
    game = GuessingGame(10).lower_bound(Ranks(np.ones(20)), DELTA)
    assert judge(game, Claim(1.0, DELTA, "replace"), powerful=True) is Verdict.VIOLATED
    for epsilon in (float("nan"), -1.0):
        with pytest.raises(UsageError, match="at least 0"):
            Claim(epsilon, DELTA, "replace")
    assert not any("pass" in verdict for verdict in Verdict)


def test_the_page_has_the_table() -> None:
    """As ``python -m tacit.audit.bounds.table`` prints it."""
    page = Path(__file__).parents[2] / "docs" / "audit-bounds.md"
    assert capacity_table() in page.read_text(encoding="utf-8")

"""What another run spent, and what may have read any unit: both in one account."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tacit.errors import BudgetError, LedgerError
from tacit.privacy.accounting.accountant import account_parts, epsilon, joint_epsilon
from tacit.privacy.events import EVERY_PART, Gaussian, NonPrivate, PoissonGaussian, Spend
from tacit.privacy.ledger import Ledger, LedgerHeader

TRAINING = Spend(PoissonGaussian(0.1, 2.0), 20, "training units")
HELD_OUT = Spend(Gaussian(3.0), 1, "held-out units")
SHARED = Spend(PoissonGaussian(0.2, 1.5), 5, EVERY_PART)
DELTA = 1e-5


def header(budget: float = math.inf) -> LedgerHeader:
    return LedgerHeader("document", "add-or-remove", 100, budget, DELTA, "digest", "commitment")


def test_every_part_composes_with_each_part_and_they_not_with_each_other() -> None:
    found = joint_epsilon([TRAINING, HELD_OUT, SHARED], DELTA)
    parts = [epsilon([TRAINING, SHARED], DELTA), epsilon([HELD_OUT, SHARED], DELTA)]
    assert found == max(parts)
    assert found < epsilon([TRAINING, HELD_OUT, SHARED], DELTA)
    assert len(account_parts([TRAINING, HELD_OUT, SHARED], "add-or-remove")) == 2
    assert joint_epsilon([SHARED], DELTA) == epsilon([SHARED], DELTA)
    assert account_parts([], "add-or-remove") == []


def test_under_replacement_all_is_one_part() -> None:
    (part,) = account_parts([TRAINING, HELD_OUT, SHARED], "replace")
    assert len(part) == 3


def test_a_shared_release_without_a_guarantee_has_no_epsilon_anywhere() -> None:
    assert math.isinf(joint_epsilon([TRAINING, Spend(NonPrivate("x"), 1, EVERY_PART)], DELTA))


def test_inherited_spends_are_in_the_ledger_whole_and_once(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger.sqlite", header()) as ledger:
        for _ in range(2):
            ledger.inherit("before", TRAINING)
        assert ledger.spends() == [TRAINING]
        head = ledger.head
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.inherit("before", TRAINING)
        assert ledger.head == head
        ledger.plan("own", SHARED.event, SHARED.count, SHARED.partition)
        for step in range(SHARED.count):
            ledger.charge("own", step)
        assert ledger.spends() == [TRAINING, SHARED]
        with pytest.raises(BudgetError, match="has used all its 20 steps"):
            ledger.charge("before", 20)
        with pytest.raises(LedgerError, match="planned differently"):
            ledger.inherit("before", HELD_OUT)


def test_inherited_spends_count_against_the_budget(tmp_path: Path) -> None:
    alone = [epsilon([spend], DELTA) for spend in (TRAINING, SHARED)]
    both = epsilon([TRAINING, SHARED], DELTA)
    with Ledger.create(tmp_path / "ledger.sqlite", header((max(alone) + both) / 2)) as ledger:
        ledger.inherit("before", TRAINING)
        with pytest.raises(BudgetError, match="'own'"):
            ledger.plan("own", SHARED.event, SHARED.count, SHARED.partition)
        assert ledger.spends() == [TRAINING]
    with (
        Ledger.create(tmp_path / "small.sqlite", header(alone[0] / 2)) as ledger,
        pytest.raises(BudgetError, match="'before'"),
    ):
        ledger.inherit("before", TRAINING)

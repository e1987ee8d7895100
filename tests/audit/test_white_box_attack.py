"""What updates say of coins: memory is found on either side, chance is not, and nothing of it is for the public."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.audit.attack import RELEASED, Attack, UndecidedError, shown
from tacit.audit.attacks import ATTACKS, asked_attacks, check_gate
from tacit.audit.bounds.verdict import Verdict
from tacit.audit.coins_attack import verdict_of
from tacit.audit.white_box_attack import WHITE_BOX, audit_updates
from tacit.config import parse_config
from tacit.corpus.coins import Coins
from tacit.errors import UsageError
from tacit.report.collect.attacks import attack_facts

from .test_coins_attack import M, config_of, most_right, tossed

KNOWN = {"proven": 1.0, "blind": {"value": 0.5, "low": 0.4, "high": 0.6}}


def products(coins: Coins, memory: float) -> np.ndarray:
    """Of somebody whose updates hold so many deviations of each example that is trained on."""
    noise_U = np.random.default_rng(3).normal(size=M if coins.others_mT is None else 2 * M)
    trained_U = coins.included_m if coins.others_mT is None else np.concatenate([coins.included_m, ~coins.included_m])
    return noise_U + memory * trained_U


@pytest.mark.parametrize("replace", [False, True])
def test_what_was_in_the_updates_is_found_and_chance_is_not(tmp_path: Path, replace: bool) -> None:
    config, coins = config_of(tmp_path, "replace" if replace else "add-or-remove"), tossed(replace)
    knows, knows_nothing = (audit_updates(config, coins, products(coins, memory)) for memory in (9.0, 0.0))
    assert knows["right"] == most_right()
    assert 3.0 < knows["bounds"][0]["epsilon"] <= knows["bounds"][0]["capacity"]
    assert [bound["score"] for bound in knows["bounds"]] == ["noisy updates"] * len(knows["bounds"])
    assert knows["bounds"][0]["bound"] == "one-run"
    assert knows_nothing["bounds"][0]["epsilon"] == 0
    verdicts = [verdict_of(config, {RELEASED: KNOWN | found}) for found in (knows, knows_nothing)]
    assert verdicts == [Verdict.VIOLATED, Verdict.UNDECIDED]


def test_under_replacement_the_example_in_its_place_counts_too(tmp_path: Path) -> None:
    """Known wrong: the products of one side alone show less."""
    config, coins = config_of(tmp_path, "replace"), tossed(replace=True)
    both = products(coins, 2.0)
    alone = np.concatenate([both[:M], np.zeros(M)])
    least, most = (audit_updates(config, coins, one)["right"] for one in (alone, both))
    assert most > least + 10


def test_a_training_that_diverged_is_undecided(tmp_path: Path) -> None:
    coins = tossed()
    with pytest.raises(UndecidedError, match="no finite number"):
        audit_updates(config_of(tmp_path), coins, np.full(M, np.nan))


def test_it_is_the_curators_alone_and_decides_nothing(tmp_path: Path) -> None:
    values = config_of(tmp_path).model_dump(mode="json")
    values["audit"]["white_box"] = True
    config, coins = parse_config(values), tossed()
    assert asked_attacks(config)[-1] is WHITE_BOX is ATTACKS["white-box"]
    measured = KNOWN | audit_updates(config, coins, products(coins, 9.0))
    found = {"white-box": {RELEASED: measured}}
    assert shown(WHITE_BOX, found["white-box"], curator=False) is None
    assert attack_facts(config, found, curator=False) == ()
    (facts,) = attack_facts(config, found, curator=True)
    assert [row.parameters.get("verdict") for row in facts.rows][:2] == [None, "violated"]
    check_gate(config, found)  # the existence of a release and the exit code hang on what is released
    with pytest.raises(UsageError, match="the curator's alone"):
        Attack("a", "A", True, WHITE_BOX.prepare, WHITE_BOX.answer, "a", of_training=True)

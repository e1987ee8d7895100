"""What coins say of a claim: verdicts, power, the pair that counts, the gate's exit code; on models that know nothing or all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.audit.attack import CONTROL, RELEASED, Answer, UndecidedError
from tacit.audit.attacks import ATTACKS, answer_of, check_attacks, check_gate
from tacit.audit.bounds.verdict import Verdict
from tacit.audit.coin_scores import SCORES, Seen, TokenNats
from tacit.audit.coins_attack import COINS, audit_coins, blind_guesses, verdict_of
from tacit.audit.coins_plan import COIN_BOUNDS, coin_warnings
from tacit.config import RunConfig, parse_config
from tacit.corpus.coins import Coins, toss_coins
from tacit.errors import AuditError, ContradictedError, UsageError
from tacit.privacy.events import NonPrivate, PoissonGaussian, Spend
from tacit.randomness import KeyedRandomness
from tacit.report.collect.attacks import attack_facts
from tacit.report.prose import attack_sentences

from ..small import small_values

M, P = 400, 5
STREAMS = KeyedRandomness(bytes(32))


def config_of(folder: Path, relation: str = "add-or-remove", **coins: Any) -> RunConfig:
    privacy = {"unit": "user", "units": 500, "relation": relation, "budget": {"epsilon": 9.0, "delta": 1e-4}}
    return parse_config(small_values(folder, privacy=privacy, audit={"coins": {"examples": M, "pieces": P, **coins}}))


def tossed(replace: bool = False) -> Coins:
    bodies = STREAMS.generator("bodies").integers(5, 90, size=(2, M, P))
    return toss_coins(bodies[0], bodies[1] if replace else None, (2, 3, 0), P + 4, STREAMS)


def said(coins: Coins, memory: float, side: int = 0) -> Seen:
    """Of a model that finds what was trained on ``memory`` nats a token likelier, in noise of one nat."""
    generator = np.random.default_rng(side)
    trained_m = ~coins.included_m if side else coins.included_m
    before = generator.normal(6, 1, (M, P))
    after = before + generator.normal(0, 1, (M, P)) - memory * trained_m[:, None]
    one = np.ones((M, P))
    texts = tuple("abcde"[number % 5] for number in range(M))
    return Seen(TokenNats(after, 6 * one, one), TokenNats(before, 6 * one, one), texts)


def values(config: RunConfig, memory: float, proven: float | str = 1.0, replace: bool = False) -> dict[str, Any]:
    coins = tossed(replace)
    seen = [said(coins, memory, side) for side in range(2 if replace else 1)]
    found = {"proven": proven, "blind": {"value": 0.5, "low": 0.4, "high": 0.6}, **audit_coins(config, coins, seen)}
    return json.loads(json.dumps(found))  # as a file has it


def most_right() -> int:
    """Half of all examples are guessed in, however many are."""
    return M - abs(int(tossed().included_m.sum()) - M // 2)


@pytest.mark.parametrize("replace", [False, True])
def test_memory_is_found_and_chance_is_not(tmp_path: Path, replace: bool) -> None:
    config = config_of(tmp_path, "replace" if replace else "add-or-remove")
    knows, knows_nothing = values(config, 9.0, replace=replace), values(config, 0.0, replace=replace)
    assert knows["right"] == most_right()
    assert 3.0 < knows["bounds"][0]["epsilon"] <= knows["bounds"][0]["capacity"] < 4.6
    assert knows["bounds"][0]["relation"] == config.privacy.relation
    assert abs(knows_nothing["right"] - M / 2) < 4 * M**0.5 / 2
    assert knows_nothing["bounds"][0]["epsilon"] == 0


def test_under_replacement_a_model_that_learned_the_other_example_is_found_too(tmp_path: Path) -> None:
    """Without the other side's score half of what is known would be lost."""
    config, coins = config_of(tmp_path, "replace"), tossed(replace=True)
    nothing, other = said(coins, 0.0), said(coins, 9.0, side=1)
    assert audit_coins(config, coins, [nothing, other])["right"] == most_right()


@pytest.mark.parametrize(
    ("memory", "control", "proven", "expected"),
    [
        (9.0, None, 1.0, Verdict.VIOLATED),
        (9.0, 0.0, 1.0, Verdict.VIOLATED),  # which needs no control
        (9.0, None, 7.0, Verdict.INCONCLUSIVE),
        (9.0, None, "infinity", Verdict.INCONCLUSIVE),
        (0.0, None, 1.0, Verdict.UNDECIDED),
        (0.0, 0.0, 1.0, Verdict.UNDECIDED),
        (0.0, 9.0, 1.0, Verdict.NOT_CONTRADICTED),
        (0.0, 9.0, 7.0, Verdict.INCONCLUSIVE),
        (0.6, None, 3.0, Verdict.NOT_CONTRADICTED),  # it finds memory, so it has power
    ],
)
def test_verdicts(tmp_path: Path, memory: float, control: float | None, proven: Any, expected: Verdict) -> None:
    config = config_of(tmp_path)
    found = {RELEASED: values(config, memory, proven)} | (
        {} if control is None else {CONTROL: values(config, control, proven)}
    )
    assert verdict_of(config, found) is expected


@pytest.mark.parametrize("bound", [name for name, bound in COIN_BOUNDS.items() if bound.assumes])
def test_a_bound_with_an_assumption_contradicts_nothing(tmp_path: Path, bound: str) -> None:
    config = config_of(tmp_path, bound=bound)
    found = values(config, 9.0)
    assert found["bounds"][0]["bound"] == bound
    assert found["bounds"][0]["epsilon"] > 1
    assert verdict_of(config, {RELEASED: found}) is Verdict.INCONCLUSIVE
    check_gate(config, {"coins": {RELEASED: found}})


def test_one_pair_counts_and_the_others_are_exploratory(tmp_path: Path) -> None:
    """A better pair that was not chosen before decides nothing."""
    config = config_of(tmp_path, score="min-k", bound="clopper-pearson")
    found = values(config, 9.0)
    pairs = [(one["score"], one["bound"]) for one in found["bounds"]]
    assert pairs[0] == ("min-k", "clopper-pearson")
    assert set(pairs) == {("min-k", bound) for bound in COIN_BOUNDS} | {(score, "clopper-pearson") for score in SCORES}
    answer = answer_of(COINS, config, {RELEASED: found, CONTROL: found}, curator=True)
    assert isinstance(answer, Answer)
    verdicts = [row.parameters.get("verdict") for row in answer.rows if row.model == RELEASED]
    assert [row.name for row in answer.rows if "model-based" in row.name] == [
        "lower bound, one-run-f-dp (model-based), min-k",
        "lower bound, gaussian-dp (model-based), min-k",
    ]
    assert verdicts == [None, "inconclusive", *["exploratory"] * (len(pairs) - 1)]
    assert [row.parameters.get("verdict") for row in answer.rows if row.model == CONTROL] == [None, "positive control"]


def test_a_contradiction_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with pytest.raises(
        ContradictedError, match=r"the lower bound on epsilon by coins, \d\.\d+ \(95 %\), is above the proven 1 "
    ) as one:
        check_gate(config, {"coins": {RELEASED: values(config, 9.0)}})
    assert one.value.exit_code == 6
    assert isinstance(one.value, AuditError)
    check_gate(config, {"coins": {RELEASED: values(config, 0.0)}})
    check_gate(config, {"coins": {RELEASED: values(config, 0.0), CONTROL: values(config, 9.0)}})  # it decides nothing
    check_gate(config, {"coins": {"undecided": "undecided: a reason"}})


def test_a_model_that_diverged_is_undecided(tmp_path: Path) -> None:
    config, coins = config_of(tmp_path), tossed()
    broken = said(coins, 0.0)
    broken.after.nats_mP[3, 2] = np.nan
    with pytest.raises(UndecidedError, match="no finite number"):
        audit_coins(config, coins, [broken])


@pytest.mark.parametrize("proven", [1.0, 7.0, "infinity"])
@pytest.mark.parametrize("memory", [0.0, 9.0])
def test_report_and_page_say_the_capacity_beside_the_bound(tmp_path: Path, proven: Any, memory: float) -> None:
    config = config_of(tmp_path)
    found = {"coins": {RELEASED: values(config, memory, proven), CONTROL: values(config, 9.0, proven)}}
    for curator in (False, True):
        (facts,) = attack_facts(config, found, curator)
        words = " ".join(attack_sentences(facts))
        verdict = str(verdict_of(config, found["coins"] if curator else {RELEASED: found["coins"][RELEASED]}))
        assert "a perfect attack could at best show 4.57" in words
        assert verdict.partition(":")[0].upper() in words
        assert "pass" not in words.lower()
        assert any(row.parameters.get("verdict") == verdict for row in facts.rows)
        assert ("control" in {row.model.split()[0] for row in facts.rows}) == curator


def test_printed_numbers_are_on_the_safe_side(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    found = values(config, 9.0, 7.0003)
    found["bounds"][0] |= {"epsilon": 3.4567, "capacity": 4.5678}
    answer = COINS.answer(config, {RELEASED: found})
    words = next(row.words for row in answer.rows if "perfect attack" in row.words)
    assert "at least 3.45 " in words
    assert "could at best show 4.56," in words
    assert "7.01 is proved" in words


# without a model -----------------------------------------------------------------------------------------------------


def texts_of(coins: Coins) -> list[tuple[str, ...]]:
    return [tuple(" ".join(chr(97 + piece % 26) for piece in row) for row in coins.ids_mT)]


def test_without_a_model_fair_coins_are_not_guessed() -> None:
    coins = tossed()
    found = blind_guesses(coins, texts_of(coins), STREAMS)
    assert found.low <= 0.5 <= found.high


def test_coins_that_hang_on_the_examples_are_guessed_without_a_model() -> None:
    """The known-wrong toss: an example is in where its first piece says so."""
    coins = tossed()
    wrong = coins.ids_mT[:, 1] % 26 < 13
    found = blind_guesses(Coins(coins.ids_mT, None, coins.length, wrong, coins.order_m, ""), texts_of(coins), STREAMS)
    assert found.low > 0.5


# before a run --------------------------------------------------------------------------------------------------------


def test_a_plan_says_how_many_examples_are_needed(tmp_path: Path) -> None:
    spends = [Spend(PoissonGaussian(0.1, 0.8), 60, "training")]
    (warning,) = coin_warnings(config_of(tmp_path), spends)
    assert "even a perfect attack shows no more than epsilon 4.57 by one-run" in warning
    needed = int(warning.partition("it takes ")[2].partition(" ")[0].replace(",", ""))
    privacy = {"unit": "user", "units": 20_000, "budget": {"epsilon": 9.0, "delta": 1e-5}}
    enough = parse_config(small_values(tmp_path, privacy=privacy, audit={"coins": {"examples": 15_000}}))
    assert needed > M
    assert coin_warnings(enough, [Spend(PoissonGaussian(0.1, 2.0), 60, "training")]) == ()


def test_a_plan_without_a_proof_says_so(tmp_path: Path) -> None:
    values = small_values(tmp_path, seed="public", allow=["heuristic:public-key"], audit={"coins": {"examples": 20}})
    assert coin_warnings(parse_config(values), [])[0].endswith("no lower bound can contradict it")
    assert coin_warnings(parse_config(small_values(tmp_path)), [Spend(NonPrivate("x"), 1, "training")]) == ()


@pytest.mark.parametrize(
    ("coins", "message"),
    [
        ({"score": "nix"}, "audit.coins.score: there is no 'nix'; there are: calibrated, "),
        ({"bound": "guessing-game"}, "audit.coins.bound: there is no 'guessing-game'; there are: one-run, "),
        ({"kind": "nix"}, "audit.coins.kind: there is no 'nix'; there are: random-pieces, "),
        ({"pieces": 23}, "does not fit into model.length 24"),
        ({"examples": 151}, "more than the 150 privacy.units"),
        ({"examples": 9}, "option 'audit.coins.examples': input should be greater than or equal to 10"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, coins: dict[str, Any], message: str) -> None:
    given = small_values(tmp_path, audit={"coins": {"examples": 20, "pieces": 6, **coins}})
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        check_attacks(parse_config(given))


def test_it_is_registered() -> None:
    assert ATTACKS["coins"] is COINS
    assert COINS.public

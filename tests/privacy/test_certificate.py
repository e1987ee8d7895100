"""A certificate verifies against its own ledger and files, and against nothing else."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import LedgerError
from tacit.privacy import certificate as making
from tacit.privacy import certificate_checks as checking
from tacit.privacy.accounting.accountant import account_parts, epsilon, joint_epsilon, mu_at
from tacit.privacy.accounting.composition import Account
from tacit.privacy.certificate import certificate_deltas, file_digests, make_certificate, total_variation
from tacit.privacy.certificate_checks import second_opinion, verify_certificate
from tacit.privacy.events import Gaussian, NonPrivate, PoissonGaussian, Relation, Spend, ThresholdedHistogram
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.strict_json import read_number, write_number

TRAINING = PoissonGaussian(0.1, 4.0)
BELOW_OPTIMISTIC = "epsilon is not below the optimistic estimate, part 2"
"""The held-out units are the second part of the fixture's ledger, and the worse one."""


def header(epsilon: float = 8.0, relation: Relation = "add-or-remove", config: str = "config") -> LedgerHeader:
    return LedgerHeader("user", relation, 1000, epsilon, 1e-6, config, "key")


def spend(ledger: Ledger, stage: str, times: int) -> None:
    for step in range(ledger.spent(stage), ledger.spent(stage) + times):
        ledger.charge(stage, step)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_bytes(b"weights")
    (folder / "model" / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "ledger.sqlite", header()) as ledger:
        ledger.plan("train", Gaussian(30.0), 10, "training units")
        ledger.plan("evaluation", Gaussian(2.0), 1, "held-out units")
        spend(ledger, "train", 5)
        spend(ledger, "evaluation", 1)
        yield ledger


def failures(ledger: Ledger, certificate: dict[str, Any], release: Path) -> set[str]:
    """The checks that fail, after a round trip through JSON as on disk."""
    stored = json.loads(json.dumps(certificate, allow_nan=False))
    return {check.name for check in verify_certificate(ledger, stored, release) if not check.holds}


def honest(ledger: Ledger, release: Path) -> dict[str, Any]:
    return make_certificate(ledger, file_digests(release), "keyed")


# what it says --------------------------------------------------------------------------------------------------------


def test_it_states_the_joint_epsilon_of_the_ledger(ledger: Ledger, release: Path) -> None:
    certificate = honest(ledger, release)
    assert [pair["delta"] for pair in certificate["epsilons"]] == list(certificate_deltas(1e-6))
    for pair in certificate["epsilons"]:
        assert pair["epsilon"] == joint_epsilon(ledger.spends(), pair["delta"])
        assert pair["epsilon"] == epsilon([Spend(Gaussian(2.0))], pair["delta"])  # the worse part
    assert certificate["mu"] == pytest.approx(0.5, abs=1e-4)
    assert certificate["total_variation"] == pytest.approx(0.19741, abs=1e-4)  # 2 Phi(mu / 2) - 1
    assert certificate["status"] == "proved"
    assert certificate["spends"][0]["count"] == 5  # what was paid, not what was planned
    assert certificate["budget"] == {"epsilon": 8.0, "delta": 1e-6}


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_an_honest_certificate_verifies(tmp_path: Path, release: Path, relation: Relation) -> None:
    with Ledger.create(tmp_path / "ledger.sqlite", header(8.0, relation)) as ledger:
        ledger.plan("vocabulary", ThresholdedHistogram(30.0, 200, 16), 1, "training units")
        ledger.plan("train", TRAINING, 20, "training units")
        ledger.plan("evaluation", Gaussian(5.0), 1, "held-out units")
        for stage, times in (("vocabulary", 1), ("train", 20), ("evaluation", 1)):
            spend(ledger, stage, times)
        certificate = honest(ledger, release)
        assert failures(ledger, certificate, release) == set()
        names = {check.name for check in verify_certificate(ledger, certificate, release)}
        assert any(name.startswith("Renyi DP") for name in names) == (relation == "add-or-remove")
        assert math.isfinite(read_number(certificate["epsilons"][0]["epsilon"]))


def test_a_run_that_spent_nothing_verifies(tmp_path: Path, release: Path) -> None:
    with Ledger.create(tmp_path / "ledger.sqlite", header()) as ledger:
        certificate = honest(ledger, release)
        assert certificate["epsilons"][0]["epsilon"] == 0.0
        assert certificate["total_variation"] == 0.0
        assert failures(ledger, certificate, release) == set()


def test_a_heuristic_is_said_to_be_one(tmp_path: Path, release: Path) -> None:
    with Ledger.create(tmp_path / "ledger.sqlite", header(math.inf)) as ledger:
        ledger.plan("train", Gaussian(30.0), 10)
        ledger.plan("vocabulary", NonPrivate("heuristic:hoory"), 1)
        spend(ledger, "train", 5)
        assert honest(ledger, release)["status"] == "proved"  # nothing heuristic has run yet
        spend(ledger, "vocabulary", 1)
        certificate = honest(ledger, release)
        assert certificate["status"] == "heuristic"
        assert certificate["epsilons"][0]["epsilon"] == certificate["mu"] == "infinity"
        assert failures(ledger, certificate, release) == set()
        lie = {**certificate, "status": "proved"}
        assert "certificate's statements" in failures(ledger, lie, release)
        lie = copy.deepcopy(certificate)
        lie["epsilons"][0]["epsilon"] = 1.0
        assert "epsilon at delta 1e-06" in failures(ledger, lie, release)


# what it catches -----------------------------------------------------------------------------------------------------


def test_a_halved_epsilon_is_caught_twice(ledger: Ledger, release: Path) -> None:
    """By computing it again, and by the optimistic estimate, which no valid bound can be below."""
    certificate = honest(ledger, release)
    certificate["epsilons"][0]["epsilon"] /= 2
    assert failures(ledger, certificate, release) >= {"epsilon at delta 1e-06", BELOW_OPTIMISTIC}


def test_an_accountant_that_lies_low_is_caught_by_the_others(
    ledger: Ledger, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known-wrong: maker and verifier share an accountant that says half. The optimistic estimate contradicts it."""

    def half(spends: list[Spend], delta: float, relation: Relation = "add-or-remove") -> float:
        return joint_epsilon(spends, delta, relation) / 2

    for module in (making, checking):
        monkeypatch.setattr(module, "joint_epsilon", half)
    certificate = honest(ledger, release)
    assert failures(ledger, certificate, release) == {BELOW_OPTIMISTIC}


def test_a_renyi_accountant_that_lies_low_is_caught(
    ledger: Ledger, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = honest(ledger, release)
    monkeypatch.setattr(checking, "rdp_epsilon", lambda *arguments: 0.5)
    assert failures(ledger, certificate, release) == {"Renyi DP is not below the optimistic estimate, part 2"}


def test_a_ledger_with_one_more_step_is_caught(ledger: Ledger, release: Path) -> None:
    certificate = honest(ledger, release)
    spend(ledger, "train", 1)
    assert failures(ledger, certificate, release) >= {"ledger's head is the certified one", "certificate's statements"}
    spend(ledger, "train", 4)
    ledger.plan("release", Gaussian(1.5), 1, "held-out units")
    spend(ledger, "release", 1)
    assert failures(ledger, certificate, release) >= {"epsilon at delta 1e-06", "total variation"}


def test_a_ledger_cut_at_its_end_is_caught(ledger: Ledger, release: Path, tmp_path: Path) -> None:
    """The chain alone cannot see this; the certified head does."""
    certificate = honest(ledger, release)
    with Ledger.create(tmp_path / "cut.sqlite", header()) as cut:
        cut.plan("train", Gaussian(30.0), 10, "training units")
        cut.plan("evaluation", Gaussian(2.0), 1, "held-out units")
        spend(cut, "train", 5)
        assert cut.rows == ledger.rows[:-1]
        assert failures(cut, certificate, release) >= {
            "ledger's head is the certified one",
            "certificate's statements",
            "epsilon at delta 1e-06",
        }


def test_the_certificate_of_another_run_is_caught(ledger: Ledger, release: Path, tmp_path: Path) -> None:
    """Same mechanisms, same spends, another configuration."""
    with Ledger.create(tmp_path / "other.sqlite", header(config="other")) as other:
        other.plan("train", Gaussian(30.0), 10, "training units")
        other.plan("evaluation", Gaussian(2.0), 1, "held-out units")
        spend(other, "train", 5)
        spend(other, "evaluation", 1)
        assert failures(ledger, honest(other, release), release) == {
            "ledger's head is the certified one",
            "certificate's statements",
        }


def test_released_files_are_covered(ledger: Ledger, release: Path) -> None:
    certificate = honest(ledger, release)
    weights = release / "model" / "weights"
    weights.write_bytes(b"Weights")
    assert failures(ledger, certificate, release) == {"released files"}
    weights.unlink()
    assert failures(ledger, certificate, release) == {"released files"}
    weights.write_bytes(b"weights")
    assert failures(ledger, certificate, release) == set()


def test_more_spent_than_the_budget_is_caught(tmp_path: Path, release: Path) -> None:
    """A ledger with a valid chain whose plans were never checked, as a wrong version of `plan` would write it."""
    with Ledger.create(tmp_path / "ledger.sqlite", header(1.0)) as ledger:
        body = {
            "stage": "train",
            "event": {"kind": "gaussian", "noise_multiplier": 2.0},
            "limit": 1,
            "partition": "training",
        }
        ledger._append("plan", body)
        ledger.charge("train")
        assert failures(ledger, honest(ledger, release), release) == {"budget"}


def leaves(values: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(values, (dict, list)):
        for key in values if isinstance(values, dict) else range(len(values)):
            yield from leaves(values[key], (*place, key))
    else:
        yield place, values


def changes(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [value + "0", value[1:], None, "infinity"]
    return [value * (1 + 1e-4) + 1e-12, value / 2 if value else 1, -1, None, "infinity", f"{value}x"]


def test_every_statement_is_checked(ledger: Ledger, release: Path) -> None:
    """Each single value changed in several ways: a check fails, or the certificate is refused. Free text is exempt."""
    certificate = honest(ledger, release)
    places = [place for place, _ in leaves(certificate)]
    assert len(places) > 25
    for place, value in leaves(certificate):
        if place == ("randomness",):
            continue
        for changed in changes(value):
            altered = copy.deepcopy(certificate)
            inside: Any = altered
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = changed
            try:
                found = failures(ledger, altered, release)
            except LedgerError:
                continue
            assert found, (place, value, changed)


def test_a_certificate_without_one_of_its_parts_is_refused(ledger: Ledger, release: Path) -> None:
    certificate = honest(ledger, release)
    for name in certificate.keys() - {"domain"}:  # which earlier ones do not have
        damaged = {key: value for key, value in certificate.items() if key != name}
        with pytest.raises(LedgerError, match="damaged or of another version"):
            verify_certificate(ledger, damaged, release)
    for name, value in (("epsilons", []), ("epsilons", [1.0]), ("files", []), ("files", None), ("epsilons", {})):
        try:
            assert failures(ledger, {**certificate, name: value}, release)
        except LedgerError:
            continue
    for whole in ([], "certificate", 3, None):
        with pytest.raises(LedgerError):
            verify_certificate(ledger, whole, release)


# its parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_the_second_opinion_encloses_the_certified_epsilon(relation: Relation) -> None:
    part = (Spend(ThresholdedHistogram(30.0, 200, 16)), Spend(TRAINING, 200), Spend(Gaussian(9.0)))
    renyi, lower = second_opinion(part, 1e-6, relation)
    found = epsilon(part, 1e-6, relation)
    assert 0.97 * found < lower <= found
    if relation == "replace":
        assert renyi is None
    else:
        assert renyi is not None
        assert found <= renyi < 1.2 * found


def test_total_variation_is_delta_at_epsilon_zero_of_the_worst_part() -> None:
    spends = [Spend(TRAINING, 20, "training units"), Spend(Gaussian(5.0), 1, "held-out units")]
    expected = max(Account(part).delta(0.0) for part in account_parts(spends, "add-or-remove"))
    assert total_variation(spends, "add-or-remove") == expected
    assert total_variation(spends, "replace") > expected
    assert total_variation([Spend(NonPrivate("heuristic:hoory"))], "add-or-remove") == 1.0
    assert total_variation([], "add-or-remove") == 0.0


def test_file_digests(release: Path) -> None:
    digests = file_digests(release)
    assert list(digests) == ["model/tokenizer.json", "model/weights"]
    # sha256 of "{}", as any other tool computes it
    assert digests["model/tokenizer.json"] == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert list(file_digests(release, leave_out=("model/weights",))) == ["model/tokenizer.json"]


@pytest.mark.parametrize("value", [0.0, 0.1, 3.14159, math.inf])
def test_numbers_survive_json(value: float) -> None:
    assert read_number(json.loads(json.dumps(write_number(value), allow_nan=False))) == value


def test_mu_is_that_of_the_certified_epsilon(ledger: Ledger, release: Path) -> None:
    certificate = honest(ledger, release)
    assert certificate["mu"] == mu_at(read_number(certificate["epsilons"][0]["epsilon"]), 1e-6)
    certificate["mu"] /= 10
    assert failures(ledger, certificate, release) == {"certificate's statements"}

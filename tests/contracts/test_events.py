"""An event is one class and one line in ``EVENTS``: its law, its words and its numbers are its own.

A toy event, Laplace noise, lives in this file alone, and goes through ledger, account, certificate, verification and report.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

import tacit
from tacit.errors import LedgerError, UsageError
from tacit.privacy.accounting.accountant import epsilon, joint_epsilon
from tacit.privacy.accounting.composition import Account
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.accounting.replacement import replacement_epsilon
from tacit.privacy.certificate import file_digests, make_certificate
from tacit.privacy.certificate_checks import verify_certificate
from tacit.privacy.events import (
    EVENTS,
    BandedPoissonGaussian,
    CorrelatedPoissonGaussian,
    Event,
    Gaussian,
    NonPrivate,
    PoissonGaussian,
    Relation,
    Spend,
    ThresholdedHistogram,
    WeightedHistogram,
    WordCounts,
    event_from_dict,
    event_to_dict,
)
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.words import WordEvents
from tacit.report.collect.ledger import ledger_rows

from ..ledgers import Row, rewrite_rows

DELTA = 1e-6


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise on a sum in which one unit's vector has l1 norm at most 1 (2 under replacement).

    Args:
        scale: of the noise.
    """

    scale: float

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise UsageError(f"scale is {self.scale!r}; it must be above 0")

    @property
    def title(self) -> str:
        return "Laplace noise on bounded sums"

    def _scale(self, relation: Relation) -> float:
        return self.scale / (2 if relation == "replace" else 1)

    def loss_distribution(
        self, count: int, relation: Relation, grid: float, pessimistic: bool
    ) -> pld.PrivacyLossDistribution:
        one = pld.from_laplace_mechanism(
            self._scale(relation), value_discretization_interval=grid, pessimistic_estimate=pessimistic
        )
        return one.self_compose(count)

    def renyi_event(self, relation: Relation) -> dp_accounting.DpEvent:
        return dp_accounting.LaplaceDpEvent(self._scale(relation))


@dataclass(frozen=True)
class Lawless(Event):
    """An event without a law: an account refuses it, and never counts it as free."""

    @property
    def title(self) -> str:
        return "nobody knows"


@pytest.fixture
def laplace() -> Iterator[type[Laplace]]:
    EVENTS["laplace"] = Laplace
    yield Laplace
    del EVENTS["laplace"]


@pytest.fixture
def ledger(tmp_path: Path, laplace: type[Laplace]) -> Iterator[Ledger]:
    header = LedgerHeader("user", "add-or-remove", 1000, 8.0, DELTA, "config", "key")
    with Ledger.create(tmp_path / "ledger.sqlite", header) as ledger:
        ledger.plan("counts", laplace(4.0), 3, "training units")
        ledger.plan("train", PoissonGaussian(0.1, 2.0), 20, "training units")
        for step in range(3):
            ledger.charge("counts", step)
        for step in range(20):
            ledger.charge("train", step)
        yield ledger


def test_its_epsilon_is_the_closed_form(laplace: type[Laplace]) -> None:
    """One release of Laplace noise has delta(e) = 1 - exp((e - 1/b) / 2)."""
    for relation, scale in (("add-or-remove", 2.0), ("replace", 4.0)):
        truth = 0.5 + 2 * math.log(1 - 1e-3)
        found = epsilon([Spend(laplace(scale))], 1e-3, relation)
        assert truth <= found <= truth + 2e-4


def test_it_composes_with_all_others(laplace: type[Laplace]) -> None:
    spends = [Spend(laplace(3.0), 4), Spend(Gaussian(3.0), 2), Spend(PoissonGaussian(0.05, 1.5), 30)]
    alone = [epsilon([spend], DELTA) for spend in spends]
    together = joint_epsilon(spends, DELTA)
    assert max(alone) < together <= sum(epsilon([spend], DELTA / 3) for spend in spends)
    assert Account(tuple(spends), pessimistic=False).epsilon(DELTA) <= together
    second = rdp_epsilon(spends, DELTA)
    assert second is not None
    assert second >= Account(tuple(spends), pessimistic=False).epsilon(DELTA)
    # After a vocabulary, too, and when several records are replaced at once.
    words = Spend(ThresholdedHistogram(20.0, 120, 8))
    assert joint_epsilon([words, *spends], DELTA) > together
    group = replacement_epsilon([Spend(laplace(8.0))], DELTA, records=2)
    assert group >= 2 * epsilon([Spend(laplace(8.0))], 1e-3, "replace") * 0.9


def test_it_goes_through_ledger_certificate_verification_and_report(ledger: Ledger, tmp_path: Path) -> None:
    release = tmp_path / "release"
    (release / "model").mkdir(parents=True)
    (release / "model" / "weights").write_bytes(b"weights")
    certificate = make_certificate(ledger, file_digests(release), "drawn here")
    stored = json.loads(json.dumps(certificate, allow_nan=False))
    checks = verify_certificate(ledger, stored, release)
    assert [check.name for check in checks if not check.holds] == []
    assert stored["epsilons"][0]["epsilon"] == joint_epsilon(ledger.spends(), DELTA)
    rows = ledger_rows(ledger)
    assert (rows[0].mechanism, rows[0].parameters) == ("Laplace noise on bounded sums", {"scale": 4.0})
    # An epsilon that forgets it is found out.
    stored["epsilons"][0]["epsilon"] = joint_epsilon(ledger.spends()[1:], DELTA)
    assert [check.name for check in verify_certificate(ledger, stored, release) if not check.holds]


def test_its_rows_are_read_strictly(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger.close()

    def damage(rows: list[Row]) -> list[Row]:
        for kind, body, _, _ in rows:
            if kind == "plan" and body["event"]["kind"] == "laplace":
                body["event"]["scale"] = "4.0"
        return rows

    rewrite_rows(path, damage)
    with pytest.raises(LedgerError):
        Ledger.open(path)


def test_without_its_line_it_is_refused_everywhere() -> None:
    with pytest.raises(UsageError):
        Spend(Laplace(1.0))
    with pytest.raises(UsageError):
        event_to_dict(Laplace(1.0))
    with pytest.raises(UsageError):
        event_from_dict({"kind": "laplace", "scale": 1.0})


def test_an_event_without_a_law_is_never_free() -> None:
    EVENTS["lawless"] = Lawless
    try:
        with pytest.raises(UsageError, match="cannot be accounted"):
            epsilon([Spend(Lawless()), Spend(Gaussian(4.0))], DELTA)
        assert rdp_epsilon([Spend(Lawless())], DELTA) is None
    finally:
        del EVENTS["lawless"]


MEMBERS: dict[type[Event], Event] = {
    PoissonGaussian: PoissonGaussian(0.1, 2.0),
    BandedPoissonGaussian: BandedPoissonGaussian(0.1, 2.0, (0.5,), (0.2, 1.0)),
    CorrelatedPoissonGaussian: CorrelatedPoissonGaussian(0.3, 4.0, 3),
    Gaussian: Gaussian(2.0),
    ThresholdedHistogram: ThresholdedHistogram(20.0, 120, 8),
    WeightedHistogram: WeightedHistogram(120_000.0, 700_000, 16, 65_536),
    WordCounts: WordCounts(20.0, 8),
    NonPrivate: NonPrivate("heuristic:test"),
}


def test_every_member_is_here() -> None:
    assert set(EVENTS.values()) == set(MEMBERS)


@pytest.mark.parametrize("event", MEMBERS.values(), ids=lambda event: type(event).__name__)
def test_every_member_answers(event: Event) -> None:
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event
    assert len(event.title) > 10
    assert event.numbers()
    assert event.is_private == (not isinstance(event, NonPrivate))
    assert (event.choice is event) == isinstance(event, ThresholdedHistogram | WeightedHistogram)
    assert (event.bands is not None) == isinstance(event, BandedPoissonGaussian)
    assert math.isinf(epsilon([Spend(event)], DELTA)) == (not event.is_private)
    assert event.releases(str, "counts") == {"0": event}
    assert not event.chooses_words_in_rounds
    named = event.with_rho("a run")
    assert (named == event) == (event.bands is None)


def test_the_releases_of_a_vocabulary_are_told_in_the_same_way() -> None:
    """Of one release, of rounds, and of rounds with counts, by names that the asker gives; what they cost is the same releases."""
    first, second, counts = WeightedHistogram(9e4, 700_000, 16, 65_536), MEMBERS[WeightedHistogram], WordCounts(20.0, 8)
    assert isinstance(second, WeightedHistogram)
    rounds = WordEvents((first, second))
    both = WordEvents((first, second), counts)
    assert list(rounds.releases("r{}".format, "c").items()) == [("r0", first), ("r1", second)]
    assert list(both.releases("r{}".format, "c").items()) == [("r0", first), ("r1", second), ("c", counts)]
    assert [spend.event for spend in both.spends()] == [first, second, counts]
    assert both.chooses_words_in_rounds


def asked_which(source: str) -> list[str]:
    """Tests of which event something is, in a source."""
    kinds = {kind.__name__ for kind in MEMBERS} | {"Event", "Choice", "Exchange", "Chosen", "WordEvents"}
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass")) | ast.Compare() | ast.MatchClass():
                found += [name for one in ast.walk(node) if (name := _last_name(one)) in kinds]
    return found


def _last_name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def test_nobody_outside_privacy_asks_which_event_it_is() -> None:
    """But for a method of a vocabulary, which finds the events that it has made in a ledger again."""
    root = Path(tacit.__file__).parent
    asking = {
        path.relative_to(root).as_posix(): which
        for path in sorted(root.rglob("*.py"))
        if not path.relative_to(root).as_posix().startswith(("privacy/", "config/vocabulary_methods/"))
        and (which := asked_which(path.read_text()))
    }
    assert asking == {}
    assert asked_which("if not isinstance(event, WordEvents): pass") == ["WordEvents"]
    assert asked_which("if isinstance(spend.event, Gaussian | WordCounts): pass") == ["Gaussian", "WordCounts"]
    assert asked_which("if isinstance(event, events.Gaussian): pass") == ["Gaussian"]
    assert asked_which("if type(event) is Gaussian or event.__class__ == WordCounts: pass") == [
        "Gaussian",
        "WordCounts",
    ]
    assert asked_which("match event:\n    case Gaussian(): pass") == ["Gaussian"]
    assert asked_which("event = Gaussian(1.0)") == []

"""Two copies of a begun run folder have one key, and may end as two releases; a begun folder may get another configuration.

What was wrong: a release's function rho was named by its key, so a run that takes over the spends of two such copies took their
functions rho for one. A unit may be in the cheap band of the one and in the dear band of the other (0.587 was said where 1.098 is
paid; 3.406 where 3.453 holds). The scorer's folder could be another one when a begun run went on. And a folder whose configuration
changed before anything was spent kept what its evaluation and its attacks had found of another model.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from tacit.config import parse_config
from tacit.errors import RefusedError, UsageError
from tacit.planning.origins import provenance_of, take_over
from tacit.planning.stages import public_key_event
from tacit.privacy.accounting.accountant import epsilon, epsilon_of_rho, joint_epsilon
from tacit.privacy.accounting.composition import Account
from tacit.privacy.events import BandedPoissonGaussian, NonPrivate, PoissonGaussian, Spend, WordCounts, of_run
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import Ancestor, Given, Provenance, merged, spend_to_dict
from tacit.privacy.refused_starts import check_composition, refuse_own_key
from tacit.release.alone import check_start

from ..adaptive_runs import adaptive_values
from ..folders import edit_json, gpt2_folder
from ..small import small_values, tacit, write_config, write_corpora

DELTA = 1e-5
KEY = "f" * 16


def strata(low: float, high: float) -> tuple[Spend, ...]:
    """Two phases: one for units below rho 0.5 and one for those above, under one key."""
    found = []
    for weights, noise in (((1.0, 0.0), low), ((0.0, 1.0), high)):
        event = BandedPoissonGaussian(0.2, noise, (0.5,), weights, "unit", KEY)
        found.append(Spend(event, 30))
    return tuple(found)


def ancestor(head: str, spends: tuple[Spend, ...]) -> Ancestor:
    named = tuple((f"phase {number}", spend) for number, spend in enumerate(spends))
    return Ancestor(head * 64, "document", 400, "add-or-remove", 1.0, DELTA, named)


def test_a_unit_may_be_in_the_dear_band_of_both_copies() -> None:
    spends = strata(1.0, 4.0)
    dear = [Spend(PoissonGaussian(0.2, 1.0), 30)] * 2  # the attack: rho < 0.5 in both
    mixed = [Spend(PoissonGaussian(0.2, 1.0), 30), Spend(PoissonGaussian(0.2, 4.0), 30)]  # rho < 0.5 in one of them
    both = list(Provenance(ancestors=(ancestor("1", spends), ancestor("2", spends))).inherited.values())
    by_key = [*spends, *spends]  # known wrong: one name, so one function rho
    assert joint_epsilon(both, DELTA) >= epsilon(dear, DELTA) * (1 - 1e-9)
    cheap = epsilon_of_rho(by_key, DELTA, "add-or-remove")[1].epsilon
    assert cheap < epsilon(mixed, DELTA) * 0.7
    of_last = epsilon_of_rho(both, DELTA, "add-or-remove")
    assert min(row.epsilon for row in of_last) >= epsilon(mixed, DELTA) * (1 - 1e-9)


def test_two_releases_that_would_have_one_name_in_a_ledger_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """29th attack: ledgers made so that their last digests begin alike. Known wrong: one of the two counts."""
    spends = (Spend(PoissonGaussian(0.2, 1.0), 30),)
    alike = ancestor("1", spends), dataclasses.replace(ancestor("1", spends), head="1" * 12 + "2" * 52)
    with pytest.raises(UsageError, match=r"both end in 111111111111\.\.\., and cannot be told apart"):
        Provenance(ancestors=alike)
    apart = Provenance(ancestors=(ancestor("1", spends), ancestor("2", spends)))
    monkeypatch.setattr(Provenance, "__post_init__", lambda self: None)
    wrong = list(Provenance(ancestors=alike).inherited.values())
    assert len(wrong) == 1
    assert joint_epsilon(wrong, DELTA) < 0.8 * joint_epsilon(list(apart.inherited.values()), DELTA)


def test_with_a_release_in_between_the_worst_band_counts_after_each_outcome() -> None:
    """The headline: each copy has a vocabulary of its own, which its scorer reads in."""
    counts = Spend(WordCounts(20.0, 64), 1)
    spends = (counts, *strata(1.0, 2.0))
    both = list(Provenance(ancestors=(ancestor("1", spends), ancestor("2", spends))).inherited.values())
    two_names = [
        dataclasses.replace(spend, event=spend.event.with_rho(name)) for name in ("one", "two") for spend in spends
    ]
    assert joint_epsilon(both, DELTA) == pytest.approx(joint_epsilon(two_names, DELTA), rel=1e-9)
    assert joint_epsilon(both, DELTA) >= joint_epsilon([*spends, *spends], DELTA)


def test_of_run_keeps_releases_of_one_key_apart_and_says_the_same_of_each_alone() -> None:
    spends = strata(1.0, 4.0)
    one, two = [of_run(spend, "one") for spend in spends], [of_run(spend, "two") for spend in spends]
    names = {spend.event.rho for spend in [*one, *two] if isinstance(spend.event, BandedPoissonGaussian)}
    assert len(names) == 2
    assert joint_epsilon(one, DELTA) == joint_epsilon(spends, DELTA)
    assert epsilon_of_rho(one, DELTA, "add-or-remove") == epsilon_of_rho(spends, DELTA, "add-or-remove")


@pytest.mark.parametrize(
    ("keys", "refused"),
    [(("a", "a"), True), (("a", "b"), False), (("", ""), False), (("a", ""), False)],
    ids=["copies", "two runs", "of earlier versions", "one of them"],
)
def test_nothing_begins_from_releases_of_two_copies(keys: tuple[str, str], refused: bool) -> None:
    """They may have drawn the same units. Once for both, that is not what the account composes: two independent draws."""
    spends = (Spend(PoissonGaussian(0.01, 0.8), 1),)
    both = [
        dataclasses.replace(ancestor(head, spends), key=key and key * 64) for head, key in zip("12", keys, strict=True)
    ]
    start = Provenance(ancestors=tuple(both))

    def check(start: Provenance) -> None:
        check_composition(start, "document", "add-or-remove", DELTA, unbounded=False)

    if refused:
        with pytest.raises(RefusedError) as caught:
            check(start)
        assert caught.value.reason == "two-releases-of-one-key"
        assert Provenance.from_dict(start.to_dict()) == start  # so that a chain behind it is refused too
        check(dataclasses.replace(start, same_people=False))
        check(Provenance(ancestors=merged([both[0], both[0]])))  # one release, twice
    else:
        check(start)


@pytest.mark.parametrize("same_people", [True, False])
def test_a_run_does_not_go_on_from_a_release_of_its_own_key(same_people: bool, tmp_path: Path) -> None:
    """30th attack, TACIT-50: of two copies the second is given the first one's release. It was certified with the sum of both, as of
    independent draws, and no check compared its own key. With another `compute.micro_batch` the difference of the released noisy sums
    is that of two roundings of one sum.
    """
    spends = (Spend(PoissonGaussian(0.01, 0.8), 1),)
    header = LedgerHeader("document", "add-or-remove", 400, 8.0, DELTA, "c" * 64, "k" * 64)
    for key, refused in (("k", True), ("l", False), ("", False)):
        behind = dataclasses.replace(ancestor("1", spends), key=key * 64)
        start = Provenance((Given("model", "d" * 64, behind.head),), (behind,), same_people)
        with Ledger.create(tmp_path / f"{key}.sqlite", header) as ledger:
            if refused:
                with pytest.raises(RefusedError, match="run's own key") as caught:
                    take_over(ledger, start, start.inherited)
                assert caught.value.reason == "two-releases-of-one-key"
                assert not ledger.spends()
            else:
                take_over(ledger, start, start.inherited)
        assert check_start(certificate_of(start, header)).holds is not refused


def certificate_of(start: Provenance, header: LedgerHeader) -> dict[str, Any]:
    """What `check_start` reads of one."""
    return {
        "start": start.to_dict(),
        "key_commitment": header.key_commitment,
        "unit": header.unit,
        "relation": header.relation,
        "epsilons": [{"delta": header.delta, "epsilon": 8.0}],
        "spends": [spend_to_dict(stage, spend) for stage, spend in start.inherited.items()],
    }


@pytest.mark.parametrize(
    ("changes", "same_people", "said"),
    [
        ({}, True, ""),
        ({"unit": "user"}, True, "unit is user"),
        ({"relation": "replace"}, True, "relation is replace"),
        ({"delta": 1 / 400}, True, "must be below 1/400"),
        ({"unit": "user"}, False, ""),
    ],
)
def test_a_certificate_alone_shows_that_what_was_before_is_of_other_units(
    changes: dict[str, Any], same_people: bool, said: str
) -> None:
    """33rd attack: a run is refused that begins so, and `tacit verify RELEASE` took its like for one that agrees with itself."""
    behind = ancestor("1", (Spend(PoissonGaussian(0.01, 0.8), 1),))
    start = Provenance((Given("model", "d" * 64, behind.head),), (behind,), same_people)
    header = dataclasses.replace(
        LedgerHeader("document", "add-or-remove", 400, 8.0, DELTA, "c" * 64, "k" * 64), **changes
    )
    check = check_start(certificate_of(start, header))
    assert check.holds is (said == "")
    assert said in check.detail
    unknown = dataclasses.replace(start, given=(*start.given, Given("scorer", None, "unknown")))
    assert check_start(certificate_of(unknown, header)).holds is not same_people  # whose epsilon is finite


def test_a_release_without_a_guarantee_has_nothing_to_lose(tmp_path: Path) -> None:
    """Experiments with one public key go on from each other."""
    noise = Spend(PoissonGaussian(0.01, 0.8), 1)
    for spends in ((), (Spend(NonPrivate("heuristic:x"), 1),), (noise, Spend(public_key_event(), 1))):
        refuse_own_key((dataclasses.replace(ancestor("1", spends), key="k" * 64),), "k" * 64)
    beside = dataclasses.replace(ancestor("1", (noise, Spend(NonPrivate("heuristic:x"), 1))), key="k" * 64)
    with pytest.raises(RefusedError):
        refuse_own_key((beside,), "k" * 64)


def test_one_draw_for_two_releases_costs_more_than_two_draws() -> None:
    """What the refusal is for: both releases show the unit or neither does (an exact trade-off, by the two-point attack below)."""
    q, noise = 0.01, 0.8
    deviation = math.sqrt(2) * noise

    def delta(threshold: float) -> float:
        """Where the sum of both releases is above it: N(0, 2 s^2), and with the unit N(2, 2 s^2) with probability q."""
        false_alarm, power = _tail(threshold / deviation), _tail((threshold - 2) / deviation)
        return q * power + (1 - q) * false_alarm - math.exp(1.0) * false_alarm

    shared_delta = max(delta(threshold / 10) for threshold in range(100))
    two_draws = Account((Spend(PoissonGaussian(q, noise), 2),), "add-or-remove").delta(1.0)
    assert shared_delta > 50 * two_draws


def _tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def test_another_scorer_in_the_same_place_is_another_start(tmp_path: Path) -> None:
    scorer = gpt2_folder(tmp_path / "scorer")
    values = adaptive_values(tmp_path, scorer={"folder": str(scorer), "public": True})
    config = parse_config(values, "here")
    before = provenance_of(config)
    assert provenance_of(config) == before
    edit_json(scorer / "config.json", layer_norm_epsilon=1e-3)
    assert provenance_of(config).to_dict() != before.to_dict()


@pytest.mark.slow
def test_nothing_of_an_earlier_configuration_is_taken_for_this_runs(tmp_path: Path) -> None:
    write_corpora(tmp_path, patients=60, records=200)
    values = small_values(tmp_path)
    values["audit"] = {"canaries": 2, "patterns": ["HS"], "contexts": 2, "control": False}
    for phase in values["phases"]:
        phase["steps"] = 2
    public = {
        **values,
        "phases": [values["phases"][0]],
        "evaluation": {**values.get("evaluation", {}), "held_out": 0.0},
    }
    public["vocabulary"] = {"method": "public"}
    path = tmp_path / "config.yaml"
    write_config(path, public)
    assert tacit("run", path, "--until", "audit").returncode == 0
    private = Path(values["run"]) / "private"
    stale = {name: (private / name).read_bytes() for name in ("evaluation.json", "audit.json")}
    (private / "vocabulary" / "a folder").mkdir()
    write_config(path, values)
    done = tacit("run", path)
    assert done.returncode == 0, done.stderr
    assert all((private / name).read_bytes() != old for name, old in stale.items())
    report = json.loads((private.parent / "release" / "report.json").read_bytes())
    exposed = json.loads((private / "audit.json").read_bytes())
    assert report["attacks"]
    assert exposed

    # A finished release keeps its ledger, whatever the next start asks for.
    paths = private.parent / "ledger.sqlite", private / "key"
    kept = [path.read_bytes() for path in paths]
    write_config(path, public)
    refused = tacit("run", path)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "another configuration" in refused.stderr.splitlines()[-1]
    assert [path.read_bytes() for path in paths] == kept
    assert tacit("verify", private.parent).returncode == 0


def test_a_run_does_not_begin_in_the_folder_of_a_fine_tuning(tmp_path: Path) -> None:
    from tacit.runs.beginning import begin

    write_corpora(tmp_path)
    config = parse_config(small_values(tmp_path), "here")
    root = Path(config.run)
    root.mkdir(parents=True, exist_ok=True)
    (root / "finetune.json").write_text("{}")
    with pytest.raises(UsageError, match="fine-tuning"), begin(config):
        pass
    assert [file.name for file in root.iterdir() if file.name != "private"] == ["finetune.json"]
    shutil.rmtree(root)

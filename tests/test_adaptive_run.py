"""Runs of adaptive DP: what is refused, what a budget solves, and the three forms from text to a verified report."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import tacit.pipeline.rho
import tacit.training.dp_step
from tacit.config import RunConfig, parse_config
from tacit.errors import BudgetError, DataError, LedgerError, RefusedError, UsageError
from tacit.files import read_json
from tacit.pipeline.opening import open_run
from tacit.pipeline.result import RunResult
from tacit.pipeline.rho import unit_rho
from tacit.pipeline.stages import run, walk
from tacit.planning import Mechanisms, make_plan, mechanisms_from_ledger, plan_in_ledger, solve
from tacit.planning.adaptive import PhaseNoise, adaptive_noise, bands_from
from tacit.planning.phases import phases_with
from tacit.privacy.accounting.accountant import epsilon, epsilon_of_rho, joint_epsilon
from tacit.privacy.bands import Bands
from tacit.privacy.events import (
    BandedPoissonGaussian,
    BandsFrom,
    Gaussian,
    NonPrivate,
    PoissonGaussian,
    Relation,
    Spend,
)
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import Provenance
from tacit.progress import SilentReporter
from tacit.randomness import KeyedRandomness
from tacit.training.plans import DpPlan, LiteralPlan

from .adaptive_runs import BUDGET, DP, PUBLIC, STRATA, WHOLE
from .adaptive_runs import adaptive_values as values
from .processes import killed
from .small import AT_EACH_MICRO_BATCH, SENTINEL, write_corpora
from .small import tacit as command

PLANNED_STEPS = 200
"""Of a phase that is planned and not run: with many steps a step's losses are small, and soon composed."""

WORST = 2.0
"""The run's budget."""


def configure(form: str = "strata", relation: Relation = "add-or-remove", **adaptive: Any) -> RunConfig:
    own = values(Path("/nowhere"), form, relation, **adaptive)
    own["phases"] = [{**phase, "steps": PLANNED_STEPS} if phase["plan"] == "dp" else phase for phase in own["phases"]]
    return parse_config(own)


@functools.cache
def solved(form: str) -> Mechanisms:
    """What the configuration of a form plans."""
    return solve(configure(form))


# what is refused -----------------------------------------------------------------------------------------------------

NONE = {"budget": None}


@pytest.mark.parametrize(
    ("form", "adaptive", "said"),
    [
        ("strata", {"thresholds": [0.6, 0.4]}, "must rise"),
        ("strata", {"thresholds": [0.5, 0.5]}, "must rise"),
        ("strata", {"thresholds": [0.0]}, "must rise"),
        ("strata", {"thresholds": [1.5]}, "must rise"),
        ("strata", {"thresholds": [0.2, 0.6]}, "adaptive.budget has 2 values for 3 bands"),
        ("strata", {"thresholds": []}, "adaptive.budget has 2 values for 1 bands"),
        ("strata", NONE, "give either noise_factors, or a budget"),
        ("strata", {"noise_factors": [0.5, 1.0]}, "give either noise_factors, or a budget"),
        ("strata", {**NONE, "noise_factors": [1.0, 0.5]}, "1 for the last band"),
        ("strata", {**NONE, "noise_factors": [1.5, 1.0]}, "at most 1"),
        ("strata", {**NONE, "noise_factors": [0.5, 0.6, 1.0]}, "adaptive.noise_factors has 3 values for 2 bands"),
        ("strata", {"weights": [1.0, 0.5]}, "form: strata has noise_factors"),
        ("strata", {"shares": [0.9, 0.9]}, "together they are at most 1"),
        ("strata", {"shares": [0.02, 0.9]}, "exceeds its stratum's stated share"),
        ("strata", {"lower": None}, "give lower and upper together"),
        ("strata", {"lower": 7.0}, "must be below upper"),
        ("strata", {"scorer": {}}, "give either phase or folder"),
        ("strata", {"scorer": {"phase": "public", "folder": "x"}}, "give either phase or folder"),
        ("strata", {"scorer": {"phase": "likely"}}, "is no phase with stream: public"),
        ("strata", {"scorer": {"phase": "public", "length": 9}}, "scorer.length is for a folder"),
        ("clip-weights", {"weights": [1.0, 0.5]}, "give either weights, or a budget"),
        ("clip-weights", {**NONE, "noise_factors": [0.5, 1.0]}, "form: clip-weights has weights"),
        ("clip-weights", {"shares": [0.5, 0.5]}, "only strata are sampled apart"),
        ("literal", {"thresholds": [0.5]}, "form: literal has no bands"),
        ("literal", {"budget": BUDGET}, "form: literal has no bands"),
    ],
)  # fmt: skip
def test_what_adaptive_cannot_be(form: str, adaptive: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        configure(form, **adaptive)
    assert "\n" not in str(refused.value)


def test_constants_come_from_somewhere() -> None:
    """With a given start and no public corpus nothing could give them, which shows before a unit is scored."""
    own = values(Path("/nowhere"), "clip-weights")
    own["phases"] = [phase for phase in own["phases"] if phase["stream"] != "public"]
    del own["vocabulary"]
    own["public"] = []
    own["model"] = {"kind": "gpt2", "folder": "/nowhere/model", "length": own["model"]["length"]}
    own["adaptive"] = {**own["adaptive"], "scorer": {"folder": "/nowhere/model", "public": True}}
    assert parse_config(own).adaptive is not None
    del own["adaptive"]["lower"], own["adaptive"]["upper"]
    with pytest.raises(UsageError, match="give lower and upper; there is no public corpus"):
        parse_config(own)


def test_too_little_public_text_for_the_constants_shows_before_anything_is_paid(corpora: Path) -> None:
    """It showed behind the vocabulary, which was paid for, and the public phase."""
    own = values(corpora)
    del own["adaptive"]["lower"], own["adaptive"]["upper"]
    folder = corpora / "too-little"
    with pytest.raises(
        DataError, match=r"adaptive: \d+ records of the public text are held out, and .* need 100 at least"
    ):
        run(parse_config({**own, "run": str(folder)}))
    assert not (folder / "ledger.sqlite").exists()


@pytest.mark.parametrize("weights", [[1.5, 0.5], [0.0, 1.0], [-0.5, 1.0]])
def test_weights_are_above_zero_and_at_most_one(weights: list[float]) -> None:
    with pytest.raises(UsageError, match=r"adaptive\.weights"):
        configure("clip-weights", budget=None, weights=weights)


def test_the_published_form_has_to_be_allowed() -> None:
    own = values(Path("/nowhere"), "literal")
    with pytest.raises(RefusedError) as refused:
        parse_config({**own, "allow": []})
    assert refused.value.reason == "noise-from-the-batch"
    assert parse_config(own).uses_heuristic
    own["phases"][1].pop("noise_multiplier")
    with pytest.raises(UsageError, match="no epsilon to solve it from"):
        parse_config(own)


def test_a_scorer_that_has_read_private_text_is_refused() -> None:
    own = values(Path("/nowhere"))
    own["phases"] = [*STRATA, PUBLIC]
    with pytest.raises(RefusedError) as refused:
        parse_config(own)
    assert refused.value.reason == "scorer-not-public"


@pytest.mark.parametrize(
    ("form", "phases", "said"),
    [
        ("strata", [PUBLIC, *WHOLE], "private text is read by stream: stratum-1"),
        ("strata", [PUBLIC, {**DP, "name": "third", "stream": "stratum-3"}], "there are 2 strata, and no stratum-3"),
        ("clip-weights", [PUBLIC, *STRATA], "is for form: strata"),
        ("strata", [PUBLIC, {**STRATA[0], "noise_multiplier": 1.0}], "is solved from adaptive.budget"),
        ("strata", [PUBLIC], "no phase has plan: dp"),
    ],
)
def test_phases_that_the_form_is_not_about(form: str, phases: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_config({**values(Path("/nowhere"), form), "phases": phases})


def test_strata_need_the_section_and_the_raw_corpus() -> None:
    own = values(Path("/nowhere"))
    with pytest.raises(UsageError, match="needs the section `adaptive`"):
        parse_config({name: value for name, value in own.items() if name != "adaptive"})
    with pytest.raises(UsageError, match="leave out screening and marking"):
        parse_config({**own, "screening": {}})


def test_the_budgets_order_is_that_of_its_values() -> None:
    """A mapping loses its order on the way through JSON, so the order in the file must not matter."""
    backwards = dict(reversed(list(BUDGET.items())))
    config = configure(budget=backwards)
    assert config.adaptive is not None
    assert config.adaptive.names == ("public-like", "private-like")
    assert config.digest() == configure().digest()
    assert parse_config(json.loads(json.dumps(config.model_dump(mode="json"), sort_keys=True))) == config


# the plan ------------------------------------------------------------------------------------------------------------


def training(config: RunConfig) -> list[Spend]:
    return [spend for spend in solve(config).spends() if spend.partition == "training units"]


@pytest.mark.parametrize("form", ["strata", "clip-weights"])
@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_a_budget_gives_each_band_its_own_epsilon_and_no_more(form: str, relation: Relation) -> None:
    config = configure(form, relation)
    found = epsilon_of_rho(solve(config).spends(), 1e-4, relation)
    for band, target in zip(found, (1.0, 0.4), strict=True):
        assert 0.97 * target <= band.within <= target
    if relation == "add-or-remove":
        assert [band.epsilon for band in found] == [band.within for band in found]
    else:  # a private-like unit that a public-like one replaces is told apart by that one's phases, or norm
        assert found[1].epsilon > 1.2 * 0.4
        assert found[1].worst_partner == 0.0


def test_the_worst_case_of_a_budget_is_bound_by_the_runs() -> None:
    with pytest.raises(BudgetError, match="the budget is 2"):
        solve(configure(budget={**BUDGET, "public-like": 2.5}))


def test_solved_weights_are_the_noises_ratio() -> None:
    (spend,) = training(configure("clip-weights"))
    assert isinstance(spend.event, BandedPoissonGaussian)
    largest, smaller = spend.event.weights
    assert largest == 1.0
    alone = epsilon([Spend(PoissonGaussian(20 / 250, spend.event.noise_multiplier / smaller), PLANNED_STEPS)], 1e-4)
    assert 0.97 * 0.4 <= alone <= 0.4


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_noise_factors_are_solved_for_the_worst_band(relation: Relation) -> None:
    config = configure("strata", relation, budget=None, noise_factors=[0.5, 1.0])
    one, other = training(config)
    assert isinstance(one.event, BandedPoissonGaussian)
    assert isinstance(other.event, BandedPoissonGaussian)
    assert one.event.noise_multiplier == pytest.approx(0.5 * other.event.noise_multiplier)
    worst = joint_epsilon(solve(config).spends(), 1e-4, relation)
    assert 0.97 * WORST <= worst <= WORST


def crossing(method: str, scorer: dict[str, str], **adaptive: Any) -> RunConfig:
    """Two strata of one epsilon whose curves cross: one is rarely drawn, of the other every unit is in every step."""
    own = values(Path("/nowhere"), scorer=scorer, **adaptive)
    own["vocabulary"] = {"method": method, "size": 500}
    rarely, always = STRATA
    own["phases"] = [
        PUBLIC,
        {**rarely, "steps": 20, "expected_batch": 2},
        {**always, "steps": 5, "expected_batch": 125},
    ]
    return parse_config(own)


@pytest.mark.parametrize(
    ("method", "scorer", "said"),
    [
        ("public", {"phase": "public"}, "unit"),
        ("histogram", {"phase": "public"}, "unit-and-releases"),
        ("sips", {"phase": "public"}, "unit-and-releases"),
        ("histogram", {"folder": "a-public-model"}, "unit"),
        ("weighted", {"folder": "a-public-model"}, "unit"),
    ],
)
def test_the_band_is_the_units_own_unless_the_scorer_reads_a_private_vocabulary(
    method: str, scorer: dict[str, str], said: str
) -> None:
    config = crossing(method, scorer)
    assert bands_from(config) == said
    noise = {phase.name: PhaseNoise(60.0, Bands((0.5,), (1.0, 0.0))) for phase in config.dp_phases}
    events = [phase.event for phase in phases_with(config, noise) if phase.stream != "public"]
    assert all(isinstance(event, BandedPoissonGaussian) and event.bands_from == said for event in events)


def test_a_start_from_a_given_model_is_not_known_to_have_read_nothing() -> None:
    own = values(Path("/nowhere"))
    own["model"] = {"kind": "gpt2", "folder": "somewhere"}
    own["vocabulary"] = {"method": "given", "path": "somewhere"}
    assert bands_from(parse_config(own)) == "unit-and-releases"


@pytest.mark.slow
def test_the_budget_holds_for_a_band_that_the_vocabulary_may_have_chosen() -> None:
    """Known wrong: the noise that meets the budget band by band, which is what is solved where the unit decides."""
    budget = {"budget": {"public-like": WORST, "private-like": WORST}}
    before = [Spend(Gaussian(3.0), 1, "training units")]  # a vocabulary costs no less, and many more compositions

    def spends(scorer: dict[str, str], bands_from: BandsFrom) -> list[Spend]:
        config = crossing("histogram", scorer, **budget)
        assert config.adaptive is not None
        phases = phases_with(config, adaptive_noise(config, config.adaptive, before))
        banded = [(phase.event, phase.steps) for phase in phases if isinstance(phase.event, BandedPoissonGaussian)]
        events = [(dataclasses.replace(event, bands_from=bands_from), steps) for event, steps in banded]
        return [*before, *(Spend(event, steps, "training units") for event, steps in events)]

    by_unit, by_release = {"folder": "a-public-model"}, {"phase": "public"}
    assert 0.98 * WORST <= joint_epsilon(spends(by_unit, "unit"), 1e-4) <= WORST
    assert joint_epsilon(spends(by_unit, "unit-and-releases"), 1e-4) > WORST * 1.005
    assert 0.98 * WORST <= joint_epsilon(spends(by_release, "unit-and-releases"), 1e-4) <= WORST


def test_the_ledger_names_whose_function_rho_it_is(tmp_path: Path) -> None:
    mechanisms = solved("strata")
    with Ledger.create(
        tmp_path / "ledger.sqlite", LedgerHeader("record", "add-or-remove", 250, WORST, 1e-4, "config", "of this key")
    ) as ledger:
        for _ in range(2):  # planning the same again is free
            plan_in_ledger(mechanisms, ledger, Provenance())
        events = [plan.event for plan in ledger.plans.values() if isinstance(plan.event, BandedPoissonGaussian)]
        assert [(event.rho, event.bands_from) for event in events] == [("of this key", "unit")] * 2


def test_a_given_noise_is_multiplied_by_the_strata_and_by_no_weight() -> None:
    own = values(Path("/nowhere"), budget=None, noise_factors=[0.5, 1.0])
    own["phases"] = [PUBLIC, *({**phase, "noise_multiplier": 60.0} for phase in STRATA)]
    noises = [spend.event.noise_multiplier for spend in training(parse_config(own))]  # pyright: ignore
    assert noises == [30.0, 60.0]
    own = values(Path("/nowhere"), "clip-weights", budget=None, weights=[1.0, 0.25])
    own["phases"] = [PUBLIC, {**WHOLE[0], "noise_multiplier": 60.0}]
    (spend,) = training(parse_config(own))
    assert spend.event == BandedPoissonGaussian(20 / 250, 60.0, (0.5,), (1.0, 0.25), "unit")


def test_a_stratum_is_sampled_by_its_stated_share_and_goes_on_with_the_optimizer() -> None:
    own = values(Path("/nowhere"), budget=None, noise_factors=[0.5, 1.0], shares=[0.8, 0.2])
    own["phases"] = [PUBLIC, *({**phase, "noise_multiplier": 60.0} for phase in STRATA)]
    phases = solve(parse_config({**own, "rounds": 2})).phases
    plans = [phase.plan for phase in phases if isinstance(phase.plan, DpPlan)]
    assert [plan.sampling_probability for plan in plans[:2]] == [20 / 200, 20 / 50]
    assert [plan.bands.weights for plan in plans if plan.bands] == [(1.0, 0.0), (0.0, 1.0)] * 2
    assert [(phase.name, phase.previous) for phase in phases] == [
        ("public-1", None),
        ("likely-1", None),
        ("unlikely-1", "likely-1"),
        ("public-2", "public-1"),
        ("likely-2", "unlikely-1"),
        ("unlikely-2", "likely-2"),
    ]


def test_held_out_units_have_no_more_than_the_most_private_band() -> None:
    mechanisms = solved("strata")
    assert mechanisms.evaluation is not None
    assert epsilon([Spend(mechanisms.evaluation)], 1e-4) <= 0.4


@pytest.mark.parametrize("form", ["strata", "clip-weights", "literal"])
def test_the_ledger_gives_the_plan_back(tmp_path: Path, form: str) -> None:
    config = configure(form)
    mechanisms = solved(form)
    budget = math.inf if form == "literal" else WORST
    header = LedgerHeader("record", "add-or-remove", 250, budget, 1e-4, config.digest(), "key")
    with Ledger.create(tmp_path / "ledger.sqlite", header) as ledger:
        assert mechanisms_from_ledger(config, ledger) is None
        plan_in_ledger(mechanisms, ledger, Provenance())
        assert mechanisms_from_ledger(config, ledger) == mechanisms


def test_the_plan_states_every_band_and_the_worst_case() -> None:
    notes = make_plan(configure()).notes
    assert any("0 to 0.5 (public-like) has epsilon 0.9" in note for note in notes)
    assert any("0.5 to 1 (private-like) has epsilon 0.39" in note for note in notes)
    assert any("the worst case is 0.9" in note for note in notes)
    literal = make_plan(configure("literal"))
    assert math.isinf(literal.epsilon)
    assert any("epsilon is infinite" in " ".join(note.split()) for note in literal.notes)
    plan = literal.mechanisms.phases[1].plan
    assert isinstance(plan, LiteralPlan)
    assert isinstance(plan.event, NonPrivate)


# from text to report -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adaptive")
    write_corpora(folder, patients=100, records=900)  # 2 % are held out, by a random key
    return folder


Runs = Callable[[str], RunResult]


@pytest.fixture(scope="module")
def released(corpora: Path) -> Runs:
    """The run of a form in ``corpora / form``, made when it is first asked for."""
    return functools.cache(lambda form: run(parse_config({**values(corpora, form), "run": str(corpora / form)})))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["strata", "clip-weights", "literal"])
def test_every_form_runs_from_text_to_a_verified_report(corpora: Path, released: Runs, form: str) -> None:
    found = released(form)
    certificate = found.certificate
    done = command("verify", corpora / form)
    assert done.returncode == 0, done.stdout + done.stderr
    assert certificate["rho"] == {"form": form, "scorer": "phase public", "lower": 5.0, "upper": 7.0}
    report = read_json(corpora / form / "release" / "report.json")["adaptive"]
    page = (corpora / form / "release" / "report.html").read_text()
    if form == "literal":
        assert math.isinf(found.epsilon)
        assert "adaptive" not in certificate
        assert "% of guesses" in json.dumps(certificate["spends"])
        assert "% of guesses" in page
        assert report["bands"] == []
    else:
        assert [row["from"] for row in certificate["adaptive"]["epsilon_of_rho"]] == [0.0, 0.5]
        assert certificate["adaptive"]["epsilon_of_rho"][1]["epsilon"] <= 0.4
        assert found.epsilon <= 1.0
        assert [band["name"] for band in report["bands"]] == ["public-like", "private-like"]
        assert "epsilon-of-rho" in page
    counts = read_json(corpora / form / "private" / "adaptive.json")["units"] if form != "literal" else {}
    text = "".join(path.read_text() for path in (corpora / form / "release").glob("*.*"))
    assert SENTINEL not in text
    assert not any(f'{name}": {count}' in text for name, count in counts.items())


@pytest.mark.slow
def test_an_empty_stratum_shows_nowhere_in_the_release(corpora: Path) -> None:
    """All texts are far more surprising than ``upper``, so the first stratum has none: the certificate is what it would be anyway."""
    own = values(corpora, lower=0.1, upper=0.2)
    found = run(parse_config({**own, "run": str(corpora / "empty")})).certificate
    counts = read_json(corpora / "empty" / "private" / "adaptive.json")["units"]
    assert counts["public-like"] == 0
    assert counts["private-like"] > 0
    planned = solve(parse_config(own)).stages()
    assert {row["stage"]: row["count"] for row in found["spends"]} == {name: one.count for name, one in planned.items()}
    rows = found["adaptive"]["epsilon_of_rho"]
    expected = epsilon_of_rho(solve(parse_config(own)).spends(), 1e-4, "add-or-remove")
    assert [row["epsilon"] for row in rows] == [band.epsilon for band in expected]


def test_a_run_does_not_go_on_with_other_probabilities(corpora: Path, released: Runs, tmp_path: Path) -> None:
    """A unit that changed its stratum would take part in both: the ledger knows the probabilities that the run began with."""
    from tacit.corpus.units import Unit
    from tacit.pipeline.records import units_of
    from tacit.runs.folder import RunFolder

    own = {**values(corpora), "run": str(corpora / "strata")}
    released("strata")
    config, folder = parse_config(own), RunFolder(corpora / "strata")
    header = LedgerHeader("record", "add-or-remove", 250, WORST, 1e-4, "config", "key")
    streams = KeyedRandomness((folder.private / "key").read_bytes())
    with Ledger.create(tmp_path / "ledger.sqlite", header) as ledger:
        scorer = folder.private / "scorer"
        units = [Unit("nobody", ())]
        rho_U = unit_rho(config, folder, streams, SilentReporter(), ledger, units, units_of(config), list, scorer)
        assert rho_U.tolist() == [1.0]  # who wrote nothing counts as most private
        ours = [
            json.loads(line)["id"] for line in (folder.private / "scores" / "scores.jsonl").read_text().splitlines()
        ]
        units = [Unit(ours[0], ("a text",))]
        with pytest.raises(LedgerError, match="the privacy probabilities changed"):
            unit_rho(config, folder, streams, SilentReporter(), ledger, units, units_of(config), list, scorer)


# killed and begun again ----------------------------------------------------------------------------------------------


FEW_STEPS = 8
"""Of each stratum in a run that is killed, where there is a checkpoint at each micro-batch."""


def killed_values(corpora: Path) -> dict[str, Any]:
    own = values(corpora)
    own["phases"] = [{**phase, "steps": min(phase["steps"], FEW_STEPS)} for phase in own["phases"]]
    return own


def train_at(folder: Path, corpora: Path) -> None:
    with open_run(
        parse_config({**killed_values(corpora), "run": str(folder), "compute": AT_EACH_MICRO_BATCH})
    ) as state:
        walk(state, "control")


def killed_at(call: int, owner: ModuleType, name: str, work: Callable[[], None]) -> bool:
    """Do the work in a process of its own, which is killed at the end of a function's call; whether it was."""

    calls, original = itertools.count(1), getattr(owner, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def child() -> None:
        setattr(owner, name, counted)
        work()

    return killed(child)


def left_by(run: Path) -> tuple[dict[str, list[torch.Tensor]], list[tuple[str, int]], str]:
    """Weights and the state of Adam at the end of each phase, what the ledger holds, and every rho."""
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        spent = [(stage, ledger.spent(stage)) for stage in sorted(ledger.plans)]
    stored = {
        name: torch.load(run / "private" / "checkpoints" / f"{name}.pt", weights_only=True)
        for name in ("public", "likely", "unlikely")
    }
    tensors = {
        name: [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        for name, values in stored.items()
    }
    return tensors, spent, (run / "private" / "scores" / "scores.jsonl").read_text()


@pytest.mark.slow
def test_strata_that_are_killed_and_begun_again_end_like_those_that_were_left_alone(corpora: Path) -> None:
    """Bit for bit: killed after scoring, in each stratum (of which the second goes on with the first one's Adam), and at its end."""
    with open_run(parse_config({**killed_values(corpora), "run": str(corpora / "begun")})):
        pass  # the key, and the plan
    for name in ("whole", "killed"):
        shutil.copytree(corpora / "begun", corpora / name)
    train_at(corpora / "whole", corpora)
    work = functools.partial(train_at, corpora / "killed", corpora)
    assert killed_at(1, tacit.pipeline.rho, "rho_in_order", work)
    assert killed_at(3, tacit.training.dp_step, "add_noise_", work)
    assert killed_at(FEW_STEPS, tacit.training.dp_step, "add_noise_", work)
    assert killed_at(2, tacit.training.dp_step, "add_noise_", work)
    train_at(corpora / "killed", corpora)
    whole, killed = left_by(corpora / "whole"), left_by(corpora / "killed")
    assert whole[1:] == killed[1:]
    assert dict(whole[1])["likely"] == dict(whole[1])["unlikely"] == FEW_STEPS
    for name, tensors in whole[0].items():
        assert len(tensors) == len(killed[0][name]) > 20
        assert all(torch.equal(one, other) for one, other in zip(tensors, killed[0][name], strict=True)), name

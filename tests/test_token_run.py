"""A run whose policies mark token by token: its certificate has theorem 8.3, and every number of it is recomputed."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.config import RunConfig, parse_config
from tacit.errors import DataError, LedgerError, RefusedError
from tacit.files import read_json, write_json
from tacit.planning import make_plan
from tacit.planning.confidentiality import check_statement, planned_statement, run_statement
from tacit.planning.locality import token_policies
from tacit.planning.measured import measurement_of, measurement_of_run
from tacit.privacy.accounting.replacement import replacement_epsilon
from tacit.privacy.confidentiality.restated import check_restated
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import stated_spends
from tacit.privacy.rounded import upper
from tacit.screen_plan import plan_of
from tacit.screening.corpus import policies_of
from tacit.screening.measure import measure, read_gold

from .dialogues import Run, dialogue_values, run_dialogues, shown, write_dialogues
from .small import tacit, write_config

BALANCED = (
    "kind: tokens\nname: mine\nwords: [wolkenstein]\npatterns: ['(?i)zqvornak[0-9]+', '[0-9-]{7,}', '[^@]+@[^@]+']\n"
)
CONSERVATIVE = "kind: tokens\nname: strict\nmark: unlisted\nlists: [common]\n"
GAMMA, DELTA_2, DELTA = 0.05, 5e-5, 1e-4


def values(folder: Path, **screening: Any) -> dict[str, Any]:
    policies = {"balanced": BALANCED, "conservative": CONSERVATIVE}
    for role, text in policies.items():
        (folder / f"{role}.yaml").write_text(text)
    own: dict[str, Any] = {"policies": "tokens", "data_point": "line", "gamma": GAMMA, "delta2": DELTA_2}
    own |= {role: str(folder / f"{role}.yaml") for role in policies}
    phases = [
        {"name": "public", "plan": "plain", "stream": "screened", "steps": 2, "batch_size": 8},
        {"name": "private", "plan": "dp", "stream": "private", "steps": 2, "expected_batch": 20, "clip_norm": 0.5},
    ]
    return dialogue_values(
        folder,
        400,
        title="tokens",
        rounds=1,
        screening=own | screening,
        phases=[phase | {"learning_rate": 1e-2} for phase in phases],
    )


def options(folder: Path, **screening: Any) -> RunConfig:
    return parse_config(values(folder, **screening))


# what is refused ------------------------------------------------------------------------------------------------------

CONTEXT = "name: mine\nleast_score: 0.3\npatterns: [{label: n, pattern: '[0-9]+'}]\n"


@pytest.mark.parametrize("role", ["balanced", "conservative"])
def test_a_policy_that_reads_context_is_not_taken_for_one_of_tokens(role: str, tmp_path: Path) -> None:
    config = options(tmp_path)
    (tmp_path / f"{role}.yaml").write_text(CONTEXT)
    with pytest.raises(RefusedError, match="this policy reads context") as refused:
        make_plan(config)
    assert refused.value.reason == "policy-not-local"


@pytest.mark.slow
def test_nothing_begins_with_such_a_policy(tmp_path: Path) -> None:
    write_dialogues(tmp_path, 5)
    path = write_config(tmp_path / "c.yaml", values(tmp_path))
    (tmp_path / "balanced.yaml").write_text(CONTEXT)
    for command in ("plan", "run", "screen"):
        done = tacit(command, path)
        assert done.returncode == 2
        assert "policy-not-local" in done.stderr
    assert not (tmp_path / "run" / "private" / "screened").exists()


@pytest.mark.parametrize(
    ("screening", "reason"),
    [
        ({"balanced": None}, "policy-not-local"),
        ({"conservative": None}, "policy-not-local"),
        ({"missed": 0.01}, "policy-not-local"),
        ({"group": {"by": "document", "most": 4}}, "group-with-tokens"),
    ],
)
def test_what_breaks_the_theorem_is_refused(screening: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        options(tmp_path, **screening)
    assert refused.value.reason == reason
    options(tmp_path, policies="context", **screening)  # which claims less


# what is stated -------------------------------------------------------------------------------------------------------

SPENDS = [Spend(PoissonGaussian(0.05, 1.0), 40)]


def test_epsilon_is_theorem_8_3_of_what_replacing_a_missed_secret_costs(tmp_path: Path) -> None:
    found = planned_statement(options(tmp_path), SPENDS, None)
    assert found is not None
    assert found.bayesian is not None
    assert found.screened is not None
    missed = replacement_epsilon(SPENDS, (DELTA - DELTA_2) / GAMMA)
    assert found.bayesian.epsilon_missed == missed
    assert found.bayesian.epsilon == pytest.approx(math.log(1 + GAMMA * (math.exp(missed) - 1)))
    assert (found.screened.epsilon, found.screened.epsilon_caught) == (replacement_epsilon(SPENDS, DELTA), 0.0)
    assert "independently of all other text" in found.bayesian.assumption
    assert "of a secret that the reader knows it says nothing" in found.bayesian.sentence

    context = planned_statement(options(tmp_path, policies="context"), SPENDS, None)
    assert context is not None
    assert context.bayesian is not None
    assert context.bayesian.epsilon == replacement_epsilon(SPENDS, DELTA - DELTA_2)  # no run had another one
    assert context.bayesian.epsilon > 2 * found.bayesian.epsilon
    assert "theorem 8.3" not in context.bayesian.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deduplicate", "normalisation", "records"),
    [
        ("none", "none", 1),
        ("exact", "none", 1),
        ("unmasked", "none", 1),
        ("exact", "casefold", 3),
        ("unmasked", "casefold", 2),
    ],
)
def test_deduplication_costs_a_missed_secret_more_and_a_caught_one_nothing(
    deduplicate: str, normalisation: str, records: int, tmp_path: Path
) -> None:
    found = planned_statement(options(tmp_path, deduplicate=deduplicate, normalisation=normalisation), SPENDS, None)
    assert found is not None
    assert found.bayesian is not None
    assert (found.stability.missed, found.stability.caught) == (records, 0)
    assert found.bayesian.epsilon_missed == replacement_epsilon(SPENDS, (DELTA - DELTA_2) / GAMMA, records)


def test_measured_shares_of_policies_of_tokens(tmp_path: Path) -> None:
    """From a gold file to epsilon: gamma is the upper bound of what these very policies missed, and the status is measured."""
    config = options(tmp_path)
    names = [f"Zqvornak{number}" if number % 40 else "hello" for number in range(4000)]
    gold = tmp_path / "gold.jsonl"
    gold.write_text(
        "".join(json.dumps({"text": f"ask {name}, now", "spans": [[4, 4 + len(name), "n"]]}) + "\n" for name in names)
    )
    policies = policies_of(plan_of(config))
    found = measure([*policies.values()], read_gold(gold, "line"), alike=True)
    assert [one.misses for one in found] == [100, 100]
    assert found[0].alike == {"n": 3900}
    measurement = measurement_of(gold, policies, dict(zip(policies, found, strict=True)), "line")
    (tmp_path / "measured.json").write_text(measurement.to_json())
    given = options(tmp_path, gamma=None, delta2=None, measurement=str(tmp_path / "measured.json"))
    assert measurement_of_run(given) == measurement
    never = dataclasses.replace(measurement, conservative_missed=0, secrets=400_000)
    line = planned_statement(given, SPENDS, never)
    assert line is not None
    assert line.bayesian is not None
    left = (DELTA - never.delta_2.upper(0.95)) / never.gamma.upper(0.95)
    assert line.bayesian.epsilon_missed == replacement_epsilon(SPENDS, left)
    assert line.bayesian.status == "measured"
    (tmp_path / "balanced.yaml").write_text(CONSERVATIVE)
    with pytest.raises(DataError, match="measured of another balanced policy"):
        measurement_of_run(given)


def ledger_of(config: RunConfig, path: Path, bound: bool) -> Ledger:
    header = LedgerHeader("record", "replace", 400, math.inf, DELTA, config.digest(), "key")
    ledger = Ledger.create(path, header)
    if bound:
        for name, digest in token_policies(config).items():
            ledger.bind(name, digest)
    ledger.plan("private", PoissonGaussian(0.05, 1.0), 2)
    for step in range(2):
        ledger.charge("private", step)
    return ledger


@pytest.mark.parametrize("bound", [True, False])
def test_a_ledger_that_never_saw_the_policies_does_not_verify(bound: bool, tmp_path: Path) -> None:
    config = options(tmp_path)
    with ledger_of(config, tmp_path / "ledger.sqlite", bound) as ledger:
        found = run_statement(config, ledger)
        assert found is not None
        checks = {check.name: check for check in check_statement(config, ledger, {"confidentiality": found.to_dict()})}
        assert checks["confidentiality statement"].holds
        assert checks["policies that mark token by token"].holds == bound
        if bound:
            (tmp_path / "balanced.yaml").write_text(BALANCED.replace("wolkenstein", "wolkenstei"))
            with pytest.raises(LedgerError, match="the balanced token policy changed since this run began"):
                ledger.bind(*next(iter(token_policies(config).items())))


# a whole run ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("tokens")
    return run_dialogues(folder, values(folder))


@pytest.mark.slow
def test_the_certificate_the_plan_and_the_report_say_it(finished: Run) -> None:
    folder, _ = finished
    stated = read_json(folder / "run" / "release" / "certificate.json")["confidentiality"]
    line = stated["bayesian"]
    assert stated["stability"] == {"missed": 1, "caught": 0}
    assert line["epsilon"] == pytest.approx(math.log(1 + GAMMA * (math.exp(line["epsilon_missed"]) - 1)))
    assert line["epsilon"] < stated["screened"]["epsilon"] / 2
    assert any("from that token alone" in text for text in line["assumptions"])
    page = (folder / "run" / "release" / "report.html").read_text()
    assert "A policy is asked about one token at a time" in page
    assert "theorem 8.3" in page
    plan = tacit("plan", folder / "config.yaml").stdout
    assert f"epsilon {upper(line['epsilon'])} at delta {DELTA:g}" in plan


@pytest.mark.slow
def test_no_secret_is_in_what_is_trained_on_or_released(finished: Run) -> None:
    screened = finished[0] / "run" / "private" / "screened"
    trained = [screened / f"{stream}.jsonl" for stream in ("public", "private")]
    for text in (*shown(finished), *(path.read_text() for path in trained)):
        assert "zqvornak1" not in text.lower()
        assert "415-555" not in text
    assert all("My name is <MASK>" not in line for line in trained[0].read_text().splitlines())


Change = Callable[[dict[str, Any]], object]
ALTERED: list[Change] = [
    lambda block: block["bayesian"].update(epsilon=block["bayesian"]["epsilon"] * 0.99),
    lambda block: block["bayesian"].update(epsilon_missed=block["bayesian"]["epsilon_missed"] * 0.99),
    lambda block: block["bayesian"].update(delta_missed=2 * block["bayesian"]["delta_missed"]),
    lambda block: block["bayesian"].update(status="proved"),
    lambda block: block["screened"].update(epsilon=0.1),
    lambda block: block["screened"].update(epsilon_caught=None),
    lambda block: block["worst_case"].update(epsilon=1.0),
    lambda block: block["shares"][0].update(value=0.01),
    lambda block: block["shares"][1].update(value=1e-6),
    lambda block: block["shares"].pop(),
    lambda block: (
        block.pop("shares"),
        block["bayesian"].update(epsilon=0.01),
    ),  # was let pass: nothing to recompute from
    lambda block: block.update(stability={"missed": 1, "caught": 1}),
    lambda block: block.update(group_size=2),
    lambda block: block.update(records=500),
]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ALTERED)))
def test_a_certificate_alone_with_an_altered_number_is_found(finished: Run, number: int) -> None:
    certificate = read_json(finished[0] / "run" / "release" / "certificate.json")
    assert [check.holds for check in check_restated(stated_spends(certificate), certificate)] == [True]
    ALTERED[number](certificate["confidentiality"])
    assert [check.holds for check in check_restated(stated_spends(certificate), certificate)] == [False]


@pytest.mark.slow
def test_verify_finds_altered_words_and_another_kind_of_policy(finished: Run, tmp_path: Path) -> None:
    run = finished[0] / "run"
    assert tacit("verify", run).returncode == 0
    assert "numbers of the confidentiality statement" in tacit("verify", run / "release").stdout
    original = read_json(run / "release" / "certificate.json")
    words = copy.deepcopy(original)
    words["confidentiality"]["bayesian"]["assumptions"].pop()
    numbers = copy.deepcopy(original)
    numbers["confidentiality"]["bayesian"]["epsilon"] /= 2
    for number, altered in enumerate((words, numbers)):
        write_json(tmp_path / f"{number}.json", altered)
        done = tacit("verify", run, "--certificate", tmp_path / f"{number}.json")
        assert done.returncode == 4
        assert "confidentiality statement" in done.stderr
    assert tacit("verify", tmp_path / "1.json").returncode == 4  # the file alone, without its run
    shutil.copytree(run, tmp_path / "run")
    config = read_json(tmp_path / "run" / "config.json")
    assert config["screening"].pop("policies") == "tokens"
    write_json(tmp_path / "run" / "config.json", config)
    done = tacit("verify", tmp_path / "run")
    assert done.returncode == 4
    assert "confidentiality statement" in done.stderr


@pytest.mark.slow
def test_the_same_run_on_policies_that_read_context_cannot_borrow_the_number(finished: Run, tmp_path: Path) -> None:
    """Said to be of tokens in certificate and configuration alike: its ledger has another configuration, and saw no such policy."""
    certificate = read_json(finished[0] / "run" / "release" / "certificate.json")
    context = options(tmp_path, policies="context")
    with ledger_of(context, tmp_path / "ledger.sqlite", bound=False) as ledger:
        checks = check_statement(context, ledger, certificate)
        assert not checks[1].holds
        claimed = check_statement(options(tmp_path), ledger, certificate)
        assert [check.holds for check in claimed] == [False, False, False]

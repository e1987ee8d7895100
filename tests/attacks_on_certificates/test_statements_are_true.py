"""What a run says of itself, and what holds: page one, the terminal and the plan of a run on screened text.

What was wrong (issue 16, point 8), in versions before this test:

- Without `gamma` and `delta2` a run on screened text planned, trained for minutes, and then guaranteed nothing. Its certificate says
  epsilon = infinity and every line of its confidentiality statement is infinite; the command ended with exit code 0.
- With both, the terminal said "what holds is confidentiality" while page one of the report said in red "No guarantee ... treat the
  released files as you would treat the private text itself".
- A `gamma` of 0.02 that a user had typed was printed as *measured*, with no measurement anywhere.
- The terminal gave the Bayesian line even where that one is infinite and the screened one is not.

Each test has the numbers of the certificate on one side, and what is said of them on the other.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from tacit.config import RunConfig, parse_config
from tacit.errors import BudgetError, DataError, LedgerError, RefusedError, UsageError
from tacit.pipeline.opening import open_run
from tacit.planning import solve
from tacit.planning.confidentiality import check_confidentiality, planned_statement, run_statement
from tacit.planning.measured import measurement_of, measurement_of_run
from tacit.privacy.confidentiality.measurement import MEASUREMENT, Measurement
from tacit.privacy.confidentiality.misses import Labels
from tacit.privacy.confidentiality.statement import ConfidentialityStatement
from tacit.privacy.provenance import Provenance
from tacit.report.collect.assumptions import assumptions
from tacit.report.collect.guarantee import confidentiality_lines, missed_shares
from tacit.report.prose import confidentiality_verdict
from tacit.screening.measure import measure, read_gold
from tacit.screening.policy import POLICIES, package_policy

NAMES = ("Jennifer Lopez", "Michael Smith", "Sarah Johnson", "David Miller")


def config(allow: tuple[str, ...] = (), noisy: bool = True, **screening: Any) -> RunConfig:
    phase: dict[str, Any] = {"name": "open", "plan": "plain", "stream": "screened", "steps": 2, "batch_size": 4}
    closed = {
        "name": "closed",
        "plan": "dp",
        "stream": "private",
        "steps": 5,
        "expected_batch": 50,
        "clip_norm": 1.0,
        "noise_multiplier": 2.0,
    }
    phases = [phase, closed] if noisy else [phase]
    return parse_config(
        {
            "run": "run",
            "privacy": {
                "unit": "record",
                "units": 1000,
                "relation": "replace",
                "budget": {"epsilon": 8, "delta": 1e-5},
            },
            "private": {"path": "notes.jsonl"},
            "screening": screening,
            "vocabulary": {"method": "public"},
            "phases": [{**one, "learning_rate": 1e-3} for one in phases],
            "evaluation": {"held_out": 0.0},
            "allow": list(allow),
        }
    )


def stated(options: RunConfig) -> ConfidentialityStatement:
    found = planned_statement(options, solve(options).spends(), measurement_of_run(options))
    assert found is not None
    return found


def certificate(options: RunConfig) -> dict[str, Any]:
    """The part of a run's certificate that is about confidentiality, as a file has it."""
    return json.loads(json.dumps({"confidentiality": stated(options).to_dict()}))


def verdict(options: RunConfig) -> Any:
    found = certificate(options)
    return confidentiality_verdict(confidentiality_lines(found), missed_shares(found))


# nothing is kept confidential ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "screening", [{}, {"delta2": 1e-6}, {"gamma": 0.02}, {"gamma": 0.02, "delta2": 1.0}, {"gamma": 1.0, "delta2": 1.0}]
)
def test_a_run_that_would_keep_nothing_confidential_is_refused(screening: dict[str, Any]) -> None:
    """Known wrong: it ran. Its only line is infinite, or the screened one was "proved" although nothing bounds what both miss."""
    options = config(**screening)
    found = stated(options)
    assert {line.epsilon for line in found.lines} == {math.inf}
    assert {line.status for line in found.lines} == {"heuristic"}
    with pytest.raises(RefusedError) as refused:
        check_confidentiality(options, found)
    assert refused.value.reason == "no-confidentiality"
    check_confidentiality(config(("heuristic:no-confidentiality",), **screening), found)


def test_a_run_without_noise_is_refused_too() -> None:
    options = config(noisy=False, gamma=0.02, delta2=1e-6)
    assert planned_statement(options, solve(options).spends(), None) is None
    with pytest.raises(RefusedError, match="no phase trains on the private stream with noise"):
        check_confidentiality(options, None)


def test_a_run_with_a_finite_line_is_not() -> None:
    """Also where the Bayesian line is infinite, since both policies may miss more than delta."""
    choices: tuple[dict[str, Any], ...] = (
        {"gamma": 0.02, "delta2": 1e-6},
        {"gamma": 0.02, "delta2": 0.0005},
    )
    for screening in choices:
        options = config(**screening)
        check_confidentiality(options, stated(options))


# page one and the terminal ---------------------------------------------------------------------------------------------


def test_the_verdict_is_that_of_the_lines() -> None:
    """epsilon 0.75 holds for a secret that is missed; the first words say so, and are not those of a run without a guarantee."""
    found = stated(config(gamma=0.02, delta2=1e-6))
    said = verdict(config(gamma=0.02, delta2=1e-6))
    assert found.screened is not None
    assert 0 < found.screened.epsilon < 2
    assert said.tone == "conditional"
    assert "what holds is confidentiality" in said.headline
    assert found.screened.sentence in said.paragraph
    assert "Treat the released files" not in said.paragraph
    even_odds = (math.exp(found.screened.epsilon) + 1e-5) / (1 + math.exp(found.screened.epsilon))
    assert said.success == pytest.approx(even_odds, rel=1e-12)
    assert found.worst_case.sentence in said.not_covered  # and that the worst case is not covered stands beside it


def test_where_nothing_holds_nothing_is_said_to() -> None:
    said = verdict(config(("heuristic:no-confidentiality",)))
    assert said.tone == "none"
    assert said.success == 1.0
    assert "what holds" not in (said.headline + said.paragraph).lower()
    assert "Treat the released files as you would treat the private text itself." in said.paragraph


def test_an_infinite_line_is_never_what_holds() -> None:
    """Known wrong: "What holds is confidentiality. For one secret, drawn from mu, nothing is guaranteed"."""
    options = config(gamma=0.02, delta2=0.0005)
    found = stated(options)
    assert found.bayesian is not None
    assert math.isinf(found.bayesian.epsilon)
    paragraph = verdict(options).paragraph
    assert found.bayesian.sentence not in paragraph
    assert "What holds is confidentiality. For one secret, which the balanced policy misses" in paragraph


# assumed and measured --------------------------------------------------------------------------------------------------


def test_a_typed_number_is_assumed() -> None:
    """Known wrong: ("The balanced policy misses at most a share 0.02 ...", "measured")."""
    options = config(gamma=0.02, delta2=1e-6)
    shares = missed_shares(certificate(options))
    assert [(share.name, share.value, share.label) for share in shares] == [
        ("gamma", 0.02, "assumed"),
        ("delta_2", 1e-6, "assumed"),
    ]
    said = verdict(options)
    assert not any(label == "measured" for label, _ in said.known)
    assert "Measured" not in said.paragraph
    rows = [
        row
        for row in assumptions(options, Provenance().to_dict(), shares)
        if "gamma" in row.text or "delta_2" in row.text
    ]
    assert [row.label for row in rows] == ["assumed", "assumed"]


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    lines = []
    for number in range(40):
        name = NAMES[number % len(NAMES)]
        lines.append({"text": f"I am {name}.", "spans": [[5, 5 + len(name), "name"]]})
    path = tmp_path / "gold.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def measured(gold: Path) -> Measurement:
    policies = {name: package_policy(name) for name in POLICIES}
    found = measure([*policies.values()], read_gold(gold))
    return measurement_of(gold, policies, dict(zip(policies, found, strict=True)), "record")


def written(measurement: Measurement, folder: Path) -> str:
    path = folder / "measurement.json"
    path.write_text(measurement.to_json())
    return str(path)


def test_a_measured_number_has_its_sample_and_its_confidence(measured: Measurement, tmp_path: Path) -> None:
    options = config(measurement=written(measured, tmp_path))
    shares = missed_shares(certificate(options))
    assert [(share.label, share.labelled, share.confidence) for share in shares] == [("measured", 40, 0.95)] * 2
    assert (
        shares[0].value == Labels(40, measured.balanced_missed).upper(0.95) >= 0.07
    )  # not 0: forty labels bound no more
    assert shares[0].measurement == measured.digest
    said = verdict(options)
    assert "measured" in {label for label, _ in said.known}
    assert "of 40 labelled secrets" in said.paragraph


def test_a_run_goes_on_with_the_measurement_that_it_began_with(measured: Measurement, tmp_path: Path) -> None:
    """The configuration names a file, so another sample can lie there at the next start; the ledger holds the first one."""
    path = written(measured, tmp_path)
    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"text": "a note"}\n')
    options = config(measurement=path).model_copy(update={"run": str(tmp_path / "run")})
    options = options.model_copy(update={"private": options.private.model_copy(update={"path": str(notes)})})
    with open_run(options) as state:
        assert state.ledger.bound(MEASUREMENT) == measured.to_json()
    larger = dataclasses.replace(measured, secrets=100 * measured.secrets)
    assert larger.gamma.upper(0.95) < measured.gamma.upper(0.95) / 10
    written(larger, tmp_path)
    with pytest.raises(LedgerError, match="measurement"), open_run(options):
        pass
    written(measured, tmp_path)
    with open_run(options) as state:
        found = run_statement(options, state.ledger)
    assert found is None  # nothing was spent, so nothing is stated


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"balanced_policy": "0" * 64}, "another balanced policy"),
        ({"conservative_policy": "0" * 64}, "another conservative policy"),
        ({"tacit_version": "0.0.1"}, "whose detectors are others"),
    ],
)
def test_a_measurement_of_other_policies_is_refused(
    change: dict[str, Any], says: str, measured: Measurement, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=says):
        stated(config(measurement=written(dataclasses.replace(measured, **change), tmp_path)))


def test_a_run_with_another_policy_than_the_measured_one_is_refused(measured: Measurement, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\nleast_score: 0.99\n")
    with pytest.raises(DataError, match="another balanced policy than the run uses"):
        stated(config(measurement=written(measured, tmp_path), balanced=str(mine)))


@pytest.mark.parametrize("name", ["gamma_upper", "delta2_upper", "secrets", "balanced_missed"])
@pytest.mark.parametrize("value", [1e-9, None, "1", -1, True])
def test_a_measurement_whose_numbers_were_changed_is_refused(
    name: str, value: Any, measured: Measurement, tmp_path: Path
) -> None:
    """A bound that is not that of the counts, and counts that are none."""
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(measured.to_dict() | {name: value}))
    with pytest.raises(DataError, match="this is not what"):
        stated(config(measurement=str(path)))


@pytest.mark.parametrize("text", ["", "[]", "{}", "NaN", "[" * 100_000, "null"])
def test_what_is_no_measurement_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "changed.json"
    path.write_text(text)
    with pytest.raises(DataError, match="this is not what"):
        stated(config(measurement=str(path)))
    with pytest.raises(DataError, match="cannot be read"):
        stated(config(measurement=str(tmp_path / "missing.json")))


def test_a_number_is_typed_or_measured_and_not_both(measured: Measurement, tmp_path: Path) -> None:
    path = written(measured, tmp_path)
    for name in ("gamma", "delta2", "missed"):
        typed: dict[str, Any] = {"measurement": path, name: 0.5}
        with pytest.raises(UsageError, match=r"screening\.measurement"):
            config(**typed)


def test_the_salt_hides_the_sample(gold: Path, measured: Measurement) -> None:
    policies = {name: package_policy(name) for name in POLICIES}
    found = dict(zip(policies, measure([*policies.values()], read_gold(gold)), strict=True))
    again = measurement_of(gold, policies, found, "record")
    assert again.sample != measured.sample
    assert dataclasses.replace(again, sample=measured.sample, salt=measured.salt) == measured


def test_older_configurations_keep_their_digest() -> None:
    assert "measurement" not in config(gamma=0.02).comparable()["screening"]
    assert "measurement" in config(measurement="somewhere.json").comparable()["screening"]


# the unit --------------------------------------------------------------------------------------------------------------


def test_a_tuple_is_a_piece_as_it_was_cut() -> None:
    """Known wrong: "4 consecutive words of a document". The words 3 to 6 are consecutive, and lie in two units."""
    from tacit.corpus.records import Record
    from tacit.corpus.units import UnitKind, group_units
    from tacit.report.collect.guarantee import unit_description

    units = group_units(
        [Record(document_id="d", user_id=None, text="one two three four five six seven")], UnitKind("tuple", 4)
    )
    assert [unit.texts for unit in units] == [("one two three four",), ("five six seven",)]
    across = {"three", "four", "five", "six"}
    assert sum(bool(across & set(unit.texts[0].split())) for unit in units) == 2
    values = {"unit": {"tuple": 4}, "units": 100, "budget": {"epsilon": 8.0, "delta": 1e-5}}
    said = unit_description(config(gamma=0.1).privacy.model_validate(values))
    assert said == "one of the pieces of 4 words into which a document is cut"


@pytest.mark.parametrize("allow", [(), ("heuristic:non-private",), ("heuristic:no-confidentiality",)])
def test_allow_does_not_switch_the_budget_check_off(allow: tuple[str, ...]) -> None:
    """Known wrong, in docs/sharp-edges.md: "Any entry switches the budget check off for the whole run"."""
    values = config(allow, gamma=0.02).model_dump(mode="json")
    assert not parse_config(values).uses_heuristic
    values["phases"][1]["noise_multiplier"] = 0.3
    with pytest.raises(BudgetError):
        solve(parse_config(values))


# TACIT-31: an epsilon of a line, said of a record -----------------------------------------------------------------------


@pytest.mark.parametrize(("data_point", "said"), [("line", "one line of a record"), ("record", "one record")])
def test_selective_dp_says_of_what_its_epsilon_is(data_point: str, said: str) -> None:
    values = yaml.safe_load((Path(__file__).parents[2] / "recipes" / "selective-customersim.yaml").read_text())
    config = parse_config({**values, "marking": {"data_point": data_point}})
    rows = [row.text for row in assumptions(config, Provenance().to_dict()) if "selective DP" in row.text]
    assert len(rows) == 1
    assert f"when the private tokens of {said} are replaced by as many others, epsilon is" in rows[0]


def test_a_run_that_would_keep_nothing_confidential_is_refused_before_it_is_begun(tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"text": "a note"}\n')
    options = config().model_copy(update={"run": str(tmp_path / "run")})
    options = options.model_copy(update={"private": options.private.model_copy(update={"path": str(notes)})})
    with pytest.raises(RefusedError) as refused, open_run(options):
        pass
    assert refused.value.reason == "no-confidentiality"
    assert not (tmp_path / "run").exists()

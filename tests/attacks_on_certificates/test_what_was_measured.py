"""A measurement of the policies says something of the records that were labelled, read as these were, by these very models.

What was wrong (TACIT-11): delta_2 is a mean over the records of a gold file, and the Bayesian line subtracted it for a reader "who
may know all else", the record included. In "{name} will call you back." both policies miss 30 % of the names where the mean is 1e-4:
delta was 0.3 where 1e-3 was stated. A measurement on whole records was taken for a run that cuts lines (171 of 200 secrets trained on
without noise, "measured"), and one by spans from a file for whatever lay at that path later (200 of 200).
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.config import RunConfig, parse_config
from tacit.errors import DataError, UsageError
from tacit.planning.confidentiality import planned_statement
from tacit.planning.measured import measurement_of, measurement_of_run
from tacit.planning.mechanisms import solve
from tacit.privacy.accounting.replacement import Screening
from tacit.privacy.confidentiality.account import confidentiality
from tacit.privacy.confidentiality.measurement import Measurement
from tacit.privacy.confidentiality.misses import Labels
from tacit.privacy.confidentiality.statement import ConfidentialityStatement
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.screening.measure import measure, read_gold
from tacit.screening.policy import POLICIES, Policy, load_policy, package_policy

ORDINARY = ("Will", "Bill", "May", "Young", "Gene")  # words that are names too
RARE = ("Wolkenstein", "Hildebrandt", "Okonkwo", "Szymanski", "Przybylski", "Vandermolen")
KNOWN = "{} will call you back."
OTHERS = ("My name is {}.", "You can tell them that my name is {}.", "This is my name: {}.")
HIDDEN = "neither known to the reader, who may know all other records"


def options(folder: Path, **screening: Any) -> RunConfig:
    phases = [
        {"name": "screened", "plan": "plain", "stream": "screened", "steps": 4, "batch_size": 8},
        {"name": "private", "plan": "dp", "stream": "private", "steps": 4, "expected_batch": 20, "clip_norm": 0.5},
    ]
    privacy = {"unit": "record", "units": 600, "relation": "replace", "budget": {"epsilon": 8, "delta": 1e-3}}
    return parse_config(
        {
            "run": str(folder / "run"),
            "privacy": privacy,
            "private": {"path": "notes.jsonl"},
            "screening": screening,
            "vocabulary": {"method": "public"},
            "phases": [{**phase, "learning_rate": 1e-3} for phase in phases],
            "evaluation": {"held_out": 0.0},
        }
    )


def stated(config: RunConfig) -> ConfidentialityStatement:
    found = planned_statement(config, solve(config).spends(), measurement_of_run(config))
    assert found is not None
    return found


def write_gold(path: Path, records: list[tuple[str, str]]) -> Path:
    """Texts with one secret each."""
    lines = [
        {"text": text, "spans": [[text.index(secret), text.index(secret) + len(secret), "name"]]}
        for text, secret in records
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def measured(gold: Path, data_point: Any = "record", policies: dict[str, Policy] | None = None) -> Measurement:
    policies = policies or {name: package_policy(name) for name in POLICIES}
    found = measure([*policies.values()], read_gold(gold, data_point))
    return measurement_of(gold, policies, dict(zip(policies, found, strict=True)), data_point)


def written(measurement: Measurement, folder: Path) -> str:
    path = folder / "measurement.json"
    path.write_text(measurement.to_json())
    return str(path)


# a mean over records, and one record -------------------------------------------------------------------------------------


def share_missed_by_both(names: list[str], record: str) -> float:
    policies = [package_policy(policy) for policy in POLICIES]
    missed = {name: not any(policy.spans(record.format(name)) for policy in policies) for name in set(names)}
    return sum(missed[name] for name in names) / len(names)


@pytest.mark.slow
def test_in_one_record_both_policies_miss_what_they_hardly_ever_miss(tmp_path: Path) -> None:
    rng = random.Random(2)
    names = [rng.choice(ORDINARY if rng.random() < 0.3 else RARE) for _ in range(4000)]
    gold = write_gold(tmp_path / "gold.jsonl", [(rng.choice(OTHERS).format(name), name) for name in names])
    found = measured(gold)
    bound = found.delta_2.upper(0.95)
    of_this_record = share_missed_by_both(names, KNOWN)
    line = stated(options(tmp_path, measurement=written(found, tmp_path))).bayesian
    assert line is not None
    assert line.status == "measured"
    assert math.isfinite(line.epsilon)
    assert of_this_record > 0.2 > 100 * line.delta > 100 * bound  # delta for who knows the record, at any epsilon
    assert HIDDEN in line.assumption
    assert "together with the record that holds it, neither otherwise known to the reader" in line.sentence
    assert any("In a record that the reader knows, both policies may miss any share" in one for one in line.assumptions)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("seed", range(20))
def test_who_does_not_know_the_record_sees_a_mean(seed: int) -> None:
    """Step 4 of docs/confidentiality.md on drawn laws: a reader sees the outcome; who knows the record looks at its row alone."""
    rng = np.random.default_rng(seed)
    epsilon, records, outcomes = 0.7, 30, 12
    masked = rng.dirichlet(np.full(outcomes, 0.3), records)
    tilt = rng.uniform(-epsilon / 2, epsilon / 2, masked.shape)
    caught = masked * np.exp(tilt)
    caught /= caught.sum(axis=1, keepdims=True)  # (epsilon, 0) from masked, row by row
    assert (
        max(hockey_stick(*pair, epsilon) for a, b in zip(caught, masked, strict=True) for pair in ((a, b), (b, a)))
        < 1e-12
    )
    missed = np.zeros((records, 1))
    missed[0] = 0.3  # one record in which nearly a third is missed
    released = np.eye(outcomes)[np.argmin(masked, axis=1)]  # a secret that nobody noised: the least likely outcome
    true = (1 - missed) * caught + missed * released
    weights = np.full(records, (1 - 1e-4) / (records - 1))
    weights[0] = 1e-4
    mean = float((weights[:, None] * missed).sum())
    together = max(
        hockey_stick(weights @ true, weights @ masked, epsilon), hockey_stick(weights @ masked, weights @ true, epsilon)
    )
    alone = hockey_stick(true[0], masked[0], epsilon)
    assert together <= mean + 1e-12
    assert alone > 100 * mean  # known wrong: for who knows the record the mean is no bound


@pytest.mark.parametrize(("policy", "hidden"), [("context", True), ("patterns", False)])
def test_a_policy_that_labels_each_token_by_itself_has_one_share_for_all_records(policy: Any, hidden: bool) -> None:
    spends = [Spend(PoissonGaussian(0.02, 2.0), 100)]
    screening = Screening(deduplication="none", order="redact-first", policy=policy)
    shares = {"gamma": Labels(20_000, 20), "delta_2": Labels(200_000, 0)}
    found = confidentiality(spends, 1e-3, screening=screening, **shares).bayesian
    assert found is not None
    assert ("record that holds it" in found.sentence) == hidden
    assert ("reader knows mu and everything else" in found.assumptions[0]) != hidden
    private = confidentiality(spends, 1e-3, screening=screening, gamma=Labels(20_000, 20)).bayesian
    assert private is not None
    assert (
        "record that holds it" not in private.sentence
    )  # every record is trained privately: nothing is missed by both


# records and lines -------------------------------------------------------------------------------------------------------


def test_what_was_measured_on_records_says_nothing_of_lines(tmp_path: Path) -> None:
    words = ("will", "rose", "young", "bill", "may")
    rng = random.Random(1)
    names = [rng.choice(words) for _ in range(4000)]
    gold = write_gold(tmp_path / "gold.jsonl", [(f"Name:\n{name}", name) for name in names])
    found = measured(gold)
    assert found.balanced_missed == 0
    assert share_missed_by_both(names, "{}") > 0.5  # a line of the same text
    path = written(found, tmp_path)
    assert stated(options(tmp_path, measurement=path)).bayesian is not None
    with pytest.raises(DataError, match=r"on data points that are a record each, and screening\.data_point is line"):
        measurement_of_run(options(tmp_path, data_point="line", measurement=path))
    with pytest.raises(DataError, match="line 1: the text has line breaks"):
        measured(gold, "line")
    lines = write_gold(tmp_path / "lines.jsonl", [(f"My name is {name}.", name) for name in RARE])
    path = written(measured(lines, "line"), tmp_path)
    assert measurement_of_run(options(tmp_path, data_point="line", measurement=path)) is not None
    with pytest.raises(DataError, match=r"are a line each, and screening\.data_point is record"):
        measurement_of_run(options(tmp_path, measurement=path))


# what stands behind a policy's options -----------------------------------------------------------------------------------


def test_spans_of_given_texts_are_no_measured_policy(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", [(f"please call {name} back", name) for name in ORDINARY])
    spans = tmp_path / "spans.jsonl"
    spans.write_text(gold.read_text())
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"name: mine\nleast_score: 0.3\ndetectors:\n  - {{kind: precomputed, path: {spans}}}\n")
    with pytest.raises(UsageError, match="the balanced policy uses precomputed spans"):
        measured(gold, policies={name: load_policy(mine) for name in POLICIES})
    digest = load_policy(mine).digest
    theirs = measured(gold)
    forged = Measurement(**{**theirs.__dict__, "balanced_policy": digest, "conservative_policy": digest})
    config = options(tmp_path, balanced=str(mine), conservative=str(mine), measurement=written(forged, tmp_path))
    with pytest.raises(UsageError, match="the balanced policy uses precomputed spans"):
        measurement_of_run(config)


@pytest.mark.slow
def test_another_model_in_the_same_folder_is_another_policy(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    folder, mine = tmp_path / "pipeline", tmp_path / "mine.yaml"

    def save(*words: str) -> None:
        pipeline = spacy.blank("en")
        ruler = pipeline.add_pipe("entity_ruler")
        ruler.add_patterns([{"label": "NAME", "pattern": word} for word in words])
        pipeline.to_disk(folder)

    save(*RARE)
    mine.write_text(f"name: mine\nleast_score: 0.3\ndetectors:\n  - {{kind: spacy, pipeline: {folder}}}\n")
    gold = write_gold(tmp_path / "gold.jsonl", [(f"please call {name} back", name) for name in RARE * 30])
    policies = {name: load_policy(mine) for name in POLICIES}
    path = written(measured(gold, policies=policies), tmp_path)
    config = options(tmp_path, balanced=str(mine), conservative=str(mine), measurement=path)
    assert measurement_of_run(config) is not None
    before = package_policy("balanced").digest
    save("nobody")
    with pytest.raises(DataError, match="measured of another balanced policy than the run uses"):
        measurement_of_run(config)
    assert package_policy("balanced").digest == before

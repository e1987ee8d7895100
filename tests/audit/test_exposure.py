"""Exposure: its null law by enumeration, uniform p-values of a model that saw nothing, and a model that saw everything."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from transformers import BertForMaskedLM

from tacit.audit.attack import CONTROL, RELEASED, joint_p_values
from tacit.audit.attacks import check_gate
from tacit.audit.candidates import candidate_exposure
from tacit.audit.exposure import (
    Contexts,
    Exposure,
    exposure_of_ranks,
    inserted,
    measure_exposure,
    null_exposure,
    rank_p_value,
    secret_ranks,
)
from tacit.audit.exposure_attack import EXPOSURE
from tacit.config import ComputeOptions, ModelOptions, RunConfig, parse_config
from tacit.corpus.canaries import draw_canaries, insert_pieces, places_of, plant
from tacit.errors import AuditError
from tacit.randomness import KeyedRandomness
from tacit.training.loop import run_phase
from tacit.training.masking import Masking
from tacit.training.objectives import MaskedObjective
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import PlainPlan
from tacit.training.sequences import SequenceStream

from ..networks import build_bert

torch.set_num_threads(1)

ALARM = 1e-6
STREAMS = KeyedRandomness(bytes(range(32)))
LENGTH, SPECIAL, VOCABULARY = 16, 5, 133
CANDIDATES = VOCABULARY - SPECIAL
MASKING = Masking(0.2, 4, range(SPECIAL), VOCABULARY)


# the null ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("candidates", "canaries"), [(1, 1), (1, 3), (2, 1), (2, 5), (5, 3), (7, 4), (13, 2), (40, 1)])
def test_null_by_enumeration(candidates: int, canaries: int) -> None:
    """All candidates^canaries equally likely ranks."""
    sums = [sum(ranks) for ranks in itertools.product(range(1, candidates + 1), repeat=canaries)]
    bits = [math.log2(candidates) - math.log2(total / canaries) for total in sums]
    assert null_exposure(candidates, canaries) == pytest.approx(float(np.mean(bits)), abs=1e-9)
    for total in range(canaries, canaries * candidates + 1):
        exact = sum(other <= total for other in sums) / len(sums)
        assert rank_p_value(total / canaries, candidates, canaries) == pytest.approx(exact, rel=1e-9)
    assert rank_p_value((canaries - 0.5) / canaries, candidates, canaries) == 0.0


def test_null_of_soundness() -> None:
    """One canary 1.44 bits (log2 e), ten canaries 1.02; the highest of ten single exposures would have 4.22."""
    assert null_exposure(30_000, 1) == pytest.approx(math.log2(math.e), abs=1e-3)
    assert null_exposure(700, 10) == pytest.approx(1.02, abs=5e-3)


@pytest.mark.parametrize("canaries", [1, 2, 10, 30])
def test_null_of_many_candidates_by_quadrature(canaries: int) -> None:
    """E[ln S] of a sum S of uniform numbers is the integral of (e^-t - ((1 - e^-t) / t)^n) / t (Frullani)."""

    def integrand(t: float) -> float:
        return (math.exp(-t) - (-math.expm1(-t) / t) ** canaries) / t

    expected = integrate.quad(integrand, 1e-12, 1)[0] + integrate.quad(integrand, 1, np.inf, limit=500)[0]
    assert null_exposure(100_000, canaries) == pytest.approx((math.log(canaries) - expected) / math.log(2), abs=1e-4)


@given(st.integers(2, 5000), st.integers(1, 12), st.data())
@settings(max_examples=100, deadline=None)
def test_p_values_grow_with_the_mean_rank(candidates: int, canaries: int, data: st.DataObject) -> None:
    totals = sorted(data.draw(st.lists(st.integers(canaries, canaries * candidates), min_size=2, max_size=6)))
    values = [rank_p_value(total / canaries, candidates, canaries) for total in totals]
    assert all(0 < value <= 1 for value in values)
    assert all(low <= high + 1e-12 for low, high in itertools.pairwise(values))
    assert rank_p_value(float(candidates), candidates, canaries) == pytest.approx(1.0, abs=1e-9)


def test_small_p_values_keep_their_digits() -> None:
    assert rank_p_value(1.0, 30_000, 10) == pytest.approx(30_000.0**-10, rel=1e-9)
    assert rank_p_value(1.1, 30_000, 10) == pytest.approx(11 * 30_000.0**-10, rel=1e-9)


def test_exposure_of_ranks_by_hand() -> None:
    found = exposure_of_ranks("HS", np.array([1.0, 3.0]), 16)
    assert found.p_value == pytest.approx(6 / 256)
    assert found == Exposure("HS", 2, 2.0, 3.0, null_exposure(16, 2), found.p_value, 4.0)


# ranks ---------------------------------------------------------------------------------------------------------------


def tiny_bert(seed: int = 2) -> BertForMaskedLM:
    return build_bert(ModelOptions(layers=1, width=32, heads=2, length=LENGTH), VOCABULARY, 0, seed)


def public_rows(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in which every token follows the one before, so that a model has something else to learn too."""
    generator = np.random.default_rng(seed)
    ids = np.zeros((number, LENGTH), dtype=np.int32)
    lengths = generator.integers(4, LENGTH + 1, size=number).astype(np.int32)
    for row, length in enumerate(lengths):
        first = generator.integers(CANDIDATES)
        ids[row, :length] = [2, *(SPECIAL + (first + np.arange(length - 2)) % CANDIDATES), 3]
    return ids, lengths


def test_ranks_by_a_plain_loop() -> None:
    """transformers' own full head, one context at a time, and a sort."""
    model, canaries = tiny_bert(), draw_canaries(("HS", "HHSHH"), 3, range(SPECIAL, VOCABULARY), STREAMS)
    contexts, lengths = public_rows(4, seed=1)
    kept = contexts.copy()
    found = secret_ranks(model, canaries, inserted(canaries, contexts, lengths, STREAMS), MASKING)
    assert np.array_equal(contexts, kept)
    model.eval()
    for number, canary in enumerate(canaries):
        generator = STREAMS.generator("context", canary.pattern, number)
        scores = np.zeros(CANDIDATES)
        for row, length in zip(contexts.astype(np.int64), lengths, strict=True):
            start, new_length = insert_pieces(row, int(length), canary.pieces, generator)
            assert row[start : start + len(canary.pieces)].tolist() == list(canary.pieces)
            place = start + canary.secret_offset
            row[place] = 4
            with torch.no_grad():
                attention = torch.from_numpy((np.arange(LENGTH) < new_length).astype(np.int64))
                logits = model(input_ids=torch.from_numpy(row)[None], attention_mask=attention[None]).logits
            scores += logits[0, place, SPECIAL:].double().log_softmax(-1).numpy()
        order = np.argsort(-scores)
        assert found[number] == 1 + int(np.flatnonzero(order == canary.secret - SPECIAL)[0])


def test_a_constant_model_has_the_middle_rank_and_no_exposure() -> None:
    model = tiny_bert()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    canaries = draw_canaries(("HSH",), 10, range(SPECIAL, VOCABULARY), STREAMS)
    ranks = secret_ranks(model, canaries, inserted(canaries, *public_rows(2, seed=1), STREAMS), MASKING)
    assert ranks.tolist() == [(CANDIDATES + 1) / 2] * 10
    assert exposure_of_ranks("HSH", ranks, CANDIDATES).p_value == pytest.approx(0.5, abs=0.02)
    (found,) = measure_exposure(model, canaries, inserted(canaries, *public_rows(2, seed=1), STREAMS), MASKING)
    assert found.bits == pytest.approx(math.log2(CANDIDATES / ranks[0]))
    assert found.p_value == 1.0  # all are tied: at least as good as each of them is every rank


def test_ties_count_half() -> None:
    """The head's bias alone decides: the secret shares its score with one piece, and three are better."""
    model = tiny_bert()
    (canary,) = draw_canaries(("S",), 1, range(SPECIAL, VOCABULARY), STREAMS)
    others = [piece for piece in range(SPECIAL, VOCABULARY) if piece != canary.secret]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.cls.predictions.bias[others[:3]] = 2.0
        model.cls.predictions.bias[[canary.secret, others[3]]] = 1.0
        model.cls.predictions.bias[:SPECIAL] = 9.0  # special tokens are no candidates
    contexts = inserted([canary], *public_rows(3, seed=1), STREAMS)
    assert secret_ranks(model, [canary], contexts, MASKING).tolist() == [4.5]
    (found,) = measure_exposure(model, [canary], contexts, MASKING)
    assert found.p_value == pytest.approx(
        5 / CANDIDATES
    )  # known wrong: 4, though one of five pieces is as likely or likelier


def p_values(pull: float) -> list[float]:
    """p-values of an untrained model over many keys; ``pull`` makes every secret likelier, as memory would.

    The model prefers some pieces strongly: the null must hold whatever a model prefers.
    """
    model = tiny_bert()
    preference = torch.linspace(-3, 3, CANDIDATES)
    contexts = public_rows(1, seed=1)
    found = []
    for number in range(150):
        streams = STREAMS.child("null", number)
        canaries = draw_canaries(("HS",), 4, range(SPECIAL, VOCABULARY), streams)
        with torch.no_grad():
            model.cls.predictions.bias[SPECIAL:] = preference
            model.cls.predictions.bias[[canary.secret for canary in canaries]] += pull
        (row,) = measure_exposure(model, canaries, inserted(canaries, *contexts, streams), MASKING)
        found.append(row.p_value)
    return found


def check_uniform(values: list[float]) -> None:
    assert stats.kstest(values, "uniform").pvalue > ALARM


def test_p_values_of_an_untrained_model_are_uniform() -> None:
    check_uniform(p_values(0.0))


@pytest.mark.slow
@pytest.mark.parametrize("pull", [-2.0, 2.0])
def test_the_check_of_uniform_p_values_catches_memory(pull: float) -> None:
    with pytest.raises(AssertionError):
        check_uniform(p_values(pull))


# a model without DP --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exposures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Exposure]]:
    """The canaries under the untrained model and under the one that was trained on them without DP; there also where they stood."""
    canaries = draw_canaries(("HS", "HSH"), 5, range(SPECIAL, VOCABULARY), STREAMS)
    ids, lengths = public_rows(400, seed=2)
    keys = tuple(map(str, range(400)))
    ids, lengths = plant(ids, lengths, np.arange(401), keys, canaries, 0.9, STREAMS)
    places = list(places_of(lengths, LENGTH, np.arange(401), keys, canaries, 0.9, STREAMS))
    planted: list[Contexts] = []
    for number, canary in enumerate(canaries):
        own = [place for place in places if place.canary == number][:8]
        rows, secrets = [place.row for place in own], [place.start + canary.secret_offset for place in own]
        planted.append(Contexts(ids[rows].astype(np.int64), lengths[rows], np.array(secrets)))
    stream = SequenceStream(ids, lengths, np.arange(401), keys)
    model = tiny_bert()
    contexts = inserted(canaries, *public_rows(8, seed=3), STREAMS)
    before = measure_exposure(model, canaries, contexts, MASKING)
    planted_before = measure_exposure(model, canaries, planted, MASKING)
    phase = Phase("control", "public", PlainPlan(64), 250, AdamOptions(5e-3))
    checkpoint = tmp_path_factory.mktemp("control") / "control.pt"
    compute = ComputeOptions(micro_batch=64, threads=1, checkpoint_seconds=1e9)
    run_phase(model, phase, stream, MaskedObjective(MASKING), None, STREAMS, compute, checkpoint)
    return {
        "before": before,
        "after": measure_exposure(model, canaries, contexts, MASKING),
        "before, planted": planted_before,
        "after, planted": measure_exposure(model, canaries, planted, MASKING),
    }


@pytest.mark.slow
@pytest.mark.parametrize("contexts", ["", ", planted"])
@pytest.mark.parametrize("pattern", [0, 1])
def test_the_audit_sees_a_model_that_was_trained_without_dp(
    exposures: dict[str, list[Exposure]], pattern: int, contexts: str
) -> None:
    before, after = exposures[f"before{contexts}"][pattern], exposures[f"after{contexts}"][pattern]
    assert before.p_value > 1e-4
    assert before.bits < before.null_bits + 2
    assert after.p_value < 1e-4
    assert after.bits > after.null_bits + 2.5
    assert after.ceiling_bits == math.log2(CANDIDATES)


# the gate ------------------------------------------------------------------------------------------------------------


def config_with(audit: dict[str, Any] | None, kind: str = "bert") -> RunConfig:
    """A run with this section."""
    return parse_config(
        {
            "run": "run",
            "privacy": {"unit": "document", "units": 100, "budget": {"epsilon": 1.0, "delta": 1e-3}},
            "private": {"path": "private.jsonl", "id_field": "id"},
            "public": [{"path": "public.jsonl"}],
            "model": {"kind": kind},
            "phases": [
                {
                    "name": "private",
                    "plan": "dp",
                    "stream": "private",
                    "steps": 1,
                    "expected_batch": 10,
                    "clip_norm": 1.0,
                    "learning_rate": 1e-3,
                }
            ],
            "audit": audit,
        }
    )


def gate(audit: dict[str, Any] | None, found: dict[str, list[Exposure]], kind: str = "bert") -> None:
    stored = {model: [asdict(row) for row in rows] for model, rows in found.items()}
    check_gate(config_with(audit, kind), {"exposure": stored})


def gate_p_value(found: Exposure) -> float:
    """What the gate looks at."""
    (p_value,) = joint_p_values(EXPOSURE.answer(config_with({}, "lstm"), {RELEASED: [asdict(found)]}).rows).values()
    return p_value


def test_the_gate_stops_an_exposed_release(exposures: dict[str, list[Exposure]]) -> None:
    with pytest.raises(AuditError, match="the planted secrets are given away: HS by") as raised:
        gate({"max_exposure_p_value": 1e-3}, {RELEASED: exposures["after"]})
    assert raised.value.exit_code == 5
    assert "\n" not in str(raised.value)


def test_the_gate_lets_pass_what_it_should(exposures: dict[str, list[Exposure]]) -> None:
    options = {"max_exposure_p_value": 1e-3}
    gate(options, {RELEASED: exposures["before"], CONTROL: exposures["after"]})
    gate(options, {})
    gate({}, {RELEASED: exposures["after"]})
    gate(None, {RELEASED: exposures["after"]})


def of_secrets(scores_N: np.ndarray, secrets: Sequence[int]) -> Exposure:
    """As the pipeline has it of a causal model."""
    found = candidate_exposure(scores_N, secrets)
    return Exposure(
        "My ID is: dd",
        found.canaries,
        float(np.mean(found.ranks)),
        found.mean_bits,
        found.null_mean_bits,
        found.mean_p_value,
        found.ceiling_bits,
        found.max_bits,
        found.null_max_bits,
        found.max_p_value,
    )


@pytest.mark.parametrize("canaries", [1, 2, 3])
def test_the_gate_is_valid_with_two_tests(canaries: int) -> None:
    """All sets of secrets are equally likely where nothing was learned: at most a share p of them has a p-value of p or less."""
    scores_N = np.random.default_rng(1).normal(size=24)
    rows = [of_secrets(scores_N, secrets) for secrets in itertools.combinations(range(24), canaries)]

    def largest_excess(p_values: list[float]) -> float:
        values, counts = np.unique(p_values, return_counts=True)
        return float((counts.cumsum() / len(p_values) / values).max())

    assert largest_excess([gate_p_value(row) for row in rows]) <= 1 + 1e-9
    smaller = [min(row.p_value, row.max_p_value or 1.0) for row in rows]
    assert (largest_excess(smaller) > 1.05) == (canaries > 1)  # the known-wrong one: the smaller of the two


def test_the_gate_sees_one_canary_learned_by_heart_and_a_little_of_all() -> None:
    scores_N = np.arange(10**5, 0, -1.0)  # the rank of a secret is one more than the secret
    one = of_secrets(scores_N, [0, *range(50_000, 50_009)])
    assert one.max_p_value == gate_p_value(one) / 2 < one.p_value
    all_a_little = of_secrets(scores_N, range(2000, 2010))
    assert all_a_little.p_value == gate_p_value(all_a_little) / 2
    for row in (one, all_a_little):
        with pytest.raises(AuditError, match=r"My ID is: dd, highest of 10 by \d+\.\d\d bits, p = "):
            gate({"max_exposure_p_value": 1e-3}, {RELEASED: [row]}, "lstm")
    nothing = of_secrets(scores_N, range(40_000, 90_000, 5000))
    gate({"max_exposure_p_value": 0.2}, {RELEASED: [nothing]}, "lstm")

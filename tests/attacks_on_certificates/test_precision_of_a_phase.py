"""A phase that goes on in another precision, or a copy of it that does, would put its noise on other sums.

``compute`` is no part of a run's digest. In float32 it decides last digits alone; bfloat16 rounds every product to 8 bits, so the
sums of one step in the two differ far beyond that, and under one noise the difference of two releases would show it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForMaskedLM

from tacit.config import ComputeOptions, ModelOptions, parse_config
from tacit.errors import LedgerError
from tacit.files import read_json
from tacit.pipeline.stages import run
from tacit.privacy.ledger import Ledger
from tacit.privacy.precision import Rounding, precision_words, rounding_of
from tacit.randomness import KeyedRandomness
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder
from tacit.training import loop
from tacit.training.device import set_up_torch
from tacit.training.loop import run_phase
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan

from ..networks import build_bert
from ..small import small_values, write_corpora
from ..training.streams import LENGTH, OBJECTIVE, VOCABULARY, random_units, stream_of
from .test_one_key_two_releases import HEADER, KEY, STREAM, AddressedByStep, handed_to_the_optimizer

PLAN = DpPlan(sampling_probability=0.7, clip_norm=0.4, noise_multiplier=2.0, normaliser=7.0, sequences_per_unit=2)
PHASES = [Phase(name, "private", PLAN, 3, AdamOptions(1e-2)) for name in ("one", "two")]


class StoppedError(Exception):
    """The process ends here."""


def float32_bert() -> BertForMaskedLM:
    return build_bert(ModelOptions(layers=1, width=16, heads=2, intermediate=32, length=LENGTH), VOCABULARY, 0, 1)


def train(folder: Path, steps: dict[str, int], streams: KeyedRandomness | None = None, **compute: Any) -> None:
    """The phases as a run goes through them: each so many steps, where it stops if these are not all."""
    path, model = folder / "ledger.sqlite", float32_bert()
    options = ComputeOptions(**{"micro_batch": 4, "threads": 1, "checkpoint_seconds": 0.0, **compute})
    with Ledger.open(path) if path.exists() else Ledger.create(path, HEADER) as ledger:
        for phase in PHASES:
            ledger.plan(phase.name, phase.event, phase.steps)
        for phase in PHASES:
            if phase.name not in steps:
                return

            def stop(done: int, last: int = steps[phase.name]) -> None:
                if done == last < phase.steps:  # noqa: B023
                    raise StoppedError

            place = folder / f"{phase.name}.pt"
            own = streams or KeyedRandomness(KEY).child("phase", phase.name)
            run_phase(model, phase, STREAM, OBJECTIVE, ledger, own, options, place, stop)


def begun(folder: Path, steps: dict[str, int], **compute: Any) -> None:
    """As `train`, and the process ends inside a phase."""
    with pytest.raises(StoppedError):
        train(folder, steps, **compute)


HALF, WHOLE = {"one": 2}, {"one": 3}
BF16 = {"precision": "bf16"}


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (
            {},
            BF16,
            r"one began with compute\.precision: float32; with compute\.precision: bf16 and compute\.micro_batch: 4 ",
        ),
        (
            BF16,
            {},
            r"one began with compute\.precision: bf16 and compute\.micro_batch: 4; with compute\.precision: float32 ",
        ),
        (
            BF16,
            {**BF16, "micro_batch": 6},
            r"micro_batch: 4; with compute\.precision: bf16 and compute\.micro_batch: 6 ",
        ),
    ],
)
def test_a_phase_that_has_begun_keeps_its_precision(
    before: dict[str, Any], after: dict[str, Any], named: str, tmp_path: Path
) -> None:
    begun(tmp_path, HALF, **before)
    with pytest.raises(LedgerError, match=named) as caught:
        train(tmp_path, WHOLE, **after)
    assert "\n" not in str(caught.value)
    train(tmp_path, WHOLE, **before)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [({}, BF16), (BF16, {}), (BF16, {**BF16, "micro_batch": 6})])
def test_the_next_phase_may_have_another(before: dict[str, Any], after: dict[str, Any], tmp_path: Path) -> None:
    train(tmp_path, WHOLE, **before)
    begun(tmp_path, {**WHOLE, "two": 1}, **after)  # goes through the first one again, which is done
    with pytest.raises(LedgerError, match="phase two began with"):
        train(tmp_path, {**WHOLE, "two": 3}, **before)
    train(tmp_path, {**WHOLE, "two": 3}, **after)
    with Ledger.open(tmp_path / "ledger.sqlite", readonly=True) as ledger:
        found = [rounding_of(ledger, phase.name) for phase in PHASES]
        words = precision_words(ledger)
    assert [one.precision for one in found if one] == [
        before.get("precision", "float32"),
        after.get("precision", "float32"),
    ]
    lower = [name for name, options in (("one", before), ("two", after)) if options]
    assert words == f" Gradients of {' and '.join(lower)}: computed in bfloat16, with norms and sums in float32."


def test_a_phase_in_bf16_keeps_its_kind_of_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without AVX-512 sums in bfloat16 were 0.038 clip norms apart, in float32 4e-6; a phase that is done may move."""
    begun(tmp_path, HALF, **BF16)
    monkeypatch.setattr(loop, "processor", lambda device: "another kind")
    with pytest.raises(LedgerError, match="the processor that one is computed on changed"):
        train(tmp_path, WHOLE, **BF16)
    monkeypatch.undo()
    train(tmp_path, WHOLE, **BF16)
    monkeypatch.setattr(loop, "processor", lambda device: "another kind")
    begun(tmp_path, {**WHOLE, "two": 1}, **BF16)  # goes through the first one again


def test_a_finished_phase_is_looked_at_as_it_began(tmp_path: Path) -> None:
    """Its digest is still compared: other records are refused whatever the precision says now."""
    train(tmp_path, WHOLE, **BF16)
    stream, model, options = stream_of(random_units(9)), float32_bert(), ComputeOptions(micro_batch=8, threads=1)
    streams = KeyedRandomness(KEY).child("phase", "one")
    with (
        Ledger.open(tmp_path / "ledger.sqlite") as ledger,
        pytest.raises(LedgerError, match="sums of one are made from"),
    ):
        run_phase(model, PHASES[0], stream, OBJECTIVE, ledger, streams, options, tmp_path / "one.pt")


def test_what_float32_does_not_depend_on_may_change(tmp_path: Path) -> None:
    begun(tmp_path, HALF)
    train(tmp_path, WHOLE, micro_batch=6, checkpointing=True)
    with Ledger.open(tmp_path / "ledger.sqlite", readonly=True) as ledger:
        assert rounding_of(ledger, "one") == Rounding()
        assert precision_words(ledger) == ""


def first_sum(folder: Path, streams: KeyedRandomness, **compute: Any) -> torch.Tensor:
    folder.mkdir()
    with handed_to_the_optimizer() as seen:
        begun(folder, {"one": 1}, streams=streams, **compute)
    return seen[0]


def test_two_precisions_never_meet_the_same_noise(tmp_path: Path) -> None:
    for wrong, kind in ((True, AddressedByStep), (False, KeyedRandomness)):
        one, other = (first_sum(tmp_path / f"{wrong} {len(compute)}", kind(KEY), **compute) for compute in ({}, BF16))
        noises = float((one - other).std()) / PLAN.noise_stddev
        if wrong:
            assert 1e-5 < noises < 0.05  # other sums, by more than last digits, and the noise is gone
        else:
            assert noises > 1.3


@pytest.mark.slow
def test_a_run_in_bf16_says_so_and_is_verified(tmp_path: Path) -> None:
    write_corpora(tmp_path, patients=60, records=200)
    compute = {"micro_batch": 16, "threads": 1, "precision": "bf16", "checkpointing": True}
    values = small_values(tmp_path, compute=compute, audit=None)
    run(parse_config(values, "test"))
    certificate = read_json(tmp_path / "run" / "release" / "certificate.json")
    on_grid = ", in float64, rounded with its sums to a public grid;"
    assert on_grid in certificate["randomness"]
    assert certificate["randomness"].endswith(
        " Gradients of private: computed in bfloat16, with norms and sums in float32."
    )
    folder = RunFolder(tmp_path / "run")
    assert [check.name for check in verify_run(folder) if not check.holds] == []
    said = certificate["randomness"]
    for other in (said.replace(on_grid, ";"), said.partition(" Gradients of ")[0]):  # known wrong: without what it was
        silent = {**certificate, "randomness": other}
        (tmp_path / "silent.json").write_text(json.dumps(silent))
        wrong = [check.name for check in verify_run(folder, tmp_path / "silent.json") if not check.holds]
        assert "words on randomness" in wrong


def test_what_the_calling_program_allows_lowers_no_precision() -> None:
    """Known wrong: with "medium" oneDNN multiplies float32 in bfloat16, which is not the precision that the ledger binds."""
    before, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        torch.set_float32_matmul_precision("medium")
        set_up_torch(ComputeOptions(threads=1))
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.mkldnn.matmul.fp32_precision != "bf16"
    finally:
        torch.set_float32_matmul_precision(before)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(was_deterministic)

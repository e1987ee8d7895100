"""FSDP2 on two gloo processes against the per-example loop in one process (T1, T4): sums, norms, noise, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tacit.engine import PerLayerClipping, add_noise_
from tacit.randomness import KeyedRandomness

from ..started import start
from .cases import CASES
from .checks import Result, assert_close, loop_engine, our_engine
from .sharded_worker import BLOCKS, CLIP_NORM, NOISE, work

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What ranks 0 and 1 found."""
    folder = tmp_path_factory.mktemp("ranks")
    outputs = [folder / f"{rank}.pt" for rank in range(2)]
    for rank in range(2):
        (folder / f"printed-{rank}").mkdir()
    processes = [
        start(work, rank, 2, folder / "store", output, output=folder / f"printed-{rank}")
        for rank, output in enumerate(outputs)
    ]
    for rank, process in enumerate(processes):
        process.join(200)
        assert process.exitcode == 0, (folder / f"printed-{rank}" / "err").read_text()[-2000:]
    return [torch.load(output, weights_only=True) for output in outputs]


@pytest.mark.parametrize("name", BLOCKS)
def test_sharded_sums_and_norms_are_the_loop(found: list[dict[str, Any]], name: str) -> None:
    case = CASES[name]
    expected = loop_engine(case.model(), case.batch(6, 3), case.losses, CLIP_NORM)
    assert not found[1][name]["norms"][1].any()  # blank rows
    norms = torch.cat([found[0][name]["norms"][0], found[1][name]["norms"][0], found[0][name]["norms"][1]])
    for rank in range(2):
        assert_close(Result(norms, found[rank][name]["sums"]), expected)


def test_a_sum_that_is_averaged_over_ranks_would_be_seen(found: list[dict[str, Any]]) -> None:
    """Known wrong: FSDP2 averages ordinary gradients over ranks."""
    case = CASES["bert-tied"]
    expected = loop_engine(case.model(), case.batch(6, 3), case.losses, CLIP_NORM)
    averaged = {name: value / 2 for name, value in found[0]["bert-tied"]["sums"].items()}
    with pytest.raises(AssertionError):
        assert_close(Result(expected.norms, averaged), expected)


def test_per_layer_clipping_is_the_same_sharded(found: list[dict[str, Any]]) -> None:
    case = CASES["gpt2-tied-gram"]
    expected = our_engine(case.model(), case.batch(6, 3), case.losses, CLIP_NORM, clipping=PerLayerClipping())
    assert_close(Result(expected.norms, found[1]["per-layer"]["sums"]), expected)


@pytest.mark.parametrize("name", BLOCKS)
def test_noise_is_what_one_process_adds_once(found: list[dict[str, Any]], name: str) -> None:
    model = CASES[name].model()
    add_noise_(model.named_parameters(), NOISE, KeyedRandomness(bytes(32)), 3, None)
    for parameter_name, parameter in model.named_parameters():
        for rank in range(2):
            one = found[rank][name]
            noise = one["noisy"][parameter_name] - one["sums"][parameter_name]
            torch.testing.assert_close(noise, parameter.grad, rtol=0, atol=1e-9)


def test_refusals_name_parameter_and_layer(found: list[dict[str, Any]]) -> None:
    for rank in range(2):
        assert "parameter-outside-rule" in found[rank]["outside"]
        assert "table.weight" in found[rank]["outside"]
        assert "sharded-without-rule" in found[rank]["fallback"]
        assert "gain (Gain)" in found[rank]["fallback"]

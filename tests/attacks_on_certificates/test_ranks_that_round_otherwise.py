"""Several processes must compute a unit alike, whichever of them does (TACIT-55, thirty-second attack, by reading).

What was wrong. Each process decided for itself how many units it takes together: by the number of its threads, which is that of its
machine's cores. Two machines of 4 and 6 cores cut one draw into other groups of width, and a unit stood in two slices, or in none:
one unit more moved a sum by 9.8 clip norms. Where only the numbers of rounds differed the run hung, for one draw and not for
another. And the place in the draw, which other units decide, says which machine computes a unit: another kind of processor, or
number of threads, rounds it otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from tacit.config import ComputeOptions, parse_config
from tacit.engine import PerExampleClipper
from tacit.engine.distributed import Ranks
from tacit.errors import UsageError
from tacit.pipeline import opening
from tacit.training import device, dp_step
from tacit.training.dp_step import DpStep
from tacit.training.objectives import CausalObjective
from tacit.training.plans import DpPlan
from tacit.training.unit_rows import Source

from ..processes import in_processes
from ..small import small_values
from ..training.streams import stream_of
from .test_who_stands_beside import STREAMS, Texts

LENGTH, CLIP, VOCABULARY = 32, 1e-2, 64
EXPECTED = 190.0
"""Of 64 units together three micro-batches are expected, and more than three of 60 or 63: then there are other widths."""


def llama() -> PreTrainedModel:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **sizes)).train()


def texts() -> Texts:
    generator = np.random.default_rng(1)
    long = {f"long {place}": generator.integers(5, VOCABULARY, 30).tolist() for place in range(92)}
    return long | {f"short {place}": generator.integers(5, VOCABULARY, 3).tolist() for place in range(91)}


def sum_of_rank(own: Texts, ranks: Ranks, threads: int) -> Tensor:
    """What a process adds up in a step that all units are in, on a machine of so many cores."""
    torch.set_num_threads(threads)
    source = Source(stream_of({name: [text] for name, text in own.items()}, LENGTH), CausalObjective(), STREAMS, ranks)
    model = llama()
    with contextlib.closing(
        DpStep(model, DpPlan(1.0, CLIP, 1.0, EXPECTED), ComputeOptions(micro_batch=64), source)
    ) as step:
        for _ in step.add_up(0, step.draw(0), 0):
            pass
        return torch.cat([one.double().flatten() for one in step.sums()])


def one_more_moves(threads: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> float:
    """In clip norms, on so many processes as there are numbers of threads; nothing is compared."""
    monkeypatch.setattr(Ranks, "agree", lambda *_: None)
    found = []
    for has_it in (True, False):
        parts = [sum_with(has_it, rank, len(threads), one) for rank, one in enumerate(threads)]
        found.append(sum(parts, torch.zeros_like(parts[0])))
    return float((found[0] - found[1]).norm()) / CLIP


@functools.cache
def sum_with(has_it: bool, rank: int, world: int, threads: int) -> Tensor:
    """What a process adds up where nothing is compared, with one more unit or without it."""
    own = {name: text for name, text in texts().items() if has_it or name != "short 90"}
    return sum_of_rank(own, Ranks(rank, world), threads)


@pytest.mark.slow
def test_ranks_that_take_other_numbers_of_units_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for taken, said in (((64, 60), "how many units stand together"), ((64, 64), "")):

        def on_rank(ranks: Ranks, taken: tuple[int, int] = taken) -> None:
            monkeypatch.setattr(dp_step, "together", lambda *_: taken[ranks.rank])
            sum_of_rank(texts(), ranks, threads=1)

        ended = in_processes(2, on_rank)
        assert all(said in one.error if said else not one.error for one in ended), [one.error for one in ended]
    assert one_more_moves((4, 4), monkeypatch) <= 1 + 1e-6
    assert one_more_moves((4, 6), monkeypatch) > 3  # known wrong


def test_ranks_that_round_a_made_up_micro_batch_otherwise_are_refused() -> None:
    """Whatever it is that lets them: 23 clip norms in bfloat16 where OpenMP gave one of them fewer threads than it was told."""

    def on_rank(ranks: Ranks, moved: float) -> None:
        model = llama()
        with torch.no_grad():
            model.lm_head.weight[:, 0] *= 1 + moved * ranks.rank
        source = Source(stream_of({"unit": [[7] * 9]}, LENGTH), CausalObjective(), STREAMS, ranks)
        DpStep(model, DpPlan(1.0, CLIP, 1.0, 8.0), ComputeOptions(micro_batch=1, threads=1), source).close()

    for moved, said in ((2**-20, "the bits of a made-up micro-batch"), (0.0, "")):
        ended = in_processes(2, functools.partial(on_rank, moved=moved))
        assert all(said in one.error if said else not one.error for one in ended), [one.error for one in ended]


@pytest.mark.parametrize(
    ("variables", "threads", "said"),
    [
        ({"OMP_THREAD_LIMIT": "1"}, 2, "OMP_THREAD_LIMIT=1 gives fewer threads than the 2"),
        ({"OMP_THREAD_LIMIT": "1"}, 1, ""),
        ({"OMP_THREAD_LIMIT": " 1"}, 2, "OMP_THREAD_LIMIT=1 gives fewer threads than the 2"),
        ({"OMP_THREAD_LIMIT": "8"}, 2, ""),
        ({"OMP_MAX_ACTIVE_LEVELS": "0"}, 2, "OMP_MAX_ACTIVE_LEVELS=0 gives one thread"),
        ({"OMP_DYNAMIC": "on"}, 2, "OMP_DYNAMIC lets the machine's load decide"),
        ({"OMP_DYNAMIC": "TRUE"}, 1, ""),
        ({"OMP_DYNAMIC": "TRUE"}, 2, "OMP_DYNAMIC lets the machine's load decide"),
        ({"OMP_DYNAMIC": "false"}, 2, ""),
    ],
)
def test_fewer_threads_than_torch_is_told_are_refused(
    variables: dict[str, str], threads: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clip(clipper: PerExampleClipper) -> None:
        with clipper:
            model(torch.ones(2, 3)).sum(1).backward(torch.ones(2))

    model = nn.Linear(3, 1)
    before = PerExampleClipper(model)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    torch.set_num_threads(threads)  # a loop of one's own tells torch itself
    try:
        for use in (
            lambda: device.set_up_torch(ComputeOptions(threads=threads)),
            lambda: PerExampleClipper(nn.Linear(3, 1)),
            lambda: clip(before),
        ):
            with pytest.raises(UsageError, match=said) if said else contextlib.nullcontext():
                use()
    finally:
        torch.set_num_threads(1)


def test_a_processor_is_told_by_more_than_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On ARM it has none, and virtual machines hide it; a variable may choose another program."""
    cpu = torch.device("cpu")
    before = device.computed_by(cpu)
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert device.computed_by(cpu) != before
    monkeypatch.delenv("MKL_CBWR")
    assert device.computed_by(cpu) == before
    found: set[str] = set()
    for part in ("0xd0c", "0xd4f"):
        told = tmp_path / "cpuinfo"
        told.write_text(
            f"processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: {part}\n\nprocessor\t: 1\n"
        )
        monkeypatch.setattr(device, "_CPUINFO", told)
        found.add(device.computed_by(cpu))
    assert len({before, *found}) == 3
    assert not any("BogoMIPS" in one for one in found)  # a speed that was measured
    found.clear()
    many = " ".join(f"x{number}" for number in range(30))
    for flags in (f"fpu avx2 {many}", f"fpu avx2 {many} ibrs", f"fpu avx2 {many} amx_bf16"):
        told.write_text(f"flags\t\t: {flags}\n")
        found.add(device.computed_by(cpu))
    assert len(found) == 2  # what a kernel's mitigations add computes nothing


@pytest.mark.slow
def test_ranks_on_unlike_machines_are_refused_before_the_run(tmp_path: Path) -> None:
    config = parse_config(small_values(tmp_path, compute={"micro_batch": 8}))

    def on_cores(ranks: Ranks, cores: Sequence[int], kinds: Sequence[str]) -> None:
        os.cpu_count = lambda: cores[ranks.rank]
        device._kind_of_cpu = lambda: kinds[ranks.rank]
        opening._agree_and_set_up(config, ranks)

    for cores, kinds, is_refused in (
        ((4, 4), ("one", "one"), False),
        ((4, 8), ("one", "one"), True),
        ((4, 4), ("one", "another"), True),
    ):
        ended = in_processes(2, lambda ranks, own=(cores, kinds): on_cores(ranks, *own))
        words = "the processor, or the number of its threads: rank 1 has another one than rank 0"
        assert all((words in one.error) == is_refused for one in ended), [one.error for one in ended]

"""A checkpoint inside a step lost the sum of a rank that had done less than another (fifteenth attack, TACIT-26).

What was wrong. A rank with one micro-batch has float32 sums, one with several float64, and what the one sent was read as what the
other has. With a clip norm of 16 the sum of a phase that was resumed there was off by 226 clip norms, and one unit moved it by 68;
a whole run ended without a release. So one document decided whether there is a release.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tacit.config import ComputeOptions
from tacit.engine.distributed import Ranks
from tacit.training import loop
from tacit.training.loop import run_phase
from tacit.training.objectives import CausalObjective
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan

from ..processes import in_processes
from ..training.phases import checkpoint_of, opened_ledger
from ..training.streams import stream_of
from ..training.test_ranks import LossyStreams

CAUSAL_PLAN = DpPlan(1.0, 0.4, 0.5, 8.0)  # a unit has one row, and all are drawn
CAUSAL = Phase("private", "private", CAUSAL_PLAN, 1, AdamOptions(1e-2))


def llama() -> LlamaForCausalLM:
    """In float32, as runs train."""
    torch.manual_seed(0)
    numbers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=32, pad_token_id=0, **numbers))


def sums_of_five_units(folder: Path, world: int, until: int) -> torch.Tensor:
    """In a checkpoint: of a short unit, which rank 0 has alone, and of four long ones. The last rank is killed after so many."""
    units = stream_of({"short": [[7, 7]], **{f"u{place}": [[8 + place] * 29] for place in range(10)}}, 32)
    compute = ComputeOptions(micro_batch=2, threads=1, checkpoint_seconds=0.0)

    def work(ranks: Ranks) -> None:
        streams = LossyStreams(0)
        streams.left = until if ranks.rank == world - 1 else 100
        ledger, path = opened_ledger(folder, 1) if ranks.first else None, checkpoint_of(folder)
        run_phase(llama(), CAUSAL, units, CausalObjective(), ledger, streams, compute, path, ranks=ranks)

    folder.mkdir()
    assert in_processes(world, work)[-1].exit_code == -signal.SIGKILL
    partial = torch.load(checkpoint_of(folder), weights_only=True)["partial"]
    assert (partial["drawn"], len(partial["sums"])) == (5, world)
    return torch.cat(
        [
            torch.stack([part.double() for part in parts]).sum(0).flatten()
            for parts in zip(*partial["sums"], strict=True)
        ]
    )


def due_from_the_second_round() -> Callable[[object], bool]:
    """Instead of a clock. A checkpoint behind the first round would make the sums of all ranks, and with them their types, alike."""
    rounds = itertools.count()
    return lambda _: next(rounds) > 0


def gathered_as_they_were(ranks: Ranks, tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Known wrong: each rank sends the bytes of its own type."""
    if ranks.world == 1:
        return [list(tensors)]
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    parts = [torch.zeros_like(flat) for _ in range(ranks.world)] if ranks.first else None
    torch.distributed.gather(flat, parts)
    sizes = [tensor.numel() for tensor in tensors]
    return [[a.view_as(b) for a, b in zip(one.split(sizes), tensors, strict=True)] for one in parts or []]


@pytest.mark.slow
def test_a_checkpoint_holds_the_sums_of_ranks_that_did_not_do_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 has float64 sums of two micro-batches, rank 1 float32 of one."""
    monkeypatch.setattr(loop._Saver, "_due", due_from_the_second_round())
    alone = sums_of_five_units(tmp_path / "alone", 1, until=6)
    torch.testing.assert_close(sums_of_five_units(tmp_path / "two", 2, until=2), alone, rtol=1e-5, atol=1e-7)
    monkeypatch.setattr(Ranks, "gather", gathered_as_they_were)
    wrong = sums_of_five_units(tmp_path / "wrong", 2, until=2)
    assert not float((wrong - alone).norm()) < CAUSAL_PLAN.clip_norm

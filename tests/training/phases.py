"""A small private phase with its ledger in a folder, which tests run, kill and run again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from transformers import BertForMaskedLM

from tacit.config import ComputeOptions, ModelOptions
from tacit.engine.distributed import ALONE, Ranks
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.randomness import KeyedRandomness
from tacit.training.loop import run_phase
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan
from tacit.training.sequences import SequenceStream

from ..networks import build_bert
from .streams import LENGTH, OBJECTIVE, VOCABULARY

KEY = bytes(range(32))
STEPS = 3
PLAN = DpPlan(sampling_probability=0.7, clip_norm=0.4, noise_multiplier=0.5, normaliser=5.0, sequences_per_unit=2)
PHASE = Phase("private", "private", PLAN, STEPS, AdamOptions(1e-2))
HEADER = LedgerHeader("user", "add-or-remove", 100, math.inf, 1e-5, "digest", "commitment")

Weights = dict[str, torch.Tensor]


def dropping_bert(dropout: float = 0.2) -> BertForMaskedLM:
    """One layer in float64, with dropout."""
    options = ModelOptions(layers=1, width=8, heads=2, intermediate=16, length=LENGTH, dropout=dropout)
    model = build_bert(options, VOCABULARY, 0, 1)
    torch.nn.Module.double(model)
    return model


def checkpoint_of(folder: Path) -> Path:
    """Where the phase's checkpoint is."""
    return folder / "private.pt"


def opened_ledger(folder: Path, limit: int = STEPS, phase: Phase = PHASE) -> Ledger:
    """The folder's ledger, made with the phase's plan when there is none."""
    path = folder / "ledger.sqlite"
    ledger = Ledger.open(path) if path.exists() else Ledger.create(path, HEADER)
    assert phase.event is not None
    ledger.plan("private", phase.event, limit)
    return ledger


def train(
    folder: Path,
    stream: SequenceStream,
    streams: KeyedRandomness | None = None,
    micro_batch: int = 4,
    checkpoint_seconds: float = 0.0,
    ranks: Ranks = ALONE,
    dropout: float = 0.2,
    limit: int | None = None,
    compute: Mapping[str, Any] = MappingProxyType({}),
    phase: Phase = PHASE,
    on_step: Callable[[int], None] = lambda done: None,
) -> Weights:
    """Run the phase, from its checkpoint if it has one, and give the weights at its end."""
    model = dropping_bert(dropout)
    options = ComputeOptions(micro_batch=micro_batch, threads=1, checkpoint_seconds=checkpoint_seconds, **compute)
    limit = phase.payments if limit is None else limit
    ledger = opened_ledger(folder, limit, phase) if ranks.first and phase.plan.needs_ledger else None
    try:
        run_phase(
            model,
            phase,
            stream,
            OBJECTIVE,
            ledger,
            streams or KeyedRandomness(KEY),
            options,
            checkpoint_of(folder),
            on_step,
            ranks=ranks,
        )
    finally:
        if ledger is not None:
            ledger.close()
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def spent(folder: Path) -> int:
    """Steps that the ledger holds."""
    with Ledger.open(folder / "ledger.sqlite", readonly=True) as ledger:
        return ledger.spent("private")


def same(one: Weights, other: Weights) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(
        np.array_equal(one[name].numpy().view(np.int64), other[name].numpy().view(np.int64)) for name in one
    )


def assert_close(one: Weights, other: Weights) -> None:
    """To float64 precision, as sums in another order are."""
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-7, atol=1e-9)

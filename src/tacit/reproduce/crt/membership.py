"""The membership attacks on a cell's model, by its losses alone and against shadow models, which all arms of a replicate share.

All arms draw the same pairs, and a cell attacks those that its policy misses. So the shadow models are trained once, on halves of all
pairs (`tacit.audit.shadow_models`), and each cell takes the losses of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.audit.inference import twin_accuracy
from tacit.audit.membership import mean_nll, measure_against_shadows, measure_membership
from tacit.audit.samples import Pair, samples_of
from tacit.audit.shadow_models import ShadowLosses, shadow_losses
from tacit.corpus.units import Unit
from tacit.errors import DataError
from tacit.files import read_json
from tacit.pipeline.rows import tokenized
from tacit.pipeline.state import RunState
from tacit.randomness import KeyedRandomness
from tacit.reproduce.crt.members import membership_pairs, missed_places, redacting_policy
from tacit.reproduce.crt.scale import Cell, Scale, Shadows
from tacit.reproduce.place import Place
from tacit.training.loop import run_phase
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import ControlPlan

__all__ = ["losses_of_places", "measure_cells_membership", "stored_losses", "train_shadows"]

_LEAST_GROUPS = 4
"""For the halves of the blind baseline."""

_SHOWINGS = 10
"""Of each text to a shadow model. A control of an audit has 25: here they took twice as long, and the attack found less."""


def measure_cells_membership(
    state: RunState, model: PreTrainedModel, cell: Cell, scale: Scale, place: Place
) -> dict[str, Any] | None:
    """None where the policy misses the secrets of too few lines, or nobody is attacked.

    Raises:
        DataError: the stored shadow models are of other pairs.
    """
    if scale.corpora[cell.corpus].membership_pairs == 0:
        return None
    streams = _streams(cell.seed)
    pairs = membership_pairs(cell.corpus, place.data, scale.corpora[cell.corpus], streams)
    missed = missed_places(pairs, redacting_policy(state.config, state.streams))
    if len(missed) < _LEAST_GROUPS * scale.group:
        return None
    samples = samples_of([pairs[number] for number in missed])
    shadows = losses_of_places(read_json(place.results / f"{cell.shadows.name}.json"), pairs, missed)
    starts, length = [state.special.start], _length(cell.model, scale)
    report = measure_membership(model, state.tokenizer, samples, starts, streams, scale.group, length=length)
    single, group = measure_against_shadows(
        model, state.tokenizer, samples, shadows, starts, streams, scale.group, length=length
    )
    twins = (
        mean_nll(model, state.tokenizer, side, starts, length=length) for side in (samples.members, samples.non_members)
    )
    return dataclasses.asdict(report) | {
        "twins": dataclasses.asdict(twin_accuracy(*twins)),
        "shadow": {"single": dataclasses.asdict(single), "group": dataclasses.asdict(group)},
    }


def train_shadows(state: RunState, shadows: Shadows, scale: Scale, data: Path) -> dict[str, Any]:
    """The losses of all pairs of a replicate under its shadow models, as `stored_losses` has them.

    Each begins with the panel's trunk and is trained without DP; how long is a function of public numbers.

    Args:
        state: of a run with the replicate's key, whose tokenizer is there.
    """
    size, streams = scale.corpora[shadows.corpus], _streams(shadows.seed)
    pairs = membership_pairs(shadows.corpus, data, size, streams)
    steps = math.ceil(_SHOWINGS * size.membership_pairs / scale.batch)
    options = AdamOptions(scale.learning_rate[shadows.model])
    starts, length = [state.special.start], _length(shadows.model, scale)

    def losses_of(number: int, texts: Sequence[str]) -> Callable[[Sequence[str]], np.ndarray]:
        phase = Phase(f"shadow_{number}", "private", ControlPlan(scale.batch), steps, options)
        model = state.new_model()
        torch.nn.Module.to(model, state.device)  # transformers' own `to` has no types
        rows = tokenized(state, [Unit(f"shadow:{place}", (text,)) for place, text in enumerate(texts)])
        own = state.streams.child("phase", phase.name)
        run_phase(model, phase, rows, state.objective, None, own, state.config.compute, state.checkpoint(phase.name))
        return lambda others: mean_nll(model, state.tokenizer, others, starts, length=length)

    return stored_losses(pairs, shadow_losses(samples_of(pairs), scale.shadow_models, streams, losses_of))


def stored_losses(pairs: Sequence[Pair], losses: ShadowLosses) -> dict[str, Any]:
    """The losses of each pair, and of which pairs they are."""
    return {
        "pairs": _digest(pairs),
        "members": losses.member_n.tolist(),
        "non_members": losses.non_member_n.tolist(),
    }


def losses_of_places(stored: Mapping[str, Any], pairs: Sequence[Pair], places: Sequence[int]) -> ShadowLosses:
    """The stored losses of some of the pairs, in this order.

    Raises:
        DataError: they are of other pairs, or of the same ones in another order.
    """
    if stored["pairs"] != _digest(pairs):
        raise DataError("the shadow models were trained on other pairs than are attacked; use another --out folder")
    return ShadowLosses(np.array(stored["members"])[places], np.array(stored["non_members"])[places])


def _digest(pairs: Sequence[Pair]) -> str:
    texts = [(pair.member, pair.non_member) for pair in pairs]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _streams(seed: int) -> KeyedRandomness:
    """One choice of pairs, halves and groups for all arms of a replicate."""
    return KeyedRandomness(bytes(31) + bytes([seed]))


def _length(model: str, scale: Scale) -> int | None:
    """An LSTM reads a text whole, which is the stronger attack; GPT-2 has no more positions than a row of its training."""
    return None if model == "lstm" else scale.models[model]["length"]

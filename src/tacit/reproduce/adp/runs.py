"""A cell as an ordinary run: the configuration that each arm of the comparison is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.config import RunConfig
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.reproduce.adp.corpora import CorpusFiles
from tacit.reproduce.adp.public import PublicModel
from tacit.reproduce.adp.scale import DELTA, Cell, Scale

__all__ = ["config_of", "worst_case"]


def worst_case(scale: Scale, noise: float) -> float:
    """The epsilon of DP-SGD at this noise multiplier, which the certified forms have as their worst case."""
    event = PoissonGaussian(scale.expected_batch / scale.units, noise)
    return joint_epsilon([Spend(event, scale.steps)], DELTA)


def config_of(
    cell: Cell, scale: Scale, files: CorpusFiles, start: PublicModel, scorer: PublicModel, run: Path
) -> RunConfig:
    """The run of a cell.

    Args:
        start: the weights that it begins with, and the tokenizer.
        scorer: what rho comes from.
    """
    values: dict[str, Any] = {
        "title": cell.name,
        "run": str(run),
        "privacy": {
            "unit": "record",
            "units": scale.units,
            "budget": {"epsilon": _budget(cell, scale), "delta": DELTA},
        },
        "private": {"path": str(files.train(cell.text)), "id_field": "id"},
        "public": [{"path": str(files.constants), "id_field": "id"}],  # every run names some; no phase is on it
        "vocabulary": {"method": "given", "path": str(start.model)},
        "model": {"kind": "gpt2", "folder": str(start.model), "length": scale.model["length"]},
        "phases": _phases(cell, scale),
        "evaluation": {"held_out": 0.0},
        "compute": {"threads": 1, "workers": 1, "device": scale.device},
        "allow": {"plain": ["heuristic:non-private"], "literal": ["heuristic:adp"]}.get(cell.arm, []),
    }
    if cell.is_adaptive:
        values["adaptive"] = _adaptive(cell, scale, scorer)
    return RunConfig.model_validate(values)


def _budget(cell: Cell, scale: Scale) -> float:
    """Of the worst case; a given noise meets it with room for rounding."""
    if cell.arm == "plain":
        return 1.0
    worst = worst_case(scale, cell.noise)
    return scale.protected * worst if cell.arm == "dp-sgd-protected" else 1.001 * worst


def _adaptive(cell: Cell, scale: Scale, scorer: PublicModel) -> dict[str, Any]:
    values: dict[str, Any] = {
        "form": cell.arm,
        "scorer": {"folder": str(scorer.folder), "length": scale.model["length"]},
        "lower": scorer.rho.lower,
        "upper": scorer.rho.upper,
    }
    if cell.arm == "literal":
        return values
    worst = worst_case(scale, cell.noise)
    values |= {
        "thresholds": [scale.threshold],
        "budget": {"public-like": worst, "private-like": scale.protected * worst},
    }
    if cell.arm == "strata":
        values["shares"] = [scale.stratum_share, 1 - scale.stratum_share]
    return values


def _phases(cell: Cell, scale: Scale) -> list[dict[str, Any]]:
    if cell.arm == "plain":
        return [
            {
                "name": "private",
                "plan": "plain",
                "stream": "private",
                "steps": scale.plain_steps,
                "batch_size": scale.batch,
                "learning_rate": scale.plain_rate,
                "warmup": 0.05,
            }
        ]
    phase: dict[str, Any] = {
        "name": "private",
        "plan": "dp",
        "stream": "private",
        "steps": scale.steps,
        "expected_batch": scale.expected_batch,
        "clip_norm": scale.clip_norm,
        "learning_rate": scale.rate,
        "warmup": 0.05,
    }
    match cell.arm:
        case "dp-sgd" | "literal":
            return [phase | {"noise_multiplier": cell.noise}]
        case "dp-sgd-protected":
            return [phase]
        case "strata":
            return _strata(scale, phase)
        case _:
            return [phase]


def _strata(scale: Scale, phase: dict[str, Any]) -> list[dict[str, Any]]:
    """A phase of each stratum, the private-like one at the end, with few small steps.

    Its noise is several times that of the other. Adam makes every step as long as the learning rate, however little of it is
    signal, and its second moments remember so much noise for fifty steps: at the beginning it would shorten all that follow.
    """
    last = round(scale.steps * scale.unlikely_steps)
    return [
        phase | {"name": "likely", "stream": "stratum-1", "steps": scale.steps - last},
        phase | {"name": "unlikely", "stream": "stratum-2", "steps": last, "learning_rate": scale.unlikely_rate},
    ]

"""A cell as an ordinary run: the configuration that each arm of the comparison is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.config import RunConfig
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.reproduce.adp.corpora import CorpusFiles
from tacit.reproduce.adp.public import PublicModel
from tacit.reproduce.adp.scale import DELTA, Cell, Scale, Trial

__all__ = ["config_of", "trial_config", "worst_case"]


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
    values = _common(cell.name, scale, _budget(cell, scale), files.train(cell.text), files, start, run)
    values |= {
        "phases": _phases(cell, scale),
        "allow": {"plain": ["heuristic:non-private"], "literal": ["heuristic:adp"]}.get(cell.arm, []),
    }
    if cell.is_adaptive:
        values["adaptive"] = _adaptive(cell, scale, scorer)
    return RunConfig.model_validate(values)


def trial_config(trial: Trial, scale: Scale, files: CorpusFiles, start: PublicModel, run: Path) -> RunConfig:
    """The run of a trial: that of DP-SGD, on the stand-in."""
    budget = 1.001 * worst_case(scale, trial.noise)
    values = _common(trial.name, scale, budget, files.stand_in, files, start, run)
    phase = _dp_phase(scale, trial.rate) | {"noise_multiplier": trial.noise}
    return RunConfig.model_validate({**values, "phases": [phase]})


def _common(
    title: str, scale: Scale, epsilon: float, private: Path, files: CorpusFiles, start: PublicModel, run: Path
) -> dict[str, Any]:
    return {
        "title": title,
        "run": str(run),
        "privacy": {"unit": "record", "units": scale.units, "budget": {"epsilon": epsilon, "delta": DELTA}},
        "private": {"path": str(private), "id_field": "id"},
        "public": [{"path": str(files.constants), "id_field": "id"}],  # every run names some; no phase is on it
        "vocabulary": {"method": "given", "path": str(start.model)},
        "model": {"kind": "gpt2", "folder": str(start.model), "length": scale.model["length"]},
        "evaluation": {"held_out": 0.0},
        "compute": {"threads": 1, "workers": 1, "device": scale.device},
    }


def _budget(cell: Cell, scale: Scale) -> float:
    """The epsilon of the worst case; a given noise meets it with room for rounding."""
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
    rate = scale.rate_of(cell.noise)
    phase = _dp_phase(scale, rate)
    match cell.arm:
        case "dp-sgd" | "literal":
            return [phase | {"noise_multiplier": cell.noise}]
        case "dp-sgd-protected":
            return [phase]
        case "strata":
            return _strata(scale, phase, rate)
        case _:
            return [phase]


def _dp_phase(scale: Scale, rate: float) -> dict[str, Any]:
    return {
        "name": "private",
        "plan": "dp",
        "stream": "private",
        "steps": scale.steps,
        "expected_batch": scale.expected_batch,
        "clip_norm": scale.clip_norm,
        "learning_rate": rate,
        "warmup": 0.05,
    }


def _strata(scale: Scale, phase: dict[str, Any], rate: float) -> list[dict[str, Any]]:
    """A phase of each stratum, the private-like one at the end, with few small steps.

    Its noise is several times that of the other. Adam makes every step as long as the learning rate, however little of it is
    signal, and its second moments remember so much noise for fifty steps: at the beginning it would shorten all that follow.
    """
    last = round(scale.steps * scale.unlikely_steps)
    return [
        phase | {"name": "likely", "stream": "stratum-1", "steps": scale.steps - last},
        phase | {"name": "unlikely", "stream": "stratum-2", "steps": last, "learning_rate": scale.unlikely_rate * rate},
    ]

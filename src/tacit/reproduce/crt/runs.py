"""A cell as an ordinary run: the configuration that each arm of the comparison is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from tacit.config import RunConfig
from tacit.reproduce.crt.corpora import CorpusFiles
from tacit.reproduce.crt.scale import Arm, Cell, CorpusSize, Scale, Trunk
from tacit.reproduce.place import Place

__all__ = ["DEDUPLICATE", "DELTA", "config_of", "noisy_lines", "private_steps", "trunk_config", "trunk_folder"]

DELTA = 1e-5
"""Of every epsilon. The paper has 8e-5 for every corpus; with more than 12,500 records that is above 1/n, which is refused."""

_CLIP_NORM = 0.5
_STATE_CLIP, _STATE_NOISE, _SEGMENTS = 1.0, 1.0, 2

DEDUPLICATE: dict[Arm, Literal["none", "exact", "unmasked"]] = {
    "redacted": "none",
    "crt": "unmasked",
    "public-lines": "unmasked",
    "noiseless": "unmasked",
    "crt-copies": "none",
    "redacted-exact": "exact",
    "crt-exact": "exact",
}
"""``screening.deduplicate`` of each arm that is screened."""

_ALLOW: dict[str, tuple[str, ...]] = {
    "raw": ("heuristic:non-private",),
    "redacted": ("heuristic:non-private",),
    "redacted-exact": ("heuristic:non-private",),
    "noiseless": ("heuristic:non-private",),
    "s-dp": ("heuristic:selective-dp",),
}


def trunk_folder(place: Place, trunk: Trunk) -> Path:
    """Where its model lies."""
    return place.out / "trunks" / trunk.name


def trunk_config(trunk: Trunk, scale: Scale, files: CorpusFiles, run: Path) -> RunConfig:
    """Ordinary training on the public dialogues, from initial weights. The private text is named, and no phase is on it."""
    values: dict[str, Any] = {
        "title": trunk.name,
        "run": str(run),
        "privacy": {
            "unit": "record",
            "units": scale.corpora[trunk.corpus].lines,
            "budget": {"epsilon": 1.0, "delta": DELTA},
        },
        "private": {"path": str(files.train), "id_field": "id"},
        "public": [{"path": str(files.public), "id_field": "id"}],
        "vocabulary": {"method": "given", "path": str(files.tokenizer), "public": True},
        "model": scale.models[trunk.model],
        "phases": [
            {
                "name": "trunk",
                "plan": "plain",
                "stream": "public",
                "steps": scale.trunk_steps,
                "batch_size": scale.batch,
                "learning_rate": scale.learning_rate[trunk.model],
                "warmup": 0.02,
            }
        ],
        "evaluation": {"held_out": 0.0},
        "compute": {"threads": 1, "workers": 1, "device": scale.device},
    }
    return RunConfig.model_validate(values)


def config_of(cell: Cell, scale: Scale, files: CorpusFiles, trunk: Path, noise: float, run: Path) -> RunConfig:
    """The run of a cell; the budget is out of the way, since the noise is given.

    Args:
        trunk: folder of the model that it begins with.
        noise: noise multiplier of its DP phase (`tacit.reproduce.crt.account.noise_of`); no other arm has one.
    """
    size = scale.corpora[cell.corpus]
    screened = cell.arm in DEDUPLICATE
    values: dict[str, Any] = {
        "title": cell.name,
        "run": str(run),
        "privacy": {
            "unit": "record",
            "units": size.private_lines if screened else size.lines,
            "relation": "replace",
            "budget": {"epsilon": 1000.0, "delta": DELTA},
        },
        "private": {"path": str(files.train), "id_field": "id"},
        "public": [
            {"path": str(files.test), "id_field": "id"}
        ],  # read for the audit's contexts alone: no phase is on it
        "vocabulary": {"method": "given", "path": str(trunk)},
        "model": {"kind": cell.model, "folder": str(trunk), "length": scale.models[cell.model]["length"]},
        "rounds": scale.rounds,
        "phases": _phases(cell, scale, size, noise),
        "evaluation": {"held_out": 0.0},
        "audit": {"canaries": 10, "copies": cell.copies, "digits": scale.digits},
        "compute": {"threads": 1, "workers": 1, "device": scale.device},
        "allow": _ALLOW.get(cell.arm, ()),
    }
    if screened:
        values["screening"] = {
            "conservative": str(files.conservative),
            "missed": cell.gamma,
            "gamma": cell.gamma,
            "delta2": 0.0,
            "deduplicate": DEDUPLICATE[cell.arm],
        }
    if cell.arm == "s-dp":
        values["marking"] = {"missed": cell.gamma}
    return RunConfig.model_validate(values)


def noisy_lines(cell: Cell, size: CorpusSize) -> int:
    """Lines of the stream that is trained on with noise, or would be: about so many."""
    return size.lines if cell.arm in ("dp-sgd", "raw", "redacted", "redacted-exact") else size.private_lines


def private_steps(scale: Scale, lines: int) -> int:
    """DP steps of a round on a stream of about so many lines."""
    return max(1, round(scale.private_passes * lines / scale.expected_batch / scale.rounds))


def _phases(cell: Cell, scale: Scale, size: CorpusSize, noise: float) -> list[dict[str, Any]]:
    """One round: the rounds together are ``passes`` over the text without noise, ``private_passes`` over that with noise.

    Noise comes first, so that a round ends without: what the last phase has learned is not covered by noise.
    """
    rate, private_rate = scale.learning_rate[cell.model], scale.private_learning_rate[cell.model]
    public_lines = size.lines - size.private_lines

    def plain(stream: str, lines: int, **others: Any) -> dict[str, Any]:
        steps = max(1, round(scale.passes * lines / scale.batch / scale.rounds))
        return {
            "name": "plain",
            "plan": "plain",
            "stream": stream,
            "steps": steps,
            "batch_size": scale.batch,
            "learning_rate": rate,
            "warmup": 0.02,
        } | others

    def private(stream: str, lines: int) -> dict[str, Any]:
        return {
            "name": "private",
            "plan": "dp",
            "stream": stream,
            "steps": private_steps(scale, lines),
            "expected_batch": scale.expected_batch,
            "clip_norm": _CLIP_NORM,
            "noise_multiplier": noise,
            "learning_rate": private_rate,
            "warmup": 0.02,
        }

    match cell.arm:
        case "raw":
            return [plain("private", size.lines)]
        case "redacted" | "redacted-exact":
            return [plain("redacted", size.lines)]
        case "dp-sgd":
            return [private("private", size.lines)]
        case "crt" | "crt-copies" | "crt-exact":
            return [private("private", size.private_lines), plain("screened", public_lines)]
        case "noiseless":
            own = plain("private", size.private_lines, name="private")
            return [own, plain("screened", public_lines)]
        case "public-lines":
            return [plain("screened", public_lines)]
        case "s-dp":
            states = {"state_clip": _STATE_CLIP, "state_noise_multiplier": _STATE_NOISE, "segments": _SEGMENTS}
            # As many steps as CRT: lines without private tokens give nothing to them.
            return [private("marked", size.private_lines), plain("marked", size.lines, plan="selective", **states)]

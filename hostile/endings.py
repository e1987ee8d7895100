"""Whether two finished runs are alike, bit for bit: every file below the run folder, and every row of the ledger.

Three things may differ, and nothing else:

    config.json, finetune.json     hold the path of the run folder
    ledger.sqlite                  its rows are compared; SQLite's pages depend on when they were written
    receipt.json                   of the screening: how long it took, over all starts
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import spend_to_dict

__all__ = ["differences", "differs_by_rounding", "twice_spent"]

_TIMES = ("seconds", "megabytes_per_second")


def differences(run: Path, other: Path) -> list[str]:
    """What differs between two run folders, one line each."""
    found, expected = _files(run), _files(other)
    lines = [f"{name}: only in one of the runs" for name in sorted(found.keys() ^ expected.keys())]
    for name in sorted(found.keys() & expected.keys()):
        read = _AS.get(Path(name).name, Path.read_bytes)
        if read(found[name]) != read(expected[name]):
            lines.append(f"{name}: differs")
    return lines


def differs_by_rounding(run: Path, other: Path) -> bool:
    """Whether the first phase that ended otherwise did so in the last digits of its weights, and the account is the same.

    What comes after it is no evidence: a phase with noise draws other noise for other sums, however near they are.
    """
    ends = sorted((other / "private" / "checkpoints").glob("*.pt"), key=lambda path: path.stat().st_mtime_ns)
    pairs = [(_weights(path), _weights(run / "private" / "checkpoints" / path.name)) for path in ends]
    unlike = [pair for pair in pairs if any(not torch.equal(one, another) for one, another in zip(*pair, strict=True))]
    return bool(unlike) and _account(run) == _account(other) and all(map(_near, *unlike[0]))


_LAST_DIGITS = 1e-5
"""Of the largest weight of a tensor; single precision has seven digits, and a phase adds its steps up."""


def _weights(path: Path) -> list[torch.Tensor]:
    model = torch.load(path, weights_only=True, map_location="cpu")["model"]
    return [model[name] for name in sorted(model)]


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one - other).abs().max() <= _LAST_DIGITS * other.abs().max())


def _account(run: Path) -> list[Any]:
    """What was planned and paid, and what the certificate says of it."""
    stated = json.loads((run / "release" / "certificate.json").read_bytes())
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        spends = [spend_to_dict(stage, spend) for stage, spend in ledger.spends_by_stage().items()]
    return [spends, *(stated[name] for name in ("spends", "epsilons", "total_variation", "status"))]


def twice_spent(run: Path) -> list[str]:
    """Stages that are not paid for exactly as often as they were planned."""
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        plans = ledger.plans.values()
        wrong = [plan for plan in plans if ledger.spent(plan.stage) != plan.limit]
        return [f"{plan.stage}: paid {ledger.spent(plan.stage)} times, planned {plan.limit}" for plan in wrong]


def _files(run: Path) -> dict[str, Path]:
    paths = (path for path in run.rglob("*") if path.is_file() or path.is_symlink())
    logs = ("ledger.sqlite-wal", "ledger.sqlite-shm")  # a killed start leaves them, and the next one folds them in
    return {path.relative_to(run).as_posix(): path for path in paths if path.name not in logs}


def _rows(path: Path) -> list[tuple[Any, ...]]:
    with Ledger.open(path, readonly=True) as ledger:
        return [(row.sequence, row.kind, row.body, row.first, row.count, row.digest) for row in ledger.rows]


def _without(*names: str) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        return {name: value for name, value in json.loads(path.read_bytes()).items() if name not in names}

    return read


_AS: dict[str, Callable[[Path], Any]] = {
    "ledger.sqlite": _rows,
    "config.json": lambda path: _without("run")(path) if path.parent.name == "run" else path.read_bytes(),
    "finetune.json": _without("run"),
    "receipt.json": _without(*_TIMES),
}

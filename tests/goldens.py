"""What tiny runs of every kind come to: recorded once, and compared with ever after (``tests/test_goldens.py``).

A change that moves code, and nothing else, leaves all of it as it is. A change that means to alter it says so in the changelog, and
records it again:

    python -m tests.goldens            every kind
    python -m tests.goldens LSTM       these

Two sorts of values are kept. Those of the account, the tokenizer and the list of files are compared on every machine. Digests of weights
and of the ledger's rows hang on the last digit of every sum, and so on processor and library; they are kept by `fingerprint`, and compared
where it is known.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile.cases import CASES, config_in

from tacit.beginning import begin
from tacit.config import load_config
from tacit.privacy.events import event_to_dict
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import MADE_BY

from .draws import install
from .started import called, command

__all__ = ["FILE", "fingerprint", "noise_of", "outcome", "recorded"]

FILE = Path(__file__).with_suffix(".json")
_LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "dp-accounting")
_DIGITS = 9
"""Significant ones of the numbers that every machine compares."""


def fingerprint() -> str:
    """Names what decides the last digits: versions of libraries, and the outcome of a little training of torch's own."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    embed, recurrent = torch.nn.Embedding(50, 32), torch.nn.LSTM(32, 16, batch_first=True)
    block = torch.nn.TransformerEncoderLayer(16, 2, 64, dropout=0.0, activation="gelu", batch_first=True)
    head = torch.nn.Linear(16, 50)
    parts = torch.nn.ModuleList([embed, recurrent, block, head])
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-2)
    ids = torch.arange(16 * 24).reshape(16, 24) * 7 % 50
    for _ in range(3):
        logits = head(block(recurrent(embed(ids))[0]))
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 50), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.set_num_threads(threads)
    digest = hashlib.sha256(" ".join(f"{name} {version(name)}" for name in _LIBRARIES).encode())
    digest.update(platform.machine().encode())
    for parameter in parts.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def outcome(name: str, folder: Path, noise: dict[str, int]) -> tuple[dict[str, Any], dict[str, str]]:
    """Make the run of a kind: (what every machine compares, digests of this one).

    Args:
        folder: empty.
        noise: the vocabulary's noise, which else comes from the operating system: names of files, and how many values each has. It
            is placed before the run, like that of a run that was stopped after drawing it.
    """
    _write(name, folder, noise)
    _run(name, CASES[name].command, folder)
    if (found := _noises(folder)) != noise:
        raise AssertionError(f"{name}: noise was drawn for other counts: {sorted(found)}")
    return _portable(folder / "run"), _digests(folder / "run")


def noise_of(name: str) -> dict[str, int]:
    """Which noise the run of a kind asks for, one release after the other: what a round counts hangs on the noise before."""
    known: dict[str, int] = {}
    for _ in range(CASES[name].os_noise):
        with tempfile.TemporaryDirectory() as folder:
            _write(name, Path(folder), known)
            _run(name, "vocabulary", Path(folder))
            place = Path(folder) / "run" / "private" / "vocabulary"
            drawn = sorted(place.glob("noise*.npy"), key=lambda path: path.stat().st_mtime_ns)
            first = next(path for path in drawn if path.name not in known)
            known[first.name] = len(np.load(first))
    return known


def _write(name: str, folder: Path, noise: dict[str, int]) -> None:
    CASES[name].write(folder)
    config_in(folder, CASES[name].values(Path()), Path("run"))  # relative: the ledger holds a digest of all paths
    if CASES[name].os_noise:  # of an ordinary run that was stopped when it had begun
        done = called(_begin, f"the golden run {name}", cwd=folder)
        assert done.returncode == 0, done.stderr
        place = folder / "run" / "private" / "vocabulary"
        place.mkdir(mode=0o700)
        for file, count in noise.items():
            seed = int.from_bytes(hashlib.sha256(file.encode()).digest()[:8], "big")
            np.save(place / file, np.rint(np.random.default_rng(seed).normal(0.0, 6.0, count)).astype(np.int64))


def _begin(who: str) -> None:
    install(who)
    with begin(load_config(Path("config.yaml"))):
        pass


def _run(name: str, work: str, folder: Path) -> None:
    """Under a key that is a function of the name alone (`tests.draws`)."""
    done = called(command, [work, "config.yaml"], f"the golden run {name}", cwd=folder)
    if done.returncode:
        raise RuntimeError(f"{name}: exit code {done.returncode}: {done.stderr[-1000:]}")


def _noises(folder: Path) -> dict[str, int]:
    return {path.name: len(np.load(path)) for path in folder.glob("run/private/vocabulary/noise*.npy")}


def _portable(run: Path) -> dict[str, Any]:
    release = run / "release"
    stated = json.loads((release / "certificate.json").read_bytes())
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        kinds = [row.kind for row in ledger.rows]
        paid = {stage: [event_to_dict(spend.event)["kind"], spend.count] for stage, spend in ledger.spends_by_stage().items()}
    return {
        "files": sorted(path.relative_to(release).as_posix() for path in release.rglob("*") if path.is_file()),
        "tokenizer": _sha256((release / "model" / "tokenizer.json").read_bytes()),
        "paid": paid,
        "rows": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "epsilon": [_rounded(pair["epsilon"]) for pair in stated["epsilons"]],
        "total variation": _rounded(stated["total_variation"]),
        "status": stated["status"],
    }


def _digests(run: Path) -> dict[str, str]:
    """But for the pages and the manifest, which have the date on them, and the rows that hold the manifest's digest or the version."""
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        rows = [[row.kind, row.body, row.first, row.count] for row in ledger.rows if not _changes(row.kind, row.body)]
    certificate = json.loads((run / "release" / "certificate.json").read_bytes())
    for name in ("tacit_version", "ledger_head"):
        del certificate[name]
    model = {path.name: _sha256(path.read_bytes()) for path in sorted((run / "release" / "model").iterdir())}
    measured = [path for path in sorted((run / "private").glob("*.json")) if path.name in _MEASURED]
    return {
        "ledger": _sha256(json.dumps(rows, sort_keys=True).encode()),
        "certificate": _sha256(json.dumps(certificate, sort_keys=True).encode()),
        **{path.name: _sha256(path.read_bytes()) for path in measured},
        **model,
    }


_MEASURED = ("evaluation.json", "audit.json", "membership.json")


def _changes(kind: str, body: dict[str, Any]) -> bool:
    return kind == "release" or body.get("name") == MADE_BY


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _rounded(number: float | str) -> float | str:
    return number if isinstance(number, str) else float(f"{number:.{_DIGITS}g}")


def recorded() -> dict[str, Any]:
    """What was recorded: by kind, its noise, what every machine compares, and digests by fingerprint."""
    return json.loads(FILE.read_bytes()) if FILE.exists() else {}


def _record(names: list[str]) -> None:
    kept, mark = recorded(), fingerprint()
    for name in names:
        noise = noise_of(name)
        with tempfile.TemporaryDirectory() as folder:
            portable, digests = outcome(name, Path(folder), noise)
        before = kept.get(name, {})
        others = before.get("digests", {}) if before.get("portable") == portable and before.get("noise") == noise else {}
        kept[name] = {"noise": noise, "portable": portable, "digests": {**others, mark: digests}}
        FILE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(name)


if __name__ == "__main__":
    _record(sys.argv[1:] or [*CASES])

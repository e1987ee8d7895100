"""What tiny runs of every kind come to: recorded once, and compared with ever after (``tests/test_goldens.py``).

A change that moves code, and nothing else, leaves all of it as it is. A change that means to alter it says so in the changelog, and
records it again:

    python -m tests.goldens            every kind
    python -m tests.goldens LSTM       these

Two sorts of values are kept. Those of the account, the tokenizer and the list of files are the same on every machine. Digests of
weights and of the ledger's rows hang on the last digit of every sum, and so on processor and library: the address of a phase's
noise is a digest of the weights that it begins from, so one last digit there gives other noise. They are kept by `fingerprint`,
and compared where it is known. Before a change that only moves code, record this machine's.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from hostile.cases import CASES, config_in

from tacit.config import load_config
from tacit.privacy.events import event_to_dict
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import BEGUN, MADE_BY
from tacit.runs.beginning import begin

from .draws import install
from .started import called, command

__all__ = ["FILE", "Golden", "Outcome", "differences", "fingerprint", "noise_of", "outcome", "recorded"]

FILE = Path(__file__).with_suffix(".json")
_LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "dp-accounting")
_DIGITS = 9
"""Significant ones of the numbers that every machine compares."""


class Outcome(TypedDict):
    """Of one run: what is the same on every machine, and digests."""

    portable: dict[str, Any]
    digests: dict[str, str]


class Golden(TypedDict):
    """What was recorded of a kind: the vocabulary's noise (`outcome`), values as in `Outcome`, and digests by fingerprint."""

    noise: dict[str, int]
    portable: dict[str, Any]
    digests: dict[str, dict[str, str]]


def differences(golden: Golden, found: Outcome, mark: str) -> list[str]:
    """Names of what is not as recorded. Digests are looked at where there are some for this fingerprint."""
    digests = golden["digests"].get(mark, found["digests"])
    return [
        *_unequal(golden["portable"], found["portable"]),
        *(f"digest of {name}" for name in _unequal(digests, found["digests"])),
    ]


def _unequal(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [name for name in sorted({*one, *other}) if name not in one or name not in other or one[name] != other[name]]


def fingerprint() -> str:
    """Names what decides the last digits: libraries, the processor, and the outcome of a little training of torch's own."""
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
    cpu = Path("/proc/cpuinfo")
    kinds = (
        {line for line in cpu.read_text().splitlines() if line.startswith(("model name", "flags"))}
        if cpu.exists()
        else {platform.processor()}
    )
    digest.update("\n".join([platform.machine(), torch.backends.cpu.get_cpu_capability(), *sorted(kinds)]).encode())
    for parameter in parts.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def outcome(
    name: str, folder: Path, noise: dict[str, int], who: str | None = None, changed: Mapping[str, Any] | None = None
) -> Outcome:
    """Make the run of a kind.

    Args:
        folder: empty.
        noise: the vocabulary's noise, which else comes from the operating system: names of files, and how many values each has. It
            is placed before the run, like that of a run that was stopped after drawing it.
        who: what its key is a function of; None: the kind.
        changed: sections of its configuration in place of the kind's.
    """
    who = who or f"the golden run {name}"
    _write(name, folder, noise, who, changed or {})
    _run([CASES[name].command, "config.yaml"], folder, who)
    if (found := _noises(folder)) != noise:
        raise AssertionError(f"{name}: noise was drawn for other counts: {sorted(found)}")
    run = folder / "run"
    return {"portable": _portable(run), "digests": _digests(run)}


def noise_of(name: str) -> dict[str, int]:
    """Which noise the run of a kind asks for, one release after the other: what a round counts hangs on the noise before."""
    known: dict[str, int] = {}
    for _ in range(CASES[name].os_noise):
        with tempfile.TemporaryDirectory() as folder:
            who = f"the golden run {name}"
            _write(name, Path(folder), known, who, {})
            _run(["run", "config.yaml", "--until", "vocabulary"], Path(folder), who)
            place = Path(folder) / "run" / "private" / "vocabulary"
            drawn = sorted(place.glob("noise*.npy"), key=lambda path: path.stat().st_mtime_ns)
            first = next(path for path in drawn if path.name not in known)
            known[first.name] = len(np.load(first))
    return known


def _write(name: str, folder: Path, noise: dict[str, int], who: str, changed: Mapping[str, Any]) -> None:
    CASES[name].write(folder)
    config_in(
        folder, {**CASES[name].values(Path()), **changed}, Path("run")
    )  # relative: the ledger holds a digest of all paths
    if CASES[name].os_noise:  # of an ordinary run that was stopped when it had begun
        done = called(_begin, who, cwd=folder)
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


def _run(arguments: list[str], folder: Path, who: str) -> None:
    """Under a key that is a function of who asks alone (`tests.draws`)."""
    done = called(command, arguments, who, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"{who}: exit code {done.returncode}: {done.stderr[-1000:]}")


def _noises(folder: Path) -> dict[str, int]:
    return {path.name: len(np.load(path)) for path in folder.glob("run/private/vocabulary/noise*.npy")}


def _portable(run: Path) -> dict[str, Any]:
    release = run / "release"
    stated = json.loads((release / "certificate.json").read_bytes())
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        kinds = [row.kind for row in ledger.rows]
        paid = {
            stage: [event_to_dict(spend.event)["kind"], spend.count]
            for stage, spend in ledger.spends_by_stage().items()
        }
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
    """But for pages and manifest, which have the day on them, and rows that hold the manifest's digest, the day or the version."""
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
    return kind == "release" or body.get("name") in (BEGUN, MADE_BY)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _rounded(number: float | str) -> float | str:
    return number if isinstance(number, str) else float(f"{number:.{_DIGITS}g}")


def recorded() -> dict[str, Golden]:
    """What was recorded of each kind."""
    return json.loads(FILE.read_bytes()) if FILE.exists() else {}


def _record(names: list[str]) -> None:
    kept, mark = recorded(), fingerprint()
    for name in names:
        noise = noise_of(name)
        with tempfile.TemporaryDirectory() as folder:
            found = outcome(name, Path(folder), noise)
        before = kept.get(name)
        same = (
            before is not None
            and before["noise"] == noise
            and differences({**before, "digests": {}}, found, mark) == []
        )
        if before is not None and same:  # other machines' digests still hold
            kept[name] = {**before, "digests": {**before["digests"], mark: found["digests"]}}
        else:
            kept[name] = {**found, "noise": noise, "digests": {mark: found["digests"]}}
        FILE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(name, "as before" if same else "new")


if __name__ == "__main__":
    _record(sys.argv[1:] or [*CASES])

"""`tacit env`: versions, randomness, device and permissions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import stat
import tempfile
from pathlib import Path

import typer

from tacit.cli.options import JsonOption, print_json, table
from tacit.version import VERSION

__all__ = ["command"]

_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "dp-accounting",
    "opendp",
    "randomgen",
    "numpy",
    "scipy",
    "pydantic",
)


def command(as_json: JsonOption = False) -> None:
    """Print what a run here would use: versions, source of randomness, device, and whether private folders stay private."""
    import torch

    values = {
        "tacit": VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        "key": "256 bits from the operating system (os.urandom)",
        "training noise": "ChaCha20 (randomgen), keyed; cryptographic",
        "vocabulary noise": "OpenDP discrete Gaussian, operating system randomness; exact",
        "device": _device(torch.cuda.is_available()),
        "cores": os.cpu_count() or 1,
        "private folders": _permissions(),
    }
    if as_json:
        print_json(values)
    else:
        typer.echo(table(["what", "value"], [[name, str(value)] for name, value in values.items()]))


def _device(has_gpu: bool) -> str:
    return "cpu, or cuda where `compute.device` says so" if has_gpu else "cpu"


def _permissions() -> str:
    """Whether this file system keeps the mode 0700 of a folder."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name) / "private"
        folder.mkdir(mode=0o700)
        mode = stat.S_IMODE(folder.stat().st_mode)
    return (
        "mode 0700 holds here" if mode == 0o700 else f"WARNING: a 0700 folder got mode {mode:04o}; others may read it"
    )

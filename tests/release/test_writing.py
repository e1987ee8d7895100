"""Nothing but `tacit.release.writing` opens a path below run/release for writing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hostile.cases import CASES

from tacit.config import parse_config
from tacit.config.finetune import FinetuneConfig
from tacit.entities.finetune import finetune
from tacit.errors import LedgerError
from tacit.pipeline.opening import open_run
from tacit.pipeline.pages import report_run
from tacit.pipeline.release import release_run
from tacit.pipeline.stages import run, walk
from tacit.privacy.ledger import Ledger
from tacit.release import writing
from tacit.release.manifest import bound_manifest
from tacit.runs.folder import RunFolder

_WRITING = ("w", "a", "x", "+")
_seen: list[tuple[Path, bool]] | None = None


def _through_releasing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == writing.__file__:
            return True
        frame = frame.f_back
    return False


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _seen is None or event != "open" or not isinstance(arguments[0], str | bytes | Path):
        return
    mode, flags = arguments[1], arguments[2]
    writes = any(letter in mode for letter in _WRITING) if isinstance(mode, str) else bool(int(str(flags)) & 3)
    if writes:
        path = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
        _seen.append((Path(path), _through_releasing(sys._getframe(1))))


sys.addaudithook(_hear)  # it stays for the life of the process, and is silent but inside `writes_below`


@contextmanager
def writes_below(folder: RunFolder) -> Iterator[list[tuple[Path, bool]]]:
    """Files below run/release (or what becomes it) that Python opens for writing meanwhile, and whether `releasing` did."""
    global _seen
    found: list[tuple[Path, bool]] = []
    _seen = []
    try:
        yield found
    finally:
        places = {folder.release.resolve(), folder.release.with_name(".release.partial").resolve()}
        found += [(path, ours) for path, ours in _seen if places & {path.resolve(), *path.resolve().parents}]
        _seen = None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTM", "CRT, two rounds", "fine-tuning with DP"])
def test_only_releasing_writes_to_a_release(kind: str, tmp_path: Path) -> None:
    CASES[kind].write(tmp_path)
    values = {**CASES[kind].values(tmp_path), "run": str(tmp_path / "run")}
    folder = RunFolder(tmp_path / "run")
    with writes_below(folder) as found:
        if CASES[kind].command == "finetune":
            finetune(FinetuneConfig.model_validate(values))
        else:
            run(parse_config(values))
            report_run(folder)
        with Ledger.open(folder.ledger, readonly=True) as ledger:
            writing.sign(folder.release, Ed25519PrivateKey.generate(), bound_manifest(ledger))
    names = {path.name for path, _ in found}
    assert {".certificate.json.partial", ".manifest.json.partial", ".manifest.sig.partial"} <= names, names
    assert [path for path, ours in found if not ours] == []


def test_another_writer_is_seen(tmp_path: Path) -> None:
    """Known wrong: a stage that puts a file beside the certificate by itself."""
    folder = RunFolder(tmp_path)
    folder.release.mkdir()
    with writes_below(folder) as found:
        (folder.release / "loss.json").write_text(yaml.safe_dump({"loss": 1.0}))
        (folder.release / "loss.json").read_text()
        (tmp_path / "elsewhere.json").write_text("{}")
    assert found == [(folder.release / "loss.json", False)]


def test_nothing_leaves_unpaid(tmp_path: Path) -> None:
    """A run that has not trained: its evaluation and steps are planned, and not paid."""
    CASES["LSTM"].write(tmp_path)
    config = parse_config({**CASES["LSTM"].values(tmp_path), "run": str(tmp_path / "run")})
    with open_run(config) as state:
        walk(state, "vocabulary")
        with pytest.raises(LedgerError, match=r"the ledger does not hold all of .*; nothing is released"):
            release_run(state)
    assert not list((tmp_path / "run").glob("*release*"))

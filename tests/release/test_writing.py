"""Nothing but `tacit.release.writing` opens a path below run/release for writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hostile.cases import CASES
from tests.loops.small_loop import saved, train
from tests.writes import written_meanwhile

import tacit
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
from tacit.release.manifest import bound_manifest, check_bound, check_manifest
from tacit.runs.folder import RunFolder

KINDS = ("LSTM", "CRT, two rounds", "fine-tuning with DP", "own loop")


@contextmanager
def writes_below(folder: RunFolder) -> Iterator[list[tuple[Path, bool]]]:
    """What is written below run/release (or what becomes it) meanwhile, and whether `tacit.release.writing` asked for it."""
    found: list[tuple[Path, bool]] = []
    with written_meanwhile() as all_writes:
        yield found
    places = {folder.release.resolve(), folder.release.with_name(".release.partial").resolve()}
    for write in all_writes:
        path = write.path.resolve()
        if places & {path, *path.parents}:
            found.append((path, writing.__file__ in write.asked_by))


def make_release(kind: str, folder: Path) -> None:
    """A release of each command that makes one, in ``folder / "run"``, with its pages made twice."""
    if kind == "own loop":
        train(folder / "run")
        tacit.certify(folder / "run", saved(folder / "model"))
        return
    CASES[kind].write(folder)
    values = {**CASES[kind].values(folder), "run": str(folder / "run")}
    if CASES[kind].command == "finetune":
        finetune(FinetuneConfig.model_validate(values))
    else:
        run(parse_config(values))
        report_run(RunFolder(folder / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_only_releasing_writes_to_a_release(kind: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with writes_below(folder) as found:
        make_release(kind, tmp_path)
        with Ledger.open(folder.ledger, readonly=True) as ledger:
            writing.sign(folder.release, Ed25519PrivateKey.generate(), bound_manifest(ledger))
            assert [
                check.name
                for check in [*check_manifest(folder.release), check_bound(ledger, folder.release)]
                if not check.holds
            ] == []
    names = {path.name for path, _ in found}
    assert {".certificate.json.partial", ".manifest.json.partial", ".manifest.sig.partial"} <= names, names
    assert [path for path, ours in found if not ours] == []


def test_another_writer_is_seen(tmp_path: Path) -> None:
    """Known wrong: a stage that puts a file beside the certificate by itself, or moves one there."""
    folder = RunFolder(tmp_path)
    with writes_below(folder) as found:
        folder.release.mkdir()
        (folder.release / "loss.json").write_text(yaml.safe_dump({"loss": 1.0}))
        (folder.release / "loss.json").read_text()
        (tmp_path / "elsewhere.json").write_text("{}")
        (tmp_path / "elsewhere.json").replace(folder.release / "README.md")
        (folder.release / "loss.json").unlink()
    names = ["release", "loss.json", "README.md", "loss.json"]
    assert [(path.name, ours) for path, ours in found] == [(name, False) for name in names]


def test_nothing_leaves_unpaid(tmp_path: Path) -> None:
    """A run that has not trained: its evaluation and steps are planned, and not paid."""
    CASES["LSTM"].write(tmp_path)
    config = parse_config({**CASES["LSTM"].values(tmp_path), "run": str(tmp_path / "run")})
    with open_run(config) as state:
        walk(state, "vocabulary")
        with pytest.raises(LedgerError, match=r"the ledger does not hold all of .*; nothing is released"):
            release_run(state)
    assert not list((tmp_path / "run").glob("*release*"))

"""A ledger that is held on a local disk: what file systems are refused, and that no payment is lost whatever is killed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tacit.config import parse_config
from tacit.errors import LedgerError, UsageError
from tacit.privacy.events import PoissonGaussian
from tacit.privacy.ledger import Ledger
from tacit.runs import ledger_place
from tacit.runs.beginning import begin
from tacit.runs.file_systems import mounts, network_file_system
from tacit.runs.folder import RunFolder

from ..processes import killed
from ..small import small_values

STAGE = "private"
EVENT = PoissonGaussian(0.01, 5.0)


# file systems --------------------------------------------------------------------------------------------------------

ROOT = "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw"


def mounted(kind: str, point: str) -> str:
    """The root on ext4, and a file system of this kind."""
    return f"{ROOT}\n95 22 0:45 / {point} rw,relatime shared:9 master:3 - {kind} server:/share rw,addr=10.0.0.1\n"


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "lustre", "9p", "gpfs", "beegfs", "ceph", "fuse.sshfs", "fuse.s3fs"]
)
def test_network_file_systems_are_known(kind: str) -> None:
    table = mounted(kind, "/mnt/share")
    assert network_file_system(Path("/mnt/share/runs/one"), table) == kind
    assert network_file_system(Path("/mnt/share"), table) == kind
    assert network_file_system(Path("/mnt/shared/runs"), table) is None
    assert network_file_system(Path("/mnt"), table) is None


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs", "apfs"]
)
def test_other_file_systems_are_none(kind: str) -> None:
    assert network_file_system(Path("/mnt/share/runs/one"), mounted(kind, "/mnt/share")) is None


def test_the_innermost_and_the_last_mount_count() -> None:
    inside = mounted("nfs4", "/mnt") + "96 95 8:2 / /mnt/scratch rw - xfs /dev/sdb rw\n"
    assert network_file_system(Path("/mnt/scratch/run"), inside) is None
    assert network_file_system(Path("/mnt/run"), inside) == "nfs4"
    over = inside + "97 96 0:46 / /mnt/scratch rw - cifs //server/x rw\n"
    assert network_file_system(Path("/mnt/scratch/run"), over) == "cifs"
    assert network_file_system(Path("/my share/run"), mounted("nfs", r"/my\040share")) == "nfs"


def test_a_root_on_a_sandbox_is_local_and_one_on_nfs_is_not() -> None:
    for kind, found in (("9p", None), ("fuse.gofer", None), ("nfs", "nfs")):
        assert network_file_system(Path("/home/run"), f"1 0 0:1 / / rw - {kind} none rw") == found


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/mnt/share/runs")
    assert network_file_system(tmp_path / "link" / "one", mounted("nfs", "/mnt/share")) == "nfs"


@pytest.mark.parametrize("table", ["", "\n\n", "rubbish", "1 2 3 - nfs", "1 2 3 4 /mnt rw - "])
def test_an_empty_or_odd_table_says_nothing(table: str) -> None:
    assert network_file_system(Path("/mnt/run"), table) is None


def test_this_machine_has_a_table_or_none() -> None:
    assert not mounts() or " - " in mounts()


# the ledger ----------------------------------------------------------------------------------------------------------


class Runs:
    """A run folder and a local folder for its ledger."""

    def __init__(self, folder: Path) -> None:
        self.run, self.local = folder / "run", folder / "local"
        self._values = small_values(folder)

    @property
    def ledger(self) -> Path:
        return self.run / "ledger.sqlite"

    def pay(self, step: int, held: bool = True, then: Callable[[], None] = lambda: None) -> None:
        """One start, which pays for a step."""
        own = {"ledger_folder": str(self.local)} if held else {}
        with begin(parse_config({**self._values, **own})) as begun:
            begun.ledger.plan(STAGE, EVENT, 100)
            begun.ledger.charge(STAGE, step)
            then()

    def paid(self) -> int:
        with Ledger.open(self.ledger, readonly=True) as ledger:
            return ledger.spent(STAGE)

    def is_given_back(self) -> bool:
        """One whole file, and nothing of the other one. A reader leaves an empty log."""
        return self.ledger.is_file() and not self.ledger.is_symlink() and not list(self.local.iterdir())


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_it_is_local_while_a_start_works_and_then_in_the_run_folder(runs: Runs) -> None:
    seen: list[tuple[bool, Path]] = []
    for step in range(3):
        runs.pay(step, then=lambda: seen.append((runs.ledger.is_symlink(), runs.ledger.resolve().parent)))
        assert runs.is_given_back()
        assert runs.paid() == step + 1
    assert seen == [(True, runs.local)] * 3


def test_starts_with_and_without_it_go_on_with_one_another(runs: Runs) -> None:
    for step, held in enumerate([False, True, False, False, True]):
        runs.pay(step, held)
        assert runs.paid() == step + 1
    assert runs.is_given_back()


def check_killed(runs: Runs) -> None:
    """What a killed start has paid for is paid, on its machine; elsewhere it is refused and not forgotten."""
    runs.pay(0)
    killed(lambda: runs.pay(1, then=lambda: os.kill(os.getpid(), 9)))
    assert runs.ledger.is_symlink()
    away = runs.local.rename(runs.local.with_name("on-another-machine"))
    for held in (True, False):
        with pytest.raises(LedgerError, match=r"a start that was killed has left the ledger as .*local"):
            runs.pay(2, held)
    shutil.rmtree(runs.local, ignore_errors=True)
    away.rename(runs.local)
    assert runs.paid() == 2
    runs.pay(2, held=False)
    assert runs.paid() == 3
    assert runs.is_given_back()


def test_a_start_that_was_killed_loses_no_payment(runs: Runs) -> None:
    check_killed(runs)


def test_a_run_that_was_killed_without_it_brings_its_log(runs: Runs) -> None:
    runs.pay(0, held=False)
    killed(lambda: runs.pay(1, held=False, then=lambda: os.kill(os.getpid(), 9)))
    assert runs.ledger.with_name("ledger.sqlite-wal").stat().st_size
    runs.pay(2)
    assert runs.paid() == 3
    assert runs.is_given_back()


def _without_log(source: Path, target: Path) -> None:
    """Known wrong: the file alone, without the write-ahead log."""
    shutil.copyfile(source, target)


def test_the_check_catches_a_copy_without_the_log(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_place, "_copy", _without_log)
    runs.pay(0, held=False)
    killed(lambda: runs.pay(1, held=False, then=lambda: os.kill(os.getpid(), 9)))
    with pytest.raises(LedgerError, match="has left its log"):  # and what would lose it is refused
        runs.pay(2)


@pytest.mark.parametrize("at", range(8))
def test_a_start_that_is_killed_between_any_two_changes_loses_no_payment(
    at: int, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at its n-th renaming or removal, from the first on, which lets the next start see every state in between."""
    runs.pay(0)

    def count_down() -> None:
        left = [at]

        def counted(change: Callable[..., None]) -> Callable[..., None]:
            def changed(*arguments: object, **options: object) -> None:
                if left[0] == 0:
                    os.kill(os.getpid(), 9)
                left[0] -= 1
                change(*arguments, **options)

            return changed

        monkeypatch.setattr(os, "replace", counted(os.replace))
        monkeypatch.setattr(os, "unlink", counted(os.unlink))
        monkeypatch.setattr(ledger_place, "_remove", counted(ledger_place._remove))
        runs.pay(1)

    killed(count_down)  # or it comes to its end
    before = runs.paid()
    assert before in (1, 2)
    runs.pay(before)
    assert runs.paid() == before + 1
    assert runs.is_given_back()


def test_a_reader_that_keeps_it_open_loses_nothing(runs: Runs) -> None:
    """SQLite then leaves the log beside the file."""
    readers = []

    def read() -> None:
        reader = sqlite3.connect(runs.ledger.resolve())
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM rows").fetchone()
        readers.append(reader)

    runs.pay(0)
    runs.pay(1, then=read)
    with closing(readers[0]):
        assert runs.paid() == 2


def test_a_network_file_system_is_refused_by_name(runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ledger_place, "mounts", lambda: mounted("nfs4", str(runs.run)))
    with pytest.raises(UsageError, match=r"run: this is a network file system \(nfs4\).*ledger_folder"):
        runs.pay(0, held=False)
    assert not runs.run.exists()
    runs.pay(0)
    assert runs.paid() == 1
    monkeypatch.setattr(ledger_place, "mounts", lambda: mounted("cifs", str(tmp_path)))
    with pytest.raises(UsageError, match=r"local: this is a network file system \(cifs\)"):
        runs.pay(1)
    assert runs.paid() == 1


def test_beside_a_lost_ledger_no_configuration_is_replaced(tmp_path: Path) -> None:
    """The configuration is that of the ledger on the other machine, which would then refuse to go on."""
    own = parse_config(small_values(tmp_path))
    folder = RunFolder(own.resolved_run)
    with begin(own):
        pass
    before = folder.config.read_bytes()
    folder.ledger.unlink()
    folder.ledger.symlink_to(tmp_path / "elsewhere" / "ledger.sqlite")
    other = parse_config(small_values(tmp_path, evaluation={"held_out": 0.3, "public_sequences": 32}))
    with pytest.raises(LedgerError, match="a start that was killed"), begin(other):
        pass
    assert folder.config.read_bytes() == before

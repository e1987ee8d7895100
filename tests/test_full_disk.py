"""A disk that is full, or cannot be written: one line that says so, and nothing is paid for that cannot be kept."""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from tacit.config import ComputeOptions
from tacit.errors import DataError, StorageError
from tacit.files import (
    atomic_folder,
    one_line_of_storage,
    refuse_little_room,
    storage_error,
    write_atomically,
    write_json,
)
from tacit.privacy.events import PoissonGaussian
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.randomness import KeyedRandomness
from tacit.training.checkpoint import Progress, checkpoint_bytes, save_checkpoint
from tacit.training.loop import run_phase
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan

from .disks import SmallDisk, small_disk
from .keys import begin_with_key, key_numbered
from .small import AT_EACH_MICRO_BATCH, small_values, tacit, write_config, write_corpora
from .training.streams import OBJECTIVE, random_units, stream_of, tiny_bert

HEADER = LedgerHeader("user", "add-or-remove", 100, float("inf"), 1e-5, "config", "key")
LINE = re.compile(
    r"[^\n]+: the disk is full \([\d,]+ KB free\); free at least [\d,]+ MB and run the same command again: nothing is lost"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "1m") as found:
        yield found


def _arrays(folder: Path) -> None:
    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            np.save(file, np.zeros(10**6))

    write_atomically(folder / "a.npy", write)


def _json(folder: Path) -> None:
    write_json(folder / "a.json", ["word"] * 10**6)


def _folder(folder: Path) -> None:
    with atomic_folder(folder / "release") as partial:
        save_file({"a": torch.zeros(10**6)}, partial / "model.safetensors")


def _tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(WordPiece({f"word{number}": number for number in range(10**5)}, unk_token="word0"))
    write_atomically(folder / "tokenizer.json", lambda partial: tokenizer.save(str(partial)))


def _checkpoint(folder: Path) -> None:
    model = torch.nn.Linear(1000, 1000)
    save_checkpoint(folder / "a.pt", model, torch.optim.AdamW(model.parameters()), Progress(1))


def _ledger(folder: Path) -> None:
    with Ledger.create(folder / "ledger.sqlite", HEADER):
        pass


WRITERS: dict[str, Callable[[Path], None]] = {
    "arrays": _arrays,
    "json": _json,
    "safetensors in a folder": _folder,
    "tokenizer": _tokenizer,
    "checkpoint": _checkpoint,
    "ledger": _ledger,
}


@pytest.mark.parametrize("free", [0, 8192])
@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_says_it_in_one_line_and_leaves_nothing(disk: SmallDisk, name: str, free: int) -> None:
    disk.leave(free)
    with pytest.raises(StorageError) as caught, one_line_of_storage(disk.folder):
        WRITERS[name](disk.folder)
    assert LINE.fullmatch(str(caught.value))
    assert caught.value.exit_code == 4
    left = {path.name for path in disk.folder.iterdir()} - {"filling"}
    assert left <= {"ledger.sqlite.partial", "ledger.sqlite.partial-journal"}  # which the next start takes away
    if name == "ledger":
        disk.empty()
        _ledger(disk.folder)


def test_a_ledger_on_a_full_disk_is_as_it_was_and_no_step_is_paid_twice(disk: SmallDisk) -> None:
    path = disk.folder / "ledger.sqlite"
    with Ledger.create(path, HEADER) as ledger:
        ledger.plan("training", PoissonGaussian(0.1, 1.0), 5000)
        ledger.charge("training", 0)
        disk.leave(0)
        with pytest.raises(StorageError), one_line_of_storage(disk.folder):
            _bind_many(ledger)
        rows = len(ledger.rows)
        disk.empty()
        ledger.bind("with room again", "x")
        ledger.charge("training", 1)
    with Ledger.open(path) as ledger:
        assert ledger.spent("training") == 2
        assert len(ledger.rows) == rows + 2
    disk.leave(0)
    with pytest.raises(StorageError) as caught, one_line_of_storage(disk.folder), Ledger.open(path) as ledger:
        _bind_many(ledger)
    assert LINE.fullmatch(str(caught.value))


def _bind_many(ledger: Ledger) -> None:
    for number in range(1000):  # the log has some pages of its own already
        ledger.bind(f"name {number} {len(ledger.rows)}", "x" * 5000)


def test_a_closed_disk_is_one_line(disk: SmallDisk) -> None:
    _ledger(disk.folder)
    disk.remount("ro")
    for name, writer in WRITERS.items():
        if name != "ledger":
            with pytest.raises(StorageError, match="cannot be opened or written"), one_line_of_storage(disk.folder):
                writer(disk.folder)
    with (
        pytest.raises(StorageError, match="cannot be opened or written"),
        one_line_of_storage(disk.folder),
        Ledger.open(disk.folder / "ledger.sqlite") as ledger,
    ):
        ledger.bind("name", "value")
    disk.remount("rw")


def test_no_step_is_paid_for_without_room_for_its_checkpoint(disk: SmallDisk, tmp_path: Path) -> None:
    """The known-wrong order: pay, train, and then find no room."""
    streams = KeyedRandomness(key_numbered())
    stream = stream_of(random_units(20))
    model = tiny_bert()
    phase = Phase("p", "private", DpPlan(0.3, 1.0, 1.0, 6.0), 3, AdamOptions(1e-3))
    checkpoint, compute = disk.folder / "p.pt", ComputeOptions(micro_batch=8, threads=1, checkpoint_seconds=0.0)
    assert checkpoint_bytes(model, 1, averaged=False) > 3 * sum(p.numel() * 4 for p in model.parameters())
    with Ledger.create(tmp_path / "ledger.sqlite", HEADER) as ledger:
        ledger.plan("p", phase.plan.event, 3)
        disk.leave(4096)
        with pytest.raises(StorageError, match="disk is full"):
            run_phase(model, phase, stream, OBJECTIVE, ledger, streams, compute, checkpoint)
        assert ledger.spent("p") == 0
        disk.remount("size=64m")
        run_phase(model, phase, stream, OBJECTIVE, ledger, streams, compute, checkpoint)
        assert ledger.spent("p") == 3
        assert checkpoint.stat().st_size < checkpoint_bytes(model, 1, averaged=False) + 100_000


def test_what_is_no_matter_of_the_disk_stays_what_it_is() -> None:
    for error in (
        ValueError("os error"),
        ValueError("cannot read 'the note says (os error 28), and more'"),  # a text decides nothing
        FileNotFoundError(errno.ENOENT, "no", "x"),
        sqlite3.OperationalError("locked"),
    ):
        assert storage_error(error) is None
    with pytest.raises(DataError, match="other"), one_line_of_storage(Path(".")):
        raise DataError("other")
    with pytest.raises(KeyboardInterrupt), one_line_of_storage(Path(".")):
        raise KeyboardInterrupt
    refuse_little_room(Path("."), 0)
    with pytest.raises(StorageError, match="free at least"):
        refuse_little_room(Path("."), 2**60)


def _hidden() -> None:
    """As torch hides what the system said."""
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError:
        raise RuntimeError("unexpected pos 576 vs 534")  # noqa: B904 (the context is the point)


def _of_rust() -> None:
    raise RuntimeError("No space left on device (os error 28)")


def _of_sqlite() -> None:
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("fails", [_hidden, _of_rust, _of_sqlite])
def test_every_library_has_other_words_for_it(fails: Callable[[], None]) -> None:
    with pytest.raises(StorageError, match="disk is full"), one_line_of_storage(Path(".")):
        fails()


@pytest.mark.slow
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(disk: SmallDisk, tmp_path: Path) -> None:
    write_corpora(tmp_path, patients=60, records=200)
    run, alone = disk.folder / "run", tmp_path / "alone"
    values = small_values(
        tmp_path,
        run=str(run),
        audit=None,
        vocabulary={"method": "public", "size": 300},
        compute=AT_EACH_MICRO_BATCH,
    )
    for folder in (run, alone):
        begin_with_key({**values, "run": str(folder)}, 3)
    config = write_config(tmp_path / "config.yaml", values)
    for free in (0, 8_192, 60_000, 300_000, 720_000):
        disk.leave(free)
        done = tacit("run", config)
        disk.empty()
        assert done.returncode == 4, done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith("tacit: ")]
        assert len(lines) == 1
        assert LINE.fullmatch(lines[0]), lines
        assert "Traceback" not in done.stderr
    disk.remount("size=200m")
    (run / "config.json").chmod(0o644)
    done = tacit("run", config)
    assert done.returncode == 0, done.stderr
    assert (run / "config.json").stat().st_mode & 0o777 == 0o600
    assert tacit("verify", run).returncode == 0
    assert tacit("run", write_config(tmp_path / "alone.yaml", {**values, "run": str(alone)})).returncode == 0
    ends = [(folder / "release" / "model" / "model.safetensors").read_bytes() for folder in (run, alone)]
    assert ends[0] == ends[1]

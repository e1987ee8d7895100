"""The places of a run; light to import, for the commands that only look at a finished run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.config import RunConfig, parse_config
from tacit.errors import DataError, StorageError, TacitError, UsageError
from tacit.files import alone_in, private_folder, read_json

__all__ = ["RunFolder", "remove_if_refused", "taken"]


@dataclass(frozen=True)
class RunFolder:
    """The places of a run (README: what a run leaves behind)."""

    root: Path

    @property
    def release(self) -> Path:
        """Made for publication, within the limits that its certificate and page one of its report state; without any, private."""
        return self.root / "release"

    @property
    def private(self) -> Path:
        """Mode 0700: keys, checkpoints, canaries, the curator's copy of the report."""
        return self.root / "private"

    @property
    def certificate(self) -> Path:
        """The certificate of the release."""
        return self.release / "certificate.json"

    @property
    def is_released(self) -> bool:
        """Whether the release is there; it is written as a whole."""
        return self.certificate.is_file()

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints, one a phase."""
        return self.private / "checkpoints"

    def checkpoint(self, phase: str) -> Path:
        """The checkpoint of a phase."""
        return self.checkpoints / f"{phase}.pt"

    @property
    def ledger(self) -> Path:
        """The ledger."""
        return self.root / "ledger.sqlite"

    @property
    def config(self) -> Path:
        """The configuration that the run was started with."""
        return self.root / "config.json"

    @property
    def finetune_config(self) -> Path:
        """The configuration of a fine-tuning, which has no other one."""
        return self.root / "finetune.json"

    @property
    def loop_plan(self) -> Path:
        """The plan of a training loop of one's own (`tacit.loops`), which has no configuration."""
        return self.root / "loop.json"

    @property
    def is_own_loop(self) -> bool:
        """Whether this is the folder of a training loop of one's own."""
        return self.loop_plan.is_file() and not self.config.is_file() and not self.finetune_config.is_file()

    @property
    def is_finetuning(self) -> bool:
        """Whether this is the folder of `tacit finetune`."""
        return self.finetune_config.is_file() and not self.config.is_file()

    @property
    def has_results(self) -> bool:
        """Whether a stage has left something that a later start goes on from."""
        stages = ("screened*", "scores*", "vocabulary/*", "checkpoints/*")
        return any(path for pattern in stages for path in self.private.glob(pattern))

    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder, whose private part is there.

        Raises:
            UsageError: another process is in it.
        """
        return alone_in(self.private, f"{self.root}: another process is using this run folder; wait for it")

    def load_config(self) -> RunConfig:
        """The stored configuration.

        Raises:
            UsageError: the folder is not a run.
            DataError: the stored configuration is damaged.
        """
        if not self.config.is_file():
            raise UsageError(f"{self.root}: not a run folder (no config.json); `tacit run CONFIG` makes one")
        try:
            values = read_json(self.config)
        except ValueError:
            raise DataError(f"{self.config}: not JSON, so damaged; bring it back, or use another run folder") from None
        return parse_config(values, str(self.config))


@contextmanager
def taken(folder: RunFolder) -> Iterator[None]:
    """The folder and its private part are there, and no other process is in them.

    Raises:
        UsageError: another process is in it.
    """
    folder.root.mkdir(parents=True, exist_ok=True)
    private_folder(folder.private)
    with folder.alone():
        yield


@contextmanager
def remove_if_refused(root: Path, was_there: bool, worth_keeping: Callable[[], bool]) -> Iterator[None]:
    """Remove a run folder when what is done in it is refused, if this start made it and left nothing in it.

    Args:
        was_there: whether the folder was there before this start; then it is never removed.
        worth_keeping: whether there is something in it all the same, such as a checkpoint or a payment.
    """
    try:
        yield
    except StorageError:  # the same command will go on from here
        raise
    except TacitError:
        if not was_there and not worth_keeping():
            shutil.rmtree(root, ignore_errors=True)
        raise

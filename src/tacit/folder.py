"""The places of a run; light to import, for the commands that only look at a finished run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tacit.config import RunConfig, parse_config
from tacit.errors import DataError, UsageError
from tacit.files import read_json

__all__ = ["RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """The places of a run (README: what a run leaves behind)."""

    root: Path

    @property
    def release(self) -> Path:
        """Safe to publish."""
        return self.root / "release"

    @property
    def private(self) -> Path:
        """Mode 0700: keys, checkpoints, canaries, the curator's copy of the report."""
        return self.root / "private"

    @property
    def ledger(self) -> Path:
        """The ledger."""
        return self.root / "ledger.sqlite"

    @property
    def config(self) -> Path:
        """The configuration that the run was started with."""
        return self.root / "config.json"

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

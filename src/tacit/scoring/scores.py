"""The scores of a private corpus on disk: ``scores.jsonl``, one line a record in their order, and how a killed scoring goes on.

The file grows in ``<folder>.partial`` (0700) beside a checkpoint, which says how many records are done and how large the file was
then. The folder gets its name in one step when all is done. A score depends on its record alone (`tacit.scoring.scorer`), so a
scoring that was killed ends with the same bytes as one that was not. Everything here is private, the number of lines included.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from tacit.errors import DataError, UsageError
from tacit.files import alone_in, open_truncated, private_folder, read_json, write_json
from tacit.scoring.rho import PrivacyProbability, checked_rho

__all__ = ["SCORES", "Score", "ScoreWork", "read_scores", "rho_by_id"]

SCORES = "scores.jsonl"
_RECEIPT, _CHECKPOINT = "receipt.json", "checkpoint.json"


class Score(NamedTuple):
    """A line of the file.

    Args:
        id: the record's; several records may share one.
        log_perplexity: mean nats a token; not a number where the record has no token (null in the file).
        rho: its privacy probability.
    """

    id: str
    log_perplexity: float
    rho: float


def read_scores(path: Path) -> Iterator[Score]:
    """The scores of a file, or of the folder that `tacit score` leaves; streamed, so that the file may be large.

    Raises:
        DataError: there is no such file, a line is none of ours, or a rho lies outside [0, 1]; no line is quoted.
    """
    path = path / SCORES if path.is_dir() else path
    if not path.is_file():
        raise DataError(f"{path}: there are no scores; `tacit score` makes them")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path}, line {number}"
            score = _parsed(line)
            if score is None:
                raise DataError(f"{place}: this is no score; score the records again with `tacit score`")
            checked_rho(score.rho, place)
            yield score


def rho_by_id(path: Path) -> dict[str, float]:
    """rho of each id: of an id with several records the largest, so that a unit is as private as its most private text.

    Raises:
        DataError: as `read_scores`.
    """
    found: dict[str, float] = {}
    for score in read_scores(path):
        found[score.id] = max(score.rho, found.get(score.id, 0.0))
    return found


def _parsed(line: bytes) -> Score | None:
    try:
        values: Any = json.loads(line)
        given = values["log_perplexity"]
        return Score(str(values["id"]), math.nan if given is None else float(given), float(values["rho"]))
    except (ValueError, TypeError, KeyError):
        return None


class ScoreWork:
    """A scoring on disk.

    Args:
        folder: what it becomes.
        identity: everything but the records that its bytes depend on, as JSON-ready values.
        corpus: a digest of the records.
        rho: of a ln PPL.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], corpus: str, rho: PrivacyProbability) -> None:
        self.records = 0
        self._folder, self._partial = folder, folder.with_name(f"{folder.name}.partial")
        self._identity, self._corpus = identity, corpus
        self._rho = rho
        self._file: IO[bytes] | None = None

    @property
    def finished(self) -> bool:
        """Whether it was done before.

        Raises:
            UsageError: the folder holds a scoring with other options, or something else.
            DataError: it is of another corpus.
        """
        if (self._folder / _RECEIPT).exists():
            self._check_same(self._folder / _RECEIPT)
            return True
        if self._folder.exists() and (not self._folder.is_dir() or any(self._folder.iterdir())):
            raise UsageError(f"{self._folder}: there are files that are no finished scoring; use another folder")
        return False

    @contextmanager
    def open(self) -> Iterator[None]:
        """Go on from the checkpoint, or begin; an error before the first checkpoint leaves nothing behind."""
        was_there = [path for path in self._partial.parents if not path.exists()]
        private_folder(self._partial)
        in_use = f"{self._partial}: another process is scoring into this folder; wait for it"
        with ExitStack() as held:
            held.enter_context(alone_in(self._partial, in_use))
            try:
                self._file = held.enter_context(open_truncated(self._partial / SCORES, self._restored()))
                yield
            except BaseException:
                if not (self._partial / _CHECKPOINT).exists():
                    shutil.rmtree(self._partial, ignore_errors=True)
                    for path in was_there:
                        path.rmdir()
                raise

    def add(self, ids: list[str], log_perplexities: list[float]) -> None:
        """Write the lines of records that follow those before."""
        assert self._file is not None
        rhos = self._rho.of(log_perplexities).tolist()
        for id_, value, rho in zip(ids, log_perplexities, rhos, strict=True):
            line = {"id": id_, "log_perplexity": value if math.isfinite(value) else None, "rho": rho}
            self._file.write(json.dumps(line, ensure_ascii=True, allow_nan=False).encode() + b"\n")
        self.records += len(ids)

    def save(self) -> None:
        """Write the checkpoint; the old one counts until the new one is whole."""
        self._write_state(_CHECKPOINT, size=self._synced())

    def finish(self) -> None:
        """Write the receipt and give the folder its name. Other files may stand in `partial` by then."""
        self._synced()
        self._write_state(_RECEIPT)
        (self._partial / _CHECKPOINT).unlink(missing_ok=True)
        os.replace(self._partial, self._folder)

    @property
    def partial(self) -> Path:
        """Where it grows."""
        return self._partial

    def _write_state(self, name: str, **more: int) -> None:
        values = {"options": self._identity, "corpus": self._corpus, "records": self.records, **more}
        write_json(self._partial / name, values)
        (self._partial / name).chmod(0o600)

    def _synced(self) -> int:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def _restored(self) -> int:
        """Take the checkpoint's state, if there is one; the size of the file then."""
        path = self._partial / _CHECKPOINT
        if not path.exists():
            return 0
        state = self._check_same(path)
        self.records = int(state["records"])
        return int(state["size"])

    def _check_same(self, path: Path) -> dict[str, Any]:
        state = _state(path)
        old = state["options"]
        differences = [
            f"{name}: {_short(old.get(name))} -> {_short(new)}"
            for name, new in self._identity.items()
            if old.get(name) != new
        ]
        if differences:
            raise UsageError(
                f"{path.parent}: this scoring was started with other options ({'; '.join(differences)}); use the old ones, or remove "
                "the folder to start again"
            )
        if state["corpus"] != self._corpus:
            raise DataError(
                f"{path.parent}: the corpus is not the one that this scoring was started on; bring that one back, or remove the "
                "folder to start again"
            )
        return state


def _short(value: Any) -> str:
    """A value for one line; of a digest the first digits."""
    text = str(value)
    return text[:8] if len(text) == 64 else text


def _state(path: Path) -> dict[str, Any]:
    try:
        values = read_json(path)
        if isinstance(values["options"], dict) and isinstance(values["records"], int):
            return values
    except (ValueError, TypeError, KeyError, OSError):
        pass
    raise DataError(f"{path}: the file is damaged; remove the folder to start again")

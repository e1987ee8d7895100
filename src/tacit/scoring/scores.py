"""The scores of a private corpus on disk: ``scores.jsonl``, one line a record in their order, and how a killed scoring goes on.

The file grows beside a checkpoint (`tacit.work.resumable`), which also says how many records are done. A score depends on its
record alone (`tacit.scoring.scorer`), so a scoring that was killed ends with the same bytes as one that was not. Everything here is
private, the number of lines included.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import DataError
from tacit.scoring.rho import PrivacyProbability, checked_rho
from tacit.work.resumable import JobKind, Resumable

__all__ = ["SCORES", "Score", "ScoreWork", "read_scores", "rho_in_order"]

SCORES = "scores.jsonl"
_SCORING = JobKind(noun="scoring", identity="options", files=(SCORES.removesuffix(".jsonl"),))


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


def rho_in_order(path: Path, ids: Iterable[str | None]) -> Iterator[float]:
    """rho of each of these ids: of several records the largest, so that a unit is as private as its most private text.

    Both are read side by side, so that neither need fit in memory.

    Args:
        path: of scores in which the records of an id follow one another.
        ids: some of those in the file, in its order; None of a unit without a record, whose rho is 1.

    Raises:
        DataError: as `read_scores`, or an id is not there.
    """
    groups = itertools.groupby(read_scores(path), key=lambda score: score.id)
    for id_ in ids:
        if id_ is None:
            yield 1.0
            continue
        own = next((rows for scored_id, rows in groups if scored_id == id_), None)
        if own is None:
            raise DataError(f"{path}: these are not the scores of this corpus; score it again")
        yield max(score.rho for score in own)


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
        self._job = Resumable(_SCORING, folder, identity, corpus)
        self._rho = rho

    def finished(self) -> bool:
        """Whether it was done before; a kill just before the end is made good.

        Raises:
            UsageError: the folder holds a scoring with other options, or something else.
            DataError: it is of another corpus.
        """
        return self._job.finished(lambda receipt: int(receipt["records"])) is not None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Go on from the checkpoint, or begin; an error before the first checkpoint leaves nothing behind."""
        with self._job.open(self._restore):
            yield

    def add(self, ids: list[str], log_perplexities: list[float]) -> None:
        """Write the lines of records that follow those before."""
        rhos = self._rho.of(log_perplexities).tolist()
        for id_, value, rho in zip(ids, log_perplexities, rhos, strict=True):
            line = {"id": id_, "log_perplexity": value if math.isfinite(value) else None, "rho": rho}
            self._job.write(_SCORING.files[0], json.dumps(line, ensure_ascii=True, allow_nan=False).encode() + b"\n")
        self.records += len(ids)

    def save(self) -> None:
        """Write the checkpoint; the old one counts until the new one is whole."""
        self._job.save({"records": self.records})

    def finish(self) -> None:
        """Write the receipt and give the folder its name. Other files may stand in `partial` by then."""
        self._job.finish({"records": self.records})

    @property
    def partial(self) -> Path:
        """Where it grows."""
        return self._job.partial

    def _restore(self, state: dict[str, Any]) -> None:
        self.records = int(state["records"])

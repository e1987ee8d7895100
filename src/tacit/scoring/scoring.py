"""Scoring a corpus: records stream in, their scores stream to disk, in order, whoever computes them.

The records are read twice: first to check them all, and to take a digest, before anything is written. Chunks of them are scored in
worker processes of one thread each, which is faster than one process with several threads at the size of a laptop's model, and
gives the same bits for any number of workers. A few chunks are in memory at a time.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from transformers.utils import logging

from tacit.config.shape import weight_files
from tacit.corpus.records import Record, require_rereadable, text_bytes
from tacit.errors import DataError, UsageError
from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scorer import Scorer, ScorerOptions
from tacit.scoring.scores import ScoreWork
from tacit.version import VERSION
from tacit.vocabulary.given import tokenizer_digest
from tacit.work.processes import map_in_order
from tacit.work.resumable import CheckpointClock

__all__ = ["LEAST_PUBLIC", "fit_public", "score_corpus", "scorer_digest"]

_CHUNK_RECORDS, _CHUNK_CHARACTERS = 1024, 256_000
_SMALL = 1_000_000  # bytes of public text: below, other processes would hardly have started by the end
LEAST_PUBLIC = 100
"""Records of public text of which constants are made: the 5th of 100 is the 5 % quantile."""

OnProgress = Callable[[int, int], None]
"""Told how many bytes of text are done, and of how many."""


def scorer_digest(folder: Path) -> str:
    """SHA-256 of what decides a score: the model's config and weights, and its tokenizer."""
    digest = hashlib.sha256(tokenizer_digest(folder).encode())
    for path in (folder / "config.json", *weight_files(folder)):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def score_corpus(
    records: Iterable[Record],
    options: ScorerOptions,
    rho: PrivacyProbability,
    folder: Path,
    on_progress: OnProgress | None = None,
    *,
    workers: int = 1,
    checkpoint_seconds: float = 30.0,
) -> None:
    """Score records into a private folder (0700): scores.jsonl, receipt.json, and the distribution of rho as rho.png and rho.svg.

    Called again, it goes on where it was stopped, and ends with the same bytes; what is done is left as it is.

    Args:
        records: read twice: a list, or what opens its files anew.
        options: a public scorer (`tacit.scoring.public.require_public_scorer`).
        rho: with public constants.
        folder: private, like all that is in it.
        workers: processes; 1: none but this one. It changes the speed alone; that they are started hangs on no size of the text.
        checkpoint_seconds: shortest time between checkpoints.

    Raises:
        DataError: the scorer cannot be read, a record is malformed, or the corpus changed since the start.
        UsageError: the folder holds a scoring with other options, or something else.
        ValueError: ``records`` can be read only once.
    """
    require_rereadable(records)
    scorer = options.load()  # a mistake shows before anything is written
    corpus, size = _survey(records)
    work = ScoreWork(folder, _identity(options, scorer, rho), corpus, rho)
    if work.finished():
        return
    progress = on_progress or (lambda done, total: None)
    with work.open():
        left = iter(records)
        done = sum(text_bytes(record) for record in itertools.islice(left, work.records))
        clock = CheckpointClock(checkpoint_seconds)
        with closing(_scored(_chunks(left), options, scorer, workers)) as scored:
            for chunk, values in scored:
                work.add([record.document_id for record in chunk], values)
                done += sum(map(text_bytes, chunk))
                progress(done, size)
                clock.when_due(work.save)
        work.save()
        from tacit.scoring.plot import plot_scores  # matplotlib, which no worker needs

        plot_scores(work.partial, rho)
        work.finish()


def fit_public(
    records: Iterable[Record],
    options: ScorerOptions,
    quantiles: tuple[float, float] = (0.05, 0.95),
    on_progress: OnProgress | None = None,
    *,
    workers: int = 1,
) -> tuple[PrivacyProbability, int]:
    """The constants a and b from public text, and how many of its records could be scored.

    They are quantiles of the public records' ln PPL: a twentieth of the public text gets rho 0 and a twentieth rho 1. The smallest
    and the largest value would hang on one odd record each, such as an empty template or a table, and a b that is too large takes
    protection from everything below it.

    Args:
        records: public text, of records about as long as the private ones; read twice.
        quantiles: of a and b.

    Raises:
        UsageError: the quantiles are not 0 <= first < second <= 1.
        DataError: as `score_corpus`; fewer than 100 records can be scored, or a is not below b.
        ValueError: ``records`` can be read only once.
    """
    if not 0 <= quantiles[0] < quantiles[1] <= 1:
        raise UsageError(
            f"the quantiles are {quantiles[0]:g} and {quantiles[1]:g}; they must rise, from 0 to 1 at most"
        )
    require_rereadable(records)
    scorer = options.load()
    _, size = _survey(records)
    progress = on_progress or (lambda done, total: None)
    found: list[float] = []
    done = 0
    few = workers if size >= _SMALL else min(workers, 1)
    with closing(_scored(_chunks(iter(records)), options, scorer, few)) as scored:
        for chunk, values in scored:
            found += values
            done += sum(map(text_bytes, chunk))
            progress(done, size)
    values = np.array(found)[np.isfinite(found)]
    if len(values) < LEAST_PUBLIC:
        raise DataError(
            f"only {len(values)} records of the public text can be scored, and a quantile of fewer than {LEAST_PUBLIC} says little; "
            "give more public text"
        )
    lower, upper = (float(f"{value:.6g}") for value in np.quantile(values, quantiles))
    if lower >= upper:
        raise DataError("the public text's ln PPL hardly differ, so a is not below b; give more varied public text")
    return PrivacyProbability(lower, upper), len(values)


def _identity(options: ScorerOptions, scorer: Scorer, rho: PrivacyProbability) -> dict[str, Any]:
    """Everything but the records that the bytes of the scores depend on; another machine may sum in another order."""
    own = {"tacit": VERSION}
    libraries = own | {module.__name__: module.__version__ for module in (torch, transformers, tokenizers)}
    return {
        "scorer": scorer_digest(options.folder),
        "length": scorer.length,
        "lower": rho.lower,
        "upper": rho.upper,
        "processor": torch.backends.cpu.get_cpu_capability(),
        **libraries,
    }


def _survey(records: Iterable[Record]) -> tuple[str, int]:
    """Digest of all records, and the bytes of their text. The digest is private: it stands in private folders only."""
    digest = hashlib.sha256()
    size = 0
    for record in records:
        digest.update(json.dumps([record.document_id, record.text]).encode() + b"\n")
        size += text_bytes(record)
    return digest.hexdigest(), size


def _chunks(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Records that follow one another: so many, or fewer where they are long."""
    chunk: list[Record] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record.text)
        if len(chunk) == _CHUNK_RECORDS or size >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _scored(
    chunks: Iterable[list[Record]], options: ScorerOptions, scorer: Scorer, workers: int
) -> Generator[tuple[list[Record], list[float]], None, None]:
    """Each chunk, in order, with the ln PPL of its records."""
    if workers < 1:
        raise UsageError(f"workers is {workers}; it must be at least 1")
    if workers == 1:
        for chunk in chunks:
            yield chunk, _log_perplexities(scorer, _texts(chunk))
        return
    yield from map_in_order(chunks, _texts, _Worker(options, scorer.decided_rows()), workers)


def _texts(chunk: list[Record]) -> list[str]:
    return [record.text for record in chunk]


def _log_perplexities(scorer: Scorer, texts: Sequence[str]) -> list[float]:
    return [score.log_perplexity for score in scorer.score(texts)]


class _Worker:
    """What a worker process does; it loads the model when it gets its first chunk."""

    def __init__(self, options: ScorerOptions, rows: Mapping[int, int]) -> None:
        self._options, self._rows = options, rows
        self._scorer: Scorer | None = None

    def __call__(self, texts: list[str]) -> list[float]:
        if self._scorer is None:
            logging.set_verbosity_error()  # as the run's own process has it
            self._scorer = self._options.load()
            logging.set_verbosity_error()  # loading puts back what was
            self._scorer.take_rows(self._rows)
        return _log_perplexities(self._scorer, texts)

"""The scoring of a run's private corpus (RUN/private/scores): every text that the run may train on, by the id of its unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tacit.config import RunConfig
from tacit.corpus.records import Record
from tacit.corpus.units import Unit
from tacit.errors import UsageError
from tacit.pipeline.records import planted_records, units_of
from tacit.progress import Reporter
from tacit.randomness import KeyedRandomness
from tacit.runs.folder import RunFolder
from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scorer import ScorerOptions
from tacit.scoring.scoring import score_corpus

__all__ = ["SCORING_STEPS", "scored", "scored_folder", "texts_to_score"]

SCORING_STEPS = 1000
"""Steps of the progress bar, which shows a share of the text, since its size is private."""


def scored_folder(folder: RunFolder) -> Path:
    """Where the scores of a run lie."""
    return folder.private / "scores"


class _Texts:
    """The texts of units, read anew each time, and planted ones behind them."""

    def __init__(self, units: Iterable[Unit], planted: Sequence[Record]) -> None:
        self._units = units
        self._planted = planted

    def __iter__(self) -> Iterator[Record]:
        yield from (Record(unit.unit_id, None, text) for unit in self._units for text in unit.texts)
        yield from self._planted


def texts_to_score(
    config: RunConfig, streams: KeyedRandomness, units: Iterable[Unit] | None = None
) -> Iterable[Record]:
    """The texts of all units, with the unit's id as their document's: those that are held out, and the planted ones, too.

    A text is scored alone, and a unit counts as its most private text does (`tacit.scoring.scores.rho_in_order`), so the rho of a
    unit depends on this unit alone.

    Args:
        streams: of the run's key.
        units: all that are in the files, in order, as a run that has read them keeps them; None: the files are read.

    Raises:
        UsageError: the configuration screens or marks its private corpus, which makes other units of it.
        DataError: the corpus is missing or malformed.
    """
    if config.screening is not None or config.marking is not None:
        raise UsageError("a corpus that is screened or marked is not scored: leave out `screening` and `marking`")
    return _Texts(units_of(config) if units is None else units, planted_records(config, streams))


def scored(
    config: RunConfig,
    folder: RunFolder,
    streams: KeyedRandomness,
    options: ScorerOptions,
    rho: PrivacyProbability,
    reporter: Reporter,
    out: Path | None = None,
    units: Iterable[Unit] | None = None,
) -> Path:
    """Score the run's private corpus, or go on, or leave what is done; the folder with the scores.

    Args:
        streams: of the run's key.
        options: a public scorer, which the caller has checked (`tacit.scoring.public`).
        out: where, if not in the run's private folder.
        units: as in `texts_to_score`.

    Raises:
        UsageError, DataError: as `texts_to_score` and `tacit.scoring.scoring.score_corpus`.
    """
    target = scored_folder(folder) if out is None else out
    records = texts_to_score(config, streams, units)
    with reporter.stage("Scoring", SCORING_STEPS) as bar:
        score_corpus(
            records,
            options,
            rho,
            target,
            lambda done, total: bar.advance_to(SCORING_STEPS * done // max(total, 1)),
            workers=config.compute.workers,
            checkpoint_seconds=config.compute.checkpoint_seconds,
        )
        bar.advance_to(SCORING_STEPS)  # also when it was done before
    return target

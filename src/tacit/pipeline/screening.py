"""The screening of a run's private corpus (RUN/private/screened); light to import, for `tacit screen` runs without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.config import RunConfig
from tacit.corpus.units import Unit
from tacit.pipeline.records import Corpus, planted_records, source_of
from tacit.progress import Reporter
from tacit.randomness import KeyedRandomness
from tacit.runs.folder import RunFolder
from tacit.screen_plan import plan_of, streams_needed
from tacit.screening.corpus import policies_of, screen_corpus
from tacit.screening.receipt import Receipt
from tacit.screening.split import Screener
from tacit.spark.runner import Runner
from tacit.spark.screening import SparkScreening
from tacit.spark.session import open_session, spark_folder

__all__ = ["redacted_units", "screened", "screened_folder"]

_STEPS = 1000  # of the progress bar, which shows a share of the text, since its size is private


def screened_folder(folder: RunFolder) -> Path:
    """Where the screened corpus of a run lies."""
    return folder.private / "screened"


def screened(config: RunConfig, folder: RunFolder, streams: KeyedRandomness, reporter: Reporter) -> Receipt:
    """Screen the run's private corpus, or go on, or give the receipt of what is done; see `screen_corpus`.

    Args:
        streams: of the run's key.

    Raises:
        UsageError: there is no section ``screening``, or what is done was done with other options.
        DataError: a policy or the corpus is malformed or changed, or a stream that is needed is empty.
    """
    plan = plan_of(config)
    source, planted = source_of(config.private), planted_records(config, streams)
    on_spark = None
    if config.compute.runner == "spark":
        runner = Runner(open_session(spark_folder(folder), config.compute.workers))
        on_spark = SparkScreening(runner, source, planted, plan, streams)
    corpus = Corpus(source, planted) if on_spark is None else on_spark.records
    with reporter.stage("Screening", _STEPS) as bar:
        receipt = screen_corpus(
            corpus,
            plan,
            screened_folder(folder),
            streams,
            lambda done, total: bar.advance_to(_STEPS * done // max(total, 1)),
            needed=streams_needed(config),
            elsewhere=on_spark,
        )
        bar.advance_to(_STEPS)  # also when it was done before
    return receipt


def redacted_units(config: RunConfig, units: Sequence[Unit]) -> list[Unit]:
    """Held-out units as training would show them: cut into data points, and redacted with the balanced policy."""
    plan = plan_of(config)
    policies = policies_of(plan)
    screener = Screener(policies["balanced"], policies["conservative"], plan.data_point)
    found = []
    for unit in units:
        points, _ = screener.screen(unit.texts)
        found.append(Unit(unit.unit_id, tuple(point.text for of_text in points for point in of_text)))
    return found

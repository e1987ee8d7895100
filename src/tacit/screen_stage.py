"""The screening of a run's private corpus (RUN/private/screened); light to import, for `tacit screen` runs without torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tacit.config import CorpusOptions, RunConfig
from tacit.corpus.readers import Source, read_records
from tacit.corpus.records import Record
from tacit.errors import UsageError
from tacit.folder import RunFolder
from tacit.progress import Reporter
from tacit.randomness import Streams
from tacit.screening.corpus import Receipt, ScreenPlan, screen_corpus
from tacit.screening.split import Stream

__all__ = ["Corpus", "plan_of", "screened", "screened_folder", "source_of", "streams_needed"]

_STEPS = 1000  # of the bar: a share of the text, since its size is private


class Corpus:
    """The records of a source, read anew each time."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Record]:
        return read_records(self._source)


def source_of(options: CorpusOptions) -> Source:
    """Where a corpus is and how it is read."""
    return Source(
        path=options.resolved_path,
        format=options.format,
        text_field=options.text_field,
        id_field=options.id_field,
        user_field=options.user_field,
        max_record_bytes=options.max_record_bytes,
        limit=options.limit,
    )


def plan_of(config: RunConfig) -> ScreenPlan:
    """How a run's private corpus is screened.

    Raises:
        UsageError: the configuration has no section ``screening``.
    """
    options = config.screening
    if options is None:
        raise UsageError("the configuration has no section `screening`; add one (`screening: {}` takes every default)")
    return ScreenPlan(
        data_point=options.data_point,
        balanced=None if options.balanced is None else Path(options.balanced),
        conservative=None if options.conservative is None else Path(options.conservative),
        deduplicate=options.deduplicate,
        normalisation=options.normalisation,
        held_out=config.evaluation.held_out,
        workers=config.compute.workers,
    )


def streams_needed(config: RunConfig) -> set[Stream]:
    """The streams of screening that some phase trains on, or the vocabulary is made from; they must not be empty."""
    phases = {str(phase.stream) for phase in config.phases}
    needed: set[Stream] = {"private"} if "private" in phases else set()
    if "screened" in phases or not config.public:
        needed.add("public")
    return needed


def screened_folder(folder: RunFolder) -> Path:
    """Where the screened corpus of a run lies."""
    return folder.private / "screened"


def screened(config: RunConfig, folder: RunFolder, streams: Streams, reporter: Reporter) -> Receipt:
    """Screen the run's private corpus, or go on, or give the receipt of what is done; see `screen_corpus`.

    Args:
        streams: of the run's key.

    Raises:
        UsageError: there is no section ``screening``, or what is done was done with other options.
        DataError: a policy or the corpus is malformed or changed, or a stream that is needed is empty.
    """
    plan = plan_of(config)
    corpus = Corpus(source_of(config.private))
    with reporter.stage("Screening", _STEPS) as bar:
        receipt = screen_corpus(
            corpus,
            plan,
            screened_folder(folder),
            streams,
            lambda done, total: bar.advance_to(_STEPS * done // max(total, 1)),
            needed=streams_needed(config),
        )
        bar.advance_to(_STEPS)  # also when it was done before
    return receipt

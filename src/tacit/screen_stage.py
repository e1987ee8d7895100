"""The screening of a run's private corpus (RUN/private/screened); light to import, for `tacit screen` runs without torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from tacit.config import CorpusOptions, RunConfig
from tacit.corpus.readers import Source, read_records
from tacit.corpus.records import Record
from tacit.corpus.secrets import SecretFormat, canary_records, draw_secret_canaries
from tacit.corpus.turns import Turns
from tacit.corpus.units import Unit
from tacit.errors import UsageError
from tacit.folder import RunFolder
from tacit.progress import Reporter
from tacit.randomness import Streams
from tacit.screening.corpus import ScreenPlan, policies_of, screen_corpus
from tacit.screening.groups import GroupLimit
from tacit.screening.receipt import Receipt
from tacit.screening.split import Screener, Stream

__all__ = [
    "Corpus",
    "plan_of",
    "planted_records",
    "redacted_units",
    "screened",
    "screened_folder",
    "secret_form",
    "secrets_of",
    "source_of",
    "streams_needed",
]

_STEPS = 1000  # of the bar: a share of the text, since its size is private


class Corpus:
    """The records of a source, read anew each time, and planted ones after them."""

    def __init__(self, source: Source, planted: Sequence[Record] = ()) -> None:
        self._source = source
        self._planted = planted

    def __iter__(self) -> Iterator[Record]:
        return itertools.chain(read_records(self._source), self._planted)


def secret_form(config: RunConfig) -> SecretFormat | None:
    """The template of the canaries of a causal model; None where none are planted."""
    return SecretFormat(digits=config.audit.digits) if config.audit and config.model.is_causal else None


def secrets_of(config: RunConfig, streams: Streams) -> tuple[int, ...]:
    """The secrets of a causal model's canaries."""
    form = secret_form(config)
    if form is None or config.audit is None:
        return ()
    return draw_secret_canaries(config.audit.canaries, streams.child("canaries"), form)


def planted_records(config: RunConfig, streams: Streams) -> list[Record]:
    """The canaries of a causal model, as records that are trained on."""
    form = secret_form(config)
    if form is None or config.audit is None:
        return []
    texts = [form.text(secret) for secret in secrets_of(config, streams)]
    return canary_records(texts, config.audit.copies, config.evaluation.held_out, streams.child("corpus"))


def source_of(options: CorpusOptions) -> Source:
    """Where a corpus is and how it is read."""
    turns = options.turns
    return Source(
        path=options.resolved_path,
        format=options.format,
        text_field=options.text_field,
        id_field=options.id_field,
        user_field=options.user_field,
        max_record_bytes=options.max_record_bytes,
        limit=options.limit,
        turns=None if turns is None else Turns(turns.text, turns.speaker, turns.names),
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
        missed=options.missed,
        deduplicate=options.deduplicate,
        normalisation=options.normalisation,
        held_out=config.evaluation.held_out,
        group=None if options.group is None else GroupLimit(options.group.by, options.group.most),
        workers=config.compute.workers,
    )


def streams_needed(config: RunConfig) -> set[Stream]:
    """The streams of screening that must not be empty: the public one, where a phase or the vocabulary is made from it.

    Not the private one: whether it is empty may hang on a single secret, and a run that stops there would say so.
    """
    phases = {str(phase.stream) for phase in config.phases}
    return {"public"} if phases & {"screened", "redacted"} or not config.public else set()


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
    corpus = Corpus(source_of(config.private), planted_records(config, streams))
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

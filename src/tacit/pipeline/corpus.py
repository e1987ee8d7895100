"""Which records a run's private corpus has: those of its source, and the canaries of a causal model after them. Needs no torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tacit.config import CorpusOptions, RunConfig
from tacit.corpus.readers import Source, read_records
from tacit.corpus.records import Record
from tacit.corpus.secrets import SecretFormat, canary_records, draw_secret_canaries
from tacit.corpus.turns import Turns
from tacit.randomness import Streams

__all__ = ["Corpus", "planted_records", "secret_form", "secrets_of", "source_of"]


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

"""Which records and units a run's private corpus has: those of its source, and the canaries of a causal model. Needs no torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tacit.config import CorpusOptions, RunConfig, TupleUnit
from tacit.corpus.readers import read_records
from tacit.corpus.records import Record
from tacit.corpus.secrets import SecretFormat, canary_records, draw_secret_canaries
from tacit.corpus.source import Source
from tacit.corpus.units import Unit, UnitKind, group_units
from tacit.randomness import KeyedRandomness

__all__ = [
    "Corpus",
    "planted_records",
    "planted_units",
    "secret_form",
    "secrets_of",
    "source_of",
    "unit_kind",
    "units_of",
]


class Corpus:
    """The records of a source, read anew each time, and planted ones after them."""

    def __init__(self, source: Source, planted: Sequence[Record] = ()) -> None:
        self._source = source
        self._planted = planted

    def __iter__(self) -> Iterator[Record]:
        return itertools.chain(read_records(self._source), self._planted)


def unit_kind(config: RunConfig) -> UnitKind:
    """The run's privacy unit."""
    unit = config.privacy.unit
    return UnitKind.parse({"tuple": unit.tuple} if isinstance(unit, TupleUnit) else unit)


def units_of(config: RunConfig) -> list[Unit]:
    """All units of the private corpus as its files have them, in order."""
    return group_units(read_records(source_of(config.private)), unit_kind(config))


def secret_form(config: RunConfig) -> SecretFormat | None:
    """The template of the canaries of a causal model; None where none are planted."""
    return SecretFormat(digits=config.audit.digits) if config.audit and config.model.is_causal else None


def secrets_of(config: RunConfig, streams: KeyedRandomness) -> tuple[int, ...]:
    """The secrets of a causal model's canaries."""
    form = secret_form(config)
    if form is None or config.audit is None:
        return ()
    return draw_secret_canaries(config.audit.canaries, streams.child("canaries"), form)


def planted_records(config: RunConfig, streams: KeyedRandomness) -> list[Record]:
    """The canaries of a causal model, as records that are trained on."""
    form = secret_form(config)
    if form is None or config.audit is None:
        return []
    texts = [form.text(secret) for secret in secrets_of(config, streams)]
    return canary_records(texts, config.audit.copies, config.evaluation.held_out, streams.child("corpus"))


def planted_units(config: RunConfig, streams: KeyedRandomness) -> list[Unit]:
    """The records of `planted_records` as units of one text."""
    return [Unit(record.document_id, (record.text,)) for record in planted_records(config, streams)]


def source_of(options: CorpusOptions) -> Source:
    """Where a corpus is and how it is read."""
    return options.source

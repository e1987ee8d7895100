"""The one owner of the texts that a run reads: each function opens or makes a part of them, once in a process.

Texts lie on disk (`tacit.corpus.unit_store`), so memory does not grow with them.

Of the private corpus, in this order: read, group into units, fingerprint and bind in the ledger, hold out, plant; then screened,
marked or scored, as the configuration says. All that trains on it or attacks what was trained asks here, so all see one division.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tacit.audit.samples import MembershipSamples
from tacit.corpus.readers import read_records
from tacit.corpus.source import MOST_RECORD_BYTES, Source
from tacit.corpus.unit_store import StoredUnits, UnitStore, open_units
from tacit.corpus.unit_writing import Part, write_units
from tacit.corpus.units import UnitKind, is_held_out
from tacit.errors import DataError, UsageError
from tacit.files import atomic_folder
from tacit.models.kinds import save_model
from tacit.pipeline.marking import MarkedTexts, mark, marker_of, open_marks, policy_of, write_marks
from tacit.pipeline.membership import run_samples
from tacit.pipeline.on_spark import PUBLIC_HELD_OUT, private_on_spark, public_on_spark
from tacit.pipeline.records import planted_units, source_of, unit_kind
from tacit.pipeline.rho import check_public_text, unit_rho
from tacit.pipeline.screening import screened, screened_folder
from tacit.pipeline.state import RunState, once
from tacit.pipeline.stores import look_of, stored
from tacit.randomness import KeyedRandomness
from tacit.runs.stages import Stage
from tacit.screening.receipt import Receipt
from tacit.spark.corpus import SparkCorpus
from tacit.version import VERSION
from tacit.vocabulary.tokenizer import save_tokenizer

__all__ = [
    "SCREENING",
    "check_corpora",
    "fingerprint",
    "marked_texts",
    "membership_samples",
    "private_units",
    "public_units",
    "rho_of_units",
    "screen",
    "screened_units",
]

_CORPUS, _MARKS = "the private corpus", "the marks of private tokens"
"""The names of their fingerprints in the ledger."""


@once
def screen(state: RunState) -> Receipt:
    """Screen the private corpus, or compare what was screened with the corpus and the policies as they are now."""
    return screened(state.config, state.folder, state.streams, state.reporter)


SCREENING = Stage(
    "screening",
    lambda config: config.screening is not None,
    lambda state: (screened_folder(state.folder) / "receipt.json").exists(),
    screen,
)


def fingerprint(state: RunState) -> str:
    """The keyed fingerprint of the private corpus: the same at every rank."""
    return _corpus(state).fingerprint


@once
def private_units(state: RunState) -> tuple[StoredUnits, StoredUnits]:
    """(training, held out); bound in the ledger, so that a resumed run cannot go on with other data.

    Raises:
        DataError: the corpus is missing or malformed, or (a LedgerError) has changed.
    """
    store = _corpus(state)
    if state.ledger_if_first is not None:
        state.ledger_if_first.bind(_CORPUS, store.fingerprint)
    if state.config.screening is not None:
        return store.training, _screened(state, "held_out").training
    return store.training.followed_by(planted_units(state.config, state.streams)), store.held_out


@once
def screened_units(state: RunState) -> StoredUnits:
    """The data points that screening lets through: they are trained on without noise."""
    return _screened(state, "public").training


@once
def marked_texts(state: RunState) -> MarkedTexts:
    """The data points of the training units, raw, with what the policy marks in them (selective DP); bound in the ledger."""
    options, units = state.config.marking, private_units(state)[0]
    if options is None:
        raise UsageError("the configuration has no section `marking`, so no private token is marked")

    def write(folder: Path) -> None:
        state.reporter.say("Marking: private tokens of the private text ...")
        marked = mark(units, marker_of(options, state.streams), options.data_point)
        write_marks(folder, marked, state.streams.child("corpus"))

    made_from = [VERSION, units.stores, policy_of(options).digest, state.config.model_dump(mode="json")]
    marked = open_marks(stored(state, "marks", made_from, write), units, options.data_point)
    if state.ledger_if_first is not None:
        state.ledger_if_first.bind(_MARKS, marked.digest)
    return marked


@once
def rho_of_units(state: RunState) -> np.ndarray:
    """Each training unit's privacy probability (adaptive DP): scored by a public model, and bound in the ledger."""
    return unit_rho(
        state.config,
        state.folder,
        state.streams,
        state.reporter,
        state.ledger,
        private_units(state)[0],
        _corpus(state),
        lambda: public_units(state)[1],
        _scorer_folder(state),
    )


def membership_samples(state: RunState) -> MembershipSamples:
    """The texts of the membership attack, from the corpus that the run trains on: raw, as they were before any redaction.

    Raises:
        UsageError: the configuration asks for no such attack.
        DataError: the corpus has changed.
    """
    private_units(state)  # compares the corpus with the one that was trained on
    store = _corpus(state) if state.config.screening is None else _documents(state)
    return run_samples(state.config, (store.training, store.held_out), state.streams)


@once
def public_units(state: RunState) -> tuple[StoredUnits, StoredUnits]:
    """(training, held out) of the public corpora; every record is its own unit."""
    sources, streams = [source_of(options) for options in state.config.public], state.streams.child("public corpus")

    def parts() -> Iterator[Part]:
        for number, source in enumerate(sources):
            yield Part(read_records(source), UnitKind("record"), f"{number}:")

    looks = list(map(look_of, sources))
    store = _stored(state, "public-text", looks, parts, PUBLIC_HELD_OUT, streams, public_on_spark(state))
    if not store.training or not store.held_out:
        raise DataError("the public corpus is too small to hold some records out: give at least a few hundred records")
    return store.training, store.held_out


def check_corpora(state: RunState) -> None:
    """Read every corpus, so that a mistake in any of them shows before something is spent.

    Raises:
        DataError: a corpus is missing, malformed or without a record, or too small where it is public. That no unit is left for
            training, or none to hold out, is no error: one unit more or fewer may decide it
            (docs/guarantees.md#the-domain-of-corpora).
    """
    private_units(state)
    if state.config.public:
        _, held_out = public_units(state)
        check_public_text(state.config, len(held_out))


@once
def _corpus(state: RunState) -> UnitStore:
    """All private units, and their keyed fingerprint; with screening, those that it does not let through."""
    config, streams = state.config, state.streams.child("corpus")
    if config.screening is not None:
        return _screened(state, "private")
    return _of_files(state, "text", unit_kind(config), streams, private_on_spark(state))


def _documents(state: RunState) -> UnitStore:
    """The documents of the private corpus as its files have them: what screening holds out whole."""
    return _of_files(state, "documents", UnitKind("document"), state.streams.child("corpus"))


def _of_files(
    state: RunState, name: str, kind: UnitKind, streams: KeyedRandomness, on_spark: SparkCorpus | None = None
) -> UnitStore:
    """All units of the files of the private corpus, raw."""
    source = source_of(state.config.private)
    parts = [Part(read_records(source), kind)]
    made_from = [look_of(source), repr(kind)]
    return _stored(state, name, made_from, lambda: parts, state.config.evaluation.held_out, streams, on_spark)


def _screened(state: RunState, name: str) -> UnitStore:
    """The data points of a file that screening wrote, which may be empty. None is held out; screening decided what one is."""
    screen(state)
    path = screened_folder(state.folder) / f"{name}.jsonl"
    most = MOST_RECORD_BYTES  # escapes and masks lengthen a text that was within the limit
    source = Source(path, "jsonl", id_field="id", max_record_bytes=most)

    def parts() -> list[Part]:
        return [Part(read_records(source) if path.stat().st_size else (), UnitKind("record"))]

    return _stored(state, f"screened-{name}", look_of(source), parts, 0.0, state.streams.child("corpus"))


def _stored(
    state: RunState,
    name: str,
    made_from: list[Any],
    parts: Callable[[], Iterable[Part]],
    held_out: float,
    streams: KeyedRandomness,
    on_spark: SparkCorpus | None = None,
) -> UnitStore:
    """Units on disk: which of them are held out is a function of the key and the unit's id."""

    def write(folder: Path) -> None:
        if on_spark is not None:
            on_spark.write(folder)
        else:
            write_units(folder, parts(), lambda unit_id: is_held_out(unit_id, held_out, streams), streams)

    made_on = [] if on_spark is None else ["spark"]  # where a checksum lies beside it
    folder = stored(state, name, [made_from, held_out, *made_on], write)
    if on_spark is not None:
        on_spark.bind(folder)
    return open_units(folder)


def _scorer_folder(state: RunState) -> Path:
    """The model that the scoring phase left, with its tokenizer, as a folder; written once."""
    options, folder = state.config.adaptive, state.folder.private / "scorer"
    if options is not None and options.scorer.phase is not None and not folder.exists():
        phase = next(phase for phase in state.config.phases if phase.name == options.scorer.phase)
        with atomic_folder(folder) as partial:
            save_model(state.trained_model(state.config.phase_name(phase, 0)), partial)
            save_tokenizer(state.tokenizer, partial, state.config.model.length, state.special_names)
    return folder

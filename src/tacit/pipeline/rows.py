"""The rows of token ids that phases train on and models are scored on: those of whole corpora lie on disk, tokenised once."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.audit.exposure import Contexts
from tacit.config import PublicCorpusOptions, RunConfig, stratum_number
from tacit.corpus.canaries import Canary, Place, draw_canaries, places_of, plant
from tacit.corpus.chats import answer_of
from tacit.corpus.coins import Coins
from tacit.corpus.unit_store import StoredUnits
from tacit.corpus.units import Unit
from tacit.pipeline.coins import coin_rows, copies_in_control, has_coins, tossed_coins
from tacit.pipeline.corpus import marked_texts, private_units, public_units, rho_of_units, screened_units
from tacit.pipeline.marking import MarkedText, MarkedTexts
from tacit.pipeline.on_spark import private_on_spark, public_on_spark
from tacit.pipeline.state import RunState, once
from tacit.pipeline.stores import stored
from tacit.progress import Bar
from tacit.spark.corpus import SparkCorpus
from tacit.training.marked import tokenize_marked, unmarked
from tacit.training.row_store import open_rows, write_rows
from tacit.training.sequences import SequenceStream
from tacit.training.tokenising import Tokenising, copies_of
from tacit.version import VERSION

__all__ = [
    "control_rows",
    "drawn_canaries",
    "drawn_coins",
    "has_unigram",
    "planted_contexts",
    "private_rows",
    "public_answers",
    "public_held_out_rows",
    "public_held_out_units",
    "public_rows",
    "rows_of",
    "tokenized",
    "unigram_rows",
]


def rows_of(state: RunState, stream: str) -> SequenceStream:
    """The rows that a phase with this ``stream`` reads; the plan chooses which units are in a stratum."""
    return _ROWS["private" if stratum_number(stream) is not None else stream](state)


def tokenized(state: RunState, units: Sequence[Unit], is_chat: Sequence[bool] | None = None) -> SequenceStream:
    """Rows of units.

    Args:
        is_chat: of each unit whether its corpus has conversations; None: that of private ones.
    """
    if is_chat is None:
        return _private_tokenising(state).rows(units, [state.config.private.is_chat] * len(units))
    return _public_tokenising(state).rows(units, is_chat)


@once
def _private_tokenising(state: RunState) -> Tokenising:
    return _tokenising(state, state.config.private.is_chat)


@once
def _public_tokenising(state: RunState) -> Tokenising:
    return _tokenising(state, any(options.is_chat for options in state.config.public))


def _tokenising(state: RunState, has_chats: bool) -> Tokenising:
    template = (state.chat_template or "", str(state.vocabulary_folder))
    length, streams = state.config.model.length, state.streams.child("sequences")
    return Tokenising(state.tokenizer.to_str(), state.special_names, length, streams, template, has_chats)


def _public_chats(state: RunState, units: Sequence[Unit]) -> list[bool]:
    """Whether the corpus of each public unit has conversations."""
    return [_corpus_of(state, unit).is_chat for unit in units]


def _corpus_of(state: RunState, unit: Unit) -> PublicCorpusOptions:
    return state.config.public[int(unit.unit_id.split(":")[0])]


def _on_disk(
    state: RunState,
    name: str,
    units: StoredUnits,
    rows: Callable[[list[Unit]], SequenceStream] | None = None,
    then: Callable[[Iterator[SequenceStream]], Iterable[SequenceStream]] = lambda parts: parts,
    on_spark: Callable[[], Iterator[SequenceStream]] | None = None,
) -> SequenceStream:
    """The rows of units in order, in a store.

    Args:
        name: of the store. With the run's configuration and files it decides what the others are.
        rows: of some units; None: `tokenized`.
        then: what else is done with the rows, part by part.
        on_spark: the rows of those units that are in the store, where Spark makes them.
    """

    def rows_of_part(part: list[Unit]) -> SequenceStream:
        return tokenized(state, part) if rows is None else rows(part)

    def write(folder: Path) -> None:
        with state.reporter.stage(f"Tokenising: {name.replace('-', ' ')}", _STEPS) as bar:
            if on_spark is None:
                parts = (rows_of_part(part) for part in _parts(units, bar))
            else:
                parts = itertools.chain(on_spark(), (rows_of_part(list(units.behind)) for _ in range(1)))
            write_rows(folder, then(parts))
            bar.advance_to(_STEPS)

    return open_rows(stored(state, f"rows-{name}", _made_from(state, units), write))


_TEXTS_AT_ONCE = 2000
_CHARACTERS_AT_ONCE = 1 << 20
_STEPS = 100  # of the bar: how many units there are is private


def _parts(units: StoredUnits | MarkedTexts, bar: Bar) -> Iterator[list[Any]]:
    """Units in order, a few at once; one part at least, which may be empty."""
    part: list[Any] = []
    texts = characters = 0
    for done, unit in enumerate(units):
        if part and (texts >= _TEXTS_AT_ONCE or characters >= _CHARACTERS_AT_ONCE):
            yield part
            bar.advance_to(_STEPS * done // len(units))
            part, texts, characters = [], 0, 0
        part.append(unit)
        texts, characters = texts + len(unit.texts), characters + sum(map(len, unit.texts))
    yield part


def _row_parts(stream: SequenceStream) -> Iterator[SequenceStream]:
    """Rows of units of one row each, a few at once; one part at least, which may be empty."""
    for start in range(0, max(stream.sequences, 1), _TEXTS_AT_ONCE):
        part = slice(start, start + _TEXTS_AT_ONCE)
        lengths_S = stream.lengths_S[part]
        yield SequenceStream(stream.ids_ST[part], lengths_S, np.arange(len(lengths_S) + 1), stream.keys_U[part])


def _made_from(state: RunState, units: StoredUnits) -> list[Any]:
    """What decides rows beside the run's key: its configuration, the texts and the tokenizer."""
    tokenizer = hashlib.sha256((state.vocabulary_folder / "tokenizer.json").read_bytes()).hexdigest()
    config = state.config.model_dump(mode="json")
    public = public_units(state)[0].stores if state.config.public else []  # examples with coins may be made of it
    return [VERSION, config, units.stores, public, tokenizer, dict(state.special_names), state.chat_template]


@once
def public_rows(state: RunState) -> SequenceStream:
    """Public training rows: of each unit as often as its corpus says."""

    def rows(units: list[Unit]) -> SequenceStream:
        copies = [copy for unit in units for copy in copies_of(unit, _corpus_of(state, unit).times)]
        return tokenized(state, copies, _public_chats(state, copies))

    units = public_units(state)[0]
    return _on_disk(
        state, "public", units, rows, on_spark=_rows_on_spark(public_on_spark(state), _public_tokenising(state))
    )


@once
def private_rows(state: RunState) -> SequenceStream:
    """Private training rows, with the audit's canaries (a causal model's are texts of the corpus) and the examples with coins."""
    units, on_spark = private_units(state)[0], _private_rows_on_spark(state)
    stream = _on_disk(state, "private", units, then=lambda parts: _planted(state, parts), on_spark=on_spark)
    return stream if state.config.adaptive is None else dataclasses.replace(stream, rho_U=rho_of_units(state))


@once
def control_rows(state: RunState) -> SequenceStream:
    """The private rows for the control without DP, which is shown examples with coins more often."""
    if not has_coins(state.config):
        return private_rows(state)
    units = private_units(state)[0]
    in_control = functools.partial(_planted, state, in_control=True)
    return _on_disk(state, "control", units, then=in_control, on_spark=_private_rows_on_spark(state))


def _planted(state: RunState, parts: Iterator[SequenceStream], in_control: bool = False) -> Iterator[SequenceStream]:
    """Private rows with what is planted among and behind them."""
    rows = units = 0
    has_counted = False
    for part in parts:
        rows, units, has_counted = rows + part.sequences, units + part.units, part.counted_ST is not None
        yield _with_canaries(state, part)
    if has_coins(state.config):
        copies = copies_in_control(rows, units) if in_control else 1
        yield coin_rows(state, drawn_coins(state), has_counted, copies)


@once
def private_held_out_rows(state: RunState) -> SequenceStream:
    """Rows of the private units that are kept from training."""
    return _on_disk(state, "held-out", private_units(state)[1], on_spark=_private_rows_on_spark(state, held_out=True))


def _private_rows_on_spark(state: RunState, held_out: bool = False) -> Callable[[], Iterator[SequenceStream]] | None:
    return _rows_on_spark(private_on_spark(state), _private_tokenising(state), held_out)


def _rows_on_spark(
    corpus: SparkCorpus | None, how: Tokenising, held_out: bool = False
) -> Callable[[], Iterator[SequenceStream]] | None:
    return None if corpus is None else functools.partial(corpus.rows, how, held_out=held_out)


@once
def drawn_coins(state: RunState) -> Coins:
    """The audit's examples and coins (`tacit.pipeline.coins`)."""
    return tossed_coins(state, public_rows)


def _with_canaries(state: RunState, stream: SequenceStream) -> SequenceStream:
    if state.config.audit is None or state.config.model.is_causal:
        return stream
    ids, lengths = plant(
        stream.ids_ST,
        stream.lengths_S,
        stream.starts_U1,
        stream.keys_U,
        drawn_canaries(state),
        state.config.audit.probability,
        state.streams.child("canaries"),
    )
    return dataclasses.replace(stream, ids_ST=ids, lengths_S=lengths)


def planted_contexts(state: RunState, most: int) -> dict[int, Contexts]:
    """The first ``most`` training rows that each canary of a masked model stands in, by its number. Private."""
    assert state.config.audit is not None
    rows, canaries = private_rows(state), drawn_canaries(state)
    own = itertools.islice(rows.keys_U, len(private_units(state)[0]))  # behind them are the examples with coins
    found: dict[int, list[Place]] = {}
    for place in places_of(
        rows.lengths_S,
        rows.ids_ST.shape[1],
        rows.starts_U1,
        own,
        canaries,
        state.config.audit.probability,
        state.streams.child("canaries"),
    ):
        if len(there := found.setdefault(place.canary, [])) < most:
            there.append(place)
    return {
        number: Contexts(
            np.array([rows.ids_ST[place.row] for place in places], dtype=np.int64),
            np.array([rows.lengths_S[place.row] for place in places]),
            np.array([place.start + canaries[number].secret_offset for place in places]),
        )
        for number, places in found.items()
    }


@once
def _screened_rows(state: RunState) -> SequenceStream:
    """Rows of the data points that screening lets through."""
    return _on_disk(state, "screened", screened_units(state))


@once
def _redacted_rows(state: RunState) -> SequenceStream:
    """Rows of the whole corpus as screening has redacted it."""
    return _on_disk(state, "redacted", screened_units(state).followed_by(private_units(state)[0]))


@once
def _marked_rows(state: RunState) -> SequenceStream:
    """One row of each data point, its private tokens marked."""
    texts = marked_texts(state)

    def rows(part: list[MarkedText]) -> SequenceStream:
        return tokenize_marked(
            [text.unit for text in part],
            [text.runs for text in part],
            state.tokenizer,
            state.special,
            state.config.model.length,
            state.streams.child("sequences"),
        )

    def write(folder: Path) -> None:
        with state.reporter.stage("Tokenising: marked", _STEPS) as bar:
            write_rows(folder, map(rows, _parts(texts, bar)))
            bar.advance_to(_STEPS)

    made_from = [*_made_from(state, private_units(state)[0]), texts.store]
    return open_rows(stored(state, "rows-marked", made_from, write))


@once
def _unmarked_rows(state: RunState) -> SequenceStream:
    """The rows of data points without marks."""
    marked = _marked_rows(state)

    def write(folder: Path) -> None:
        write_rows(folder, (unmarked(part, state.special.size) for part in _row_parts(marked)))

    made_from = [*_made_from(state, private_units(state)[0]), marked_texts(state).store]
    return open_rows(stored(state, "rows-unmarked", made_from, write))


_ROWS = {
    "public": public_rows,
    "screened": _screened_rows,
    "redacted": _redacted_rows,
    "private": private_rows,
    "marked": _marked_rows,
}


def has_unigram(config: RunConfig) -> bool:
    """Whether there is text whose tokens may be counted: public, screened, or for the curator's eyes marked."""
    return bool(config.public) or config.screening is not None or config.marking is not None


def unigram_rows(state: RunState) -> SequenceStream:
    """Rows whose tokens are counted for the unigram, which only the curator sees where they are private."""
    if state.config.public:
        return public_rows(state)
    if state.config.marking is None:
        return _screened_rows(state)
    return _unmarked_rows(state)


def public_held_out_units(state: RunState) -> list[Unit]:
    """Public held-out texts, as many as ``evaluation.public_sequences``: those that are scored of a causal model, each whole."""
    return public_units(state)[1][: state.config.evaluation.public_sequences]


def public_answers(state: RunState) -> list[Unit]:
    """Public held-out texts, of conversations and responses that part which is scored."""
    units = public_held_out_units(state)
    return [
        Unit(unit.unit_id, tuple(map(answer_of, unit.texts))) if is_chat else unit
        for unit, is_chat in zip(units, _public_chats(state, units), strict=True)
    ]


@once
def public_held_out_rows(state: RunState) -> SequenceStream:
    """Public held-out rows: of a masked model one unit a row, at most ``evaluation.public_sequences``; of a causal one whole."""
    most = state.config.evaluation.public_sequences
    if state.config.model.is_causal:
        units = public_held_out_units(state)
        return tokenized(state, units, _public_chats(state, units))
    units, ids, lengths = public_units(state)[1], [], []
    for start in range(0, len(units), _TEXTS_AT_ONCE):
        part = units[start : start + _TEXTS_AT_ONCE]
        stream = tokenized(state, part, _public_chats(state, part))
        ids.append(np.asarray(stream.ids_ST))
        lengths.append(np.asarray(stream.lengths_S))
        if sum(map(len, lengths)) >= most:
            break
    ids_ST, lengths_S = np.concatenate(ids)[:most], np.concatenate(lengths)[:most]
    keys = tuple(f"public {row}" for row in range(len(ids_ST)))
    return SequenceStream(ids_ST, lengths_S, np.arange(len(ids_ST) + 1), keys)


@once
def drawn_canaries(state: RunState) -> list[Canary]:
    """The planted canaries of a masked model; empty without an audit."""
    options = state.config.audit
    if options is None:
        return []
    return draw_canaries(options.patterns, options.canaries, state.masking.ordinary, state.streams.child("canaries"))

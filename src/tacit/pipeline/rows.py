"""The rows of token ids that phases train on and models are scored on, tokenised once in a process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tacit.config import PublicCorpusOptions, RunConfig, stratum_number
from tacit.corpus.canaries import Canary, draw_canaries, plant
from tacit.corpus.chats import answer_of
from tacit.corpus.coins import Coins
from tacit.corpus.units import Unit
from tacit.pipeline.coins import copies_in_control, has_coins, tossed_coins, with_coins
from tacit.pipeline.corpus import marked_texts, private_units, public_units, rho_of_units, screened_units
from tacit.pipeline.state import RunState, once
from tacit.training.marked import tokenize_marked, unmarked
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.vocabulary.chat_template import ChatTemplate
from tacit.vocabulary.chats import ChatEncoder

__all__ = [
    "control_rows",
    "drawn_canaries",
    "drawn_coins",
    "has_unigram",
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


def tokenized(state: RunState, units: list[Unit], is_chat: Sequence[bool] | None = None) -> SequenceStream:
    """Rows of units.

    Args:
        is_chat: of each unit whether its corpus has conversations; None: that of private ones.
    """
    length, streams = state.config.model.length, state.streams.child("sequences")
    is_chat = [state.config.private.is_chat] * len(units) if is_chat is None else is_chat
    chats = _chats(state) if any(is_chat) else None
    return tokenize_units(units, state.tokenizer, state.special, length, streams, chats, is_chat)


@once
def _chats(state: RunState) -> ChatEncoder:
    template = ChatTemplate(state.chat_template or "", str(state.vocabulary_folder))
    return ChatEncoder(state.tokenizer, state.special, state.special_names, template)


def _public_chats(state: RunState, units: Sequence[Unit]) -> list[bool]:
    """Of each public unit whether its corpus has conversations."""
    return [_corpus_of(state, unit).is_chat for unit in units]


def _corpus_of(state: RunState, unit: Unit) -> PublicCorpusOptions:
    return state.config.public[int(unit.unit_id.split(":")[0])]


@once
def public_rows(state: RunState) -> SequenceStream:
    """Public training rows: of each unit as often as its corpus says."""
    units = [copy for unit in public_units(state)[0] for copy in _copies(state, unit)]
    return tokenized(state, units, _public_chats(state, units))


def _copies(state: RunState, unit: Unit) -> list[Unit]:
    """A public unit, and the same text under other ids, which have random choices of their own."""
    times = _corpus_of(state, unit).times
    return [unit, *(Unit(f"{unit.unit_id}:copy {number}", unit.texts) for number in range(2, times + 1))]


@once
def private_rows(state: RunState) -> SequenceStream:
    """Private training rows, with the audit's canaries (a causal model's are texts of the corpus) and the examples with coins."""
    stream = _own_rows(state)
    return with_coins(state, stream, drawn_coins(state)) if has_coins(state.config) else stream


@once
def control_rows(state: RunState) -> SequenceStream:
    """The same for the control without DP."""
    stream = _own_rows(state)
    return (
        with_coins(state, stream, drawn_coins(state), copies_in_control(stream)) if has_coins(state.config) else stream
    )


@once
def _own_rows(state: RunState) -> SequenceStream:
    stream = _with_canaries(state, tokenized(state, private_units(state)[0]))
    return stream if state.config.adaptive is None else dataclasses.replace(stream, rho_U=rho_of_units(state))


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


@once
def _screened_rows(state: RunState) -> SequenceStream:
    """Rows of the data points that screening lets through."""
    return tokenized(state, screened_units(state))


@once
def _redacted_rows(state: RunState) -> SequenceStream:
    """Rows of the whole corpus as screening has redacted it."""
    return tokenized(state, [*screened_units(state), *private_units(state)[0]])


@once
def _marked_rows(state: RunState) -> SequenceStream:
    """One row of each data point, its private tokens marked."""
    texts = marked_texts(state)
    return tokenize_marked(
        [text.unit for text in texts],
        [text.runs for text in texts],
        state.tokenizer,
        state.special,
        state.config.model.length,
        state.streams.child("sequences"),
    )


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
    return unmarked(_marked_rows(state), state.special.size)


def public_held_out_units(state: RunState) -> list[Unit]:
    """Public held-out texts; of a causal model, whose texts count whole, as many as ``evaluation.public_sequences``."""
    units = public_units(state)[1]
    return units[: state.config.evaluation.public_sequences] if state.config.model.is_causal else units


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
    units = public_held_out_units(state)
    stream = tokenized(state, units, _public_chats(state, units))
    if state.config.model.is_causal:
        return stream
    rows = min(stream.sequences, state.config.evaluation.public_sequences)
    keys = tuple(f"public {row}" for row in range(rows))
    return SequenceStream(stream.ids_ST[:rows], stream.lengths_S[:rows], np.arange(rows + 1), keys)


@once
def drawn_canaries(state: RunState) -> list[Canary]:
    """The planted canaries of a masked model; empty without an audit."""
    options = state.config.audit
    if options is None:
        return []
    return draw_canaries(options.patterns, options.canaries, state.masking.ordinary, state.streams.child("canaries"))

"""The audit's coins in a run: tossed once, bound in the ledger before training, and put among the private rows."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from tacit.config import RunConfig
from tacit.corpus.coins import Coins, toss_coins
from tacit.corpus.units import Unit
from tacit.errors import UsageError
from tacit.pipeline.state import RunState, once
from tacit.training.sequences import SequenceStream, unit_keys

__all__ = ["has_coins", "tossed_coins", "with_coins"]

_BOUND = "the audit's coins"


def has_coins(config: RunConfig) -> bool:
    """Whether examples are put into the text as coins say."""
    return config.audit is not None and config.audit.coins is not None


@once
def tossed_coins(state: RunState) -> Coins:
    """Examples and coins. The ledger has their digest, and how they will be judged, before anything is trained on them.

    Raises:
        UsageError: the configuration asks for none.
        LedgerError: the ledger has others.
    """
    options = state.config.audit.coins if state.config.audit else None
    if options is None:
        raise UsageError("the configuration has no section `audit.coins`")
    replace = state.config.privacy.relation == "replace"
    special = state.special
    ordinary = np.setdiff1d(np.arange(special.size), special.ids)
    ends = (special.start, special.end, special.pad)
    coins = toss_coins(
        options.examples,
        options.pieces,
        ordinary,
        ends,
        state.config.model.length,
        replace,
        state.streams.child("audit's coins"),
    )
    if state.ledger_if_first is not None:
        judged = {**options.model_dump(), "relation": state.config.privacy.relation, "commitment": coins.commitment}
        state.ledger_if_first.bind(_BOUND, json.dumps(judged, sort_keys=True))
    return coins


def with_coins(state: RunState, stream: SequenceStream) -> SequenceStream:
    """The private training rows with the planted examples behind them, a unit each."""
    coins = tossed_coins(state)
    planted_PT = coins.planted_PT
    count = len(planted_PT)
    # by the number of the coin: what one example draws hangs on no other coin
    numbers = np.flatnonzero(coins.included_m) if coins.others_mT is None else np.arange(count)
    units = [Unit(f"audit-example-{number}", ()) for number in numbers]
    keys = unit_keys(units, state.streams.child("audit's coins"))
    counted_ST = stream.counted_ST
    if counted_ST is not None:
        place_T = np.arange(planted_PT.shape[1])
        own_PT = np.broadcast_to((place_T > 0) & (place_T < coins.length), planted_PT.shape)
        counted_ST = np.concatenate([counted_ST, own_PT])
    return dataclasses.replace(
        stream,
        ids_ST=np.concatenate([stream.ids_ST, planted_PT]),
        lengths_S=np.concatenate([stream.lengths_S, np.full(count, coins.length, dtype=stream.lengths_S.dtype)]),
        starts_U1=np.concatenate([stream.starts_U1, stream.starts_U1[-1] + 1 + np.arange(count)]),
        keys_U=(*stream.keys_U, *keys),
        counted_ST=counted_ST,
    )

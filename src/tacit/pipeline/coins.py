"""The audit's coins in a run: tossed once, bound in the ledger before training, and put among the private rows.

They stand in the training rows alone: neither the vocabulary nor screening nor the evaluation ever sees them, and the units of the
text are divided as they would be without. How many examples are in is decided by the coins: sampling probability and normaliser come
from ``privacy.units``, as always, and from nothing that is counted here.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from tacit.audit.coin_examples import EXAMPLES, Material
from tacit.config import CoinOptions, RunConfig
from tacit.corpus.coins import Coins, toss_coins
from tacit.corpus.units import Unit
from tacit.errors import DataError, UsageError
from tacit.pipeline.state import RunState
from tacit.training.sequences import SequenceStream, unit_keys

__all__ = ["coin_rows", "copies_in_control", "has_coins", "tossed_coins", "watched_rows"]

_BOUND = "the audit's coins"


def has_coins(config: RunConfig) -> bool:
    """Whether examples are put into the text as coins say."""
    return config.audit is not None and config.audit.coins is not None


def tossed_coins(state: RunState, public_rows: Callable[[RunState], SequenceStream]) -> Coins:
    """Examples and coins. The ledger has their digest, and how they will be judged, before anything is trained on them.

    Args:
        public_rows: loads what some kinds of examples are made of.

    Raises:
        UsageError: the configuration asks for none.
        DataError: no examples of the kind can be made; or (a LedgerError) the ledger has others.
    """
    options = state.config.audit.coins if state.config.audit else None
    if options is None:
        raise UsageError("the configuration has no section `audit.coins`")
    special, streams = state.special, state.streams.child("audit's coins")
    replace = state.config.privacy.relation == "replace"

    def bodies(side: str) -> np.ndarray:
        generator = streams.generator("examples", side)
        material = Material(
            options.examples, options.pieces, state.tokenizer, special, generator, lambda: public_rows(state)
        )
        return _with_a_loss(EXAMPLES[options.kind].make(material), material)

    ends = (special.start, special.end, special.pad)
    others_mP = bodies("others") if replace else None
    coins = toss_coins(bodies("these"), others_mP, ends, state.config.model.length, streams)
    if state.ledger_if_first is not None:
        state.ledger_if_first.bind(_BOUND, _judged(options, state.config, coins))
    return coins


def copies_in_control(rows: int, units: int) -> int:
    """How often the control is shown each example: as often as a unit of the text, all of whose rows it goes through.

    Training with noise draws units, and the control rows: an example, which has one, would be seen too seldom to be remembered.

    Args:
        rows: of the text.
        units: of the text.
    """
    return max(1, round(rows / max(1, units)))


def _judged(options: CoinOptions, config: RunConfig, coins: Coins) -> str:
    """What is fixed before anybody looks: examples and coins, how they are scored, and what makes a bound of the scores."""
    own = {**options.model_dump(), "relation": config.privacy.relation, "delta": config.privacy.budget.delta}
    if config.audit is not None and config.audit.white_box:
        own["white_box"] = True
    return json.dumps({**own, "commitment": coins.commitment}, sort_keys=True)


def _with_a_loss(bodies_mP: np.ndarray, material: Material) -> np.ndarray:
    """The pieces, each of whose examples has one that a model is asked about.

    Raises:
        DataError: one has none: it would be trained on without a loss.
    """
    if not np.isin(bodies_mP, material.ordinary).any(axis=1).all():
        raise DataError("audit.coins: an example has no ordinary piece; choose another kind of examples")
    return bodies_mP


def coin_rows(state: RunState, coins: Coins, has_counted: bool, copies: int = 1) -> SequenceStream:
    """The planted examples, a unit each, which come behind the private training rows.

    Args:
        has_counted: whether those rows say which tokens count.
        copies: of each example; more than one for the control alone.
    """
    planted_PT = np.tile(coins.planted_PT, (copies, 1))
    count = len(planted_PT)
    numbers = [
        f"{number}" if copy == 0 else f"{number}-{copy}" for copy in range(copies) for number in coins.planted_numbers
    ]
    place_T = np.arange(planted_PT.shape[1])
    own_PT = np.broadcast_to((place_T > 0) & (place_T < coins.length), planted_PT.shape)
    return SequenceStream(
        planted_PT,
        np.full(count, coins.length, dtype=np.int32),
        np.arange(count + 1),
        _keys(state, numbers),
        counted_ST=own_PT if has_counted else None,
    )


def watched_rows(state: RunState, coins: Coins) -> SequenceStream:
    """Every example, whatever its coin, under the key that it has where it is planted; then those in their places, if any."""
    sides = [coins.ids_mT] if coins.others_mT is None else [coins.ids_mT, coins.others_mT]
    ids_ST = np.concatenate(sides)
    keys_m = _keys(state, [f"{number}" for number in range(len(coins.ids_mT))])
    lengths_S = np.full(len(ids_ST), coins.length, dtype=np.int32)
    return SequenceStream(ids_ST, lengths_S, np.arange(len(ids_ST) + 1), keys_m * len(sides))


def _keys(state: RunState, numbers: list[str]) -> tuple[str, ...]:
    """The keys of examples, by the number of their coin alone: what is drawn for one example is independent of the other coins."""
    units = [Unit(f"audit-example-{number}", ()) for number in numbers]
    return unit_keys(units, state.streams.child("audit's coins"))

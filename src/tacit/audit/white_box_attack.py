"""The attack on the audit's coins by whoever saw every noisy update of the training (`tacit.training.watching`).

The certificate covers it: to see all noisy sums costs no more than to see the last model. So its lower bound may contradict the
proved epsilon, as that of `tacit.audit.coins_attack` may, and it comes closer to it. But what it reads is not released: it is the
curator's alone, and decides nothing. Score and bound are in the ledger before the training.

Shapes: m examples; U of them with those in their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.audit.attack import Answer, Attack, Given, Measure
from tacit.audit.coins_attack import (
    LOWER_BOUND_TERMS,
    bounds_of,
    coin_rows,
    coin_texts,
    coins_in_words,
    known_beforehand,
)
from tacit.config import RunConfig
from tacit.corpus.coins import Coins

__all__ = ["WHITE_BOX", "audit_updates"]


def _prepare(given: Given) -> Measure:
    coins = given.coins()
    known = known_beforehand(given, coin_texts(given.tokenizer, coins))

    def measure(products_U: np.ndarray) -> dict[str, Any]:
        return {**known, **audit_updates(given.config, coins, products_U)}

    return measure


def audit_updates(config: RunConfig, coins: Coins, products_U: np.ndarray) -> dict[str, Any]:
    """What the updates show of the coins, as plain values.

    Args:
        products_U: of each example with all updates; under replacement then of those in their places.

    Raises:
        UndecidedError: a product is no number, as of a training that diverged.
    """
    scores_m = products_U if coins.others_mT is None else np.subtract(*np.split(products_U, 2))
    return bounds_of(config, coins, {"noisy updates": scores_m})


def _answer(config: RunConfig, found: Mapping[str, Any]) -> Answer:
    who = (
        "An attacker who knows all examples and sees every update of the training guesses the coins: by each example's clipped "
        "gradient times the update, at the weights of that step."
    )
    return Answer(coin_rows(config, found, "From the updates of"), (f"{coins_in_words(config)} {who}",), _NOTE)


_NOTE = (
    "Updates are not released, but the proof holds for whoever sees all of them, so a lower bound above the proved epsilon "
    "contradicts it. The score and the first bound were written in the ledger before training; the other bounds are exploratory."
)

WHITE_BOX = Attack(
    name="white-box",
    title="Lower bound on epsilon by coins, from every noisy update",
    public=False,
    prepare=_prepare,
    answer=_answer,
    subject="the coins of its audit examples",
    counted="comparison",
    asked=lambda config: config.audit is not None and config.audit.white_box,
    of_training=True,
    terms=LOWER_BOUND_TERMS,
    remedy="in a new run, raise audit.coins.examples",
)
"""Whether the updates contradict the certificate."""

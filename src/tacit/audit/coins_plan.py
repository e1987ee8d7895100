"""What can be said of an audit with coins before it is made: are its names known, and can it contradict the claim. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tacit.audit.bounds.bound import MOST_COINS, Bound
from tacit.audit.bounds.evidence import Scores
from tacit.audit.bounds.registry import BOUNDS
from tacit.audit.coin_examples import EXAMPLES
from tacit.audit.coin_scores import SCORES
from tacit.config import CoinOptions, RunConfig
from tacit.errors import UsageError
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.events import Spend
from tacit.privacy.rounded import lower, upper

__all__ = ["COIN_BOUNDS", "check_coin_names", "claimed_epsilon", "coin_warnings"]

COIN_BOUNDS: dict[str, type[Bound[Any]]] = {name: bound for name, bound in BOUNDS.items() if bound.reads is Scores}
"""Those of `BOUNDS` that read one score an example."""


def _options(config: RunConfig) -> CoinOptions | None:
    """The section ``audit.coins``, if there is one."""
    return config.audit.coins if config.audit is not None else None


def check_coin_names(config: RunConfig) -> None:
    """The names in ``audit.coins`` are those of registries that a configuration does not know.

    Raises:
        UsageError: there is no such score, bound or kind of examples; or the kind needs public text, and there is none.
    """
    options = _options(config)
    if options is None:
        return
    _check("kind", options.kind, EXAMPLES)
    _check("score", options.score, SCORES)
    _check("bound", options.bound, COIN_BOUNDS)
    if EXAMPLES[options.kind].reads_public and not config.public:
        raise UsageError(
            f"audit.coins.kind: {options.kind} is made of public text, and there is none; choose another kind"
        )


def _check(option: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UsageError(f"audit.coins.{option}: there is no {name!r}; there are: {', '.join(known)}")


def claimed_epsilon(config: RunConfig, spends: Sequence[Spend]) -> float:
    """The epsilon that coins test: the run's, and with screening that of the phases with noise alone.

    With screening examples are in the private stream, of which ordinary training reads nothing, so for them what follows from the
    phases with noise holds. A public key is charged when the model is released, but makes this epsilon infinite from the start.

    Args:
        spends: all of the run.
    """
    if config.uses_heuristic:
        return math.inf
    if config.screening is not None:
        spends = [spend for spend in spends if spend.event.is_private]
    return joint_epsilon(spends, config.privacy.budget.delta, config.privacy.relation)


def coin_warnings(config: RunConfig, spends: Sequence[Spend]) -> tuple[str, ...]:
    """Whether a perfect attack on so many examples could contradict the epsilon that a run is going to prove.

    Args:
        spends: as planned.
    """
    options = _options(config)
    if options is None:
        return ()
    epsilon = claimed_epsilon(config, spends)
    if math.isinf(epsilon):
        return ("audit.coins: no epsilon is proved, so no lower bound can contradict it",)
    bound, delta = COIN_BOUNDS[options.bound](), config.privacy.budget.delta
    capacity = bound.capacity(options.examples, delta, options.confidence)
    if capacity >= epsilon:
        return ()
    return (
        f"audit.coins: with {options.examples:,} examples even a perfect attack shows no more than epsilon "
        f"{lower(capacity, '.2f')} by {options.bound}, and {upper(epsilon, '.2f')} is to be proved, so the audit will be "
        f"inconclusive: {_enough(bound, epsilon, options, delta)}",
    )


def _enough(bound: Bound[Any], epsilon: float, options: CoinOptions, delta: float) -> str:
    try:
        needed = bound.coins_needed(epsilon, delta, options.confidence)
    except UsageError:
        return f"not even {MOST_COINS:,} examples are enough"
    return f"it takes {needed:,} examples, or a smaller epsilon"

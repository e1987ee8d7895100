"""The attacks that a run can make, in order: one row an attack, with where it is and what it costs. It imports no attack.

Rough, as all of `tacit.planning.duration`; costs decide no number of a guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tacit.config import RunConfig

__all__ = ["ATTACK_STAGES", "AttackStage", "Cost", "NoisyTraining"]


class NoisyTraining(NamedTuple):
    """What a plan knows of the training with noise.

    Args:
        steps: of all phases.
        sequences: that these steps cost.
        control_steps: of the positive control; 0 without one.
    """

    steps: int
    sequences: float
    control_steps: int


class Cost(NamedTuple):
    """What an attack takes.

    Args:
        seconds: whatever the model.
        scored: sequences whose losses are asked of a model.
        trained: sequences of ordinary training.
    """

    seconds: float
    scored: float = 0.0
    trained: float = 0.0


class AttackStage(NamedTuple):
    """A row of `ATTACK_STAGES`.

    Args:
        place: ``"module:name"`` of the `tacit.audit.attack.Attack`.
        cost: of a configuration that asks for it; None of another one.
    """

    place: str
    cost: Callable[[RunConfig, NoisyTraining], Cost | None]


_CANDIDATE_ROWS = 2_000
"""About so many rows is the ranking of all candidates of a causal model's canaries worth (`tacit.audit.trie`)."""


def _models(config: RunConfig) -> int:
    """How many are attacked: the released one, and its control."""
    return 2 if config.audit is not None and config.audit.control else 1


def _exposure(config: RunConfig, training: NoisyTraining) -> Cost | None:
    audit = config.audit
    if audit is None:
        return None
    asked = _CANDIDATE_ROWS if config.model.is_causal else audit.canaries * audit.contexts * len(audit.patterns)
    return Cost(1, scored=_models(config) * asked)


def _planted_contexts(config: RunConfig, training: NoisyTraining) -> Cost | None:
    """The cost of the attack in planted contexts: as much as the exposure's, in other rows."""
    return _exposure(config, training) if config.audit and "planted-contexts" in config.audit.attacks else None


def _membership(config: RunConfig, training: NoisyTraining) -> Cost | None:
    audit = config.audit
    if audit is None or audit.membership is None:
        return None
    options = audit.membership
    showings = audit.enough_control_steps(options.pairs, 1) * audit.control_batch
    return Cost(
        2,
        scored=(_models(config) + options.shadow_models) * 2 * options.pairs,
        trained=options.shadow_models * showings,
    )


def _sides(config: RunConfig) -> int:
    """Under replacement each coin has two examples."""
    return 2 if config.privacy.relation == "replace" else 1


def _coins(config: RunConfig, training: NoisyTraining) -> Cost | None:
    if config.audit is None or config.audit.coins is None:
        return None
    coins = config.audit.coins
    asked = coins.examples * (1 if config.model.is_causal else coins.pieces)
    share = (coins.pieces + 2) / config.model.length
    return Cost(2, scored=(1 + _models(config)) * _sides(config) * asked * share)


_FLOAT64 = 2.0
"""Times the time of float32."""


def _white_box(config: RunConfig, training: NoisyTraining) -> Cost | None:
    """The cost of the white-box attack: each step once more, with three passes over the examples; the stage itself is short."""
    if config.audit is None or config.audit.coins is None or not config.audit.white_box:
        return None
    coins = config.audit.coins
    steps = training.steps + training.control_steps
    again = training.sequences * (2 if config.audit.control == "without-noise" else 1)
    examples = steps * _sides(config) * coins.examples * (coins.pieces + 2) / config.model.length
    return Cost(1, scored=_FLOAT64 * 2 * examples, trained=_FLOAT64 * (again + examples))


ATTACK_STAGES: dict[str, AttackStage] = {
    "audit": AttackStage("tacit.audit.exposure_attack:EXPOSURE", _exposure),
    "planted-contexts": AttackStage("tacit.audit.planted_contexts_attack:PLANTED_CONTEXTS", _planted_contexts),
    "membership": AttackStage("tacit.audit.membership_attack:MEMBERSHIP", _membership),
    "coins": AttackStage("tacit.audit.coins_attack:COINS", _coins),
    "white-box": AttackStage("tacit.audit.white_box_attack:WHITE_BOX", _white_box),
}
"""By `Attack.stage_name`. A run makes them, and a report tells them, in this order."""

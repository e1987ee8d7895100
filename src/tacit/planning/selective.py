"""What selective DP says of a run on marked text, from its configuration alone (`tacit.privacy.selective` has the numbers)."""

from __future__ import annotations

from tacit.config import DpPhase, RunConfig
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.privacy.selective import SelectiveAccount, participations, selective_account, state_spend

__all__ = ["run_account"]


def run_account(config: RunConfig) -> SelectiveAccount | None:
    """The selective-DP account of all phases of all rounds; None of a run without marked text."""
    if config.marking is None:
        return None
    gradients = [_gradients(config, phase) for phase in config.dp_phases]
    states: list[Spend] = []
    for phase in config.selective_phases:
        # Every round permutes the slots anew, so a record may take part once more in each of them.
        takes_part = config.rounds * participations(phase.steps, phase.batch_size, config.privacy.units)
        states.append(state_spend(takes_part, phase.segments, phase.state_noise_multiplier))
    point = "line of a record" if config.marking.data_point == "line" else "record"
    return selective_account(gradients, states, config.privacy.budget.delta, point)


def _gradients(config: RunConfig, phase: DpPhase) -> Spend:
    assert phase.noise_multiplier is not None  # `check_marking`
    event = PoissonGaussian(phase.expected_batch / config.privacy.units, phase.noise_multiplier)
    return Spend(event, config.rounds * phase.steps)

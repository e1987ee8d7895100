"""Selective DP (Shi et al. 2021, arXiv 2108.12944): what its mechanisms cost, composed in one account.

It protects the private tokens of one record, and the record itself not at all: public tokens are trained on without noise, so
no epsilon of the record is finite. Two corpora are neighbours here if they differ in the private tokens of one record, with the
same tokens marked as private. What may depend on these tokens is two kinds of release:

    gradients   DP-SGD on the private tokens of Poisson-sampled records
    states      what a recurrent model carries from a private token to a public one, clipped, with Gaussian noise

A gradient of public tokens shows, having no noise, which records it was drawn from. So the states are accounted without any
amplification by sampling: each participation of a record releases up to ``segments`` states. Everything is under replacement.
Proofs, and where the paper's own account goes wrong: docs/selective-dp.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.errors import UsageError
from tacit.privacy.accounting.accountant import GRIDS, Account, epsilon, rdp_epsilon
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.events import Gaussian, PoissonGaussian, Spend
from tacit.privacy.rounded import upper

__all__ = ["SelectiveAccount", "participations", "selective_account", "state_spend"]

_MOST_CELLS = 300_000
"""Of a loss distribution on a grid. States that are released hundreds of times have a loss in the hundreds."""


def participations(steps: int, batch_size: int, slots: int) -> int:
    """How often a record takes part, at most: ``steps`` steps take batches one after another from permutations of the slots.

    >>> participations(steps=100, batch_size=64, slots=2000)
    4
    """
    if min(steps, batch_size, slots) < 1:
        raise UsageError(f"steps {steps}, batch size {batch_size} and slots {slots} must each be at least 1")
    return -(-steps * batch_size // slots)


def state_spend(takes_part: int, segments: int, noise_multiplier: float) -> Spend:
    """The states of a record that takes part so often and releases at most ``segments`` states each time.

    Args:
        noise_multiplier: standard deviation of the noise over the bound on the state's l2 norm. Under replacement the two
            states are up to twice that bound apart, as `Gaussian` takes it.
    """
    return Spend(Gaussian(noise_multiplier), takes_part * segments)


@dataclass(frozen=True)
class SelectiveAccount:
    """Epsilons at ``delta`` for the private tokens of one data point, all replaced at once.

    Args:
        data_point: what one is, in words: a record, or one of its lines.
        delta: of every epsilon here.
        gradients: of the private phases alone.
        states: of the released states alone.
        together: of all of them; this one holds.
        claimed: as in the paper: gradients alone, a data point added or removed, by Renyi DP.
        releases: states that one data point releases, at most.
    """

    data_point: str
    delta: float
    gradients: float
    states: float
    together: float
    claimed: float
    releases: int

    @property
    def sentence(self) -> str:
        """What holds, and beside it what the paper's own way of counting would say."""
        return (
            f"selective DP: when the private tokens of one {self.data_point} are replaced by as many others, epsilon is "
            f"{upper(self.together)} at delta {self.delta:g} (gradients alone {upper(self.gradients)}, the {self.releases} released "
            f"states alone {upper(self.states)}); "
            f"counted as in the paper, by Renyi DP of the gradients alone and for a {self.data_point} that is added or removed, "
            f"{self.claimed:.4g}"
        )


def selective_account(
    gradients: Sequence[Spend], states: Sequence[Spend], delta: float, data_point: str = "record"
) -> SelectiveAccount:
    """The account of a run, from what its private phases and its released states cost.

    Args:
        gradients: `PoissonGaussian` events.
        states: `Gaussian` events (`state_spend`).
        data_point: what one is, in words.

    Raises:
        UsageError: another kind of event.
    """
    for spends, kind in ((gradients, PoissonGaussian), (states, Gaussian)):
        if any(not isinstance(spend.event, kind) for spend in spends):
            raise UsageError(f"an event here is none of {kind.__name__}, which this account is made for")
    claimed = rdp_epsilon(gradients, delta) if gradients else 0.0
    assert claimed is not None  # there is a Renyi bound of every event under add-or-remove
    return SelectiveAccount(
        data_point=data_point,
        delta=delta,
        gradients=epsilon(gradients, delta, "replace"),
        states=_states_epsilon(states, delta),
        together=_together(gradients, states, delta),
        claimed=claimed,
        releases=sum(spend.count for spend in states),
    )


def _together(gradients: Sequence[Spend], states: Sequence[Spend], delta: float) -> float:
    """One composition; where the loss is in the hundreds, on a coarser grid, or the sum at half of delta each if that is less.

    All of these are upper bounds.
    """
    spends, grid = (*gradients, *states), 16 * _mu(states) / _MOST_CELLS
    if not gradients:
        return _states_epsilon(states, delta)
    if not states or grid <= GRIDS[0]:
        return epsilon(spends, delta, "replace")
    found = Account(spends, "replace", grid).epsilon(delta)
    return min(found, epsilon(gradients, delta / 2, "replace") + _states_epsilon(states, delta / 2))


def _mu(states: Sequence[Spend]) -> float:
    """Sensitivity over noise of the one Gaussian mechanism that the states are together, exactly."""
    squares = [
        state.count * (2 / state.event.noise_multiplier) ** 2 for state in states if isinstance(state.event, Gaussian)
    ]
    return math.sqrt(sum(squares))


def _states_epsilon(states: Sequence[Spend], delta: float) -> float:
    """Epsilon by the closed form of that mechanism (Balle and Wang 2018, theorem 8), rounded up, however large it is."""
    mu = _mu(states)
    low, high = 0.0, mu * mu + 40 * mu + 1.0  # beyond this delta is below 1e-300
    if not states or gaussian_delta(low, mu) <= delta:
        return 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, mu) > delta else (low, middle)
    return high

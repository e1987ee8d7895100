"""Adaptive DP by privacy probability: the section ``adaptive`` (Wu et al. 2022; docs/adaptive.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import field_validator

from tacit.config.base import Count, Options, Positive, Probability, Share, expanded

__all__ = ["AdaptiveOptions", "RhoScorer", "stratum_number"]


class RhoScorer(Options):
    """The public model whose perplexity is a unit's privacy probability; one of the two is given.

    Args:
        phase: a phase on public text of this run, in its first round: the model as it ends.
        folder: a local Hugging Face folder with a causal model, or a run whose phases read public text alone.
        public: the folder was made from public text alone; needed where no certificate lies beside it.
        length: tokens of a window of that folder; as many as its model has positions when not given.
    """

    added_later = frozenset({"public"})

    phase: str | None = None
    folder: str | None = None
    public: bool = False
    length: Count | None = None

    @property
    def resolved_folder(self) -> Path:
        """Where there is a folder: it with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        assert self.folder is not None
        return expanded(self.folder)


class AdaptiveOptions(Options):
    """How much a unit counts by its privacy probability rho, which a public scorer gives it (docs/adaptive.md).

    Not together with ``screening`` or ``marking``, nor under torchrun.

    Args:
        form: ``strata``, each band of rho has its own phases (``stream: stratum-1`` has the lowest rho) with their own noise;
            ``clip-weights``, a unit is clipped at its band's weight times the clip norm, under one noise; ``literal``, the published
            algorithm, a heuristic (``allow: [heuristic:adp]``).
        scorer: where rho comes from.
        lower: ln PPL at which rho is 0, a public constant; given together with ``upper``. Not given: both are taken from public
            held-out text of at least 100 records, as its 5 % and its 95 % quantile.
        upper: ln PPL at which rho is 1.
        thresholds: of rho, rising: K - 1 of them make K bands; not given: one band.
        noise_factors: strata: the noise multiplier of each is this times s; at most 1, and 1 for the last, the most private.
        weights: clip weights, one for each band, at most 1.
        shares: strata: the public statement of which share of the units each has, as ``privacy.units`` is one; equal when not given.
            The sampling probability of a phase is its ``expected_batch`` over its stratum's share of the units.
        budget: epsilon of each band by a name for it: then factors or weights are solved. The largest is of the lowest rho, and so on
            down: the order in the file says nothing.
    """

    form: Literal["strata", "clip-weights", "literal"]
    scorer: RhoScorer
    lower: float | None = None
    upper: float | None = None
    thresholds: tuple[float, ...] = ()
    noise_factors: tuple[Positive, ...] | None = None
    weights: tuple[Probability, ...] | None = None
    shares: tuple[Share, ...] | None = None
    budget: dict[str, Positive] | None = None

    @field_validator("budget")
    @classmethod
    def _falling(cls, budget: dict[str, float] | None) -> dict[str, float] | None:
        """A mapping has no order that a digest or a stored copy would keep, so the values have to give one."""
        return None if budget is None else dict(sorted(budget.items(), key=lambda item: (-item[1], item[0])))

    @property
    def bands(self) -> int:
        """K."""
        return len(self.thresholds) + 1

    @property
    def names(self) -> tuple[str, ...]:
        """Of the bands: those of the budget, else by number."""
        return tuple(self.budget) if self.budget else tuple(f"stratum-{number + 1}" for number in range(self.bands))

    @property
    def stated_shares(self) -> tuple[float, ...]:
        """Of each band; equal when not given."""
        return self.shares or (1 / self.bands,) * self.bands


def stratum_number(stream: str) -> int | None:
    """From 0, of ``stratum-1`` and so on; None of another stream."""
    kind, _, number = stream.partition("-")
    return int(number) - 1 if kind == "stratum" else None

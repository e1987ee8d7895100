"""A plan whose sums and noise are not rounded, for tests that compare them with an oracle to the last digits."""

from __future__ import annotations

import dataclasses
from typing import Self

from tacit.training.plans import DpPlan

__all__ = ["UnroundedPlan"]


class UnroundedPlan(DpPlan):
    """All else is as in a `DpPlan`; what rounding does is in tests/training/test_grid.py. Known wrong of a release: TACIT-45."""

    @property
    def is_on_grid(self) -> bool:
        return False

    @classmethod
    def of(cls, plan: DpPlan) -> Self:
        """The same numbers."""
        return cls(**{field.name: getattr(plan, field.name) for field in dataclasses.fields(DpPlan)})

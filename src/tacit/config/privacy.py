"""What is protected, and how well: the section ``privacy``."""

from __future__ import annotations

from typing import Literal

from tacit.config.base import Count, Options, Positive, Share

__all__ = ["Budget", "PrivacyOptions", "TupleUnit"]


class Budget(Options):
    """The joint budget of everything that is released."""

    epsilon: Positive
    delta: Share


class TupleUnit(Options):
    """Units of this many words, cut inside a document (the setting of Hoory et al.)."""

    tuple: Count


class PrivacyOptions(Options):
    """What is protected, and how well.

    Args:
        unit: record, document, user, or ``{tuple: 256}``.
        units: how many units there are, as a public statement: sampling probability and normaliser are computed from it and
            never from the data.
        relation: ``add-or-remove`` or ``replace``.
        budget: the joint epsilon and delta.
    """

    unit: Literal["record", "document", "user"] | TupleUnit
    units: Count
    relation: Literal["add-or-remove", "replace"] = "add-or-remove"
    budget: Budget

    @property
    def unit_name(self) -> str:
        """The unit in words."""
        return f"{self.unit.tuple}-word tuple" if isinstance(self.unit, TupleUnit) else self.unit

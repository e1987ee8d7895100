"""What is protected, and how well: the section ``privacy``."""

from __future__ import annotations

from typing import Literal

from tacit.config.base import Count, Options, Positive, Share

__all__ = ["Budget", "PrivacyOptions", "TupleUnit"]


class Budget(Options):
    """The joint budget of everything that is released.

    Args:
        epsilon: the bound on the joint epsilon.
        delta: the joint delta; below one over the number of units.
    """

    epsilon: Positive
    delta: Share


class TupleUnit(Options):
    """The unit is one of the pieces of so many words into which a document is cut (the setting of Hoory et al.).

    So many words that lie across a cut are of two units, and have the weaker bound of two.

    Args:
        tuple: words of a piece.
    """

    tuple: Count

    @property
    def description(self) -> str:
        """What is protected: a piece as it was cut, and not any stretch of so many words."""
        return f"one of the pieces of {self.tuple} words into which a document is cut"


class PrivacyOptions(Options):
    """What is protected, and how well.

    Args:
        unit: ``record``, each record alone; ``document``, all records with one document id (``id_field``); ``user``, all records
            with one user id (``user_field``), over all documents; or ``{tuple: 256}``, one of the pieces of 256 words into which a
            document is cut.
        units: how many units there are, as a public statement: sampling probability and normaliser are computed from it and
            never from the data.
        relation: neighbouring corpora differ by one unit added or removed (``add-or-remove``), or exchanged (``replace``).
        budget: epsilon and delta of everything together.
    """

    unit: Literal["record", "document", "user"] | TupleUnit
    units: Count
    relation: Literal["add-or-remove", "replace"] = "add-or-remove"
    budget: Budget

    @property
    def unit_name(self) -> str:
        """The unit in words."""
        return f"{self.unit.tuple}-word tuple" if isinstance(self.unit, TupleUnit) else self.unit

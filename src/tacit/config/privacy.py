"""What is protected, and how well: the section ``privacy``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tacit.config.base import Count, Options, Positive, Share
from tacit.config.vocabulary_methods import METHODS
from tacit.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["Budget", "PrivacyOptions", "TupleUnit", "check_budget", "check_data_points", "check_users"]


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


def check_budget(config: RunConfig) -> None:
    """Delta is too small for a mechanism that publishes a unit now and then."""
    privacy = config.privacy
    if privacy.budget.delta >= 1 / privacy.units:
        raise RefusedError(
            "delta-too-large",
            f"privacy.budget.delta is {privacy.budget.delta:g} but must be below 1/privacy.units = {1 / privacy.units:.3g}: "
            "a larger delta allows publishing a whole unit",
        )


def check_users(config: RunConfig) -> None:
    """Where a user is the unit, the corpus says whose a record is."""
    if config.privacy.unit == "user" and config.private.user_field is None:
        raise UsageError(
            "privacy.unit is user but private.user_field is not set: name the field that holds the user's id"
        )


def check_data_points(
    config: RunConfig, section: Literal["screening", "marking"], other_relation: RefusedError, why_outside: str
) -> None:
    """Check that with screening or marking the unit is a data point whose text is exchanged, and no histogram counts its words."""
    if config.privacy.relation != "replace":
        raise other_relation
    if config.privacy.unit != "record":
        raise UsageError(f"privacy.unit must be record with {section}: the unit is a data point ({section}.data_point)")
    if config.vocabulary.how.counts_private_text:
        others = " or ".join(name for name, method in METHODS.items() if not method.counts_private_text)
        raise UsageError(f"vocabulary.method must be {others} with {section}: {why_outside}")

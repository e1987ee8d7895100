"""What an attacker found: scores of examples with coins, or ranks of secrets.

Legend: m audit examples, T secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from tacit.errors import DataError, UsageError
from tacit.privacy.events.base import Relation, check_relation

__all__ = ["Ranks", "Scores"]

_UNFAIR = 1e-9
"""Fair coins are so uneven once in a billion audits."""


@dataclass(frozen=True, eq=False)
class Scores:
    """One score an audit example, and whether a coin put it into the training data.

    Args:
        scores_m: (m,), larger is more like a member. A score is made from the release and from what is known without the coins,
            never from the coins.
        included_m: bool (m,): independent fair coins, drawn before the training.
        order_m: a permutation of 0..m-1, drawn from a key that neither coins nor scores depend on. Bounds that choose a threshold
            choose it on its first part and test it on the rest. None: those bounds are refused.
        relation: the neighbours between which a coin decides: an example in or out, or ("replace") an example or another in its
            place.

    Raises:
        UsageError: the shapes do not fit, ``included_m`` is not of bools or cannot be of fair coins, ``order_m`` is no
            permutation, or the relation is unknown.
        DataError: a score is not a finite number.
    """

    scores_m: np.ndarray
    included_m: np.ndarray
    order_m: np.ndarray | None = None
    relation: Relation = "add-or-remove"

    def __post_init__(self) -> None:
        if self.scores_m.ndim != 1 or self.scores_m.shape != self.included_m.shape or len(self.scores_m) == 0:
            raise UsageError("an audit needs one score and one coin for each example, and at least one example")
        if self.included_m.dtype != np.bool_:
            raise UsageError("the coins of an audit must be an array of bools")
        size, fewer = len(self.included_m), min(np.count_nonzero(self.included_m), np.count_nonzero(~self.included_m))
        if 2 * special.bdtr(fewer, size, 0.5) < _UNFAIR:
            raise UsageError(
                "the coins of an audit are not fair; members and non-members of another source are no coins"
            )
        if self.order_m is not None and not np.array_equal(np.sort(self.order_m), np.arange(len(self.scores_m))):
            raise UsageError("order_m of an audit must be a permutation of the examples")
        check_relation(self.relation)
        if not np.isfinite(self.scores_m).all():
            raise DataError("a score of the audit is not a finite number; the model's weights are broken")


@dataclass(frozen=True, eq=False)
class Ranks:
    """The rank of each planted secret among all its candidates, by the attacker's order; 1 is the likeliest.

    Args:
        ranks_T: (T,), ties count half: a secret that shares the first place has rank 1.5 or more, and is not found. The order is made
            from the release and from what is known without the secrets.

    Raises:
        UsageError: not one rank of at least 1 for each secret, and at least one secret.
    """

    ranks_T: np.ndarray

    relation: ClassVar[Relation] = "replace"
    """Of the units that hold a secret, by the same with another secret."""

    def __post_init__(self) -> None:
        if self.ranks_T.ndim != 1 or len(self.ranks_T) == 0 or not (self.ranks_T >= 1).all():
            raise UsageError("a guessing game needs one rank of at least 1 for each secret, and at least one secret")

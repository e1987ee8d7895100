"""Audit examples with coins: rows, each a unit of its own that is trained on, or not, as a fair coin says.

Coins are a function of the run's key alone. So they say nothing of the text, and no unit of the text changes when the examples are
put beside it. Whoever knows the examples and not the coins guesses the coins from the model; how often such a guess can be right is
what differential privacy bounds (Steinke, Nasr, Jagielski 2023, arXiv 2305.08846). `tacit.audit.coins_attack` makes the guesses.

Shapes: m coins, P pieces of an example, T positions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from tacit.randomness import KeyedRandomness

__all__ = ["Coins", "toss_coins"]


@dataclass(frozen=True, eq=False)
class Coins:
    """Audit examples. Secret until the run is over: whoever knows the coins need not ask the model.

    Args:
        ids_mT: the rows: a start token, the pieces, an end token, and padding.
        others_mT: with replace-one neighbours the rows that are trained on in place of these; None: nothing is.
        length: real positions of every row.
        included_m: the coins.
        order_m: the examples in an order of their own, for bounds that choose a threshold on some of them.
        commitment: a digest of all that, which gives nothing away without the key, for the ledger.
    """

    ids_mT: np.ndarray
    others_mT: np.ndarray | None
    length: int
    included_m: np.ndarray
    order_m: np.ndarray
    commitment: str

    @property
    def planted_PT(self) -> np.ndarray:
        """The rows that are trained on, in the order of their coins."""
        if self.others_mT is None:
            return self.ids_mT[self.included_m]
        return np.where(self.included_m[:, None], self.ids_mT, self.others_mT)

    @property
    def planted_numbers(self) -> np.ndarray:
        """The coin of each of them, counted from 0."""
        return np.flatnonzero(self.included_m) if self.others_mT is None else np.arange(len(self.included_m))

    def __repr__(self) -> str:
        return f"Coins({len(self.included_m)} examples, <secret>)"


def toss_coins(
    bodies_mP: np.ndarray,
    others_mP: np.ndarray | None,
    ends: tuple[int, int, int],
    width: int,
    streams: KeyedRandomness,
) -> Coins:
    """Make rows of the pieces, and toss a coin for each.

    Args:
        bodies_mP: ids.
        others_mP: with replace-one neighbours, of the rows in place of these; else None.
        ends: ids of the start token, the end token and padding.
        width: T.
        streams: of the coins alone.
    """
    examples, pieces = bodies_mP.shape

    def rows(body_mP: np.ndarray) -> np.ndarray:
        ids_mT = np.full((examples, width), ends[2], dtype=np.int32)
        ids_mT[:, 0] = ends[0]
        ids_mT[:, 1 : 1 + pieces] = body_mP
        ids_mT[:, 1 + pieces] = ends[1]
        return ids_mT

    ids_mT, others_mT = rows(bodies_mP), None if others_mP is None else rows(others_mP)
    included_m = streams.generator("coins").integers(2, size=examples).astype(bool)
    order_m = streams.generator("order").permutation(examples)
    digest = hashlib.blake2b(key=streams.derive("commitment"), digest_size=32, person=b"tacit-coins")
    for part in (ids_mT, others_mT, included_m, order_m):
        digest.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
    return Coins(ids_mT, others_mT, pieces + 2, included_m, order_m, digest.hexdigest())

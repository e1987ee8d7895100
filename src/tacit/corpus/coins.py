"""Audit examples with coins: rows of random pieces, each a unit of its own that is trained on, or not, as a fair coin says.

Rows and coins are functions of the run's key alone, so they say nothing of the text, and no unit of the text changes when they are
put beside it. Whoever knows the rows and not the coins guesses the coins from the model; how often such a guess can be right is what
differential privacy bounds (Steinke, Nasr, Jagielski 2023, arXiv 2305.08846). `tacit.audit.coins` makes the guesses.

Shapes: m coins, T positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.randomness import KeyedRandomness

__all__ = ["Coins", "toss_coins"]


@dataclass(frozen=True, eq=False)
class Coins:
    """Audit examples. Secret until the run is over: whoever knows the coins need not ask the model.

    Args:
        ids_mT: the rows: a start token, random pieces, an end token, and padding.
        others_mT: with replace-one neighbours the rows that are trained on in place of these; None: nothing is.
        length: real positions of every row.
        included_m: the coins.
        commitment: a digest of rows and coins that gives nothing away without the key, for the ledger.
    """

    ids_mT: np.ndarray
    others_mT: np.ndarray | None
    length: int
    included_m: np.ndarray
    commitment: str

    @property
    def planted_PT(self) -> np.ndarray:
        """The P rows that are trained on, in the order of their coins."""
        if self.others_mT is None:
            return self.ids_mT[self.included_m]
        return np.where(self.included_m[:, None], self.ids_mT, self.others_mT)

    def __repr__(self) -> str:
        return f"Coins({len(self.included_m)} examples, <secret>)"


def toss_coins(
    examples: int,
    pieces: int,
    ordinary: Sequence[int] | np.ndarray,
    ends: tuple[int, int, int],
    width: int,
    replace: bool,
    streams: KeyedRandomness,
) -> Coins:
    """Draw rows and coins from the key.

    Args:
        examples: m.
        pieces: of a row, uniform over ``ordinary``.
        ordinary: ids that stand for text.
        ends: ids of the start token, the end token and padding.
        width: T.
        replace: whether a coin chooses between two rows, or between a row and none.
        streams: of the coins alone.
    """
    ordinary = np.asarray(ordinary)

    def rows(side: str) -> np.ndarray:
        drawn_mP = streams.generator("examples", side).integers(len(ordinary), size=(examples, pieces))
        ids_mT = np.full((examples, width), ends[2], dtype=np.int32)
        ids_mT[:, 0] = ends[0]
        ids_mT[:, 1 : 1 + pieces] = ordinary[drawn_mP]
        ids_mT[:, 1 + pieces] = ends[1]
        return ids_mT

    ids_mT, others_mT = rows("these"), rows("others") if replace else None
    included_m = streams.generator("coins").integers(2, size=examples).astype(bool)
    digest = hashlib.blake2b(key=streams.derive("commitment"), digest_size=32, person=b"tacit-coins")
    for part in (ids_mT, others_mT, included_m):
        digest.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
    return Coins(ids_mT, others_mT, pieces + 2, included_m, digest.hexdigest())

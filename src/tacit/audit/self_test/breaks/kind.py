"""What a break is: a way to make steps wrongly, and the audit that is to find it."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.audit.bounds.bound import Bound
from tacit.audit.bounds.evidence import Scores
from tacit.audit.self_test.games import Game
from tacit.training.dp_step import DpStep

__all__ = ["Break"]


@dataclass(frozen=True)
class Break:
    """A member of `BREAKS`.

    Args:
        title: what is wrong, in a few words.
        made_by: makes the wrong steps.
        game: in which it shows; the correct engine plays it too, and must not be accused.
        bound: for its scores.
        granted: why what the bound assumes holds here; "" where it assumes nothing.
    """

    title: str
    made_by: type[DpStep]
    game: Game
    bound: Bound[Scores]
    granted: str = ""

"""A piece of work as a list of stages: each leaves its result on disk, which is how it is seen to be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tacit.errors import UsageError
from tacit.progress import without_warnings

__all__ = ["RELEASE", "Stage", "always", "names_of", "walk"]

RELEASE = "release"
"""The stage after which no earlier one is done again, even if the files that it left have been deleted since."""

_State = TypeVar("_State")


@dataclass(frozen=True)
class Stage(Generic[_State]):
    """One step.

    Args:
        name: unlike those of the others.
        asked: whether a configuration has this stage.
        done: whether its result is on disk, whole.
        do: makes it; what it releases is in the ledger before it is there.
    """

    name: str
    asked: Callable[[Any], bool]
    done: Callable[[_State], bool]
    do: Callable[[_State], object]


def always(config: object) -> bool:
    """A value for `Stage.asked`: every configuration has this stage."""
    return True


def names_of(stages: Sequence[Stage[Any]], until: str | None = None) -> list[str]:
    """Names in order, up to and with one of them.

    Raises:
        UsageError: there is no stage ``until``.
    """
    names = [stage.name for stage in stages]
    if until is not None and until not in names:
        raise UsageError(f"there is no stage {until!r}; the stages are {', '.join(names)}")
    return names if until is None else names[: names.index(until) + 1]


def walk(
    stages: Sequence[Stage[_State]], state: _State, config: object, until: str, say: Callable[[str], None]
) -> None:
    """Do what is left, in order, up to and with the stage ``until`` (or, where ``config`` has no such stage, the one before it).

    Raises:
        UsageError: there is no such stage.
    """
    wanted = names_of(stages, until)
    asked = [stage for stage in stages if stage.asked(config)]
    if any(stage.name == RELEASE and stage.done(state) for stage in asked):
        wanted = wanted[names_of(stages).index(RELEASE) + 1 :]
    for number, stage in enumerate(asked, start=1):
        if stage.name in wanted and not stage.done(state):
            say(f"Stage {number} of {len(asked)}: {stage.name}")
            with without_warnings():
                stage.do(state)

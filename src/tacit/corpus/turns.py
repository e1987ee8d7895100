"""Dialogues as text, one turn a line: for corpora whose records hold a list of turns instead of a text.

A turn is a list, ``["U", "Hello.", ...]``, or an object, ``{"speaker": "USER", "utterance": "Hello.", ...}``. A line break inside
a turn becomes a blank, so that a line of the text is a turn and nothing else (``screening.data_point: line``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tacit.errors import DataError, UsageError

__all__ = ["Turn", "Turns", "dialogue_text", "one_line", "read_turn"]

_LINE_BREAKS = re.compile(r"[\r\n]+")  # what `tacit.screening.split.data_points` cuts at


@dataclass(frozen=True, slots=True)
class Turns:
    """How a list of turns is read.

    Args:
        text: where a turn's text is: a place from 0 in a list, or a field of an object.
        speaker: where its speaker is, who stands before the text as in ``USR: Hello.``; None: the text stands alone.
        names: words for speakers; one who is not here keeps the corpus's own word. The default makes Schema-Guided Dialogue and
            MultiWOZ look like CustomerSim, in words that the conservative policy knows as safe; single letters it does not.

    Raises:
        UsageError: a place is below 0.
    """

    text: int | str = 1
    speaker: int | str | None = 0
    names: Mapping[str, str] = field(default_factory=lambda: {"U": "USR", "S": "SYS"})

    def __post_init__(self) -> None:
        for name, where in (("text", self.text), ("speaker", self.speaker)):
            if isinstance(where, int) and where < 0:
                raise UsageError(f"turns.{name} is {where}; places in a turn are counted from 0")


class Turn(NamedTuple):
    """One turn; private. ``speaker`` is what stands before the text, such as ``USR: ``, or nothing."""

    speaker: str
    text: str

    @property
    def line(self) -> str:
        """The turn as a line; empty where nothing is said."""
        return self.speaker + self.text if self.text.strip() else ""

    def __repr__(self) -> str:
        return "Turn(<private>)"


def dialogue_text(values: Any, turns: Turns, place: str, text_field: str) -> str:
    """The lines of a dialogue; turns without text are left out.

    Args:
        values: what the record holds in its field ``text_field``.
        place: file and line, for errors.

    Raises:
        DataError: it is no list, or a turn has no text or speaker where the options say.
    """
    if not isinstance(values, list):
        raise DataError(
            f"{place}: the field {text_field!r} is no list of turns; set the option text_field to the list, or leave out turns"
        )
    lines = (read_turn(turn, turns, f"{place}, turn {number}").line for number, turn in enumerate(values, start=1))
    return "\n".join(filter(None, lines))


def read_turn(turn: Any, turns: Turns, place: str) -> Turn:
    """One turn, without line breaks.

    Raises:
        DataError: as `dialogue_text`.
    """
    text = one_line(_string(turn, turns.text, "turns.text", place))
    if turns.speaker is None:
        return Turn("", text)
    speaker = one_line(_string(turn, turns.speaker, "turns.speaker", place))
    return Turn(f"{one_line(turns.names.get(speaker, speaker))}: ", text)


def one_line(text: str) -> str:
    """The text with one blank for each line break and the blanks around it; a text without a line break as it is.

    >>> one_line("Booked . \\n Reference number is : A1 .\\n")
    'Booked . Reference number is : A1 .'
    """
    pieces = _LINE_BREAKS.split(text)
    return text if len(pieces) == 1 else " ".join(filter(None, map(str.strip, pieces)))


def _string(turn: Any, where: int | str, option: str, place: str) -> str:
    """What stands there; no error shows a value or a field that the turn has, which may be private."""
    if isinstance(turn, list):
        if isinstance(where, str):
            raise DataError(f"{place}: the turn is a list; set the option {option} to a place in it, such as 1")
        if where >= len(turn):
            raise DataError(f"{place}: the turn has no place {where} (the first is 0); set the option {option}")
        value = turn[where]
    elif isinstance(turn, dict):
        if where not in turn:
            raise DataError(
                f"{place}: the turn has no field {where!r}; set the option {option} to a field that is there"
            )
        value = turn[where]
    else:
        raise DataError(
            f"{place}: a turn must be a list or an object; set the option text_field to a list of such turns"
        )
    if not isinstance(value, str):
        raise DataError(f"{place}: what the option {option} names is not a string; set it to what is one")
    return value

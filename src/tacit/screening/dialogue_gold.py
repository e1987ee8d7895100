"""Gold records for `tacit screen --measure` from dialogues whose slots have places: Schema-Guided Dialogue, MultiWOZ 2.2.

Their turns are ``{"utterance": ..., "frames": [{"slots": [{"slot": ..., "start": ..., "exclusive_end": ...}, ...]}, ...]}``; a turn
``[speaker, text, [[start, end, slot, ...], ...]]`` is read too. Offsets are code points, ends exclusive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from tacit.corpus.readers import read_objects
from tacit.corpus.source import Source
from tacit.errors import DataError
from tacit.screening.measure import GoldRecord, GoldSpan

__all__ = ["dialogue_gold"]


def dialogue_gold(source: Source, slots: Collection[str] | None = None) -> Iterator[GoldRecord]:
    """A record for each turn, in the order of the files.

    Args:
        source: JSON files of dialogues; ``text_field`` is the list of turns.
        slots: those that are secrets; None: all. Turns without one of these are left out.

    Raises:
        DataError: a dialogue has no such turns, or a slot lies outside its text. It names file and line, and holds no text.
    """
    for place, dialogue in read_objects(source):
        turns = dialogue.get(source.text_field)
        if not isinstance(turns, list):
            raise DataError(
                f"{place}: there is no list of turns in {source.text_field!r}; set text_field to where it is"
            )
        for number, turn in enumerate(turns, start=1):
            text, spans = _read(turn, f"{place}, turn {number}")
            kept = _disjoint(sorted(span for span in spans if slots is None or span[2] in slots))
            if kept:
                yield GoldRecord(text, tuple(kept))


def _read(turn: Any, place: str) -> tuple[str, list[GoldSpan]]:
    match turn:
        case {"utterance": str(text)}:
            spans = _frame_slots(turn.get("frames", []))
        case [str(), str(text), list(spans), *_]:
            pass
        case _:
            raise DataError(f"{place}: a turn is an object with an utterance, or [speaker, text, slots]")
    if spans is None:
        raise DataError(f'{place}: its frames are no list of {{"slots": [{{...}}, ...]}}')
    return text, [_checked(span, len(text), place) for span in spans]


def _frame_slots(frames: Any) -> list[Any] | None:
    """[start, end, slot] of the slots that have a place in this turn (others are copied from elsewhere); None for no frames."""
    try:
        slots = [slot for frame in frames for slot in frame.get("slots", []) if "start" in slot]
        return [[slot["start"], slot.get("exclusive_end"), slot.get("slot")] for slot in slots]
    except (AttributeError, TypeError):
        return None


def _checked(span: Any, length: int, place: str) -> GoldSpan:
    match span:
        case [int(start), int(end), str(label), *_] if 0 <= start < end <= length:
            return start, end, label
    raise DataError(f"{place}: a slot is no [start, end, name] inside the text (0 to {length} code points)")


def _disjoint(spans: list[GoldSpan]) -> list[GoldSpan]:
    """Overlapping spans as one, with the name of the first: it counts as found when all of it is marked."""
    found: list[GoldSpan] = []
    for start, end, label in spans:
        if found and start < found[-1][1]:
            first, last, name = found[-1]
            found[-1] = (first, max(last, end), name)
        else:
            found.append((start, end, label))
    return found

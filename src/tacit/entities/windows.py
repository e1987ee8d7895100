"""Long documents as overlapping windows in which every word is judged exactly once, where it has most context.

A word is judged by its first piece (Devlin et al. 2019, section 5.3). Two windows overlap by some pieces; the first half of an
overlap is judged by the window before, the second half by the one behind, so an entity that lies on the cut is seen whole by
at least one of them and no word of it is lost or judged twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Window", "cut_windows"]


@dataclass(frozen=True, slots=True)
class Window:
    """Words ``first`` to ``last - 1`` of a document are shown, of which ``judged_first`` to ``judged_last - 1`` are judged."""

    first: int
    last: int
    judged_first: int
    judged_last: int


def cut_windows(sizes: Sequence[int], room: int, overlap: int) -> list[Window]:
    """Cut a document.

    >>> cut_windows([1] * 6, room=4, overlap=2)
    [Window(first=0, last=4, judged_first=0, judged_last=3), Window(first=2, last=6, judged_first=3, judged_last=6)]

    Args:
        sizes: pieces of each word, from 1 to ``room``.
        room: pieces of a window.
        overlap: pieces that two neighbouring windows share, at least as far as words and the next word's size let them.

    Raises:
        ValueError: a word has no piece or too many, or the overlap leaves no room.
    """
    if not 0 <= overlap < room:
        raise ValueError(f"the overlap is {overlap}; it must be from 0 to {room - 1}")
    if any(not 1 <= size <= room for size in sizes):
        raise ValueError(f"every word must have from 1 to {room} pieces")
    spans = _spans(sizes, room, overlap)
    windows: list[Window] = []
    judged = 0
    for number, (first, last) in enumerate(spans):
        until = last if number + 1 == len(spans) else _middle(spans[number + 1][0], last)
        windows.append(Window(first, last, judged, until))
        judged = until
    return windows


def _spans(sizes: Sequence[int], room: int, overlap: int) -> list[tuple[int, int]]:
    """The words of each window: as many as fit; the next one begins ``overlap`` pieces before this one's end."""
    spans: list[tuple[int, int]] = []
    first = 0
    while first < len(sizes):
        last, pieces = first, 0
        while last < len(sizes) and pieces + sizes[last] <= room:
            pieces += sizes[last]
            last += 1
        spans.append((first, last))
        if last == len(sizes):
            break
        first = _next_first(sizes, room, overlap, first, last)
    return spans


def _next_first(sizes: Sequence[int], room: int, overlap: int, first: int, last: int) -> int:
    """Where the next window begins: it must be behind this one's first word, and have room for the word behind its last."""
    begin, shared = last, 0
    while begin > first + 1 and shared < overlap and shared + sizes[begin - 1] + sizes[last] <= room:
        begin -= 1
        shared += sizes[begin]
    return begin


def _middle(first: int, last: int) -> int:
    return (first + last + 1) // 2

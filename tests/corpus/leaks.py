"""Where an exception could carry private text."""

from __future__ import annotations

import traceback
from collections.abc import Iterator


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and everything that hangs on it, suppressed contexts included."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is not None and current not in seen:
            seen.append(current)
            waiting += [current.__cause__, current.__context__]
    return iter(seen)


def leaks(error: BaseException, sentinel: str) -> bool:
    """Whether the sentinel is in the rendered traceback, or in a message or an attribute of any chained exception."""
    held = ["".join(traceback.format_exception(error))]
    for current in chain(error):
        named = [getattr(current, name, "") for name in ("object", "doc")]  # of Unicode and JSON errors
        held += [str(current), repr(current.args), repr(vars(current)), repr(named)]
    return any(sentinel in text for text in held)

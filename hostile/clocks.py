"""A clock that shows another time, for one process: what `datetime.datetime.now` and `time.time` answer. Files keep the real time.

`tacit` reads the time of day in one place, for the day on which a run begins; all durations come from the monotonic clock, which
no one sets.
"""

from __future__ import annotations

import datetime
import time

__all__ = ["show_clock"]

_REAL = datetime.datetime


class _Kind(type):
    """Real times count as times, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL)


def show_clock(at: float) -> None:
    """From now on this process sees this time, in seconds since 1970, and it does not go on."""

    class Shown(_REAL, metaclass=_Kind):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return _REAL.fromtimestamp(at, tz)

        @classmethod
        def utcnow(cls) -> datetime.datetime:
            return _REAL.fromtimestamp(at, datetime.UTC).replace(tzinfo=None)

    datetime.datetime = Shown
    time.time = lambda: at

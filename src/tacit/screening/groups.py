"""Groups of data points: no document, or user, may have more of them than the confidentiality statement claims.

The statement covers a group by replacing all its data points at once (tacit.privacy.accounting.replacement), as many as were
claimed. A corpus with a larger group would make it false, so such a corpus is refused before anything is written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from tacit.corpus.records import Record
from tacit.errors import DataError, UsageError
from tacit.screening.split import DataPoint, data_points

__all__ = ["GroupLimit", "GroupSizes"]


@dataclass(frozen=True)
class GroupLimit:
    """What is claimed of a corpus: no group has more than ``most`` data points.

    Args:
        by: ``document`` or ``user``, whose data points are a group.
        most: at least 1.

    Raises:
        UsageError: an unknown choice, or a number out of range.
    """

    by: Literal["document", "user"]
    most: int

    def __post_init__(self) -> None:
        if self.by not in ("document", "user"):
            raise UsageError(f"group.by is {self.by!r}; it must be document or user")
        if self.most < 1:
            raise UsageError(f"group.most is {self.most}; it must be at least 1")


class GroupSizes:
    """Counts each group's data points as the records come by; held-out documents count too, which is the safe side.

    Memory grows with the groups, by an id and a number for each. No error says how large a group is, or whose.
    """

    def __init__(self, limit: GroupLimit, kind: DataPoint) -> None:
        self._limit = limit
        self._kind: DataPoint = kind
        self._sizes: Counter[str] = Counter()

    def add(self, number: int, record: Record) -> None:
        """Count a record, the ``number``-th of the corpus.

        Raises:
            DataError: its group is larger than the limit, or it has no user.
        """
        group = record.document_id if self._limit.by == "document" else record.user_id
        if group is None:
            raise DataError(
                f"record {number} of the corpus has no user id; set the option user_field, or group by document"
            )
        self._sizes[group] += len(data_points(record.text, self._kind))
        if self._sizes[group] > self._limit.most:
            raise DataError(
                f"record {number} of the corpus: with it, its {self._limit.by} has more than {self._limit.most} data points, "
                "which is more than screening.group.most claims; claim more, or leave larger groups out"
            )

"""What a screening leaves beside its files: the receipt, and the counts in it. All of it is private."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tacit.screening.split import Tally

__all__ = ["Counts", "Receipt"]


@dataclass
class Counts(Tally):
    """What was counted; private, every one of them. What `Tally` has, and

    Args:
        records, held_out: records read, and those of them that are kept apart.
        public, private: data points of the streams; together all ``data_points``.
        only_mask: data points whose text is ``<MASK>`` in the end, duplicates included.
        duplicates: copies that were masked.
        public_characters, private_characters: code points of the streams.
        bytes: of all records' text in UTF-8.
    """

    records: int = 0
    held_out: int = 0
    public: int = 0
    private: int = 0
    only_mask: int = 0
    duplicates: int = 0
    public_characters: int = 0
    private_characters: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Receipt:
    """What screening did. It is the curator's and must stay private: the counts are exact functions of the private text.

    Args:
        plan: the plan, with name and digest of both policies; a screening that goes on must agree with it.
        corpus: keyed digest of the records in their order; without the key it confirms no guess.
        counts: see `Counts`.
        deduplication: how copies were treated, and how many data points one can change (docs/deduplication.md); or None.
        seconds: wall-clock time, over all starts.
        megabytes_per_second: text read, by that time.
    """

    plan: dict[str, Any]
    corpus: str
    counts: Counts
    deduplication: dict[str, Any] | None
    seconds: float
    megabytes_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """What `to_dict` gave."""
        return cls(**{**values, "counts": Counts(**values["counts"])})

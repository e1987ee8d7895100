"""The units of a corpus on disk, written once (`tacit.corpus.unit_writing`) and read one by one.

Texts lie in one file in the order of the records, each once; arrays say which of them are a unit's.

Shapes: U units, N texts, B bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from tacit.corpus.units import Unit
from tacit.storage.arrays import DiskArray, open_arrays

__all__ = ["HELD_OUT", "TRAINING", "UNITS_AT_ONCE", "StoredUnits", "UnitStore", "decoded", "open_units"]

UNITS_AT_ONCE = 4096
"""How many are read or written together."""
TRAINING = "training"
"""How the files of the one side begin."""
HELD_OUT = "held_out"
"""How those of the other side begin."""


class StoredUnits(Sequence[Unit]):
    """Units on disk, no two of one id, in the order of their ids within a part; and others behind them.

    Args:
        store: the name of what they lie in.
        arrays: of one side of a store, by name.
        texts_B: the bytes of all texts.
        behind: more units.
    """

    def __init__(
        self, store: str, arrays: dict[str, DiskArray], texts_B: DiskArray, behind: Sequence[Unit] = ()
    ) -> None:
        self._store = store
        self._arrays = arrays
        self._texts_B = texts_B
        self._behind = behind
        self._stored = len(arrays["id_ends_U"])

    def followed_by(self, behind: Sequence[Unit]) -> StoredUnits:
        """These units with others behind them. Who counts by units sees to it that no id is there twice."""
        assert not self._behind
        return StoredUnits(self._store, self._arrays, self._texts_B, behind)

    @property
    def behind(self) -> Sequence[Unit]:
        """The units that are not in the store."""
        return self._behind

    @property
    def stores(self) -> list[str]:
        """The names of the stores that the units lie in."""
        return [self._store, *(self._behind.stores if isinstance(self._behind, StoredUnits) else [])]

    def __len__(self) -> int:
        return self._stored + len(self._behind)

    @overload
    def __getitem__(self, index: int) -> Unit: ...
    @overload
    def __getitem__(self, index: slice) -> list[Unit]: ...
    def __getitem__(self, index: int | slice) -> Unit | list[Unit]:
        if isinstance(index, slice):
            places = range(*index.indices(len(self)))
            return self._between(places.start, places.stop) if places.step == 1 else [self[place] for place in places]
        place = range(len(self))[index]
        return self._behind[place - self._stored] if place >= self._stored else next(self._read(place, place + 1))

    def _between(self, start: int, end: int) -> list[Unit]:
        stored = min(end, self._stored)
        behind = slice(max(start - self._stored, 0), max(end - self._stored, 0))
        return [*(self._read(start, stored) if start < stored else ()), *self._behind[behind]]

    def __iter__(self) -> Iterator[Unit]:
        for start in range(0, self._stored, UNITS_AT_ONCE):
            yield from self._read(start, min(start + UNITS_AT_ONCE, self._stored))
        yield from self._behind

    def __repr__(self) -> str:
        return f"StoredUnits(<private>, units={len(self)})"

    def _read(self, start: int, end: int) -> Iterator[Unit]:
        arrays = self._arrays
        id_ends, text_ends = (_with_start(arrays[name], start, end) for name in ("id_ends_U", "text_ends_U"))
        ids = arrays["ids_B"][id_ends[0] : id_ends[-1]].tobytes()
        at, sizes = (arrays[name][text_ends[0] : text_ends[-1]].tolist() for name in ("at_N", "sizes_N"))
        for number in range(end - start):
            own = range(text_ends[number] - text_ends[0], text_ends[number + 1] - text_ends[0])
            unit_id = decoded(ids[id_ends[number] - id_ends[0] : id_ends[number + 1] - id_ends[0]])
            yield Unit(unit_id, tuple(_text(self._texts_B, at[text], sizes[text]) for text in own))


@dataclass(frozen=True)
class UnitStore:
    """What `tacit.corpus.unit_writing` wrote.

    Args:
        training: the units that are not held out.
        held_out: the others.
        fingerprint: `tacit.corpus.units.unit_fingerprint` of all units in order.
    """

    training: StoredUnits
    held_out: StoredUnits
    fingerprint: str

    def __iter__(self) -> Iterator[Unit]:
        """All units of both sides, in the order of their ids' code points; of a store that was written of one part."""
        return heapq.merge(self.training, self.held_out, key=lambda unit: unit.unit_id)


def open_units(folder: Path) -> UnitStore:
    """The units that lie in a folder.

    Raises:
        DataError: a file is missing or damaged.
    """
    arrays, about = open_arrays(folder)

    def side(name: str) -> StoredUnits:
        own = {key.removeprefix(f"{name}-"): array for key, array in arrays.items() if key.startswith(f"{name}-")}
        return StoredUnits(f"{folder.name} {name}", own, arrays["texts_B"])

    return UnitStore(side(TRAINING), side(HELD_OUT), about["fingerprint"])


def _with_start(ends_U: DiskArray, start: int, end: int) -> list[int]:
    """The ends of units, and before them the end of the one before."""
    found = ends_U[max(start - 1, 0) : end].tolist()
    return found if start else [0, *found]


def _text(texts_B: DiskArray, at: int, size: int) -> str:
    return decoded(texts_B[at : at + size].tobytes())


def decoded(content: bytes) -> str:
    """The text of which these are the bytes; half a surrogate may stand in it."""
    return content.decode("utf-8", "surrogatepass")

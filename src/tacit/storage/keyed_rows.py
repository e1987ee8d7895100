"""Rows of a key and numbers, many at a time in arrays: sorted, joined and cut without an object for each.

Keys may be private text: nothing here says what one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
from numpy.typing import NDArray

__all__ = ["AnyRow", "KeyedRows"]

AnyRow = tuple[bytes, *tuple[int, ...]]
"""A key, and numbers that fit in 64 bits, of every row as many."""

_PREFIX = 8  # bytes
_PIECE = 64  # bytes of a key that are held while rows are sorted whose prefixes are equal
_GATHERED_ROWS = 1 << 11  # rows whose keys are taken together
_MOST_GATHERED = 1 << 17  # bytes of keys that are taken by an index of each byte


@dataclass(frozen=True, slots=True, repr=False)
class KeyedRows:
    """Rows, in an order.

    Args:
        keys: one after another.
        ends: (rows) where in ``keys`` each of them ends.
        numbers: (numbers of a row, rows).
    """

    keys: bytes
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[AnyRow]) -> KeyedRows:
        """Rows that are tuples, of which there is at least one."""
        keys, *numbers = zip(*rows, strict=True)
        return cls.of_columns(keys, numbers)

    @classmethod
    def of_columns(cls, keys: Sequence[bytes], numbers: Sequence[Sequence[int]]) -> KeyedRows:
        """Rows of these keys, and of numbers column by column.

        Raises:
            OverflowError: a number does not fit in 64 bits.
        """
        ends = np.fromiter(accumulate(map(len, keys)), np.int64, len(keys))
        return cls(b"".join(keys), ends, np.array(numbers, np.int64).reshape(len(numbers), len(keys)))

    @classmethod
    def joined(cls, parts: Iterable[KeyedRows]) -> KeyedRows:
        """All rows of several, of which there is at least one, in their order."""
        parts = list(parts)
        starts = accumulate((len(part.keys) for part in parts), initial=0)
        ends = [part.ends + start for part, start in zip(parts, starts, strict=False)]
        numbers = np.concatenate([part.numbers for part in parts], axis=1)
        return cls(b"".join([part.keys for part in parts]), np.concatenate(ends), numbers)

    def __len__(self) -> int:
        return len(self.ends)

    def __repr__(self) -> str:
        return "KeyedRows(<private>)"

    def key(self, row: int) -> bytes:
        """The key of a row."""
        return self._piece(row, 0, len(self.keys))

    def part(self, start: int, stop: int) -> KeyedRows:
        """The rows from one on up to another."""
        first = int(self.ends[start - 1]) if start else 0
        last = int(self.ends[stop - 1]) if stop else 0
        return KeyedRows(self.keys[first:last], self.ends[start:stop] - first, self.numbers[:, start:stop])

    def tuples(self) -> list[tuple[bytes, *tuple[int, ...]]]:
        """Each row as a tuple."""
        return list(zip(self._all_keys(), *self.numbers.tolist(), strict=True))

    def taken(self, order: NDArray[np.int64]) -> KeyedRows:
        """These rows, in this order."""
        starts = np.where(order > 0, self.ends[order - 1], 0)
        lengths = self.ends[order] - starts
        places = range(0, len(order), _GATHERED_ROWS)
        pieces = [self._gathered(starts[at : at + _GATHERED_ROWS], lengths[at : at + _GATHERED_ROWS]) for at in places]
        return KeyedRows(b"".join(pieces), np.cumsum(lengths), self.numbers[:, order])

    def _gathered(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> bytes:
        """The keys that begin there, one after another: few bytes by an index of each, many one key after another."""
        size = int(lengths.sum())
        if size > _MOST_GATHERED:
            whole = memoryview(self.keys)
            bounds = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
            return b"".join([whole[start:end] for start, end in bounds])
        index = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(size)
        return np.frombuffer(self.keys, np.uint8)[index].tobytes()

    def order(self) -> NDArray[np.int64]:
        """The order of the keys' bytes; of rows with one key the order in which they are."""
        prefixes = self._prefixes()
        order = np.argsort(prefixes, kind="stable")
        in_order = prefixes[order]
        like_next = in_order[1:] == in_order[:-1]
        if like_next.any():  # the prefixes do not decide
            tied = np.flatnonzero(np.append(like_next, False) | np.append(False, like_next))
            order[tied] = self._sorted(order[tied].tolist())
        return order

    def _sorted(self, rows: list[int], start: int = 0) -> list[int]:
        """Rows in the order of their keys from a byte on; no more of the keys is held at once than must be where they are long."""
        width = max(_PIECE, start // 2)
        pieces = [self._piece(row, start, start + width) for row in rows]
        order = sorted(range(len(rows)), key=pieces.__getitem__)
        found = [rows[place] for place in order]
        if max(map(len, pieces)) < width:
            return found
        groups = [(len(piece), len(list(group))) for piece, group in groupby(map(pieces.__getitem__, order))]
        del pieces, order
        begin = 0
        for size, count in groups:
            if size == width and count > 1:
                found[begin : begin + count] = self._sorted(found[begin : begin + count], start + width)
            begin += count
        return found

    def _piece(self, row: int, start: int, stop: int) -> bytes:
        begin, end = int(self.ends[row - 1]) if row else 0, int(self.ends[row])
        return self.keys[begin + start : min(begin + stop, end)]

    def is_first_of_key(self) -> NDArray[np.bool_]:
        """Whether each row has another key than the one before it; the first row has."""
        prefixes, lengths = self._prefixes(), self._lengths()
        same = (prefixes[1:] == prefixes[:-1]) & (lengths[1:] == lengths[:-1])
        for row in np.flatnonzero(same & (lengths[1:] > _PREFIX)).tolist():
            same[row] = self.key(row) == self.key(row + 1)
        return np.append(True, ~same)

    def _starts(self) -> NDArray[np.int64]:
        return np.append(0, self.ends)[:-1]

    def _lengths(self) -> NDArray[np.int64]:
        return np.diff(self.ends, prepend=0)

    def _all_keys(self) -> list[bytes]:
        bounds = [0, *self.ends.tolist()]
        return list(map(self.keys.__getitem__, map(slice, bounds, bounds[1:])))

    def _prefixes(self) -> NDArray[np.uint64]:
        """The first bytes of each key as a number, with zeros behind a shorter one: keys are in the order of these, but for ties."""
        starts, lengths = self._starts(), self._lengths()
        found = np.empty(len(self), np.uint64)
        whole = starts <= len(self.keys) - _PREFIX  # where so many bytes can be read, of the following keys too
        if whole.any():
            at_each_byte = np.ndarray((len(self.keys) - _PREFIX + 1,), ">u8", self.keys, strides=(1,))
            found[whole] = at_each_byte[starts[whole]]
        found[~whole] = [
            int.from_bytes(self._piece(row, 0, _PREFIX).ljust(_PREFIX, b"\0"))
            for row in np.flatnonzero(~whole).tolist()
        ]
        short = np.flatnonzero(lengths < _PREFIX)
        missing = (8 * (_PREFIX - np.maximum(lengths[short], 1))).astype(np.uint64)
        found[short] = np.where(lengths[short] == 0, 0, found[short] >> missing << missing)
        return found

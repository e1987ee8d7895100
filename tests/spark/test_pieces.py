"""Rows of one unit may be more than a cell of a table holds: they go in pieces, and come back as they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tacit.randomness import KeyedRandomness
from tacit.spark.corpus import _pieces_of, _stream_of
from tacit.spark.runner import batches_of
from tacit.spark.units import Checksum
from tacit.training.sequences import SequenceStream

LENGTH = 6


def stream(rows: int, counted: bool) -> SequenceStream:
    generator = np.random.default_rng(rows)
    ids_ST = generator.integers(0, 99, (rows, LENGTH)).astype(np.int32)
    counted_ST = generator.random((rows, LENGTH)) < 0.5 if counted else None
    lengths_S = np.full(rows, LENGTH, dtype=np.int32)
    return SequenceStream(ids_ST, lengths_S, np.array([0, rows // 2, rows]), ("aa", "bb"), counted_ST=counted_ST)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7])
def test_pieces_are_small_and_together_what_they_were(rows: int, counted: bool) -> None:
    """Known wrong: one cell for all rows of a unit, which ended a run at 131,072 short texts of one user. 28th attack, TACIT-47."""
    given, checksum = stream(rows, counted), Checksum(KeyedRandomness(bytes(32)))
    pieces = list(_pieces_of(given, checksum, 2))
    assert len(pieces) == max(1, -(-rows // 2))
    assert [piece["more"] for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert all(len(piece["ids"]) <= 2 * LENGTH * 4 for piece in pieces)
    found = _stream_of(pieces, LENGTH)
    assert np.array_equal(found.ids_ST, given.ids_ST)
    assert np.array_equal(found.lengths_S, given.lengths_S)
    assert np.array_equal(found.starts_U1, given.starts_U1)
    assert tuple(found.keys_U) == tuple(given.keys_U)
    assert (found.counted_ST is None) == (not counted)
    assert not counted or np.array_equal(found.counted_ST, given.counted_ST)


def test_batches_are_cut_by_all_that_they_hold() -> None:
    """Known wrong: by the bytes of texts alone, so that long ids made batches which Arrow cannot hold. 28th attack, TACIT-47."""
    schema = pa.schema([("unit", pa.binary()), ("texts", pa.list_(pa.binary())), ("held_out", pa.bool_())])
    rows = ((b"x" * (1 << 20), [b"a"], False) for _ in range(20))
    batches = list(batches_of(rows, schema))
    assert sum(batch.num_rows for batch in batches) == 20
    assert max(batch.nbytes for batch in batches) < 8 << 20

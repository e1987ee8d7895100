"""Rows in arrays do what lists of tuples do."""

from __future__ import annotations

import random
from itertools import pairwise
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.storage import keyed_rows
from tacit.storage.keyed_rows import KeyedRows

Row = tuple[bytes, int, int]
KEYS = st.one_of(
    st.binary(max_size=3),
    st.text("ab\0\xff", max_size=12).map(lambda text: text.encode("latin-1")),
    st.sampled_from([b"prefix--", b"prefix--a", b"prefix--b", b"prefix--\0", b"prefix-"]),
)
ROWS = st.lists(st.tuples(KEYS, st.integers(-(2**63), 2**63 - 1), st.integers(0, 3)), min_size=1, max_size=25)


def stably_sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=itemgetter(0))


@pytest.fixture(params=["index", "slices"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keys are taken by an index of their bytes, many one by one."""
    if request.param == "slices":
        monkeypatch.setattr(keyed_rows, "_MOST_GATHERED", -1)


@pytest.mark.usefixtures("way")
@given(ROWS)
def test_the_order_is_that_of_a_stable_sort(rows: list[Row]) -> None:
    found = KeyedRows.of(rows)
    assert found.taken(found.order()).tuples() == stably_sorted(rows)


LONG = st.lists(st.sampled_from([b"a" * 64, b"a" * 63, b"b" * 96, b"\0" * 64, b"", b"c"]), max_size=8).map(b"".join)


@given(st.lists(LONG, min_size=1, max_size=12))
def test_long_keys_are_sorted_piece_by_piece(keys: list[bytes]) -> None:
    rows = [(key, number, 0) for number, key in enumerate(keys)]
    found = KeyedRows.of(rows)
    assert found.taken(found.order()).tuples() == stably_sorted(rows)


def test_keys_of_megabytes_that_end_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(b"a" * 2_000_000 + end, number, 0) for number, end in enumerate([b"b", b"a", b"", b"a", b"aa"])]
    found = KeyedRows.of(rows)
    assert found.taken(found.order()).tuples() == stably_sorted(rows)
    monkeypatch.setattr(
        keyed_rows.KeyedRows, "_sorted", lambda self, rows: sorted(rows, key=lambda row: self.key(row)[:64])
    )
    assert found.taken(found.order()).tuples() != stably_sorted(rows)


@given(ROWS)
def test_where_a_key_begins(rows: list[Row]) -> None:
    keys = [row[0] for row in stably_sorted(rows)]
    found = KeyedRows.of(stably_sorted(rows)).is_first_of_key().tolist()
    assert found == [row == 0 or keys[row] != keys[row - 1] for row in range(len(keys))]


@given(ROWS, st.lists(st.integers(0, 25), max_size=3))
def test_parts_and_what_they_are_joined_to(rows: list[Row], cuts: list[int]) -> None:
    whole = KeyedRows.of(rows)
    bounds = sorted(min(cut, len(rows)) for cut in [0, *cuts, len(rows)])
    parts = [whole.part(start, stop) for start, stop in pairwise(bounds)]
    assert [part.tuples() for part in parts] == [rows[a:b] for a, b in pairwise(bounds)]
    assert KeyedRows.joined(parts).tuples() == rows
    assert [whole.key(row) for row in range(len(rows))] == [row[0] for row in rows]


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 300])
@pytest.mark.parametrize("longest", [0, 1, 7, 8, 9, 30])
def test_prefixes_are_the_first_bytes(rows: int, longest: int) -> None:
    """Also of keys at the very end, behind which there are no eight bytes to read."""
    rng = random.Random(rows * 31 + longest)
    keys = [rng.randbytes(rng.randrange(longest + 1)) for _ in range(rows)] + [b""] * (rows // 3)
    found = KeyedRows.of_columns(keys, [range(len(keys))])
    assert found._prefixes().tolist() == [int.from_bytes(key[:8].ljust(8, b"\0")) for key in keys]
    assert found.taken(found.order()).tuples() == stably_sorted(found.tuples())


def test_an_order_by_prefixes_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row] = [(b"prefix--b", 0, 0), (b"prefix--a", 1, 0)]
    found = KeyedRows.of(rows)
    wrong = np.argsort(found._prefixes(), kind="stable")
    assert found.taken(wrong).tuples() != stably_sorted(rows)
    assert found.taken(found.order()).tuples() == stably_sorted(rows)


def test_a_number_that_does_not_fit_is_an_error_and_nothing_shows_a_key() -> None:
    with pytest.raises(OverflowError):
        KeyedRows.of([(b"sentinel", 2**63)])
    assert "sentinel" not in repr(KeyedRows.of([(b"sentinel", 1)]))

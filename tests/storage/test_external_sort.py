"""An external sort gives the order of bytes, stable, whether or not its rows fit in memory."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from tacit.errors import DataError
from tacit.storage import external_sort
from tacit.storage.external_sort import ExternalSort

RNG = random.Random(0)
ODD = [b"", b"\x00", b"a", b"a\x00", b"\xff\xfe", "é".encode(), b"a#10", b"a#2", b"A", b" a"]
KEYS = [RNG.choice([*ODD, b"%d" % RNG.randrange(300)]) for _ in range(5000)]
ROWS = [(key, place * 3, 2**40 + place) for place, key in enumerate(KEYS)]
SORTED = sorted(ROWS, key=lambda row: row[0])


@pytest.mark.parametrize("in_memory", [100_000, 5000, 999, 7 * 71, 11])
def test_rows_come_in_the_order_of_their_keys(tmp_path: Path, in_memory: int) -> None:
    rows = ExternalSort(tmp_path, "rows", in_memory)
    for row in ROWS:
        rows.add(row)
    assert list(rows) == SORTED
    assert bool(list(tmp_path.glob("rows-*.rows"))) == (in_memory < len(ROWS))


def test_an_order_by_another_rule_is_caught() -> None:
    """Known wrong: text is compared without case, or rows of one key in no order of their own."""
    assert sorted(ROWS, key=lambda row: row[0].lower()) != SORTED
    assert sorted(ROWS, key=lambda row: (row[0], -row[1])) != SORTED


def test_a_sort_that_fails_is_one_line_without_a_row(tmp_path: Path) -> None:
    rows = ExternalSort(tmp_path, "rows", 10)
    for number in range(100):
        rows.add((b"sentinel", number, number))
    (tmp_path / "rows-3.rows").write_bytes(b"damaged")
    with pytest.raises(DataError, match="the file is damaged") as refused:
        list(rows)
    assert "sentinel" not in str(refused.value)


def test_few_rows_with_many_bytes_go_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "_MOST_BYTES", 100)
    rows = ExternalSort(tmp_path, "rows")
    given = [(b"%02d" % (number % 7) * 30, number, 1) for number in range(10)]
    for row in given:
        rows.add(row)
    assert len(list(tmp_path.iterdir())) == 5
    assert list(rows) == list(rows) == sorted(given, key=lambda row: row[0])


def peak_of_sorting(folder: Path) -> float:
    """MiB that were held at most while 16 MB of long keys were sorted."""
    rng = random.Random(5)
    rows = ExternalSort(folder, "rows")
    tracemalloc.start()
    for number in range(16_000):
        rows.add((rng.randbytes(1000), number, 0))
    for _ in rows:
        pass
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found / 2**20


def test_long_keys_are_not_copied_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows wait as they came, up to a bound; the second half writes all of them as one block, known to be wrong."""
    monkeypatch.setattr(external_sort, "_MOST_BYTES", 4 << 20)
    (tmp_path / "right").mkdir()
    assert 4 < peak_of_sorting(tmp_path / "right") < 7.5
    monkeypatch.setattr(external_sort, "_BYTES_AT_ONCE", 1 << 40)
    (tmp_path / "wrong").mkdir()
    assert peak_of_sorting(tmp_path / "wrong") > 8


def test_no_rows(tmp_path: Path) -> None:
    assert list(ExternalSort(tmp_path, "rows")) == []

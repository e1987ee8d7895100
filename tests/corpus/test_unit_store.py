"""Units on disk are those of `group_units`, in its order, divided and fingerprinted as in memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tacit.corpus.records import Record
from tacit.corpus.unit_store import UnitStore, open_units
from tacit.corpus.unit_writing import Part, write_units
from tacit.corpus.units import Unit, UnitKind, group_units, is_held_out, split_held_out, unit_fingerprint
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness

STREAMS = KeyedRandomness(bytes(range(32)))
KINDS = [UnitKind("record"), UnitKind("document"), UnitKind("user"), UnitKind("tuple", 3)]
NAMES = ["a", "a#1", "a b", "A", "é", "\ud800", "𝄞", "a\x00b", *(f"note{n}" for n in range(12))]


def records(seed: int, count: int = 400) -> list[Record]:
    rng = random.Random(seed)
    words = ["pain", "é", "\ud801", "𝄞𝄞", "", "a\nb", "x" * 50]
    return [
        Record(rng.choice(NAMES), rng.choice(NAMES), " ".join(rng.choices(words, k=rng.randrange(9))))
        for _ in range(count)
    ]


def stored(folder: Path, parts: Iterable[Part], fraction: float = 0.3, in_memory: int = 1 << 16) -> UnitStore:
    folder.mkdir()
    write_units(folder, parts, lambda name: is_held_out(name, fraction, STREAMS), STREAMS, in_memory)
    return open_units(folder)


@pytest.mark.parametrize("in_memory", [1 << 16, 37], ids=["in memory", "on disk"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_units_are_those_in_memory(tmp_path: Path, kind: UnitKind, in_memory: int) -> None:
    own = records(1)
    units = group_units(own, kind)
    training, held_out = split_held_out(units, 0.3, STREAMS)
    store = stored(tmp_path / "store", [Part(own, kind)], in_memory=in_memory)
    assert list(store.training) == training
    assert list(store.held_out) == held_out
    assert store.fingerprint == unit_fingerprint(units, STREAMS)
    assert list(store) == units  # both sides, in one order
    assert training
    assert held_out
    places = random.Random(2).choices(range(-len(training), len(training)), k=50)
    assert [store.training[place] for place in places] == [training[place] for place in places]
    assert store.training[3:17:2] == training[3:17:2]
    with pytest.raises(IndexError):
        store.training[len(training)]


def by_document_first(own: list[Record], kind: UnitKind) -> list[Unit]:
    """Known wrong: documents in order, and the units of each by number: a#2 before a#10."""
    units = group_units(own, kind)
    return sorted(units, key=lambda unit: (unit.unit_id.rpartition("#")[0], int(unit.unit_id.rpartition("#")[2])))


def without_case(own: list[Record], kind: UnitKind) -> list[Unit]:
    """Known wrong: an order of words, such as databases have."""
    return sorted(group_units(own, kind), key=lambda unit: unit.unit_id.lower())


@pytest.mark.parametrize("wrong", [by_document_first, without_case])
def test_another_order_is_caught(tmp_path: Path, wrong: Callable[[list[Record], UnitKind], list[Unit]]) -> None:
    store = stored(tmp_path / "store", [Part(records(1), KINDS[0])], fraction=0.0)
    assert list(store.training) != wrong(records(1), KINDS[0])


def test_parts_follow_each_other_under_their_prefixes(tmp_path: Path) -> None:
    one, other = records(3, 50), records(4, 70)
    store = stored(tmp_path / "store", [Part(one, KINDS[0], "0:"), Part(other, KINDS[1], "1:")], fraction=0.0)
    wanted = [*group_units(one, KINDS[0])], [*group_units(other, KINDS[1])]
    assert list(store.training) == [
        Unit(f"{n}:{unit.unit_id}", unit.texts) for n, units in enumerate(wanted) for unit in units
    ]


def test_units_behind_others(tmp_path: Path) -> None:
    store = stored(tmp_path / "store", [Part(records(1), KINDS[2])], fraction=0.5)
    behind = [Unit("z", ("one", "two")), Unit("b", ())]
    found = store.training.followed_by(behind)
    assert list(found) == [*store.training, *behind]
    assert found[-1] == behind[1]
    assert len(found) == len(store.training) + 2
    both = store.training.followed_by(store.held_out)
    assert list(both) == [*store.training, *store.held_out]
    assert [both[place] for place in range(len(both))] == list(both)
    assert len(set(both.stores)) == 2
    units = list(both)
    rng = random.Random(5)
    for _ in range(200):  # within a side, over both, past either end, and empty
        some = slice(*rng.choices([None, *range(-len(units) - 3, len(units) + 3)], k=2))
        assert both[some] == units[some]


def test_no_records(tmp_path: Path) -> None:
    store = stored(tmp_path / "store", [Part([], KINDS[0])])
    assert list(store.training) == list(store.held_out) == []
    assert store.fingerprint == unit_fingerprint([], STREAMS)


def test_a_record_without_its_user_is_refused_as_in_memory(tmp_path: Path) -> None:
    own = [Record("a", "u", "x"), Record("b", None, "secret")]
    with pytest.raises(DataError) as in_memory:
        group_units(own, UnitKind("user"))
    with pytest.raises(DataError) as on_disk:
        stored(tmp_path / "store", [Part(own, UnitKind("user"))])
    assert str(on_disk.value) == str(in_memory.value)


def test_nothing_unsorted_is_left_and_no_text_is_there_twice(tmp_path: Path) -> None:
    own = [Record(f"d{n}", f"u{n}", f"sentinel{n:04}") for n in range(500)]
    for kind in KINDS:
        folder = tmp_path / str(kind.kind)
        stored(folder, [Part(own, kind)], in_memory=37)
        assert not [name for name in os.listdir(folder) if "unsorted" in name or "sorting" in name]
        content = b"".join(path.read_bytes() for path in folder.iterdir())
        assert all(content.count(record.text.encode()) == 1 for record in own)

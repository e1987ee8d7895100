from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.corpus.records import Record
from tacit.corpus.units import Unit, UnitKind, _uniform, group_units, split_held_out, unit_fingerprint
from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness

KEY = bytes(range(32))
FALSE_ALARM = 1e-6
KINDS = (UnitKind("record"), UnitKind("document"), UnitKind("user"), UnitKind("tuple", 3))

Split = Callable[[list[Unit], float, KeyedRandomness], tuple[list[Unit], list[Unit]]]
Group = Callable[[Iterable[Record], UnitKind], list[Unit]]

# A document belongs to one user, as in every corpus that makes sense.
records_lists = st.lists(
    st.builds(
        lambda document, words: Record(f"d{document}", f"u{document % 3}", " ".join(words)),
        st.integers(0, 11),
        st.lists(st.sampled_from(["a", "b", "c"]), max_size=8),
    ),
    max_size=20,
)


# Kinds


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("record", UnitKind("record")),
        ("document", UnitKind("document")),
        ("user", UnitKind("user")),
        ({"tuple": 256}, UnitKind("tuple", 256)),
        ({"tuple": 1}, UnitKind("tuple", 1)),
    ],
)
def test_kinds_that_a_configuration_may_name(value: object, kind: UnitKind) -> None:
    assert UnitKind.parse(value) == kind


@pytest.mark.parametrize(
    "value",
    [
        "tuple", "sentence", "", None, 256, [], {}, {"tuple": 0}, {"tuple": -3}, {"tuple": 2.5}, {"tuple": "256"},
        {"tuple": True}, {"tuple": None}, {"record": 1}, {"tuple": 256, "user": 1}, ["tuple", 256],
    ],
)  # fmt: skip
def test_other_kinds_are_usage_errors(value: object) -> None:
    with pytest.raises(UsageError, match=r"tuple: 256") as caught:
        UnitKind.parse(value)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_words_belong_to_tuples_only() -> None:
    with pytest.raises(UsageError, match="has no number of words"):
        UnitKind("user", 256)


# Grouping


CORPUS = [
    Record("b", "u2", "one two"),
    Record("a", "u1", "three"),
    Record("b", "u2", "four"),
    Record("c", "u1", "five six seven eight nine"),
    Record("a", "u1", "three"),
]


def test_every_kind_on_a_small_corpus() -> None:
    assert group_units(CORPUS, UnitKind("record")) == [
        Unit("a#0", ("three",)),
        Unit("a#1", ("three",)),  # an equal record is a unit of its own
        Unit("b#0", ("one two",)),
        Unit("b#1", ("four",)),
        Unit("c#0", ("five six seven eight nine",)),
    ]
    assert group_units(CORPUS, UnitKind("document")) == [
        Unit("a", ("three", "three")),
        Unit("b", ("one two", "four")),
        Unit("c", ("five six seven eight nine",)),
    ]
    assert group_units(CORPUS, UnitKind("user")) == [
        Unit("u1", ("three", "five six seven eight nine", "three")),
        Unit("u2", ("one two", "four")),
    ]
    assert group_units(CORPUS, UnitKind("tuple", 2)) == [
        Unit("a#0", ("three\nthree",)),
        Unit("b#0", ("one two",)),
        Unit("b#1", ("four",)),
        Unit("c#0", ("five six",)),
        Unit("c#1", ("seven eight",)),
        Unit("c#2", ("nine",)),
    ]


def test_a_record_without_a_user_is_refused_without_its_text() -> None:
    with pytest.raises(DataError, match="record 2 of the corpus has no user id; set the option user_field") as caught:
        group_units([Record("a", "u1", "x"), Record("secret id", None, "secret text")], UnitKind("user"))
    assert caught.value.exit_code == 4
    assert "secret" not in str(caught.value)


def interleaved(records: Sequence[Record], seed: int) -> list[Record]:
    """Another order that keeps each user's records, and so each document's, in theirs."""
    rng = random.Random(seed)
    queues: defaultdict[str | None, list[Record]] = defaultdict(list)
    for record in records:
        queues[record.user_id].append(record)
    waiting = [queue[::-1] for queue in queues.values()]
    merged = []
    while waiting := [queue for queue in waiting if queue]:
        merged.append(rng.choice(waiting).pop())
    return merged


def order_matters(group: Group, records: Sequence[Record], seed: int, kind: UnitKind) -> bool:
    return group(records, kind) != group(interleaved(records, seed), kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@given(records=records_lists, seed=st.integers(0, 99))
def test_the_order_of_the_files_does_not_matter(kind: UnitKind, records: list[Record], seed: int) -> None:
    assert not order_matters(group_units, records, seed, kind)


def in_order_of_appearance(records: Iterable[Record], kind: UnitKind) -> list[Unit]:
    """Known wrong: dict order."""
    grouped: dict[str, list[str]] = {}
    for record in records:
        grouped.setdefault(record.document_id, []).append(record.text)
    return [Unit(name, tuple(texts)) for name, texts in grouped.items()]


def by_position(records: Iterable[Record], kind: UnitKind) -> list[Unit]:
    """Known wrong: the ordinal counts the corpus, not the document."""
    return sorted((Unit(f"{r.document_id}#{i}", (r.text,)) for i, r in enumerate(records)), key=lambda u: u.unit_id)


@pytest.mark.parametrize("group", [in_order_of_appearance, by_position])
def test_the_order_check_catches_wrong_groupings(group: Group) -> None:
    assert any(order_matters(group, CORPUS, seed, UnitKind("record")) for seed in range(20))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@given(records=records_lists)
def test_units_hold_every_record_once_under_distinct_ids(kind: UnitKind, records: list[Record]) -> None:
    units = group_units(records, kind)
    assert len({unit.unit_id for unit in units}) == len(units)
    assert [unit.unit_id for unit in units] == sorted(unit.unit_id for unit in units)
    words = sorted(word for unit in units for text in unit.texts for word in text.split())
    assert words == sorted(word for record in records for word in record.text.split())
    if kind.kind == "record":
        assert sorted(text for unit in units for text in unit.texts) == sorted(record.text for record in records)


@pytest.mark.parametrize("kind", [UnitKind("document"), UnitKind("user")], ids=lambda kind: kind.kind)
@given(records=records_lists.filter(bool))
def test_a_unit_taken_out_leaves_the_others_as_they_were(kind: UnitKind, records: list[Record]) -> None:
    def unit_of(record: Record) -> str | None:
        return record.document_id if kind.kind == "document" else record.user_id

    gone = unit_of(records[0])
    rest = [record for record in records if unit_of(record) != gone]
    assert group_units(rest, kind) == [unit for unit in group_units(records, kind) if unit.unit_id != gone]


@given(texts=st.lists(st.text(" \n\t\u2003ab", max_size=30), min_size=1, max_size=4), words=st.integers(1, 7))
def test_tuples_are_consecutive_full_and_within_a_document(texts: list[str], words: int) -> None:
    records = [Record("d", None, text) for text in texts] + [Record("e", None, "z z")]
    units = {unit.unit_id: unit for unit in group_units(records, UnitKind("tuple", words))}
    pieces = [units[f"d#{i}"].texts[0] for i in range(len(units)) if f"d#{i}" in units]
    all_words = [word for text in texts for word in text.split()]
    assert [piece.split() for piece in pieces] == [all_words[i : i + words] for i in range(0, len(all_words), words)]
    assert all(piece in "\n".join(texts) for piece in pieces)  # spacing is kept
    assert len(units) - len(pieces) == -(-2 // words)


def test_units_do_not_show_their_text() -> None:
    assert "secret" not in repr(Unit("secret id", ("secret text",)))


# The split


def units_named(*names: str) -> list[Unit]:
    return [Unit(name, (f"text of {name}",)) for name in sorted(names)]


NAMES = [f"n{i}" for i in range(200)]


def moved_by_a_neighbour(split: Split, fraction: float = 0.3) -> int:
    """How many sides of other units change when one is removed, over 25 removals (read backwards: additions)."""
    streams = KeyedRandomness(KEY)
    everybody = [{unit.unit_id for unit in part} for part in split(units_named(*NAMES), fraction, streams)]
    moved = 0
    for gone in NAMES[::8]:
        parts = split(units_named(*(name for name in NAMES if name != gone)), fraction, streams)
        for before, after in zip(everybody, parts, strict=True):
            moved += len((before - {gone}) ^ {unit.unit_id for unit in after})
    return moved


def test_a_unit_added_or_removed_moves_no_other() -> None:
    assert moved_by_a_neighbour(split_held_out) == 0


def split_by_position(units: list[Unit], fraction: float, streams: KeyedRandomness) -> tuple[list[Unit], list[Unit]]:
    """Known wrong: the last units are held out."""
    size = round(len(units) * fraction)
    return units[size:], units[:size]


def split_by_coin_in_order(
    units: list[Unit], fraction: float, streams: KeyedRandomness
) -> tuple[list[Unit], list[Unit]]:
    """Known wrong: the right law, but the i-th coin goes to the i-th unit."""
    coins = streams.generator("held-out").random(len(units))
    pairs = list(zip(units, coins, strict=True))
    return [u for u, coin in pairs if coin >= fraction], [u for u, coin in pairs if coin < fraction]


def split_to_an_exact_size(
    units: list[Unit], fraction: float, streams: KeyedRandomness
) -> tuple[list[Unit], list[Unit]]:
    """Known wrong: the smallest hashes, as many as make the fraction exact."""
    order = sorted(units, key=lambda unit: streams.derive("held-out", unit.unit_id))
    return split_by_position(order, fraction, streams)


@pytest.mark.parametrize("split", [split_by_position, split_by_coin_in_order, split_to_an_exact_size])
def test_the_neighbour_check_catches_wrong_splits(split: Split) -> None:
    assert moved_by_a_neighbour(split) > 0


def test_the_split_keeps_every_unit_once_and_the_order() -> None:
    units = units_named(*NAMES)
    training, held_out = split_held_out(units, 0.3, KeyedRandomness(KEY))
    assert training
    assert held_out
    assert sorted(training + held_out, key=lambda unit: unit.unit_id) == units
    assert [unit for unit in units if unit in training] == training


def held_out_count(fraction: float, key: bytes = KEY, count: int = 100_000) -> int:
    units = [Unit(str(i), ()) for i in range(count)]
    return len(split_held_out(units, fraction, KeyedRandomness(key))[1])


def plausible(count: int, fraction: float, trials: int = 100_000) -> bool:
    """Two-sided binomial test at the false-alarm rate."""
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], trials, fraction)
    return low <= count <= high


def test_the_held_out_fraction_is_right() -> None:
    count = held_out_count(0.1)
    assert plausible(count, 0.1)
    assert not plausible(count, 0.09)
    assert not plausible(count, 0.11)


def test_keys_give_independent_coins() -> None:
    units = [Unit(str(i), ()) for i in range(50_000)]
    first, second = (
        {unit.unit_id for unit in split_held_out(units, 0.3, KeyedRandomness(bytes([i]) * 32))[1]} for i in (1, 2)
    )
    assert plausible(len(first & second), 0.09, len(units))
    assert not plausible(len(first & first), 0.09, len(units))  # one coin for every key


def test_a_unit_has_a_fresh_coin_under_each_key() -> None:
    keys = [hashlib.sha256(str(i).encode()).digest() for i in range(20_000)]
    count = sum(len(split_held_out([Unit("same", ())], 0.3, KeyedRandomness(key))[1]) for key in keys)
    assert plausible(count, 0.3, len(keys))


def test_held_out_sets_are_nested_in_the_fraction() -> None:
    units = units_named(*NAMES)
    parts = [{u.unit_id for u in split_held_out(units, f, KeyedRandomness(KEY))[1]} for f in (0, 0.1, 0.5, 0.999999)]
    assert parts[0] == set()
    assert all(small <= large for small, large in pairwise(parts))
    assert parts[-1] == set(NAMES)


def test_the_uniform_number_stays_below_one() -> None:
    assert _uniform(bytes(32)) == 0.0
    assert _uniform(b"\xff" * 32) == 1 - 2**-53


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, float("nan")])
def test_fractions_out_of_range_are_refused(fraction: float) -> None:
    with pytest.raises(UsageError, match="held-out fraction"):
        split_held_out([], fraction, KeyedRandomness(KEY))


# The fingerprint


UNITS = [Unit("a", ("ab", "c")), Unit("b", ("d",))]
OTHERS = {
    "a letter": [Unit("a", ("ab", "x")), Unit("b", ("d",))],
    "an id": [Unit("a", ("ab", "c")), Unit("c", ("d",))],
    "a border between texts": [Unit("a", ("a", "bc")), Unit("b", ("d",))],
    "one text for two": [Unit("a", ("abc",)), Unit("b", ("d",))],
    "a text of another unit": [Unit("a", ("ab",)), Unit("b", ("c", "d"))],
    "an id for a text": [Unit("a", ("ab", "c", "b")), Unit("d", ())],
    "the order": UNITS[::-1],
    "one fewer": UNITS[:1],
    "one more": [*UNITS, Unit("c", ())],
    "a quote": [Unit("a", ('ab","c',)), Unit("b", ("d",))],
    "none": [],
}


def joined(units: Iterable[Unit], streams: KeyedRandomness) -> str:
    """Known wrong: the bytes run together."""
    text = "".join("".join([unit.unit_id, *unit.texts]) for unit in units)
    return hashlib.blake2b(text.encode(), key=streams.derive("joined")).hexdigest()


def unkeyed(units: Iterable[Unit], streams: KeyedRandomness) -> str:
    """Known wrong: whoever guesses the data can confirm it."""
    return hashlib.sha256(repr([(unit.unit_id, unit.texts) for unit in units]).encode()).hexdigest()


def blind_spots(fingerprint: Callable[[Iterable[Unit], KeyedRandomness], str]) -> list[str]:
    """What may change without the fingerprint changing."""
    own = fingerprint(UNITS, KeyedRandomness(KEY))
    spots = [name for name, units in OTHERS.items() if fingerprint(units, KeyedRandomness(KEY)) == own]
    return spots + ["the key"] * (fingerprint(UNITS, KeyedRandomness(bytes(32))) == own)


def test_the_fingerprint_changes_with_all_content_and_the_key() -> None:
    assert blind_spots(unit_fingerprint) == []
    assert "a border between texts" in blind_spots(joined)
    assert blind_spots(unkeyed) == ["the key"]


def test_the_fingerprint_is_a_function_of_units_and_key() -> None:
    digest = unit_fingerprint(iter(UNITS), KeyedRandomness(KEY))
    assert digest == unit_fingerprint([Unit(u.unit_id, tuple(u.texts)) for u in UNITS], KeyedRandomness(KEY))
    assert len(bytes.fromhex(digest)) == 32


@settings(max_examples=50)
@given(texts=st.lists(st.text(), max_size=4))
def test_the_fingerprint_takes_any_text(texts: list[str]) -> None:
    assert len(unit_fingerprint([Unit("a", tuple(texts)), Unit("\ud800", ())], KeyedRandomness(KEY))) == 64

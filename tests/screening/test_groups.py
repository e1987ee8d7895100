"""A group with more data points than claimed is refused before anything is written; one with as many is not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.corpus.records import Record
from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness
from tacit.screening.corpus import ScreenPlan, screen_corpus
from tacit.screening.groups import GroupLimit, GroupSizes
from tacit.screening.split import DataPoint, data_points

STREAMS = KeyedRandomness(bytes(range(32)))
TEXTS = st.sampled_from(["Hi.", "One.\nTwo.", "\n", "a\r\n\nb\rc"])
RECORDS = st.lists(st.builds(Record, st.sampled_from("ab"), st.sampled_from("uv"), TEXTS))


def refused(records: list[Record], limit: GroupLimit, kind: DataPoint) -> bool:
    sizes = GroupSizes(limit, kind)
    try:
        for number, record in enumerate(records, start=1):
            sizes.add(number, record)
    except DataError:
        return True
    return False


@settings(deadline=None)
@given(RECORDS, st.sampled_from(["document", "user"]), st.sampled_from(["record", "line"]), st.integers(1, 8))
def test_the_largest_group_decides(records: list[Record], by: str, kind: DataPoint, most: int) -> None:
    counted: Counter[str | None] = Counter()
    for record in records:
        counted[record.document_id if by == "document" else record.user_id] += len(data_points(record.text, kind))
    limit = GroupLimit(by, most)
    assert refused(records, limit, kind) == (max(counted.values(), default=0) > most)


def records_alone(records: list[Record], most: int) -> bool:
    """The known-wrong version: a record's data points, and not those of its whole group."""
    return any(len(data_points(record.text, "line")) > most for record in records)


def test_a_group_in_several_records_is_counted_as_a_whole() -> None:
    records = [Record("a", "u", "One.\nTwo."), Record("b", "u", "Hi."), Record("a", "v", "Three.")]
    assert not records_alone(records, 2)
    assert refused(records, GroupLimit("document", 2), "line")
    assert refused(records, GroupLimit("user", 2), "line")
    assert not refused(records, GroupLimit("user", 3), "line")
    assert not refused(records, GroupLimit("document", 2), "record")


def test_the_error_says_which_record_and_neither_whose_nor_how_many() -> None:
    sizes = GroupSizes(GroupLimit("user", 2), "line")
    sizes.add(1, Record("d", "sentinel", "One.\nTwo."))
    with pytest.raises(
        DataError, match=r"record 2 of the corpus: with it, its user has more than 2 data points"
    ) as raised:
        sizes.add(2, Record("e", "sentinel", "sentinel\n" * 50))
    assert "sentinel" not in str(raised.value)
    assert "52" not in str(raised.value)


def test_a_record_of_nobody_is_refused() -> None:
    with pytest.raises(DataError, match="record 7 of the corpus has no user id"):
        GroupSizes(GroupLimit("user", 2), "line").add(7, Record("d", None, "Hi."))


def test_impossible_limits() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        GroupLimit("user", 0)
    with pytest.raises(UsageError, match="document or user"):
        GroupLimit("town", 3)


def test_a_screening_looks_at_its_groups_each_time(tmp_path: Path) -> None:
    """Also when it was finished under another claim: the statement follows the claim of now."""
    records = [Record("a", None, "Call 415-555-2671.\nThank you."), Record("b", None, "Thank you.")]
    folder = tmp_path / "screened"
    with pytest.raises(DataError, match=r"screening\.group\.most"):
        screen_corpus(records, ScreenPlan("line", group=GroupLimit("document", 1)), folder, STREAMS)
    assert list(tmp_path.iterdir()) == []
    receipt = screen_corpus(records, ScreenPlan("line", group=GroupLimit("document", 2)), folder, STREAMS)
    assert receipt == screen_corpus(records, ScreenPlan("line"), folder, STREAMS)
    with pytest.raises(DataError, match=r"screening\.group\.most"):
        screen_corpus(records, ScreenPlan("line", group=GroupLimit("document", 1)), folder, STREAMS)

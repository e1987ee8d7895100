"""Every word of a document is judged exactly once, in a window that shows it with context."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.entities.windows import Window, cut_windows


@given(st.data())
def test_every_word_is_judged_once_and_shown(data: st.DataObject) -> None:
    room = data.draw(st.integers(1, 12))
    overlap = data.draw(st.integers(0, room - 1))
    sizes = data.draw(st.lists(st.integers(1, room), max_size=40))
    windows = cut_windows(sizes, room, overlap)
    assert [word for one in windows for word in range(one.judged_first, one.judged_last)] == list(range(len(sizes)))
    for window in windows:
        assert window.first <= window.judged_first < window.judged_last <= window.last
        assert sum(sizes[window.first : window.last]) <= room
    for before, after in itertools.pairwise(windows):
        assert before.first < after.first <= before.last < after.last


def test_neighbours_share_the_overlap_and_judge_half_of_it_each() -> None:
    windows = cut_windows([1] * 30, room=10, overlap=4)
    assert windows[:2] == [Window(0, 10, 0, 8), Window(6, 16, 8, 14)]
    assert all(after.first == before.last - 4 for before, after in itertools.pairwise(windows))


def test_long_words_leave_less_overlap_and_no_word_out() -> None:
    assert cut_windows([3, 3, 3], room=4, overlap=3) == [Window(0, 1, 0, 1), Window(1, 2, 1, 2), Window(2, 3, 2, 3)]


def test_nothing_and_impossible_sizes() -> None:
    assert cut_windows([], 5, 2) == []
    for sizes, overlap in (([0], 0), ([6], 0), ([1], 5), ([1], -1)):
        with pytest.raises(ValueError, match=r"pieces|overlap"):
            cut_windows(sizes, 5, overlap)

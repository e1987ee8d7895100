"""Turns as lines: one line a turn whatever is in it, and the lines of screening are the turns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.corpus.turns import Turn, Turns, dialogue_text, one_line, read_turn
from tacit.errors import UsageError
from tacit.screening.split import data_points

LISTS = [["U", "Hello."], ["S", "Hi!\r\nWhat is it?"], ["U", " \n "], ["ACT", "done", [1, 2]]]
OBJECTS = [{"who": turn[0], "what": turn[1], "more": {}} for turn in LISTS]


def text(turns: object, options: Turns | None = None) -> str:
    return dialogue_text(turns, options or Turns(), "place", "turns")


def test_lists_and_objects() -> None:
    expected = "USR: Hello.\nSYS: Hi! What is it?\nACT: done"
    assert text(LISTS) == expected
    assert text(OBJECTS, Turns("what", "who")) == expected
    assert text([]) == ""


def test_names_and_text_alone() -> None:
    assert text(LISTS, Turns(names={})).startswith("U: Hello.\nS: Hi!")
    assert text(LISTS, Turns(names={"U": "Anna", "ACT": "Log"})).endswith("S: Hi! What is it?\nLog: done")
    assert text(LISTS, Turns(speaker=None)) == "Hello.\nHi! What is it?\ndone"
    assert text([["Hello."]], Turns(text=0, speaker=None)) == "Hello."


def test_a_line_break_is_a_blank_and_nothing_else_changes() -> None:
    assert one_line("a \r\n\n b\rc\n") == "a b c"
    assert one_line(" a\t b\u2028c\x0bd ") == " a\t b\u2028c\x0bd "
    assert one_line("\n") == ""


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), st.text())))
def test_lines_of_screening_are_the_turns(said: list[tuple[str, str]]) -> None:
    """Nothing that is said becomes two data points, or joins another one; blank turns are none."""
    lines = data_points(text([list(turn) for turn in said]), "line")
    assert len(lines) == sum(bool(what.strip()) for _, what in said)
    alone = data_points(text([list(turn) for turn in said], Turns(speaker=None)), "line")
    assert ["".join(line.split()) for line in alone] == ["".join(what.split()) for _, what in said if what.strip()]


def joined_as_it_is(turns: list[list[str]]) -> str:
    """The known-wrong version."""
    return "\n".join(f"{who}: {what}" for who, what in turns)


def test_a_join_that_keeps_line_breaks_is_caught() -> None:
    turns = [["S", "Booked .\nReference number is : A1 ."], ["U\r", "Thanks."]]
    assert len(data_points(joined_as_it_is(turns), "line")) == 4
    assert data_points(text(turns), "line") == ["SYS: Booked . Reference number is : A1 .", "USR: Thanks."]


def test_long_blanks_take_linear_time() -> None:
    """A pattern that looks for blanks around a line break would look at each of them from each."""
    assert one_line(" " * 1_000_000 + "x\n") == "x"
    assert one_line("x" + " " * 1_000_000) == "x" + " " * 1_000_000


def test_a_turn_hides_its_text() -> None:
    turn = read_turn(["U", "sentinel"], Turns(), "place")
    assert turn == Turn("USR: ", "sentinel")
    assert turn.line == "USR: sentinel"
    assert "sentinel" not in repr(turn)


def test_places_begin_at_0() -> None:
    for options in ({"text": -1}, {"speaker": -2}):
        with pytest.raises(UsageError, match="counted from 0"):
            Turns(**options)

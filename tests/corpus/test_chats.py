"""Conversations and instructions as records: from every format that can hold them, and back; errors never show a value."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.config import CorpusOptions
from tacit.corpus import tables
from tacit.corpus.chats import ROLES, Exchange, Message, answer_of, chat_text, exchange_of, messages_of, read_exchange
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.corpus.turns import Turns
from tacit.corpus.units import Unit, UnitKind, group_units
from tacit.errors import DataError, UsageError
from tacit.vocabulary.tokenizer import TokenizerOptions, words_of

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Chest pain,\n\nsince Monday: user:"},
    {"role": "assistant", "content": "  Zürich 🩺\n"},
]
MESSAGES = [Message(one["role"], one["content"]) for one in TALK]
SECRET = "zqsecret"


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_array(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(rows))


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "jsonl": write_lines,
    "json": write_array,
    "parquet": write_parquet,
    "csv": write_csv,
}
WITH_MESSAGES = ("jsonl", "json", "parquet")


@pytest.mark.parametrize("name", WITH_MESSAGES)
def test_conversations_are_read_from_every_format_with_lists(name: str, tmp_path: Path) -> None:
    """With fields beside ``role`` and ``content`` that nobody asked for."""
    path = tmp_path / f"talks.{name}"
    named = [{**message, "weight": number} for number, message in enumerate(TALK)]
    WRITERS[name](path, [{"who": "a", "talk": named}, {"who": "b", "talk": TALK[1:]}])
    records = list(read_records(Source(path, user_field="who", messages_field="talk")))
    assert [record.user_id for record in records] == ["a", "b"]
    assert [messages_of(record.text) for record in records] == [MESSAGES, MESSAGES[1:]]
    (first, _) = group_units(records, UnitKind("user"))
    assert first == Unit("a", (chat_text(MESSAGES),))


def test_of_a_parquet_files_messages_nothing_else_is_read(tmp_path: Path) -> None:
    """2 GiB of it in 256 rows are more than pyarrow reads, and one record more could be the one. 28th attack, TACIT-47."""
    path = tmp_path / "talks.parquet"
    write_parquet(path, [{"who": "a", "talk": [{**message, "image": "0" * 1000} for message in TALK]}])
    with pq.ParquetFile(path) as file:
        read = tables._leaves(file, ["talk", "who"], Source(path, user_field="who", messages_field="talk"))
        assert read == ["talk.list.element.role", "talk.list.element.content", "who"]
        assert "image" not in str(next(file.iter_batches(columns=read)).schema)
        assert "image" in str(next(file.iter_batches(columns=["talk", "who"])).schema)
    write_parquet(path, [{"who": "a", "talk": TALK, "talk.role": "x"}])  # a column of its own
    assert [messages_of(one.text) for one in read_records(Source(path, messages_field="talk"))] == [MESSAGES]
    nested = [{"who": "a", "talk": [{**message, "meta": {"content": "0" * 1000}} for message in TALK]}]
    write_parquet(path, nested)
    with pq.ParquetFile(path) as file:
        assert tables._leaves(file, ["talk"], Source(path, messages_field="talk")) == read[:2]
    assert [messages_of(one.text) for one in read_records(Source(path, messages_field="talk"))] == [MESSAGES]


def test_few_rows_are_read_at_once_where_they_may_be_large(tmp_path: Path) -> None:
    """Beyond 2 GiB of a column pyarrow cannot read one of messages; of turns in lists all is read. 28th attack, TACIT-47."""
    path = tmp_path / "talks.parquet"
    assert tables._rows_at_once(Source(path)) == 256
    for most in (2**20, 2**23, 2**28, 2**40):
        assert tables._rows_at_once(Source(path, max_record_bytes=most)) * min(most, 2**30) <= 2**30
    assert tables._rows_at_once(Source(path, turns=Turns(speaker=0, text=1))) == 1
    assert tables._rows_at_once(Source(path, turns=Turns(speaker="who", text="said"))) == 256


class OfFewRows:
    """A Parquet file of which pyarrow can read three rows at once, and not more."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self.num_row_groups = file.num_row_groups

    def iter_batches(self, rows: int, groups: list[int], leaves: list[str]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(self._file.iter_batches(rows, groups, leaves)):
            if number == 1 and batch.num_rows > 3:
                raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")
            yield batch


def test_rows_that_cannot_be_read_at_once_are_read_one_by_one(tmp_path: Path) -> None:
    """Two records with a gigabyte of blanks, which is no text, ended what one of them did not. 29th attack, TACIT-49; here pyarrow's
    own limit is made small."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": [str(number) for number in range(50)]}), path, row_group_size=20)
    with pq.ParquetFile(path) as file:
        few: Any = OfFewRows(file)
        batches = list(tables._parquet_batches(few, ["text"], 5))
    assert [row for batch in batches for row in batch["text"].to_pylist()] == [str(number) for number in range(50)]
    assert {batch.num_rows for batch in batches} == {5, 1}


@pytest.mark.parametrize("name", WRITERS)
def test_prompts_and_responses_are_read_from_every_format_with_fields(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"tasks.{name}"
    WRITERS[name](path, [{"ask": "Say\nyes", "answer": "Yes."}, {"ask": "", "answer": ""}])
    records = list(read_records(Source(path, prompt_field="ask", response_field="answer")))
    assert [exchange_of(record.text) for record in records] == [Exchange("Say\nyes", "Yes."), Exchange("", "")]


def test_format_chat_is_messages_in_a_file_of_any_such_ending(tmp_path: Path) -> None:
    for name in WITH_MESSAGES:
        path = tmp_path / f"talks.{name}"
        WRITERS[name](path, [{"messages": TALK}])
        (record,) = read_records(CorpusOptions(path=str(path), format="chat").source)
        assert messages_of(record.text) == MESSAGES


@given(
    st.lists(st.builds(Message, st.sampled_from(ROLES), st.text(st.characters(exclude_categories=["Cs"])))),
    st.lists(st.builds(Message, st.sampled_from(ROLES), st.text("\x1d\x1e\x1f:user \n\ufdd0a", max_size=12))),
)
def test_two_conversations_never_have_one_text(one: list[Message], other: list[Message]) -> None:
    """But for separators and noncharacters, which become blanks."""
    for messages in (one, other):
        cleaned = [m._replace(content="".join(" " if c in _RESERVED else c for c in m.content)) for m in messages]
        assert (messages_of(chat_text(messages)) or []) == cleaned
        texts = [m.content for m in messages[:2]]
        if len(texts) == 2:
            assert exchange_of(read_exchange(*texts)) == tuple(m.content for m in cleaned[:2])


_RESERVED = {*"\x1d\x1e\x1f", *(chr(code) for code in range(0xFDD0, 0xFDF0))}


def test_what_is_said_in_another_text_is_all_of_it() -> None:
    assert answer_of("plain") == "plain"
    assert answer_of(chat_text(MESSAGES)) == "  Zürich 🩺\n"
    assert answer_of(read_exchange("a", "b")) == "b"
    assert messages_of("plain") is None
    assert exchange_of("plain") is None


def test_a_vocabulary_counts_the_words_and_the_roles() -> None:
    counted = words_of(chat_text([Message("user", "Hello there"), Message("assistant", "Hi")]), TokenizerOptions())
    assert counted == ["user", ":", "hello", "there", "assistant", ":", "hi"]
    assert words_of(read_exchange("Hello", "Hi"), TokenizerOptions()) == ["hello", "hi"]


BROKEN: list[tuple[Any, str]] = [
    (SECRET, r"talks\.jsonl, line 1: the field 'messages' is no list of messages; set the option messages_field"),
    ([SECRET], r"talks\.jsonl, line 1, message 1: a message must be an object"),
    ([TALK[0], {"from": "human", "value": SECRET}], r"line 1, message 2: a message must be an object"),
    ([{"role": SECRET, "content": "x"}], r"message 1: the role is none of system, developer, user, assistant, tool"),
    ([{"role": ["user"], "content": "x"}], r"message 1: the role is none of"),
    ([{"role": "assistant", "content": None}], r"message 1: the content is not a string"),
    ([{"role": "user", "content": [{"type": "text", "text": SECRET}]}], r"message 1: the content is not a string"),
    ([{"role": "user", "content": "\ud800"}], "half a surrogate pair"),
    ([{"role": "user", "content": "x" * 100}], "max_record_bytes"),
]


@pytest.mark.parametrize(("value", "message"), BROKEN)
def test_a_malformed_conversation_stops_the_run_without_a_word_of_it(value: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    write_lines(path, [{"messages": value}])
    with pytest.raises(DataError, match=message) as caught:
        list(read_records(Source(path, messages_field="messages", max_record_bytes=100)))
    assert SECRET not in str(caught.value)


def test_a_field_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    write_lines(path, [{"other": TALK, "prompt": "a", "number": 7}] * 6)
    for asked, message in (
        ({"messages_field": "messages"}, "no field 'messages'; set the option messages_field to .*other"),
        ({"prompt_field": "prompt", "response_field": "answer"}, "no field 'answer'; set the option response_field"),
        ({"prompt_field": "prompt", "response_field": "number"}, "'number' is not a string; set the option response_f"),
    ):
        with pytest.raises(DataError, match=message):
            list(read_records(Source(path, **asked)))


@pytest.mark.parametrize("asked", [{"messages_field": "m"}, {"prompt_field": "p", "response_field": "r"}])
def test_formats_without_lists_or_fields_refuse(asked: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    (tmp_path / "a.csv").write_text("m\nx\n")
    with pytest.raises(UsageError, match="has no fields; leave out the option"):
        list(read_records(Source(tmp_path / "a.txt", **asked)))
    if "messages_field" in asked:
        with pytest.raises(UsageError, match="a CSV file has no lists of messages; use prompt_field"):
            list(read_records(Source(tmp_path / "a.csv", **asked)))

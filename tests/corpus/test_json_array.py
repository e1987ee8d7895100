"""Cutting an array into objects: what ``json`` says of the whole file, however it is read, and the versions that are wrong."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.corpus.json_array import NotAnArray, ObjectTooLong, array_objects

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('"\\{}[]:, né語\n\t')
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text('"\\{}[],'), inner), max_leaves=5)
arrays = st.lists(st.dictionaries(st.text('ab"\\{}[]'), values))


def objects(content: bytes, step: int = 1 << 20, most: int = 10**6) -> list[bytes]:
    """Read in pieces of ``step`` bytes, so that every string is cut somewhere."""
    stream = io.BytesIO(content)
    return list(array_objects(lambda size: stream.read(min(step, size)), most))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(arrays, st.integers(3, 40), st.sampled_from([None, 1]), st.booleans())
def test_the_objects_are_those_of_json(array: list[Any], step: int, indent: int | None, ascii_only: bool) -> None:
    content = json.dumps(array, indent=indent, ensure_ascii=ascii_only).encode()
    assert [json.loads(found) for found in objects(content, step)] == array
    assert objects(codecs.BOM_UTF8 + b" \n" + content + b"\r\n") == objects(content)


def brackets_alone(content: bytes) -> list[bytes]:
    """A known-wrong version: it does not know of strings."""
    found, depth, begin = [], 0, 0
    for at, letter in enumerate(content):
        depth += (letter in b"{[") - (letter in b"}]")
        begin = at if letter in b"{" and depth == 2 else begin
        if letter in b"}" and depth == 1:
            found.append(content[begin : at + 1])
    return found


def strings_without_escapes(content: bytes) -> list[bytes]:
    """Another one: a quote ends a string, also behind a backslash."""
    return brackets_alone(re.sub(rb'"[^"]*"', lambda match: b"_" * len(match[0]), content))


@pytest.mark.parametrize("wrong", [brackets_alone, strings_without_escapes])
def test_what_does_not_read_strings_is_caught(wrong: Callable[[bytes], list[bytes]]) -> None:
    array = [{"a": '"]}'}, {"b": '\\"{'}, {}]
    content = json.dumps(array).encode()
    assert [json.loads(found) for found in objects(content)] == array
    assert len(wrong(content)) != len(array)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(arrays, st.data())
def test_what_is_cut_short_is_no_array(array: list[Any], data: st.DataObject) -> None:
    content = json.dumps(array).encode()
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(NotAnArray):
        objects(content[:cut], step=7)


@pytest.mark.parametrize(
    "content", [b"", b" ", b"{}", b'"a"', b"[1]", b"[{}", b"[{},]", b"[,{}]", b"[{}{}]", b"[{}]]", b"[{}] x", b"[[{}]]", b"[}"]
)  # fmt: skip
def test_what_is_no_array_of_objects(content: bytes) -> None:
    with pytest.raises(NotAnArray):
        objects(content)


def test_the_cap_is_exact_and_counts_the_braces() -> None:
    content = b'[{"a": 1}, {"a": 12}]'
    assert objects(content, most=9) == [b'{"a": 1}', b'{"a": 12}']
    with pytest.raises(ObjectTooLong):
        objects(content, most=8)


@pytest.mark.parametrize("endless", [b"a", b"\\", b" ", b"[", b'{"a":'])
def test_an_endless_object_is_not_read_to_its_end(endless: bytes) -> None:
    """Nor is what is looked at looked at again and again: a string that goes on is one token however long it is."""
    read = 0

    def forever() -> Iterator[bytes]:
        yield b'[{"text": "' if endless in (b"a", b"\\", b" ") else b'[{"text": '
        while True:
            yield endless * 1000

    pieces = forever()

    def next_piece(size: int) -> bytes:
        nonlocal read
        piece = next(pieces)
        read += len(piece)
        return piece

    with pytest.raises(ObjectTooLong):
        list(array_objects(next_piece, 50_000))
    assert read < 120_000

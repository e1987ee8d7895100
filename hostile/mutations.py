"""Ways to damage bytes: what disks, editors, wrong exports and people do to files."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable

__all__ = ["BYTES", "DEEP", "Mutation"]

Mutation = Callable[[random.Random, bytes], bytes]

DEEP = 100_000
"""Levels of what is nested too deep."""

_BOMB = 64 << 20
"""Bytes of a record that packs into a few KB."""


def _flipped(rng: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20, 100))):
        if found:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _without_a_part(rng: random.Random, data: bytes) -> bytes:
    begin = rng.randrange(len(data) + 1)
    return data[:begin] + data[begin + rng.randrange(1, 200) :]


def _a_part_twice(rng: random.Random, data: bytes) -> bytes:
    begin = rng.randrange(len(data) + 1)
    part = data[begin : begin + rng.randrange(1, 2000)]
    return data[:begin] + part + part + data[begin + len(part) :]


def _other_bytes(rng: random.Random, data: bytes) -> bytes:
    begin, count = rng.randrange(len(data) + 1), rng.randrange(1, 64)
    return data[:begin] + rng.randbytes(count) + data[begin + count :]


def _with_nul(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + b"\0" * rng.choice((1, 2, 4096)) + data[place:]


def _random(rng: random.Random, data: bytes) -> bytes:
    return rng.randbytes(rng.choice((1, 10, 1000, 100_000)))


def _encoded(name: str) -> Mutation:
    def encode(rng: random.Random, data: bytes) -> bytes:
        return data.decode("utf-8", "replace").encode(name, "replace")

    return encode


def _long_line(rng: random.Random, data: bytes) -> bytes:
    return data.replace(b"\n", b" ") + b"a" * rng.choice((10_000, 2_000_000, 20_000_000))


def _deep(rng: random.Random, data: bytes) -> bytes:
    opened = rng.choice((b"[", b'{"a":', b'{"text": ['))
    place = data.find(b"\n", rng.randrange(len(data) + 1)) + 1
    return data[:place] + opened * DEEP + b"\n" + data[place:]


def _packed(rng: random.Random, data: bytes) -> bytes:
    return gzip.compress(data, 1)


def _packed_and_cut(rng: random.Random, data: bytes) -> bytes:
    return _cut(rng, gzip.compress(data, 1))


def _packed_and_flipped(rng: random.Random, data: bytes) -> bytes:
    return _flipped(rng, gzip.compress(data, 1))


def _bomb(rng: random.Random, data: bytes) -> bytes:
    line = b'{"text": "' + rng.choice((b"a", b" ", b"\0")) * _BOMB + b'"}\n'
    return gzip.compress(data + line, 1)


def _escapes(rng: random.Random, data: bytes) -> bytes:
    odd = rng.choice(
        (b"\\ud800", b"\\u0000", b"\\udfff\\ud800", b"\xed\xa0\x80", b"\x1b[31m", b"\xe2\x80\xae", b"\xff\xfe")
    )
    place = rng.randrange(len(data) + 1)
    return data[:place] + odd + data[place:]


def _odd_numbers(rng: random.Random, data: bytes) -> bytes:
    odd = rng.choice((b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"null", b"true", b"[]", b"{}"))
    places = [place for place, byte in enumerate(data) if byte == ord(":")] or [0]
    place = rng.choice(places) + 1
    return data[:place] + odd + b"," + data[place:]


BYTES: dict[str, Mutation] = {
    "bytes flipped": _flipped,
    "cut off": _cut,
    "a part missing": _without_a_part,
    "a part twice": _a_part_twice,
    "other bytes": _other_bytes,
    "NULs": _with_nul,
    "random bytes": _random,
    "empty": lambda rng, data: b"",
    "UTF-16": _encoded("utf-16"),
    "Latin-1": _encoded("latin-1"),
    "EBCDIC": _encoded("cp037"),
    "byte order mark": lambda rng, data: b"\xef\xbb\xbf" + data,
    "one huge line": _long_line,
    "nested 100,000 deep": _deep,
    "packed, with another ending": _packed,
    "packed and cut off": _packed_and_cut,
    "packed and flipped": _packed_and_flipped,
    "a bomb": _bomb,
    "odd escapes": _escapes,
    "odd numbers": _odd_numbers,
}

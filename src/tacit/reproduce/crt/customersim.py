"""Members and true non-members of the CustomerSim corpus, for membership inference (Zhao et al. 2022, appendix A.5)."""

from __future__ import annotations

import csv
import functools
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tacit.audit.samples import MembershipSamples, Pair, alphanumeric, check_count, chosen, samples_of
from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness

__all__ = ["CustomerKind", "customersim_pairs", "customersim_samples"]

CustomerKind = Literal["name", "address", "phone_number", "order_number"]


def customersim_samples(
    folder: Path, kind: CustomerKind, count: int, streams: KeyedRandomness, dialogues: int | None = None
) -> MembershipSamples:
    """Members and true non-members of CustomerSim; A.5 takes addresses.

    A member is the line of a training dialogue that holds a secret, one line a distinct secret. Its non-member is that line with
    the secret of a customer of whom neither name, address, phone nor order number is among the training spans; 497 of the 1,985
    secrets of the test dialogues do occur there, so test dialogues are no non-members. Spelling is ignored: case, spaces, dashes
    and dots. Names are shared by customers, so the names that are left are rarer than those of members: prefer another kind.

    Args:
        folder: with customersim.train.jsonl.gz and database_20000.csv.gz.
        kind: the spans' kind and the table's column.
        count: pairs.
        streams: draws both.
        dialogues: members are of the first so many training dialogues; None: of all.

    Raises:
        UsageError: another kind (tracking numbers are in no table), or more pairs than there are.
        DataError: a file cannot be read or has another form.
    """
    pairs = customersim_pairs(folder, kind, streams, dialogues)
    check_count(count, len(pairs), kind)
    return samples_of(pairs[:count])


def customersim_pairs(
    folder: Path, kind: CustomerKind, streams: KeyedRandomness, dialogues: int | None = None
) -> list[Pair]:
    """All pairs of a kind, in a random order; see `customersim_samples`."""
    if kind not in get_args(CustomerKind):
        raise UsageError(
            f"there are no true non-members of kind {kind!r}; use one of {', '.join(get_args(CustomerKind))}"
        )
    lines, fresh = _sides(folder, dialogues).of(kind)
    count = min(len(lines), len(fresh))
    drawn = [chosen(list(values), count, streams, side, kind) for side, values in (("in", lines), ("out", fresh))]
    pairs = [(lines[inside], fresh[outside]) for inside, outside in zip(*drawn, strict=True)]
    return [
        Pair(before + secret + after, before + other + after, ((len(before), len(before) + len(secret)),))
        for (before, secret, after), other in pairs
    ]


@dataclass(frozen=True)
class _Sides:
    """Both sides by kind: of each secret what stands before it in its line, it and what follows; and secrets of unknown customers."""

    lines: dict[CustomerKind, dict[str, tuple[str, str, str]]]
    fresh: dict[CustomerKind, dict[str, str]]

    def of(self, kind: CustomerKind) -> tuple[dict[str, tuple[str, str, str]], dict[str, str]]:
        return self.lines[kind], self.fresh[kind]


@functools.lru_cache(maxsize=4)
def _sides(folder: Path, dialogues: int | None) -> _Sides:
    """Read once a process: a model's job asks for each kind, and the files are large."""
    kinds: tuple[CustomerKind, ...] = get_args(CustomerKind)
    lines: dict[CustomerKind, dict[str, tuple[str, str, str]]] = {kind: {} for kind in kinds}
    seen: set[str] = set()
    for number, (text, spans) in enumerate(_dialogues(folder / "customersim.train.jsonl.gz")):
        for start, end, label in spans:
            secret = alphanumeric(text[start:end])
            seen.add(secret)
            for kind in kinds:
                if label == kind and (dialogues is None or number < dialogues):
                    before, after = text[:start].rpartition("\n")[2], text[end:].partition("\n")[0]
                    lines[kind].setdefault(secret, (before, text[start:end], after))
    fresh: dict[CustomerKind, dict[str, str]] = {kind: {} for kind in kinds}
    for customer in _customers(folder / "database_20000.csv.gz"):
        spelled = {kind: alphanumeric(customer[kind]) for kind in kinds}
        if seen.isdisjoint(spelled.values()):
            for kind in kinds:
                fresh[kind].setdefault(spelled[kind], customer[kind])
    return _Sides(lines, fresh)


def _dialogues(path: Path) -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    """Text and spans of each dialogue."""
    for number, line in enumerate(_lines(path), start=1):
        dialogue = _dialogue(line)
        if dialogue is None:
            raise DataError(f"{path}, line {number}: this is no dialogue with text and spans; restore the file")
        yield dialogue


def _dialogue(line: str) -> tuple[str, list[tuple[int, int, str]]] | None:
    """None if it is none: the errors of ``json`` quote the line, so none of them goes on."""
    try:
        values: Any = json.loads(line)
        return str(values["text"]), [(int(start), int(end), str(label)) for start, end, label in values["spans"]]
    except (ValueError, KeyError, TypeError):
        return None


def _customers(path: Path) -> Iterator[dict[str, str]]:
    table = csv.DictReader(_lines(path))
    if not set(get_args(CustomerKind)) <= set(table.fieldnames or ()):
        raise DataError(f"{path}: the table has not the columns {', '.join(get_args(CustomerKind))}; restore the file")
    yield from table


def _lines(path: Path) -> list[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            return file.readlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        pass
    raise DataError(f"{path}: the file cannot be read; check the path")

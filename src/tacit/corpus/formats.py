"""The formats of a corpus: how each is read, and which names its fields have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tacit.corpus.json_records import json_names, jsonl_names, read_json, read_jsonl
from tacit.corpus.places import Place
from tacit.corpus.plain import read_conll, read_txt
from tacit.corpus.records import Record
from tacit.corpus.tables import arrow_names, csv_names, parquet_names, read_arrow, read_csv, read_parquet

if TYPE_CHECKING:
    from tacit.corpus.source import Source  # asks which formats there are

__all__ = ["FIELD_NAMES", "READERS"]

READERS: dict[str, Callable[[Place, Source], Iterator[Record]]] = {
    "txt": read_txt,
    "jsonl": read_jsonl,
    "json": read_json,
    "csv": read_csv,
    "parquet": read_parquet,
    "arrow": read_arrow,
    "conll": read_conll,
}
"""The records of one file, for each format; its name is also its files' ending."""

FIELD_NAMES: dict[str, Callable[[Place, Source], list[str]]] = {
    "jsonl": jsonl_names,
    "json": json_names,
    "csv": csv_names,
    "parquet": parquet_names,
    "arrow": arrow_names,
}
"""The names of the fields of one file, for each format that has fields."""

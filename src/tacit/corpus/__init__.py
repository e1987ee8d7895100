"""Texts and whose they are: readers of corpora, the privacy unit, and synthetic corpora.

Imports nothing of tacit but its errors and its keyed randomness.
"""

from __future__ import annotations

from tacit.corpus.formats import READERS
from tacit.corpus.readers import read_objects, read_records
from tacit.corpus.records import Record
from tacit.corpus.source import Source
from tacit.corpus.synthetic import SyntheticPrivate, SyntheticPublic, write_private, write_public
from tacit.corpus.turns import Turns
from tacit.corpus.units import Unit, UnitKind, group_units, split_held_out, unit_fingerprint

__all__ = [
    "READERS",
    "Record",
    "Source",
    "SyntheticPrivate",
    "SyntheticPublic",
    "Turns",
    "Unit",
    "UnitKind",
    "group_units",
    "read_objects",
    "read_records",
    "split_held_out",
    "unit_fingerprint",
    "write_private",
    "write_public",
]

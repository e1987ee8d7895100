"""Tiny runs of every kind release what they released when they were recorded (``tests/goldens.py``)."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
from hostile.cases import CASES

from .goldens import Golden, Outcome, differences, fingerprint, outcome, recorded

RECORDED = recorded()
MARK = "this machine"


def test_every_kind_is_recorded():
    assert set(RECORDED) == set(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_run_comes_to_what_was_recorded(name: str, tmp_path: Path):
    golden = RECORDED[name]
    found = outcome(name, tmp_path, golden["noise"])
    mark = fingerprint()
    if mark not in golden["digests"]:
        warnings.warn(
            f"last digits not compared: nothing recorded on this processor and libraries ({mark})", stacklevel=1
        )
    assert differences(golden, found, mark) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LSTM", "GPT-2 from a folder"])
def test_under_another_key_every_digest_is_another_one(name: str, tmp_path: Path):
    golden = RECORDED[name]
    found = outcome(name, tmp_path, golden["noise"], who="somebody else")
    fixed = {"digest of config.json", "digest of tokenizer_config.json", "digest of tokenizer.json", "tokenizer"}
    for mark, digests in golden["digests"].items():
        assert {f"digest of {file}" for file in digests} - fixed == {*differences(golden, found, mark)} - fixed


def test_each_sort_of_difference_is_named():
    golden: Golden = {
        "noise": {},
        "portable": {"status": "proved", "files": ["a"]},
        "digests": {MARK: {"ledger": "1", "certificate": "2"}},
    }
    same: Outcome = {**copy.deepcopy(golden), "digests": dict(golden["digests"][MARK])}
    assert differences(golden, same, MARK) == []
    other: list[tuple[Outcome, list[str]]] = [
        ({**same, "portable": {"status": "assumed", "files": ["a"]}}, ["status"]),
        ({**same, "portable": {"status": "proved"}}, ["files"]),
        ({**same, "portable": {**same["portable"], "rows": {}}}, ["rows"]),
        ({**same, "digests": {"ledger": "1", "certificate": "3"}}, ["digest of certificate"]),
        ({**same, "digests": {"ledger": "1"}}, ["digest of certificate"]),
    ]
    for found, named in other:
        assert differences(golden, found, MARK) == named
    assert differences(golden, other[-1][0], "another machine") == []  # last digits of another machine are not compared

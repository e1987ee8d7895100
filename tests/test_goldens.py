"""Tiny runs of every kind release what they released when they were recorded (``tests/goldens.py``)."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from hostile.cases import CASES

from .goldens import CLOSE, Golden, Outcome, differences, fingerprint, outcome, recorded

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
        print(f"last digits are not compared: nothing was recorded on such a processor and libraries ({mark})")
    assert differences(golden, found, mark) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LSTM", "BERT, histogram"])
def test_under_another_key_it_is_told_apart_without_a_digest(name: str, tmp_path: Path):
    golden: Golden = {**RECORDED[name], "digests": {}}
    found = outcome(name, tmp_path, golden["noise"], who="somebody else")
    wrong = differences(golden, found, MARK)
    assert set(wrong) <= {*golden["projections"], "tokenizer"}  # the same mechanisms, files and account
    assert len(wrong) > len(golden["projections"]) / 2


def test_each_sort_of_difference_is_named():
    golden: Golden = {
        "noise": {},
        "portable": {"status": "proved", "files": ["a"]},
        "projections": {"head": 0.5, "body": -1.0},
        "digests": {MARK: {"ledger": "1", "certificate": "2"}},
    }
    same: Outcome = {**copy.deepcopy(golden), "digests": dict(golden["digests"][MARK])}
    assert differences(golden, same, MARK) == []
    near = {**same, "projections": {"head": 0.5 + 0.9 * CLOSE, "body": -1.0}}
    assert differences(golden, near, MARK) == []
    other: list[tuple[Outcome, list[str]]] = [
        ({**same, "portable": {"status": "assumed", "files": ["a"]}}, ["status"]),
        ({**same, "portable": {"status": "proved"}}, ["files"]),
        ({**same, "portable": {**same["portable"], "rows": {}}}, ["rows"]),
        ({**same, "projections": {"head": 0.5 + 1.1 * CLOSE, "body": -1.0}}, ["head"]),
        ({**same, "projections": {"head": float("nan"), "body": -1.0}}, ["head"]),
        ({**same, "projections": {"head": 0.5}}, ["body"]),
        ({**same, "projections": {**same["projections"], "tail": 0.0}}, ["tail"]),
        ({**same, "digests": {"ledger": "1", "certificate": "3"}}, ["digest of certificate"]),
        ({**same, "digests": {"ledger": "1"}}, ["digest of certificate"]),
    ]
    for found, named in other:
        assert differences(golden, found, MARK) == named
    assert differences(golden, other[-1][0], "another machine") == []  # last digits of another machine are not compared

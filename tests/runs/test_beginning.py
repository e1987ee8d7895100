"""How a run folder goes on: a default that has changed since it was begun is named, and so is another version of tacit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hostile.cases import CASES

from tacit.config import parse_config
from tacit.errors import LedgerError, UsageError
from tacit.pipeline.opening import open_run
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import MADE_BY
from tacit.runs.beginning import begin
from tacit.runs.folder import RunFolder
from tacit.version import VERSION

from ..small import small_values

BEFORE = "write method: histogram to go on"


def test_a_run_that_was_begun_with_another_default_method_says_what_to_write(tmp_path: Path) -> None:
    values = small_values(tmp_path, vocabulary={"max_words": 16, "size": 500})
    old = small_values(tmp_path, vocabulary={"max_words": 16, "size": 500, "method": "histogram"})
    with begin(parse_config(old)) as begun:
        begun.folder.release.mkdir()
    with pytest.raises(UsageError, match=BEFORE) as caught, begin(parse_config(values)):
        pass
    assert "vocabulary.method: histogram -> weighted" in str(caught.value)
    with begin(parse_config(old)):  # so it does go on
        pass
    chosen = small_values(tmp_path, vocabulary={"max_words": 16, "size": 500, "method": "weighted"})
    with pytest.raises(UsageError) as caught, begin(parse_config(chosen)):
        pass
    assert BEFORE not in str(caught.value)


@pytest.mark.parametrize("made_by", ["0.0.1", None])
def test_a_run_that_another_version_began_is_refused(made_by: str | None, tmp_path: Path) -> None:
    """Another version may draw other noise for a step that is paid: the line says with which one the run ends."""
    CASES["LSTM"].write(tmp_path)
    config = parse_config({**CASES["LSTM"].values(tmp_path), "run": str(tmp_path / "run")})
    with open_run(config) as state:
        header = state.ledger.header
    folder = RunFolder(tmp_path / "run")
    folder.ledger.unlink()
    with Ledger.create(folder.ledger, header) as ledger:
        ledger.bind("a digest", "of something")
        if made_by is not None:
            ledger.bind(MADE_BY, made_by)
    words = rf"begun by tacit {made_by or 'before 0.2'}, and this is {re.escape(VERSION)}, .*; end it with that version"
    with pytest.raises(LedgerError, match=words), open_run(config):
        pass

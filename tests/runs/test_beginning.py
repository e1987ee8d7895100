"""How a run folder goes on: a default that has changed since it was begun is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.config import parse_config
from tacit.errors import UsageError
from tacit.runs.beginning import begin

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

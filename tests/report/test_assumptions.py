"""What a guarantee rests on hangs on what the run was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.config import parse_config
from tacit.report.collect.assumptions import assumptions

from ..small import small_values

RELEASE = "ab" * 32


@pytest.mark.parametrize(
    ("role", "origin", "rests"),
    [
        ("the model folder", "declared public", True),
        ("the scorer", "declared public", True),
        ("the given tokenizer", "declared public", False),
        ("public corpus 1", "declared public", False),
        ("the model folder", RELEASE, False),  # with what that release was given it is the ancestor's own row
    ],
)
def test_given_weights_are_trusted_not_to_enlarge_last_bits(role: str, origin: str, rests: bool) -> None:
    ancestor = {"head": RELEASE, "spends": [], "unit": "record"}
    start = {
        "given": [{"role": role, "origin": origin, "given_to": "this run"}],
        "ancestors": [ancestor],
        "same_people": True,
    }
    rows = assumptions(parse_config(small_values(Path("/nowhere"))), start)
    found = [row.label for row in rows if "enlarge the last bits" in row.text]
    assert found == (["assumed"] if rests else [])

"""What a guarantee rests on hangs on what the run was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.config import parse_config
from tacit.report.collect.assumptions import assumptions

from ..small import small_values

RELEASE = "ab" * 32


@pytest.mark.parametrize(
    ("role", "origin", "weights", "programs"),
    [
        ("the model folder", "declared public", True, True),
        ("the scorer", "declared public", True, True),
        ("the given tokenizer", "declared public", False, True),
        ("the model of detector 2 of screening.balanced", "declared public", False, True),
        ("public corpus 1", "declared public", False, False),
        ("the model folder", RELEASE, False, False),  # with what that release was given it is the ancestor's own row
    ],
)
def test_given_files_are_trusted_as_far_as_nothing_can_look(
    role: str, origin: str, weights: bool, programs: bool
) -> None:
    ancestor = {"head": RELEASE, "spends": [], "unit": "record"}
    start = {
        "given": [{"role": role, "origin": origin, "given_to": "this run"}],
        "ancestors": [ancestor],
        "same_people": True,
    }
    rows = assumptions(parse_config(small_values(Path("/nowhere"))), start)
    for words, rests in (("enlarge the last bits", weights), ("which are programs", programs)):
        assert [row.label for row in rows if words in row.text] == (["assumed"] if rests else [])


def test_what_every_compared_corpus_is_like_is_assumed() -> None:
    rows = assumptions(parse_config(small_values(Path("nowhere"))), {"given": [], "ancestors": [], "same_people": True})
    (row,) = [
        one for one in rows if one.text.startswith("Every corpus that could stand in this one's place can be read")
    ]
    assert row.label == "assumed"
    assert "each with its user" in row.text
    assert "valid Unicode" in row.text

"""Policies: the two of the package, a user's own, and bad files."""

from __future__ import annotations

from pathlib import Path

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DataError, TacitError, UsageError
from tacit.screening.policy import POLICIES, Policy, PolicyOptions, in_turn, load_policy, package_policy
from tacit.screening.spans import merged

BALANCED, CONSERVATIVE = map(package_policy, POLICIES)


def covered(policy: Policy, text: str) -> set[int]:
    return {place for start, end in merged(policy.spans(text)) for place in range(start, end)}


@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from(["Bob ", "call 415-555-2671 ", "zzxqy ", "is here. ", "the "])).map("".join)
)
def test_conservative_marks_all_that_balanced_marks(text: str) -> None:
    assert covered(BALANCED, text) <= covered(CONSERVATIVE, text)


class Apart:
    """A policy that is not known to be one."""

    def __init__(self, policy: Policy) -> None:
        self.spans_of = policy.spans_of


TEXTS = ["Call 415-555-2671", "Hello, what can I do for you?", "It costs $12 in 1997.", "", "Ask Zzxqy.", "Hello."]
OTHER_WORDS = Policy(CONSERVATIVE.options.model_copy(update={"known_words": ("zzxqy",)}))


@pytest.mark.parametrize("second", [CONSERVATIVE, OTHER_WORDS, BALANCED])
def test_two_policies_in_turn_mark_what_each_marks_by_itself(second: Policy) -> None:
    expected = [(marked, [] if marked else second.spans(text)) for text in TEXTS for marked in [BALANCED.spans(text)]]
    assert list(zip(*in_turn(BALANCED, second, TEXTS), strict=True)) == expected
    assert list(zip(*in_turn(Apart(BALANCED), second, TEXTS), strict=True)) == expected


def test_what_the_core_found_for_other_words_is_not_taken() -> None:
    """Of a policy that knows a name as a word, detections of one that does not would be marked."""
    knowing = Policy(BALANCED.options.model_copy(update={"known_words": ("zzxqy",)}))
    low = Policy(BALANCED.options.model_copy(update={"least_score": 0.0, "known_words": ("zzxqy",)}))
    text = "It is Zzxqy in 1997."
    assert knowing.spans(text) == []
    assert [text[span.start : span.end] for span in in_turn(knowing, low, [text])[1][0]] == ["1997"]
    assert len(low.spans_of([text], BALANCED.core_spans_of([text]))[0]) == 2
    stranger = Policy(BALANCED.options.model_copy(update={"least_score": 0.0}))
    assert len(in_turn(knowing, stranger, [text])[1][0]) == 2


def test_both_leave_plain_english_alone() -> None:
    text = "Hello, what can I do for you?"
    assert BALANCED.spans(text) == CONSERVATIVE.spans(text) == []


def test_conservative_marks_what_balanced_does_not_know() -> None:
    text = "It costs $12 in 1997."
    assert covered(BALANCED, text) == set()
    assert covered(CONSERVATIVE, text) == set(range(len(text)))


def test_labels_scores_and_patterns() -> None:
    text = "Call 415-555-2671, card 4111 1111 1111 1111, badge B-12"
    values = {"name": "mine", "least_score": 0.9, "labels": ["card", "badge"]}
    options = PolicyOptions.model_validate(values | {"patterns": [{"label": "badge", "pattern": "B-[0-9]+"}]})
    assert [text[span.start : span.end] for span in Policy(options).spans(text)] == ["4111 1111 1111 1111", "B-12"]


def test_what_a_detector_cannot_read_is_marked_whatever_is_asked_for(tmp_path: Path) -> None:
    """Neither labels nor scores leave it out: nobody knows what is in it."""
    spacy.blank("en").to_disk(tmp_path / "empty")
    pipeline = spacy.load(tmp_path / "empty")
    pipeline.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Anna"}])
    pipeline.to_disk(tmp_path / "rules")
    detectors = ({"kind": "spacy", "pipeline": str(tmp_path / "rules"), "score": 0.5},)
    policy = Policy(
        PolicyOptions.model_validate({"name": "own", "least_score": 1, "labels": ["x"], "detectors": detectors})
    )
    text = "Anna \ud800"
    assert merged(policy.spans(text)) == [(0, len(text))]
    assert policy.spans("Anna") == []


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\nleast_score: 0.3\nknown_words: [Zzxqy]\npatterns:\n- {label: badge, pattern: 'B-\\d+'}\n"
    )
    policy = load_policy(file)
    assert policy.name == "mine"
    spans = policy.spans("the Zzxqy has badge B-12")
    assert "badge" in {span.label for span in spans}
    assert all(span.start > len("the Zzxqy has ") for span in spans)


@pytest.mark.parametrize(
    ("content", "kind", "part"),
    [
        (b"name: [", DataError, "not valid YAML"),
        (b"name: x\nname: y\n", DataError, "not valid YAML"),
        (b"\xff", DataError, "cannot be read"),
        (b"- 1", UsageError, "whole file"),
        (b"name: x", UsageError, "least_score"),
        (b"{name: x, least_score: 2}", UsageError, "least_score"),
        (b"{name: x, least_score: 0.5, colour: red}", UsageError, "colour"),
        (b"{name: x, least_score: 0.5, patterns: [{label: a, pattern: '(a)\\1'}]}", DataError, "item 1 (a)"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, content: bytes, kind: type[TacitError], part: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(kind) as caught:
        load_policy(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert part in message
    assert "\n" not in message


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        load_policy(tmp_path / "none.yaml")

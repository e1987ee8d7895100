"""The combined pattern: what each form finds, and that no text makes it slow."""

from __future__ import annotations

import gzip
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tacit.screening.patterns as module
from tacit.screening.patterns import formed


def found(text: str) -> list[tuple[str, str]]:
    return [(label, text[start:end]) for start, end, label, _ in formed(text)]


@pytest.mark.parametrize(
    ("text", "label", "part"),
    [
        ("mail ann.lee+x@mail.example.co.uk now", "email", "ann.lee+x@mail.example.co.uk"),
        ("see https://example.org/a?b=c.", "url", "https://example.org/a?b=c"),
        ("go to www.example.com, now", "url", "www.example.com"),
        ("from 192.168.10.4 today", "ip", "192.168.10.4"),
        ("at 2001:db8:0:0:1:0:0:1 now", "ip", "2001:db8:0:0:1:0:0:1"),
        ("to GB29 NWBK 6016 1331 9268 19 please", "iban", "GB29 NWBK 6016 1331 9268 19"),
        ("to DE89370400440532013000 more text", "iban", "DE89370400440532013000"),
        ("card 4111 1111 1111 1111 ok", "card", "4111 1111 1111 1111"),
        ("my ssn is 123-45-6789.", "ssn", "123-45-6789"),
        ("call (415) 555-2671 now", "phone", "(415) 555-2671"),
        ("call +44 20 7946 0018 now", "phone", "+44 20 7946 0018"),
        ("order 836-35527-7547 is", "record", "836-35527-7547"),
        ("it's 836-35527-7547.", "order", "836-35527-7547"),
        ("tracking: 6VJT7WO70Z.", "record", "6VJT7WO70Z"),
        ("use 6VJT7WO70Z.", "code", "6VJT7WO70Z"),
        ("use 0347ISQDMV.", "code", "0347ISQDMV"),
        ("policy number QXZPLMRT ok", "record", "QXZPLMRT"),
        ("born 24/12/1987 in", "date", "24/12/1987"),
        ("at 1980-07-28 19:49:46 it", "datetime", "1980-07-28 19:49:46"),
        ("on March 3rd, 2019 at", "date", "March 3rd, 2019"),
        ("a 93-year-old man", "age", "93-year-old"),
        ("aged 101, he", "age", "aged 101"),
        ("at SW1A 2AA in", "postcode", "SW1A 2AA"),
        ("to K1A 0B1 in", "postcode", "K1A 0B1"),
        ("in CT 85093 now", "postcode", "CT 85093"),
    ],
)
def test_forms(text: str, label: str, part: str) -> None:
    assert (label, part) in found(text)


@pytest.mark.parametrize(
    "text", ["a 45-year-old man", "at 7 pm on the 3rd", "the 12 of us", "4.2 stars", "12:20:39", "@home"]
)
def test_what_is_no_secret(text: str) -> None:
    assert found(text) == []


PIECES = st.sampled_from(
    ["12", "7", "1984", "ab", "A", "GB29", "fe80", ":", "::", "@", ".", "-", "/", " ", "\n", "\0", "com", "www.", "http://",
     "May", "of", "90", "years old", "order", "number", "#", "$", "£", "é", "²", "x", "CT", "K1A", "(", ")", "+", ",", "?",
     "\xa0", "ABCDEFGH"]
)  # fmt: skip


def says_who_matched(text: str, which: Callable[[bytes, int, int], tuple[str, int, int]]) -> bool:
    """Whether label and part are those of RE2's groups, for all matches."""
    data = text.encode("latin-1", "replace")
    by_groups = []
    for match in module._WHICH.finditer(data):
        label = next(label for label in module._FORMS if match.start(module._GROUPS[label]) >= 0)
        by_groups.append((match.span(), (label, *match.span(module._GROUPS["which" if label == "record" else label]))))
    return by_groups == [(match.span(), which(data, *match.span())) for match in module._ANY.finditer(data)]


@given(st.one_of(st.lists(PIECES, max_size=30).map("".join), st.text()))
@example("order no 123-45 of 12.34.56.78 at 2001:db8::1, call 415 555 2671 x12")
@example("1" * 1000 + "a" * 1000 + " www." + "b" * 1000)
@settings(max_examples=300)
def test_the_label_is_that_of_the_first_form_that_matches(text: str) -> None:
    assert says_who_matched(text, module._which)


def test_real_text_has_the_same_labels(data_dir: Path) -> None:
    with gzip.open(data_dir / "customersim" / "customersim.train.jsonl.gz", "rt", encoding="utf-8") as file:
        text = "\0".join(json.loads(line)["text"] for line in itertools.islice(file, 1000))
    assert says_who_matched(text, module._which)


def test_forms_in_another_order_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = reversed(module._FORMS.items())
    wrong = module._backtracking("|".join(f"(?P<{label}>{pattern})" for label, pattern in forms))
    monkeypatch.setattr(module, "_WHICH_OF_SHORT", wrong)
    assert not says_who_matched("it is 12ab45678", module._which)


@pytest.mark.parametrize("text", ["in 1997 we", "it costs $1,250.50 now"])
def test_years_and_money_score_below_what_is_masked(text: str) -> None:
    assert [score for *_, score in formed(text)] == [0.2]


def test_an_iban_with_a_wrong_check_digit_is_still_a_code() -> None:
    assert found("to GB93PITW55383148579182 please") == [("code", "GB93PITW55383148579182")]


def test_a_card_that_fails_luhn_is_still_a_number() -> None:
    assert found("4111 1111 1111 1112") == [("number", "4111 1111 1111 1112")]


@pytest.mark.parametrize(
    "piece", ["a1", "1 ", "@", "a@", "a.", "A ", "1.", "::", "aA9-", "www.", "+(", "order 1", "AB12 "]
)
def test_time_is_linear(piece: str) -> None:
    """200 kB of the worst kind take a moment; a quadratic pattern would take minutes."""
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    for _ in formed(text):
        pass
    assert time.process_time() - start < 5

"""Names and addresses from word classes."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tacit.screening.words as module
from tacit.screening import begins
from tacit.screening.lexicon import Lexicon
from tacit.screening.words import Words

WORDS = Words(Lexicon())


def found(text: str, least: float = 0.3) -> list[tuple[str, str]]:
    return [(label, text[start:end]) for start, end, label, score in WORDS.found(text) if score >= least]


@pytest.mark.parametrize(
    ("text", "label", "part"),
    [
        ("I am Jennifer Lopez, hello", "name", "Jennifer Lopez"),
        ("I spoke with Zzxqy yesterday", "name", "Zzxqy"),
        ("my name is will, thanks", "name", "will"),
        ("please ask dr. house about it", "name", "dr. house"),
        ("with Alan B. Scott, M.D. at noon", "name", "Alan B. Scott, M.D."),
        ("we met Vincent van Gogh there", "name", "Vincent van Gogh"),
        ("send it to xiaoxue please", "name", "xiaoxue"),
        ("I spoke with Zzxqy (Quuxly), yesterday", "name", "Zzxqy (Quuxly)"),
        ("It was Ms. Grace Reed who called", "name", "Ms. Grace Reed"),
        ("I live at 12 Old Mill Road, Apt. 4 now", "address", "12 Old Mill Road, Apt. 4"),
        ("ship it to 3337 Melissa Courts West Glenda, MD 10001 please", "address", "3337 Melissa Courts West Glenda, MD 10001"),
        ("it is Unit 1409 Box 0320 DPO AE 07927 now", "address", "Unit 1409 Box 0320 DPO AE 07927"),
        ("at 770 san ramon valley boulevard now", "address", "770 san ramon valley boulevard"),
        ("at the corner of Main Street and Third Avenue now", "address", "the corner of Main Street and Third Avenue"),
        ("near Luite tee 87 today", "address", "Luite tee 87"),
    ],
)  # fmt: skip
def test_names_and_addresses(text: str, label: str, part: str) -> None:
    assert (label, part) in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "Can you tell me when my order will arrive?",
        "The house is big. Thanks a lot, I will call you tomorrow.",
        "Will it rain? May I ask you something?",
        "I need two tickets for the game at 7 pm.",
        "Don't do that, it's wrong.",
    ],
)
def test_plain_english_holds_none(text: str) -> None:
    assert found(text) == []


WORD = st.sampled_from(
    ["Jennifer", "Zzxqy", "zzxqy", "Will", "will", "house", "House", "the", "of", "12", "1409", "21st", "Street", "street",
     "Apt", "Dr", "FPO", "CT", "salon", "Hotel", "hotel", "name", "van", "I", "J", "A", "a", "with", "With", "corner", "s"]
)  # fmt: skip
GAP = st.sampled_from([" ", " ", " ", ", ", ". ", "-", "'", "\n", ": ", "? ", " # ", " (", ") "])


def passed_over(letters: str) -> list[str]:
    """Forms that match at a place where their family is not tried."""
    families = dict(begins.places_to_try(letters))
    return [
        f"{kind} at {place} of {letters}"
        for place in range(len(letters))
        for kind, form in FORMS.items()
        if not module._FAMILIES[kind] & families.get(place, 0) and form.match(letters, place)
    ]


FORMS = {kind: re.compile(form) for kind, form in module._FORMS.items()}
LETTERS = "UFGCIZTBSMQONKxdDwWufcoOeaAihsbqtmknJ"


def some_letters(seed: int) -> str:
    """Few kinds of words, so that long forms are among them."""
    rng = random.Random(seed)
    words, gaps = rng.sample(LETTERS, rng.randint(2, 8)), " " * rng.randint(1, 6) + "".join(rng.sample("/,.-#:|", 2))
    return "".join(rng.choice(gaps) + rng.choice(words) for _ in range(200)) + rng.choice(gaps)


@given(st.lists(st.tuples(WORD, GAP), max_size=25))
@example([("with", " "), ("Central", " "), ("house", " "), ("house", " "), ("hotel", " ")])
def test_passing_over_words_changes_nothing(parts: list[tuple[str, str]]) -> None:
    """The quick test of where a pattern can begin is only quick: nowhere else does one match."""
    letters, _ = WORDS.letters("".join(word + gap for word, gap in parts))
    assert not passed_over(letters)


@pytest.mark.parametrize("seed", range(100))
def test_no_form_begins_where_it_is_not_tried(seed: int) -> None:
    assert not passed_over(some_letters(seed))


def test_real_text_loses_nothing(data_dir: Path) -> None:
    with gzip.open(data_dir / "sgd" / "sgd.train.jsonl.gz", "rt", encoding="utf-8") as file:
        turns = [turn[1] for line in itertools.islice(file, 150) for turn in json.loads(line)["turns"]]
    assert not passed_over(WORDS.letters("\0".join(["", *turns, ""]))[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"member": "UFGCITBSMQONKxdD"},
        {"before a stop": "ITQ"},
        {"business": "bB"},
        {"titled": "UFGCI"},
        {"seed": "UFu"},
    ],
)
def test_a_set_that_lacks_a_letter_is_caught(wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begins, "_TABLE", begins._table({**begins._SETS, **wrong}))
    assert any(passed_over(some_letters(seed)) for seed in range(100))


@pytest.mark.parametrize(("words", "count"), [(40, 1), (40, 2), (40, 7), (40, 19), (3, 17), (1, 3)])
def test_what_follows_is_looked_for_among_the_next_words(words: int, count: int) -> None:
    rng = random.Random(words + count)
    mask = np.array([rng.random() < 0.2 for _ in range(words)])
    found = begins._Words(" ".join(["", *"w" * words, ""])).within(count, mask)
    assert found.tolist() == [any(mask[place + 1 : place + 1 + count]) for place in range(words)]


def test_looking_too_near_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    within = begins._Words.within
    monkeypatch.setattr(begins._Words, "within", lambda words, count, mask: within(words, count // 2, mask))
    assert any(passed_over(some_letters(seed)) for seed in range(100))


@pytest.mark.parametrize(
    "piece", ["A ", "Bob ", "zzxqy ", "12 ", "house ", "Dr. ", "the ", "12 Old ", "Apt 4 ", "a-b-", "van ", "C, "]
)
def test_time_is_linear(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    for _ in WORDS.found(text):
        pass
    assert time.process_time() - start < 5

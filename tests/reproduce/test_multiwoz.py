"""Members and true non-members of MultiWOZ: lines of the training text, the same lines with numbers that no file has."""

from __future__ import annotations

import gzip
import json
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tacit.audit.blind import blind_baseline
from tacit.audit.samples import MembershipSamples, alphanumeric
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.corpus.turns import Turns
from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness
from tacit.reproduce.crt import multiwoz
from tacit.reproduce.crt.multiwoz import multiwoz_samples

STREAMS = KeyedRandomness(bytes(range(32)))
VAL, TEST, DEV, TRAIN = (
    "multiwoz-convlab2.val",
    "multiwoz-convlab2.test",
    "multiwoz22.dev.bio",
    "multiwoz22.train-shard001.text",
)
PAIRS = 500


def check_true_non_members(samples: MembershipSamples, text: str) -> None:
    """No word that the non-member has and its member has not is anywhere in the text, however it is spelled there."""
    squeezed = alphanumeric(text)
    for member, other in zip(samples.members, samples.non_members, strict=True):
        new = [word for word in other.split() if word not in member.split()]
        assert new
        assert not any(alphanumeric(word) in squeezed for word in new)


def shape(text: str) -> str:
    return re.sub("[a-z]", "a", re.sub("[A-Z]", "A", re.sub("[0-9]", "0", text)))


@pytest.fixture(scope="module")
def samples(data_dir: Path) -> MembershipSamples:
    return multiwoz_samples(data_dir / "multiwoz", PAIRS, STREAMS)


def everything(folder: Path) -> str:
    source = Source(folder, text_field="turns", turns=Turns(speaker=None), format="jsonl")
    return "\n".join(record.text for record in read_records(source))


def test_members_are_lines_that_are_trained_on(samples: MembershipSamples, data_dir: Path) -> None:
    source = Source(data_dir / "multiwoz" / f"{VAL}.jsonl.gz", text_field="turns", turns=Turns())
    lines = {line for record in read_records(source) for line in record.text.split("\n")}
    assert set(samples.members) <= lines
    assert len(set(samples.members)) == len(set(samples.non_members)) == PAIRS
    assert not set(samples.non_members) & lines


def test_no_non_member_has_a_number_that_occurs(samples: MembershipSamples, data_dir: Path) -> None:
    check_true_non_members(samples, everything(data_dir / "multiwoz"))


def test_another_members_number_is_caught(samples: MembershipSamples, data_dir: Path) -> None:
    """The known-wrong choice: the turns of other members are in the training data."""
    shifted = MembershipSamples(samples.members, (*samples.members[1:], samples.members[0]))
    with pytest.raises(AssertionError):
        check_true_non_members(shifted, everything(data_dir / "multiwoz"))


def test_the_form_is_the_same(samples: MembershipSamples) -> None:
    for member, other in zip(samples.members, samples.non_members, strict=True):
        assert shape(member) == shape(other)
        assert any(map(str.isalnum, set(member.split()) - set(other.split())))


def test_they_are_told_apart_by_nothing_but_a_model(samples: MembershipSamples) -> None:
    assert blind(samples.non_members, samples).at_chance


def test_numbers_of_another_law_are_told_apart(samples: MembershipSamples) -> None:
    """The known-wrong numbers: digits alone, or letters of the first half of the alphabet."""
    digits = [re.sub(r"\b(?=\w*[A-Z0-9]{4})\w{8}\b", "12345678", other) for other in samples.non_members]
    assert not blind(digits, samples).at_chance


def blind(others: Sequence[str], samples: MembershipSamples) -> Any:
    return blind_baseline([[text] for text in samples.members], [[text] for text in others], STREAMS)


@pytest.mark.slow
def test_the_draw_is_keyed_and_there_are_so_many(samples: MembershipSamples, data_dir: Path) -> None:
    folder = data_dir / "multiwoz"
    assert samples == multiwoz_samples(folder, PAIRS, STREAMS)
    assert samples != multiwoz_samples(folder, PAIRS, STREAMS.child("other"))
    with pytest.raises(UsageError, match="there are 826 pairs of kind reference number"):
        multiwoz_samples(folder, 5000, STREAMS)


def test_the_form_of_the_training_text(data_dir: Path) -> None:
    named = multiwoz_samples(data_dir / "multiwoz", 20, STREAMS, Turns(names={"S": "SYSTEM", "U": "USER"}))
    bare = multiwoz_samples(data_dir / "multiwoz", 20, STREAMS, Turns(speaker=None))
    assert all(line.startswith(("SYSTEM: ", "USER: ")) for line in named.members + named.non_members)
    assert [line[len("SYSTEM: ") :] for line in named.non_members] == list(bare.non_members)


# a corpus by hand ----------------------------------------------------------------------------------------------------


def write(folder: Path, **turns: Any) -> Path:
    """The four files; keyword arguments are turns of val, test, dev and train."""
    for key, name in (("val", VAL), ("test", TEST), ("dev", DEV), ("train", TRAIN)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write(json.dumps({"id": "d", "turns": turns.get(key, [["U", "Hello .", {}, []]])}) + "\n")
    return folder


def turn(text: str, *spans: tuple[str, int]) -> list[Any]:
    return ["S", text, {}, [["Booking-Book", slot, "x", at, at] for slot, at in spans]]


def test_by_hand(tmp_path: Path) -> None:
    write(
        tmp_path,
        val=[
            turn(
                "Booked . \n Reference number : AB12CD34 . Again : AB12CD34 , and EF56GH78 .", ("Ref", 5), ("Ref", 12)
            ),
            turn("It was ab12cd34 .", ("Ref", 2)),  # no new number
            turn("Call 07218068540 .", ("Phone", 1)),
            turn("It is ## .", ("Ref", 2)),
        ],
        test=[turn("Your number is ZZ99ZZ99 .", ("Ref", 3))],
    )
    found = multiwoz_samples(tmp_path, 1, STREAMS)
    assert found.members == ("SYS: Booked . Reference number : AB12CD34 . Again : AB12CD34 , and EF56GH78 .",)
    (other,) = found.non_members
    match = re.fullmatch(
        r"SYS: Booked \. Reference number : ([A-Z]{2}\d\d[A-Z]{2}\d\d) \. Again : (\w+) , and ([A-Z]{2}\d\d[A-Z]{2}\d\d) \.",
        other,
    )
    assert match is not None
    assert match[1] == match[2] != match[3]
    assert "SYS:" not in repr(found)
    with pytest.raises(UsageError, match="there are 1 pairs"):
        multiwoz_samples(tmp_path, 2, STREAMS)


def test_a_number_that_is_spelled_somewhere_is_not_drawn() -> None:
    """Of the 260 numbers like "A1" all but one occur, joined to others or in small letters: that one is drawn."""
    known = "\n".join(
        f"x{letter}{digit}x" for letter in string.ascii_lowercase for digit in range(10) if (letter, digit) != ("q", 7)
    )
    fresh = multiwoz._Fresh(known, STREAMS.generator("test"))
    assert fresh._like("A1") == "Q7"
    assert fresh._drawn == {"q7"}
    assert re.fullmatch("[A-Z]-[a-z]!", multiwoz._Fresh("", STREAMS.generator("test"))._like("A-a!"))


@pytest.mark.parametrize(
    "bad",
    [
        ["S", "SENTINEL one two"],
        ["S", "SENTINEL one two", {}, "none"],
        ["S", "SENTINEL one two", {}, [["Booking-Book", "Ref", "x", 3, 3]]],
        ["S", "SENTINEL one two", {}, [["Booking-Book", "Ref", "x", 1, 0]]],
        ["S", "SENTINEL one two", {}, [["Ref"]]],
        ["S", "SENTINEL one two", {}, [["Booking-Book", "Ref", "x", 1, 2]]],
        ["S"],
        "SENTINEL",
    ],
)
def test_errors_hold_no_text(tmp_path: Path, bad: Any) -> None:
    write(tmp_path, val=[turn("It is AB12CD34 .", ("Ref", 2)), bad])
    with pytest.raises(DataError, match=r"val\.jsonl\.gz, line 1, turn 2: ") as raised:
        multiwoz_samples(tmp_path, 1, STREAMS)
    assert "SENTINEL" not in f"{raised.value}{raised.value.__context__}{raised.value.__cause__}"
    assert "\n" not in str(raised.value)


def test_missing_files(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / f"{TRAIN}.jsonl.gz").unlink()
    with pytest.raises(DataError, match="train-shard001"):
        multiwoz_samples(tmp_path, 1, STREAMS)

"""Measurement: recall and precision against sets of characters, the bounds against the binomial law, and bad gold."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom

from tacit.errors import DataError
from tacit.screening.measure import GoldRecord, measure, miss_rate_upper, read_gold
from tacit.screening.policy import Policy, PolicyOptions
from tacit.screening.spans import Span


class Marks(Policy):
    """A policy that marks given places."""

    def __init__(self, marks: dict[str, list[tuple[int, int]]]) -> None:
        super().__init__(PolicyOptions(name="marks", least_score=0.5))
        self._marks = marks

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        return [[Span(start, end, "x", 1.0, "marks") for start, end in self._marks[text]] for text in texts]


def test_against_sets_of_characters() -> None:
    rng = random.Random(4)
    gold, marks = [], {}
    for number in range(200):
        text = f"{number:020d}"
        cuts = sorted(rng.sample(range(21), 4))
        gold.append(GoldRecord(text, ((cuts[0], cuts[1], "a"), (cuts[2], cuts[3], "b"))))
        marks[text] = [
            (start, start + rng.randint(1, 20 - start)) for start in rng.sample(range(20), rng.randint(0, 4))
        ]
    [found] = measure([Marks(marks)], iter(gold))
    covered = {text: {place for start, end in runs for place in range(start, end)} for text, runs in marks.items()}
    is_found = [
        (label, set(range(start, end)) <= covered[record.text]) for record in gold for start, end, label in record.spans
    ]
    inside = sum(
        len(set(range(start, end)) & covered[record.text]) for record in gold for start, end, _ in record.spans
    )
    values = found.to_dict()
    assert values["recall"] == sum(hit for _, hit in is_found) / len(is_found)
    assert values["per_label"] == {name: sum(hit for label, hit in is_found if label == name) / 200 for name in "ab"}
    assert values["precision"] == inside / sum(map(len, covered.values()))
    with_a_miss = sum(
        not all(set(range(start, end)) <= covered[record.text] for start, end, _ in record.spans) for record in gold
    )
    assert values["documents_with_a_miss"] == with_a_miss / 200
    assert values["gamma_upper"] == miss_rate_upper(found.misses, 400)


def test_where_nothing_is_marked_there_is_no_precision() -> None:
    """None of nothing is neither right nor wrong: 1 would be the best there is."""
    [found] = measure([Marks({"Anna came": []})], iter([GoldRecord("Anna came", ((0, 4, "name"),))]))
    values = found.to_dict()
    assert values["precision"] is None
    assert (values["recall"], values["marked_share"]) == (0, 0)


def bound_is_exact(bound: Callable[[int, int, float], float]) -> bool:
    """At the bound, as few misses as were seen have probability 1 - confidence: no more (wrong), no less (loose)."""
    cases = [(0, 200, 0.95), (20, 200, 0.95), (3, 7, 0.9), (199, 200, 0.95), (1, 40_000, 0.99)]
    return all(
        abs(binom.cdf(seen, labels, bound(seen, labels, level)) - (1 - level)) < 1e-9 for seen, labels, level in cases
    )


def test_the_bounds_are_clopper_pearsons() -> None:
    assert bound_is_exact(miss_rate_upper)
    assert miss_rate_upper(5, 5) == 1.0


def test_the_numbers_of_the_paper() -> None:
    """200 labels, recall 90 % and 100 %, 95 %; and delta_2 <= 8e-5 needs about 37,500 labels without a miss."""
    assert miss_rate_upper(20, 200) == pytest.approx(0.142, abs=5e-4)
    assert miss_rate_upper(0, 200) == pytest.approx(0.0149, abs=5e-5)
    assert miss_rate_upper(0, 37_500) < 8e-5 < miss_rate_upper(0, 37_000)


def test_wrong_bounds_are_caught() -> None:
    assert not bound_is_exact(lambda seen, labels, level: seen / labels)
    assert not bound_is_exact(lambda seen, labels, level: seen / labels + 1.645 * (seen / labels / labels) ** 0.5)
    assert not bound_is_exact(lambda seen, labels, level: miss_rate_upper(seen, labels, (1 + level) / 2))  # two-sided


def test_a_span_of_which_a_character_is_missing_is_missed() -> None:
    record = GoldRecord("0123456789", ((2, 6, "a"),))
    [almost] = measure([Marks({record.text: [(2, 5)]})], iter([record]))
    [whole] = measure([Marks({record.text: [(2, 4), (4, 6)]})], iter([record]))
    assert (almost.misses, whole.misses) == (1, 0)


def test_no_label_is_refused() -> None:
    with pytest.raises(DataError, match="no span"):
        measure([Marks({"x": []})], iter([GoldRecord("x", ())]))


# reading


def write(path: Path, *lines: Any) -> Path:
    path.write_bytes(
        b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    )
    return path


def test_reading(tmp_path: Path) -> None:
    record = {"text": "é 4111", "spans": [[2, 6, "card"], [0, 1, "x"]], "id": 7}
    file = write(tmp_path / "gold.jsonl", record, b"", {"text": "", "spans": []})
    expected = [GoldRecord("é 4111", ((0, 1, "x"), (2, 6, "card"))), GoldRecord("", ())]
    assert list(read_gold(file)) == expected
    zipped = tmp_path / "gold.jsonl.gz"
    zipped.write_bytes(gzip.compress(file.read_bytes()))
    assert list(read_gold(zipped)) == expected


SECRET = "zqsecret"
BAD = {
    "outside": {"text": SECRET, "spans": [[0, 9, "a"]]},
    "negative": {"text": SECRET, "spans": [[-1, 2, "a"]]},
    "empty": {"text": SECRET, "spans": [[2, 2, "a"]]},
    "overlapping": {"text": SECRET, "spans": [[0, 3, "a"], [2, 4, "b"]]},
    "twice": {"text": SECRET, "spans": [[0, 3, "a"], [0, 3, "a"]]},
    "text is no text": {"text": [SECRET], "spans": []},
    "no text": {"spans": []},
    "no spans": {"text": SECRET},
    "spans are no list": {"text": SECRET, "spans": {"a": SECRET}},
    "span is no list": {"text": SECRET, "spans": [SECRET]},
    "span is short": {"text": SECRET, "spans": [[0, 1]]},
    "float": {"text": SECRET, "spans": [[0, 1.0, "a"]]},
    "bool": {"text": SECRET, "spans": [[False, True, "a"]]},
    "label is no word": {"text": SECRET, "spans": [[0, 1, 5]]},
    "a mask": {"text": f"{SECRET} <\\MASK>", "spans": [[0, 1, "a"]]},
    "list": [SECRET],
    "no json": f'{{"text": "{SECRET}'.encode(),
    "no utf-8": b'{"text": "\xff' + SECRET.encode() + b'", "spans": []}',
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_gold_is_one_line_without_its_text(tmp_path: Path, kind: str) -> None:
    file = write(tmp_path / "gold.jsonl", {"text": "fine", "spans": []}, BAD[kind])
    with pytest.raises(DataError) as caught:
        list(read_gold(file))
    message = str(caught.value)
    assert message.startswith(f"{file}, line 2")
    assert "\n" not in message
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        assert SECRET not in repr(vars(error))
        error = error.__context__


@pytest.mark.parametrize("name", ["none.jsonl", "none.jsonl.gz"])
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        list(read_gold(tmp_path / name))


def test_a_cut_gzip(tmp_path: Path) -> None:
    file = tmp_path / "gold.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps({"text": SECRET, "spans": []}).encode() * 100)[:-20])
    with pytest.raises(DataError, match=r"gold\.jsonl\.gz"):
        list(read_gold(file))

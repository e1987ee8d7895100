"""Near-duplicates: the measured S-curve, the library's own index, all pairs by brute force, numbers, and chains.

Statistical tests have fixed seeds and a false alarm rate of at most 1e-6 each; a wrong number of bands or rows must fail them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.errors import RefusedError, UsageError
from tacit.privacy.accounting.replacement import Screening
from tacit.randomness import KeyedRandomness
from tacit.screening.near_duplicates import (
    NearDuplicates,
    NearOptions,
    jaccard,
    numbers,
    s_curve,
    s_curve_table,
    shingles,
)
from tacit.screening.redact import MASK

STREAMS = KeyedRandomness(bytes(range(32)))
ALARM = 1e-6
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
SINGLE = NearOptions(shingle_size=1)


def marks(texts: Sequence[str], options: NearOptions | None = None, streams: KeyedRandomness = STREAMS) -> list[bool]:
    near = NearDuplicates(options or NearOptions(), streams)
    return [near.mark(text) for text in texts]


# the S-curve ----------------------------------------------------------------------------------------------------------


def test_the_closed_form() -> None:
    for bands, rows in [(1, 1), (1, 5), (5, 1), (25, 5), (16, 8)]:
        found = s_curve(bands, rows)
        for similarity in (0.0, 0.1, 0.5, 0.8, 0.99, 1.0):
            assert found(similarity) == pytest.approx(1 - (1 - similarity**rows) ** bands, abs=1e-12)
    assert s_curve(25, 5)(1e-4) == pytest.approx(25e-20, rel=1e-6)  # not lost to rounding


def test_the_table() -> None:
    lines = s_curve_table(25, 5).split("\n")
    assert lines[0] == "25 bands of 5 rows"
    rows = [tuple(map(float, line.split())) for line in lines[2:13]]
    assert [similarity for similarity, _ in rows] == [tenth / 10 for tenth in range(11)]
    for similarity, found in rows:
        assert found == pytest.approx(s_curve(25, 5)(similarity), abs=1e-6)
    assert s_curve(25, 5)(float(lines[-1].split()[-1])) == pytest.approx(0.5, abs=2e-3)


def pairs(both: int, union: int, count: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of texts of random words with exactly ``both`` of ``union`` words in common."""
    generator = np.random.default_rng(seed)
    words = ["".join(word) for word in generator.choice(LETTERS, (count * union, 9))]
    found = []
    for at in range(0, count * union, union):
        common, rest = words[at : at + both], words[at + both : at + union]
        found.append((" ".join(common + rest[: len(rest) // 2]), " ".join(common + rest[len(rest) // 2 :])))
    return found


def measured(options: NearOptions, both: int, union: int, count: int) -> int:
    """How many of the pairs become candidates, a quarter of them under each of four keys."""
    found = 0
    for key in range(4):
        near = NearDuplicates(options, KeyedRandomness(bytes([key] * 32)))
        mine = pairs(both, union, count // 4, seed=100 * key + both)
        assert not any(near.mark(one) for one, _ in mine)
        for index, (_, other) in enumerate(mine):
            candidates = near.candidates(other)
            assert set(candidates) <= {index}
            found += len(candidates)
    return found


def fits(found: dict[float, int], count: int, bands: int, rows: int) -> bool:
    """Pearson's chi-squared test over all similarities together; a tenth of the alarm rate is for its approximation."""
    curve = s_curve(bands, rows)
    squares = [(hits - count * curve(s)) ** 2 / (count * curve(s) * (1 - curve(s))) for s, hits in found.items()]
    return bool(stats.chi2.sf(sum(squares), len(squares)) > ALARM / 10)


@pytest.mark.slow
@pytest.mark.parametrize(("bands", "rows"), [(25, 5), (10, 4)])
def test_the_measured_curve(bands: int, rows: int) -> None:
    count, union = 800, 40
    options = NearOptions(bands=bands, rows=rows, shingle_size=1)
    found = {both / union: measured(options, both, union, count) for both in (12, 16, 20, 24, 28)}
    assert fits(found, count, bands, rows)
    for wrong in [(bands * 4 // 5, rows), (bands * 5 // 4, rows), (bands, rows + 1), (bands, rows - 1), (rows, bands)]:
        assert not fits(found, count, *wrong), wrong


def test_candidates_are_those_of_the_librarys_index() -> None:
    from datasketch import MinHash, MinHashLSH

    options = NearOptions(bands=12, rows=3, shingle_size=1)
    near = NearDuplicates(options, STREAMS)
    index = MinHashLSH(num_perm=options.permutations, params=(options.bands, options.rows))
    texts = [text for both in (10, 20, 30) for pair in pairs(both, 40, 40, seed=both) for text in pair]
    kept = 0
    for text in texts:
        sketch = MinHash(hashvalues=near.signature(shingles(text, options)), scheme="affine32")
        assert set(near.candidates(text)) == set(index.query(sketch))
        if not near.mark(text):
            index.insert(kept, sketch)
            kept += 1
    assert near.report().candidates > 40


def test_the_permutations_are_keyed() -> None:
    found = [
        NearDuplicates(SINGLE, KeyedRandomness(bytes([key] * 32))).signature(frozenset("abcdef")).tolist()
        for key in (1, 1, 2)
    ]
    assert found[0] == found[1]
    assert sum(left == right for left, right in zip(found[0], found[2], strict=True)) == 0


# similarity -----------------------------------------------------------------------------------------------------------


def test_shingles() -> None:
    assert shingles("Hello,  World of x", NearOptions(shingle_size=2)) == {"hello ,", ", world", "world of", "of x"}
    assert shingles("ab c", NearOptions(shingles="characters", shingle_size=3)) == {"ab ", "b c"}
    assert shingles("AB", NearOptions(shingles="characters", shingle_size=3, normalisation="none")) == {"AB"}
    assert shingles("one two", NearOptions(shingle_size=3)) == {"one two"}
    assert shingles("", NearOptions()) == {""}
    assert jaccard(frozenset("abc"), frozenset("bcd")) == 0.5
    assert jaccard(frozenset(), frozenset()) == 1.0
    assert jaccard(frozenset(), frozenset("a")) == 0.0


def test_the_threshold_is_that_of_the_exact_similarity() -> None:
    """9 of 11 words are 0.818; one band of one row makes every pair a candidate sooner or later, verified or not."""
    one, other = "a b c d e f g h i x", "a b c d e f g h i y"
    assert jaccard(shingles(one, SINGLE), shingles(other, SINGLE)) == 9 / 11
    for threshold, near in [(0.8, True), (9 / 11, True), (0.82, False), (1.0, False)]:
        options = NearOptions(threshold, bands=200, rows=1, shingle_size=1)
        assert marks([one, other, one], options) == [False, near, True]


def by_brute_force(texts: Sequence[str], options: NearOptions, with_numbers: bool = True) -> list[bool]:
    kept: list[tuple[frozenset[str], tuple[str, ...]]] = []
    found = []
    for text in texts:
        mine, its_numbers = shingles(text, options), numbers(text) if with_numbers else ()
        near = any(other == its_numbers and jaccard(mine, those) >= options.threshold for those, other in kept)
        found.append(near)
        if not near:
            kept.append((mine, its_numbers))
    return found


def customersim_turns(data_dir: Path, dialogues: int) -> list[str]:
    path = data_dir / "customersim" / "customersim.train.jsonl.gz"
    records = read_records(Source(path, id_field="id", limit=dialogues))
    return list(dict.fromkeys(turn for record in records for turn in record.text.split("\n")))


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_customersim_against_all_pairs(data_dir: Path, kind: Any) -> None:
    options = NearOptions(threshold=0.7, bands=40, rows=3, shingles=kind)
    texts = customersim_turns(data_dir, 150)
    found = marks(texts, options)
    assert found == by_brute_force(texts, options)
    assert sum(found) > 5
    assert found != by_brute_force(texts, options, with_numbers=False), "ignoring numbers must be seen here"
    masked = list(NearDuplicates(options, STREAMS).mask(texts))
    assert masked == [MASK if near else text for near, text in zip(found, texts, strict=True)]


# numbers --------------------------------------------------------------------------------------------------------------

LONG = "we are sorry that your order number {} has not arrived at your house and it will be sent again today free of charge"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("4711", "4712"),
        ("5", "-5"),
        ("5", ".5"),
        ("1.5", "15"),
        ("1,000", "1.000"),
        ("$5", "-$5"),
        ("\u00bd", "\u00bc"),
        ("10\u00b2", "102"),
        ("\u0663", "\u0664"),
        ("\u56db", "\u4e94"),
        ("two", "three"),
        ("twenty-one", "twenty-two"),
        ("Second", "third"),
        ("two's", "three's"),
        ("LF64NAH4Z9", "MF64NAH4Z9"),
        ("555-0100.", "555-0101."),
        ("5'", '5"'),
        ("<5", ">5"),
        ("5 7", "7 5"),
        ("5", "five"),
    ],
)
def test_texts_that_differ_in_a_number_are_never_merged(one: str, other: str) -> None:
    for kind, size in [("words", 1), ("characters", 3)]:
        options = NearOptions(0.3, bands=100, rows=1, shingles=kind, shingle_size=size)
        texts = [LONG.format(one), LONG.format(other)]
        assert jaccard(*(shingles(text, options) for text in texts)) > 0.8
        assert marks(texts, options) == [False, False]
        assert marks([texts[0], texts[0].replace("sorry", "afraid")], options) == [False, True]
        assert by_brute_force(texts, options, with_numbers=False) == [False, True], "the wrong version merges them"


def test_what_is_no_number() -> None:
    assert numbers("(42) is 42, is 42. Call [42]!") == ("42",) * 4
    assert numbers("Someone asked for tents, weights and a stone.") == ()
    assert numbers("One, TWO") == numbers("one two") == ("one", "two")


@settings(max_examples=100, deadline=None)
@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_any_two_whole_numbers(one: int, other: int) -> None:
    options = NearOptions(0.01, bands=40, rows=1)
    assert marks([LONG.format(one), LONG.format(other)], options) == [False, one == other]


def test_many_texts_with_different_numbers_never_meet() -> None:
    """Templates with a number each: not even candidates, so they are not compared pair by pair."""
    near = NearDuplicates(NearOptions(), STREAMS)
    assert not any(near.mark(LONG.format(number)) for number in range(300))
    assert near.report().candidates == 0


# what it must not be used for -----------------------------------------------------------------------------------------


def chain(length: int) -> list[str]:
    """Each text is similar to the next, and to no other."""
    words = [f"{LETTERS[at // 26]}{LETTERS[at % 26]}{LETTERS[at % 26]}" for at in range(length + 30)]
    return [" ".join(words[at : at + 24]) for at in range(length)]


def test_one_text_can_change_all_others() -> None:
    """So the stability is infinite, and a claim is refused."""
    options = NearOptions(0.9, bands=60, rows=3, shingle_size=1)
    for length in (10, 20, 40):
        texts = chain(length)
        whole, without = marks(texts, options), marks(["something quite different", *texts[1:]], options)
        assert whole == [at % 2 == 1 for at in range(length)]
        assert sum(left != right for left, right in zip(whole[1:], without[1:], strict=True)) == length - 1
    report = NearDuplicates(options, STREAMS).report()
    assert report.stability == math.inf
    with pytest.raises(RefusedError, match="near-duplicates-before-claim"):
        Screening("near")


def test_the_report() -> None:
    near = NearDuplicates(NearOptions(threshold=0.7), STREAMS)
    for text in (LONG, LONG, "short", LONG.replace("today", "tomorrow"), "\ud83d"):
        near.mark(text)
    report = near.report()
    assert (report.texts, report.duplicates, report.candidates) == (5, 2, 2)
    assert report.found_at_threshold == s_curve(25, 5)(0.7)
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert values["stability"] == "infinity"
    assert values["permutations"] == 125
    assert values["private"] == {"texts": 5, "duplicates": 2, "candidates": 2}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"threshold": 0.0}, "threshold"),
        ({"threshold": 1.1}, "threshold"),
        ({"threshold": math.nan}, "threshold"),
        ({"bands": 0}, "bands"),
        ({"rows": 0}, "bands"),
        ({"bands": 4097, "rows": 1}, "bands"),
        ({"shingles": "lines"}, "shingles"),
        ({"shingle_size": 0}, "shingle_size"),
        ({"normalisation": "numbers"}, "normalisation"),
    ],
)
def test_impossible_options_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        NearOptions(**wrong)
    for similarity in (-0.1, 1.1, math.nan):
        with pytest.raises(UsageError, match="similarity"):
            s_curve(5, 5)(similarity)

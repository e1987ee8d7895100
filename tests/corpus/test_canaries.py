"""Canaries: drawn uniformly, always whole, planted at the stated rate, and without a channel between units."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.corpus.canaries import Canary, draw_canaries, insert_pieces, places_of, plant
from tacit.randomness import KeyedRandomness

ALARM = 1e-6
STREAMS = KeyedRandomness(bytes(range(32)))
PATTERNS = ("HS", "HSH", "HHSHH")


def test_the_pieces_follow_the_pattern() -> None:
    canaries = draw_canaries(PATTERNS, 4, range(5, 1000), STREAMS)
    assert [canary.pattern for canary in canaries] == ["HS"] * 4 + ["HSH"] * 4 + ["HHSHH"] * 4
    for canary in canaries:
        assert len(canary.pieces) == len(canary.pattern)
        assert canary.secret == canary.pieces[canary.secret_offset]
        assert canary.pattern[canary.secret_offset] == "S"
    assert len({canary.pieces for canary in canaries}) == 12
    assert draw_canaries(PATTERNS, 4, range(5, 1000), STREAMS) == canaries
    assert draw_canaries(PATTERNS, 4, range(5, 1000), KeyedRandomness(bytes(32))) != canaries


def check_pieces(canaries: list[Canary], first: int, size: int) -> None:
    """Every place of the pattern is uniform over the ids from ``first`` on."""
    for place in range(3):
        counts = np.bincount([canary.pieces[place] for canary in canaries], minlength=size)
        assert counts[:first].sum() == 0
        assert len(counts) == size
        assert stats.chisquare(counts[first:]).pvalue > ALARM


def test_pieces_are_uniform_over_all_pieces_that_are_not_special() -> None:
    check_pieces(draw_canaries(("HSH",), 4000, range(5, 37), STREAMS), 5, 37)


@pytest.mark.parametrize(("first", "size"), [(4, 37), (6, 37), (5, 36), (5, 38)])
def test_the_check_of_the_pieces_catches_one_piece_more_or_less(first: int, size: int) -> None:
    with pytest.raises(AssertionError):
        check_pieces(draw_canaries(("HSH",), 4000, range(first, size), STREAMS), 5, 37)


def test_ids_that_do_not_stand_together_are_drawn_by_their_places() -> None:
    """Whatever ids there are, the draw is that of as many ids in a row; so runs that were begun keep their canaries."""
    ids = [3, 8, 9, 40, 41, 77]
    found, places = (draw_canaries(("HSH",), 300, which, STREAMS) for which in (ids, range(5, 11)))
    assert [canary.pieces for canary in found] == [tuple(ids[i - 5] for i in canary.pieces) for canary in places]
    generator = STREAMS.generator("canary", "HSH", 0)
    assert places[0].pieces == tuple(generator.integers(5, 11, size=3).tolist())


@given(st.integers(0, 20), st.integers(0, 6), st.integers(1, 9), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_insertion_keeps_the_frame_and_the_whole_canary(body: int, padding: int, pieces: int, seed: int) -> None:
    before = np.array([2, *range(100, 100 + body), 3] + [0] * padding, dtype=np.int32)
    canary = tuple(range(50, 50 + pieces))
    row = before.copy()
    first, length = insert_pieces(row, body + 2, canary, np.random.default_rng(seed))
    if pieces > len(row) - 2:
        assert (first, length) == (0, body + 2)
        assert np.array_equal(row, before)
        return
    assert row[0] == 2
    assert row[length - 1] == 3
    assert row[length:].tolist() == [0] * (len(row) - length)
    assert length == min(body + pieces, len(row) - 2) + 2
    assert row[first : first + pieces].tolist() == list(canary)
    rest = np.concatenate([row[1:first], row[first + pieces : length - 1]])
    assert rest.tolist() == list(range(100, 100 + len(rest)))  # the text in order, cut at its end only


@pytest.mark.parametrize(("body", "length"), [(6, 20), (18, 20), (12, 16)])
def test_every_place_is_equally_likely(body: int, length: int) -> None:
    generator = np.random.default_rng(3)
    firsts = []
    for _ in range(3000):
        row = np.zeros(length, dtype=np.int32)
        row[: body + 2] = [2, *range(100, 100 + body), 3]
        firsts.append(insert_pieces(row, body + 2, (50, 51, 52), generator)[0])
    last = min(body, length - 2 - 3)
    counts = np.bincount(firsts, minlength=last + 2)
    assert len(counts) == last + 2
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > ALARM


# planting ------------------------------------------------------------------------------------------------------------

LENGTH = 14
CANARIES = draw_canaries(PATTERNS, 3, range(1000, 2000), STREAMS)
"""Of ids that no text has."""

Corpus = dict[str, list[int]]
"""Number of tokens of every row of every unit."""

Planted = dict[str, np.ndarray]
"""Rows and lengths of every unit after planting."""

Planter = Callable[..., tuple[np.ndarray, np.ndarray]]


def planted(corpus: Corpus, probability: float, planter: Planter = plant) -> Planted:
    rows = [(size, number) for own in corpus.values() for number, size in enumerate(own)]
    ids = np.zeros((len(rows), LENGTH), dtype=np.int32)
    for row, (size, number) in enumerate(rows):
        ids[row, : size + 2] = [2, *([10 + number] * size), 3]
    lengths = np.array([size + 2 for size, _ in rows], dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum([len(own) for own in corpus.values()])]).astype(int)
    kept = ids.copy(), lengths.copy()
    new_ids, new_lengths = planter(ids, lengths, starts, tuple(corpus), CANARIES, probability, STREAMS)
    assert np.array_equal(ids, kept[0])
    assert np.array_equal(lengths, kept[1])
    both = np.concatenate([new_ids, new_lengths[:, None]], axis=1)
    return {key: both[starts[unit] : starts[unit + 1]] for unit, key in enumerate(corpus)}


def pieces_in(row: np.ndarray) -> tuple[int, ...]:
    return tuple(int(token) for token in row[:LENGTH] if token >= 1000)


def test_a_planted_row_holds_exactly_one_whole_canary() -> None:
    known = {canary.pieces for canary in CANARIES}
    rows = np.concatenate(list(planted({f"u{n}": [n % 13] * 3 for n in range(60)}, 1.0).values()))
    assert {pieces_in(row) for row in rows} == known


def check_rate(probability: float) -> None:
    """0.2 of 6000 rows: a binomial test that rejects more and less."""
    rows = np.concatenate(list(planted({f"u{n}": [5, 8, 3] for n in range(2000)}, probability).values()))
    found = sum(bool(pieces_in(row)) for row in rows)
    assert stats.binomtest(found, 6000, 0.2).pvalue > ALARM


def test_canaries_are_planted_at_the_stated_rate() -> None:
    check_rate(0.2)


@pytest.mark.parametrize("wrong", [0.16, 0.24])
def test_the_check_of_the_rate_catches(wrong: float) -> None:
    with pytest.raises(AssertionError):
        check_rate(wrong)


def check_places(told_lengths: Callable[[np.ndarray], np.ndarray]) -> None:
    """Of rows that are cut and rows that are not, each with a canary is told once, and where it begins."""
    corpus: Corpus = {f"u{n}": [n % 13, 5, 12][: n % 4] for n in range(120)}
    both = np.concatenate(list(planted(corpus, 0.5).values()))
    ids, starts = both[:, :LENGTH], np.concatenate([[0], np.cumsum([len(own) for own in corpus.values()])])
    lengths = told_lengths(both[:, LENGTH])
    found = list(places_of(lengths, LENGTH, starts, tuple(corpus), CANARIES, 0.5, STREAMS))
    assert [place.row for place in found] == [row for row, own in enumerate(ids) if pieces_in(own)]
    for place in found:
        own = CANARIES[place.canary]
        assert ids[place.row, place.start : place.start + len(own.pieces)].tolist() == list(own.pieces)


def test_places_are_those_of_the_planting() -> None:
    check_places(lambda lengths: lengths)
    assert list(places_of(np.array([LENGTH]), 5, np.array([0, 1]), ("u",), CANARIES[6:], 1.0, STREAMS)) == []


def test_the_check_of_the_places_catches_lengths_before_the_planting() -> None:
    with pytest.raises(AssertionError):
        check_places(lambda lengths: np.maximum(lengths - 3, 7))


def test_all_canaries_are_planted_equally_often() -> None:
    rows = np.concatenate(list(planted({f"u{n}": [5, 8, 3] for n in range(1000)}, 1.0).values()))
    found = [pieces_in(row) for row in rows]
    assert stats.chisquare([found.count(canary.pieces) for canary in CANARIES]).pvalue > ALARM


def plant_by_one_generator(
    ids: np.ndarray,
    lengths: np.ndarray,
    starts: np.ndarray,
    keys: tuple[str, ...],
    canaries: list[Canary],
    probability: float,
    streams: KeyedRandomness,
) -> tuple[np.ndarray, np.ndarray]:
    """Known wrong: all coins come from one generator, row after row."""
    ids, lengths = ids.copy(), lengths.copy()
    generator = streams.generator("plant")
    for row in range(len(ids)):
        if generator.random() < probability:
            canary = canaries[int(generator.integers(len(canaries)))]
            _, lengths[row] = insert_pieces(ids[row], int(lengths[row]), canary.pieces, generator)
    return ids, lengths


def check_no_channel(planter: Planter) -> None:
    """One unit less, or with other rows: what is planted in the others stays bit for bit."""
    corpus: Corpus = {f"u{n}": [5, 8, 3][: 1 + n % 3] for n in range(40)}
    before = planted(corpus, 0.5, planter)
    for changed in ({**corpus, "u3": [12] * 7}, {key: own for key, own in corpus.items() if key != "u3"}):
        after = planted(changed, 0.5, planter)
        assert all(np.array_equal(before[key], after[key]) for key in after if key != "u3")


def test_planting_in_one_unit_does_not_touch_the_others() -> None:
    check_no_channel(plant)


def test_the_check_of_the_channel_catches_one_generator_for_all() -> None:
    with pytest.raises(AssertionError):
        check_no_channel(plant_by_one_generator)

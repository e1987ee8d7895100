"""The law of the masks: how many, where, and what stands there afterwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.training.masking import Masking, mask_rows, single_mask_rows

ALARM = 1e-6
MASKING = Masking(probability=0.15, mask_id=4, special_ids=range(5), vocabulary_size=45)
ROWS, LENGTH = 3000, 42

Uniforms = Callable[[np.random.Generator], np.ndarray]


def full_rows(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    ids = generator.integers(5, 45, size=(ROWS, LENGTH))
    ids[:, 0], ids[:, -1] = 2, 3
    return ids, np.full(ROWS, LENGTH)


def uniform(generator: np.random.Generator) -> np.ndarray:
    return generator.random((ROWS, 3, LENGTH))


def bent(part: int, power: float) -> Uniforms:
    """Known wrong: one of the three numbers is not uniform."""

    def draw(generator: np.random.Generator) -> np.ndarray:
        drawn = uniform(generator)
        drawn[:, part] **= power
        return drawn

    return draw


def slanted_places(generator: np.random.Generator) -> np.ndarray:
    """Known wrong: later places come more often."""
    drawn = uniform(generator)
    drawn[:, 0] *= np.linspace(1.5, 1.0, LENGTH)
    return drawn


def assert_law(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square; the counts of places without replacement vary less, so the alarm rate is an upper bound there."""
    assert stats.chisquare(counts, probabilities / probabilities.sum() * counts.sum()).pvalue > ALARM


def check_actions(draw: Uniforms) -> None:
    """80 % [MASK], 10 % a random piece (which is the old one in 1 of 40 cases), 10 % the old piece."""
    generator = np.random.default_rng(11)
    ids, lengths = full_rows(generator)
    rows = mask_rows(ids, lengths, draw(generator), MASKING)
    shown = np.take_along_axis(rows.ids_BT, rows.slots_BK, axis=1)[rows.real_BK]
    labels = rows.labels_BK[rows.real_BK]
    masked, kept = int((shown == 4).sum()), int((shown == labels).sum())
    same = 0.1 / 40
    assert_law(np.array([masked, kept, len(shown) - masked - kept]), np.array([0.8, 0.1 + same, 0.1 - same]))


def check_replacements(draw: Uniforms) -> None:
    """Random replacements are uniform over the pieces that are no special token."""
    generator = np.random.default_rng(12)
    ids, lengths = full_rows(generator)
    ids[:, 1:-1] = 5
    rows = mask_rows(ids, lengths, draw(generator), MASKING)
    changed = rows.ids_BT[(rows.ids_BT != ids) & (rows.ids_BT != 4)]
    assert changed.min() > 5  # 5 itself cannot be seen here: it is every label
    assert_law(np.bincount(changed, minlength=45)[6:], np.ones(39))


def check_places(draw: Uniforms) -> None:
    """Every ordinary place is masked equally often."""
    generator = np.random.default_rng(13)
    ids, lengths = full_rows(generator)
    rows = mask_rows(ids, lengths, draw(generator), MASKING)
    assert_law(np.bincount(rows.slots_BK[rows.real_BK], minlength=LENGTH)[1:-1], np.ones(LENGTH - 2))


@pytest.mark.parametrize("check", [check_actions, check_replacements, check_places])
def test_the_law_of_the_masks(check: Callable[[Uniforms], None]) -> None:
    check(uniform)


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (check_actions, bent(1, 0.8)),
        (check_actions, bent(1, 1.25)),
        (check_replacements, bent(2, 0.7)),
        (check_replacements, bent(2, 1.4)),
        (check_places, slanted_places),
    ],
)
def test_the_check_of_the_law_catches(check: Callable[[Uniforms], None], wrong: Uniforms) -> None:
    with pytest.raises(AssertionError):
        check(wrong)


@st.composite
def rows_of_tokens(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of any length with [UNK] among the tokens, all-padding rows too, and uniforms."""
    length = draw(st.integers(3, 40))
    count = draw(st.integers(1, 6))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    lengths = generator.integers(2, length + 1, size=count)
    ids = np.where(generator.random((count, length)) < 0.2, 1, generator.integers(5, 45, size=(count, length)))
    ids[:, 0] = 2
    ids[np.arange(count), lengths - 1] = 3
    ids[np.arange(length) >= lengths[:, None]] = 0
    return ids, lengths, generator.random((count, 3, length))


@given(rows_of_tokens(), st.floats(0.01, 0.99))
@settings(max_examples=150, deadline=None)
def test_masks_by_a_plain_loop(drawn: tuple[np.ndarray, np.ndarray, np.ndarray], probability: float) -> None:
    """Counts, labels and untouched places against a loop; special tokens and padding are never masked."""
    ids, lengths, uniforms = drawn
    masking = Masking(probability, 4, range(5), 45)
    rows = mask_rows(ids, lengths, uniforms, masking)
    for number in range(len(ids)):
        ordinary = [place for place in range(lengths[number]) if ids[number, place] >= 5]
        wanted = max(1, round(probability * len(ordinary))) if ordinary else 0
        real = rows.real_BK[number]
        slots = rows.slots_BK[number, real]
        assert len(slots) == len(set(slots.tolist())) == wanted
        assert set(slots.tolist()) == set(sorted(ordinary, key=lambda place: uniforms[number, 0, place])[:wanted])
        assert (rows.labels_BK[number, real] == ids[number, slots]).all()
        elsewhere = np.setdiff1d(np.arange(ids.shape[1]), slots)
        assert (rows.ids_BT[number, elsewhere] == ids[number, elsewhere]).all()
        shown = rows.ids_BT[number, slots]
        assert ((shown == 4) | ((shown >= 5) & (shown < 45))).all()
        assert rows.attention_BT[number].sum() == lengths[number]
    assert rows.slots_BK.shape[1] == masking.slots(ids.shape[1])


@given(rows_of_tokens())
@settings(max_examples=50, deadline=None)
def test_a_row_is_masked_alike_alone_and_among_others(drawn: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    ids, lengths, uniforms = drawn
    together = mask_rows(ids, lengths, uniforms, MASKING)
    for number in range(len(ids)):
        one = slice(number, number + 1)
        alone = mask_rows(ids[one], lengths[one], uniforms[one], MASKING)
        for name in ("ids_BT", "attention_BT", "slots_BK", "labels_BK", "real_BK"):
            assert np.array_equal(getattr(together, name)[one], getattr(alone, name)), name


def test_the_largest_uniform_gives_the_last_piece() -> None:
    uniforms = np.full((1, 3, 4), 0.85)
    uniforms[:, 2] = np.nextafter(1.0, 0.0)
    rows = mask_rows(np.array([[2, 9, 9, 3]]), np.array([4]), uniforms, MASKING)
    assert rows.ids_BT[0].tolist() == [2, 44, 9, 3]
    uniforms[:, 2] = 0.0
    assert mask_rows(np.array([[2, 9, 9, 3]]), np.array([4]), uniforms, MASKING).ids_BT[0, 1] == 5


def test_inputs_stay_as_they_are() -> None:
    ids = np.array([[2, 9, 9, 3]])
    mask_rows(ids, np.array([4]), np.zeros((1, 3, 4)), MASKING)
    single_mask_rows(ids, np.array([4]), np.array([1]), MASKING)
    assert ids.tolist() == [[2, 9, 9, 3]]


def test_single_mask_rows_hides_the_given_place_only() -> None:
    ids = np.array([[2, 9, 10, 3, 0], [2, 11, 12, 13, 3]])
    rows = single_mask_rows(ids, np.array([4, 5]), np.array([2, 1]), MASKING)
    assert rows.ids_BT.tolist() == [[2, 9, 4, 3, 0], [2, 4, 12, 13, 3]]
    assert rows.labels_BK.tolist() == [[10], [11]]
    assert rows.slots_BK.tolist() == [[2], [1]]
    assert rows.real_BK.all()
    assert rows.attention_BT.sum(axis=1).tolist() == [4, 5]

"""Secret canaries: keyed, distinct and uniform; planting them couples no units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from tacit.corpus.secrets import SecretFormat, draw_secret_canaries, insert_texts
from tacit.corpus.units import Unit
from tacit.errors import TacitError
from tacit.randomness import KeyedRandomness

ALARM = 1e-6
STREAMS = KeyedRandomness(bytes(range(32)))
FORM = SecretFormat(digits=3)


def test_secrets_are_keyed_distinct_and_uniform() -> None:
    one = draw_secret_canaries(10, STREAMS)
    assert one == draw_secret_canaries(10, STREAMS) != draw_secret_canaries(10, STREAMS.child("other"))
    assert len(set(draw_secret_canaries(1000, STREAMS, FORM))) == 1000
    many = [secret for number in range(300) for secret in draw_secret_canaries(10, STREAMS.child("many", number))]
    assert stats.kstest([secret / 10**6 for secret in many], "uniform").pvalue > ALARM
    assert SecretFormat().text(7) == "My ID is: 000007"


def corpus(size: int) -> list[Unit]:
    return [Unit(f"d{number:04d}", (f"SYS: hello\nUSR: {number}", "a line")) for number in range(size)]


TEXTS = [SecretFormat().text(secret) for secret in draw_secret_canaries(3, STREAMS)]


@pytest.mark.parametrize("copies", [1, 10, 20, 100])
def test_copies_as_units_of_their_own(copies: int) -> None:
    units = corpus(200)
    planted = insert_texts(units, TEXTS, copies, STREAMS)
    new = [unit for unit in planted.units if unit.unit_id.startswith("canary-")]
    assert planted.copies == (copies,) * 3
    assert [unit for unit in planted.units if unit not in new] == units
    assert sorted(unit.texts[0] for unit in new) == sorted(TEXTS * copies)
    assert len({unit.unit_id for unit in new}) == 3 * copies
    assert planted == insert_texts(units, TEXTS, copies, STREAMS)


def test_places_are_anywhere() -> None:
    planted = insert_texts(corpus(200), TEXTS, 1000, STREAMS).units
    before = np.cumsum([not unit.unit_id.startswith("canary-") for unit in planted])
    gaps = [int(gap) for gap, unit in zip(before, planted, strict=True) if unit.unit_id.startswith("canary-")]
    assert (min(gaps), max(gaps)) == (0, 200)
    assert stats.chisquare(np.bincount(gaps, minlength=201)).pvalue > ALARM


def uncoupled(plant: Any, size: int = 60) -> None:
    """Without one unit, every other unit is what it was."""
    everything = {unit.unit_id: unit for unit in plant(corpus(size))}
    for left_out in range(0, size, 5):
        units = corpus(size)
        del units[left_out]
        assert all(everything[unit.unit_id] == unit for unit in plant(units))


def exact_copies(units: list[Unit]) -> list[Unit]:
    """A known-wrong version: exactly ten units, chosen among all."""
    chosen = STREAMS.generator("wrong").choice(len(units), size=10, replace=False)
    return [
        Unit(unit.unit_id, (*unit.texts, TEXTS[0])) if number in chosen else unit for number, unit in enumerate(units)
    ]


def test_planting_couples_no_units() -> None:
    uncoupled(lambda units: insert_texts(units, TEXTS, 10, STREAMS).units)
    uncoupled(lambda units: insert_texts(units, TEXTS, 10, STREAMS, expected_units=60).units)
    with pytest.raises(AssertionError):
        uncoupled(exact_copies)


def test_copies_inside_units() -> None:
    units = corpus(2000)
    planted = insert_texts(units, TEXTS, 100, STREAMS, expected_units=2000)
    for text, copies in zip(TEXTS, planted.copies, strict=True):
        assert sum(unit_text.split("\n").count(text) for unit in planted.units for unit_text in unit.texts) == copies
        assert stats.binomtest(copies, 2000, 0.05).pvalue > ALARM
    for before, after in zip(units, planted.units, strict=True):
        without = tuple("\n".join(line for line in text.split("\n") if line not in TEXTS) for text in after.texts)
        assert Unit(after.unit_id, without) == before
    assert insert_texts([], TEXTS, 1, STREAMS, expected_units=10).copies == (0, 0, 0)


def test_errors_hold_no_secret() -> None:
    assert "481" not in repr(insert_texts(corpus(3), ["My ID is: 481"], 1, STREAMS))
    calls = [
        lambda: draw_secret_canaries(1001, STREAMS, FORM),
        lambda: SecretFormat(digits=8),
        lambda: insert_texts(corpus(3), ["481"], 0, STREAMS),
        lambda: insert_texts(corpus(3), ["481"], 5, STREAMS, expected_units=4),
    ]
    for call in calls:
        with pytest.raises(TacitError) as raised:
            call()
        assert "481" not in str(raised.value)
        assert "\n" not in str(raised.value)

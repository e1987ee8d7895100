"""Shadow models: every text is judged by models that never saw it, at the null nothing is found, and hidden memory is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tacit.audit.inference import Attack, attack_scores
from tacit.audit.samples import MembershipSamples
from tacit.audit.shadow_models import ShadowLosses, halves_kn, shadow_losses
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness

N = 150
SAMPLES = MembershipSamples(tuple(f"in {place}" for place in range(N)), tuple(f"out {place}" for place in range(N)))
MEMORY = 0.6
NOISE = 0.3


class Texts:
    """Made-up losses: a text is as hard as it is, a model that was trained on it finds it easier, and every model has its noise."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        everyone = [*SAMPLES.members, *SAMPLES.non_members]
        self._hardness = dict(zip(everyone, self._generator.normal(4, 2, len(everyone)), strict=True))
        self.trained: dict[int, set[str]] = {}

    def losses(self, texts: Sequence[str], known: set[str]) -> np.ndarray:
        noise = self._generator.normal(0, NOISE, len(texts))
        return noise + [self._hardness[text] - MEMORY * (text in known) for text in texts]

    def shadow(self, number: int, texts: Sequence[str]) -> Callable[[Sequence[str]], np.ndarray]:
        self.trained[number] = set(texts)
        return lambda others: self.losses(others, self.trained[number])


def attacked(seed: int, remembers: bool, models: int = 4) -> tuple[Attack, Attack]:
    """By losses alone, and against shadow models."""
    texts, streams = Texts(seed), KeyedRandomness(bytes([seed % 256] * 32))
    shadows = shadow_losses(SAMPLES, models, streams, texts.shadow)
    known = set(SAMPLES.members) if remembers else set[str]()
    member_n, other_n = texts.losses(SAMPLES.members, known), texts.losses(SAMPLES.non_members, known)
    return (
        attack_scores(member_n, other_n, streams),
        attack_scores(member_n - shadows.member_n, other_n - shadows.non_member_n, streams),
    )


def test_each_text_is_judged_by_models_that_have_seen_neither_it_nor_its_partner() -> None:
    seen: list[tuple[set[str], set[str]]] = []

    def shadow(number: int, texts: Sequence[str]) -> Callable[[Sequence[str]], np.ndarray]:
        def losses(others: Sequence[str]) -> np.ndarray:
            seen.append((set(texts), set(others)))
            return np.full(len(others), float(number))

        return losses

    found = shadow_losses(SAMPLES, 4, KeyedRandomness(bytes(32)), shadow)
    for trained, judged in seen:
        pairs = {text.split()[1] for text in trained}
        assert {f"{side} {pair}" for side in ("in", "out") for pair in pairs} == trained  # whole pairs
        assert pairs.isdisjoint(text.split()[1] for text in judged)
    judges = [text for _, judged in seen for text in judged]
    assert all(judges.count(text) == 2 for text in (*SAMPLES.members, *SAMPLES.non_members))
    assert np.array_equal(found.member_n, found.non_member_n)  # the mean number of the judges, of either side the same
    assert set(found.member_n) <= {1.0, 1.5, 2.0, 0.5 + 1.5}
    assert "private" in repr(found)


def test_halves_are_keyed_and_come_in_twos() -> None:
    trained_kn = halves_kn(4, 7, KeyedRandomness(bytes(32)))
    assert np.array_equal(trained_kn[0], ~trained_kn[1])
    assert np.array_equal(trained_kn, halves_kn(4, 7, KeyedRandomness(bytes(32))))
    assert not np.array_equal(trained_kn, halves_kn(4, 7, KeyedRandomness(bytes(range(32)))))
    for models, pairs in ((3, 7), (0, 7), (2, 1)):
        with pytest.raises(UsageError, match="come in twos"):
            halves_kn(models, pairs, KeyedRandomness(bytes(32)))


def test_at_the_null_the_interval_holds_chance() -> None:
    """95 % intervals of 60 attacks; 10 or more that miss would happen once in a thousand."""
    found = [attacked(seed, remembers=False)[1] for seed in range(60)]
    assert sum(not one.at_chance for one in found) < 10
    assert abs(np.mean([one.accuracy.value for one in found]) - 0.5) < 0.02


def test_shadow_models_of_non_members_alone_find_memory_where_there_is_none() -> None:
    """The known-wrong reference pool: a non-member is judged by models that know it."""
    wrong = 0
    for seed in range(10):
        texts, streams = Texts(seed), KeyedRandomness(bytes([seed] * 32))
        sums = ShadowLosses(np.zeros(N), np.zeros(N))
        for _ in range(2):
            shadow = texts.shadow(0, SAMPLES.non_members)
            sums = ShadowLosses(
                sums.member_n + shadow(SAMPLES.members) / 2, sums.non_member_n + shadow(SAMPLES.non_members) / 2
            )
        member_n = texts.losses(SAMPLES.members, set()) - sums.member_n
        other_n = texts.losses(SAMPLES.non_members, set()) - sums.non_member_n
        wrong += not attack_scores(member_n, other_n, streams).at_chance
    assert wrong == 10


def test_memory_that_a_loss_does_not_show_is_found() -> None:
    """Texts differ by two nats a token, and training takes off six tenths of one."""
    for seed in range(5):
        plain, shadows = attacked(seed, remembers=True)
        assert shadows.accuracy.low > plain.accuracy.high
        assert shadows.auc.low > plain.auc.high

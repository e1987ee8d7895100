"""Replaced records: brute force over every outcome and every small corpus, closed forms, and the versions that are wrong.

Brute force: one clipped gradient coordinate per step, the noisy sum cut into bins, and the exact hockey-stick divergence of the
two worlds over all outcomes of all steps. Cutting into bins only loses information, and little of it, so a bound must lie
above what is found here, and a tight one close to it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import special

from tacit.errors import RefusedError, UsageError
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.accounting.replacement import (
    Claim,
    Screening,
    Stability,
    replacement_epsilon,
    screening_from_words,
    stability,
)
from tacit.privacy.confidentiality.account import confidentiality
from tacit.privacy.events import Gaussian, PoissonGaussian, Spend, ThresholdedHistogram

DELTA = 8e-5


def training(sampling_probability: float, noise_multiplier: float, steps: int) -> list[Spend]:
    return [Spend(PoissonGaussian(sampling_probability, noise_multiplier), steps)]


PAPER_RUN = training(256 / 10_000, 2.015, 391)
"""10,000 records, batches of 256, 10 epochs: 390.6 steps."""


# brute force ----------------------------------------------------------------------------------------------------------


def hockey_stick(p: np.ndarray, q: np.ndarray, found: float) -> float:
    return float(np.maximum(p - math.exp(found) * q, 0).sum())


def both_ways(p: np.ndarray, q: np.ndarray, found: float) -> float:
    return max(hockey_stick(p, q, found), hockey_stick(q, p, found))


def exact_epsilon(p: np.ndarray, q: np.ndarray, delta: float) -> float:
    low, high = 0.0, 50.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if both_ways(p, q, middle) <= delta else (middle, high)
    return high


def released(gradients: Sequence[float], probability: float, noise: float, steps: int, bins: int = 500) -> np.ndarray:
    """Law of all steps' binned sums, when each record is in a batch by its own coin."""
    edges = np.concatenate([[-math.inf], np.linspace(-4 * noise - 2, 4 * noise + 2, bins), [math.inf]])
    one = np.zeros(len(edges) - 1)
    for batch in itertools.product((0, 1), repeat=len(gradients)):
        weight = math.prod(probability if drawn else 1 - probability for drawn in batch)
        total = sum(drawn * gradient for drawn, gradient in zip(batch, gradients, strict=True))
        one += weight * np.diff(special.ndtr((edges - total) / noise))
    law = one
    for _ in range(steps - 1):
        law = np.outer(law, one).ravel()
    return law


# several records ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [2, 3, 7])
def test_several_records_without_sampling_have_the_closed_form(records: int) -> None:
    for spends in (training(1.0, 8.0, 4), [Spend(Gaussian(8.0), 4)], [*training(1.0, 8.0, 3), Spend(Gaussian(8.0))]):
        found = replacement_epsilon(spends, 1e-5, records)
        assert float(gaussian_delta(found, 2 * records * 2 / 8)) == pytest.approx(1e-5, rel=2e-3)


@pytest.mark.parametrize("probability", [1e-6, 1e-3, 0.5])
def test_so_much_noise_that_all_losses_are_in_one_cell_of_the_grid(probability: float) -> None:
    """It was no answer at all; the grid's own width is what is lost."""
    found = replacement_epsilon(training(probability, 1e6, 4), 1e-5, 2)
    assert 0 <= found <= replacement_epsilon(training(1.0, 1e6, 4), 1e-5, 2) + 1e-3


def test_so_little_noise_that_nothing_holds() -> None:
    assert replacement_epsilon(training(1.0, 0.05, 4), 1e-5, 2) == math.inf
    assert replacement_epsilon([*training(0.5, 2.0, 4), Spend(Gaussian(0.06))], 1e-5, 2) == math.inf


def test_next_to_everybody_costs_what_everybody_does() -> None:
    assert replacement_epsilon(training(1 - 2.0**-53, 8.0, 4), 1e-5, 3) == replacement_epsilon(
        training(1.0, 8.0, 4), 1e-5, 3
    )


@pytest.mark.parametrize(
    ("records", "probability", "noise", "steps"), [(2, 0.3, 1.0, 2), (3, 0.2, 2.0, 2), (4, 0.5, 2.0, 1)]
)
def test_several_records_by_brute_force(records: int, probability: float, noise: float, steps: int) -> None:
    delta = 1e-3
    here, there = (released([sign] * records, probability, noise, steps, bins=900) for sign in (1.0, -1.0))
    found = replacement_epsilon(training(probability, noise, steps), delta, records)
    assert both_ways(here, there, found) <= delta
    assert found == pytest.approx(exact_epsilon(here, there, delta), rel=5e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_many_records_with_little_noise() -> None:
    found = [replacement_epsilon(training(0.0256, 0.646, 391), DELTA, records) for records in (4, 20, 60)]
    assert found[0] < found[1] < found[2] < math.inf
    # A step's loss beyond 600 is not resolved.
    assert replacement_epsilon(training(1.0, 0.646, 1), DELTA, 30) == math.inf


def test_no_gradients_exceed_the_worst_pair() -> None:
    """Lemma 3 in two dimensions: any gradients in the unit disc, in either world, against all along one line."""
    generator = np.random.default_rng(4)
    side = np.linspace(-7, 7, 141)
    x_NN, y_NN = np.meshgrid(side, side)

    def law(gradients: np.ndarray, probability: float) -> np.ndarray:
        total = np.zeros_like(x_NN)
        for batch in itertools.product((0, 1), repeat=len(gradients)):
            weight = math.prod(probability if drawn else 1 - probability for drawn in batch)
            mean = np.array(batch) @ gradients
            total += weight * np.exp(-((x_NN - mean[0]) ** 2 + (y_NN - mean[1]) ** 2) / 2)
        return total / total.sum()

    line = np.array([[1.0, 0.0], [1.0, 0.0]])
    for probability in (0.1, 0.6):
        worst = [
            hockey_stick(law(line, probability), law(-line, probability), found) for found in (-0.5, 0.0, 0.3, 1.0)
        ]
        for _ in range(60):
            angles, lengths = generator.uniform(0, 2 * math.pi, (2, 2)), generator.uniform(0, 1, (2, 2)) ** 0.25
            here, there = np.stack([lengths * np.cos(angles), lengths * np.sin(angles)], axis=-1)
            for most, found in zip(worst, (-0.5, 0.0, 0.3, 1.0), strict=True):
                assert hockey_stick(law(here, probability), law(there, probability), found) <= most + 1e-9


def test_the_worst_pair_of_several_is_below_group_privacy_and_agrees_for_one() -> None:
    spends = training(0.0256, 2.015, 100)
    # Two spends that together are one: the pair of records is composed as a mixture, one record by the library.
    assert replacement_epsilon(spends, 1e-5, 2) > 2 * epsilon(spends, 1e-5, "replace")
    chain = epsilon(spends, 1e-5 / (1 + math.exp(1.5)), "replace")
    assert chain <= 1.5
    assert replacement_epsilon(spends, 1e-5, 2) <= 2 * 1.5


def test_a_histogram_among_the_spends() -> None:
    """One record: the joint account. Two: group privacy on top of it, checked by its own formula."""
    spends = [Spend(ThresholdedHistogram(40.0, 400, 8)), *training(0.05, 4.0, 50)]
    assert replacement_epsilon(spends, 1e-6) == epsilon(spends, 1e-6, "replace")
    two = replacement_epsilon(spends, 1e-6, 2)
    assert epsilon(spends, 1e-6 / (1 + math.exp(two / 2)), "replace") <= two / 2
    assert two > 2 * epsilon(spends, 1e-6, "replace")


# deduplication --------------------------------------------------------------------------------------------------------

MASK, MASKED = "<MASK>", "My code is <MASK>."
SECRET, OTHER, PLAIN = "My code is 1.", "My code is 2.", "Hello."


def deduplicated(mode: str, sentences: Sequence[str]) -> list[str]:
    counts, seen, kept = Counter(sentences), set(), []
    for sentence in sentences:
        compared = mode == "keep-first" or (mode == "unmasked" and MASK not in sentence)
        masked = counts[sentence] > 1 if mode == "mask-all" else compared and sentence in seen
        kept.append(MASK if masked else sentence)
        seen.add(sentence)
    return kept


def screened(mode: str, order: str, caught: set[str], sentences: Sequence[str]) -> list[str]:
    def redacted(them: Sequence[str]) -> list[str]:
        return [MASKED if sentence in caught else sentence for sentence in them]

    return (
        redacted(deduplicated(mode, sentences))
        if order == "deduplicate-first"
        else deduplicated(mode, redacted(sentences))
    )


def changed_in_place(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(left != right for left, right in zip(one, other, strict=True))


def changed_as_sets(one: Sequence[str], other: Sequence[str]) -> int:
    return (Counter(one) - Counter(other)).total()


@pytest.mark.parametrize("whole_units", [False, True])
@pytest.mark.parametrize("all_copies", [False, True])
@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("order", ["deduplicate-first", "redact-first"])
@pytest.mark.parametrize("mode", ["none", "mask-all", "keep-first", "unmasked"])
def test_stability_is_the_largest_change_of_any_corpus(
    mode: Any, order: Any, reserved: bool, all_copies: bool, whole_units: bool
) -> None:
    if mode == "unmasked" and order == "deduplicate-first":
        with pytest.raises(UsageError, match="redact-first"):
            Screening(mode, order)
        return
    screening = Screening(mode, order, mask_reserved=reserved, whole_units=whole_units)
    if mode in ("none", "unmasked") and all_copies:
        with pytest.raises(UsageError, match="group_size"):
            stability(screening, all_copies)
        return
    sentences = [SECRET, OTHER, PLAIN] + ([] if reserved else [MASKED, MASK])
    distance = changed_as_sets if whole_units else changed_in_place
    worst = {True: 0, False: 0}
    for corpus in itertools.chain.from_iterable(itertools.product(sentences, repeat=length) for length in range(1, 5)):
        for place in [place for place, sentence in enumerate(corpus) if sentence == SECRET]:
            masked = [
                MASKED if sentence == SECRET and (all_copies or index == place) else sentence
                for index, sentence in enumerate(corpus)
            ]
            for is_caught, others in itertools.product((True, False), (set(), {OTHER})):
                caught = others | ({SECRET} if is_caught else set())
                change = distance(*(screened(mode, order, caught, those) for those in (corpus, masked)))
                worst[is_caught] = max(worst[is_caught], change)
    assert stability(screening, all_copies) == Stability(worst[False], worst[True])


def test_the_factors_of_soundness() -> None:
    assert stability(Screening()) == Stability(1, 0)
    assert stability(Screening("mask-all")).missed == 2
    assert stability(Screening("keep-first")).missed == 3
    assert stability(Screening("keep-first", mask_reserved=True), all_copies=True) == Stability(1, 0)


def test_forgetting_the_stability_factor_is_caught() -> None:
    """One masked sentence of three dialogues turns all three gradients round: proposition 7 would call it one record."""
    probability, noise, steps, delta = 0.3, 2.0, 2, 1e-3
    corpus, masked = [SECRET, SECRET, MASKED], [MASKED, SECRET, MASKED]
    here, there = deduplicated("keep-first", corpus), deduplicated("keep-first", masked)
    # A dialogue's gradient depends on its own other sentences, so it may point either way for either sentence.
    gradients = [(1.0, -1.0) if left != right else (0.0, 0.0) for left, right in zip(here, there, strict=True)]
    p = released([left for left, _ in gradients], probability, noise, steps)
    q = released([right for _, right in gradients], probability, noise, steps)
    spends = training(probability, noise, steps)
    right = confidentiality(spends, delta, screening=Screening("keep-first")).worst_case
    assert right.records == 3
    assert both_ways(p, q, right.epsilon) <= delta
    assert both_ways(p, q, confidentiality(spends, delta).worst_case.epsilon) > 10 * delta
    assert both_ways(p, q, replacement_epsilon(spends, delta, 2)) > delta


def test_a_caught_secret_that_leaves_a_trace_is_not_amplified() -> None:
    """Deduplication before redaction: (secret, secret) and (masked, secret) differ although the policy catches the secret."""
    here, there = (
        screened("keep-first", "deduplicate-first", {SECRET}, those) for those in ([SECRET, SECRET], [MASKED, SECRET])
    )
    assert here != there
    found = confidentiality(PAPER_RUN, DELTA, gamma=0.1, screening=Screening("keep-first"))
    assert found.bayesian is not None
    assert found.bayesian.epsilon == pytest.approx(found.worst_case.epsilon)
    assert "no amplification" in found.bayesian.steps[1]
    later = confidentiality(PAPER_RUN, DELTA, gamma=0.1, screening=Screening("keep-first", "redact-first")).bayesian
    assert later is not None
    assert later.epsilon < found.bayesian.epsilon


@pytest.mark.parametrize("deduplication", ["none", "keep-first", "mask-all"])
def test_a_policy_that_flips_other_labels_is_not_amplified(deduplication: Any) -> None:
    screening = Screening(deduplication, "redact-first", policy="context")
    changed = stability(screening)
    assert changed.caught == changed.missed >= 1
    found = confidentiality(PAPER_RUN, DELTA, gamma=0.1, screening=screening)
    assert found.bayesian is not None
    assert found.bayesian.epsilon == pytest.approx(found.worst_case.epsilon)
    assert found.bayesian.status == "proved"  # gamma was not used


def test_unmasked_with_a_policy_that_reads_context() -> None:
    """Its caught record has a mask in both worlds, so it is nobody's copy: 1 and not 2, which keep-first has to count."""
    assert stability(Screening("unmasked", "redact-first", "context")) == Stability(2, 1)
    assert stability(Screening("unmasked", "redact-first", "context", whole_units=True)) == Stability(1, 1)
    flipped = "My <MASK> is <MASK>."  # what the policy makes of the secret; of the masked sentence it makes MASKED

    def worst(mode: str, others: Sequence[str]) -> int:
        found = 0
        for corpus in itertools.product([SECRET, *others], repeat=4):
            for place in [place for place, sentence in enumerate(corpus) if sentence == SECRET]:
                redacted = [flipped if sentence == SECRET else sentence for sentence in corpus]
                masked = [*redacted[:place], MASKED, *redacted[place + 1 :]]
                found = max(found, changed_in_place(deduplicated(mode, redacted), deduplicated(mode, masked)))
        return found

    assert worst("unmasked", [OTHER, PLAIN, MASKED]) == 1
    assert worst("keep-first", [OTHER, PLAIN, MASKED]) == 3  # the known-wrong way to count


def test_all_copies_of_a_missed_secret_against_another_missed_one() -> None:
    """What exposure compares: the same secret in every copy of its sentence, or another one; both are missed."""
    for mode, in_place, as_sets in (("unmasked", 2, 1), ("keep-first", 2, 1), ("none", 4, 4)):
        changes: list[tuple[int, int]] = []
        for corpus in itertools.product([SECRET, OTHER, PLAIN, MASKED], repeat=4):
            swapped = [OTHER if sentence == SECRET else sentence for sentence in corpus]
            worlds = deduplicated(mode, corpus), deduplicated(mode, swapped)
            changes.append((changed_in_place(*worlds), changed_as_sets(*worlds)))
        assert (max(one for one, _ in changes), max(one for _, one in changes)) == (in_place, as_sets)


def test_the_records_of_a_group() -> None:
    changed = Stability(3, 2)
    assert [Claim(4, missed=missed).records(changed) for missed in (None, 4, 1, 0)] == [12, 12, 9, 8]


def test_screening_from_words_is_the_screening_of_those_words() -> None:
    wanted = Screening("keep-first", "redact-first", "context", mask_reserved=True, whole_units=True)
    assert screening_from_words("keep-first", "redact-first", "context", mask_reserved=True, whole_units=True) == wanted
    with pytest.raises(RefusedError, match="near-duplicates-before-claim"):
        screening_from_words("near", "redact-first", "patterns")
    for place, words in enumerate(
        (("fuzzy", "redact-first", "patterns"), ("none", "x", "patterns"), ("none", "redact-first", "x"))
    ):
        name = ("deduplication", "order", "policy")[place]
        with pytest.raises(UsageError, match=f"{name} is '{words[place]}'; it must be one of "):
            screening_from_words(*words)

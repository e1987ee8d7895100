"""Theorem 8.3 by brute force: two data points, redacted by real policies, each released by randomised response.

The mechanism has replace-one epsilon' exactly and delta 0. It is tried with every way to take redacted texts for bits, so the
worst one is among them, and the law of both outcomes is written down: no sampling and no bound is between claim and number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from tacit.privacy.confidentiality.misses import amplified_epsilon
from tacit.screening.policy import PatternOptions, Policy, PolicyOptions
from tacit.screening.redact import MASK, redact
from tacit.screening.spans import Span
from tacit.screening.tokens import TokenPolicy, TokenPolicyOptions

EPSILON = 1.5
MU = {"anna": 0.5, "bob": 0.3, "zed": 0.15, "42": 0.05}
GAMMA = MU["zed"] + MU["42"]

Redact = Callable[[str], str]
World = tuple[str, str]


def by_tokens(text: str) -> str:
    """Catches anna and bob, so that it misses GAMMA of MU."""
    options = TokenPolicyOptions(kind="tokens", name="t", words=("anna", "bob"))
    return redact(text, TokenPolicy(options).spans(text))


def by_context(text: str) -> str:
    """Masks anna and bob wholly too, and misses the same share; but with anna her neighbour as well, and no other's."""
    patterns = tuple(PatternOptions(label="p", pattern=pattern) for pattern in ("anna [a-z]+", "bob"))
    spans = Policy(PolicyOptions(name="c", least_score=1.0, labels=("p",), patterns=patterns)).spans(text)
    masks = [Span(place, place + len(MASK), "mask", 1.0, "mask") for place in [text.find(MASK)] if place >= 0]
    return redact(text, [*spans, *masks])


def outcome(texts: Sequence[str], bits: Mapping[str, int]) -> np.ndarray:
    """The law of (first bit, second bit), flattened."""
    truth = math.exp(EPSILON) / (1 + math.exp(EPSILON))
    laws = [np.array([1 - truth, truth] if bits[text] else [truth, 1 - truth]) for text in texts]
    return np.outer(*laws).ravel()


def divergence(worlds: Mapping[World, float], masked: World, how: Redact, epsilon: float) -> float:
    """Largest hockey-stick divergence between what is drawn from ``worlds`` and the masked one: both directions, all mechanisms."""
    redacted = {world: tuple(map(how, world)) for world in [*worlds, masked]}
    texts = sorted({text for world in redacted.values() for text in world})
    worst = 0.0
    for values in itertools.product((0, 1), repeat=len(texts)):
        bits = dict(zip(texts, values, strict=True))
        drawn = np.sum([share * outcome(redacted[world], bits) for world, share in worlds.items()], axis=0)
        mask = outcome(redacted[masked], bits)
        for one, other in ((drawn, mask), (mask, drawn)):
            worst = max(worst, float(np.maximum(one - math.exp(epsilon) * other, 0).sum()))
    return worst


RECORDS = ["ask {} now", "{} and bob", "bob {}", "see {}", "{}"]
OTHER = "hello bob"


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("mu", [MU, {"anna": 0.9, "zed": 0.1}, {"zed": 1.0}, {"anna": 1.0}])
def test_the_bound_holds_in_every_record_and_nothing_smaller_does(record: str, mu: dict[str, float]) -> None:
    gamma = sum(share for secret, share in mu.items() if by_tokens(secret) != MASK)
    stated = amplified_epsilon(EPSILON, gamma)
    worlds = {(record.format(secret), OTHER): share for secret, share in mu.items()}
    masked = (record.format(MASK), OTHER)
    assert divergence(worlds, masked, by_tokens, stated) < 1e-12
    if gamma > 0:
        assert divergence(worlds, masked, by_tokens, 0.99 * stated) > 1e-4


def test_a_secret_of_several_tokens() -> None:
    worlds = {("ask anna bob now", OTHER): 0.8, ("ask anna zed now", OTHER): 0.2}
    assert divergence(worlds, (f"ask {MASK} now", OTHER), by_tokens, amplified_epsilon(EPSILON, 0.2)) < 1e-12


def test_a_policy_that_reads_context_breaks_the_bound_with_the_same_gamma() -> None:
    assert all(by_context(secret + " x").startswith(MASK) == (by_tokens(secret) == MASK) for secret in MU)
    worlds = {(f"ask {secret} now", OTHER): share for secret, share in MU.items()}
    masked = (f"ask {MASK} now", OTHER)
    stated = amplified_epsilon(EPSILON, GAMMA)
    assert divergence(worlds, masked, by_tokens, stated) < 1e-12
    assert divergence(worlds, masked, by_context, stated) > 0.05
    assert divergence(worlds, masked, by_context, EPSILON) < 1e-12  # what a run with such policies states


def test_a_known_secret_is_missed_or_caught_and_nothing_is_amplified() -> None:
    stated = amplified_epsilon(EPSILON, GAMMA)
    for secret, expected in {"zed": EPSILON, "anna": 0.0}.items():
        world = {(f"ask {secret} now", OTHER): 1.0}
        assert divergence(world, (f"ask {MASK} now", OTHER), by_tokens, expected) < 1e-12
    assert divergence({("ask zed now", OTHER): 1.0}, (f"ask {MASK} now", OTHER), by_tokens, stated) > 0.1


def test_a_secret_that_other_text_tells_of_is_not_drawn_from_mu() -> None:
    """The reader knows that a record with a number is about 42: then mu is another one, and gamma is 1."""
    assert (
        divergence(
            {("ask 42 now", OTHER): 1.0}, (f"ask {MASK} now", OTHER), by_tokens, amplified_epsilon(EPSILON, GAMMA)
        )
        > 0.1
    )


def test_a_secret_in_two_data_points_is_a_group() -> None:
    """Missed in one it is missed in both: two records are replaced, not one."""
    worlds = {(f"ask {secret} now", f"see {secret}"): share for secret, share in MU.items()}
    masked = (f"ask {MASK} now", f"see {MASK}")
    assert divergence(worlds, masked, by_tokens, amplified_epsilon(EPSILON, GAMMA)) > 0.05
    assert divergence(worlds, masked, by_tokens, amplified_epsilon(2 * EPSILON, GAMMA)) < 1e-12


def test_several_secrets_of_one_data_point_have_more_than_gamma() -> None:
    """Why a run with groups is refused: gamma is of one secret, and of three in a data point some is missed more often."""
    two = {"anna": 1 - GAMMA, "zed": GAMMA}
    worlds = {
        (" and ".join(secrets), OTHER): math.prod(two[secret] for secret in secrets)
        for secrets in itertools.product(two, repeat=3)
    }
    masked = (" and ".join([MASK] * 3), OTHER)
    assert divergence(worlds, masked, by_tokens, amplified_epsilon(EPSILON, 1 - (1 - GAMMA) ** 3)) < 1e-12
    assert divergence(worlds, masked, by_tokens, amplified_epsilon(EPSILON, GAMMA)) > 0.05

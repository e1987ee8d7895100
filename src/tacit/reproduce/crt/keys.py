"""The key of a replicate: public, made from its seed, so that an experiment can be repeated to the bit.

A model whose key is public has no guarantee of its own; the epsilons of the experiment are those that the same training has
with a secret key. With one key a seed, all arms share canaries, misses and initial weights, so they are compared in pairs.
"""

from __future__ import annotations

from tacit.config import RunConfig
from tacit.pipeline.records import secret_form, secrets_of
from tacit.randomness import KeyedRandomness, key_of
from tacit.reproduce.crt.scale import GAMMAS
from tacit.screening.missed import Missed
from tacit.screening.policy import Policy, package_policy
from tacit.screening.spans import merged

__all__ = ["experiment_seed"]

_MOST_TRIES = 100_000


def experiment_seed(seed: int, config: RunConfig) -> str:
    """The first text of a seed's sequence with whose key the policy misses a share gamma of the *canaries* too, for every gamma.

    Ten canaries of which a random number is missed would make the sweep over gamma a matter of luck. The choice looks at the key
    and the canaries alone, before any text is read.

    Args:
        seed: of the replicate.
        config: any run with the experiment's canaries.
    """
    policy = package_policy("balanced")
    for attempt in range(_MOST_TRIES):
        text = f"tacit reproduce crt {seed} {attempt}"
        streams = KeyedRandomness(key_of(text))
        if _is_even(_found_in_canaries(policy, streams, config), streams):
            return text
    raise AssertionError("one key in about a hundred is even")


def _found_in_canaries(policy: Policy, streams: KeyedRandomness, config: RunConfig) -> list[list[str]]:
    """What the policy masks in each canary."""
    form = secret_form(config)
    assert form is not None
    texts = [form.text(secret) for secret in secrets_of(config, streams)]
    return [
        [text[start:end] for start, end in merged(spans)]
        for text, spans in zip(texts, policy.spans_of(texts), strict=True)
    ]


def _is_even(found: list[list[str]], streams: KeyedRandomness) -> bool:
    for gamma in GAMMAS:
        missed = Missed.of(gamma, streams)
        if sum(all(map(missed.misses, secrets)) for secrets in found) != round(gamma * len(found)):
            return False
    return True

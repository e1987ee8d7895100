"""Whom the membership attack of appendix A.5 is tried on: secrets of the lines that were trained on, and true non-members.

Where a policy redacts, a secret that it finds is nowhere in what is trained on, and an attack on it says nothing of the training.
So the members are those whose secrets the policy of the cell misses.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.audit.samples import Pair
from tacit.config import RunConfig
from tacit.pipeline.marking import marker_of
from tacit.randomness import KeyedRandomness
from tacit.reproduce.crt.customersim import CustomerKind, customersim_pairs
from tacit.reproduce.crt.multiwoz import multiwoz_pairs
from tacit.reproduce.crt.scale import CorpusSize
from tacit.screen_plan import plan_of
from tacit.screening.corpus import policies_of
from tacit.screening.missed import ForgetfulPolicy, Missed, Spotter

__all__ = ["membership_pairs", "missed_places", "redacting_policy"]

_KINDS: tuple[CustomerKind, ...] = ("address", "order_number", "phone_number")
"""Not names: those that are left are rarer than those of members."""


def membership_pairs(corpus: str, data: Path, size: CorpusSize, streams: KeyedRandomness) -> list[Pair]:
    """Pairs of CustomerSim or MultiWOZ: as many as there are, at most ``size.membership_pairs``, a line in one pair alone.

    No policy has a part in it: a cell attacks those of them that its policy misses (`missed_places`).

    Args:
        streams: draws the pairs.
    """
    folder = data / corpus
    if corpus == "customersim":
        found = [pair for kind in _KINDS for pair in customersim_pairs(folder, kind, streams, size.dialogues)]
    else:
        found = multiwoz_pairs(folder, streams)
    pairs = list({pair.member: pair for pair in found}.values())
    order = streams.generator("membership-order", len(pairs)).permutation(len(pairs))
    return [pairs[place] for place in order[: size.membership_pairs].tolist()]


def missed_places(pairs: Sequence[Pair], policy: Spotter | None) -> list[int]:
    """Where those stand in whose member the policy marks no character of a secret.

    Args:
        policy: that redacts or marks what is trained on; None: nothing does.
    """
    if policy is None:
        return list(range(len(pairs)))
    marked = policy.spans_of([pair.member for pair in pairs])
    return [
        place
        for place, (pair, spans) in enumerate(zip(pairs, marked, strict=True))
        if not any(span.start < end and start < span.end for span in spans for start, end in pair.secrets)
    ]


def redacting_policy(config: RunConfig, streams: KeyedRandomness) -> Spotter | None:
    """What finds the secrets of a cell, with its misses; None where nothing is redacted or marked.

    Args:
        streams: of the run's key.
    """
    if config.marking is not None:
        return marker_of(config.marking, streams)
    if config.screening is None:
        return None
    return ForgetfulPolicy(policies_of(plan_of(config))["balanced"], Missed.of(config.screening.missed, streams))

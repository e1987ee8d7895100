"""The texts of a run's own corpus that the membership attack is about: raw, as they were before any redaction."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.audit.pairs import Spans, draw_pairs
from tacit.audit.samples import MembershipSamples
from tacit.config import RunConfig
from tacit.corpus.units import Unit
from tacit.errors import UsageError
from tacit.pipeline.records import planted_units
from tacit.randomness import KeyedRandomness
from tacit.screen_plan import plan_of
from tacit.screening.corpus import policies_of
from tacit.screening.missed import Spotter
from tacit.screening.policy import package_policy
from tacit.screening.spans import merged
from tacit.screening.split import data_points, reserve_mask

__all__ = ["run_samples"]


def run_samples(
    config: RunConfig, parts: tuple[Sequence[Unit], Sequence[Unit]], streams: KeyedRandomness
) -> MembershipSamples:
    """Members and true non-members of a run, at most ``audit.membership.pairs`` each (`tacit.audit.pairs.draw_pairs`).

    They may be fewer than ``least_pairs``, or none: that is a function of private text, so it stops nothing.

    Args:
        config: with a section ``audit.membership``.
        parts: (training, held out) of what the run holds out whole: its privacy units, or with screening its documents; raw, and
            without planted texts.
        streams: of the run's key.

    Raises:
        UsageError: there is no such section.
    """
    options = config.audit.membership if config.audit else None
    if options is None:
        raise UsageError("the configuration has no section `audit.membership`; add one")
    training, held_out = parts
    return draw_pairs(
        [_as_data_points(unit, config) for unit in training],
        [_as_data_points(unit, config) for unit in held_out],
        _spans_of(_balanced(config)),
        options.pairs,
        streams.child("membership"),
        planted_units(config, streams),
    )


def _as_data_points(unit: Unit, config: RunConfig) -> Unit:
    """The unit's texts as training has them, but for the redaction."""
    if config.screening is None:
        return Unit(unit.unit_id, tuple(text for text in unit.texts if text.strip()))
    kind = config.screening.data_point
    return Unit(unit.unit_id, tuple(reserve_mask(piece) for text in unit.texts for piece in data_points(text, kind)))


def _balanced(config: RunConfig) -> Spotter:
    """The policy that says what a secret is: the run's own pi, or the package's where nothing is screened."""
    return package_policy("balanced") if config.screening is None else policies_of(plan_of(config))["balanced"]


def _spans_of(policy: Spotter) -> Spans:
    def spans(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        # The empty texts give the first and the last one the same surroundings as all others.
        return [merged(found) for found in policy.spans_of(["", *texts, ""])[1:-1]]

    return spans

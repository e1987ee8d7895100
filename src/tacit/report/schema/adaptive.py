"""Adaptive DP in the report: epsilon as a public function of the privacy probability."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tacit.report.schema.values import Epsilon, Facts, Probability, Text

__all__ = ["AdaptiveFacts", "RhoBand"]


class RhoBand(Facts):
    """What a unit of one band of rho is promised; never how many there are.

    Args:
        name: of the band.
        begin, end: of rho.
        epsilon: at the certified delta; under replacement by whichever unit is the worst.
        within: under replacement by a unit of the same band; None under add-or-remove.
    """

    name: Text
    begin: Probability
    end: Probability
    epsilon: Epsilon
    within: Epsilon | None = None


class AdaptiveFacts(Facts):
    """How units of different privacy probability count.

    Args:
        form: as in the configuration.
        bands: in order of rho; none where nothing is promised to any.
        sentences: what a reader must know with them, one statement each.
    """

    form: Literal["strata", "clip-weights", "literal"]
    bands: tuple[RhoBand, ...]
    sentences: Annotated[tuple[Text, ...], Field(min_length=1)]

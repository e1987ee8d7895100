"""The guarantee, and the confidentiality statement of a run with screening."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tacit.report.schema.values import Count, Delta, Epsilon, Facts, HexDigest, Probability, Text

__all__ = [
    "Assumption",
    "ConfidentialityLine",
    "EpsilonPair",
    "Guarantee",
    "MissedShare",
    "ProvedCurve",
    "Said",
    "WhoseEpsilon",
]


class EpsilonPair(Facts):
    """One point of the privacy curve: (epsilon, delta)-DP holds for the whole release."""

    delta: Delta
    epsilon: Epsilon


class ProvedCurve(Facts):
    """A proved limit on every attacker who tells two neighbouring corpora apart, as a line that is never below the truth.

    Args:
        corners: (chance of accusing a unit that is not there, largest chance of finding one that is), joined by straight lines; both
            rise, from 0 to 1.
    """

    corners: Annotated[tuple[tuple[Probability, Probability], ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _rises_and_bends_down(self) -> Self:
        rates, found = zip(*self.corners, strict=True)
        if list(rates) != sorted(set(rates)) or list(found) != sorted(found) or (rates[0], rates[-1]) != (0, 1):
            raise ValueError("the corners of a proved curve rise, from a rate of 0 to a rate of 1")
        if any(most < rate - 1e-9 for rate, most in self.corners):
            raise ValueError("a proved curve is nowhere below chance")
        return self


class WhoseEpsilon(Facts):
    """What one certificate promises to a part of a unit, to a unit, or to several together, at the certified delta.

    Args:
        who: whose text is compared, in words.
        success: the largest chance with which an attacker who gives even odds is right.
        of_unit: whether this is the unit of the certificate itself.
    """

    who: Text
    epsilon: Epsilon
    success: Probability
    of_unit: bool = False


class Assumption(Facts):
    """Something that the guarantee rests on, and how well it is known."""

    text: Text
    label: Literal["proved", "measured", "heuristic", "assumed"]


class Guarantee(Facts):
    """What is promised, for whom, and what is not.

    Args:
        unit: whom or what the guarantee is for, as a noun in the singular: user, document, record, 256-word tuple.
        unit_description: the unit in plain words, such as "one patient: all notes with the same patient number".
        relation: neighbouring corpora differ by one unit added or removed, or by one unit exchanged.
        epsilons: three or more proved points of the curve with distinct deltas; the first is the certified pair. The
            verdict uses the point that limits an attacker most: that of epsilon 0, when it is among them.
        mu: the Gaussian mechanism with the same epsilon at ``mu_delta``: a summary, not part of the guarantee.
        mu_delta: the delta at which ``mu`` was matched.
        status: ``heuristic`` means that nothing is proved; every epsilon, and mu, must then be infinite.
        covered_outputs: what the guarantee is about, one file or value each.
        assumptions: what the proof rests on.
        not_covered: what a reader might take to be covered, and is not; never empty.
        randomness: where the random numbers come from, in one sentence.
    """

    unit: Text
    unit_description: Text
    relation: Literal["add-or-remove", "replace"]
    epsilons: Annotated[tuple[EpsilonPair, ...], Field(min_length=3)]
    mu: Epsilon
    mu_delta: Delta
    status: Literal["proved", "heuristic"]
    covered_outputs: Annotated[tuple[Text, ...], Field(min_length=1)]
    assumptions: tuple[Assumption, ...]
    not_covered: Annotated[tuple[Text, ...], Field(min_length=1)]
    randomness: Text

    @property
    def certified(self) -> EpsilonPair:
        """The pair that the certificate states."""
        return self.epsilons[0]

    @property
    def is_proved(self) -> bool:
        """Whether there is a guarantee at all."""
        return self.status == "proved"

    @model_validator(mode="after")
    def _status_agrees_with_epsilon(self) -> Self:
        if len({pair.delta for pair in self.epsilons}) < len(self.epsilons):
            raise ValueError("the epsilons must be at distinct deltas")
        if self.is_proved and math.isinf(self.certified.epsilon):
            raise ValueError("a proved guarantee needs a finite certified epsilon; report it as heuristic")
        if not self.is_proved and not all(
            math.isinf(value) for value in (self.mu, *(p.epsilon for p in self.epsilons))
        ):
            raise ValueError("a heuristic run has no guarantee: every epsilon and mu must be infinite")
        return self


class ConfidentialityLine(Facts):
    """One line of a confidentiality statement (tacit.privacy.confidentiality.lines.Line), in words and with its numbers.

    Args:
        kind: worst-case, screened or bayesian.
        definition: which definition of Zhao et al. 2022 it is about.
        status: how well it is known.
        sentence: what holds.
        assumption: what that rests on.
        paper: the paper's own number.
        difference: why it is another one.
    """

    kind: Literal["worst-case", "screened", "bayesian"]
    definition: Text
    status: Literal["proved", "measured", "heuristic"]
    epsilon: Epsilon
    delta: Delta
    sentence: Text
    assumption: Text
    paper: Epsilon
    difference: Text


class MissedShare(Facts):
    """A bound on what the policies miss (tacit.privacy.confidentiality.statement.Share): measured on labels, or assumed.

    Args:
        name, value: which one, and the bound.
        label: how well it is known.
        labelled, missed, confidence: where it was measured: labelled secrets, those missed, and the confidence of the bound.
        measurement: digest of the measurement, if there is a file of it.
    """

    name: Literal["gamma", "delta_2"]
    value: Probability
    label: Literal["measured", "assumed"]
    labelled: Annotated[int, Field(ge=1)] | None = None
    missed: Count | None = None
    confidence: Probability | None = None
    measurement: HexDigest | None = None

    @model_validator(mode="after")
    def _measured_means_counted(self) -> Self:
        given = [value is not None for value in (self.labelled, self.missed, self.confidence)]
        if given != [self.label == "measured"] * 3:
            raise ValueError("a measured share has its counts and confidence, and an assumed one has none")
        return self


class Said(Facts):
    """The verdict as the page has it, for programs: headline, paragraph, and how well each number is known."""

    headline: Text
    paragraph: Text
    known: tuple[tuple[Text, Text], ...] = ()

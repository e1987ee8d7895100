"""Events: what an accountant needs to know of a mechanism that was run on the private records.

An event is a public, frozen description. It is made by the plan that also makes the sampler, the clip and the noise, goes
into the ledger before the mechanism runs, and is all that epsilon is ever computed from. Its law, its words and its numbers are its
own: nobody outside `tacit.privacy` asks which event it is.

To add a kind: a frozen subclass of `Event` in a file of its own and one line in ``EVENTS``; the suites in tests/contracts then
check it against every accountant.
"""

from tacit.privacy.events.banded import BandedPoissonGaussian, BandsFrom, Exchange
from tacit.privacy.events.base import SMALLEST_NOISE_MULTIPLIER, Event, Relation, check_relation
from tacit.privacy.events.correlated import CorrelatedPoissonGaussian
from tacit.privacy.events.gaussian import Gaussian, PoissonGaussian
from tacit.privacy.events.spends import (
    EVENTS,
    EVERY_PART,
    Chosen,
    NonPrivate,
    Spend,
    event_from_dict,
    event_to_dict,
    expected,
    of_run,
    part_of,
    split_of,
)
from tacit.privacy.events.words import Choice, ThresholdedHistogram, WeightedHistogram, WordCounts, unit_weight

__all__ = [
    "EVENTS",
    "EVERY_PART",
    "SMALLEST_NOISE_MULTIPLIER",
    "BandedPoissonGaussian",
    "BandsFrom",
    "Choice",
    "Chosen",
    "CorrelatedPoissonGaussian",
    "Event",
    "Exchange",
    "Gaussian",
    "NonPrivate",
    "PoissonGaussian",
    "Relation",
    "Spend",
    "ThresholdedHistogram",
    "WeightedHistogram",
    "WordCounts",
    "check_relation",
    "event_from_dict",
    "event_to_dict",
    "expected",
    "of_run",
    "part_of",
    "split_of",
    "unit_weight",
]

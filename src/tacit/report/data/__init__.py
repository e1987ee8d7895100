"""Everything that a report may say, as one frozen model: what is not here cannot reach a reader.

The report is built from `ReportData` and from nothing else, so no private text can slip into it. Values that would be
claims beyond the guarantee are refused at construction: a finite epsilon for a heuristic run, a proved run without a
finite one, results of the control trained without DP in a copy that may be published.

Epsilons may be infinite; in JSON they are then the string "infinity", because bare ``Infinity`` is not JSON.
"""

from tacit.report.data.adaptive import AdaptiveFacts, RhoBand
from tacit.report.data.attacks import Estimated, ExposureRow, MembershipFacts, MembershipRow
from tacit.report.data.guarantee import Assumption, ConfidentialityLine, EpsilonPair, Guarantee, MissedShare, Said
from tacit.report.data.ledger import CumulativePoint, LedgerRow
from tacit.report.data.model import ModelFacts, PhaseRow, UtilityRow, VocabularyFacts
from tacit.report.data.run import ReleasedFile, ReportData
from tacit.report.data.values import BEFORE, CONTROL, CURATOR_TEXT, INFINITY, RELEASED, UNIFORM, UNIGRAM

__all__ = [
    "BEFORE",
    "CONTROL",
    "CURATOR_TEXT",
    "INFINITY",
    "RELEASED",
    "UNIFORM",
    "UNIGRAM",
    "AdaptiveFacts",
    "Assumption",
    "ConfidentialityLine",
    "CumulativePoint",
    "EpsilonPair",
    "Estimated",
    "ExposureRow",
    "Guarantee",
    "LedgerRow",
    "MembershipFacts",
    "MembershipRow",
    "MissedShare",
    "ModelFacts",
    "PhaseRow",
    "ReleasedFile",
    "ReportData",
    "RhoBand",
    "Said",
    "UtilityRow",
    "VocabularyFacts",
]

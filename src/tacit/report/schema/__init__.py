"""Everything that a report may say, as one frozen model: what is not here cannot reach a reader.

The report is built from `ReportData` and from nothing else, so no private text can slip into it. Values that would be
claims beyond the guarantee are refused at construction: a finite epsilon for a heuristic run, a proved run without a
finite one, results of the control, or of an attack that reads private text, in a copy that may be published.

Epsilons may be infinite; in JSON they are then the string "infinity", because bare ``Infinity`` is not JSON.
"""

from tacit.report.schema.adaptive import AdaptiveFacts, RhoBand
from tacit.report.schema.attacks import AttackFacts, AttackRow, Estimated, Term
from tacit.report.schema.guarantee import (
    Assumption,
    ConfidentialityLine,
    EpsilonPair,
    Guarantee,
    MissedShare,
    ProvedCurve,
    Said,
    WhoseEpsilon,
)
from tacit.report.schema.ledger import CumulativePoint, LedgerRow, UnitsRead
from tacit.report.schema.model import AdapterFacts, Example, ModelFacts, PhaseRow, UtilityRow, VocabularyFacts
from tacit.report.schema.run import IdentifierRow, ReleasedFile, ReportData
from tacit.report.schema.values import (
    BEFORE,
    CONTROL,
    CONTROL_WITHOUT_NOISE,
    CURATOR_TEXT,
    EPSILON,
    GIVEN,
    INFINITY,
    RELEASED,
    SHARE,
    UNIFORM,
    UNIGRAM,
)

__all__ = [
    "BEFORE",
    "CONTROL",
    "CONTROL_WITHOUT_NOISE",
    "CURATOR_TEXT",
    "EPSILON",
    "GIVEN",
    "INFINITY",
    "RELEASED",
    "SHARE",
    "UNIFORM",
    "UNIGRAM",
    "AdapterFacts",
    "AdaptiveFacts",
    "Assumption",
    "AttackFacts",
    "AttackRow",
    "ConfidentialityLine",
    "CumulativePoint",
    "EpsilonPair",
    "Estimated",
    "Example",
    "Guarantee",
    "IdentifierRow",
    "LedgerRow",
    "MissedShare",
    "ModelFacts",
    "PhaseRow",
    "ProvedCurve",
    "ReleasedFile",
    "ReportData",
    "RhoBand",
    "Said",
    "Term",
    "UnitsRead",
    "UtilityRow",
    "VocabularyFacts",
    "WhoseEpsilon",
]

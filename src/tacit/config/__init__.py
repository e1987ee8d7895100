"""The configuration of a run: one YAML file, checked completely before anything is read or spent.

options.py  every option, as frozen models
check.py    what parses but is refused
load.py     from YAML, with one line for a mistake
"""

from tacit.config.load import config_differences, load_config, parse_config
from tacit.config.options import (
    AuditOptions,
    Budget,
    ComputeOptions,
    CorpusOptions,
    DpPhase,
    EvaluationOptions,
    GroupOptions,
    MarkingOptions,
    MembershipOptions,
    ModelOptions,
    PhaseOptions,
    PlainPhase,
    PrivacyOptions,
    RunConfig,
    ScreeningOptions,
    SelectivePhase,
    TupleUnit,
    TurnsOptions,
    VocabularyOptions,
)

__all__ = [
    "AuditOptions",
    "Budget",
    "ComputeOptions",
    "CorpusOptions",
    "DpPhase",
    "EvaluationOptions",
    "GroupOptions",
    "MarkingOptions",
    "MembershipOptions",
    "ModelOptions",
    "PhaseOptions",
    "PlainPhase",
    "PrivacyOptions",
    "RunConfig",
    "ScreeningOptions",
    "SelectivePhase",
    "TupleUnit",
    "TurnsOptions",
    "VocabularyOptions",
    "config_differences",
    "load_config",
    "parse_config",
]

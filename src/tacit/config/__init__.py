"""The configuration of a run: one YAML file, checked completely before anything is read or spent.

Each section is a module of options: privacy, corpus (``private``, ``public``), screening, marking, adaptive, vocabulary,
model, phases, evaluation, audit and compute.

base.py     what the sections share: frozen models, number types, paths
run.py      the whole configuration, its digest, and the order in which the sections check themselves
load.py     from YAML, with one line for a mistake
kinds/      the kinds of models, a row each
shape.py    the shape of the model, from its options or its folder
vocabulary_methods/   how a vocabulary is made, a file a method
"""

from tacit.config.adaptive import AdaptiveOptions, RhoScorer, stratum_number
from tacit.config.audit import AuditOptions, CoinOptions, MembershipOptions
from tacit.config.compute import ComputeOptions
from tacit.config.corpus import CorpusOptions, PublicCorpusOptions, TurnsOptions
from tacit.config.evaluation import EvaluationOptions
from tacit.config.load import config_differences, load_config, parse_config
from tacit.config.marking import MarkingOptions
from tacit.config.model import ModelOptions
from tacit.config.phases import DpPhase, PhaseOptions, PlainPhase, SelectivePhase
from tacit.config.privacy import Budget, PrivacyOptions, TupleUnit
from tacit.config.run import RunConfig
from tacit.config.screening import GroupOptions, ScreeningOptions
from tacit.config.vocabulary import VocabularyOptions

__all__ = [
    "AdaptiveOptions",
    "AuditOptions",
    "Budget",
    "CoinOptions",
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
    "PublicCorpusOptions",
    "RhoScorer",
    "RunConfig",
    "ScreeningOptions",
    "SelectivePhase",
    "TupleUnit",
    "TurnsOptions",
    "VocabularyOptions",
    "config_differences",
    "load_config",
    "parse_config",
    "stratum_number",
]

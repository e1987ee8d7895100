"""Screening: finding what must not leak, masking it, and measuring how much of it is missed."""

from __future__ import annotations

from tacit.screening.core import CoreDetector
from tacit.screening.measure import GoldRecord, Measured, measure, miss_rate_upper, read_gold
from tacit.screening.policy import POLICIES, Policy, PolicyOptions, load_policy, package_policy
from tacit.screening.redact import MASK, redact
from tacit.screening.spans import Detector, Span
from tacit.screening.tokens import TokenPolicy, TokenPolicyOptions

__all__ = [
    "MASK",
    "POLICIES",
    "CoreDetector",
    "Detector",
    "GoldRecord",
    "Measured",
    "Policy",
    "PolicyOptions",
    "Span",
    "TokenPolicy",
    "TokenPolicyOptions",
    "load_policy",
    "measure",
    "miss_rate_upper",
    "package_policy",
    "read_gold",
    "redact",
]

"""Detectors made of other people's work: Presidio, spaCy, a local Hugging Face model, spans computed elsewhere.

A policy file names them by their options (`DetectorOptions`); `detector_from_options` makes the detector. None of them reaches
for the network, and none of the libraries is imported before its detector is made. Importing this package costs only pydantic.
"""

from __future__ import annotations

from tacit.screening.adapters.options import (
    DetectorOptions,
    HuggingFaceOptions,
    PrecomputedOptions,
    PresidioOptions,
    SpacyOptions,
    TextsOptions,
)
from tacit.screening.adapters.registry import detector_from_options

__all__ = [
    "DetectorOptions",
    "HuggingFaceOptions",
    "PrecomputedOptions",
    "PresidioOptions",
    "SpacyOptions",
    "TextsOptions",
    "detector_from_options",
]

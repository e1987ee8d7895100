"""From options to a detector. The module of a kind, and the library behind it, is imported when it is asked for."""

from __future__ import annotations

from tacit.screening.adapters.common import TextByText
from tacit.screening.adapters.options import (
    DetectorOptions,
    HuggingFaceOptions,
    PrecomputedOptions,
    PresidioOptions,
    SpacyOptions,
)
from tacit.screening.spans import Detector

__all__ = ["detector_from_options"]


def detector_from_options(options: DetectorOptions) -> Detector:
    """The detector that the options describe, ready to read.

    Raises:
        UsageError: a library is not installed, or the options do not fit the model; one line.
        DataError: a file or a model cannot be read, or is malformed; one line without any text of it.
    """
    detector = _detector(options)
    if isinstance(detector, TextByText):
        detector.check()
    return detector


def _detector(options: DetectorOptions) -> Detector:
    match options:
        case PresidioOptions():
            from tacit.screening.adapters.presidio import PresidioDetector

            return PresidioDetector(options)
        case SpacyOptions():
            from tacit.screening.adapters.spacy_ner import SpacyDetector

            return SpacyDetector(options)
        case HuggingFaceOptions():
            from tacit.screening.adapters.huggingface import HuggingFaceDetector

            return HuggingFaceDetector(options)
        case PrecomputedOptions():
            from tacit.screening.adapters.precomputed import PrecomputedDetector

            return PrecomputedDetector(options)

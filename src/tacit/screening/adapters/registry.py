"""The kinds of detectors: one row a kind; and from its options to a detector that is ready to read."""

from __future__ import annotations

from typing import Annotated

from tacit.by_name import ByName
from tacit.screening.adapters.common import TextByText
from tacit.screening.adapters.options import (
    AdapterOptions,
    HuggingFaceOptions,
    PrecomputedOptions,
    PresidioOptions,
    SpacyOptions,
)
from tacit.screening.spans import Detector

__all__ = ["DETECTORS", "DetectorOptions", "detector_from_options"]

DETECTORS: dict[str, type[AdapterOptions]] = {
    "presidio": PresidioOptions,
    "spacy": SpacyOptions,
    "huggingface": HuggingFaceOptions,
    "precomputed": PrecomputedOptions,
}
"""By the word that ``kind`` has, which each class has as a ``Literal``. tests/screening/test_adapters.py tests each of them."""


DetectorOptions = Annotated[AdapterOptions, ByName("kind", DETECTORS)]
"""A detector in a policy file: the options of its own kind."""


def detector_from_options(options: AdapterOptions) -> Detector:
    """The detector that the options describe, ready to read.

    Raises:
        UsageError: a library is not installed, or the options do not fit the model; one line.
        DataError: a file or a model cannot be read, or is malformed; one line without any text of it.
    """
    detector = options.detector()
    if isinstance(detector, TextByText):
        detector.check()
    return detector

"""From options to a detector that is ready to read."""

from __future__ import annotations

from tacit.screening.adapters.common import TextByText
from tacit.screening.adapters.options import AdapterOptions
from tacit.screening.spans import Detector

__all__ = ["detector_from_options"]


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

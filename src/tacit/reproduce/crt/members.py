"""Whom the membership attack of appendix A.5 is tried on: secrets of the lines that were trained on, and true non-members."""

from __future__ import annotations

from pathlib import Path

from tacit.audit.samples import MembershipSamples
from tacit.randomness import KeyedRandomness
from tacit.reproduce.crt.customersim import customersim_samples
from tacit.reproduce.crt.multiwoz import multiwoz_samples
from tacit.reproduce.crt.scale import CorpusSize

__all__ = ["membership_samples"]


def membership_samples(corpus: str, data: Path, size: CorpusSize, streams: KeyedRandomness) -> MembershipSamples:
    """Addresses of CustomerSim, sentences with reference numbers of MultiWOZ, as in the paper."""
    folder, count = data / corpus, size.membership_pairs
    if corpus == "customersim":
        return customersim_samples(folder, "address", count, streams, dialogues=size.dialogues)
    return multiwoz_samples(folder, count, streams)

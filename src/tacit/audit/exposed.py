"""What was found of planted canaries, as it is stored and told: `tacit.audit.exposure` and `tacit.audit.candidates` measure it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Exposure"]


@dataclass(frozen=True)
class Exposure:
    """Exposure of one pattern, or of the texts that a causal model was given (`tacit.audit.candidates`).

    Args:
        pattern: such as ``HSH``.
        canaries: how many.
        mean_rank: mean rank of the secrets; 1 is fully exposed.
        bits: log2(candidates) - log2(mean_rank); of a causal model the mean of log2(candidates) - log2(rank).
        null_bits: expected bits under the null.
        p_value: probability of so much or more under the null.
        ceiling_bits: log2(candidates).
        max_bits, null_max_bits, max_p_value: of the most exposed canary, with its own null; None of a masked model.
    """

    pattern: str
    canaries: int
    mean_rank: float
    bits: float
    null_bits: float
    p_value: float
    ceiling_bits: float
    max_bits: float | None = None
    null_max_bits: float | None = None
    max_p_value: float | None = None

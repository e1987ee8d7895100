"""In which precision the gradients of a paid phase are computed: what the ledger holds of it, and what the certificate says.

The digest of what a phase's sums are made from is bound when it begins. Where the precision is below float32, it stands before the
digest with the micro-batch, whose shape may decide how a device rounds. One entry, so no crash can part them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tacit.privacy.ledger import Ledger

__all__ = ["FLOAT32", "Rounding", "precision_words", "rounding_of", "sums_of"]

FLOAT32 = "float32"
"""What a phase is computed in unless something else is said."""

_WORDS = {"bf16": "bfloat16"}


@dataclass(frozen=True)
class Rounding:
    """What decides how gradients are rounded, beyond the last digits of float32.

    Args:
        precision: of forward and backward.
        micro_batch: rows at once; None in float32, where it decides last digits alone.
    """

    precision: str = FLOAT32
    micro_batch: int | None = None

    def bound(self, made_from: str) -> str:
        """What the ledger holds with a digest.

        >>> Rounding().bound("17ab"), Rounding("bf16", 64).bound("17ab")
        ('17ab', 'bf16 64 17ab')
        """
        return made_from if self.micro_batch is None else f"{self.precision} {self.micro_batch} {made_from}"

    def __str__(self) -> str:
        """The options that ask for it."""
        options = f"compute.precision: {self.precision}"
        return options if self.micro_batch is None else f"{options} and compute.micro_batch: {self.micro_batch}"


def sums_of(phase: str) -> str:
    """The name under which the ledger holds what the sums of a phase are made from."""
    return f"what the sums of {phase} are made from"


def rounding_of(ledger: Ledger, phase: str) -> Rounding | None:
    """How the gradients of a phase that has begun are rounded; None where it has not begun."""
    bound = ledger.bound(sums_of(phase))
    if bound is None:
        return None
    precision, _, rest = bound.partition(" ")
    return Rounding(precision, int(rest.partition(" ")[0])) if rest else Rounding()


def precision_words(ledger: Ledger) -> str:
    """A sentence for the certificate on the phases below float32; empty where there is none."""
    phases: dict[str, list[str]] = {}
    for phase in ledger.plans:
        rounding = rounding_of(ledger, phase)
        if rounding not in (None, Rounding()):
            phases.setdefault(rounding.precision, []).append(phase)
    return "".join(
        f" Gradients of {' and '.join(names)}: computed in {_WORDS.get(precision, precision)}, with norms and sums in float32."
        for precision, names in phases.items()
    )

"""What `tacit screen --measure` found of two policies, as a file that a run can be given: its gamma and delta_2 are then measured.

A number in a configuration is somebody's word. A measurement says how many labelled secrets each policy missed, which policies
these were and which sample it was, so a run can see that it uses the same policies, and its statement says where a bound is from.
Nobody signs the file: that the labels are right, and drawn like the secrets of the run's own text, stays assumed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, Self

from tacit.errors import DataError
from tacit.privacy.confidentiality.misses import Labels

__all__ = ["MEASUREMENT", "Measurement"]

MEASUREMENT = "the measurement of the policies"
"""Under this name the ledger holds, as JSON, the measurement that a run was given."""

_KIND = "what tacit screen --measure found"


@dataclass(frozen=True)
class Measurement:
    """How many of the same labelled secrets two policies missed.

    Args:
        tacit_version: of the detectors.
        balanced_policy, conservative_policy: SHA-256 of their options and models.
        data_point: what each record of the gold file was one of: ``record`` or ``line``.
        sample: SHA-256 of the salt and the gold file; with 16 random bytes of salt it confirms no guess of the text.
        salt: hexadecimal.
        documents, secrets: records of the gold file, and labelled secrets in them.
        balanced_missed, conservative_missed: of these secrets, those that were not wholly marked.
        confidence: of each bound.
    """

    tacit_version: str
    balanced_policy: str
    conservative_policy: str
    data_point: str
    sample: str
    salt: str
    documents: int
    secrets: int
    balanced_missed: int
    conservative_missed: int
    confidence: float

    @property
    def gamma(self) -> Labels:
        """How many of the labelled secrets the balanced policy misses."""
        return Labels(self.secrets, self.balanced_missed)

    @property
    def delta_2(self) -> Labels:
        """How many of the labelled secrets the conservative policy misses, which bounds what both miss."""
        return Labels(self.secrets, self.conservative_missed)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it; as random as the salt."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the bounds for a reader."""
        return {
            "kind": _KIND,
            **dataclasses.asdict(self),
            "gamma_upper": self.gamma.upper(self.confidence),
            "delta2_upper": self.delta_2.upper(self.confidence),
        }

    def to_json(self) -> str:
        """One line, the same for the same measurement."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str, place: str) -> Self:
        """What `to_json` gave, at this place.

        Raises:
            DataError: it is something else, or its bounds are not those of its counts.
        """
        wrong = f"{place}: this is not what `tacit screen --measure GOLD --out FILE` wrote; measure again"
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise DataError(wrong) from None
        names = {field.name: field.type for field in dataclasses.fields(cls)}
        if not isinstance(values, dict) or values.keys() != {"kind", *names, "gamma_upper", "delta2_upper"}:
            raise DataError(wrong)
        kinds = {"str": str, "int": int, "float": float}
        if values["kind"] != _KIND or any(type(values[name]) is not kinds[str(kind)] for name, kind in names.items()):
            raise DataError(wrong)
        found = cls(**{name: values[name] for name in names})
        if not _is_possible(found) or found.to_dict() != values:
            raise DataError(wrong)
        return found


def _is_possible(found: Measurement) -> bool:
    missed = (found.balanced_missed, found.conservative_missed)
    counts = found.secrets >= 1 and found.documents >= 1 and all(0 <= one <= found.secrets for one in missed)
    counts &= found.data_point in ("record", "line")
    return counts and math.isfinite(found.confidence) and 0 < found.confidence < 1

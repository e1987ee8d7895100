"""What a run is given of its policies' misses: the file of `tacit screen --measure`, if it is of the policies that the run uses."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path

import tacit
from tacit.config import RunConfig
from tacit.errors import DataError
from tacit.privacy.measurement import Measurement
from tacit.screen_stage import plan_of
from tacit.screening.corpus import policies_of
from tacit.screening.measure import CONFIDENCE, Measured
from tacit.screening.policy import Policy

__all__ = ["measurement_of", "measurement_of_run"]

_SALT_BYTES = 16
_BLOCK = 1 << 20


def measurement_of(gold: Path, policies: Mapping[str, Policy], found: Mapping[str, Measured]) -> Measurement:
    """What was found of the policies ``balanced`` and ``conservative`` on a gold file."""
    salt = secrets.token_bytes(_SALT_BYTES)
    sample = hashlib.sha256(salt)
    with gold.open("rb") as file:
        while block := file.read(_BLOCK):
            sample.update(block)
    return Measurement(
        tacit_version=tacit.__version__,
        balanced_policy=policies["balanced"].digest,
        conservative_policy=policies["conservative"].digest,
        sample=sample.hexdigest(),
        salt=salt.hex(),
        documents=found["balanced"].documents,
        secrets=found["balanced"].spans.total(),
        balanced_missed=found["balanced"].misses,
        conservative_missed=found["conservative"].misses,
        confidence=CONFIDENCE,
    )


def measurement_of_run(config: RunConfig) -> Measurement | None:
    """The measurement that a run's gamma and delta_2 come from; None where it is given none.

    Raises:
        DataError: the file cannot be read, is something else, or is of other policies or of another version of the detectors.
    """
    path = None if config.screening is None else config.screening.resolved_measurement
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DataError(f"{path}: the measurement cannot be read; check screening.measurement") from None
    found = Measurement.from_json(text, str(path))
    if found.tacit_version != tacit.__version__:
        raise DataError(
            f"{path}: it was measured with tacit {found.tacit_version}, whose detectors are others; measure again with "
            f"{tacit.__version__}"
        )
    for role, policy in policies_of(plan_of(config)).items():
        if policy.digest != {"balanced": found.balanced_policy, "conservative": found.conservative_policy}[role]:
            raise DataError(
                f"{path}: it was measured of another {role} policy than the run uses; measure this one with --{role}"
            )
    return found

"""What a run is given of its policies' misses: the file of `tacit screen --measure`, if it is of the policies that the run uses."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path

from tacit.config import RunConfig
from tacit.errors import DataError, UsageError
from tacit.privacy.confidentiality.measurement import Measurement
from tacit.screen_plan import plan_of
from tacit.screening.corpus import policies_of
from tacit.screening.measure import CONFIDENCE, Measured
from tacit.screening.policy import Policy
from tacit.screening.split import DataPoint
from tacit.screening.tokens import TokenPolicy
from tacit.version import VERSION

__all__ = ["measurement_of", "measurement_of_run"]

_SALT_BYTES = 16
_BLOCK = 1 << 20


def measurement_of(
    gold: Path, policies: Mapping[str, Policy | TokenPolicy], found: Mapping[str, Measured], data_point: DataPoint
) -> Measurement:
    """What was found of the policies ``balanced`` and ``conservative`` on a gold file, each of whose records is one data point.

    Raises:
        UsageError: a policy takes spans that were computed elsewhere.
    """
    for role, policy in policies.items():
        _check_reads_any_text(role, policy)
    salt = secrets.token_bytes(_SALT_BYTES)
    sample = hashlib.sha256(salt)
    with gold.open("rb") as file:
        while block := file.read(_BLOCK):
            sample.update(block)
    return Measurement(
        tacit_version=VERSION,
        balanced_policy=policies["balanced"].digest,
        conservative_policy=policies["conservative"].digest,
        data_point=data_point,
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
        DataError: the file cannot be read, is something else, or is of other policies, data points, or version of the detectors.
        UsageError: a policy takes spans that were computed elsewhere.
    """
    options = config.screening
    path = None if options is None else options.resolved_measurement
    if options is None or path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DataError(f"{path}: the measurement cannot be read; check screening.measurement") from None
    found = Measurement.from_json(text, str(path))
    if found.tacit_version != VERSION:
        raise DataError(
            f"{path}: it was measured with tacit {found.tacit_version}, whose detectors are others; measure again with "
            f"{VERSION}"
        )
    if found.data_point != options.data_point:
        raise DataError(
            f"{path}: it was measured on data points that are a {found.data_point} each, and screening.data_point is "
            f"{options.data_point}: measure again on gold that is cut so, with --data-point {options.data_point}"
        )
    for role, policy in policies_of(plan_of(config)).items():
        _check_reads_any_text(role, policy)
        if policy.digest != {"balanced": found.balanced_policy, "conservative": found.conservative_policy}[role]:
            raise DataError(
                f"{path}: it was measured of another {role} policy than the run uses; measure this one with --{role}"
            )
    return found


def _check_reads_any_text(role: str, policy: Policy | TokenPolicy) -> None:
    if not policy.reads_any_text:
        raise UsageError(
            f"the {role} policy uses precomputed spans, which exist for given texts only: how many it misses in a gold file says "
            "nothing about other texts; give the detector itself, or state gamma and delta2"
        )

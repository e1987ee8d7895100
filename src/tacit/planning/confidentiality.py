"""What a run with screening says of a secret: its statement, from its configuration and its ledger, and the check of it.

The numbers are those of `tacit.privacy.confidentiality.statement`; here they get the run's own phases and the screening's own
stability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from tacit.config import RunConfig, ScreeningOptions
from tacit.errors import RefusedError
from tacit.planning.locality import check_locality
from tacit.privacy.accounting.replacement import Deduplication, Screening, Stability, stability
from tacit.privacy.certificate_checks import Check
from tacit.privacy.confidentiality.measurement import MEASUREMENT, Measurement
from tacit.privacy.confidentiality.statement import ConfidentialityStatement, statement_of_run, training_steps
from tacit.privacy.events import Spend
from tacit.privacy.ledger import Ledger

__all__ = [
    "check_confidentiality",
    "check_statement",
    "deduplication_of",
    "planned_statement",
    "run_statement",
    "screening_stability",
]


def run_statement(config: RunConfig, ledger: Ledger) -> ConfidentialityStatement | None:
    """The confidentiality of a run; None where it has none to state: no screening, or private text trained on without noise.

    The private phases count as far as the ledger holds them, and everything else in it that reads private records with noise.
    """
    bound = ledger.bound(MEASUREMENT)
    return planned_statement(
        config, ledger.spends(), None if bound is None else Measurement.from_json(bound, "the ledger")
    )


def planned_statement(
    config: RunConfig, spends: Sequence[Spend], measurement: Measurement | None
) -> ConfidentialityStatement | None:
    """The confidentiality that a run is going to state: of these spends, and of this measurement of the policies, if there is one."""
    options = config.screening
    if options is None or config.uses_heuristic:
        return None
    found = training_steps(spends)
    if found is None:
        return None
    event, steps, others = found
    stated = 1.0 if options.delta2 is None else options.delta2
    return statement_of_run(
        records=config.privacy.units,
        sampling_probability=event.sampling_probability,
        noise_multiplier=event.noise_multiplier,
        steps=steps,
        delta=config.privacy.budget.delta,
        stability=screening_stability(options),
        gamma=options.gamma if measurement is None else measurement.gamma,
        delta_2=stated if measurement is None else measurement.delta_2,
        confidence=0.95 if measurement is None else measurement.confidence,
        group_size=1 if options.group is None else options.group.most,
        others=others,
        measurement=None if measurement is None else measurement.digest,
    )


def check_confidentiality(config: RunConfig, statement: ConfidentialityStatement | None) -> None:
    """Refuse a run with screening that would train and then guarantee nothing at all.

    Args:
        statement: of `planned_statement`.

    Raises:
        RefusedError: ``no-confidentiality``: there is no statement, or each of its lines is infinite.
    """
    if config.screening is None or config.uses_heuristic or "heuristic:no-confidentiality" in config.allow:
        return
    if statement is None:
        why = "no phase trains on the private stream with noise"
    elif any(math.isfinite(line.epsilon) for line in statement.lines):
        return
    else:
        why = "a secret that both policies miss is trained on without noise, and nothing bounds how many are missed"
    raise RefusedError(
        "no-confidentiality",
        f"screening: this run would keep nothing confidential: {why}, so each line of its statement is infinite. Measure the "
        "policies (`tacit screen --measure GOLD --out FILE`) and give screening.measurement, or give gamma and delta2, with a "
        "phase of plan: dp on stream: private; or add heuristic:no-confidentiality to allow",
    )


def screening_stability(options: ScreeningOptions) -> Stability:
    """Records of the training that one masked secret changes, as `tacit.screening` works: it redacts first."""
    screening = Screening(
        deduplication=deduplication_of(options.deduplicate),
        order="redact-first",
        policy="patterns" if options.policies == "tokens" else "context",
        mask_reserved=True,
        whole_units=options.normalisation == "none",
    )
    return stability(screening)


def deduplication_of(which: Literal["none", "exact", "unmasked"]) -> Deduplication:
    """The account's word for ``screening.deduplicate``."""
    return "keep-first" if which == "exact" else which


def check_statement(config: RunConfig, ledger: Ledger, certificate: dict[str, Any]) -> list[Check]:
    """Recompute the statement of a certificate and compare; nothing where a run has none and states none."""
    stated, found = certificate.get("confidentiality"), run_statement(config, ledger)
    if stated is None and found is None:
        return []
    same_options = config.digest() == ledger.header.config_digest
    same = found is not None and stated == _as_stated(found, stated)
    return [
        Check("configuration is the ledger's", same_options, ledger.header.config_digest[:12]),
        Check("confidentiality statement", same, "as recomputed" if same else "differs from what is recomputed"),
        *check_locality(config, ledger),
    ]


def _as_stated(found: ConfidentialityStatement, stated: Any) -> dict[str, Any]:
    """The statement as plain values, without the shares where the certificate is of before they were in it."""
    values = found.to_dict()
    return (
        values
        if isinstance(stated, dict) and "shares" in stated
        else {k: v for k, v in values.items() if k != "shares"}
    )

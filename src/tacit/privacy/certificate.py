"""The certificate: what a release guarantees, computed from the ledger and from nothing else.

`tacit.privacy.certificate_checks` verifies it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.privacy.accounting.accountant import account_parts, epsilon_of_rho, joint_epsilon, mu_at, shared_account
from tacit.privacy.accounting.adaptive import bands_from
from tacit.privacy.accounting.composition import SMALLEST_DELTA
from tacit.privacy.events import Relation, Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import MADE_BY, START, Provenance, spend_to_dict
from tacit.privacy.strict_json import read_number, write_number

__all__ = [
    "NOT_EXACT",
    "ON_GRID",
    "RHO",
    "adaptive_statement",
    "bind_model",
    "bound_model",
    "certificate_deltas",
    "file_digests",
    "finetuning_randomness",
    "is_certified",
    "make_certificate",
    "model_digest",
    "refuse_unstated",
    "run_randomness",
    "states_tiny",
    "total_variation",
]

_VERSION = 2
"""Version 1 did not say where a run began, and which version of tacit had made it (docs/known-vulnerabilities.md)."""

RHO = "the function rho"
"""Under this name the ledger holds, as JSON, what makes the privacy probability: form, scorer and constants, all public."""


def certificate_deltas(delta: float) -> tuple[float, float, float]:
    """The certified delta, then a half and a fifth of it.

    Not smaller: the vocabulary's threshold spends a share of delta (a tenth by default) that no epsilon buys back.
    """
    return delta, float(f"{delta / 2:.12g}"), float(f"{delta / 5:.12g}")


def states_tiny(delta: float) -> bool:
    """Whether a certificate at this delta states a pair at which some events have no bound."""
    return min(certificate_deltas(delta)) < SMALLEST_DELTA


def refuse_unstated(spends: Sequence[Spend], delta: float, relation: Relation) -> None:
    """Whether a certificate can state all its pairs, before anything is paid: at a fifth of a tiny delta some events have no bound.

    Raises:
        UsageError: it cannot.
    """
    for stated in certificate_deltas(delta):
        if stated < SMALLEST_DELTA:
            joint_epsilon(spends, stated, relation)


def file_digests(folder: Path, leave_out: tuple[str, ...] = ()) -> dict[str, str]:
    """SHA-256 of every file below a folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).as_posix() not in leave_out
    }


ON_GRID = "in float64, rounded with its sums to a public grid"
"""How training noise is added (`tacit.engine.noise.Grid`)."""
NOT_EXACT = "What a double's precision leaves of the exact law of noise is not modelled."


DOMAIN = (
    "Assumed of every corpus that is compared: it can be read, with at least one record; memory, disk and time suffice for it; and "
    'what else docs/guarantees.md assumes of it ("The domain of corpora").'
)
"""On another corpus a run stops, and that it stops can be seen."""


def run_randomness(training: str, public_key: bool) -> str:
    """What a run draws from, in words.

    Args:
        training: the source of the training noise, as the ledger binds it.
        public_key: the key is made from the option ``seed``.
    """
    key = _PUBLIC_KEY if public_key else "256 bits from the operating system (cryptographic)"
    return (
        f"Training noise: {training}, {ON_GRID}; sampling and evaluation noise, which is on a grid too: ChaCha20 keyed by {key}; "
        "vocabulary noise: OpenDP's exact discrete Gaussian from the operating system."
    )


def finetuning_randomness(training: str, public_key: bool) -> str:
    """The sentence on random numbers in the certificate of a fine-tuning, as `run_randomness` is for a run."""
    key = _PUBLIC_KEY if public_key else "256 bits"
    return f"Training noise: {training}, {ON_GRID}; sampling: ChaCha20 keyed by {key}. {NOT_EXACT}"


_PUBLIC_KEY = "the public option seed (which hides nothing)"


def bind_model(ledger: Ledger, release: Path) -> None:
    """Bind what is about to be released: a ledger pays for one model, and another one that was trained under it is refused.

    Args:
        release: a release that is being written, of which the certificate and the report do not exist yet.

    Raises:
        LedgerError: another model was released before.
    """
    ledger.bind(_RELEASED, model_digest(file_digests(release)))


def is_certified(ledger: Ledger) -> bool:
    """Whether a model was bound: what is paid after it would not be in its certificate."""
    return bound_model(ledger) is not None


def bound_model(ledger: Ledger) -> str | None:
    """The `model_digest` that was bound; None: no model was."""
    return ledger.bound(_RELEASED)


def model_digest(files: dict[str, str]) -> str:
    """One digest of all files of a model.

    Args:
        files: as by `file_digests`.
    """
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


_RELEASED = "the released model"


def make_certificate(
    ledger: Ledger, files: dict[str, str], randomness: str, confidentiality: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The certificate as JSON-ready values.

    Args:
        ledger: the whole run; every planned stage counts with what was paid.
        files: SHA-256 of the covered files, by path in the release.
        randomness: what the noise was drawn from, in words, with those on phases below float32.
        confidentiality: of a run with screening, its statement; it stands apart from epsilon.
    """
    header = ledger.header
    spends = ledger.spends()
    adaptive = adaptive_statement(spends, header.delta, header.relation)
    rho = ledger.bound(RHO)
    epsilons = [
        {"delta": delta, "epsilon": write_number(joint_epsilon(spends, delta, header.relation))}
        for delta in certificate_deltas(header.delta)
    ]
    certified = read_number(epsilons[0]["epsilon"])
    heuristic = any(not spend.event.is_private for spend in spends) or math.isinf(certified)
    start = ledger.bound(START)
    return {
        "version": _VERSION,
        "tacit_version": ledger.bound(MADE_BY) or "unknown",
        "status": "heuristic" if heuristic else "proved",
        "unit": header.unit,
        "units": header.units,
        "relation": header.relation,
        "epsilons": epsilons,
        "total_variation": total_variation(spends, header.relation),
        "mu": write_number(mu_at(certified, header.delta)),
        "budget": {"epsilon": write_number(header.epsilon), "delta": header.delta},
        # in the order in which they were paid: epsilon depends on which came first
        "spends": [spend_to_dict(stage, spend) for stage, spend in ledger.spends_by_stage().items()],
        "ledger_head": ledger.certified_head,
        "config_digest": header.config_digest,
        "key_commitment": header.key_commitment,
        "randomness": randomness,
        "files": files,
        "start": Provenance().to_dict() if start is None else json.loads(start),
        "domain": DOMAIN,
        **({} if rho is None else {"rho": json.loads(rho)}),
        **({} if adaptive is None else {"adaptive": adaptive}),
        **({} if confidentiality is None else {"confidentiality": confidentiality}),
    }


def adaptive_statement(spends: list[Spend], delta: float, relation: Relation) -> dict[str, Any] | None:
    """Epsilon as a public function of a unit's privacy probability rho, JSON-ready; None where no unit counts less than another.

    It says what a unit of each rho is promised, and not which rho any unit has, nor how many units have it: that is private.
    With ``bands_from`` "unit-and-releases" a row is about the outcomes in which the unit has this rho; ``worst`` is about all of them
    and may be above every row.
    """
    found = epsilon_of_rho(spends, delta, relation)
    if not found:
        return None
    return {
        "delta": delta,
        "relation": relation,
        "epsilon_of_rho": [
            {
                "from": band.begin,
                "to": band.end,
                "epsilon": write_number(band.epsilon),
                **(
                    {}
                    if band.worst_partner is None
                    else {"within": write_number(band.within), "worst_partner_from": band.worst_partner}
                ),
            }
            for band in found
        ],
        "bands_from": bands_from(spends),
        "worst": write_number(joint_epsilon(spends, delta, relation)),
    }


def total_variation(spends: list[Spend], relation: Relation) -> float:
    """Upper bound of the distance between the outputs for neighbouring corpora: delta at epsilon 0 of the worst part.

    Nobody tells such corpora apart from even odds more often than with probability (1 + this) / 2.
    """
    return max((_variation(part, relation) for part in account_parts(spends, relation)), default=0.0)


@functools.lru_cache(maxsize=64)
def _variation(part: tuple[Spend, ...], relation: Relation) -> float:
    return shared_account(part, relation).delta(0.0)

"""The certificate: what a release guarantees, computed from the ledger and from nothing else, and its verification.

`make_certificate` reads the ledger; `verify_certificate` recomputes everything and compares: the chain of the ledger, the
pinned head, epsilon by privacy loss distributions, Renyi DP as a second opinion, an optimistic estimate below both, and the
digests of the released files.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import LedgerError, UsageError
from tacit.privacy.accounting.accountant import account_parts, epsilon_of_rho, joint_epsilon, mu_at, shared_account
from tacit.privacy.accounting.adaptive import bands_from
from tacit.privacy.accounting.composition import SMALLEST_DELTA, Account, composed_steps
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.certificate_file import check_certificate
from tacit.privacy.events import Relation, Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import MADE_BY, START, Provenance, spend_to_dict
from tacit.privacy.rounded import upper

__all__ = [
    "RHO",
    "Check",
    "adaptive_statement",
    "bind_model",
    "certificate_deltas",
    "check_adaptive_statement",
    "check_epsilons",
    "file_digests",
    "finetuning_randomness",
    "is_certified",
    "make_certificate",
    "read_number",
    "refuse_unstated",
    "run_randomness",
    "second_opinion",
    "states_tiny",
    "total_variation",
    "verify_certificate",
    "write_number",
]

_VERSION = 2
"""Version 1 did not say where a run began, and which version of tacit had made it (docs/known-vulnerabilities.md)."""

RHO = "the function rho"
"""Under this name the ledger holds, as JSON, what makes the privacy probability: form, scorer and constants, all public."""


def write_number(value: float) -> float | str:
    """JSON has no infinity: it becomes a word."""
    return "infinity" if math.isinf(value) else value


def read_number(value: float | str) -> float:
    """The inverse of `write_number`."""
    return math.inf if value == "infinity" else float(value)


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
    """What `run_randomness` says of a run, said of a fine-tuning."""
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
    ledger.bind(_RELEASED, _model_digest(file_digests(release)))


def is_certified(ledger: Ledger) -> bool:
    """Whether a model was bound: what is paid after it would not be in its certificate."""
    return ledger.bound(_RELEASED) is not None


def _model_digest(files: dict[str, str]) -> str:
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


@dataclass(frozen=True)
class Check:
    """One check of `verify_certificate`: what was compared, whether it holds, and the numbers."""

    name: str
    holds: bool
    detail: str


def verify_certificate(ledger: Ledger, certificate: dict[str, Any], release: Path) -> list[Check]:
    """Recompute a certificate from its ledger and compare.

    Opening the ledger has checked its chain already. The caller fails when any check does not hold.

    Raises:
        LedgerError: the certificate is not one of ours.
    """
    certificate = check_certificate(certificate, str(release))
    try:
        return [
            *_check_ledger(ledger, certificate),
            *check_epsilons(ledger.spends(), certificate),
            _check_files(certificate["files"], release),
        ]
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, MemoryError, UsageError):
        raise LedgerError(f"{release}: certificate.json is damaged or of another version") from None


_COMPARED_APART = {
    *("epsilons", "total_variation", "mu", "adaptive"),  # numbers, to the last digits but a few
    "ledger_head",  # beside the rows of the release, which come after it
    *("fine_tuning", "own_loop"),  # not in the ledger alone: `tacit.release.configured`
}


def _check_ledger(ledger: Ledger, certificate: dict[str, Any]) -> list[Check]:
    header = ledger.header
    mine = make_certificate(ledger, certificate["files"], certificate["randomness"], certificate.get("confidentiality"))
    names = {*mine, *certificate} - _COMPARED_APART
    if certificate.get("domain") is None:  # made before certificates said it
        names -= {"domain"}
    different = sorted(name for name in names if mine.get(name) != certificate.get(name))
    if [pair["delta"] for pair in certificate["epsilons"]] != [pair["delta"] for pair in mine["epsilons"]]:
        different.append("deltas")
    if not _close(read_number(mine["mu"]), read_number(certificate["mu"])):
        different.append("mu")
    if not _same_adaptive(mine.get("adaptive"), certificate.get("adaptive")):
        different.append("adaptive")
    released = ledger.bound(_RELEASED)
    if released is not None and released != _model_digest(certificate["files"]):
        different.append("files")
    over = math.isfinite(header.epsilon) and read_number(mine["epsilons"][0]["epsilon"]) > header.epsilon
    return [
        Check("ledger's chain", True, f"{len(ledger.rows)} rows"),
        Check(
            "ledger's head is the certified one",
            ledger.certified_head == certificate["ledger_head"],
            ledger.certified_head,
        ),
        Check("certificate's statements", not different, ", ".join(different) or "all as in the ledger"),
        Check("budget", not over, f"epsilon {header.epsilon:g} at delta {header.delta:g}"),
    ]


def check_adaptive_statement(spends: list[Spend], certificate: dict[str, Any]) -> Check:
    """Whether the function from rho to epsilon follows from these spends."""
    mine = adaptive_statement(spends, float(certificate["budget"]["delta"]), certificate["relation"])
    holds = _same_adaptive(mine, certificate.get("adaptive"))
    return Check("epsilon of rho", holds, "none" if mine is None else "as recomputed" if holds else "differs")


def _same_adaptive(mine: dict[str, Any] | None, stated: dict[str, Any] | None) -> bool:
    """Whether two functions from rho to epsilon are the same, but for the last digits."""
    if mine is None or stated is None:
        return mine is stated
    numbers = [[*_numbers(block)] for block in (mine, stated)]
    return len(numbers[0]) == len(numbers[1]) and all(
        _close(one, other) if isinstance(one, float) and isinstance(other, float) else one == other
        for one, other in zip(*numbers, strict=True)
    )


def _numbers(block: dict[str, Any]) -> Iterator[float | str]:
    """All names and values of the block, by name; numbers as floats."""
    for name, value in sorted(block.items()):
        rows = value if name == "epsilon_of_rho" else [{name: value}]
        for row in rows:
            for key, entry in sorted(row.items()):
                yield key
                yield entry if key in ("relation", "bands_from") else read_number(entry)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6)  # also true of two infinities


def check_epsilons(spends: list[Spend], certificate: dict[str, Any]) -> list[Check]:
    """Compute the numbers of a certificate again, by two accountants and an optimistic estimate.

    Args:
        spends: from the ledger, or from the certificate itself where there is no ledger.
        certificate: of the right shape.
    """
    relation, first_delta = certificate["relation"], float(certificate["epsilons"][0]["delta"])
    checks = []
    for pair in certificate["epsilons"]:
        delta, stated = float(pair["delta"]), read_number(pair["epsilon"])
        found = joint_epsilon(spends, delta, relation)
        holds = _close(found, stated)
        checks.append(
            Check(
                f"epsilon at delta {delta:g}", holds, f"stated {upper(stated, '.4f')}, recomputed {upper(found, '.4f')}"
            )
        )
    found = total_variation(spends, relation)
    stated = float(certificate["total_variation"])
    checks.append(Check("total variation", _close(found, stated), f"{stated:.4f}, {found:.4f}"))
    stated = read_number(certificate["epsilons"][0]["epsilon"])
    for number, part in enumerate(account_parts(spends, relation), start=1):
        renyi, lower = second_opinion(part, first_delta, relation)
        if renyi is not None:
            detail = f"{renyi:.4f} against at least {lower:.4f}"
            checks.append(
                Check(f"Renyi DP is not below the optimistic estimate, part {number}", renyi >= lower, detail)
            )
        detail = f"{stated:.4f} against at least {lower:.4f}"
        checks.append(Check(f"epsilon is not below the optimistic estimate, part {number}", stated >= lower, detail))
    return checks


def second_opinion(part: tuple[Spend, ...], delta: float, relation: Relation) -> tuple[float | None, float]:
    """(Renyi upper bound or None, optimistic PLD estimate) of spends on the same units: no valid bound lies below the second.

    The optimistic estimate rounds every loss down, which costs about half a grid step a training step: the grid is as fine as
    the number of steps asks for.
    """
    grid = min(1e-4, max(2e-6, 0.05 / composed_steps(part)))
    return rdp_epsilon(part, delta, relation), _optimistic(part, delta, relation, grid)


@functools.lru_cache(maxsize=64)
def _optimistic(part: tuple[Spend, ...], delta: float, relation: Relation, grid: float) -> float:
    return Account(part, relation, grid, pessimistic=False).epsilon(delta)


def _check_files(stated: dict[str, str], release: Path) -> Check:
    found = file_digests(release / "model")
    present = {f"model/{name}": digest for name, digest in found.items()}
    changed = sorted(name for name in {*stated, *present} if stated.get(name) != present.get(name))
    return Check("released files", not changed, ", ".join(changed) or f"{len(stated)} files as certified")

"""What is checked without a run: a released folder alone, or a certificate's file alone. Needs no torch."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from tacit.errors import LedgerError, RefusedError, UsageError
from tacit.privacy.accounting.accountant import mu_at
from tacit.privacy.certificate import file_digests
from tacit.privacy.certificate_checks import Check, check_adaptive_statement, check_epsilons
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.confidentiality.restated import check_restated
from tacit.privacy.events import Spend, event_from_dict
from tacit.privacy.provenance import is_inherited, stated_spends, stated_start
from tacit.privacy.refused_starts import check_composition, refuse_own_key
from tacit.privacy.strict_json import read_number
from tacit.release.manifest import CERTIFICATE, check_manifest
from tacit.runs.folder import RunFolder

__all__ = [
    "UNSEEN_ALONE",
    "UNSEEN_CERTIFICATE",
    "check_model",
    "check_start",
    "is_release",
    "verify_arithmetic",
    "verify_release",
]

UNSEEN_ALONE = (
    "A released folder alone shows that its numbers and files agree with each other. It does not show that its statements in words "
    "hold, or that the run was as the "
    "certificate says (what a unit is, how many there are, whose text it was): for that, verify the run folder with its ledger, or "
    "trust whoever signed"
)

UNSEEN_CERTIFICATE = (
    "A lone certificate: its arithmetic was checked, and no more. No file, ledger or configuration was looked at: this does not show "
    "that any model is the one that was certified, that the run was as the certificate says, or that its statements in words hold"
)


def is_release(folder: Path) -> bool:
    """Whether this is a released folder, and not the run that it came from.

    Raises:
        LedgerError: it has a certificate, as a release, and a ledger, as a run: whichever were checked, the other would pass unseen.
    """
    if not (folder / CERTIFICATE).exists():
        return False
    if os.path.lexists(RunFolder(folder).ledger):
        raise LedgerError(
            f"{folder}: neither a run nor a release: it holds both {CERTIFICATE} and ledger.sqlite, which no run or release does; "
            "name the one or the other"
        )
    return True


def verify_release(folder: Path) -> list[Check]:
    """All checks of a released folder without its run: its files, and its numbers from its own list of what was spent.

    Raises:
        LedgerError: certificate or manifest cannot be read.
    """
    stated = read_certificate(folder / CERTIFICATE)
    found = {f"model/{name}": digest for name, digest in file_digests(folder / "model").items()}
    return [
        *_check_arithmetic(stated, folder),
        check_model(stated),
        Check("released files", found == stated["files"], f"{len(found)} files in model"),
        *check_manifest(folder),
    ]


def verify_arithmetic(path: Path) -> list[Check]:
    """All checks of a certificate's file alone: its numbers from its own list of what was spent. See `UNSEEN_CERTIFICATE`.

    Raises:
        LedgerError: it cannot be read, or is no certificate.
    """
    return _check_arithmetic(read_certificate(path), path)


def _check_arithmetic(stated: dict[str, Any], place: Path) -> list[Check]:
    try:
        spends = stated_spends(stated)
        return [
            *check_epsilons(spends, stated),
            *_check_own_words(spends, stated),
            check_adaptive_statement(spends, stated),
            *check_restated(spends, stated),
            check_start(stated),
        ]
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, MemoryError, UsageError):
        raise LedgerError(f"{place}: the certificate's spends have no epsilon that this version can compute") from None


def _check_own_words(spends: list[Spend], stated: dict[str, Any]) -> list[Check]:
    """What a certificate says of its epsilon elsewhere."""
    first = stated["epsilons"][0]
    epsilon, delta = read_number(first["epsilon"]), float(first["delta"])
    heuristic = any(not spend.event.is_private for spend in spends) or math.isinf(epsilon)
    mu, budget = read_number(stated["mu"]), stated["budget"]
    holds = {
        "status": stated["status"] == ("heuristic" if heuristic else "proved"),
        "mu": math.isclose(mu, mu_at(epsilon, delta), rel_tol=1e-6),
        "budget": float(budget["delta"]) == delta and epsilon <= read_number(budget["epsilon"]),
        "delta against the number of units": delta * stated["units"] < 1,
        "fine-tuning": _is_dp(stated) or heuristic,
    }
    wrong = [name for name, agrees in holds.items() if not agrees]
    return [Check("certificate agrees with itself", not wrong, ", ".join(wrong) or "status, mu and budget")]


def _is_dp(stated: dict[str, Any]) -> bool:
    """Whether it does not say that a fine-tuning without DP made it, which leaves what was spent before out of account."""
    return stated.get("fine_tuning", {}).get("with_dp") is not False


def check_start(stated: dict[str, Any]) -> Check:
    """Whether what was spent by the releases that the run started from is among its own spends, in units that compose with its own,
    and nothing else is taken over."""
    name = "what was spent before is counted"
    try:
        start = stated_start(stated)
        counted = start.inherited if _is_dp(stated) else {}
        found = {
            spend["stage"]: Spend(event_from_dict(spend["event"]), spend["count"], spend["partition"])
            for spend in stated["spends"]
            if is_inherited(spend["stage"])
        }
        refuse_own_key(start.ancestors, stated.get("key_commitment", ""))
        if _is_dp(stated):
            first = stated["epsilons"][0]
            unbounded = math.isinf(read_number(first["epsilon"])) or not start.same_people
            check_composition(start, stated["unit"], stated["relation"], float(first["delta"]), unbounded)
    except RefusedError as error:
        return Check(name, False, str(error))
    except (AttributeError, LookupError, TypeError, ValueError, UsageError):
        return Check(name, False, "the certificate does not say where the run began, or in another form")
    releases = f"{len(start.ancestors)} releases" + ("" if start.same_people else ", of other people as its user says")
    return Check(name, found == counted, releases if found == counted else "the spends of some release differ")


def check_model(stated: dict[str, Any]) -> Check:
    """Whether the certificate covers a model and its tokenizer."""
    files = stated["files"]
    wanted = () if "own_loop" in stated else ("model/config.json", "model/tokenizer.json")
    missing = [name for name in wanted if name not in files]
    if not any(name.startswith("model/") and name.endswith(".safetensors") for name in files):
        missing.append("the weights")
    return Check(
        "certificate covers the model", not missing, f"without {', '.join(missing)}" if missing else "all of it"
    )

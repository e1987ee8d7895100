"""What `tacit verify` checks of a run with its ledger and configuration. Needs no torch.

A run is checked from the inside out: the ledger's chain and rows, the configuration that its first row holds the digest of, the
stages that this configuration asks for, the certificate that both give, the files it covers, and the manifest of everything in
run/release, which the ledger's last row holds. Whoever can write all of these can write them consistently: no check here sees that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.errors import LedgerError
from tacit.privacy.certificate_checks import Check, verify_certificate
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.ledger import Ledger
from tacit.release.alone import check_model, check_start
from tacit.release.configured import check_finetuning, check_loop, check_run
from tacit.release.manifest import CERTIFICATE, check_bound, check_manifest
from tacit.runs.folder import RunFolder

__all__ = ["verify_ledger", "verify_run", "verify_statements"]


def verify_run(folder: RunFolder, certificate: Path | None = None) -> list[Check]:
    """All checks of a finished run; it holds when every one of them does.

    Args:
        certificate: another file than the one in the release.

    Raises:
        LedgerError: ledger, certificate or manifest cannot be read.
    """
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        return verify_ledger(folder, ledger, certificate)


def verify_ledger(folder: RunFolder, ledger: Ledger, certificate: Path | None = None) -> list[Check]:
    """All checks of a finished run, as of `verify_run`, by the rows of this very ledger."""
    path = certificate or folder.release / CERTIFICATE
    if not path.is_file():
        raise LedgerError(f"{path}: no certificate there; `tacit run CONFIG` finishes a run")
    stated = read_certificate(path)
    return [
        *verify_statements(folder, ledger, stated),
        *check_manifest(folder.release),
        check_bound(ledger, folder.release),
    ]


def verify_statements(folder: RunFolder, ledger: Ledger, stated: dict[str, Any]) -> list[Check]:
    """The checks of a certificate and the model that it covers, without the manifest and the pages beside them.

    Raises:
        LedgerError: the certificate is not one of ours, or the configuration cannot be read.
    """
    own = check_finetuning if folder.is_finetuning else check_loop if folder.is_own_loop else check_run
    checks = verify_certificate(ledger, stated, folder.release)
    checks += [_check_payments(ledger), check_model(stated), check_start(stated)]
    return checks + own(folder, ledger, stated)


def _check_payments(ledger: Ledger) -> Check:
    unpaid = [plan.stage for plan in ledger.plans.values() if ledger.spent(plan.stage) != plan.limit]
    detail = f"{len(unpaid)} stages are not" if unpaid else f"{len(ledger.plans)} stages"
    return Check("every planned stage is paid in whole", not unpaid, detail)

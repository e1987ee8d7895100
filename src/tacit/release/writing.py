"""The one way into a release folder: all is paid, the certificate covers every file, and the manifest lists them.

`tacit run`, `tacit finetune`, `tacit report` and `tacit sign` come through here; nothing else writes below run/release.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import LedgerError
from tacit.files import atomic_folder, quoted, write_json
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.certificate import bind_model, file_digests
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.ledger import Ledger
from tacit.privacy.strict_json import read_number
from tacit.release.manifest import finish_release
from tacit.release.signing import sign_release
from tacit.runs.folder import RunFolder

__all__ = ["is_released", "refuse_unpaid", "sign", "write_pages_again", "write_release"]

Certificate = dict[str, Any]
WritePages = Callable[[Path, Certificate], None]


def refuse_unpaid(ledger: Ledger, where: Path) -> None:
    """Let nothing leave before all that was planned is paid.

    Raises:
        LedgerError: a stage was not paid, or not wholly.
    """
    unpaid = [plan.stage for plan in ledger.plans.values() if ledger.spent(plan.stage) != plan.limit]
    if unpaid:
        raise LedgerError(f"{where}: the ledger does not hold all of {', '.join(unpaid)}; nothing is released")


def is_released(folder: RunFolder, ledger: Ledger) -> bool:
    """Whether the release is there, which is written as a whole, and certifies what this ledger holds: a run's last line says so.

    Raises:
        LedgerError: its certificate is another run's, or of an earlier state of this one, as after a copy from a backup.
    """
    if not folder.is_released:
        return False
    stated, header = read_certificate(folder.certificate), ledger.header
    epsilon = joint_epsilon(ledger.spends(), header.delta, header.relation)
    first = stated["epsilons"][0]
    is_this = stated["ledger_head"] == ledger.certified_head and float(first["delta"]) == header.delta
    if not is_this or not math.isclose(read_number(first["epsilon"]), epsilon, rel_tol=1e-6):
        raise LedgerError(
            f"{folder.certificate} does not certify what {folder.ledger} holds; `tacit verify {quoted(folder.root)}` says what "
            "differs. Put back the release and the ledger that belong together"
        )
    return True


def write_release(
    release: Path,
    ledger: Ledger,
    write_model: Callable[[Path], None],
    certify: Callable[[dict[str, str]], Certificate],
    write_pages: WritePages,
) -> None:
    """Write a release as a whole, or leave none.

    Args:
        write_model: puts model and tokenizer into a folder that is not there yet.
        certify: the certificate, from the SHA-256 of each file of the model; the model is bound in the ledger by then.
        write_pages: puts the pages that show the certificate beside it.

    Raises:
        LedgerError: something is not paid, another model was released under this ledger, or a strange file would be in the release.
    """
    refuse_unpaid(ledger, release.parent)
    with atomic_folder(release) as partial:
        write_model(partial / "model")
        bind_model(ledger, partial)
        certificate = certify(file_digests(partial))
        write_json(partial / "certificate.json", certificate)
        write_pages(partial, certificate)
        finish_release(ledger, partial)


def write_pages_again(release: Path, ledger: Ledger, certificate: Certificate, write_pages: WritePages) -> None:
    """Write the pages of a release that the caller has verified, and its manifest."""
    for partial in release.glob(".*.partial"):  # of a `tacit report` that was killed
        partial.unlink()
    write_pages(release, certificate)
    finish_release(ledger, release)


def sign(release: Path, key: Ed25519PrivateKey, verified: str) -> str:
    """Put a signature beside the manifest that the caller has verified, and give the key's fingerprint. Raises as `sign_release`."""
    return sign_release(release, key, verified)

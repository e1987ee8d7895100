"""`tacit verify`: recompute a run's certificate."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.options import JsonOption, RunArgument, print_json
from tacit.errors import LedgerError

__all__ = ["command"]


def command(
    run: RunArgument,
    as_json: JsonOption = False,
    certificate: Annotated[
        str | None, typer.Option(help="Certificate file to check instead of RUN/release/certificate.json.")
    ] = None,
) -> None:
    """Recompute the certificate from the ledger, by two accountants, and compare; exit code 4 when anything differs."""
    from pathlib import Path

    from tacit.confidential import check_statement
    from tacit.folder import RunFolder
    from tacit.privacy.certificate import verify_certificate
    from tacit.privacy.certificate_file import read_certificate
    from tacit.privacy.ledger import Ledger

    folder = RunFolder(run)
    path = Path(certificate) if certificate else folder.release / "certificate.json"
    if not path.is_file():
        raise LedgerError(f"{path}: no certificate there; `tacit run CONFIG` finishes a run")
    stated = read_certificate(path)
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        checks = verify_certificate(ledger, stated, folder.release)
        if not folder.is_finetuning:  # which has no confidentiality statement
            checks += check_statement(folder.load_config(), ledger, stated)
    if as_json:
        print_json([{"check": check.name, "holds": check.holds, "detail": check.detail} for check in checks])
    else:
        for check in checks:
            typer.echo(f"{'ok  ' if check.holds else 'FAIL'}  {check.name}: {check.detail}")
    failed = [check.name for check in checks if not check.holds]
    if failed:
        raise LedgerError(f"{run}: the certificate does not hold: {'; '.join(failed)}")

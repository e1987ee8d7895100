"""`tacit verify`: recompute a run's certificate, or look through a released folder or a certificate alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.options import JsonOption, print_json, say, say_lines
from tacit.errors import LedgerError, UsageError

if TYPE_CHECKING:
    from tacit.privacy.certificate_checks import Check

__all__ = ["command"]

FolderArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="Run folder; or a released folder alone (RUN/release, or a copy of it); or a certificate's file alone.",
    ),
]


def command(
    run: FolderArgument,
    as_json: JsonOption = False,
    certificate: Annotated[
        Path | None, typer.Option(help="Certificate file to check instead of RUN/release/certificate.json.")
    ] = None,
    signer: Annotated[
        Path | None, typer.Option(help="Public key of who must have signed: PEM, or one line of OpenSSH.")
    ] = None,
) -> None:
    """Recompute the certificate from the ledger, by two accountants, and compare; exit code 4 when anything differs.

    Of a certificate's file alone the arithmetic is checked, and no more.
    """
    from tacit.release.alone import UNSEEN_ALONE, is_release, verify_release
    from tacit.release.signing import check_signature, signature_words
    from tacit.release.verification import verify_run
    from tacit.runs.folder import RunFolder

    if run.is_file():
        _verify_file(run, as_json, certificate, signer)
        return
    alone = is_release(run)
    if alone and certificate is not None:
        raise UsageError("--certificate is for a run folder; a released folder has its own")
    if signer is not None and certificate is not None:
        raise UsageError("--signer is for the release's own certificate; leave --certificate out")
    release = run if alone else RunFolder(run).release
    checks = verify_release(run) if alone else verify_run(RunFolder(run), certificate)
    checks += check_signature(release, signer)
    notes = [] if as_json else _known_of(run, certificate or release / "certificate.json")
    _show(run, checks, as_json, notes)
    if not as_json:
        typer.echo()
        if not alone:
            say(f"Checked: {release}. Nothing else in the run folder is part of the release.")
        say_lines(signature_words(release, signer))
        if alone:
            say(UNSEEN_ALONE + ".")


def _verify_file(path: Path, as_json: bool, certificate: Path | None, signer: Path | None) -> None:
    """A certificate without its release; a signature is of a release's manifest."""
    from tacit.release.alone import UNSEEN_CERTIFICATE, verify_arithmetic

    if certificate is not None or signer is not None:
        raise UsageError(f"{path}: a file alone; --certificate and --signer are for a run or a release")
    _show(path, verify_arithmetic(path), as_json, [] if as_json else _known_of(path, path))
    if not as_json:
        typer.echo()
        say(UNSEEN_CERTIFICATE + ".")


def _show(place: Path, checks: list[Check], as_json: bool, notes: list[str]) -> None:
    if as_json:
        print_json([{"check": check.name, "holds": check.holds, "detail": check.detail} for check in checks])
    else:
        for check in checks:
            say(f"{'ok  ' if check.holds else 'FAIL'}  {check.name}: {check.detail}")
        for line in notes:
            say(line)
    failed = [check.name for check in checks if not check.holds]
    if failed:
        raise LedgerError(f"{place}: the certificate does not hold: {'; '.join(failed)}")


def _known_of(run: Path, certificate: Path) -> list[str]:
    """The entries of docs/known-vulnerabilities.md that may concern this certificate."""
    from tacit.privacy.certificate_file import read_certificate
    from tacit.privacy.strict_json import read_strict
    from tacit.privacy.vulnerabilities import concerning
    from tacit.runs.folder import RunFolder

    config = RunFolder(run).config
    values = read_strict(config, 50 << 20) if config.is_file() else {}
    found = concerning(read_certificate(certificate), values)
    return [f"note  {entry.code}: {entry.title} (docs/known-vulnerabilities.md)" for entry in found]

"""`tacit sign`: sign a finished run's release."""

from __future__ import annotations

import getpass
import os
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.options import RunArgument, say
from tacit.errors import LedgerError, UsageError

__all__ = ["command"]

_PASSPHRASE = "TACIT_KEY_PASSPHRASE"


def command(
    run: RunArgument,
    key: Annotated[Path, typer.Option(help="Private Ed25519 key: PEM, or OpenSSH (docs/signing.md).")],
) -> None:
    """Verify a run, then sign the manifest of its release: RUN/release/manifest.sig.

    The passphrase of an encrypted key is asked for, or taken from the environment variable TACIT_KEY_PASSPHRASE.
    """
    from tacit.privacy.ledger import Ledger
    from tacit.release.alone import is_release
    from tacit.release.manifest import bound_manifest
    from tacit.release.signing import read_private_key
    from tacit.release.verification import verify_ledger
    from tacit.release.writing import sign
    from tacit.runs.folder import RunFolder

    if is_release(run):
        raise UsageError(f"{run}: a released folder alone; sign the run, whose ledger shows what the release is worth")
    folder = RunFolder(run)
    private_key = read_private_key(key, _ask)  # it may wait for a person: nothing is looked at before
    # The private part may be deleted when all is done.
    alone = folder.alone() if folder.private.is_dir() else nullcontext()
    with alone, Ledger.open(folder.ledger, readonly=True) as ledger:
        failed = [check.name for check in verify_ledger(folder, ledger) if not check.holds]
        if failed:
            raise LedgerError(f"{run}: not signed, since it does not verify: {'; '.join(failed)}")
        found = sign(folder.release, private_key, bound_manifest(ledger))
    say(f"{folder.release / 'manifest.sig'}: signed by {found}")
    say("Publish the public key elsewhere: `tacit verify RELEASE --signer FILE` checks the signature by it.")


def _ask() -> bytes:
    """The passphrase, which is never shown: where no terminal can hide it, it is not read.

    Raises:
        UsageError: there is no terminal, and the environment has none.
    """
    given = os.environ.get(_PASSPHRASE)
    if given is not None:
        return given.encode()
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)  # it comes before anything is asked or read
        try:
            return getpass.getpass("Passphrase: ").encode()
        except (getpass.GetPassWarning, EOFError):
            pass
    raise UsageError(
        f"the key is encrypted, and there is no terminal to ask for its passphrase on; give it in the environment as {_PASSPHRASE}"
    )

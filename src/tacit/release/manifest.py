"""The manifest of a release: the digest of every file below it, so that nothing is changed, added or taken away unseen.

``manifest.json`` is the last file written. It holds the head of the ledger as the certificate has it, and its own digest is the
last row of the ledger, of kind ``release``. ``manifest.sig`` (`tacit.release.signing`) is the one file that it does not list.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from tacit.errors import DataError, LedgerError
from tacit.files import write_json
from tacit.privacy.certificate_checks import Check, some_names
from tacit.privacy.certificate_file import read_certificate, stays_inside
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger_rows import Digest, Strict
from tacit.privacy.strict_json import read_strict, what_is_wrong

__all__ = [
    "CERTIFICATE",
    "MANIFEST",
    "SIGNATURE",
    "bound_manifest",
    "check_bound",
    "check_manifest",
    "finish_release",
    "read_manifest",
]

MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
CERTIFICATE = "certificate.json"
_PAGES = ("report.html", "report.json", "README.md")
_MOST_BYTES = 10 << 20


class _Manifest(Strict):
    version: Literal[1]
    ledger_head: Digest
    files: Annotated[dict[str, Digest], Field(min_length=1)]


def finish_release(ledger: Ledger, folder: Path) -> None:
    """Write the manifest of a release in which everything else is written, and its row in the ledger.

    Only what a release is made of gets in: the certificate, the files that it covers, and the pages. A signature of another
    manifest is removed.

    Args:
        folder: with the certificate.

    Raises:
        LedgerError: something else is in the folder.
    """
    certificate = read_certificate(folder / CERTIFICATE)
    files, odd = _look_through(folder)
    strangers = sorted(files.keys() - {CERTIFICATE, *_PAGES} - certificate["files"].keys())
    if odd or strangers:
        raise LedgerError(
            f"{folder}: {some_names([*odd, *strangers])} is not part of a release; remove it, then try again"
        )
    path = folder / MANIFEST
    before = path.read_bytes() if path.is_file() else None
    write_json(path, {"version": 1, "ledger_head": certificate["ledger_head"], "files": files})
    if path.read_bytes() != before:
        (folder / SIGNATURE).unlink(missing_ok=True)
    ledger.release(_digest(path))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a release, whose shape is checked.

    Raises:
        LedgerError: it is missing or damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise LedgerError(
            f"{path}: no manifest there, so nothing says which files belong to the release; for a run that an earlier version has "
            "finished, `tacit report RUN` writes it"
        )
    try:
        values = read_strict(path, _MOST_BYTES)
        _Manifest.model_validate(values)
    except DataError as error:
        raise LedgerError(str(error)) from None
    except ValidationError as error:
        raise LedgerError(f"{path}: damaged ({what_is_wrong(error)}); bring it back as it was") from None
    except RecursionError:
        raise LedgerError(f"{path}: damaged (nested too deep); bring it back as it was") from None
    if not all(stays_inside(name) for name in values["files"]):
        raise LedgerError(f"{path}: damaged (a name leads out of the release); bring it back as it was")
    return values


def check_manifest(folder: Path) -> list[Check]:
    """Compare a release with its manifest and its certificate.

    Raises:
        LedgerError: the manifest or the certificate is missing or damaged.
    """
    manifest, certificate = read_manifest(folder), read_certificate(folder / CERTIFICATE)
    stated: dict[str, str] = manifest["files"]
    files, odd = _look_through(folder)
    unlisted, missing = sorted(files.keys() - stated.keys()), sorted(stated.keys() - files.keys())
    changed = sorted(name for name in files.keys() & stated.keys() if files[name] != stated[name])
    foreign = sorted(stated.keys() - {CERTIFICATE, *_PAGES} - certificate["files"].keys())
    found = {
        "no release has": odd,
        "not in the manifest": unlisted,
        "missing": missing,
        "changed": changed,
        "listed, but no part of a release": foreign,
    }
    wrong = [f"{what}: {some_names(names)}" for what, names in found.items() if names]
    head = manifest["ledger_head"]
    return [
        Check("every file of the release", not wrong, "; ".join(wrong) or f"{len(files)} files as in {MANIFEST}"),
        Check("manifest's head is the certificate's", head == certificate["ledger_head"], head),
    ]


def bound_manifest(ledger: Ledger) -> str:
    """SHA-256 of the manifest in the ledger's last row; empty when that is not the row of a release."""
    last = ledger.rows[-1]
    return last.body["manifest"] if last.kind == "release" else ""


def check_bound(ledger: Ledger, folder: Path) -> Check:
    """Whether the ledger's last row is that of this very manifest."""
    digest = _digest(folder / MANIFEST)
    holds = bound_manifest(ledger) == digest
    return Check(
        "manifest is the one in the ledger", holds, digest if holds else f"{MANIFEST} was written by another hand"
    )


def _look_through(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The digests of all files below a folder but manifest and signature, and what a release never has: links, empty folders."""
    files: dict[str, str] = {}
    odd: list[str] = []
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        if not entries:
            odd.append(f"{_name(folder, here)} (an empty folder)")
        for entry in entries:
            path = here / entry.name
            name, mode = _name(folder, path), entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                waiting.append(path)
            elif not stat.S_ISREG(mode):
                odd.append(f"{name} ({'a link' if stat.S_ISLNK(mode) else 'not a regular file'})")
            elif name not in (MANIFEST, SIGNATURE):
                files[name] = _digest(path)
    return files, sorted(odd)


def _name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

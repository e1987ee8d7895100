"""Signatures of releases: Ed25519 over the manifest, which holds the digest of every file and the ledger's head.

``manifest.sig`` is JSON: the algorithm, the public key, and the signature over `PREFIX` and the manifest's bytes, both base64. A
signature says that the holder of a key stood by these bytes, and nothing of who holds the key: that is for whoever has the public
key from elsewhere and names it with ``--signer``. docs/signing.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import ValidationError

from tacit.errors import DataError, LedgerError, UsageError
from tacit.files import write_json
from tacit.privacy.certificate_checks import Check
from tacit.privacy.ledger_rows import Strict
from tacit.privacy.strict_json import read_strict
from tacit.release.manifest import MANIFEST, SIGNATURE, read_manifest

__all__ = ["PREFIX", "check_signature", "fingerprint", "read_private_key", "sign_release", "signature_words"]

PREFIX = b"tacit release manifest, version 1\n"
"""Before what is signed, so that a signature made for another purpose is none here, and the other way round."""

_MOST_BYTES = 1 << 16


class _Signature(Strict):
    algorithm: Literal["ed25519"]
    public_key: str
    signature: str


def read_private_key(path: Path, passphrase: Callable[[], bytes]) -> Ed25519PrivateKey:
    """An Ed25519 key from a PEM file (PKCS #8) or from one of OpenSSH.

    Args:
        passphrase: asked only where the key is encrypted.

    Raises:
        UsageError: another kind of key, a wrong passphrase, or no key.
    """
    data = _key_bytes(path)
    try:
        key = _load_private(data, None)
    except TypeError:  # it is encrypted
        key = _try_passphrase(path, data, passphrase())
    except (ValueError, UnsupportedAlgorithm):
        encrypted = b"ENCRYPTED" in data or b"OPENSSH" in data
        raise UsageError(
            f"{path}: no private key of Ed25519 in PEM or OpenSSH form{' that can be read' if encrypted else ''}; "
            "docs/signing.md makes one"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path}: not an Ed25519 key; docs/signing.md makes one")
    return key


def sign_release(release: Path, key: Ed25519PrivateKey, verified: str) -> str:
    """Write the signature of a release's manifest; what was signed before is replaced.

    Args:
        verified: SHA-256 of the manifest that the caller has verified. Nothing else is signed, whatever was written there since.

    Returns:
        The fingerprint of the public key.

    Raises:
        LedgerError: the manifest is another one.
    """
    read_manifest(release)
    manifest = (release / MANIFEST).read_bytes()
    if hashlib.sha256(manifest).hexdigest() != verified:
        raise LedgerError(f"{release / MANIFEST}: changed while it was looked at; not signed")
    public = key.public_key()
    signature = key.sign(PREFIX + manifest)
    values = {"algorithm": "ed25519", "public_key": _text(_raw(public)), "signature": _text(signature)}
    write_json(release / SIGNATURE, values)
    return fingerprint(public)


def check_signature(release: Path, signer: Path | None) -> list[Check]:
    """Check a release's signature; nothing where there is none and none is asked for.

    Args:
        signer: the public key that must have signed.

    Raises:
        LedgerError: the signature is damaged.
        UsageError: the signer's file holds no Ed25519 public key.
    """
    wanted = None if signer is None else _read_public_key(signer)
    path = release / SIGNATURE
    if not path.exists() and not path.is_symlink():
        return [] if wanted is None else [Check("signature", False, f"there is no {SIGNATURE}: nobody signed")]
    public, signature = _read_signature(path)
    if wanted is not None and _raw(public) != _raw(wanted):
        detail = f"by {fingerprint(public)}, and not by {fingerprint(wanted)}"
        return [Check("signature", False, detail)]
    try:
        public.verify(signature, PREFIX + (release / MANIFEST).read_bytes())
    except InvalidSignature:
        return [Check("signature", False, f"not of this {MANIFEST}")]
    return [Check("signature", True, f"{fingerprint(public)}")]


def signature_words(release: Path, signer: Path | None) -> str:
    """What the signature shows, or its absence leaves open, once everything else holds."""
    head = read_manifest(release)["ledger_head"]
    printed = f"Head of the ledger: {head}. Compare it with the one on the printed report."
    if not (release / SIGNATURE).exists():
        return (
            f"{printed} Nobody signed this release: somebody who can write all of these files, with ledger and configuration, "
            "can replace them consistently, and no check notices it. `tacit sign` signs it."
        )
    if signer is None:
        return (
            f"{printed} The signature is valid for the key above, which came with the release: this does not prove whose key it is. "
            "Name a public key that you have from elsewhere with --signer."
        )
    return f"{printed} Signed by the key of {signer}: its holder signed exactly these files and this head."


def fingerprint(key: Ed25519PublicKey) -> str:
    """The fingerprint of a key as ``ssh-keygen -l`` prints it: SHA-256 of the key in OpenSSH's form."""
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _read_public_key(path: Path) -> Ed25519PublicKey:
    data = _key_bytes(path)
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            key = serialization.load_pem_public_key(data)
        else:
            key = serialization.load_ssh_public_key(data.strip())
    except (ValueError, UnsupportedAlgorithm, IndexError):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{path}: no public key of Ed25519 in PEM form, nor one line of OpenSSH; docs/signing.md")
    return key


def _read_signature(path: Path) -> tuple[Ed25519PublicKey, bytes]:
    try:
        values = read_strict(path, _MOST_BYTES)
        _Signature.model_validate(values)
        raw = base64.b64decode(values["public_key"], validate=True)
        return Ed25519PublicKey.from_public_bytes(raw), base64.b64decode(values["signature"], validate=True)
    except (DataError, ValidationError, ValueError, RecursionError, binascii.Error):
        raise LedgerError(f"{path}: the signature is damaged; `tacit sign` makes a new one") from None


def _key_bytes(path: Path) -> bytes:
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        raise UsageError(f"{path}: no key there")
    return path.read_bytes()


def _load_private(data: bytes, passphrase: bytes | None) -> object:
    if b"BEGIN OPENSSH PRIVATE KEY" in data:
        return serialization.load_ssh_private_key(data, passphrase)
    return serialization.load_pem_private_key(data, passphrase)


def _try_passphrase(path: Path, data: bytes, passphrase: bytes) -> object:
    try:
        return _load_private(data, passphrase)
    except UnsupportedAlgorithm:
        raise UsageError(
            f"{path}: an encrypted key in OpenSSH form needs the package bcrypt: pip install bcrypt; or use a PEM key"
        ) from None
    except (TypeError, ValueError):
        raise UsageError(f"{path}: the key does not open with this passphrase") from None


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()

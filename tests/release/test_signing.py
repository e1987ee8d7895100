"""Signatures of releases: made by a key, checked by its public half, and worth nothing for any other bytes."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import LedgerError, UsageError
from tacit.files import read_json, write_json
from tacit.privacy.certificate import file_digests, make_certificate
from tacit.privacy.events import Gaussian
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.release import signing
from tacit.release.alone import verify_release
from tacit.release.manifest import check_bound, check_manifest, finish_release
from tacit.release.signing import PREFIX, check_signature, fingerprint, read_private_key, signature_words

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))


def no_passphrase() -> bytes:
    raise AssertionError("this key needs none")


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A released folder with its manifest; the ledger lies beside it."""
    folder = tmp_path / "run" / "release"
    (folder / "model").mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / "model" / name).write_text(name)
    header = LedgerHeader("user", "add-or-remove", 1000, 8.0, 1e-6, "config", "key")
    with Ledger.create(tmp_path / "run" / "ledger.sqlite", header) as ledger:
        ledger.plan("train", Gaussian(3.0), 1, "training units")
        ledger.charge("train")
        write_json(folder / "certificate.json", make_certificate(ledger, file_digests(folder), "keyed"))
        finish_release(ledger, folder)
        assert check_bound(ledger, folder).holds
    return folder


def private(path: Path, key: Ed25519PrivateKey, form: forms.PrivateFormat, passphrase: bytes | None = None) -> Path:
    locked = forms.NoEncryption() if passphrase is None else forms.BestAvailableEncryption(passphrase)
    path.write_bytes(key.private_bytes(forms.Encoding.PEM, form, locked))
    return path


def public(path: Path, key: Ed25519PrivateKey, ssh: bool = True) -> Path:
    if ssh:
        path.write_bytes(key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH) + b" me\n")
    else:
        form = forms.PublicFormat.SubjectPublicKeyInfo
        path.write_bytes(key.public_key().public_bytes(forms.Encoding.PEM, form))
    return path


def sign_release(release: Path, key: Ed25519PrivateKey) -> str:
    """Sign the manifest as it is."""
    return signing.sign_release(release, key, hashlib.sha256((release / "manifest.json").read_bytes()).hexdigest())


def held(release: Path, signer: Path | None = None) -> list[bool]:
    return [check.holds for check in check_signature(release, signer)]


@pytest.mark.parametrize("ssh", [True, False])
def test_a_signature_holds_for_its_key_alone(release: Path, tmp_path: Path, ssh: bool) -> None:
    assert held(release) == []
    assert held(release, public(tmp_path / "mine", KEY, ssh)) == [False]  # nobody signed
    sign_release(release, KEY)
    assert held(release) == held(release, public(tmp_path / "mine", KEY, ssh)) == [True]
    assert held(release, public(tmp_path / "theirs", OTHER, ssh)) == [False]
    assert all(check.holds for check in verify_release(release))


def test_it_is_plain_ed25519_over_the_prefix_and_the_manifest(release: Path) -> None:
    """Anybody can check it with another tool; without the prefix it is none."""
    sign_release(release, KEY)
    values = read_json(release / "manifest.sig")
    manifest = (release / "manifest.json").read_bytes()
    signature = base64.b64decode(values["signature"])
    KEY.public_key().verify(signature, PREFIX + manifest)
    values["signature"] = base64.b64encode(KEY.sign(manifest)).decode()
    write_json(release / "manifest.sig", values)
    assert held(release) == [False]


def test_every_altered_byte_of_the_manifest_is_seen(release: Path) -> None:
    sign_release(release, KEY)
    path = release / "manifest.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert held(release) == [False]
    path.write_bytes(whole)
    assert held(release) == [True]


def test_a_manifest_that_was_not_verified_is_not_signed(release: Path) -> None:
    verified = hashlib.sha256((release / "manifest.json").read_bytes()).hexdigest()
    (release / "manifest.json").write_text((release / "manifest.json").read_text() + "\n")
    with pytest.raises(LedgerError, match="changed while it was looked at; not signed"):
        signing.sign_release(release, KEY, verified)
    assert not (release / "manifest.sig").exists()


def test_another_release_removes_the_signature_and_the_same_one_keeps_it(release: Path) -> None:
    sign_release(release, KEY)
    with Ledger.open(release.parent / "ledger.sqlite") as ledger:
        rows = len(ledger.rows)
        finish_release(ledger, release)
        assert (len(ledger.rows), (release / "manifest.sig").exists()) == (rows, True)
        (release / "README.md").write_text("other words")
        finish_release(ledger, release)
        assert (len(ledger.rows), (release / "manifest.sig").exists()) == (rows + 1, False)
        assert check_bound(ledger, release).holds
        assert ledger.certified_head == read_json(release / "certificate.json")["ledger_head"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "[" * 100_000, '{"algorithm": "rsa", "public_key": "", "signature": ""}', "\x00"]
)
def test_a_damaged_signature_is_one_line(release: Path, text: str) -> None:
    (release / "manifest.sig").write_text(text)
    with pytest.raises(LedgerError, match=r"manifest.sig: the signature is damaged"):
        check_signature(release, None)
    sign_release(release, KEY)
    values = read_json(release / "manifest.sig")
    for name in ("public_key", "signature"):
        write_json(release / "manifest.sig", {**values, name: values[name][4:]})
        try:
            assert held(release) == [False]
        except LedgerError:
            continue


def test_the_words_say_what_is_not_shown(release: Path, tmp_path: Path) -> None:
    head = read_json(release / "certificate.json")["ledger_head"]
    assert head in signature_words(release, None)
    assert "Nobody signed" in signature_words(release, None)
    sign_release(release, KEY)
    assert "does not prove whose key it is" in signature_words(release, None)
    assert "signed exactly these files" in signature_words(release, public(tmp_path / "mine", KEY))


# keys ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [forms.PrivateFormat.PKCS8, forms.PrivateFormat.OpenSSH])
def test_keys_of_both_forms(tmp_path: Path, form: forms.PrivateFormat) -> None:
    expected = fingerprint(KEY.public_key())
    assert fingerprint(read_private_key(private(tmp_path / "key", KEY, form), no_passphrase).public_key()) == expected


@pytest.mark.parametrize("form", [forms.PrivateFormat.PKCS8, forms.PrivateFormat.OpenSSH])
def test_a_key_that_is_encrypted(tmp_path: Path, form: forms.PrivateFormat) -> None:
    expected = fingerprint(KEY.public_key())
    try:
        locked = private(tmp_path / "locked", KEY, form, b"open sesame")
    except UnsupportedAlgorithm:  # no bcrypt, which OpenSSH's form needs; the next test has its refusal
        pytest.skip("bcrypt is not installed")
    assert fingerprint(read_private_key(locked, lambda: b"open sesame").public_key()) == expected
    for wrong in (b"open", b"", b"\xff" * 100):
        with pytest.raises(UsageError, match="does not open with this passphrase"):
            read_private_key(locked, lambda wrong=wrong: wrong)


def test_an_encrypted_key_of_ssh_keygen_opens_or_says_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "id"
    try:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "open sesame", "-f", str(path)], check=True)
    except FileNotFoundError:
        pytest.skip("no ssh-keygen here")
    if importlib.util.find_spec("bcrypt") is None:
        with pytest.raises(UsageError, match="pip install bcrypt"):
            read_private_key(path, lambda: b"open sesame")
    else:
        assert read_private_key(path, lambda: b"open sesame")


def _elliptic(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))


def _public_half(path: Path) -> None:
    public(path, KEY, ssh=False)


def _text(path: Path) -> None:
    path.write_text("no key\n")


def _cut(path: Path) -> None:
    private(path, KEY, forms.PrivateFormat.OpenSSH)
    path.write_bytes(path.read_bytes()[:80])


def _large(path: Path) -> None:
    path.write_bytes(b"-" * (1 << 20))


def _missing(path: Path) -> None:
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("make", [_elliptic, _public_half, _text, _cut, _large, _missing])
def test_what_is_no_private_key_is_one_line(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "key"
    make(path)
    with pytest.raises(UsageError) as refusal:
        read_private_key(path, no_passphrase)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("make", [_elliptic, _text, _cut, _large, _missing])
def test_what_is_no_public_key_is_one_line(release: Path, tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "key"
    make(path)
    with pytest.raises(UsageError) as refusal:
        check_signature(release, path)
    assert "\n" not in str(refusal.value)


def test_a_key_and_fingerprint_of_ssh_keygen(release: Path, tmp_path: Path) -> None:
    """The other implementation makes the key, and prints the same fingerprint."""
    path = tmp_path / "id"
    try:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    except FileNotFoundError:
        pytest.skip("no ssh-keygen here")
    printed = subprocess.run(["ssh-keygen", "-l", "-f", f"{path}.pub"], check=True, capture_output=True, text=True)
    assert printed.stdout.split()[1] == sign_release(release, read_private_key(path, no_passphrase))
    assert held(release, path.with_suffix(".pub")) == [True]


# the lone folder -----------------------------------------------------------------------------------------------------


def test_a_lone_release_is_checked_by_its_own_numbers(release: Path) -> None:
    path = release / "certificate.json"
    whole = json.loads(path.read_text())
    for name, changed in (
        ("mu", whole["mu"] / 2),
        ("status", "heuristic"),
        ("budget", {"epsilon": 0.1, "delta": 1e-6}),
        ("epsilons", [{**pair, "epsilon": pair["epsilon"] / 2} for pair in whole["epsilons"]]),
        ("spends", []),
        ("files", {}),
    ):
        write_json(path, {**whole, name: changed})
        failed = {check.name for check in verify_release(release) if not check.holds}
        assert failed - {"every file of the release"}, name
    write_json(path, whole)
    assert all(check.holds for check in check_manifest(release))

"""`tacit sign`: how it comes to the passphrase of a key. What it signs is in tests/release and tests/attacks_on_certificates."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PASSPHRASE = "zqsecretpassphrase"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """An encrypted key."""
    path = tmp_path / "key.pem"
    locked = forms.BestAvailableEncryption(PASSPHRASE.encode())
    made = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    path.write_bytes(made.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, locked))
    return path


def sign(folder: Path, key: Path, said: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a session of its own, which has no terminal."""
    kept = {name: value for name, value in os.environ.items() if name != "TACIT_KEY_PASSPHRASE"}
    return subprocess.run(
        [sys.executable, "-m", "tacit", "sign", folder / "no-run", "--key", key],
        input=said,
        capture_output=True,
        text=True,
        env={**kept, **environment},
        start_new_session=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("said", ["", f"{PASSPHRASE}\n"])
def test_without_a_terminal_the_passphrase_is_of_the_environment(tmp_path: Path, key: Path, said: str) -> None:
    """What is typed would be seen: nothing is read then, also where the right words are waiting."""
    done = sign(tmp_path, key, said)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("tacit: the key is encrypted")
    assert "TACIT_KEY_PASSPHRASE" in done.stderr


def test_with_it_the_key_is_read(tmp_path: Path, key: Path) -> None:
    """Then what is missing is the run; a wrong one is not taken."""
    assert "no ledger there" in sign(tmp_path, key, "", TACIT_KEY_PASSPHRASE=PASSPHRASE).stderr
    wrong = sign(tmp_path, key, "", TACIT_KEY_PASSPHRASE="another")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "passphrase" in wrong.stderr


def test_on_a_terminal_it_is_asked_for_and_not_shown(tmp_path: Path, key: Path) -> None:
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "TACIT_KEY_PASSPHRASE"}
    command = [sys.executable, "-m", "tacit", "sign", tmp_path / "no-run", "--key", key]
    done = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=kept, start_new_session=True)
    os.close(theirs)
    said = b""
    while part := _read(ours):
        said += part
        if said.endswith(b"Passphrase: "):
            os.write(ours, f"{PASSPHRASE}\n".encode())
    os.close(ours)
    assert done.wait(60) == 4
    assert b"no ledger there" in said
    assert PASSPHRASE.encode() not in said


def _read(terminal: int) -> bytes:
    """What is said next; nothing at the end."""
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side is closed
        return b""

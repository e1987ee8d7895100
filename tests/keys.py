"""The one place where a test puts a key into a run folder before its run.

A run without a placed key draws one from the operating system, and is another run every time: a test whose outcome hangs on
what is drawn then fails now and then, on other machines. A placed key is public, so no guarantee holds of such a run's release.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tacit.randomness import KEY_BYTES, Streams

__all__ = ["place_key", "placed_key"]


def placed_key(number: int = 0) -> bytes:
    """The key of this number."""
    return hashlib.blake2b(f"a key of the tests {number}".encode(), digest_size=KEY_BYTES).digest()


def place_key(run: Path, number: int = 0) -> Streams:
    """Make ``run`` a folder whose run, once it begins, has the key of this number; the streams of that key."""
    private = run / "private"
    private.mkdir(parents=True, mode=0o700)
    key = private / "key"
    key.write_bytes(placed_key(number))
    key.chmod(0o600)
    return Streams(placed_key(number))

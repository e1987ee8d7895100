"""The one place where a test decides which key a run has.

A run's key and its ledger are made together, and a key that lies there before is refused. So a run is begun here, with what it draws
being the test's own, and whoever goes on with it, in this process or another, finds an ordinary run.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tacit.config import parse_config
from tacit.randomness import KEY_BYTES, KeyedRandomness
from tacit.runs.beginning import begin

from .draws import drawing

__all__ = ["begin_with_key", "key_numbered"]


def key_numbered(number: int = 0) -> bytes:
    """The key of this number."""
    return hashlib.blake2b(f"a key of the tests {number}".encode(), digest_size=KEY_BYTES).digest()


def begin_with_key(values: Any, key: bytes | int = 0) -> KeyedRandomness:
    """Begin the run of a configuration's plain values with a key, or with that of a number; the key's streams."""
    wanted = key_numbered(key) if isinstance(key, int) else key
    with drawing(wanted), begin(parse_config(values)) as begun:
        assert begun.key == wanted
    return KeyedRandomness(wanted)

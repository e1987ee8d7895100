"""Keyed randomness: every draw that the guarantee rests on comes from one secret key and a public address.

A run has one 256-bit key from the operating system. ``KeyedRandomness(key).generator("sampling", phase, step)`` derives a fresh
ChaCha20 key for that address with keyed BLAKE2b, so a draw is a function of (key, address) alone: a killed run that is
started again repeats the same draws, two addresses never share a keystream, and nobody without the key can predict one.

ChaCha20 through ``randomgen`` is a cryptographic generator; the normals are numpy's ziggurat over its bits, in float64 and then
rounded to a grid for training noise. On a GPU training noise has keys from ``KeyedRandomness.stream_key`` (`tacit.engine.chacha`).
``KeyedRandomness.seed`` is for torch's own generators, which are not cryptographic: dropout. That noise is floating point is the
business of `tacit.engine.noise.Grid` (Mironov 2012).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from json.encoder import encode_basestring_ascii
from pathlib import Path

import numpy as np
from randomgen import ChaCha

from tacit.errors import DataError

__all__ = ["KEY_BYTES", "KeyedRandomness", "draw_key", "key_of", "load_or_create_key", "read_key"]

KEY_BYTES = 32


class KeyedRandomness:
    """A tree of independent keyed generators.

    Args:
        key: 32 secret bytes.

    Raises:
        ValueError: the key has another length.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key

    def derive(self, *address: str | int) -> bytes:
        """32 bytes that are a pseudo-random function of the address; equal addresses give equal bytes.

        The address is encoded as JSON, so ``("a", 1)`` and ``("a", "1")`` and ``("a1",)`` are three addresses.
        """
        message = f"[{','.join(map(_json, address))}]".encode()
        return hashlib.blake2b(message, key=self._key, digest_size=KEY_BYTES, person=b"tacit-streams").digest()

    def child(self, *address: str | int) -> KeyedRandomness:
        """The subtree below an address: what it draws is independent of every other subtree."""
        return KeyedRandomness(self.derive("child", *address))

    def generator(self, *address: str | int) -> np.random.Generator:
        """A numpy generator over ChaCha20 at this address, from its beginning (about 25 microseconds)."""
        seed = int.from_bytes(self.derive("generator", *address), "big")
        return np.random.Generator(ChaCha(key=seed, rounds=20))  # pyright: ignore[reportArgumentType]

    def stream_key(self, *address: str | int) -> bytes:
        """32 bytes at this address, for a generator that is keyed elsewhere: the bytes that `generator` would use are others."""
        return self.derive("stream-key", *address)

    def seed(self, *address: str | int) -> int:
        """64 bits at this address, for ``torch.Generator.manual_seed``; two of n addresses agree with chance n^2 / 2^65."""
        return int.from_bytes(self.derive("seed", *address)[:8], "big")

    def commitment(self) -> str:
        """A public fingerprint of the key: it reveals nothing of the key and changes when the key does."""
        return self.derive("commitment").hex()


def _json(part: str | int) -> str:
    """A part as `json.dumps` writes it, which takes several times as long."""
    if isinstance(part, str):
        return encode_basestring_ascii(part)
    return repr(part) if type(part) is int else json.dumps(part)


def key_of(seed: str) -> bytes:
    """The key that a public text stands for. Whoever knows the text can take all noise off: nothing that it makes is private."""
    return hashlib.blake2b(seed.encode(), digest_size=KEY_BYTES).digest()


def read_key(path: Path) -> bytes:
    """The 32-byte key in a file.

    Raises:
        DataError: there is none, or it has another length.
    """
    if not path.is_file():
        raise DataError(f"{path}: the key is missing; restore it, or use another run folder")
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise DataError(f"{path}: a key has {KEY_BYTES} bytes, this file has {len(key)}; restore it")
    return key


def draw_key(path: Path, seed: str | None = None) -> bytes:
    """A new key from the operating system, or the one that a public seed stands for, in a file of mode 0600, synced."""
    partial = path.with_name(path.name + ".partial")
    partial.touch(mode=0o600)
    partial.chmod(0o600)  # also when an interrupted call left the file with other permissions
    with partial.open("wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES) if seed is None else key_of(seed))
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    return path.read_bytes()


def load_or_create_key(path: Path) -> bytes:
    """The key in a file; the first call draws it. For what is never released: a run's key is made with its ledger."""
    return read_key(path) if path.exists() else draw_key(path)

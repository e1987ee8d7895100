"""What deduplication remembers of the texts that it read: a keyed 128-bit digest of each."""

from __future__ import annotations

import hashlib

__all__ = ["DIGEST_BYTES", "ExactMemory", "keyed_digest"]

DIGEST_BYTES = 16


class ExactMemory:
    """A set of digests, about 100 bytes each. Two of n texts share a digest with probability n^2 / 2^129."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._seen

    def add(self, digest: bytes) -> bool:
        before = len(self._seen)
        self._seen.add(digest)
        return len(self._seen) == before

    def dump(self) -> bytes:
        return b"".join(sorted(self._seen))

    def restore(self, content: memoryview) -> None:
        self._seen = {bytes(content[at : at + DIGEST_BYTES]) for at in range(0, len(content), DIGEST_BYTES)}


def keyed_digest(empty: hashlib.blake2b, content: bytes) -> bytes:
    """The digest of the content under the key of a hash that has read nothing yet."""
    found = empty.copy()
    found.update(content)
    return found.digest()

"""The version of this package, and of all that it computes with: a leaf, so that everything may know it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

__all__ = ["VERSION", "installed"]

VERSION = "0.2.0"

_COMPUTED_WITH = (
    *("torch", "transformers", "tokenizers", "numpy", "scipy", "randomgen", "dp-accounting", "peft"),
    *("pyarrow", "google-re2", "phonenumbers", "Jinja2", "regex", "tldextract", "presidio-analyzer"),
    *("spacy", "spacy-transformers", "thinc", "blis"),
)
"""Libraries of which another version may read, mark, draw or round otherwise."""


@functools.cache  # a process computes with what it has imported
def installed() -> str:
    """The versions of Python and of all that text, sums and noise are computed with, and a digest of tacit itself."""
    import platform

    digest, root = hashlib.sha256(), Path(__file__).parent
    for path in sorted(one for one in root.rglob("*") if one.is_file() and one.parent.name != "__pycache__"):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    versions = [f"{name} {_version_of(name)}" for name in _COMPUTED_WITH]
    return "; ".join([platform.python_version(), *versions, f"tacit {VERSION} {digest.hexdigest()}"])


def _version_of(name: str) -> str:
    from importlib import metadata  # only here, as above: each takes as long to import as a tenth of `tacit --help`

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # an extra
        return "none"

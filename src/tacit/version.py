"""The version of this package: a leaf, so that everything may know it."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "0.2.0"

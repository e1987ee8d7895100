"""What a detector's options name on this machine: two policies with equal options are the same only if that is the same too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tacit.errors import UsageError
from tacit.screening.adapters.options import AdapterOptions

__all__ = ["contents_digest", "model_place", "place_of"]


def contents_digest(options: AdapterOptions) -> str:
    """SHA-256 of the library's version and of every file of the model; of spans that were computed elsewhere, nothing.

    Those are private text's, whose digest goes nowhere; and no policy with them is measured (`tacit.planning.measured`).
    """
    if options.library is None:
        return ""
    found = hashlib.sha256(f"{options.library} {version(options.library)}".encode())
    place = model_place(options)
    if place is not None:
        folder = place.parent if place.is_file() else place
        for path in [place] if place.is_file() else sorted(_files_in(folder)):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found.update(f"\n{path.relative_to(folder).as_posix()}\0{digest}".encode())
    return found.hexdigest()


def _files_in(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_symlink() and path.is_dir():
            raise UsageError(
                f"{path} is a link to a folder, and what lies there is not looked at; copy it into the model's folder"
            )
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def model_place(options: AdapterOptions) -> Path | None:
    """Where the model lies that a detector uses: a folder, or an installed package's folder or one file; None where there is none."""
    named = options.named_model()
    return None if named is None or named.value is None else place_of(named.value)


def place_of(name: str) -> Path | None:
    """Where the model of this name lies; None where there is none.

    A folder comes first, and a package may lie in another one, as `tacit.screening.adapters.spacy_ner.local_pipeline` loads them.
    """
    if Path(name).is_dir():
        return Path(name)
    try:
        spec = find_spec(name)
    except Exception:  # no name of a module, or a package around it that cannot be imported
        return None
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)

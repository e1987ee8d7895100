"""Whether a scorer may score: its training text is public, as far as that can be told.

A record's rho decides how well it is protected, and the mechanisms take it for a function of this record and of public numbers. A
model that was trained on the private text makes it a function of all records, and no account covers that. A release of ours says
in its certificate what it read of private text; of any other folder the user says that it is public.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.errors import RefusedError
from tacit.files import read_json
from tacit.privacy.certificate import file_digests

__all__ = ["USERS_WORD", "require_public_scorer", "scorer_folder"]

USERS_WORD = "by your word: nothing in the folder says what its model was trained on"


def scorer_folder(path: Path) -> Path:
    """The Hugging Face folder that a path means: of a run of ours, or of its release, that of the released model."""
    for folder in (path / "release" / "model", path / "model"):
        if (folder / "config.json").is_file() and (folder.parent / "certificate.json").is_file():
            return folder
    return path


def require_public_scorer(folder: Path) -> str:
    """Why the model in a Hugging Face folder counts as public, in words.

    Args:
        folder: of `scorer_folder`.

    Raises:
        RefusedError: it belongs to a run of ours that read private text, or whose certificate is missing, damaged, or of other files.
    """
    folder = folder.resolve()
    certificate = next((path for path in _certificates(folder) if path.is_file()), None)
    if certificate is None:
        ledger = next(
            (place / "ledger.sqlite" for place in folder.parents if (place / "ledger.sqlite").is_file()), None
        )
        if ledger is None:
            return USERS_WORD
        raise RefusedError(
            "scorer-not-public",
            f"{folder} lies in a run without a certificate, so nothing says what its model was trained on; give a public model",
        )
    if not _read_no_private_text(certificate, folder):
        raise RefusedError(
            "scorer-not-public",
            f"{folder}: its certificate does not say that it read public text alone, and no ledger of the scored run accounts for "
            "what it read; give a public model, or an unchanged release of a run whose phases and vocabulary are public",
        )
    return "by its certificate: no private text was read for it"


def _certificates(folder: Path) -> Iterator[Path]:
    """Where the certificate of a released model stands: beside its folder, and where the folder was copied with it."""
    yield folder / "certificate.json"
    if folder.name == "model":
        yield folder.parent / "certificate.json"


def _read_no_private_text(certificate: Path, folder: Path) -> bool:
    """Whether a certificate says so of what is in the folder; one that cannot be read does not."""
    try:
        values: Any = read_json(certificate)
    except (OSError, ValueError):
        return False
    if not isinstance(values, dict) or values.get("spends") != [] or "confidentiality" in values:
        return False
    found = file_digests(folder, leave_out=(certificate.name,))
    return values.get("files") == {f"model/{name}": digest for name, digest in found.items()}

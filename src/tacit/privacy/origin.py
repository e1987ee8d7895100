"""Where one thing comes from: is it of a release of ours, with a certificate; does it lie in a run; or is it declared public?

A certificate that stands beside a folder must be of the very files that are used. What has none is public by the user's word alone.
No private text is read, and no weights.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import DataError, RefusedError, UsageError
from tacit.files import real_path, write_json
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.provenance import PUBLIC, UNKNOWN, Ancestor, Given, read_ancestors

__all__ = [
    "MARK",
    "Origin",
    "carries_mark",
    "certificate_of",
    "is_marked",
    "mark_released",
    "origin_of",
    "released_model",
]

MARK = "tacit_run"
"""The name under which a released model says in its own files that it was made from private text, and by which run."""
_MARKED = ("config.json", "tokenizer_config.json")
_ADAPTERS = ("adapter_config.json", "adapter/adapter_config.json")
_MAPPING = "auto_mapping"
"""The one entry of an adapter's configuration that holds a dictionary of anything and that peft keeps when it loads and saves."""
_UNRECORDED = 1
"""The version of certificates that do not say where a run began."""


@dataclass(frozen=True)
class Origin:
    """Where one thing comes from.

    Args:
        given: what it is.
        ancestors: the release that it is of, and those behind it.
        behind: what these were given.
    """

    given: Given
    ancestors: tuple[Ancestor, ...] = ()
    behind: tuple[Given, ...] = ()


def origin_of(
    role: str,
    path: Path,
    option: str,
    declared: bool,
    digest: str | None = None,
    allow_unknown: bool = False,
    files: Iterable[Path] = (),
) -> Origin:
    """Where one thing comes from.

    Args:
        option: of the configuration that names it, for errors.
        declared: whether the user says that it is public.
        allow_unknown: whether it may be neither; nothing is proved then.
        files: that are read of it, beside those that lie in it.

    Raises:
        RefusedError: it is a part of a run that nothing certifies, or neither certified nor declared public.
        DataError: its certificate is damaged, or of other files.
    """
    certificate = certificate_of(path)
    if certificate is not None:
        values = _read_certificate(certificate)
        _check_files(certificate, values, path)
        try:
            ancestors, behind = read_ancestors(values)
        except (AttributeError, LookupError, TypeError, ValueError, UsageError):
            raise DataError(
                f"{certificate}: damaged, or of another version; bring the release's own one back"
            ) from None
        return Origin(Given(role, digest, ancestors[-1].head), ancestors, behind)
    read = tuple(files)
    _refuse_parts_of_runs(path, option)
    for one in read or (path.rglob("*") if path.is_dir() else ()):  # each may be a link
        _refuse_release_below(one, option)
        _refuse_parts_of_runs(one, option)
    if declared:
        return Origin(Given(role, digest, PUBLIC))
    if allow_unknown:
        return Origin(Given(role, digest, UNKNOWN))
    raise RefusedError(
        "start-unknown",
        f"{option}: {path} has no certificate beside it, so what private text it was made from is unknown; say public: true beside "
        f"{option.rpartition('.')[2]} if it was made from public text alone, or add heuristic:unknown-start to allow (reported with "
        "epsilon = infinity)",
    )


def released_model(path: Path) -> Path:
    """The Hugging Face folder that a path means: of a run of ours, or of its release, that of the released model."""
    for folder in (path / "release" / "model", path / "model"):
        if (folder / "config.json").is_file() and (folder.parent / "certificate.json").is_file():
            return folder
    return path


def certificate_of(path: Path) -> Path | None:
    """The certificate of a released model or of a file of a release: in its folder, or beside it where that is ``model``."""
    resolved = real_path(path)
    folder = resolved if resolved.is_dir() else resolved.parent
    places = (folder, folder.parent) if folder.name == "model" else (folder,)
    return next((place / "certificate.json" for place in places if (place / "certificate.json").is_file()), None)


def _read_certificate(path: Path) -> dict[str, Any]:
    values = read_certificate(path)
    if values.get("version") == _UNRECORDED:
        raise RefusedError(
            "start-unrecorded",
            f"{path} was made by tacit 0.1, which did not record what a run started from (docs/known-vulnerabilities.md, "
            "TACIT-1), so what was spent is not known; train that model again with this version",
        )
    return values


def _check_files(certificate: Path, values: dict[str, Any], path: Path) -> None:
    """What is used is what was released, file by file."""
    resolved, root = real_path(path), certificate.parent
    stated = values["files"]
    copied = root == resolved  # a model folder into which its certificate was copied
    used = sorted(file for file in resolved.rglob("*") if file.is_file()) if resolved.is_dir() else [resolved]
    found = {}
    for file in used:
        if file != certificate:
            name = file.relative_to(root).as_posix()
            found[f"model/{name}" if copied else name] = hashlib.sha256(file.read_bytes()).hexdigest()
    prefix = "model/" if resolved.is_dir() else ""
    wanted = {name: digest for name, digest in stated.items() if name.startswith(prefix)} if prefix else stated
    same = found == wanted if resolved.is_dir() else all(stated.get(name) == digest for name, digest in found.items())
    if not same:
        raise DataError(
            f"{certificate}: it certifies other files than those of {path}; bring the release back as it was"
        )


def _refuse_parts_of_runs(path: Path, option: str) -> None:
    """What lies in a run's private folder was made from its private text; of a release without its certificate nothing is known."""
    resolved = real_path(path)
    for place in resolved.parents:
        # lexists: while a start works its ledger may be a link to a local disk, perhaps of another machine
        within = resolved.relative_to(place).parts[0]
        if os.path.lexists(place / "ledger.sqlite") and (
            within in ("private", "release") or within.startswith(".release")
        ):
            raise RefusedError(
                "start-inside-a-run",
                f"{option}: {path} lies in the run folder {place}, and no certificate says what was spent on it; finish that "
                "run, and name its release/model",
            )
    folder = resolved if resolved.is_dir() else resolved.parent
    if carries_mark(folder):
        raise RefusedError(
            "start-without-certificate",
            f"{option}: {path} was released by tacit from private text, and its certificate.json is not beside it; bring that back",
        )


def _refuse_release_below(path: Path, option: str) -> None:
    """What lies in a release is counted where the release is named, and not where it stands among other files."""
    certificate = certificate_of(path)
    if certificate is not None:
        raise RefusedError(
            "start-inside-a-run",
            f"{option}: {path} lies in a release of tacit ({certificate}); name that release by itself, or take it out of there",
        )


def carries_mark(folder: Path) -> bool:
    """Whether a model's own files say that tacit released it from private text."""
    return any(_is_marked(folder / name) for name in _MARKED + _ADAPTERS)


def _is_marked(file: Path) -> bool:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(values, dict) and is_marked(values)


def is_marked(config: Mapping[str, Any]) -> bool:
    """Whether the configuration of a model or of an adapter says that tacit released it from private text."""
    mapping = config.get(_MAPPING)
    return MARK in config or (isinstance(mapping, Mapping) and MARK in mapping)


def mark_released(model: Path, run: str) -> None:
    """Write into a released model's own files that it was made from private text, and by which run.

    So a copy without its certificate is not taken for a public model by mistake. Whoever wants to can remove it.

    Args:
        model: the folder of the model with its tokenizer.
        run: the first digest of the run's ledger.
    """
    for name in _MARKED:
        path = model / name
        if path.is_file():
            write_json(path, {**json.loads(path.read_text(encoding="utf-8")), MARK: run})
    for name in _ADAPTERS:
        path = model / name
        if path.is_file():
            values = json.loads(path.read_text(encoding="utf-8"))
            write_json(path, {**values, _MAPPING: {**(values.get(_MAPPING) or {}), MARK: run}})

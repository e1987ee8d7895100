"""Made-up text that `tacit init` writes beside a configuration, and never in place of a user's own file of that name."""

from __future__ import annotations

import filecmp
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import UsageError

__all__ = ["CHATS", "NOTES", "PUBLIC", "MadeUp", "refuse_others", "write_made_up"]


@dataclass(frozen=True)
class MadeUp:
    """A corpus of made-up text, the same bytes each time.

    Args:
        name: of its file.
        write: writes it to a path, all of it or nothing.
    """

    name: str
    write: Callable[[Path], object]


def refuse_others(folder: Path, corpora: Sequence[MadeUp], remedy: str) -> None:
    """What has the name of made-up text must be that text: a user's own would be learned as public text, without noise.

    Args:
        folder: where the text will be written.
        corpora: what will be written there.
        remedy: what to do, as the end of the error.

    Raises:
        UsageError: a file has the name of one of them, and not its bytes.
    """
    for corpus in corpora:
        path = folder / corpus.name
        if (path.exists() or path.is_symlink()) and not _is_that(path, corpus):
            raise UsageError(f"{path} is there already, and is not written over, nor taken for made-up text; {remedy}")


def write_made_up(folder: Path, corpora: Sequence[MadeUp]) -> list[Path]:
    """Write what is not there, and return where all of them are."""
    paths = [folder / corpus.name for corpus in corpora]
    for path, corpus in zip(paths, corpora, strict=True):
        if not path.exists():
            corpus.write(path)
    return paths


def _is_that(path: Path, corpus: MadeUp) -> bool:
    """Whether a file has the very bytes; a folder, a pipe and a link to nothing have not."""
    if not path.is_file():
        return False
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / corpus.name
        corpus.write(made)
        return filecmp.cmp(path, made, shallow=False)


def _write_notes(path: Path) -> None:
    from tacit.corpus.synthetic import SyntheticPrivate, write_private

    write_private(path, SyntheticPrivate())


def _write_public(path: Path) -> None:
    from tacit.corpus.synthetic import SyntheticPublic, write_public

    write_public(path, SyntheticPublic())


def _write_chats(path: Path) -> None:
    from tacit.corpus.synthetic_chats import SyntheticChats, write_chats

    write_chats(path, SyntheticChats())


NOTES = MadeUp("clinical-notes.jsonl", _write_notes)
PUBLIC = MadeUp("public-text.jsonl", _write_public)
CHATS = MadeUp("chats.jsonl", _write_chats)

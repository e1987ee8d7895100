"""A corpus: where it is, how to read it, and which files it has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tacit.corpus.arrow_files import saved_dataset
from tacit.corpus.formats import READERS
from tacit.corpus.places import Place, files_below, files_in, name_below
from tacit.corpus.turns import Turns
from tacit.errors import DataError, UsageError
from tacit.files import refuse_pipe

__all__ = ["MOST_RECORD_BYTES", "Source", "files_and_formats", "files_of"]

_ALIASES = {".bio": "conll", ".iob": "conll"}
_NEVER_ZIPPED = ("parquet", "arrow")

MOST_RECORD_BYTES = 2**40
"""The largest ``max_record_bytes``; no record comes near it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A corpus and how to read it.

    Args:
        path: here or in an object store, a file, or a dataset directory: its files with known endings and those of its
            sub-directories, sorted by path; `files_below` says which are left out. The last part may be a pattern, such as
            ``dialogues_*.json``, for some files of one directory. Of a folder that ``datasets.Dataset.save_to_disk`` wrote the data
            files that it names are read.
        format: a key of ``READERS``; "auto" goes by each file's ending. In a directory any other value keeps the files
            of that format only. All but Parquet and Arrow may be gzipped (``.gz`` after the ending).
        text_field: the field (JSON, CSV, Parquet, Arrow) that holds the text or, with ``turns``, the list of turns.
        id_field: the field that holds the document's id; without it the id is ``<file name>:<line number>``, with the
            sub-directories before the name of a file in one.
        user_field: the field that holds the id of the person the text belongs to.
        max_record_bytes: a record whose text, line or CSV field is longer than this is refused.
        limit: read this many records and stop.
        turns: how a list of turns becomes text, one turn a line (JSON, Parquet, Arrow); None: the field holds the text.
        messages_field: the field (JSON, Parquet, Arrow) with a conversation, a list of messages with ``role`` and ``content``, in
            place of a text (`tacit.corpus.chats`).
        prompt_field: the field (JSON, CSV, Parquet, Arrow) with a prompt, instead of a text.
        response_field: the field with the response to it.

    Raises:
        UsageError: an unknown format, a number out of range, or a prompt without a response.
    """

    path: Place
    format: str = "auto"
    text_field: str = "text"
    id_field: str | None = None
    user_field: str | None = None
    max_record_bytes: int = 1_000_000
    limit: int | None = None
    turns: Turns | None = None
    messages_field: str | None = None
    prompt_field: str | None = None
    response_field: str | None = None

    def __post_init__(self) -> None:
        if (self.prompt_field is None) != (self.response_field is None):
            raise UsageError("prompt_field and response_field go together; give both, or neither")
        if self.format != "auto" and self.format not in READERS:
            raise UsageError(f"format {self.format!r} is not known; use auto or one of {', '.join(READERS)}")
        if not 1 <= self.max_record_bytes <= MOST_RECORD_BYTES:
            raise UsageError(f"max_record_bytes must be from 1 to 2**40, not {self.max_record_bytes}")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"limit must be at least 1, not {self.limit}; leave it out to read everything")

    def name_of(self, path: Place) -> str:
        """What a file of the corpus is called in the ids of documents without one of their own: no two have one name."""
        return name_below(self.path, path)


def files_of(source: Source) -> list[Place]:
    """The files that `read_records` reads.

    Raises:
        DataError: there is none, or one of no known ending.
    """
    return [path for path, _ in files_and_formats(source)]


def files_and_formats(source: Source) -> list[tuple[Place, str]]:
    """The files to read with the format of each."""
    if isinstance(source.path, Path):
        refuse_pipe(source.path)
    if _is_pattern(source.path):  # before anything of that very name is looked for: a document may be called so
        listed = files_in(source.path.parent, source.path.name)
    elif source.path.is_dir():
        saved = _saved_in(source, source.path)
        if saved is not None:
            return [(path, "arrow") for path in saved]
        listed = _of_folder(source)
    elif source.path.exists():
        return [(source.path, _format_of_file(source))]
    else:
        listed = []
    files = [(path, _format_by_ending(path)) for path in listed if not path.name.startswith(".")]
    if not files and not source.path.is_dir():
        raise DataError(f"{source.path}: there is no such file or directory; check the path")
    known = [(path, name) for path, name in files if name is not None and source.format in ("auto", name)]
    if not known:
        raise DataError(f"{source.path}: no file there has one of the endings {_known_endings(source)}")
    return known


def _of_folder(source: Source) -> list[Place]:
    """Its files and those of its sub-folders; of a sub-folder in which ``datasets`` has saved something those that it names alone."""
    found: list[Place] = []
    of_folder: dict[str, list[Place] | None] = {}
    for path in files_below(source.path):
        folder = str(path.parent)
        if folder not in of_folder:
            of_folder[folder] = None if path.parent == source.path else _saved_in(source, path.parent)
            found += of_folder[folder] or []
        if of_folder[folder] is None:
            found.append(path)
    return found


def _saved_in(source: Source, folder: Place) -> list[Place] | None:
    """The files of a dataset that is saved there, if the source may be one."""
    return saved_dataset(folder) if source.format in ("auto", "arrow") else None


def _is_pattern(path: Place) -> bool:
    """Whether the path is a pattern, by its name alone, which is public: with ``*`` or ``?``; ``[`` alone is one of its letters."""
    return "*" in path.name or "?" in path.name


def _format_of_file(source: Source) -> str:
    name = source.format if source.format != "auto" else _format_by_ending(source.path)
    if name is None:
        endings = _known_endings(source)
        raise DataError(f"{source.path}: this ending is not known; set the option format, or use one of {endings}")
    return name


def _format_by_ending(path: Place) -> str | None:
    """The format that the name's ending stands for: ``a.txt.gz`` is txt, ``a.pdf`` and ``a.parquet.gz`` are None."""
    zipped = path.suffix.lower() == ".gz"
    name = _endings().get(Path(path.stem).suffix.lower() if zipped else path.suffix.lower())
    return None if zipped and name in _NEVER_ZIPPED else name


def _endings() -> dict[str, str]:
    return {f".{name}": name for name in READERS} | _ALIASES


def _known_endings(source: Source) -> str:
    names = [ending for ending, name in _endings().items() if source.format in ("auto", name)]
    return ", ".join(names) + " (all but .parquet and .arrow also with .gz)"

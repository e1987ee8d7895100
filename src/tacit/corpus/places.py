"""Where a corpus lies: a path of this machine, or a place in an object store, with the same words for readers.

Object stores are reached by `pyarrow.fs`, which finds their credentials as each store's own tools do (environment, profile, the
machine's role). Nothing is written there.
"""

from __future__ import annotations

import fnmatch
import functools
import gzip
import io
import operator
import os
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, TypeVar, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from tacit.errors import DataError, UsageError
from tacit.files import is_utf8

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

__all__ = [
    "Place",
    "RemotePath",
    "files_below",
    "files_in",
    "is_remote",
    "look_at",
    "name_below",
    "native_file",
    "open_place",
    "place",
    "unzipped",
]

_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "hdfs": "hdfs",
}
"""As they are written, Spark's names among them, and what pyarrow calls them."""
_NO_SECRET = {"gs": ("anonymous",), "gcs": ("anonymous",)}
"""Users that an address may name; Azure's is the container, and Hadoop's is a name without a password."""
_OPTIONS = frozenset(
    {
        "blob_storage_authority",
        "client_id",
        "credential_kind",
        "dfs_storage_authority",
        "enable_tls",
        "endpoint_override",
        "force_virtual_addressing",
        "region",
        "retry_limit_seconds",
        "scheme",
        "tenant_id",
    }
)
"""That an address may have: others may be secrets, such as Azure's ``client_secret`` and signatures."""
_LEDGER = "ledger.sqlite"
"""By which the folder of a run is known."""
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")  # one letter is a drive of Windows

T = TypeVar("T")
P = TypeVar("P", bound="Path | RemotePath")


def _azure(user: str, host: str, path: str) -> tuple[str, str]:
    """The account with the container, and the place in it, of each of the forms that pyarrow has for Azure (its azurefs.h).

    >>> _azure("box", "acc.dfs.core.windows.net", "/a"), _azure("acc", "box", "/a"), _azure("", "acc.blob.core.windows.net", "/box/a")
    (('acc/box', '/a'), ('acc/box', '/a'), ('acc/box', '/a'))
    >>> _azure("acc", "127.0.0.1:10000", "/box/a")
    ('acc/box', '/a')
    """
    name, _, port = host.partition(":")
    account, _, domain = name.partition(".")
    if not domain and not port:  # ACCOUNT@CONTAINER/PATH, or CONTAINER/PATH
        return f"{user}/{account}", path
    if user and domain.endswith("core.windows.net"):  # CONTAINER@ACCOUNT.dfs.core.windows.net/PATH
        return f"{account}/{user}", path
    # ACCOUNT.blob.core.windows.net/CONTAINER/PATH, or ACCOUNT@HOST:PORT/CONTAINER/PATH
    container, _, rest = path.strip("/").partition("/")
    return f"{user or account}/{container}", f"/{rest}"


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder of an object store, or a pattern of files there, by those words of `pathlib.Path` that readers use.

    Args:
        uri: ``SCHEME://BUCKET/PATH?OPTIONS`` as `pyarrow.fs.FileSystem.from_uri` reads it, unusual characters as ``%XX``. The options
            are the store's, such as ``region`` or ``endpoint_override``.

    Raises:
        UsageError: no store has such an address, or it holds a password or key, which would be written into the run's folder.
    """

    uri: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.uri)
        if parts.scheme not in _SCHEMES:
            raise UsageError(
                f"a corpus lies at a path of this machine or in an object store ({', '.join(_SCHEMES)}), not at {parts.scheme}://"
            )
        user, _, _ = parts.netloc.rpartition("@")
        named = parts.scheme in ("abfs", "abfss", "hdfs") or user in ("", *_NO_SECRET.get(parts.scheme, ()))
        unknown = sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} - _OPTIONS)
        if unknown:
            raise UsageError(
                f"an address in an object store may have the options {', '.join(sorted(_OPTIONS))}, not {unknown[0]!r}: secrets are "
                "for the environment"
            )
        if ":" in user or not named:
            raise UsageError(
                f"an address of {parts.scheme}:// must hold no key or password, since the run's folder keeps it: give them to the "
                "environment, as the store's own tools take them"
            )

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        return f"RemotePath({self.uri!r})"

    def __truediv__(self, name: str) -> RemotePath:
        return self._at(posixpath.join(urlsplit(self.uri).path, quote(name)))

    @property
    def name(self) -> str:
        return unquote(posixpath.basename(urlsplit(self.uri).path.rstrip("/")))

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def parent(self) -> RemotePath:
        return self._at(posixpath.dirname(urlsplit(self.uri).path.rstrip("/")))

    @property
    def parents(self) -> list[RemotePath]:
        """The folders that it lies in, the bucket last."""
        found = [self.parent]
        while found[-1].name:
            found.append(found[-1].parent)
        return found

    @property
    def identity(self) -> tuple[str, str, str]:
        """The kind of store, and the place in it: the same however the address is written. Nothing is asked of the store."""
        parts = urlsplit(self.uri)
        kind, path = _SCHEMES[parts.scheme].replace("abfss", "abfs"), _plain(unquote(parts.path))
        user, _, host = parts.netloc.lower().rpartition("@")
        if kind == "abfs":
            return kind, *_azure(user, host, f"/{path.strip('/')}")
        if kind == "hdfs":
            return kind, "", posixpath.normpath(path)  # a cluster has several names, or is the default one
        return kind, host, path

    def exists(self) -> bool:
        from pyarrow import fs

        return self._info().type != fs.FileType.NotFound

    def is_file(self) -> bool:
        from pyarrow import fs

        return self._info().type == fs.FileType.File

    def is_dir(self) -> bool:
        from pyarrow import fs

        return self._info().type == fs.FileType.Directory

    def files(self, *, below: bool = False) -> list[str]:
        """The names of the files in this folder, or with ``below`` the paths of those in its sub-folders too; none where there is no
        folder.
        """
        from pyarrow import fs

        filesystem, path = self._opened()
        within = fs.FileSelector(path, allow_not_found=True, recursive=below)
        found = self._asked(lambda: filesystem.get_file_info(within))
        return [one.path.removeprefix(path).lstrip("/") for one in found if one.type == fs.FileType.File]

    def look(self) -> tuple[int, int]:
        """`look_at` it."""
        info = self._info()
        return info.size or 0, info.mtime_ns or 0

    def open(self) -> pa.NativeFile:
        """The file, opened to be read from any place on."""
        filesystem, path = self._opened()
        return filesystem.open_input_file(path)

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return file.read()

    def _at(self, path: str) -> RemotePath:
        return RemotePath(urlunsplit(urlsplit(self.uri)._replace(path=path)))

    def _info(self) -> fs.FileInfo:
        filesystem, path = self._opened()
        return self._asked(lambda: filesystem.get_file_info(path))

    def _opened(self) -> tuple[fs.FileSystem, str]:
        parts = urlsplit(self.uri)
        known = parts._replace(scheme=_SCHEMES[parts.scheme], path=_plain(parts.path))
        return self._asked(lambda: _filesystem(urlunsplit(known)))

    def _asked(self, ask: Callable[[], T]) -> T:
        """What the store answers; its own errors may quote headers, and are dropped."""
        import pyarrow as pa

        try:
            return ask()
        except (OSError, pa.ArrowException):
            pass
        raise DataError(
            f"{self.uri}: the store does not answer, or lets nobody in; check the address, the network, and the credentials that the "
            "environment gives"
        )


Place = Path | RemotePath
"""Where a corpus, or a file of it, lies."""


def is_remote(address: str) -> bool:
    """Whether it is an address and no path."""
    return _ADDRESS.match(address) is not None


def _plain(path: str) -> str:
    """A path in a store without empty parts."""
    return re.sub("/+", "/", path).rstrip("/")


def place(address: str | Path) -> Place:
    """What a user's word means: ``file://`` addresses and all others without ``://`` are paths.

    Raises:
        UsageError: as `RemotePath`.
    """
    if isinstance(address, Path) or not is_remote(address):
        return Path(address)
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if (parts.scheme, parts.netloc) == ("file", "") else RemotePath(address)


def files_in(folder: Place, pattern: str) -> list[Place]:
    """The files in a folder, not below it, whose names are of a pattern, by their names; none where there is no folder."""
    if isinstance(folder, Path):
        return [path for path in sorted(folder.glob(pattern)) if path.is_file()]
    return [folder / name for name in sorted(fnmatch.filter(folder.files(), pattern))]


def files_below(folder: P) -> list[P]:
    """The files in a folder and in its sub-folders, in the order of their paths, part by part.

    Left out are what is hidden (a part that begins with ``.``), folders that begin with ``_``, as Spark calls those of what has not
    ended, what lies behind a link to a folder, which may lead back to where it is, and runs of tacit: else a run whose folder lies
    here would read its own files.

    Raises:
        DataError: a folder cannot be listed; or the table of a lakehouse lies there, whose files hold what was deleted from it, too.
    """
    names = _names_below(folder) if isinstance(folder, Path) else folder.files(below=True)
    parts_of = sorted(PurePosixPath(name).parts for name in names)
    tables = sorted({"/".join(parts[:-2]) for parts in parts_of if _is_log(parts)})
    if tables:
        raise DataError(
            f"{folder / tables[0] if tables[0] else folder}: a table of Delta Lake, Iceberg or Hudi, whose files also hold rows that "
            "were deleted or replaced; write what is in it today as Parquet, to a folder of its own, and name that"
        )
    runs = {parts[:-1] for parts in parts_of if parts[-1] == _LEDGER}
    return [
        functools.reduce(operator.truediv, parts, folder)
        for parts in parts_of
        if not any(part.startswith((".", "_")) for part in parts[:-1])
        and not parts[-1].startswith(".")
        and (len(parts) == 1 or not any(parts[:depth] in runs for depth in range(len(parts))))
    ]


def _names_below(folder: Path) -> list[str]:
    """The paths of all files below a folder of this machine, relative to it."""

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: this folder cannot be listed; check who may read it") from None

    return [
        (within / name).relative_to(folder).as_posix()
        for within, _, names in ((Path(place), found, names) for place, found, names in os.walk(folder, onerror=refuse))
        for name in names
        if (within / name).is_file() or name == _LEDGER  # a link, perhaps to another machine's disk, while a run works
    ]


def _is_log(parts: tuple[str, ...]) -> bool:
    """Whether a file is one of those in which a lakehouse writes which files make up a table.

    None of them can be a document: of Iceberg's it is a manifest that tells, and not ``v1.metadata.json``, as somebody's document may
    be called, whose name would then decide whether there is a release.
    """
    return len(parts) >= 2 and (
        parts[-2] in ("_delta_log", ".hoodie") or (parts[-2] == "metadata" and parts[-1].endswith(".avro"))
    )


def name_below(folder: Place, path: Place) -> str:
    """The path of a file within a folder, which no other file there has; of any other file its name."""
    if isinstance(folder, Path) and isinstance(path, Path):
        return path.relative_to(folder).as_posix() if folder in path.parents else path.name
    if isinstance(folder, RemotePath) and isinstance(path, RemotePath):
        within, whole = (_plain(unquote(urlsplit(one.uri).path)) for one in (folder, path))
        return whole.removeprefix(f"{within}/") if whole.startswith(f"{within}/") else path.name
    return path.name


def look_at(where: Place) -> tuple[int, int]:
    """The bytes of a file, and when it was written, in nanoseconds."""
    if isinstance(where, RemotePath):
        return where.look()
    found = where.stat()
    return found.st_size, found.st_mtime_ns


def open_place(where: Place) -> IO[bytes]:
    """Its bytes, from the first on."""
    return where.open("rb") if isinstance(where, Path) else io.BufferedReader(where.open())


def native_file(where: Place) -> pa.NativeFile:
    """The file, opened for pyarrow. It is not mapped: a file that is cut short meanwhile must not end the process."""
    import pyarrow as pa

    if not isinstance(where, Path):
        return where.open()
    # pyarrow takes names in UTF-8 alone, and a document's file may have another one
    return pa.OSFile(str(where)) if is_utf8(str(where)) else pa.PythonFile(where.open("rb"), mode="r")


def unzipped(where: Place) -> IO[bytes]:
    """The bytes that were packed by gzip."""
    return cast(IO[bytes], gzip.open(where if isinstance(where, Path) else open_place(where), "rb"))


@functools.lru_cache(maxsize=64)
def _filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs

    return fs.FileSystem.from_uri(uri)

"""An object store on this machine: as much of S3's protocol as reading needs, over the files of a folder, for pyarrow's client.

Like S3 it knows no folders, only keys; `fetched` says which were asked for, so that a test can see that nothing was read elsewhere.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

__all__ = ["CREDENTIALS", "ObjectStore", "open_store"]

BUCKET = "notes"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "of-a-test",
    "AWS_SECRET_ACCESS_KEY": "of-a-test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What pyarrow's client takes from the environment; nobody looks at them."""


@dataclass
class ObjectStore:
    """What lies in it, and how it is called.

    Args:
        folder: its bucket's keys are the files below it.
        port: of this machine.
        fetched: keys whose bytes were asked for.
    """

    folder: Path
    port: int = 0
    fetched: list[str] = field(default_factory=list)

    def uri(self, key: str) -> str:
        """The address of a key, a folder or a pattern."""
        options = f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        return f"s3://{BUCKET}/{quote(key, safe='/*')}?{options}"


@contextmanager
def open_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Serve a folder's files, with credentials in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    store = ObjectStore(folder)

    class Handler(_Handler):
        served = store

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    store.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: ObjectStore

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        path = self._file()
        if urlsplit(self.path).path.strip("/") == BUCKET:
            self._answer(200)
        elif path is None:
            self._answer(404)
        else:
            self._answer(200, headers=self._about(path), length=path.stat().st_size)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if "list-type" in parts.query:
            asked = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            self._answer(200, self._listed(asked.get("prefix", ""), asked.get("delimiter", "")).encode())
            return
        path = self._file()
        if path is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self.served.fetched.append(path.relative_to(self.served.folder).as_posix())
        content, asked_for = path.read_bytes(), self.headers.get("Range")
        if asked_for is None:
            self._answer(200, content, self._about(path))
            return
        first, _, last = asked_for.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        where = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        self._answer(206, part, {**self._about(path), "Content-Range": where})

    def _file(self) -> Path | None:
        key = unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")
        path = self.served.folder / key
        return path if key and not key.endswith("/") and path.is_file() else None

    @staticmethod
    def _about(path: Path) -> dict[str, str]:
        return {"Last-Modified": formatdate(path.stat().st_mtime, usegmt=True), "ETag": '"0"'}

    def _listed(self, prefix: str, delimiter: str) -> str:
        keys = sorted(
            path.relative_to(self.served.folder).as_posix() for path in self.served.folder.rglob("*") if path.is_file()
        )
        own, folders = [], dict[str, None]()
        for key in (key for key in keys if key.startswith(prefix)):
            head, found, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            if found:
                folders[f"{prefix}{head}{delimiter}"] = None
            else:
                own.append(key)
        said = "".join(self._content(key) for key in own)
        said += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        counted = (
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(own) + len(folders)}</KeyCount>"
        )
        return f"<ListBucketResult>{counted}<IsTruncated>false</IsTruncated>{said}</ListBucketResult>"

    def _content(self, key: str) -> str:
        found = (self.served.folder / key).stat()
        written = datetime.datetime.fromtimestamp(int(found.st_mtime), datetime.UTC)
        said = f"<Key>{escape(key)}</Key><LastModified>{written:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
        return f"<Contents>{said}<ETag>0</ETag><Size>{found.st_size}</Size></Contents>"

    def _answer(
        self, status: int, content: bytes = b"", headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

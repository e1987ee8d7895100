from __future__ import annotations

import socket

import pytest


@pytest.fixture
def network_calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Whoever asks for an address or a connection is noted, and gets an error, which a library may well swallow."""
    calls: list[object] = []

    def refused(*arguments: object, **_: object) -> None:
        calls.append(arguments)
        raise OSError("no network")

    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, refused)
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refused)
    return calls

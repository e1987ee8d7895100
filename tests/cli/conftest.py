from __future__ import annotations

import pytest

from .calling import Tacit, caller


@pytest.fixture
def tacit(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tacit:
    """`tacit` in this process."""
    return caller(monkeypatch, capfd)

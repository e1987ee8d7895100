from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real corpora: ``TACIT_DATA``, or the one beside the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TACIT_DATA", default))
    if not folder.is_dir():
        reason = f"no real corpora at {folder}; set TACIT_DATA to their folder"
        print(reason)
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return folder

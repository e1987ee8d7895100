"""A certificate whose start holds values of another type is refused in one line, wherever it is read.

What was wrong: nothing looked at the types in ``start``. A release behind it with "5" units, or a list for a key, ended the command
that composed it with a traceback.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import DataError
from tacit.privacy.certificate_file import check_certificate
from tacit.privacy.origin import origin_of

from ..cli.calling import assert_one_line, caller
from .test_one_release_told_twice import forged, made

ODD: list[tuple[str, Any]] = [
    ("units", "5"),
    ("units", None),
    ("units", 0.5),
    ("units", True),
    ("units", -1),
    ("delta", "0.1"),
    ("delta", {}),
    ("epsilon", "nothing"),
    ("epsilon", []),
    ("key", ["c"]),
    ("key", {}),
    ("unit", 7),
    ("unit", ["user"]),
    ("relation", "none"),
    ("relation", ["replace"]),
    ("head", 12),
    ("head", ["a" * 64]),
    ("spends", {}),
    ("spends", [1]),
    ("more", 1),
]


@pytest.mark.parametrize(("field", "value"), ODD)
def test_an_odd_value_of_a_release_behind_is_a_refusal(
    field: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    release = forged(made(tmp_path / "run"), tmp_path / "forged")
    path = release / "certificate.json"
    stated = json.loads(path.read_text())
    assert check_certificate(stated, "here") is stated
    stated["start"]["ancestors"][0][field] = value
    path.write_text(json.dumps(stated))
    tacit = caller(monkeypatch, capfd)
    for arguments in (("tradeoff", release), ("tradeoff", release, "--other-people"), ("verify", path)):
        assert_one_line(tacit(*arguments), 4, "the certificate is damaged or of another version")
    (release / "model").mkdir()
    with pytest.raises(DataError, match="damaged or of another version"):
        origin_of("the model folder", release / "model", "model.folder", False)


@pytest.mark.parametrize("field", ["same_people", "given", "ancestors"])
def test_a_start_without_a_part_is_a_refusal(field: str, tmp_path: Path) -> None:
    stated = json.loads((forged(made(tmp_path / "run"), tmp_path / "forged") / "certificate.json").read_text())
    for value in (None, 1, {}, [1]):
        with pytest.raises(DataError, match="damaged or of another version"):
            check_certificate({**stated, "start": {**stated["start"], field: value}}, "here")


def test_a_start_without_the_key_of_a_release_is_read(tmp_path: Path) -> None:
    """Earlier certificates do not say it."""
    stated = json.loads((forged(made(tmp_path / "run"), tmp_path / "forged") / "certificate.json").read_text())
    del stated["start"]["ancestors"][0]["key"]
    assert check_certificate(stated, "here") is stated

"""The lock file, the constraints and pyproject.toml say the same, and nothing in them is of one machine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tacit.version import VERSION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def pins(text: str) -> dict[str, set[str]]:
    """The versions of each library; a lock may have several, for different systems."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;\\]+)", text, re.MULTILINE):
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), set()).add(version)
    return found


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    constraints, locked = pins((ROOT / "constraints.txt").read_text(encoding="utf-8")), pins(LOCK)
    assert constraints["torch"] == {"2.13.0"}
    assert {name: locked[name] for name in locked.keys() & constraints} == {
        name: constraints[name] for name in locked.keys() & constraints
    }


@pytest.mark.parametrize("line", PROJECT["dependencies"])
def test_every_dependency_is_locked_in_a_version_that_is_allowed(line: str) -> None:
    wanted = Requirement(line)
    versions = pins(LOCK)[re.sub(r"[-_.]+", "-", wanted.name).lower()]
    assert all(wanted.specifier.contains(version) for version in versions)


def test_every_line_of_the_lock_has_a_digest_and_none_an_address() -> None:
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) > 50
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    for text in (LOCK, (ROOT / "constraints.txt").read_text(encoding="utf-8")):
        assert not re.search(r"://|index-url|find-links|file:", text)


def test_torch_is_one_whose_weights_only_holds() -> None:
    """CVE-2026-24747: before 2.10 a file could run code in spite of it."""
    torch = next(Requirement(line) for line in PROJECT["dependencies"] if line.startswith("torch"))
    assert not torch.specifier.contains("2.9.1")
    assert torch.specifier.contains("2.10.0")


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")

"""The site: every page is in its menu, and no page asks another server for anything. It is built where mkdocs is (`make docs`)."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MENU = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
FETCHED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def test_every_page_is_in_the_menu_once() -> None:
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(MENU) == sorted(pages)


def test_what_is_fetched_from_elsewhere_is_found() -> None:
    assert FETCHED.search('<link rel="stylesheet" href="https://fonts.example/css">')
    assert FETCHED.search("<script async src=//cdn.example/x.js></script>")
    assert not FETCHED.search('<a href="https://example.org">x</a> <img src="report.png">')


def site(folder: Path, configuration: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(configuration), "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None and "CI" not in os.environ, reason="the extra `docs` is not installed"
)


@pytest.mark.slow
@needs_mkdocs
def test_the_site_is_built_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = site(tmp_path / "site", ROOT / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(MENU)
    found = [f"{page.name}: {one}" for page in pages for one in FETCHED.findall(page.read_text(encoding="utf-8"))]
    assert found == []


@needs_mkdocs
@pytest.mark.parametrize("words", ["[gone](gone.md)", "[no heading](other.md#no-heading)"])
def test_a_link_without_its_place_ends_the_build(tmp_path: Path, words: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{words} [other](other.md#here)\n", encoding="utf-8")
    (tmp_path / "docs" / "other.md").write_text("# Here\n", encoding="utf-8")
    real = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(real.split("\nnav:\n")[0] + "\n", encoding="utf-8")
    assert site(tmp_path / "site", tmp_path / "mkdocs.yml").returncode != 0

"""The pages hang together: every link has its place, every page is found from the README, every recipe and benchmark is told of."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """How the headings of a page are named in a link, as GitHub does it: a second one of the same name ends in -1, and so on."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (name if number == 0 else f"{name}-{number}") in found:
            number += 1
        found.add(name if number == 0 else f"{name}-{number}")
    return found


def links(page: Path) -> list[tuple[Path, str]]:
    """Where a page's links to files of the project go, and the anchor; a link may go over a line's end."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8")))
    parts = [target.partition("#") for target in targets if "://" not in target and not target.startswith("mailto:")]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in parts]


def broken(pages: list[Path]) -> list[str]:
    """Links without a file, or without a heading of that name."""
    return [
        f"{page.name}: {target.name}#{anchor}"
        for page in pages
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8")))
    ]


def reached(start: Path) -> set[Path]:
    """Every page to which links lead from this one; a link to a folder leads to all pages in it."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        page = waiting.pop()
        if page in found or not page.exists():
            continue
        found.add(page)
        for target, _ in links(page):
            waiting += sorted(target.glob("*.md")) if target.is_dir() else [target] * (target.suffix == ".md")
    return found


def test_every_link_has_its_place() -> None:
    assert broken(PAGES) == []


def test_every_page_is_found_from_the_readme() -> None:
    assert set(PAGES) - reached(ROOT / "README.md") - {ROOT / "CONTRIBUTING.md"} == set()


def test_every_recipe_and_benchmark_is_told_of() -> None:
    told = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for folder in ("recipes", "benchmarks"):
        for path in (ROOT / folder).iterdir():
            if path.suffix in {".yaml", ".py"}:
                assert path.name in told, path


EXAMPLES = [
    (page, code, output)
    for page in ("adaptive.md", "deduplication.md", "reproduction-adp.md", "selective-dp.md")
    for code, output in re.findall(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL
    )
]


@pytest.mark.parametrize(("page", "code", "output"), EXAMPLES, ids=[page for page, _, _ in EXAMPLES])
def test_an_example_prints_what_stands_below_it(
    page: str, code: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to blanks and line breaks, since a page breaks long lines."""
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), {})
    assert printed.getvalue().split() == output.split()


def test_each_of_these_pages_has_an_example() -> None:
    assert len(EXAMPLES) == 4


def test_what_is_broken_is_found(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A heading, `twice`\n\n# A heading, `twice`\n\n```sh\n# no heading\n```\n")
    page.write_text(
        "[a](other.md#a-heading-twice) [b](other.md#a-heading-twice-1) [c](https://example.org/x.md)\n"
        "[d](other.md#no-heading) [e](gone.md)\n```md\n[f](also-gone.md)\n```\n"
    )
    assert broken([page]) == ["page.md: other.md#no-heading", "page.md: gone.md#"]
    lonely = tmp_path / "lonely.md"
    lonely.write_text("[back](page.md)\n")
    assert reached(page) == {page, other}
    assert reached(lonely) == {lonely, page, other}

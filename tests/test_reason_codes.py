"""Every reason code of a refusal is in the table of docs/guarantees.md, and the table has no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent
GUARANTEES = Path(__file__).parents[1] / "docs" / "guarantees.md"
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def codes_in_source(source: str, place: str = "source") -> set[str]:
    """First arguments of every ``RefusedError(...)``; one that is no literal could hide a code, and fails."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            assert "RefusedError" not in {_name(base) for base in node.bases}, f"{place}:{node.lineno} hides its codes"
        if isinstance(node, ast.Call) and _name(node.func) == "RefusedError":
            given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "reason")]
            code = ast.literal_eval(given[0]) if given and isinstance(given[0], ast.Constant) else None
            assert isinstance(code, str), f"{place}:{node.lineno} gives RefusedError a reason that is no literal"
            found.add(code)
        if isinstance(node, ast.ImportFrom):
            renamed = {alias.name for alias in node.names if alias.asname}
            assert "RefusedError" not in renamed, f"{place}:{node.lineno} imports RefusedError under another name"
    return found


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def codes_in_table(page: str) -> list[str]:
    """First cells of the table under "Refusals"."""
    section = page.split("\n## Refusals\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert rows[0] == "| code | why | what to do |"
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
    assert all(len(row) == 3 and all(row) for row in cells), "a row of the table of refusals is not filled in"
    return [row[0].strip("`") for row in cells]


def codes_of_tacit() -> set[str]:
    found: set[str] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        found |= codes_in_source(path.read_text(encoding="utf-8"), str(path.relative_to(SOURCE)))
    return found


def test_the_table_of_refusals_has_every_code_of_the_source_and_no_other() -> None:
    listed, raised = codes_in_table(GUARANTEES.read_text(encoding="utf-8")), codes_of_tacit()
    assert len(raised) > 15, "the search finds codes"
    assert len(listed) == len(set(listed)), "a code is listed twice"
    assert set(listed) - raised == set(), "codes that nothing raises"
    assert raised - set(listed) == set(), "codes that docs/guarantees.md does not explain"


def test_codes_are_words_joined_by_hyphens() -> None:
    assert [code for code in codes_of_tacit() if not CODE.fullmatch(code)] == []


def test_the_pages_that_have_a_table_of_their_own_use_the_same_codes() -> None:
    page = (GUARANTEES.parent / "confidentiality.md").read_text(encoding="utf-8")
    section = page.split("\n## Refusals\n")[1]
    own = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert own
    assert set(own) <= set(codes_in_table(GUARANTEES.read_text(encoding="utf-8")))


def test_a_code_is_found_however_it_is_raised() -> None:
    source = 'raise RefusedError(\n    "one", "text"\n)\nreturn_ = errors.RefusedError(reason="two", message="text")'
    assert codes_in_source(source) == {"one", "two"}


@pytest.mark.parametrize(
    "source",
    [
        "raise RefusedError(code, 'text')",
        "raise RefusedError(f'{a}-b', 'text')",
        "raise RefusedError()",
        "class Other(RefusedError): ...",
        "from tacit.errors import RefusedError as No",
    ],
)
def test_what_could_hide_a_code_fails(source: str) -> None:
    with pytest.raises(AssertionError):
        codes_in_source(source)


def test_a_missing_and_a_stale_row_are_seen() -> None:
    head = "# Page\n\n## Refusals\n\n| code | why | what to do |\n|---|---|---|\n"
    assert codes_in_table(head + "| `one` | why | what |\n\n## Next\n\n| `two` | b | c |\n") == ["one"]
    with pytest.raises(AssertionError):
        codes_in_table(head + "| `one` | | what |\n")

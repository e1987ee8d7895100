"""Every reason code of a refusal has its advice in `tacit.cli.refusals`, and no other code has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tacit
from tacit.cli.refusals import ADVICE

SOURCE = Path(tacit.__file__).parent
REFUSALS = SOURCE / "cli" / "refusals.py"
ROOT = Path(__file__).parents[1]
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


def codes_advised(source: str) -> list[str]:
    """The keys of ``ADVICE``, as they are written."""
    values = [node.value for node in ast.parse(source).body if isinstance(node, ast.AnnAssign)]
    return [ast.literal_eval(key) for one in values if isinstance(one, ast.Dict) for key in one.keys if key is not None]


def codes_of_tacit() -> set[str]:
    found: set[str] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        found |= codes_in_source(path.read_text(encoding="utf-8"), str(path.relative_to(SOURCE)))
    return found


@pytest.mark.slow
def test_every_code_of_the_source_has_its_advice_and_no_other() -> None:
    raised = codes_of_tacit()
    assert len(raised) > 15, "the search finds codes"
    assert set(ADVICE) - raised == set(), "codes that nothing raises"
    assert raised - set(ADVICE) == set(), "codes that tacit.cli.refusals does not explain"
    assert all(one.why.strip() and one.what_to_do.strip() for one in ADVICE.values())


def test_no_code_has_two_pieces_of_advice() -> None:
    """Of two rows of a dictionary with one key Python keeps the last and says nothing."""
    keys = codes_advised(REFUSALS.read_text(encoding="utf-8"))
    assert sorted(keys) == sorted(ADVICE)
    assert codes_advised('ADVICE: dict[str, str] = {"one": "a", "one": "b"}') == ["one", "one"]


@pytest.mark.slow
def test_codes_are_words_joined_by_hyphens() -> None:
    assert [code for code in codes_of_tacit() if not CODE.fullmatch(code)] == []


def test_the_page_on_confidentiality_names_codes_of_the_source() -> None:
    page = (ROOT / "docs" / "confidentiality.md").read_text(encoding="utf-8")
    own = re.findall(r"`([a-z]+(?:-[a-z]+){2,})`", page.split("\n## Refusals\n")[1].split(". Without a code:")[0])
    assert len(own) == 2
    assert set(own) <= codes_of_tacit()


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

"""The pages hang together: every link has its place, every page is found from the README, every recipe and benchmark is told of."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import subprocess
from pathlib import Path

import pytest
import yaml

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


@pytest.mark.slow
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


CHOSEN = {
    "a unit's band": "test_the_certificate_says_at_least_what_the_attack_shows",
    "words of a later round": "test_rounds_that_depend_on_each_other_are_bounded",
    "words of the first choice": "test_the_ledger_has_what_was_paid_first_in_front",
    "words to count": "test_one_unit_moves_at_most_max_words_counts_by_one",
    "tokenizer; Adam's moments": None,  # argued: what is computed from releases costs nothing
    "how a unit is cut": "test_several_maskings_of_a_unit_are_clipped_as_one",
    "sampling, clip, noise": "test_planning_again_is_free_and_planning_otherwise_is_refused",
    "the part that a unit is in": "test_parts_of_one_run_stay_apart_and_three_runs_have_all_combinations",
    "the fine-tuning of a release": "test_every_part_composes_with_each_part_and_they_not_with_each_other",
    "CRT: which record": "test_no_gradients_exceed_the_worst_pair",
    "selective DP": "test_states_cost_as_one_gaussian_mechanism",
    "noise by the batch": "test_the_literal_event_has_no_epsilon_and_says_why",
    "Renyi DP": "test_renyi_is_above_pld_and_pld_above_its_optimistic_estimate",
    "options that a person": None,  # assumed, and said so in the row
}
"""What an earlier release may choose, by the first words of its row in docs/guarantees.md, and the test of why the account holds."""


def test_whatever_a_release_may_choose_has_its_test() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    part = page.split("## Choosing by what was released")[1].split("\n## ")[0]
    rows = [row for row in re.findall(r"^\| ([^|]+?) \|", part, re.MULTILINE)[1:] if not row.startswith("---")]
    assert len(rows) == len(CHOSEN)
    assert all(row.startswith(first) for row, first in zip(rows, CHOSEN, strict=True))
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in CHOSEN.values() if name and f"def {name}(" not in tests] == []


GENERATED = re.compile(
    r"<!-- (?P<name>results|measured|measured of text|cards) -->.*?<!-- end of (?P=name) -->"
    r"|<!-- (?P<begin>begin: written by `[^`\n]+`) -->.*?<!-- end -->",
    flags=re.DOTALL,
)
"""What a program writes into a page: between `results` and `end of results`, or between `begin: written by ...` and `end`."""

BLOCKS = [
    ("docs/benchmarks.md", "begin: written by `python benchmarks/engine.py --markdown docs/benchmarks.md`"),
    ("docs/reliability.md", "begin: written by `make hostile`"),
    ("docs/reproduction-adp.md", "results"),
    ("docs/reproduction-crt.md", "results"),
    ("docs/reproduction-hoory.md", "results"),
    ("docs/scale.md", "measured"),
    ("docs/scale.md", "measured of text"),
    ("docs/scale.md", "cards"),
]
"""All of them, by page and first line: a pair of comments anywhere else would hide what a person wrote."""

NOT_COUNTED = ("docs/options.md", "docs/reference/", "docs/schema/")
"""Written by programs from the source, and looked up, not read through."""

MOST_WORDS = 35_000
"""At most so many may the README and the pages below docs have, without those of `NOT_COUNTED` and without the `BLOCKS`."""


def words(text: str) -> int:
    """What stands between blanks and holds a letter or a digit, without what a program wrote."""
    return sum(any(character.isalnum() for character in word) for word in GENERATED.sub(" ", text).split())


def counted() -> dict[str, str]:
    """Names and texts of the pages whose words count."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = {page.relative_to(ROOT).as_posix(): page for page in pages}
    return {name: page.read_text(encoding="utf-8") for name, page in names.items() if not name.startswith(NOT_COUNTED)}


def test_the_pages_are_short_enough_to_be_read() -> None:
    lengths = {name: words(text) for name, text in counted().items()}
    assert {
        "README.md",
        "docs/guarantees.md",
        "docs/cases/user-chats.md",
        "docs/decisions/0001-one-ledger-joint-account.md",
    } <= set(lengths)
    longest = sorted(lengths, key=lambda name: -lengths[name])[:5]
    assert sum(lengths.values()) <= MOST_WORDS, f"shorten, for example: {', '.join(longest)}"


def test_nothing_but_what_these_programs_write_is_left_out() -> None:
    found = [
        (name, block["name"] or block["begin"])
        for name, text in counted().items()
        for block in GENERATED.finditer(text)
    ]
    assert found == BLOCKS


def test_words_are_counted_as_a_reader_would() -> None:
    assert words("| a | - | 1.0 |\n|---|--:|---|\n\n    x <= y\n") == 4
    assert words("one <!-- results -->\ntwo three\n<!-- end of results --> four") == 2
    assert words("one <!-- begin: written by `x` -->\ntwo three\n<!-- end --> four") == 2
    assert words("one <!-- results -->\ntwo\n<!-- end of other --> four") == 7  # no block: it does not end
    # known wrong: any pair of comments would hide what a person wrote between them
    assert words("one <!-- other -->\ntwo three\n<!-- end of other --> four") == 8
    assert words("one <!-- begin: aside -->\ntwo three\n<!-- end --> four") == 7
    # known wrong: a greedy pattern would take what a person wrote between two blocks for a program's
    assert words("<!-- cards -->\nx\n<!-- end of cards -->\none two\n<!-- cards -->\ny\n<!-- end of cards -->") == 2


READERS = re.compile(r"For (?:an? |those |who|everybody)\S* .*\bAfterwards\s+you\s+can\b", flags=re.DOTALL)
"""How a page begins: whom it is for, and what they can do when they have read it."""


def first_paragraph(text: str) -> str:
    """The lines below the title, up to the next blank line."""
    title, _, rest = text.partition("\n")
    assert title.startswith("# "), title
    return rest.strip("\n").split("\n\n")[0]


def test_every_page_says_first_whom_it_is_for_and_what_they_can_do_after_it() -> None:
    pages = sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "options.md"})
    assert len(pages) > 25
    beginnings = {page.name: first_paragraph(page.read_text(encoding="utf-8")) for page in pages}
    assert [name for name, beginning in beginnings.items() if not READERS.match(beginning)] == []


@pytest.mark.parametrize(
    "beginning",
    [
        "What privacy costs. Afterwards you can plan.",
        "For those who plan: what privacy costs.",
        "| word | meaning |\n\nFor those who plan. Afterwards you can look words up.",
        "For example, a run. Afterwards you can plan.",
    ],
)
def test_a_page_without_its_readers_is_found(beginning: str) -> None:
    assert READERS.match(first_paragraph("# A page\n\nFor those who plan.\nAfterwards you can plan.\n\nMore."))
    assert not READERS.match(first_paragraph(f"# A page\n\n{beginning}\n"))


def parsed(page: str) -> dict[str, int]:
    """How many blocks of each language a page has, each read by its language's own parser."""
    found: dict[str, int] = {}
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL):
        if language == "python":
            ast.parse(block)
        elif language == "yaml":
            assert isinstance(yaml.safe_load(block), dict)
        else:
            subprocess.run(["bash", "-n"], input=block, text=True, check=True, capture_output=True)
        found[language] = found.get(language, 0) + 1
    return found


def test_what_starts_several_processes_is_read_by_its_own_parser() -> None:
    """Slurm's, Kubernetes' and Ray's files were not run here: that they can be read is all that is known of them."""
    page = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    assert parsed(page).keys() == {"python", "sh", "yaml"}
    for name in ("srun torchrun", "command: [torchrun", '["torchrun"'):
        assert name in page


@pytest.mark.parametrize("block", ["sh\nsrun (torchrun\n", "yaml\n- {a: b\n", "python\nray.get(\n"])
def test_a_file_that_no_parser_reads_is_found(block: str) -> None:
    with pytest.raises((subprocess.CalledProcessError, yaml.YAMLError, SyntaxError)):
        parsed(f"```{block}```\n")


FRAGMENT = re.compile(r"(As|At|Before|Behind|By|For|From|In|Not|Of|On|Other|The same|Those|To|With|Without)\b")


def fragments(source: str) -> list[str]:
    """First lines of docstrings that begin with a part of a sentence that is not there."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    said = [ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return [text.splitlines()[0] for text in said if text and FRAGMENT.match(text)]


def test_docstrings_begin_with_what_they_are_of() -> None:
    source = ROOT / "src" / "tacit"
    paths = sorted(source.rglob("*.py"))
    assert {path.parent.name for path in paths} >= {"tacit", "config", "engine", "spark", "vocabulary"}
    found = {str(path.relative_to(source)): fragments(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_docstring_without_its_subject_is_found() -> None:
    assert fragments('def f():\n    """Of a phase."""') == ["Of a phase."]
    assert fragments('class F:\n    """The same, made anew."""') == ["The same, made anew."]
    assert fragments('def f():\n    """The phases of a run."""') == []

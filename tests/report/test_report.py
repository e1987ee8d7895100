"""The three files: nothing gets out of its place, nothing is lost, equal data give equal bytes, a failure changes nothing."""

from __future__ import annotations

import copy
import hashlib
import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from markupsafe import Markup

from tacit.errors import DataError
from tacit.report import build
from tacit.report.build import CARD, HTML, JSON, build_report, render
from tacit.report.schema import CONTROL, ReportData

from .example import example_coins, example_exposure, example_report_data, with_attacks
from .pages import duplicate_ids, foreign_markup, foreign_tokens, number, parse_html, parse_markdown, table

HOSTILE = (
    """<script>alert("x")</script>'"&{{ 7*7 }}{% endif %}<img src="//evil.example/p" onerror=alert(1)>"""
    """ --> ]]> </style></title> $\\frac{ ![p](//evil.example/q) [a](//evil.example) `c` | *b* <b>"""
)
FILES = (HTML, JSON, CARD)


# --- hostile text ----------------------------------------------------------------------------------------------------


def _places(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all strings, those of dictionary keys of ``parameters`` with a trailing marker."""
    if isinstance(values, dict):
        for key, value in values.items():
            if path[-1:] == ("parameters",):
                yield (*path, key, _places)
            yield from _places(value, (*path, key))
    elif isinstance(values, list | tuple):
        for index, value in enumerate(values):
            yield from _places(value, (*path, index))
    elif isinstance(values, str):
        yield path


def _replaced(values: dict[str, Any], path: tuple[Any, ...], text: str) -> dict[str, Any]:
    changed = copy.deepcopy(values)
    *parents, last = path[:-1] if path[-1] is _places else path
    target = changed
    for step in parents:
        target = target[step]
    if path[-1] is _places:
        target[text] = target.pop(last)
    else:
        target[last] = text
    return changed


def _hostile_data(**options: bool) -> tuple[ReportData, dict[tuple[Any, ...], str]]:
    """The example with hostile text in every place that takes free text, and what went where."""
    values = json.loads(example_report_data(**options).model_dump_json())
    placed: dict[tuple[Any, ...], str] = {}
    for count, path in enumerate(list(_places(values))):
        text = f"t{count}t {HOSTILE}"
        changed = _replaced(values, path, text)
        try:
            ReportData.model_validate(changed)
        except ValueError:
            continue
        values, placed[path] = changed, text
    return ReportData.model_validate(values), placed


def _without_verdict(written: ReportData) -> ReportData:
    """The facts alone: report.json also has the page's first words, which are computed from them."""
    assert written.verdict is not None
    return written.model_copy(update={"verdict": None})


@pytest.mark.parametrize("options", [{}, {"curator_copy": True}, {"proved": False}])
def test_hostile_text_is_only_text(options: dict[str, bool]) -> None:
    data, placed = _hostile_data(**options)
    assert len(placed) > 50
    files = render(data)
    assert foreign_markup(files[HTML]) == []
    assert foreign_tokens(files[CARD]) == []
    assert "{{ 7*7 }}" in files[HTML]
    assert _without_verdict(ReportData.model_validate_json(files[JSON])) == data


def test_every_text_arrives_whole_in_the_page() -> None:
    data, placed = _hostile_data()
    page = parse_html(render(data)[HTML])
    labels = [attributes["aria-label"] for _, attributes in page.tags if "aria-label" in attributes]
    missing = {path for path, value in placed.items() if value not in "".join((page.text, *labels))}
    # the licence is for the model card alone, and which rows are one test for whoever counts them
    assert {path for path in missing if path[-1] != "test"} == {("license",)}


def test_the_card_keeps_hostile_text_as_text() -> None:
    data, _ = _hostile_data()
    card = render(data)[CARD]
    shown = "".join(token.content for token in parse_markdown(card) if token.type in ("text", "text_special"))
    assert data.title in shown
    assert yaml.safe_load(card.split("---\n")[1])["license"] == data.license


def test_the_check_sees_a_page_without_escaping() -> None:
    data, _ = _hostile_data()
    page = build.environment().overlay(autoescape=False).get_template("report.html.j2").render(build.context(data))
    found = foreign_markup(page)
    assert "<script>" in found
    assert "img onerror" in found


def test_the_check_sees_a_card_without_escaping() -> None:
    data, _ = _hostile_data()
    careless = build.environment()
    careless.filters["md"] = Markup
    found = foreign_tokens(careless.get_template("card.md.j2").render(build.context(data)))
    assert {"html_inline", "link_open", "image"} <= set(found)


# --- one self-contained page -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"curator_copy": True}, {"proved": False}])
def test_the_page_fetches_and_runs_nothing(options: dict[str, bool]) -> None:
    html = render(example_report_data(**options))[HTML]
    page = parse_html(html)
    assert "://" not in html
    assert "url(#" in html
    assert not {"script", "link", "img", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    assert not {"src", "srcset", "onload", "onclick"} & {name for _, attributes in page.tags for name in attributes}
    assert (
        "meta",
        {"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"},
    ) in (page.tags)
    assert "@import" not in html


def test_identifiers_are_unique_and_references_resolve() -> None:
    html = render(example_report_data(curator_copy=True))[HTML]
    assert duplicate_ids(html) == set()
    identifiers = {attributes["id"] for _, attributes in parse_html(html).tags if "id" in attributes}
    values = [value for _, attributes in parse_html(html).tags for value in attributes.values()]
    pointers = {v.removeprefix("url(").removesuffix(")") for v in values if v.startswith(("#", "url(#"))}
    assert len(pointers) > 3
    assert {pointer.removeprefix("#") for pointer in pointers} <= identifiers


def test_sections_are_in_order_and_print_is_thought_of() -> None:
    html = render(example_report_data())[HTML]
    sections = [
        attributes["id"] for tag, attributes in parse_html(html).tags if tag == "section" and "id" in attributes
    ]
    assert sections == [
        "verdict",
        "whose",
        "guarantee",
        "curve",
        "ledger",
        "audit",
        "attack-exposure",
        "utility",
        "training",
        "verify",
        "asked",
        "identifiers",
        "glossary",
    ]
    assert "@page { size: A4" in html
    assert "@media print" in html


# --- what must be there ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("proved", [True, False])
def test_all_numbers_of_the_ledger_are_in_the_page(proved: bool) -> None:
    data = example_report_data(proved=proved)
    rows = table(render(data)[HTML], "ledger")
    assert len(rows) == len(data.ledger)
    for row, entry in zip(rows, data.ledger, strict=True):
        assert number(row["No."]) == entry.sequence
        assert number(row["Times"]) == entry.count
        assert row["Units read"] == entry.partition
        assert row["Digest"] == entry.digest
        assert row["Stage"] == f"{entry.stage} {entry.mechanism}"
        # an upper bound is never shown smaller than it is
        assert entry.epsilon_alone <= number(row["ε alone"]) <= entry.epsilon_alone * 1.01
        for name, value in entry.parameters.items():
            shown = row["Parameters"].split(name.replace("_", " "))[1].split()[0]
            assert number(shown) == pytest.approx(value, rel=1e-5)


def test_all_measurements_are_in_the_page() -> None:
    data = example_report_data(curator_copy=True)
    html = render(data)[HTML]
    for row, measured in zip(table(html, "attack-exposure"), data.attacks[0].rows, strict=True):
        assert (row["What"], row["Model"]) == (measured.name, measured.model)
        assert row["Found"].endswith("bits")
        shown = [number(row["Found"].split()[0]), *(number(row[name]) for name in ("Chance", "Ceiling", "p-value"))]
        assert shown == pytest.approx((measured.value, measured.null, measured.ceiling, measured.p_value), rel=1e-2)
        for name, value in measured.parameters.items():
            assert number(row[name]) == pytest.approx(value, rel=1e-2)
    for row, used in zip(table(html, "utility"), data.utility, strict=True):
        assert row["Model"] == used.model
        assert row["Text"].startswith(used.corpus)
        assert used.note in row["Text"]
        assert (row["Perplexity"] == "–") == (used.perplexity is None)
    for file in data.files:
        assert {"File": file.path, "SHA-256": file.sha256} in table(html, "verify")
    assert data.config_digest in html
    assert data.ledger_head in html


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize("options", [{}, {"curator_copy": True}, {"proved": False}])
def test_json_is_json_and_gives_the_data_back(options: dict[str, bool]) -> None:
    data = example_report_data(**options)
    text = render(data)[JSON]
    values = json.loads(text, parse_constant=_no_constant)
    assert _without_verdict(ReportData.model_validate(values)) == data
    assert _without_verdict(ReportData.model_validate_json(text)) == data
    assert values["verdict"]["headline"] in html.unescape(render(data)[HTML])
    epsilons = [pair["epsilon"] for pair in values["guarantee"]["epsilons"]]
    assert ("infinity" in epsilons) == (not data.guarantee.is_proved)


def test_the_control_is_in_the_curators_copy_only() -> None:
    public, curator = render(example_report_data()), render(example_report_data(curator_copy=True))
    banner = "holds values outside the guarantee; do not publish"
    for name in FILES:
        assert CONTROL not in public[name]
    for name in (HTML, CARD):
        assert banner not in public[name]
        assert banner in curator[name]
    assert [row["Model"] for row in table(curator[HTML], "attack-exposure")].count(CONTROL) == 2


def test_all_rows_of_an_attack_are_in_the_card() -> None:
    """The null beside every value, also where nobody opens the page."""
    data = example_report_data(curator_copy=True)
    tables = [[cell.strip() for cell in line.split("|")[1:-1]] for line in render(data)[CARD].splitlines()]
    shown = [cells for cells in tables if len(cells) == 7 and cells[0] not in ("what", "---")]
    rows = [row for attack in data.attacks for row in attack.rows]
    for cells, row in zip(shown, rows, strict=True):
        assert cells[:2] == [row.name, row.model]
        assert number(cells[2].split()[0]) == pytest.approx(row.value, rel=1e-2)
        assert number(cells[3]) == pytest.approx(row.null, rel=1e-2)


def test_a_row_without_a_null_says_why() -> None:
    exposure = example_exposure(curator_copy=False)
    row = exposure.rows[0].model_copy(
        update={"null": None, "without_null": "no law is known", "judged": False, "p_value": None}
    )
    data = with_attacks(example_report_data(), exposure.model_copy(update={"rows": (row, exposure.rows[1])}))
    for name in (HTML, CARD):
        assert "no law is known" in render(data)[name]


def test_all_numbers_of_membership_are_in_the_curators_page() -> None:
    data = example_report_data(curator_copy=True)
    html = render(data)[HTML]
    for row, measured in zip(table(html, "attack-membership"), data.attacks[1].rows, strict=True):
        assert (row["What"], row["Model"]) == (measured.name, measured.model)
        assert number(row["members"]) == measured.parameters["members"]
        assert number(row["Chance"]) == measured.null
        assert measured.interval is not None
        baseline = measured.baseline
        wanted = ([measured.value, *measured.interval], [] if baseline is None else [*baseline.model_dump().values()])
        for name, expected in zip(("Found", "Without a model"), wanted, strict=True):
            assert [number(part) for part in re.findall(r"[\d.]+", row[name])] == pytest.approx(expected, rel=1e-2)


def test_membership_is_in_the_curators_copy_only() -> None:
    """In no file of the public one is there a word or a number of it; in all files of the other there is."""
    public, curator = render(example_report_data()), render(example_report_data(curator_copy=True))
    for name, needle in (
        (HTML, 'id="attack-membership"'),
        (HTML, "0.516"),
        (JSON, "0.516"),
        (CARD, "51.6"),
        (CARD, "held out"),
    ):
        assert needle not in public[name]
        assert needle in curator[name]
    assert [attack["name"] for attack in json.loads(public[JSON])["attacks"]] == ["exposure"]


def test_whose_epsilons_and_the_curve_are_in_the_page() -> None:
    data = example_report_data()
    html = render(data)[HTML]
    for row, stated in zip(table(html, "whose"), data.whose, strict=True):
        assert row["Whose text"] == stated.who
        if stated.epsilon < 1e300:
            assert stated.epsilon <= number(row["ε"]) <= 1.01 * stated.epsilon
        else:
            assert row["ε"] == "none at this δ"
        assert (
            stated.success <= number(row["Right at most"].split("\N{NO-BREAK SPACE}")[0]) / 100 <= stated.success + 0.01
        )
    found = [number(row["Found at most"].split("\N{NO-BREAK SPACE}")[0]) for row in table(html, "curve")]
    assert found == pytest.approx([1.6, 4.0, 27.1, 68.6], abs=0.11)


def test_a_lower_bound_stands_beside_the_proved_one() -> None:
    data = with_attacks(example_report_data(), example_coins())
    for text in (parse_html(render(data)[HTML]).text, render(data)[CARD]):
        assert "0.628" in text  # rounded down
        assert "0.629" not in text
        assert "5.81" in text
    assert "not tested" not in render(data)[HTML]
    assert table(render(data)[HTML], "curve")[-1]["Found"].startswith("0.083")
    without = render(example_report_data())
    assert "not tested" in without[HTML]
    assert "not tested" in without[CARD]


def test_a_lower_bound_above_the_proof_says_so() -> None:
    text = parse_html(render(with_attacks(example_report_data(), example_coins(value=2.9)))[HTML]).text
    assert "Do not publish" in text


def test_a_lower_bound_that_rests_on_an_assumption_contradicts_no_proof() -> None:
    coins = example_coins(value=2.9)
    assumed = coins.rows[0].model_copy(update={"assumes": "the scores of different examples are independent"})
    model_based = coins.model_copy(update={"rows": (assumed, *coins.rows[1:])})
    text = parse_html(render(with_attacks(example_report_data(), model_based))[HTML]).text
    assert "Do not publish" not in text


def test_an_attack_too_small_to_contradict_says_so() -> None:
    coins = example_coins(ceiling=1.5)
    wordless = coins.model_copy(update={"rows": (coins.rows[0].model_copy(update={"words": ""}), *coins.rows[1:])})
    text = parse_html(render(with_attacks(example_report_data(), wordless))[HTML]).text
    assert "could not have contradicted the proof" in text


def test_nothing_is_called_compliant() -> None:
    for text in render(example_report_data(curator_copy=True)).values():
        assert "complian" not in text.lower()


def test_an_infinite_epsilon_is_called_no_guarantee() -> None:
    files = render(example_report_data(proved=False))
    text = parse_html(files[HTML]).text
    assert "No guarantee" in text
    assert "ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}infinity at every δ" in text
    assert "proved limit" not in text
    assert "2.79" not in text
    front = yaml.safe_load(files[CARD].split("---\n")[1])
    assert "differential-privacy" not in front["tags"]
    assert "no-privacy-guarantee" in front["tags"]
    assert "No guarantee" in files[CARD]


def test_the_cards_front_matter_is_what_the_hub_reads() -> None:
    front = yaml.safe_load(render(example_report_data())[CARD].split("---\n")[1])
    assert front == {
        "license": "other",
        "tags": ["tacit", "differential-privacy"],
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
    }


def test_a_run_without_audit_or_measurements_still_has_a_report() -> None:
    values = example_report_data().model_dump() | {"attacks": (), "utility": (), "files": (), "budget_epsilon": None}
    text = parse_html(render(ReportData.model_validate(values))[HTML]).text
    assert "No attack was run" in text
    assert "Nothing was measured" in text


# --- files -----------------------------------------------------------------------------------------------------------


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_three_files_are_written_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "release"
    build_report(example_report_data(), folder)
    first = _bytes(folder)
    assert set(first) == set(FILES)
    build_report(example_report_data(proved=False), folder)
    assert set(_bytes(folder)) == set(FILES)
    assert all(_bytes(folder)[name] != first[name] for name in FILES)


def test_a_failing_template_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_report(example_report_data(), tmp_path)
    before = _bytes(tmp_path)
    broken = build.environment()
    # the last of the three to be rendered: whoever writes as it renders has replaced two by then
    broken.loader = jinja2.ChoiceLoader([jinja2.DictLoader({"card.md.j2": "{{ unknown_name }}"}), broken.loader])
    monkeypatch.setattr(build, "_template", broken.get_template)
    with pytest.raises(jinja2.UndefinedError):
        build_report(example_report_data(proved=False), tmp_path)
    assert _bytes(tmp_path) == before


def test_a_folder_that_cannot_be_written_is_a_data_error_and_leaves_no_partial_file(tmp_path: Path) -> None:
    (tmp_path / CARD).mkdir()
    with pytest.raises(DataError, match="cannot write the report into"):
        build_report(example_report_data(), tmp_path)
    assert set(_bytes(tmp_path)) <= {HTML, JSON}
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError):
        build_report(example_report_data(), tmp_path / "file" / "release")


@pytest.mark.slow
def test_equal_data_give_equal_bytes_in_another_process(tmp_path: Path) -> None:
    """Another hash seed, another folder, and a user's matplotlib settings must not show."""
    build_report(example_report_data(curator_copy=True), tmp_path)
    build_report(example_report_data(curator_copy=True), tmp_path / "again")
    assert _bytes(tmp_path) == _bytes(tmp_path / "again")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "matplotlibrc").write_text("font.size: 20\nsvg.fonttype: path\naxes.grid: True\n")
    (tmp_path / "data.json").write_text(example_report_data(curator_copy=True).model_dump_json())
    code = (
        "import sys, pathlib; from tacit.report.build import build_report; from tacit.report.schema import ReportData; "
        "build_report(ReportData.model_validate_json(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path('.'))"
    )
    source = Path(build.__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONHASHSEED": "7", "LC_ALL": "C", "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-c", code, str(tmp_path / "data.json")]
    subprocess.run(command, cwd=tmp_path / "other", env=environment, check=True, capture_output=True)
    for name in FILES:
        mine, other = ((folder / name).read_bytes() for folder in (tmp_path, tmp_path / "other"))
        assert hashlib.sha256(mine).hexdigest() == hashlib.sha256(other).hexdigest()

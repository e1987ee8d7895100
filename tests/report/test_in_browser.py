"""The report in a browser, at three widths, light and dark: no script, no request, nothing too wide, everything readable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit.report.build import HTML, render
from tacit.report.schema import ReportData

from .browser import Browser, chromium
from .example import example_coins, example_report_data, with_attacks

WIDTHS = (400, 800, 1280)

TOO_WIDE = """(() => {
  const wide = [...document.querySelectorAll("body *")].filter(element => {
    if (element.closest("thead") && getComputedStyle(element.closest("thead")).position === "absolute") return false;
    const box = element.getBoundingClientRect();
    return box.width > 0 && (box.right > innerWidth + 0.5 || box.left < -0.5);
  }).map(element => element.tagName + " " + element.textContent.slice(0, 40));
  return document.documentElement.scrollWidth > innerWidth ? ["the page", ...wide] : wide;
})()"""
"""Elements that reach beyond the window."""

HARD_TO_READ = """(() => {
  const parts = color => (color.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = parts(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim(), element = walk.currentNode.parentElement;
    if (!text || !element || element.tagName === "title") continue;
    const style = getComputedStyle(element), svg = element.namespaceURI.endsWith("svg");
    const [one, other] = [light(parts(svg ? style.fill : style.color)), light(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 600);
    seen += 1;
    if (ratio < (large ? 3 : 4.5)) found.push(text.slice(0, 40) + " " + ratio.toFixed(2));
  }
  return seen > 100 ? found : ["only " + seen + " texts"];
})()"""
"""Texts below the contrast of WCAG 2.2, level AA: 4.5, or 3 in large type."""

SCRIPTS = """[document.scripts.length, [...document.querySelectorAll("*")].filter(
  element => [...element.attributes].some(one => one.name.startsWith("on"))).length]"""

PICTURES = """[...document.querySelectorAll("svg.plot")].map(
  picture => [picture.getAttribute("role"), picture.getAttribute("aria-label"), picture.getBoundingClientRect().width])"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        reason = os.environ.get("TACIT_NO_BROWSER", "")
        if os.environ.get("CI") and not reason:
            pytest.fail("CI has to have a Chromium: apt-get install chromium")
        pytest.skip(reason or "no Chromium here: apt-get install chromium")
    with Browser(program) as found:
        yield found


def _everything() -> ReportData:
    data = example_report_data(curator_copy=True)
    return with_attacks(data, *data.attacks, example_coins())


PAGES = {"everything": _everything(), "no guarantee": example_report_data(proved=False)}


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / HTML
    path.write_text(render(PAGES[request.param])[HTML], encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_can_be_read(browser: Browser, page: Path, width: int, scheme: str) -> None:
    browser.show(page, width, scheme)
    assert browser.evaluate(TOO_WIDE) == []
    assert browser.evaluate(HARD_TO_READ) == []
    assert browser.evaluate(SCRIPTS) == [0, 0]
    assert browser.requests == [page.absolute().as_uri()]
    pictures = browser.evaluate(PICTURES)
    assert all(role == "img" and label and 0 < wide <= width for role, label, wide in pictures)
    dark = sum(browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")) < 150
    assert dark == (scheme == "dark")


def test_on_paper_it_is_light_and_the_verdict_is_on_the_first_page(browser: Browser, page: Path) -> None:
    browser.show(page, 672, "dark", media="print")  # A4 without its margins, 672 times 994
    assert 0 < browser.evaluate('document.querySelector("#verdict").getBoundingClientRect().bottom') <= 994
    assert browser.evaluate(TOO_WIDE) == []
    assert browser.evaluate(HARD_TO_READ) == []
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_checks_see_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "wrong.html"
    many = "".join(f"<p>text {number}</p>" for number in range(120))
    path.write_text(
        f"<body>{many}<p style='width: 900px'>wide</p><p style='color: #999; background: #fff'>pale</p>"
        "<svg class='plot'><text y='9' fill='#ccc'>faint</text></svg><img src='gone.png' onerror='1'><script>1</script>"
    )
    browser.show(path, 400, "light")
    assert browser.evaluate(TOO_WIDE) == ["the page", "P wide"]
    assert [found.split()[0] for found in browser.evaluate(HARD_TO_READ)] == ["pale", "faint"]
    assert browser.evaluate(SCRIPTS) == [1, 1]
    assert len(browser.requests) == 2

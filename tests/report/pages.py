"""Reading a report back: what the tests know of HTML and of Markdown, by parsers that are not ours."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = [
    "Page",
    "duplicate_ids",
    "foreign_markup",
    "foreign_tokens",
    "number",
    "parse_html",
    "parse_markdown",
    "table",
]

HTML_TAGS = re.compile(
    "html|head|meta|title|style|body|header|main|nav|a|ol|section|div|p|h1|h2|h3|ul|li|dl|dt|dd|span|strong|b|br|code|pre|"
    "table|thead|tbody|tr|th|td|figure|figcaption|footer"
)
SVG_TAGS = re.compile("svg|defs|g|path|text|use|clippath|rect|tspan")
ATTRIBUTES = re.compile(
    "lang|charset|name|content|http-equiv|class|id|role|style|data-label|aria-label|colspan|"
    "viewbox|d|x|y|transform|clip-path|href|width|height"
)


@dataclass
class Page:
    """The elements of a page in order, its text, and its rows of cells by section."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    rows: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All text, white space as in the source."""
        return "".join(self.strings)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.section, self.cell = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.page.tags.append((tag, attributes))
        self.section = attributes.get("id", self.section) if tag == "section" else self.section
        if tag == "tr":
            self.page.rows.setdefault(self.section, []).append({})
        if tag == "td":
            self.cell = attributes.get("data-label", "")
        if tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        self.cell = "" if tag == "td" else self.cell

    def handle_data(self, data: str) -> None:
        self.page.strings.append(data)
        if self.cell:
            row = self.page.rows[self.section][-1]
            row[self.cell] = row.get(self.cell, "") + data


def parse_html(html: str) -> Page:
    """The page as Python's HTML parser reads it."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.page


def foreign_markup(html: str) -> list[str]:
    """Elements and attributes that the report's own templates and plots never make; empty for a page without injection."""
    found = []
    for tag, attributes in parse_html(html).tags:
        if not (HTML_TAGS.fullmatch(tag) or SVG_TAGS.fullmatch(tag)):
            found.append(f"<{tag}>")
        found += [f"{tag} {name}" for name in attributes if not ATTRIBUTES.fullmatch(name)]
        found += [f"{tag} {name}={value}" for name, value in attributes.items() if name == "href" and value[:1] != "#"]
    return found


def duplicate_ids(html: str) -> set[str]:
    """Identifiers that more than one element has."""
    identifiers = [attributes["id"] for _, attributes in parse_html(html).tags if "id" in attributes]
    return {identifier for identifier in identifiers if identifiers.count(identifier) > 1}


def table(html: str, section: str) -> list[dict[str, str]]:
    """The body rows of a section's tables, cells by label."""
    return [row for row in parse_html(html).rows.get(section, []) if row]


def number(text: str) -> float:
    """A number as the report writes it: ``12,000``, ``2.5 × 10⁻⁶``, ``infinity``."""
    plain = text.strip().replace(",", "").replace("\N{NO-BREAK SPACE}", "")
    power = re.fullmatch("(?:(.+)×)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", plain)
    if power:
        exponent = power[2].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        return float(f"{power[1] or 1}e{exponent}")
    return float(plain)


def parse_markdown(markdown: str) -> list[Token]:
    """The card's body as CommonMark with tables, raw HTML and links as a viewer would read it."""
    body = markdown.split("\n---\n", 1)[1]
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    return [inner for token in tokens for inner in (token, *(token.children or ()))]


def foreign_tokens(markdown: str) -> list[str]:
    """Kinds of tokens that no value may bring into a card."""
    unwanted = {"html_block", "html_inline", "link_open", "image", "em_open", "s_open"}
    return [token.type for token in parse_markdown(markdown) if token.type in unwanted]

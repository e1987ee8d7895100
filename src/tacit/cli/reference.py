"""The option reference, docs/options.md, made from what the options are checked with: the configuration's models and the commands.

``python -m tacit.cli.reference docs/options.md`` writes the page; a test fails when it is not fresh.

A section is a model of `tacit.config`, a row is one of its options: its words are the entry of that name under ``Args:`` in the
docstring of the model, its values come from the field's type and bounds, its default from the field. A section of a command has its
options and their help.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import annotated_types
import typer
from pydantic.fields import FieldInfo

from tacit.by_name import ByName
from tacit.config.base import NameIn, Options
from tacit.config.compare import ComparisonConfig
from tacit.config.finetune import FinetuneConfig
from tacit.config.run import RunConfig

__all__ = ["Section", "all_commands", "argument_words", "option_words", "page", "section_page", "sections"]

ROOTS: dict[str, type[Options]] = {
    "tacit run": RunConfig,
    "tacit finetune": FinetuneConfig,
    "tacit compare": ComparisonConfig,
}
_FREE = 10**9
"""Upper bounds from here on keep products within floating point, and nobody meets them: the page leaves them out."""

_HEAD = """# All options

For those who write a configuration or a command line. You find here what each option means, which values it takes, and what holds
when you leave it out. The [tour](tour.md) says when you need it.

This page is made by `python -m tacit.cli.reference docs/options.md` from the models that check a configuration. Do not edit it:
change the docstring of the model. *required*: there is no default. *none*: the option may be left out. Upper bounds of 10^9 and more
are not shown. Unknown options are refused, and the nearest valid name is shown.
"""


@dataclass(frozen=True)
class Section:
    """A model of options and where it stands in a configuration.

    ``names``: the rows that it shows; those of a section before it (``inherits``) are not shown again.
    """

    root: str
    place: str
    model: type[Options]
    inherits: str | None = None
    names: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """The heading."""
        if not self.place:
            return f"{self.root}: top level"
        return f"`{self.place}`" if self.root == "tacit run" else f"{self.root}: `{self.place}`"

    @property
    def anchor(self) -> str:
        """The heading's place on the page."""
        return _anchor(self.title)


def sections() -> list[Section]:
    """Every section of the three configurations, each model once, in the order of the options that hold them."""
    found: dict[type[Options], Section] = {}
    for root, model in ROOTS.items():
        _collect(found, root, "", model)
    return list(found.values())


def _collect(found: dict[type[Options], Section], root: str, place: str, model: type[Options]) -> None:
    if model in found:
        return
    base = _base(model)
    if base is not None and base not in found:
        found[base] = Section(root, f"{place.split(':')[0]}: every plan", base, None, tuple(base.model_fields))
    inherited = set(base.model_fields) if base is not None else set()
    own = tuple(name for name in model.model_fields if name not in inherited or name in inspect.get_annotations(model))
    found[model] = Section(root, place, model, found[base].title if base is not None else None, own)
    for name in own:
        for inner in _models(model.model_fields[name].annotation):
            plan = inner.model_fields.get("plan")
            suffix = f": plan {typing.get_args(plan.annotation)[0]}" if plan is not None else ""
            _collect(found, root, f"{place}.{name}{suffix}" if place else f"{name}{suffix}", inner)


def _base(model: type[Options]) -> type[Options] | None:
    """The section whose options a model has as well, if it is made from one."""
    above = model.__mro__[1]
    return above if above is not Options and issubclass(above, Options) and above.model_fields else None


def _models(annotation: Any) -> Iterator[type[Options]]:
    """The sections that a type holds."""
    for one in getattr(annotation, "__metadata__", ()):
        if isinstance(one, ByName):
            yield from (row for row in one.registry.values() if issubclass(row, Options))
            return
    if isinstance(annotation, type) and issubclass(annotation, Options):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models(inner)


# words ---------------------------------------------------------------------------------------------------------------


def option_words(model: type[Options]) -> dict[str, str]:
    """What the ``Args:`` of a model's docstring, and of those that it is made from, say of each option.

    >>> option_words(RunConfig)["title"]
    'heading of the report.'
    """
    words: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if isinstance(kind, type) and issubclass(kind, Options):
            words |= argument_words(inspect.getdoc(kind) or "" if "__doc__" in vars(kind) else "")
    return words


def argument_words(docstring: str) -> dict[str, str]:
    """What the ``Args:`` of a docstring say of each."""
    _, _, after = docstring.partition("\nArgs:\n")
    found: dict[str, str] = {}
    name = ""
    for line in after.splitlines():
        if line and not line.startswith("    "):
            break  # another part of the docstring
        start = re.match(r"    (\w+): (.*)", line)
        if start is not None:
            name = start.group(1)
            found[name] = start.group(2)
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found


def _introduction(model: type[Options]) -> str:
    """What a docstring says before its ``Args:``, for a reader of the page."""
    words = (inspect.getdoc(model) or "").partition("\nArgs:\n")[0]
    return _markdown(" ".join(words.split()))


def _markdown(words: str) -> str:
    """Words of a docstring for a cell of a table on a page in docs/."""
    code = words.replace("``", "`").replace("|", "\\|")
    return re.sub(r"\bdocs/([\w-]+\.md)(#[\w-]+)?", r"[\1](\1\2)", code)


# values --------------------------------------------------------------------------------------------------------------


def _values(info: FieldInfo) -> str:
    """The type, choices and bounds of an option in words."""
    return _of_type(info.annotation, tuple(info.metadata))


def _of_type(kind: Any, metadata: tuple[Any, ...] = ()) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _of_type(inner[0], (*metadata, *(part for one in inner[1:] for part in _parts(one))))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_of_type(one, metadata) for one in inner if one is not types.NoneType))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is tuple:
        return _of_list(inner, metadata)
    if origin in (dict, Mapping):
        return "a section of its own" if inner[1] is Any else f"a mapping of names, each to {_of_type(inner[1])}"
    if isinstance(kind, type) and issubclass(kind, Options):
        return "a section"
    return _of_scalar(kind, metadata)


def _of_list(inner: tuple[Any, ...], metadata: tuple[Any, ...]) -> str:
    if inner[-1] is not Ellipsis:
        return f"list of {len(inner)}, each: {_of_type(inner[0])}"
    what = _of_type(inner[0])
    return ("list of sections" if what == "a section" else f"list, each: {what}") + _length(metadata)


def _length(metadata: tuple[Any, ...]) -> str:
    words = ""
    for one in metadata:
        if isinstance(one, annotated_types.MinLen):
            words += f"; at least {one.min_length}"
        if isinstance(one, annotated_types.MaxLen):
            words += f"; at most {one.max_length}"
    return words


def _of_scalar(kind: Any, metadata: tuple[Any, ...]) -> str:
    if kind is bool:
        return "`true` or `false`"
    if kind is str:
        names = [name for one in metadata if isinstance(one, NameIn) for name in one.names()]
        if names:
            return ", ".join(f"`{name}`" for name in names)
        patterns = [one.pattern for one in metadata if getattr(one, "pattern", None)]
        return "text" if not patterns else f"text of the form `{patterns[0]}`".replace("|", "\\|")
    if kind not in (int, float):
        raise TypeError(f"no words for options of type {kind}: add them to tacit.cli.reference")
    bounds = [word for one in metadata for word in _bound(one)]
    return ", ".join(["whole number" if kind is int else "number", *bounds])


def _bound(one: Any) -> Iterator[str]:
    match one:
        case annotated_types.Ge():
            yield f"at least {one.ge:g}" if isinstance(one.ge, float) else f"at least {one.ge}"
        case annotated_types.Gt():
            yield f"above {one.gt}"
        case annotated_types.Le():
            yield from [] if float(str(one.le)) >= _FREE else [f"at most {one.le}"]
        case annotated_types.Lt():
            yield from [] if float(str(one.lt)) >= _FREE else [f"below {one.lt}"]
        case _:
            return


def _parts(one: Any) -> tuple[Any, ...]:
    """The bounds that a `pydantic.Field` inside an annotation holds."""
    return tuple(one.metadata) if isinstance(one, FieldInfo) else (one,)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None or value == ():
        return "none"
    if isinstance(value, Options):
        return "its defaults"
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_yaml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, float) and "e" in str(value) and "." not in str(value):
        return str(value).replace("e", ".0e")  # YAML reads 1e-06 as a text
    return str(value)


# the page ------------------------------------------------------------------------------------------------------------


def page() -> str:
    """The whole page."""
    whole = sections()
    parts = [_HEAD, _contents(whole)]
    parts += [f"{section_page(section, whole)}\n" for section in whole]
    parts.append(_commands())
    return "\n".join(parts)


def _contents(whole: list[Section]) -> str:
    lines = [
        f"- {root}: " + ", ".join(f"[{_short(one)}](#{one.anchor})" for one in whole if one.root == root)
        for root in ROOTS
    ]
    return "\n".join([*lines, "- [commands](#options-of-the-commands)", ""])


def _short(section: Section) -> str:
    return section.place or "top level"


def section_page(section: Section, whole: list[Section]) -> str:
    """Heading, introduction and rows of a section; ``whole``: the sections that its rows may link to."""
    words = option_words(section.model)
    lines = [f"## {section.title}", "", _introduction(section.model)]
    if section.inherits is not None:
        lines += ["", f"It also has the options of [{section.inherits}](#{_anchor(section.inherits)})."]
    lines += ["", "| option | values | default | what it is |", "|---|---|---|---|"]
    for name in section.names:
        info = section.model.model_fields[name]
        link = _links(section, info, whole)
        lines.append(f"| `{name}` | {_values(info)} | {_default(info)} | {_markdown(words.get(name, ''))}{link} |")
    return "\n".join(lines)


def _links(section: Section, info: FieldInfo, whole: list[Section]) -> str:
    inner = [one for kind in _models(info.annotation) for one in whole if one.model is kind]
    return "" if not inner else " See " + ", ".join(f"[{_short(one)}](#{one.anchor})" for one in inner) + "."


def _anchor(title: str) -> str:
    """How a heading is named in a link, as GitHub does it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def all_commands() -> dict[str, Any]:
    """Every command that is shown, by its whole name, such as ``tacit accountant noise``."""
    from tacit.cli.main import app

    return {name: command for name, command in _below(typer.main.get_command(app), "tacit") if not command.hidden}


def _below(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if "commands" in vars(command):
            yield from _below(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _commands() -> str:
    lines = [
        "## Options of the commands",
        "",
        'Every command has `--help`. `--json` prints JSON on standard output, where infinite numbers are the string `"infinity"`.',
    ]
    for name, command in all_commands().items():
        lines += ["", f"### `{name}`", "", _first_paragraph(command.help or "")]
        options = [one for one in command.params if one.name != "help" and one.opts[0].startswith("-")]
        if options:
            lines += ["", "| option | default | what it is |", "|---|---|---|"]
        for one in options:
            lines.append(f"| `{one.opts[0]}` | {_command_default(one)} | {_markdown(one.help or '')} |")
    return "\n".join([*lines, ""])


def _command_default(option: Any) -> str:
    if option.required:
        return "required"
    if option.default is None or option.default is False or option.default == ():
        return "none"
    return f"`{option.default}`"


def _first_paragraph(words: str) -> str:
    return _markdown(" ".join(words.split("\n\n")[0].split()))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")

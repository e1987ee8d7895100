"""The pages below docs/reference: commands, Python, errors and reason codes, each made from what it describes.

``python -m tacit.cli.reference_pages docs/reference`` writes them; a test fails when one is not fresh. The options of a configuration
have their own page (`tacit.cli.reference`).
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.cli.reference import all_commands
from tacit.cli.refusals import ADVICE
from tacit.errors import TacitError

__all__ = ["PAGES", "api_page", "commands_page", "errors_page", "refusals"]

_MADE = "This page is made by `python -m tacit.cli.reference_pages docs/reference`. Do not edit it: change {what}."


# commands ------------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its whole help."""
    made = _MADE.format(what="the command's docstring and its options' help")
    lines = [
        "# Commands",
        "",
        "For those who use the command line: every command, with its arguments and options. " + made,
    ]
    for name, command in all_commands().items():
        given = [one.name.upper() for one in command.params if _is_argument(one)]
        usage = " ".join([name, *given, "[OPTIONS]"])
        lines += ["", f"## {name}", "", "```text", usage, "```", "", _text(command.help or "")]
        rows = [_row(one) for one in command.params if one.name != "help"]
        if rows:
            lines += ["", "| argument or option | default | what it is |", "|---|---|---|", *rows]
    return "\n".join([*lines, ""])


def _is_argument(one: Any) -> bool:
    return not one.opts[0].startswith("-")


def _row(one: Any) -> str:
    name = one.name.upper() if _is_argument(one) else ", ".join((*one.opts, *one.secondary_opts))
    nothing = one.default is None or one.default is False or one.default == ()
    default = "required" if one.required else "none" if nothing else f"`{one.default}`"
    return f"| `{name}` | {default} | {_cell(one.help or '')} |"


# Python --------------------------------------------------------------------------------------------------------------


def api_page() -> str:
    """The public names of the modules that a program of one's own imports."""
    lines = [
        "# In Python",
        "",
        "For those who write a program with tacit: its public names. " + _MADE.format(what="the docstrings"),
    ]
    for found in _modules():
        lines += ["", f"## {found.__name__}"]
        for name in sorted(found.__all__):
            if not name.startswith("__"):
                lines += ["", f"### {name}", "", *_described(name, getattr(found, name))]
    return "\n".join([*lines, ""])


def _modules() -> list[ModuleType]:
    """What a loop of one's own needs, and what every caller meets."""
    import tacit.engine
    import tacit.errors
    import tacit.randomness

    return [sys.modules["tacit"], tacit.engine, tacit.randomness, tacit.errors]


def _described(name: str, value: Any) -> Iterator[str]:
    if not callable(value):
        yield (
            f"A {type(value).__name__} of: " + ", ".join(f"`{_named(one)}`" for one in value)
            if isinstance(value, dict)
            else f"`{value}`"
        )
        return
    yield from ["```python", _signature(name, value), "```", ""]
    yield _text(inspect.getdoc(value) or "")


def _named(key: Any) -> str:
    return key.__name__ if isinstance(key, type) else str(key)


def _signature(name: str, value: Any) -> str:
    """How it is called, with the names of types without their modules."""
    try:
        signature = str(inspect.signature(value))
    except ValueError:
        return name
    signature = re.sub(r"<function ([\w.]+) at \w+>", r"\1", signature)  # a default that is one, without its address
    return name + re.sub(r"\b(?:[A-Za-z_]\w*\.)+(\w+)", r"\1", signature.replace("'", ""))


# errors --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """A place that refuses: its code, its module, and what it says, with ... where a value stands."""

    code: str
    module: str
    message: str


def errors_page() -> str:
    """Every error with its exit code, and every reason code with what is said."""
    made = _MADE.format(what="`tacit.errors`, `tacit.cli.refusals`, or the message where it is raised")
    lines = [
        "# Errors and reason codes",
        "",
        "For those who meet an error: what it means, and where it is raised. " + made,
        "",
        "## Exit codes",
        "",
    ]
    lines += ["| exit code | error | what it means |", "|---|---|---|", "| 0 | | done |"]
    lines += [f"| {kind.exit_code} | `{kind.__name__}` | {_cell(_first(kind))} |" for kind in _errors()]
    lines += ["| 130 | | interrupted; the same command goes on |", "", "## Reason codes", ""]
    lines += ["Why each is refused, and what to do.", "", "| code | why | what to do |", "|---|---|---|"]
    lines += [f"| `{code}` | {_cell(one.why)} | {_cell(one.what_to_do)} |" for code, one in ADVICE.items()]
    lines += ["", "## What is said", "", "Every place that refuses; ... stands for a value.", ""]
    lines += ["| code | where | what it says |", "|---|---|---|"]
    lines += [f"| `{one.code}` | `{one.module}` | {_cell(one.message)} |" for one in refusals()]
    return "\n".join([*lines, ""])


def _errors() -> list[type[TacitError]]:
    module = sys.modules[TacitError.__module__]
    kinds = [getattr(module, name) for name in module.__all__]
    return sorted(kinds, key=lambda kind: (kind.exit_code, len(kind.__mro__), kind.__name__))


def _first(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0].partition(" (exit code")[0]


def refusals() -> list[Refusal]:
    """Every place in the source that raises a `RefusedError`, by its code."""
    root = Path(inspect.getfile(TacitError)).parent
    found = {
        Refusal(code, ".".join(("tacit", *path.relative_to(root).with_suffix("").parts)), message)
        for path in root.rglob("*.py")
        for code, message in _raised(path.read_text(encoding="utf-8"))
    }
    return sorted(found, key=lambda one: (one.code, one.module, one.message))


def _raised(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "RefusedError":
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            yield ast.literal_eval(given[0]), _template(given[1]) if len(given) > 1 else ""


def _template(message: ast.expr) -> str:
    """The words of a message; a value, or words that are put together elsewhere, are three dots."""
    if isinstance(message, ast.Constant):
        return str(message.value)
    if isinstance(message, ast.JoinedStr):
        return "".join(_template(part) for part in message.values)
    if isinstance(message, ast.BinOp) and isinstance(message.op, ast.Add):
        return _template(message.left) + _template(message.right)
    return "..."


# words ---------------------------------------------------------------------------------------------------------------


def _cell(words: str) -> str:
    """Words for one cell of a table."""
    return _links(" ".join(words.split()).replace("|", "\\|"))


def _text(docstring: str) -> str:
    """A docstring as a page shows it: its parts are lists, its examples code."""
    lines = []
    part = False
    for line in docstring.replace("\f", "").splitlines():
        if re.fullmatch(r"(Args|Raises|Returns|Yields):", line):
            part = True
            lines += ["", f"**{line.removesuffix(':')}**", ""]
        elif part and re.match(r"    \w[\w, .|\[\]]*: ", line):
            name, _, words = line.strip().partition(": ")
            lines.append(f"- `{name}`: {words}")
        elif part and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            part = part and not line.strip()
            lines.append(line)
    return _links("\n".join(lines).strip())


def _links(words: str) -> str:
    code = words.replace("``", "`").replace("<", "&lt;") if "\n    " not in words else words.replace("``", "`")
    return re.sub(r"\bdocs/([\w-]+\.md)(#[\w-]+)?", r"[\1](../\1\2)", code)


PAGES: dict[str, Callable[[], str]] = {"commands.md": commands_page, "api.md": api_page, "errors.md": errors_page}


if __name__ == "__main__":
    for _name, _page in PAGES.items():
        (Path(sys.argv[1]) / _name).write_text(_page(), encoding="utf-8")

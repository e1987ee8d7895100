"""The help's panels and examples: every command has both, README shows the same, and each example is a command that works."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Annotated

import pytest
import typer
from click.exceptions import UsageError as ClickUsageError
from typer.testing import CliRunner

from tacit.cli.catalogue import COMMANDS as ROWS
from tacit.cli.catalogue import Command, examples, panels
from tacit.cli.main import app, program
from tacit.cli.reference import all_commands

from ..small import small_values, write_config, write_corpora
from .calling import Tacit

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
EXAMPLES, PANELS = examples(), panels()
COMMANDS = {name.removeprefix("tacit "): command for name, command in all_commands().items()}


def first(name: str) -> str:
    return name.split()[0]


def shown_panels(text: str) -> dict[str, list[str]]:
    """Panels of a help, and their commands in order."""
    found: dict[str, list[str]] = {}
    for title, body in re.findall(r"╭─ (\w+) ─+╮\n(.*?)╰", text, re.DOTALL):
        found[title] = re.findall(r"^│ ([a-z]\S*) ", body, re.MULTILINE)
    return found


def test_every_command_has_a_panel_and_an_example() -> None:
    assert {first(name) for name in COMMANDS} <= {name for names in PANELS.values() for name in names}
    assert set(COMMANDS) <= set(EXAMPLES)


def test_the_help_shows_the_panels_in_order(tacit: Tacit) -> None:
    registered = {first(name) for name in COMMANDS}
    expected = {panel: [name for name in names if name in registered] for panel, names in PANELS.items()}
    found = shown_panels(tacit("--help").out)
    assert found.pop("Options") == []
    assert list(found.items()) == list(expected.items())


def test_the_readme_shows_the_same() -> None:
    rows = re.findall(r"^\| (\w+) \| (`[^|]*) \|", README, re.MULTILINE)
    found = {title: re.findall(r"`tacit (\S+?)(?: [A-Z]+)?`", commands) for title, commands in rows}
    assert found == {panel.lower(): list(names) for panel, names in PANELS.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_its_example(name: str, tacit: Tacit) -> None:
    shown = " ".join(tacit(*name.split(), "--help").out.split())
    assert f"Example: {EXAMPLES[name]}" in shown


def parse(line: str, of: typer.Typer = app) -> str:
    """Parse a command line as the program does, without running it; the name of the command.

    Raises:
        click.UsageError: an unknown command or option, or one that is missing.
    """
    program, *words = shlex.split(line)
    assert program == "tacit"
    command, name = typer.main.get_command(of), ""
    while "commands" in vars(command):
        word = words.pop(0)
        found = vars(command)["commands"].get(word)
        if found is None:
            raise ClickUsageError(f"no command {word}")
        command, name = found, f"{name} {word}".strip()
    command.make_context(name, words)
    return name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_a_valid_command_line(name: str) -> None:
    assert parse(EXAMPLES[name]) == name


@pytest.mark.parametrize("line", ["tacit nothing", "tacit plan notes.yaml --colour red", "tacit sign runs/notes"])
def test_an_example_that_does_not_work_is_found(line: str) -> None:
    with pytest.raises(Exception) as wrong:  # noqa: PT011 - of a copy of click that typer may bring
        parse(line)
    assert type(wrong.value).__name__ in ("UsageError", "NoSuchOption", "MissingParameter")


def count(file: Path, most: Annotated[int, typer.Option(help="Count no more.")] = 100) -> None:
    """Count the lines of a file."""
    typer.echo(str(min(most, len(file.read_text().splitlines()))))


def test_a_command_of_this_file_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in its panel of the help, has its example, and works; and an example that does not fit it is found."""
    monkeypatch.setitem(ROWS, "count", Command(count, "Text", "tacit count notes.txt --most 7"))
    made, runner = program(), CliRunner(env={"COLUMNS": "200"})
    assert panels()["Text"] == (*PANELS["Text"], "count")
    shown = runner.invoke(made, ["--help"]).output
    assert shown_panels(shown)["Text"] == list(panels()["Text"])
    assert "Count the lines of a file." in shown
    assert "Example: tacit count notes.txt --most 7" in runner.invoke(made, ["count", "--help"]).output
    assert parse(examples()["count"], made) == "count"
    with pytest.raises(Exception, match="--least"):
        parse("tacit count notes.txt --least 7", made)
    (tmp_path / "notes.txt").write_text("a\nb\nc\n")
    assert runner.invoke(made, ["count", str(tmp_path / "notes.txt")]).output == "3\n"


def test_without_its_row_there_is_no_such_command() -> None:
    done = CliRunner().invoke(program(), ["count", "notes.txt"])
    assert done.exit_code == 2
    assert "No such command" in done.output


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("accountant") or name == "env"])
def test_examples_that_need_no_data_run(
    name: str, tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = tacit(*shlex.split(EXAMPLES[name])[1:])
    assert done.code == 0, done.err


@pytest.mark.slow
def test_examples_on_a_run_work_one_after_another(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpora(tmp_path)
    write_config(tmp_path / "notes.yaml", small_values(tmp_path, run="runs/notes"))
    monkeypatch.chdir(tmp_path)
    for name in ("plan", "overlap", "run"):
        done = tacit(*shlex.split(EXAMPLES[name])[1:])
        assert done.code == 0, f"{name}: {done.err}"
    assert (tmp_path / "runs/notes/private/vocabulary/tokenizer.json").exists()
    assert tacit("run", "notes.yaml").code == 0
    _signing_key(tmp_path / "signing-key.pem")
    for name in ("ledger", "verify", "audit", "report", "sign"):
        done = tacit(*shlex.split(EXAMPLES[name])[1:])
        assert done.code == 0, f"{name}: {done.err}"


def _signing_key(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)


SOURCES = Path(__file__).parents[2] / "src" / "tacit"
_BEGINNING = re.compile(r"(`|^  )tacit [a-z]+ $")
"""Of a command that somebody is told to run, up to its path."""


def unquoted_paths(source: str) -> list[int]:
    """Lines on which a suggested command has a path that a shell may take for several words."""
    found: list[int] = []
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        for before, after in zip(text.values, text.values[1:], strict=False):
            if not isinstance(before, ast.Constant) or not _BEGINNING.search(str(before.value)):
                continue
            value = after.value if isinstance(after, ast.FormattedValue) else None
            call = value.func if isinstance(value, ast.Call) else None
            if not isinstance(call, ast.Name) or call.id != "quoted":
                found.append(after.lineno)
    return found


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_a_suggested_command_quotes_its_path(path: Path) -> None:
    assert unquoted_paths(path.read_text(encoding="utf-8")) == []


def test_a_path_without_quotes_is_found() -> None:
    assert unquoted_paths('f"see `tacit verify {folder.root}`"') == [1]
    assert unquoted_paths('f"  tacit plan {out}"') == [1]
    assert unquoted_paths('f"see `tacit verify {quoted(folder.root)}`"') == []

"""`tacit init`: the first configuration, from the names of a file's fields and a few answers."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.file_fields import format_of, names_of, refuse_other_values, told_names
from tacit.cli.made_up import PUBLIC, refuse_others, write_made_up
from tacit.cli.options import table
from tacit.errors import UsageError
from tacit.files import quoted

if TYPE_CHECKING:
    from tacit.config.starting import GivenModel, StartKind
    from tacit.corpus.places import Place

__all__ = ["command"]

_SCHEMA = "tacit.schema.json"
_LENGTH = 128
"""Positions of a row, where a given model has so many."""


def command(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="The private text: csv, jsonl, json, parquet, arrow or txt, also .gz, a folder of such, or one saved by `datasets`; "
            "here or in an object store.",
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="FIELD", help="Field with the text.")] = None,
    messages: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Field with a conversation, a list of messages with role and content; in place of --text.",
        ),
    ] = None,
    document: Annotated[
        str | None, typer.Option("--id", metavar="FIELD", help="Field with a document's id: documents are protected.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Field with a person's id: persons are protected.")
    ] = None,
    units: Annotated[
        int | None, typer.Option(help="How many units there are, as a public statement; they are never counted.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="The joint budget; smaller is stronger.")] = 8.0,
    model: Annotated[str, typer.Option(help="bert, gpt2 or lstm.")] = "bert",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--model-folder",
            metavar="FOLDER",
            help="A Hugging Face model to start from: an adapter (LoRA) is trained beside it.",
        ),
    ] = None,
    public: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Public text; repeatable. Without one, made-up text is written."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The configuration; by default FILE's name with .yaml, here.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME", help="Copy a packaged recipe, with text to try it on.")
    ] = None,
    recipes: Annotated[bool, typer.Option("--list", help="List the packaged recipes.")] = False,
) -> None:
    """Write a commented configuration for your own text, which `tacit plan` accepts.

    It takes the names of fields from the file, and neither text nor how many records there are; of the first record it looks whether
    the field holds a text. On a terminal it asks for what no option says.
    """
    if recipes:
        typer.echo(_list_of_recipes())
    elif recipe is not None:
        _refuse_beside("--recipe", file, text, document, user, units)
        _copy(recipe, out)
    elif file is None:
        raise UsageError(
            "tacit init: name the file with your text, or --recipe NAME; --list shows the packaged recipes"
        )
    else:
        from tacit.corpus.places import place

        asked = _Asked(text, document, user, units, epsilon, model, tuple(map(place, public or ())), folder, messages)
        where = place(file)
        _begin(where, asked, out or Path(f"{_stem(where)}.yaml"))


@dataclass(frozen=True)
class _Asked:
    """What the options say."""

    text: str | None
    document: str | None
    user: str | None
    units: int | None
    epsilon: float
    model: str
    public: tuple[Place, ...]
    folder: Path | None
    messages: str | None


def _begin(file: Place, asked: _Asked, out: Path) -> None:
    from tacit.config.load import parse_config
    from tacit.config.starting import LINES, PublicText, Start, written
    from tacit.strict_yaml import parse_yaml

    _refuse_existing(out)
    if asked.model not in ("bert", "gpt2", "lstm"):
        raise UsageError(f"--model {asked.model}: choose bert, gpt2 or lstm")
    if asked.epsilon <= 0:
        raise UsageError(f"--epsilon {asked.epsilon:g}: it must be above 0, such as 1, 3 or 8")
    names = names_of(file)
    text, document, user = _fields_of(file, names, asked)
    if names is not None:
        refuse_other_values(file, text, asked.messages)
    units = _units(file, asked.units, "users" if user else "documents" if document else "records")
    paths = asked.public if asked.public or asked.folder else _ask_public()
    public = [PublicText(_beside(path, out), _public_field(path, text)) for path in paths]
    made = () if public or asked.folder is not None else (PUBLIC,)
    refuse_others(out.parent, made, f"if it is public text, name it with --public {PUBLIC.name}; else move it away")
    kind, given = (asked.model, None) if asked.folder is None else _given(asked.folder, out)
    start = Start(
        title=f"{asked.model if given is None else 'LoRA'} on {_stem(file)}",
        run=f"runs/{_stem(out)}",
        schema=_SCHEMA,
        private=_beside(file, out),
        public=tuple(public) or tuple(PublicText(corpus.name, None) for corpus in made),
        text=None if text == "text" or asked.messages is not None else text,
        messages=asked.messages,
        lines=format_of(file) == "txt",
        document=document,
        user=user,
        units=units,
        epsilon=asked.epsilon,
        model=kind,
        given=given,
    )
    said = written(start)
    config = parse_config(parse_yaml(said), str(out), out.parent)
    written_text = write_made_up(out.parent, made)
    _write_new(out, said)
    _write_schema(out)
    typer.echo(
        f"{out}: written, for {units:,} {start.unit}s at epsilon {asked.epsilon:g}; it says how to choose each number."
    )
    if start.lines:
        typer.echo(f"{file}: {LINES}.")
    for path in written_text:
        typer.echo(
            f"{path}: made-up everyday English in place of public text. Replace it with public text that is near yours."
        )
    typer.echo(_next(out, config.resolved_run))


def _given(folder: Path, out: Path) -> tuple[StartKind, GivenModel]:
    """The given model, and which kind of our own is asked the same."""
    from tacit.config.kinds import kind_named
    from tacit.config.shape import folder_shape, missing_folder, read_config
    from tacit.config.starting import GivenModel
    from tacit.privacy.origin import certificate_of

    if not folder.exists():
        raise missing_folder(str(folder), folder)
    name = read_config(folder)[0]
    positions = folder_shape(folder, name).positions
    length = _LENGTH if positions is None else min(_LENGTH, positions)
    kind: StartKind = "gpt2" if kind_named(name).is_causal else "bert"
    return kind, GivenModel(_beside(folder, out), length, certificate_of(folder) is None)


# what is there -------------------------------------------------------------------------------------------------------


def _stem(path: Place) -> str:
    """The name without its endings: ``notes`` of ``notes.csv.gz``, and of ``notes*.csv``."""
    return path.name.split(".")[0].translate({ord(sign): None for sign in "*?"}) or "text"


def _fields_of(file: Place, names: list[str] | None, asked: _Asked) -> tuple[str | None, str | None, str | None]:
    """The fields with text, document's and person's id."""
    if asked.text is not None and asked.messages is not None:
        raise UsageError("--text and --messages: a record is a text or a conversation; name one of them")
    wanted = {"--text": asked.text, "--messages": asked.messages, "--id": asked.document, "--user": asked.user}
    if names is None:
        for option, name in wanted.items():
            if name is not None:
                raise UsageError(f"{option}: {file} is plain text, which has no fields; leave it out")
        return None, None, None
    for option, name in wanted.items():
        if name is not None and name not in names:
            raise UsageError(f"{option} {name}: there is no such field in {file}; it has {told_names(file, names)}")
    if asked.messages is not None:
        return asked.messages, asked.document, asked.user
    if asked.text is None and not _on_terminal():
        if "text" not in names:
            raise UsageError(f"--text is missing: name the field with the text; {file} has {told_names(file, names)}")
        return "text", asked.document, asked.user
    if asked.text is not None and (asked.units is not None or not _on_terminal()):
        return asked.text, asked.document, asked.user
    typer.echo(f"{file} has these fields: {told_names(file, names)}")
    text = asked.text or _choose("Field with the text", names, "text" if "text" in names else None)
    assert text is not None
    user = asked.user or _choose("Field with a person's id (enter: none)", names, "")
    return (
        text,
        asked.document or (None if user else _choose("Field with a document's id (enter: none)", names, "")),
        user,
    )


def _choose(question: str, names: list[str], default: str | None) -> str | None:
    while True:
        answer = typer.prompt(question, default=default, show_default=bool(default)).strip()
        if answer in names or (not answer and default == ""):
            return answer or None
        typer.echo("There is no such field.")


def _units(file: Place, units: int | None, what: str) -> int:
    if units is None and _on_terminal():
        units = typer.prompt(f"How many {what} are there, as you would tell it in public (a round number)", type=int)
    if units is None:
        raise UsageError(
            f"--units is missing: say how many {what} {file} has, as a public statement; a round number is best"
        )
    if not 8 <= units <= 10**9:
        raise UsageError(
            f"--units {units}: from 8 to a billion; with fewer a model can learn nothing that is not about one of them"
        )
    return units


def _ask_public() -> list[Place]:
    from tacit.corpus.places import place

    if not _on_terminal():
        return []
    answer = typer.prompt(
        "File with public text near yours (enter: made-up text)", default="", show_default=False
    ).strip()
    return [place(answer)] if answer else []


def _public_field(path: Place, text: str | None) -> str | None:
    """The field with the text: ``text``, or the one of the private corpus."""
    if not path.exists():
        raise UsageError(f"--public {path}: there is no such file")
    names = names_of(path)
    if names is None or "text" in names:
        return None
    if text in names:
        return text
    raise UsageError(
        f"--public {path}: it has no field text{f' or {text}' if text else ''}, but {told_names(path, names)}; rename one"
    )


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


# what is written -----------------------------------------------------------------------------------------------------


def _beside(path: Place, out: Path) -> str:
    """How the configuration names a file: relative to itself, unless the path was given as absolute, or in an object store."""
    if not isinstance(path, Path):
        return str(path)
    return str(path) if path.is_absolute() else Path(os.path.relpath(path, out.parent)).as_posix()


def _refuse_beside(option: str, *others: object) -> None:
    if any(other is not None for other in others):
        raise UsageError(f"{option} takes no other option but --out: edit the copy")


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise UsageError(
                f"{path} is there already, and is not written over; remove it, or name another file with --out"
            )
        if not path.parent.is_dir():
            raise UsageError(f"{path.parent}: there is no such folder; make it first")


def _write_new(path: Path, said: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(said)


def _write_schema(out: Path) -> None:
    """Beside the configuration, so that an editor needs no network."""
    from tacit.cli.schema import schema_text

    path = out.parent / _SCHEMA
    if not path.exists():
        path.write_text(schema_text("run"), encoding="utf-8")


def _next(out: Path, run: Path) -> str:
    lines = [f"  tacit plan {quoted(out)}      what it costs, before anything is spent", f"  tacit run {quoted(out)}"]
    lines += [f"  tacit verify {quoted(run)}", f"  tacit report {quoted(run)}"]
    return "\n".join(["Next:", *lines])


# recipes -------------------------------------------------------------------------------------------------------------


def _list_of_recipes() -> str:
    from tacit.cli.recipes import RECIPES

    return table(["recipe", "what it is"], [[name, recipe.words] for name, recipe in RECIPES.items()])


def _copy(name: str, out: Path | None) -> None:
    from tacit.cli.recipes import RECIPES, recipe_text
    from tacit.config.load import parse_config
    from tacit.strict_yaml import parse_yaml

    if name not in RECIPES:
        raise UsageError(f"--recipe {name}: there is none of this name; there are {', '.join(RECIPES)}")
    path = Path(f"{name}.yaml") if out is None else out
    _refuse_existing(path)
    said = recipe_text(name)
    config = parse_config(parse_yaml(said), str(path), path.parent)
    corpora = RECIPES[name].corpora
    refuse_others(path.parent, corpora, "move it away, or name a file in another folder with --out")
    made = write_made_up(path.parent, corpora)
    _write_new(path, said)
    _write_schema(path)
    typer.echo(f"{path}: written, with made-up text to try it on: {', '.join(str(corpus) for corpus in made)}")
    typer.echo(_next(path, config.resolved_run))

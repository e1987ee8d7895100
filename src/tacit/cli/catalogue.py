"""The commands: one row each, with its panel of the help and an example. README's table and tests/cli/test_catalogue.py read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import typer

from tacit.cli import (
    accountant,
    audit,
    compare,
    confidentiality,
    demo,
    env,
    finetune,
    init,
    ledger,
    overlap,
    plan,
    report,
    reproduce,
    run,
    schema,
    score,
    screen,
    sign,
    track,
    tradeoff,
    verify,
)

__all__ = ["COMMANDS", "Command", "examples", "panels", "register"]

_HISTOGRAM = "--max-words 128 --delta 1e-7"
_VOCABULARY = "--noise-stddev 60 --threshold 350 --max-words 128"
_TRAINING = "--sampling-probability 0.05 --steps 500 --delta 1e-6"


class Command(NamedTuple):
    """A row of `COMMANDS`.

    Args:
        does: the command; its docstring is its help. A `typer.Typer` is a group of commands.
        panel: of the help.
        example: a whole command line, as the help shows it; of a group one for each of its commands.
    """

    does: Callable[..., None] | typer.Typer
    panel: str
    example: str | dict[str, str]


COMMANDS: dict[str, Command] = {
    "init": Command(init.command, "Start", "tacit init notes.csv --text note --user patient_id --units 5000"),
    "demo": Command(demo.command, "Start", "tacit demo --folder runs"),
    "plan": Command(plan.command, "Start", "tacit plan notes.yaml"),
    "run": Command(run.command, "Start", "tacit run notes.yaml --until vocabulary"),
    "ledger": Command(ledger.command, "Look", "tacit ledger runs/notes"),
    "verify": Command(verify.command, "Look", "tacit verify runs/notes"),
    "sign": Command(sign.command, "Look", "tacit sign runs/notes --key signing-key.pem"),
    "audit": Command(audit.command, "Look", "tacit audit runs/notes"),
    "report": Command(report.command, "Look", "tacit report runs/notes"),
    "tradeoff": Command(tradeoff.command, "Look", "tacit tradeoff runs/eps3 runs/eps8 --plot tradeoff.svg"),
    "confidentiality": Command(confidentiality.command, "Look", "tacit confidentiality runs/chats"),
    "track": Command(track.command, "Look", "tacit track runs/notes --with tensorboard"),
    "screen": Command(screen.command, "Text", "tacit screen chats.yaml --preview 20"),
    "score": Command(score.command, "Text", "tacit score adaptive.yaml --fit-public"),
    "overlap": Command(overlap.command, "Text", "tacit overlap notes.yaml"),
    "finetune": Command(finetune.command, "Tasks", "tacit finetune entities.yaml"),
    "compare": Command(compare.command, "Tasks", "tacit compare comparison.yaml"),
    "env": Command(env.command, "Numbers", "tacit env --json"),
    "schema": Command(schema.command, "Numbers", "tacit schema"),
    "accountant": Command(
        accountant.app,
        "Numbers",
        {
            "epsilon": f"tacit accountant epsilon --noise-multiplier 1.6 {_TRAINING}",
            "noise": f"tacit accountant noise --epsilon 4 {_TRAINING}",
            "histogram": f"tacit accountant histogram --epsilon 1 {_HISTOGRAM}",
            "loss-distribution": f"tacit accountant loss-distribution loss.svg --noise-multiplier 1.6 {_TRAINING}",
            "confidentiality": f"tacit accountant confidentiality --gamma 0.01 --noise-multiplier 1.6 {_TRAINING}",
            "joint": f"tacit accountant joint {_VOCABULARY} --noise-multiplier 1.6 {_TRAINING}",
        },
    ),
    "reproduce": Command(reproduce.command, "Papers", "tacit reproduce crt --data data"),
}
"""By their names, in the order in which the help shows them. What a command needs beside typer it imports when it is called."""


def panels() -> dict[str, tuple[str, ...]]:
    """The names of each panel's commands."""
    found: dict[str, tuple[str, ...]] = {}
    for name, row in COMMANDS.items():
        found[row.panel] = (*found.get(row.panel, ()), name)
    return found


def examples() -> dict[str, str]:
    """The example of each command; one of a group by the group's name and its own, as in ``accountant noise``."""
    found: dict[str, str] = {}
    for name, row in COMMANDS.items():
        of_group = row.example if isinstance(row.example, dict) else {}
        found |= {f"{name} {inner}": example for inner, example in of_group.items()}
        if isinstance(row.example, str):
            found[name] = row.example
    return found


def register(app: typer.Typer) -> None:
    """Give a program all commands."""
    shown = examples()
    for name, row in COMMANDS.items():
        if isinstance(row.does, typer.Typer):
            app.add_typer(row.does, name=name, rich_help_panel=row.panel)
            for info in row.does.registered_commands:
                info.epilog = f"Example: {shown[f'{name} {info.name}']}"
        else:
            app.command(name, rich_help_panel=row.panel, epilog=f"Example: {shown[name]}")(row.does)
    for name in run.RENAMED:
        app.command(name, hidden=True)(run.renamed(name))

"""How the help groups the commands, and one example of each: README's table and tests/cli/test_catalogue.py read this too."""

from __future__ import annotations

import typer
from typer.models import CommandInfo

__all__ = ["EXAMPLES", "PANELS", "arrange", "panel_of"]

PANELS: dict[str, tuple[str, ...]] = {
    "Start": ("init", "demo", "plan", "run"),
    "Look": ("ledger", "verify", "sign", "audit", "report", "tradeoff", "confidentiality", "track"),
    "Text": ("screen", "score", "overlap"),
    "Tasks": ("finetune", "compare"),
    "Numbers": ("env", "schema", "accountant"),
    "Papers": ("reproduce",),
}
"""Commands in the order in which the help shows them."""

_HISTOGRAM = "--max-words 128 --delta 1e-7"
_VOCABULARY = "--noise-stddev 60 --threshold 350 --max-words 128"
_TRAINING = "--sampling-probability 0.05 --steps 500 --delta 1e-6"

EXAMPLES: dict[str, str] = {
    "init": "tacit init notes.csv --text note --user patient_id --units 5000",
    "demo": "tacit demo --folder runs",
    "plan": "tacit plan notes.yaml",
    "run": "tacit run notes.yaml --until vocabulary",
    "ledger": "tacit ledger runs/notes",
    "verify": "tacit verify runs/notes",
    "sign": "tacit sign runs/notes --key signing-key.pem",
    "audit": "tacit audit runs/notes",
    "report": "tacit report runs/notes",
    "tradeoff": "tacit tradeoff runs/eps3 runs/eps8 --plot tradeoff.svg",
    "confidentiality": "tacit confidentiality runs/chats",
    "track": "tacit track runs/notes --with tensorboard",
    "screen": "tacit screen chats.yaml --preview 20",
    "score": "tacit score adaptive.yaml --fit-public",
    "overlap": "tacit overlap notes.yaml",
    "finetune": "tacit finetune entities.yaml",
    "compare": "tacit compare comparison.yaml",
    "env": "tacit env --json",
    "schema": "tacit schema",
    "reproduce": "tacit reproduce crt --data data",
    "accountant epsilon": f"tacit accountant epsilon --noise-multiplier 1.6 {_TRAINING}",
    "accountant noise": f"tacit accountant noise --epsilon 4 {_TRAINING}",
    "accountant histogram": f"tacit accountant histogram --epsilon 1 {_HISTOGRAM}",
    "accountant loss-distribution": f"tacit accountant loss-distribution loss.svg --noise-multiplier 1.6 {_TRAINING}",
    "accountant confidentiality": f"tacit accountant confidentiality --gamma 0.01 --noise-multiplier 1.6 {_TRAINING}",
    "accountant joint": f"tacit accountant joint {_VOCABULARY} --noise-multiplier 1.6 {_TRAINING}",
}
"""One whole command line each, as the help shows it."""


def panel_of(name: str) -> str | None:
    """The panel of a command; None: it has none, and stands before the others."""
    return next((panel for panel, names in PANELS.items() if name in names), None)


def arrange(app: typer.Typer) -> None:
    """Give the commands of the whole program, all registered by now, their panels, order and examples."""
    order = [name for names in PANELS.values() for name in names]
    app.registered_commands.sort(key=lambda info: order.index(info.name) if info.name in order else len(order))
    for info in app.registered_commands:
        if not info.hidden:
            _describe(info, info.name or "")
    for group in app.registered_groups:
        if isinstance(group.name, str):
            group.rich_help_panel = panel_of(group.name)
            for info in group.typer_instance.registered_commands if group.typer_instance is not None else ():
                info.epilog = _example(f"{group.name} {info.name}")


def _describe(info: CommandInfo, name: str) -> None:
    info.rich_help_panel = panel_of(name)
    info.epilog = _example(name)


def _example(name: str) -> str | None:
    return f"Example: {EXAMPLES[name]}" if name in EXAMPLES else None

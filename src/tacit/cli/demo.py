"""`tacit demo`: synthetic notes, the whole pipeline, one plain paragraph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command", "demo_config"]


def demo_config(folder: Path) -> dict[str, object]:
    """The demo's configuration as plain values, its corpora and its run inside ``folder``."""
    from importlib.resources import files

    import yaml

    values = yaml.safe_load(files("tacit").joinpath("recipes/demo.yaml").read_text(encoding="utf-8"))
    values["run"] = str(folder / "demo")
    values["private"]["path"] = str(folder / "demo-data" / "notes.jsonl")
    values["public"][0]["path"] = str(folder / "demo-data" / "public.jsonl")
    return values


def command(
    folder: Annotated[Path, typer.Option(help="Where the synthetic corpora and the run go.")] = Path("runs"),
) -> None:
    """Make synthetic private notes and public text, and run everything on them (about three minutes on two cores)."""
    from tacit.config import parse_config
    from tacit.corpus.synthetic import SyntheticPrivate, SyntheticPublic, write_private, write_public
    from tacit.files import private_folder, write_json
    from tacit.pipeline.stages import run
    from tacit.progress import TerminalReporter

    reporter = TerminalReporter()
    config = parse_config(demo_config(folder), "demo.yaml")
    data = private_folder(folder / "demo-data")
    if not (data / "public.jsonl").exists():
        reporter.say("Making a synthetic private corpus (notes of made-up patients) and a public one ...")
        planted = write_private(data / "notes.jsonl", SyntheticPrivate())
        write_json(data / "planted-words.json", planted)
        write_public(data / "public.jsonl", SyntheticPublic())
    typer.echo(run(config, reporter).statement)

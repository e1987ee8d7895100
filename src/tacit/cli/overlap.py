"""`tacit overlap`: does the public text of a configuration repeat its private text?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tacit.cli.options import ConfigArgument, JsonOption, print_json, say, say_lines, table
from tacit.errors import DataError, UsageError

if TYPE_CHECKING:
    from tacit.config.corpus import CorpusOptions
    from tacit.corpus.overlap import RunIndex

__all__ = ["command"]

_SHARE = 0.2
_RUNS = 10
_SHOWN = 20


def command(
    config: ConfigArgument,
    share: Annotated[
        float,
        typer.Option(
            "--share",
            min=0.0,
            max=1.0,
            help="Name a record that has at least this share of the shorter text's runs of six words.",
        ),
    ] = _SHARE,
    runs: Annotated[
        int, typer.Option("--runs", min=1, help="And at least so many runs in common; fewer for short texts.")
    ] = _RUNS,
    as_json: JsonOption = False,
) -> None:
    """List public records that share text with a private record: they would be learned without noise. For the curator alone.

    Which public records these are says what is in the private text. Exit code 4 when there are any. No run folder is read or written.
    """
    from tacit.config import load_config
    from tacit.corpus.overlap import RunIndex
    from tacit.pipeline.records import Corpus, source_of
    from tacit.progress import TerminalReporter

    run = load_config(config)
    if not run.public:
        raise UsageError(f"{config}: there is no public corpus to compare")
    reporter = TerminalReporter()
    reporter.say("Overlap: reading the private corpus ...")
    index = RunIndex(record.text for record in Corpus(source_of(run.private)))
    reporter.say("Overlap: comparing the public corpora ...")
    found = [_found_in(options, index, share, runs) for options in run.public]
    if as_json:
        pairs = zip(run.public, found, strict=True)
        print_json(
            [
                {"corpus": options.path, "text_field": options.read_field, "shared": [row._asdict() for row in own]}
                for options, own in pairs
            ]
        )
    else:
        for options, own in zip(run.public, found, strict=True):
            _show(options, own)
    total = sum(len(own) for own in found)
    if total:
        raise DataError(
            f"public records that share text with a private one: {total}; take them out of the public corpora"
        )


class _Found(NamedTuple):
    """A public record, and what it shares with the private one that is likest to it."""

    id: str
    runs: int
    share: float


def _found_in(options: CorpusOptions, index: RunIndex, share: float, runs: int) -> list[_Found]:
    from tacit.pipeline.records import Corpus, source_of

    records = Corpus(source_of(options))
    pairs = ((record.document_id, index.likest(record.text, runs)) for record in records)
    return [_Found(name, own.runs, own.share) for name, own in pairs if own is not None and own.share >= share]


def _show(options: CorpusOptions, found: list[_Found]) -> None:
    say(f"{options.path} ({options.read_field}): records that share text with a private one: {len(found) or 'none'}")
    if found:
        rows = [[repr(row.id), str(row.runs), f"{row.share:.2f}"] for row in found[:_SHOWN]]
        say_lines(table(["record", "runs in common", "share"], rows))
    if len(found) > _SHOWN:
        say(f"... and {len(found) - _SHOWN} more; --json has all")

"""The `tacit` command: all commands together, and one clear line with an exit code for every mistake."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from tacit.cli.catalogue import register
from tacit.cli.options import say_error
from tacit.errors import DataError, OtherRankError, StorageError, TacitError, UsageError
from tacit.failures import is_out_of_memory, is_panic
from tacit.files import storage_error
from tacit.version import VERSION

__all__ = ["app", "main", "program"]


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {VERSION}")
        raise typer.Exit


def program() -> typer.Typer:
    """The command line, with all commands that there are now."""
    made = typer.Typer(
        name="tacit",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",  # `[...]` in a help text is text; in "rich" it would be a style, and not shown
        context_settings={"help_option_names": ["-h", "--help"]},
        help=(
            "Train language models on text that must not leak, and prove what the release can reveal.\n\n"
            "Exit codes: 0 done, 2 wrong command or configuration, 3 budget exceeded, 4 data or ledger, 5 audit gate, "
            "6 the audit contradicts the certificate, 7 another of several processes was lost, 130 interrupted (after 7 and 130 the "
            "same command goes on)."
        ),
    )
    made.callback()(_options)
    register(made)
    return made


def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version and stop.")
    ] = False,
) -> None:
    """The options of `tacit` itself; its help is that of the app."""


app = program()


_INTERRUPTED = "tacit: interrupted; run the same command again to continue"


_NO_MEMORY = (
    "too little memory; free some, or lower compute.micro_batch and compute.workers, then run the same command again"
)
_PANIC = (
    "a library written in Rust gave up; it is likely to be a tokenizer whose normalizer or pre-tokenizer has an expression that some "
    "text is too much for: use a tokenizer without it"
)


def main() -> None:
    """Run the command line; a `TacitError` becomes one line on standard error and its exit code."""
    # Idle torch threads must sleep, not spin: on a busy machine spinning makes training ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    try:
        app()
    except OtherRankError as error:  # the other one says it
        sys.exit(error.exit_code)
    except TacitError as error:
        say_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before or after typer listens
        typer.echo(_INTERRUPTED, err=True)
        sys.exit(130)
    except SystemExit as stop:
        if stop.code == 130:  # how typer ends after Ctrl-C, without a word
            typer.echo(_INTERRUPTED, err=True)
        raise
    except RecursionError:  # JSON or YAML in thousands of brackets, wherever it is read
        say_error(
            "a configuration, or a file of a folder that it names, is nested too deep to be read; bring back a sane one"
        )
        sys.exit(DataError.exit_code)
    except BaseException as error:  # a panic of a library in Rust is no `Exception`
        refusal = storage_error(error)
        if refusal is not None:
            say_error(refusal)
            sys.exit(refusal.exit_code)
        if is_out_of_memory(error):
            say_error(_NO_MEMORY)
            sys.exit(StorageError.exit_code)
        if is_panic(error):  # its words may quote the text
            say_error(_PANIC)
            sys.exit(DataError.exit_code)
        if not isinstance(error, OSError):
            raise
        say_error(f"{error.filename or 'file system'}: {error.strerror}")
        sys.exit(UsageError.exit_code)


if __name__ == "__main__":
    main()

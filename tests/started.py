"""Functions in processes of their own, forked by a server that has imported tacit and everything that it needs.

A start then costs a tenth of a second, not the ten of importing torch and transformers. The server runs nothing of tacit, so no start
knows of another one; but for the imports it is as if a new interpreter had been started.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import tacit

from . import draws

__all__ = ["called", "command", "serve", "start"]

_ROOT = Path(__file__).parents[1]
_USED_LATE = (
    "dp_accounting.pld.privacy_loss_distribution",
    "dp_accounting.rdp.rdp_privacy_accountant",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "opendp.prelude",
    "scipy.stats",
    "torch._dynamo",
    "transformers.models.bert.modeling_bert",
    "transformers.models.gpt2.modeling_gpt2",
)
"""What tacit imports when it is first used, and takes long."""


def command(arguments: list[str], who: str) -> None:
    """`tacit ARGUMENTS...`, with the key that `tests.draws` gives to ``who``."""
    draws.install(who)
    sys.argv = ["tacit", *arguments]
    from tacit.cli.main import main

    from .tried import tried_once

    with tried_once():
        main()


def called(work: Callable[..., Any], *arguments: Any, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Call a function of a module in a process of its own: its exit code, minus the signal that ended it, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        process = start(work, *arguments, output=output, cwd=cwd)
        process.join()
        assert process.exitcode is not None
        printed = [(output / name).read_text() if (output / name).exists() else "" for name in ("out", "err")]
    return subprocess.CompletedProcess([work.__name__, *map(str, arguments)], process.exitcode, *printed)


def start(
    work: Callable[..., Any], *arguments: Any, output: Path | None = None, cwd: Path | None = None
) -> BaseProcess:
    """A process that calls a function of a module and ends.

    Args:
        output: a folder in which it leaves ``out`` and ``err``; None: nobody reads them.
        cwd: its working directory; None: that of this process.
    """
    process = _context().Process(
        target=_child,
        args=(work, arguments, dict(os.environ), str(cwd or Path.cwd()), None if output is None else str(output)),
    )
    process.start()
    return process


def serve() -> None:
    """Let this server fork what tacit starts by itself too, and no other one be made (`tacit.work.processes.worker_context`)."""
    _context()


@functools.cache
def _context() -> ForkServerContext:
    """With its server running; what the server inherits is how it was when the first process was asked for."""
    if str(_ROOT) not in sys.path:
        sys.path.append(str(_ROOT))  # the other process finds a function by the name of its module
    modules = [found.name for found in pkgutil.walk_packages(tacit.__path__, "tacit.")]
    own = [name for name in modules if not name.endswith("__main__") and ".adapters." not in name]
    context = multiprocessing.get_context("forkserver")
    forkserver._forkserver._stop()  # pyright: ignore[reportAttributeAccessIssue] - one that tacit has made knows less
    context.set_forkserver_preload([*own, *_USED_LATE, "tests.tried", "tests.frozen"])
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # a pool of threads would not live through a fork
    try:
        forkserver.ensure_running()
    finally:
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = threads
    return context


def _child(
    work: Callable[..., Any], arguments: tuple[Any, ...], environment: Mapping[str, str], cwd: str, output: str | None
) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ |= {**environment, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    for number, name in ((1, "out"), (2, "err")):
        path = os.devnull if output is None else os.path.join(output, name)
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    work(*arguments)

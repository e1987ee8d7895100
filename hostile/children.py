"""Starts of `tacit` as forks of this process, which has imported everything: a start costs a tenth of a second, not three.

A fork runs the same `main` as the console script, in its own session, with its own output and error. All is imported and
nothing of `tacit` has run before the fork, so that no start knows of another one.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hostile.clocks import show_clock

__all__ = ["CODES", "TIMEOUT", "Child", "Ended", "complaint", "load", "run_child", "start"]

CODES = (0, 2, 3, 4, 5, 6)
"""The exit codes of docs: done, wrong command or configuration, budget, data or ledger, audit gate, contradicted."""

TIMEOUT = 300.0
"""Seconds after which a start counts as hanging."""

NOON = 1_750_000_000
"""Seconds since 1970 that every start sees, so that reports, which hold the time of day, can be compared bit for bit."""

Prepare = Callable[[], None]


@dataclass(frozen=True)
class Ended:
    """How a start ended; ``code`` is minus the signal where one ended it."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def killed(self) -> bool:
        """Whether it met its end by SIGKILL."""
        return self.code == -signal.SIGKILL


def load() -> None:
    """Import all that any command imports, once, before the first fork; torch gets one thread."""
    import importlib
    import pkgutil

    import torch

    import tacit

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(tacit.__path__, "tacit."):
        if not module.name.endswith("__main__") and ".adapters." not in module.name:
            importlib.import_module(module.name)
    for name in _LAZY:
        importlib.import_module(name)


_LAZY = (
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "scipy.stats",
    "dp_accounting.pld.privacy_loss_distribution",
    "dp_accounting.rdp.rdp_privacy_accountant",
    "opendp.prelude",
    "transformers.models.bert.modeling_bert",
    "transformers.models.gpt2.modeling_gpt2",
    "torch._dynamo",
)
"""What is imported when it is first used, and takes long."""


def _in_fork(arguments: Sequence[str], output: Path, cwd: Path, prepare: Prepare, at: float) -> None:
    """Be the command, and never return."""
    code = 1
    try:
        os.setsid()
        os.chdir(cwd)
        os.environ |= {"COLUMNS": "200", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        for number, name in ((1, "out"), (2, "err")):
            descriptor = os.open(
                output.with_name(f"{output.name}.{name}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
            )
            os.dup2(descriptor, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        show_clock(at)
        sys.argv = ["tacit", *arguments]
        from tacit.cli.main import main

        prepare()
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 1
        os._exit(code)


class Child:
    """A start that is under way.

    Args:
        arguments: of `tacit`.
        output: where standard output and error go, with the endings ``.out`` and ``.err``.
        prepare: is called in the fork, before the command.
        at: what its clock shows, in seconds since 1970.
    """

    def __init__(
        self,
        arguments: Sequence[str | Path],
        output: Path,
        cwd: Path | None = None,
        prepare: Prepare = lambda: None,
        at: float = NOON,
    ) -> None:
        self._output = output
        self._begun = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _in_fork([*map(str, arguments)], output, cwd or output.parent, prepare, at)
        self._descriptor = os.pidfd_open(self.pid)

    def over(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        return bool(select.select([self._descriptor], [], [], max(0.0, seconds))[0])

    def kill(self) -> None:
        """SIGKILL: nothing can be cleaned up or flushed."""
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def end(self, timeout: float = TIMEOUT) -> Ended:
        """Wait for it; a start that hangs is killed, and says so on its standard error."""
        hangs = not self.over(timeout)
        if hangs:
            self.kill()
        _, status = os.waitpid(self.pid, 0)
        os.close(self._descriptor)
        seconds = time.monotonic() - self._begun
        out, err = (
            self._output.with_name(f"{self._output.name}.{name}").read_bytes().decode("utf-8", "replace")
            if self._output.with_name(f"{self._output.name}.{name}").exists()
            else ""
            for name in ("out", "err")
        )
        code = os.waitstatus_to_exitcode(status)
        return Ended(
            1 if hangs else code, out, err + (f"\nhangs: killed after {timeout:g} s" if hangs else ""), seconds
        )


def start(arguments: Sequence[str | Path], output: Path, prepare: Prepare = lambda: None, at: float = NOON) -> Ended:
    """Start the command and wait for its end."""
    return Child(arguments, output, prepare=prepare, at=at).end()


def run_child(arguments: Sequence[str | Path], output: Path, seconds: float) -> Ended:
    """Start the command, and kill it after so many seconds if it is still there."""
    child = Child(arguments, output)
    if not child.over(seconds):
        child.kill()
    return child.end()


def complaint(ended: Ended, codes: Sequence[int] = CODES) -> str:
    """What is wrong with how it ended: a traceback, another code, or not one line for a mistake; empty when all is right."""
    said = [line for line in ended.err.splitlines() if line.startswith("tacit: ")]
    last = (ended.err.strip().splitlines() or ["nothing"])[-1][:160]
    if "Traceback (most recent call last)" in ended.err + ended.out:
        return f"traceback: {last}"
    if ended.code not in codes:
        return f"exit code {ended.code}, last words: {last}"
    if ended.code and len(said) != 1 and not _usage(ended):
        return f"exit code {ended.code} with {len(said)} lines `tacit: ...` instead of one, last words: {last}"
    return ""


def _usage(ended: Ended) -> bool:
    """Typer's own page for a wrong command."""
    return ended.code == 2 and "Usage: tacit" in ended.err

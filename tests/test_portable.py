"""tacit can be imported where there is no POSIX: none of its modules needs what Windows does not have."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent
MODULES = sorted(
    ".".join(("tacit", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
)

ONLY_POSIX = {
    *(
        "chown",
        "fchmod",
        "fchown",
        "fork",
        "forkpty",
        "getegid",
        "geteuid",
        "getgid",
        "getgroups",
        "getpgid",
        "getuid",
        "initgroups",
    ),
    *(
        "killpg",
        "lchown",
        "mkfifo",
        "mknod",
        "nice",
        "pidfd_open",
        "posix_fadvise",
        "pread",
        "pwrite",
        "register_at_fork",
    ),
    *(
        "sched_getaffinity",
        "sendfile",
        "setegid",
        "seteuid",
        "setgid",
        "setsid",
        "setuid",
        "statvfs",
        "sysconf",
        "uname",
        "wait",
    ),
    *("O_CLOEXEC", "O_DIRECTORY", "O_DSYNC", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "ST_RDONLY"),
}
"""What the module `os` has on POSIX alone (the documentation of Python: "Availability: Unix")."""

_REFUSING = """
import importlib, importlib.abc, sys
gone, ours = ("fcntl", "resource", "pwd", "grp"), sys.argv[1]
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        for one in gone:
            sys.modules.pop(one, None)  # asked again at the next import
        if name in gone and frame is not None and frame.f_code.co_filename.startswith(ours):
            raise ModuleNotFoundError(f"no module named {name}", name=name)
        return None
sys.meta_path.insert(0, Refuse())
for name in gone:
    sys.modules.pop(name, None)
for name in sys.argv[2:]:
    importlib.import_module(name)
"""
"""Libraries may have what they like, since they ask which platform they are on; files below the first argument may not."""


def imported_without_posix(modules: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Import the modules where those in the folder find no module of POSIX alone."""
    return subprocess.run(
        [sys.executable, "-c", _REFUSING, str(folder), *modules],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def only_posix(source: str) -> list[str]:
    """``os.NAME`` of POSIX alone in a function that does not ask which platform it is on."""
    found: list[str] = []

    def look(node: ast.AST, asked: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            asked = "sys.platform" in ast.unparse(node)
        if (
            isinstance(node, ast.Attribute)
            and ast.unparse(node.value) == "os"
            and node.attr in ONLY_POSIX
            and not asked
        ):
            found.append(f"os.{node.attr}")
        for inner in ast.iter_child_nodes(node):
            look(inner, asked)

    look(ast.parse(source), False)
    return found


@pytest.mark.slow
def test_every_module_is_imported_without_posix() -> None:
    done = imported_without_posix([name for name in MODULES if name != "tacit.__main__"], SOURCE.parent)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_an_import_of_posix_is_seen(tmp_path: Path) -> None:
    (tmp_path / "needs_posix.py").write_text("import torch, subprocess\nimport fcntl\n")
    done = imported_without_posix(["needs_posix"], tmp_path)
    assert done.returncode != 0
    assert "no module named fcntl" in done.stderr


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_of_posix_is_used_without_asking(path: Path) -> None:
    assert only_posix(path.read_text(encoding="utf-8")) == []


def test_what_is_used_without_asking_is_found() -> None:
    assert only_posix("def f(x):\n    os.fchmod(x, 0o600)\n") == ["os.fchmod"]
    assert only_posix("import os\nCORES = len(os.sched_getaffinity(0))\n") == ["os.sched_getaffinity"]
    assert only_posix("def f(x):\n    return sys.platform != 'win32' and os.statvfs(x)\n") == []

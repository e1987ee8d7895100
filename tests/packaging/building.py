"""Source archive and wheel, made from the files that git tracks and from nothing else; the same files give the same bytes.

``python -m tests.packaging.building dist`` makes both (``make wheel``). The wheel is built from the source archive, so
the one lacks nothing that the other has. Times, owners and order in the archives come from no clock and no file system.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EPOCH", "Built", "Installed", "build", "install", "tracked"]

ROOT = Path(__file__).parents[2]
EPOCH = 1_577_836_800
"""The time of every file in the archives: 2020-01-01, in seconds since 1970."""
_BACKEND = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"


@dataclass(frozen=True)
class Built:
    """The two files of a version."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True)
class Installed:
    """An environment of its own, with the wheel and the libraries of this one."""

    folder: Path

    @property
    def bin(self) -> Path:
        """Where its commands are."""
        return self.folder / ("Scripts" if sys.platform == "win32" else "bin")

    def run(self, *command: str | Path, where: Path) -> subprocess.CompletedProcess[str]:
        """Start one of its commands in a folder; nothing of this checkout can be seen from there."""
        program, *rest = map(str, command)
        return subprocess.run(
            [str(self.bin / program), *rest], cwd=where, env=_clean(), capture_output=True, text=True, check=False
        )


def tracked() -> list[str]:
    """What git tracks, as far as it is there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def build(folder: Path) -> Built:
    """Make both below the folder.

    Raises:
        subprocess.CalledProcessError: setuptools refuses; its words are on standard error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        copy, made, unpacked = Path(name) / "copy", Path(name) / "made", Path(name) / "unpacked"
        for file in tracked():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, copy / file)
        sdist = _without_clock(_backend("build_sdist", copy, made), folder)
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        wheel = _backend("build_wheel", next(unpacked.iterdir()), made)
        return Built(sdist, Path(shutil.copy(wheel, folder)))


def install(wheel: Path, folder: Path) -> Installed:
    """An environment in the folder that holds the wheel alone, and sees this interpreter's libraries, but not this checkout.

    A second torch would cost minutes and gigabytes. In the folder that a ``.pth`` file names no other ``.pth`` file is read, and so
    an editable tacit there is not seen.
    """
    venv.create(folder, with_pip=False, symlinks=sys.platform != "win32")
    installed = Installed(folder)
    python = installed.bin / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run([*command, "--disable-pip-version-check"], env=_clean(), check=True)
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    here = Path(
        subprocess.run([python, "-c", asked], env=_clean(), capture_output=True, text=True, check=True).stdout.strip()
    )
    libraries = [place for place in sys.path if Path(place).name == "site-packages"]
    (here / "libraries.pth").write_text("\n".join(libraries) + "\n", encoding="utf-8")
    return installed


def _clean() -> dict[str, str]:
    """This process's environment, without what would show an interpreter this checkout."""
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}


def _backend(hook: str, source: Path, made: Path) -> Path:
    """What a hook of PEP 517 makes, in a folder of its own."""
    out = made / hook
    out.mkdir(parents=True)
    environment = {**_clean(), "SOURCE_DATE_EPOCH": str(EPOCH)}
    done = subprocess.run(
        [sys.executable, "-c", _BACKEND, hook, str(out)],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    return next(out.iterdir())


def _without_clock(sdist: Path, folder: Path) -> Path:
    """The archive again, its members in order, of one time and of nobody."""
    target = folder / sdist.name
    plain = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = EPOCH, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=EPOCH) as packed:
        packed.write(plain.getvalue())
    return target


if __name__ == "__main__":
    done = build(Path(sys.argv[1]))
    print(f"{done.sdist}\n{done.wheel}")

"""Files and folders appear as a whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import stat
from pathlib import Path

import pytest

from tacit.errors import DataError, UsageError
from tacit.files import (
    alone_in,
    atomic_folder,
    open_truncated,
    private_folder,
    read_json,
    read_result,
    write_atomically,
    write_json,
    write_private_json,
)


class Stopped(Exception):
    """What ends a write half-way."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_replaces_the_old_one_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "release"
    for content in ("old", "new"):
        with atomic_folder(target) as partial:
            (partial / content).write_text(content)
            assert names(tmp_path) != ["release"]
            assert not (target / content).exists()
    assert names(tmp_path) == ["release"]
    assert names(target) == ["new"]


@pytest.mark.parametrize("before", [False, True])
def test_an_error_leaves_no_half_written_folder(tmp_path: Path, before: bool) -> None:
    target = tmp_path / "release"
    if before:
        with atomic_folder(target) as partial:
            (partial / "old").write_text("old")

    def write_half() -> None:
        with atomic_folder(target) as partial:
            (partial / "half").write_text("half")
            raise Stopped

    with pytest.raises(Stopped):
        write_half()
    assert names(tmp_path) == (["release"] if before else [])
    assert not before or names(target) == ["old"]


def test_what_a_killed_process_left_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".release.partial").mkdir()
    (tmp_path / ".release.partial" / "half").write_text("half")
    with atomic_folder(tmp_path / "release") as partial:
        (partial / "whole").write_text("whole")
    assert names(tmp_path) == ["release"]
    assert names(tmp_path / "release") == ["whole"]


def test_an_error_leaves_the_old_file_and_no_half_written_one(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    write_json(path, {"b": 1, "a": [2.5]})

    def half(partial: Path) -> None:
        partial.write_text("half")
        raise Stopped

    with pytest.raises(Stopped):
        write_atomically(path, half)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert names(tmp_path) == ["values.json"]
    assert read_json(path) == {"a": [2.5], "b": 1}


def test_a_private_folder_is_closed_also_when_it_was_open(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    for name in ("open", "new"):
        assert stat.S_IMODE(private_folder(tmp_path / name).stat().st_mode) == 0o700


# one process at a time, and a file that goes on ------------------------------------------------------------------------


def entered_by_another(folder: Path) -> bool:
    """Whether another process can enter the folder."""

    def child() -> None:
        try:
            with alone_in(folder, "somebody is in it"):
                os._exit(0)
        except UsageError as refused:
            os._exit(1 if str(refused) == "somebody is in it" else 2)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    assert process.exitcode in (0, 1)
    return process.exitcode == 0


def test_one_process_is_alone_in_a_folder_until_it_ends(tmp_path: Path) -> None:
    with alone_in(tmp_path, "in use"):
        assert not entered_by_another(tmp_path)
        with pytest.raises(UsageError, match="in use"), alone_in(tmp_path, "in use"):
            pass
    assert entered_by_another(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_one_does_not_take_the_lock_of_another(tmp_path: Path) -> None:
    """The folder above was removed and made again meanwhile; without its file the other process would no longer be alone."""
    root = tmp_path / "run"
    root.mkdir()
    with alone_in(root / "private", "in use"):
        shutil.rmtree(root)
        root.mkdir()
        (root / ".private.lock").touch()
    assert names(root) == [".private.lock"]


def test_a_lock_that_a_killed_process_left_locks_nobody_out(tmp_path: Path) -> None:
    def killed() -> None:
        with alone_in(tmp_path / "private", "in use"):
            os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert names(tmp_path) == [".private.lock"]
    with alone_in(tmp_path / "private", "in use"):
        assert not entered_by_another(tmp_path / "private")
    assert names(tmp_path) == []


def test_a_file_goes_on_without_what_was_written_after_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    with open_truncated(path, 0) as file:
        file.write(b"one\ntwo\nhalf a li")
    assert path.stat().st_mode & 0o777 == 0o600
    with open_truncated(path, 8) as file:
        assert path.read_bytes() == b"one\ntwo\n"
        file.write(b"three\n")
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    with pytest.raises(DataError, match="shorter than the checkpoint says"):
        open_truncated(path, 15)
    assert path.read_bytes() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("mode", [None, 0o600, 0o644, 0o666])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_a_private_file_is_for_its_owner_alone_whatever_it_was(tmp_path: Path, mode: int | None, umask: int) -> None:
    path = tmp_path / "config.json"
    if mode is not None:
        path.write_text("{}")
        path.chmod(mode)
    before = os.umask(umask)
    try:
        write_private_json(path, {"path": "private"})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_json(path) == {"path": "private"}
    assert [found.name for found in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b"7", b'"text"', b"null", b"[" * 200_000])
def test_a_damaged_result_of_a_stage_is_one_line(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"evaluation\.json: missing or damaged"):
        read_result(path)
    write_json(path, {"a": [1]})
    assert read_result(path) == {"a": [1]}

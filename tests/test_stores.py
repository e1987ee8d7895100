"""The stores of a run: made once, found again, private, and made anew where what they were made from differs."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tacit.config import parse_config
from tacit.errors import LedgerError
from tacit.pipeline.corpus import private_units, public_units
from tacit.pipeline.opening import open_run
from tacit.pipeline.records import source_of
from tacit.pipeline.rows import private_rows
from tacit.pipeline.stages import walk
from tacit.pipeline.state import RunState
from tacit.pipeline.stores import look_of, stored

from .small import small_values, write_corpora


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    write_corpora(folder)
    return folder


@pytest.fixture
def folder(corpora: Path, tmp_path: Path) -> Path:
    shutil.copytree(corpora, tmp_path / "own")
    return tmp_path / "own"


def opened(folder: Path) -> AbstractContextManager[RunState]:
    return open_run(parse_config(small_values(folder)))


def stores(state: RunState) -> dict[str, int]:
    """The folders of stores by name, and when each was made."""
    root = state.folder.private / "stores"
    return {path.name: path.stat().st_mtime_ns for path in root.iterdir() if path.is_dir()}


def test_a_run_that_goes_on_finds_what_was_made(folder: Path) -> None:
    with opened(folder) as state:
        first, units = private_units(state), list(private_units(state)[0])
        public_units(state)
        made = stores(state)
    with opened(folder) as state:
        assert list(private_units(state)[0]) == units
        assert list(private_units(state)[1]) == list(first[1])
        public_units(state)
        assert stores(state) == made
    assert sorted(name.rpartition("-")[0] for name in made) == ["public-text", "text"]


def test_only_its_owner_can_read_a_store(folder: Path) -> None:
    before = os.umask(0)
    try:
        with opened(folder) as state:
            private_units(state)
            root = state.folder.private / "stores"
            modes = {stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}
            assert modes <= {0o700, 0o600}
    finally:
        os.umask(before)


def test_another_corpus_is_seen_and_refused(folder: Path) -> None:
    with opened(folder) as state:
        private_units(state)
        path, made = source_of(state.config.private).path, stores(state)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"Sentinel-Case", b"Sentinel-Kase", 1))  # of the same size
    with opened(folder) as state:
        with pytest.raises(LedgerError, match="the private corpus"):
            private_units(state)
        assert stores(state) != made
    path.write_bytes(content)  # it is the same again, with another time of change
    with opened(folder) as state:
        private_units(state)
        assert len(stores(state)) == 1, "older ones are removed"


def test_how_a_source_looks_hangs_on_its_files_and_options(folder: Path) -> None:
    with opened(folder) as state:
        source = source_of(state.config.private)
        look = look_of(source)
        assert look == look_of(source)
        os.utime(source.path, ns=(0, 0))
        assert look_of(source) != look


def test_what_a_killed_process_left_is_removed(folder: Path) -> None:
    with opened(folder) as state:
        root = state.folder.private / "stores"
        left = root / ".text-0123.partial"
        left.mkdir(parents=True)
        (left / "texts_B.bin").write_text("sentinel")
        private_units(state)
        assert not left.exists()


def test_one_of_two_processes_makes_a_store(folder: Path) -> None:
    with opened(folder) as state:
        made: list[Path] = []
        waiting, go_on = threading.Event(), threading.Event()

        def write(partial: Path) -> None:
            made.append(partial)
            waiting.set()
            go_on.wait(60)
            (partial / "whole").write_text("whole")

        found: list[Path] = []

        def want() -> None:
            place = stored(state, "thing", ["of it"], write)
            assert (place / "whole").read_text() == "whole"
            found.append(place)

        both = [threading.Thread(target=want) for _ in range(2)]
        both[0].start()
        assert waiting.wait(60)
        both[1].start()
        both[1].join(0.3)
        assert both[1].is_alive(), "the second waits"
        go_on.set()
        for thread in both:
            thread.join(60)
        assert len(made) == 1
        assert found[0] == found[1]
        assert stored(state, "thing", ["of another"], write) != found[0]


def test_rows_are_made_anew_where_public_text_has_changed(folder: Path) -> None:
    """Examples with coins may be made of public text, and stand among the private rows."""
    found = []
    for _ in range(2):
        with opened(folder) as state:
            walk(state, until="vocabulary")
            private_rows(state)
            found.append({name for name in stores(state) if name.startswith("rows-private")})
        with (folder / "public.jsonl").open("a") as file:
            file.write('{"id": "one more", "text": "The patient is well."}\n')
    assert found[0] != found[1]
    assert [len(names) for names in found] == [1, 1]

"""Limits that only some sizes of private text met decided whether there is a release.

From 65,537 records on, another interpreter sorted them by duckdb within 128 MiB. With ids of 2,000 letters 63,525 documents were
released, and with one more the run ended with exit code 4; so it did at the 65,537th record wherever that interpreter could not
import tacit by itself, or found a file `secrets.py` in the working folder. Counting with `counting_memory_mb: 64` ended at the
335,545th word of 191 bytes. One unit was told from none, with certainty: delta is 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tacit
from tacit.storage.external_sort import ExternalSort
from tacit.vocabulary.tally import Spill, Tally, spill_folder

LETTERS = 2000
RELEASED = 63_525
"""Documents with ids of so many letters that duckdb sorted."""

COUNTED = 335_544
"""Words of 191 bytes that were held in memory, in 64 MiB by their number; duckdb could not add them up."""


def ids(count: int) -> Iterator[bytes]:
    """Ids of 2,000 letters, in no order."""
    return (b"%08d" % (number * 7919 % 1_000_003) + b"x" * (LETTERS - 8) for number in range(count))


@pytest.mark.parametrize("count", [RELEASED, RELEASED + 1])
def test_one_record_more_with_a_long_id_is_sorted_too(tmp_path: Path, count: int) -> None:
    """127 MB of ids, which are more than are held in memory at either size."""
    rows = ExternalSort(tmp_path, "groups")
    for number, key in enumerate(ids(count)):
        rows.add((key, number, 10))
    numbers = [first for _, first, _ in rows]
    assert numbers == sorted(range(count), key=lambda number: number * 7919 % 1_000_003)


@pytest.mark.slow
@pytest.mark.parametrize("extra", [0, 1])
def test_one_unit_more_with_a_new_long_word_is_counted_too(tmp_path: Path, extra: int) -> None:
    words = ["ø" * 91 + f"{number * 7919 % 100_000_007:09}" for number in range(COUNTED)]
    assert len(words[0].encode()) == 191
    with spill_folder(tmp_path / "counting") as folder:
        tally = Tally(Spill(folder, 64))
        for start in range(0, COUNTED, 68):
            tally.add(words[start : start + 68], 1)
        tally.add([words[5], *["zzz"] * extra], 1)
        expected = Counter([*words, words[5], *["zzz"] * extra])
        assert list(tally.sums()) == sorted(expected.items())


ALONE = """
import resource, subprocess, sys
sys.path[:0] = {path!r}
sys.executable = "/nowhere/python"
PROCESSES = ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system")

def alone(event, arguments):
    if event in PROCESSES:
        raise SystemExit(event)

from tacit.corpus.records import Record
from tacit.corpus.unit_store import open_units
from tacit.corpus.unit_writing import Part, write_units
from tacit.corpus.units import UnitKind
from tacit.randomness import KeyedRandomness
from tacit.vocabulary.tally import Spill, Tally
from pathlib import Path

sys.addaudithook(alone)
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
if {breaks}:
    subprocess.run([sys.executable, "-m", "tacit.storage.external_sort"])
store = Path({folder!r}, "store")
store.mkdir()
count = 65_537
records = (Record(f"{{number * 7919 % count:06}}", None, "text") for number in range(count))
write_units(store, [Part(records, UnitKind("document"))], lambda _: False, KeyedRandomness(bytes(32)), 512)
tally = Tally(Spill(Path({folder!r}), 1))
for start in range(0, count, 50):
    tally.add([f"w{{number}}" for number in range(start, start + 50)], 1)
units = open_units(store).training
print(len(units), units[0].unit_id, units[count - 1].unit_id, len(tally.sums()))
"""


def alone(folder: Path, breaks: bool) -> subprocess.CompletedProcess[str]:
    """A program that alone knows where its packages are, in a folder with a file that is called as a module of Python."""
    (folder / "secrets.py").write_text('raise SystemExit("imported")\n')
    path = [str(Path(tacit.__file__).parents[1]), *filter(os.path.isabs, sys.path)]
    script = ALONE.format(path=path, folder=str(folder), breaks=breaks)
    command = [sys.executable, "-I", "-S", "-c", script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_no_other_process_sorts_and_few_files_are_open(tmp_path: Path) -> None:
    """129 runs, with room for 24 open files."""
    done = alone(tmp_path, False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "65537 000000 065536 65550\n"


def test_a_sort_by_another_process_is_caught(tmp_path: Path) -> None:
    done = alone(tmp_path, True)
    assert done.returncode == 1
    assert done.stderr == "subprocess.Popen\n"

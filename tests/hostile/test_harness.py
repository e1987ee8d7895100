"""The harness of `make hostile` can fail: each of its judges is shown what it must catch. The attacks themselves are not run here."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hostile.attack import Attack, Outcome, Setting
from hostile.children import Ended, complaint
from hostile.endings import differences, differs_by_rounding, twice_spent
from hostile.families import ATTACKS
from hostile.inputs import EXECUTED, judged, pickled
from hostile.mutations import BYTES
from hostile.page import failures, repeat, section, write_page
from hostile.results import CONTROL, Results
from hostile.search import found_in, needles_of

from tacit.privacy.events import Gaussian
from tacit.privacy.ledger import Ledger, LedgerHeader

WORD, WIDE = "zqsentinelword", "zqsentinelwörd"
NEEDLES = needles_of((WORD, WIDE))


# the search --------------------------------------------------------------------------------------------------------------


def sqlite_with(path: Path, text: str) -> None:
    """In a row that is spread over several pages."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE rows (body TEXT)")
        connection.execute("INSERT INTO rows VALUES (?)", ("x" * 4070 + text + "y" * 9000,))
    connection.close()


def zip_with(path: Path, text: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", gzip.compress(text.encode()))


HIDDEN: dict[str, Callable[[Path], object]] = {
    "plain": lambda path: path.write_text(f"a {WORD.upper()} b"),
    "UTF-16": lambda path: path.write_bytes(WORD.encode("utf-16")),
    "not ASCII": lambda path: path.write_text(WIDE),
    "Latin-1": lambda path: path.write_bytes(WIDE.encode("latin-1")),
    "JSON": lambda path: path.write_text(json.dumps([WIDE])),
    "a URL": lambda path: path.write_text("http://x/zqsentinelw%C3%B6rd"),
    "gzip": lambda path: path.write_bytes(gzip.compress(WORD.encode())),
    "gzip in zip": lambda path: zip_with(path, WORD),
    "SQLite": lambda path: sqlite_with(path, WORD),
    "base64": lambda path: path.write_bytes(base64.b64encode(b"ab" + WORD.encode())),
    "the name of a folder": lambda path: (path / f"a-{WORD}").mkdir(parents=True),
}


@pytest.mark.parametrize("way", HIDDEN)
def test_the_search_finds_a_word_wherever_it_hides(way: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("zqsentinel word")
    assert found_in(tmp_path, NEEDLES) == []
    HIDDEN[way](tmp_path / "file")
    assert len(found_in(tmp_path, NEEDLES)) == 1
    assert found_in(tmp_path, NEEDLES, leave_out=("file",)) == []


# how a start ended -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "err", "said"),
    [
        (0, "", ""),
        (4, "tacit: x: no such file\n", ""),
        (2, "Usage: tacit run [OPTIONS]\nno such option\n", ""),
        (1, "Traceback (most recent call last):\nValueError: x\n", "traceback: ValueError: x"),
        (0, "Traceback (most recent call last):\nValueError: x\n", "traceback: ValueError: x"),
        (4, "", "exit code 4 with 0 lines"),
        (4, "tacit: a\ntacit: b\n", "exit code 4 with 2 lines"),
        (-9, "", "exit code -9"),
        (1, "hangs: killed after 300 s", "exit code 1, last words: hangs"),
    ],
)
def test_a_start_ends_well_or_in_one_line(code: int, err: str, said: str) -> None:
    found = complaint(Ended(code, "", err, 0.0))
    assert found.startswith(said)
    assert bool(found) == bool(said)


def spoil(run: Path, what: str) -> None:
    """Something that damaged input must never lead to."""
    if what == "a leak":
        (run / "release").mkdir(parents=True)
        (run / "release" / "x.gz").write_bytes(gzip.compress(WORD.encode()))
    elif what == "planted code":
        (run.parent / EXECUTED).touch()
    else:
        (run / "private").mkdir(parents=True)
        (run / "private" / "kept").write_text(WORD)


@pytest.mark.parametrize(("what", "bad"), [("a leak", True), ("planted code", True), ("kept in private", False)])
def test_a_leak_and_planted_code_are_caught(what: str, bad: bool, tmp_path: Path) -> None:
    ended = Ended(0, "done", "", 0.0)
    assert judged(ended, tmp_path, (WORD,)) == ""
    spoil(tmp_path / "run", what)
    assert bool(judged(ended, tmp_path, (WORD,))) == bad
    assert judged(Ended(0, f"read {WORD}", "", 0.0), tmp_path, (WORD,))
    assert judged(Ended(2, "", "tacit: \x1b[31m\n", 0.0), tmp_path, (WORD,))


def test_the_planted_pickle_makes_its_file(tmp_path: Path) -> None:
    import pickle

    pickle.loads(pickled(tmp_path / EXECUTED)).close()
    assert (tmp_path / EXECUTED).exists()


def test_a_child_is_the_command_in_a_process_of_its_own(tmp_path: Path) -> None:
    """In a fresh process, as forks of a process with threads are not for a test."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom hostile.children import Child, start\n"
        f"here = Path({str(tmp_path)!r})\n"
        "def loud():\n    raise ValueError('on purpose')\n"
        "print(start(['ledger', here / 'nowhere'], here / 'a').code)\n"
        "print('Traceback' in start(['env'], here / 'b', prepare=loud).err)\n"
        "child = Child(['env'], here / 'c', prepare=lambda: __import__('time').sleep(60))\n"
        "print(child.over(0.01))\nchild.kill()\nprint(child.end().killed)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["4", "True", "False", "True"], done.stderr


# whether two ends are alike ----------------------------------------------------------------------------------------------


def finished(folder: Path, steps: int = 2) -> Path:
    """A run folder with some files and a ledger."""
    run = folder / "run"
    (run / "release" / "model").mkdir(parents=True)
    (run / "private" / "screened").mkdir(parents=True)
    (run / "release" / "model" / "weights").write_bytes(bytes(100))
    (run / "config.json").write_text(json.dumps({"run": str(run), "title": "x"}))
    (run / "private" / "screened" / "receipt.json").write_text(
        json.dumps({"seconds": time.perf_counter(), "counts": 1})
    )
    header = LedgerHeader("record", "add-or-remove", 10, float("inf"), 1e-5, "digest", "key")
    with Ledger.create(run / "ledger.sqlite", header) as ledger:
        ledger.plan("private", Gaussian(1.0), 2)
        for step in range(steps):
            ledger.charge("private", step)
    return run


def _other_weights(run: Path) -> None:
    (run / "release" / "model" / "weights").write_bytes(bytes(99) + b"\1")


def _other_title(run: Path) -> None:
    (run / "config.json").write_text(json.dumps({"run": str(run), "title": "y"}))


def _other_counts(run: Path) -> None:
    (run / "private" / "screened" / "receipt.json").write_text(json.dumps({"seconds": 1, "counts": 2}))


def _one_file_more(run: Path) -> None:
    (run / "release" / "more").touch()


def _other_rows(run: Path) -> None:
    with Ledger.open(run / "ledger.sqlite") as ledger:
        ledger.bind("something", "else")


@pytest.mark.parametrize("change", [_other_weights, _other_title, _other_counts, _one_file_more, _other_rows])
def test_a_bit_that_differs_is_found(change: Callable[[Path], None], tmp_path: Path) -> None:
    one, other = finished(tmp_path / "one"), finished(tmp_path / "other")
    assert differences(one, other) == []
    change(other)
    assert len(differences(one, other)) == 1


def trained(folder: Path, first: float, second: float, epsilon: float = 1.0) -> Path:
    """A run of two phases, of which each adds a number to a weight, and its certificate."""
    run = finished(folder)
    (run / "private" / "checkpoints").mkdir()
    for age, (name, added) in enumerate((("public", first), ("private", second))):
        path = run / "private" / "checkpoints" / f"{name}.pt"
        torch.save({"model": {"w": torch.tensor([1.0, 0.5 + added])}}, path)
        os.utime(path, (1000 + age, 1000 + age))
    stated = {"spends": [], "epsilons": [epsilon], "total_variation": 0.5, "status": "proved"}
    (run / "release" / "certificate.json").write_text(json.dumps(stated))
    return run


@pytest.mark.parametrize(
    ("first", "second", "epsilon", "rounded"),
    [
        (1e-7, 0.3, 1.0, True),  # whose sums had other noise in the second phase
        (1e-7, 0.0, 1.0, True),
        (0.0, 0.3, 1.0, False),  # other noise, and nothing that explains it
        (1e-3, 0.0, 1.0, False),
        (1e-7, 0.0, 2.0, False),
        (0.0, 0.0, 1.0, False),  # whatever differs, it is no weight
    ],
)
def test_last_digits_are_told_from_other_noise(
    first: float, second: float, epsilon: float, rounded: bool, tmp_path: Path
) -> None:
    one = trained(tmp_path / "one", 0.0, 0.0)
    assert differs_by_rounding(trained(tmp_path / "other", first, second, epsilon), one) == rounded


def test_a_stage_that_is_not_paid_for_as_planned_is_found(tmp_path: Path) -> None:
    assert twice_spent(finished(tmp_path / "one")) == []
    assert twice_spent(finished(tmp_path / "other", steps=1)) == ["private: paid 1 times, planned 2"]


# results and the page ----------------------------------------------------------------------------------------------------


def attack_of(outcome: Outcome) -> Attack:
    control = Outcome(1, ("caught",))
    return Attack("A title", "Says.", ("a",), 1, 1, lambda s, row, n: outcome, "wrong", lambda s: control)


def test_results_go_on_where_they_stopped_and_name_what_failed(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.add("kills", "a row", 0, 1, Outcome(5))
    results.add("kills", "a row", 1, 1, Outcome(4, ("it broke",)))
    results.add("kills", CONTROL, 0, 1, Outcome(1, (), ("differs",)))
    with (tmp_path / "results" / "trials-0.jsonl").open("a") as file:
        file.write('{"attack": "kills", "row"')  # cut by a stop
    again = Results(tmp_path / "results")
    assert again.has("kills", "a row", 1, 1)
    assert not again.has("kills", "a row", 2, 1)
    assert not again.has("kills", "a row", 1, 2)
    again.add("kills", "a row", 2, 1, Outcome(5))
    (row, control) = Results(tmp_path / "results").sums("kills")
    assert (row.tried, row.expected, len(row.failed)) == (14, 13, 1)
    assert control.notes == ("differs",)
    assert failures(again, ["kills"], 1) == [f"kills, a row: it broke\n    {repeat(row.failed[0])}"]
    text = section("kills", attack_of(Outcome(1)), again, 1)
    assert "| a row | " in text
    assert "python -m hostile --only kills --row 'a row' --number 1 --seed 1" in text
    assert "was caught: differs" in text


def test_the_page_is_written_between_its_markers(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Words\n\n<!-- begin: written by `make hostile` -->\nold\n<!-- end -->\n\nmore words\n")
    results = Results(tmp_path / "results")
    results.add("kills", "a row", 0, 1, Outcome(5))
    for _ in range(2):
        write_page(path, {"kills": attack_of(Outcome(1))}, results, 1)
    text = path.read_text()
    assert "old" not in text
    assert text.startswith("# Words\n")
    assert text.endswith("<!-- end -->\n\nmore words\n")
    assert text.count("## A title") == 1
    assert text.count("\nVersions 1: ") == text.count("pyarrow") == 1
    (tmp_path / "other.md").write_text("no markers")
    with pytest.raises(SystemExit, match="no markers"):
        write_page(tmp_path / "other.md", {}, results, 1)


def test_a_family_that_was_not_attacked_keeps_its_section(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    kills, disks = attack_of(Outcome(1)), replace(attack_of(Outcome(1)), title="Disks")
    both = {"kills": kills, "disks": disks}
    results = Results(tmp_path / "results")
    results.add("disks", "a row", 0, 1, Outcome(5))
    write_page(path, both, results, 1)
    first = path.read_text()
    results.add("kills", "a row", 0, 1, Outcome(7))
    results.add("disks", "a row", 1, 1, Outcome(100))  # not asked for: its family may not be complete
    write_page(path, both, results, 1, ["kills"])
    text = path.read_text()
    assert text.index("## A title") < text.index("## Disks")  # in the order of the families
    assert text[text.index("## Disks") :] == first[first.index("## Disks") :]
    write_page(path, both, results, 1)
    assert "105" in path.read_text()
    write_page(path, {"kills": kills}, results, 1)
    assert "Disks" not in path.read_text()


def test_versions_are_said_once_and_a_kept_section_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    kills, disks = attack_of(Outcome(1)), replace(attack_of(Outcome(1)), title="Disks")
    both = {"kills": kills, "disks": disks}
    results = Results(tmp_path / "results")
    results.add("kills", "a row", 0, 1, Outcome(5))
    results.add("disks", "a row", 0, 1, Outcome(5))
    write_page(path, both, results, 1)
    assert path.read_text().count(", versions 1.") == 2
    path.write_text(
        path.read_text().replace("; Python ", "; another library 1.0; Python ")
    )  # as another machine wrote it
    write_page(path, both, results, 1, ["kills"])
    text = path.read_text()
    assert "another library 1.0" in text.split("\nVersions 1: ")[1].splitlines()[0]
    assert "another library" not in text.split("\nVersions 2: ")[1].splitlines()[0]
    assert ", versions 2." in text.split("## A title")[1].split("## ")[0]
    assert ", versions 1." in text.split("## Disks")[1]
    write_page(path, both, results, 1)  # nothing names the first line any more
    assert "Versions 1:" not in path.read_text()
    assert path.read_text().count(", versions 2.") == 2


def test_exit_codes_are_a_column_and_what_was_otherwise_is_one(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.add("kills", "a row", 0, 1, Outcome(3, (), ("exit 4", "exit 4", "exit 0")))
    results.add("kills", "a row", 1, 1, Outcome(1, (), ("waited",)))
    text = section("kills", attack_of(Outcome(1)), results, 1)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert cells[0] == ["what", "tried, all as expected", "exit code:times"]
    assert cells[2:] == [["a row", "4", "4:2 0:1"], ["all", "4", ""]]
    assert "a row: waited, 1 times." in text
    results.add("kills", "a row", 2, 1, Outcome(4, ("it broke",)))
    text = section("kills", attack_of(Outcome(1)), results, 1)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert cells[0] == ["what", "tried", "as expected", "exit code:times"]
    assert cells[-1] == ["all", "8", "7", ""]


def test_the_committed_page_has_the_words_of_each_family_and_the_versions_that_it_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    for name, attack in ATTACKS.items():
        part = page.split(f"## {attack.title}\n")[1].split("\n## ")[0]
        assert attack.says in part, name
        assert f"Control ({attack.control_says}): was caught: " in part, name
        (number,) = re.findall(rf"`python -m hostile --only {name} --seed \d+`, \S+, versions (\d+)\.", part)
        assert f"\nVersions {number}: tacit " in page, name


LEAST = {"kills": 1000, "corpora": 5000, "configurations": 3000, "folders": 2000, "disks": 600, "rivals": 120}


def test_the_committed_page_has_as_many_trials_as_were_asked_for() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    for name, attack in ATTACKS.items():
        part = page.split(f"## {attack.title}\n")[1].split("\n## ")[0]
        cells = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")]
        rows = {one[0].strip(): one[1].strip() for one in cells}
        assert int(rows["all"].replace(",", "")) >= attack.count >= LEAST.get(name, 1), name
        assert rows["what"] == "tried, all as expected", name


def test_choices_are_functions_of_the_seed(tmp_path: Path) -> None:
    one, other = Setting(tmp_path, 1), Setting(tmp_path, 2)
    assert one.rng("a", 1).random() == one.rng("a", 1).random()
    assert len({one.rng("a", 1).random(), one.rng("a", 2).random(), other.rng("a", 1).random()}) == 3
    with one.trial("a", "b", 0) as place:
        assert place.folder.is_dir()
    assert not place.folder.exists()


@pytest.mark.parametrize("way", [name for name in BYTES if name != "a bomb"])
def test_every_damage_is_a_function_of_its_choices(way: str) -> None:
    data = b'{"id": 1, "text": "some text"}\n' * 20
    one, again = (BYTES[way](random.Random(3), data) for _ in range(2))
    if "packed" not in way:  # gzip holds a time
        assert one == again
    assert any(BYTES[way](random.Random(seed), data) != data for seed in range(5)) or way == "Latin-1"


def test_the_full_disk_is_full(tmp_path: Path) -> None:
    from hostile.attack import Unavailable
    from hostile.mounts import check_root, leave_free, small_disk

    try:
        check_root()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with small_disk(tmp_path / "disk", 1024) as disk:
        leave_free(disk, 64)
        (disk / "fits").write_bytes(bytes(40_000))
        with pytest.raises(OSError, match="No space"):
            (disk / "more").write_bytes(bytes(100_000))
        leave_free(disk, None)
        (disk / "more").write_bytes(bytes(100_000))
    shutil.rmtree(tmp_path / "disk")

"""The ledger: nothing is spent twice, nothing un-spent, nothing beyond the budget, and no alteration goes unseen."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import BudgetError, LedgerError, UsageError
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.events import Gaussian, NonPrivate, PoissonGaussian, Relation, Spend, ThresholdedHistogram
from tacit.privacy.ledger import Ledger, LedgerHeader, _canonical, _digest

CHEAP = Gaussian(50.0)
"""Costs next to nothing and is quick to account for."""


def header(epsilon: float = 3.0, relation: Relation = "add-or-remove") -> LedgerHeader:
    return LedgerHeader("user", relation, 1000, epsilon, 1e-6, "config digest", "key commitment")


def stored(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM rows ORDER BY sequence").fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.create(path, header()) as ledger:
        yield ledger


def fill(path: Path) -> None:
    """Rows of every kind; two stages whose spends are interleaved."""
    with Ledger.create(path, header()) as ledger:
        ledger.plan("vocabulary", ThresholdedHistogram(60.0, 400, 16), 1, "training units")
        ledger.plan("first", CHEAP, 9)
        ledger.bind("the private corpus", "fingerprint")
        ledger.plan("second", Gaussian(80.0), 5)
        ledger.charge("vocabulary")
        for stage, step in (("first", 0), ("first", 1), ("second", 0), ("first", 2), ("second", 1), ("second", 2)):
            ledger.charge(stage, step)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "ledger.sqlite"
    fill(path)
    return path


@contextmanager
def copy_of(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copy(path, folder))


# what a ledger holds -------------------------------------------------------------------------------------------------


def test_everything_survives_closing(filled: Path) -> None:
    with Ledger.open(filled) as ledger:
        assert ledger.header == header()
        assert {name: ledger.spent(name) for name in ledger.plans} == {"vocabulary": 1, "first": 3, "second": 3}
        assert ledger.spends() == [
            Spend(ThresholdedHistogram(60.0, 400, 16), 1, "training units"),
            Spend(CHEAP, 3),
            Spend(Gaussian(80.0), 3),
        ]
        assert ledger.head == ledger.rows[-1].digest == stored(filled)[-1][-1]


def test_interleaved_stages_are_one_row_a_stretch(filled: Path) -> None:
    with Ledger.open(filled, readonly=True) as ledger:
        spends = [(row.body["stage"], row.first, row.count) for row in ledger.rows if row.kind == "spend"]
    assert spends == [("vocabulary", 0, 1), ("first", 0, 2), ("second", 0, 1), ("first", 2, 1), ("second", 1, 2)]


def test_an_infinite_budget_survives_and_lets_heuristics_in(path: Path) -> None:
    with Ledger.create(path, header(math.inf)) as ledger:
        ledger.plan("heuristic", NonPrivate("heuristic:hoory"), 1)
        ledger.charge("heuristic")
    with Ledger.open(path) as ledger:
        assert ledger.header.epsilon == math.inf
        assert joint_epsilon(ledger.spends(), 1e-6) == math.inf


# charging ------------------------------------------------------------------------------------------------------------


def test_a_step_is_on_disk_when_charge_returns(path: Path, ledger: Ledger) -> None:
    ledger.plan("train", CHEAP, 5)
    for step in range(5):
        ledger.charge("train", step)
        with Ledger.open(path, readonly=True) as reader:
            assert reader.spent("train") == step + 1
            assert reader.head == ledger.head


def test_a_step_is_paid_once(ledger: Ledger) -> None:
    ledger.plan("train", CHEAP, 5)
    for step in (0, 1, 2, 2, 0, 1, 2):
        ledger.charge("train", step)
    before = ledger.head
    ledger.charge("train", 1)
    assert ledger.spent("train") == 3
    assert ledger.head == before


def test_steps_are_paid_in_order_and_within_the_limit(path: Path, ledger: Ledger) -> None:
    ledger.plan("train", CHEAP, 2)
    before = stored(path)
    with pytest.raises(UsageError, match="counted from 0"):
        ledger.charge("train", -1)
    with pytest.raises(LedgerError, match="step 1 would skip some: it is older"):
        ledger.charge("train", 1)
    with pytest.raises(UsageError, match="not planned"):
        ledger.charge("evaluation")
    assert stored(path) == before
    ledger.charge("train", 0)
    ledger.charge("train", 1)
    before = stored(path)
    for step in (2, 3, 1000):
        with pytest.raises(BudgetError, match="has used all its 2 steps"):
            ledger.charge("train", step)
    assert stored(path) == before
    assert ledger.spent("train") == 2


def test_a_negative_step_is_never_free(ledger: Ledger) -> None:
    ledger.plan("train", CHEAP, 2)
    with pytest.raises(UsageError, match="counted from 0"):
        ledger.charge("train", -1)
    ledger.charge("train")
    with pytest.raises(UsageError, match="counted from 0"):
        ledger.charge("train", -1)
    assert ledger.spent("train") == 1


STAGES = {"a": 4, "b": 7, "c": 1}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from([*STAGES, "d"]), st.integers(-1, 9), st.booleans()), max_size=25))
def test_charging_is_a_counter_with_a_limit(charges: list[tuple[str, int, bool]]) -> None:
    """Against a model of four lines, with closing and reopening at any moment."""
    model = dict.fromkeys(STAGES, 0)
    stretches, last = 0, ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        ledger = Ledger.create(path, header())
        for stage, limit in STAGES.items():
            ledger.plan(stage, CHEAP, limit)
        fixed = len(ledger.rows)
        for stage, step, reopen in charges:
            if stage not in model or step < 0 or (step >= model[stage] and step != model[stage]):
                with pytest.raises((UsageError, BudgetError, LedgerError)):
                    ledger.charge(stage, step)
            elif step == model[stage] == STAGES[stage]:
                with pytest.raises(BudgetError):
                    ledger.charge(stage, step)
            else:
                ledger.charge(stage, step)
                if step == model[stage]:
                    model[stage] += 1
                    stretches += last != stage
                    last = stage
            if reopen:
                ledger.close()
                ledger = Ledger.open(path)
            assert {name: ledger.spent(name) for name in STAGES} == model
        assert len(ledger.rows) == fixed + stretches
        firsts = dict.fromkeys(STAGES, 0)
        for row in ledger.rows[fixed:]:
            assert row.first == firsts[row.body["stage"]]
            firsts[row.body["stage"]] += row.count
        ledger.close()


# planning ------------------------------------------------------------------------------------------------------------


def test_a_plan_beyond_the_budget_is_refused_and_writes_nothing(path: Path, ledger: Ledger) -> None:
    ledger.plan("vocabulary", ThresholdedHistogram(60.0, 400, 16), 1)
    before = stored(path)
    with pytest.raises(BudgetError, match=r"Nothing was spent"):
        ledger.plan("train", PoissonGaussian(0.05, 0.7), 500)
    with pytest.raises(BudgetError):
        ledger.plan("leak", NonPrivate("heuristic:hoory"), 1)
    assert stored(path) == before
    assert set(ledger.plans) == {"vocabulary"}
    with pytest.raises(UsageError, match="not planned"):
        ledger.charge("train")
    ledger.plan("train", PoissonGaussian(0.05, 3.0), 100)


def test_the_budget_counts_all_stages_together(ledger: Ledger) -> None:
    event = Gaussian(3.0)  # epsilon 1.45 alone, 2.11 twice, 2.64 three times, 3.10 four times
    for number in range(3):
        ledger.plan(f"release {number}", event, 1)
    with pytest.raises(BudgetError):
        ledger.plan("release 3", event, 1)
    with pytest.raises(BudgetError):
        ledger.plan("release 3", event, 4, partition="held-out units")


def test_the_budget_counts_what_is_planned_not_what_is_spent(ledger: Ledger) -> None:
    ledger.plan("planned", Gaussian(3.0), 3)
    ledger.charge("planned", 0)
    with pytest.raises(BudgetError):
        ledger.plan("more", Gaussian(3.0), 1)


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_disjoint_partitions_share_the_budget_only_under_replacement(path: Path, relation: Relation) -> None:
    with Ledger.create(path, header(3.0, relation)) as ledger:
        event = Gaussian(3.5) if relation == "add-or-remove" else Gaussian(7.0)
        ledger.plan("train", event, 3, "training units")
        if relation == "add-or-remove":
            ledger.plan("evaluation", event, 3, "held-out units")
        else:
            with pytest.raises(BudgetError):
                ledger.plan("evaluation", event, 3, "held-out units")


@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("budget", [3.0, math.inf])
def test_a_plan_of_no_steps_is_refused(path: Path, limit: int, budget: float) -> None:
    with Ledger.create(path, header(budget)) as ledger, pytest.raises(UsageError, match="count is"):
        ledger.plan("train", CHEAP, limit)


def test_planning_again_is_free_and_planning_otherwise_is_refused(path: Path, ledger: Ledger) -> None:
    ledger.plan("train", CHEAP, 5)
    before = stored(path)
    ledger.plan("train", CHEAP, 5)
    for event, limit, partition in ((Gaussian(51.0), 5, "training"), (CHEAP, 6, "training"), (CHEAP, 5, "held out")):
        with pytest.raises(LedgerError, match="planned differently"):
            ledger.plan("train", event, limit, partition)
    assert stored(path) == before


def test_what_is_bound_cannot_change(path: Path, ledger: Ledger) -> None:
    ledger.bind("the private corpus", "one")
    before = stored(path)
    ledger.bind("the private corpus", "one")
    with pytest.raises(LedgerError, match="the private corpus changed"):
        ledger.bind("the private corpus", "other")
    assert stored(path) == before
    ledger.bind("the tokenizer", "other")


# alterations ---------------------------------------------------------------------------------------------------------

COLUMNS = ("sequence", "kind", "body", "first", "count", "digest")


def values_for(column: str) -> st.SearchStrategy[Any]:
    if column in ("sequence", "first", "count"):
        return st.one_of(st.integers(-3, 30), st.just("1"), st.just(b"1"), st.floats(allow_nan=False), st.just("x"))
    texts = st.sampled_from(["open", "plan", "spend", "bind", "", "{}", "[]", '{"stage":"first"}', "0" * 64, "null"])
    return st.one_of(texts, texts.map(str.encode), st.integers(0, 3), st.text(max_size=8).map(json.dumps))


edits = st.integers(0, 9).flatmap(
    lambda row: st.sampled_from(COLUMNS).flatmap(
        lambda column: st.tuples(st.just(row), st.just(column), values_for(column))
    )
)


def same_meaning(column: str, one: Any, other: Any) -> bool:
    if column == "body":
        try:
            return bool(json.loads(one) == json.loads(other))
        except (TypeError, ValueError):
            return False
    return bool(one == other)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(edits)
def test_any_changed_field_is_found(filled: Path, edit: tuple[int, str, Any]) -> None:
    row, column, value = edit
    before = stored(filled)
    with copy_of(filled) as path:
        with closing(sqlite3.connect(path)) as connection:
            try:
                connection.execute(f"UPDATE rows SET {column} = ? WHERE sequence = ?", (value, row))
            except sqlite3.IntegrityError:  # the file's own rules refuse it
                return
            connection.commit()
        after = stored(path)
        if len(after) == len(before) and all(
            same_meaning(name, *pair)
            for old, new in zip(before, after, strict=True)
            for name, pair in zip(COLUMNS, zip(old, new, strict=True), strict=True)
        ):
            Ledger.open(path, readonly=True).close()
            return
        with pytest.raises(LedgerError):
            Ledger.open(path, readonly=True)
        with pytest.raises(LedgerError):
            Ledger.open(path)


def test_every_field_of_every_row_is_covered_by_the_chain(filled: Path) -> None:
    """Exhaustive: add 1 to a number, a letter to a text, in each place."""
    rows = stored(filled)
    assert len(rows) == 10
    for row in rows:
        for column, old in zip(COLUMNS, row, strict=True):
            new = old + 1 if isinstance(old, int) else old.replace("a", "b", 1) if "a" in old else old + "a"
            if column == "sequence" and old < 9:
                new = old + 100
            with copy_of(filled) as path:
                with closing(sqlite3.connect(path)) as connection:
                    connection.execute(f"UPDATE rows SET {column} = ? WHERE sequence = ?", (new, row[0]))
                    connection.commit()
                with pytest.raises(LedgerError):
                    Ledger.open(path)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sets(st.integers(0, 9), min_size=1, max_size=9), st.booleans())
def test_missing_rows_are_found(filled: Path, missing: set[int], renumber: bool) -> None:
    """Rows missing at the end alone leave a chain: the certificate's head is there to catch that."""
    with copy_of(filled) as path:
        with closing(sqlite3.connect(path)) as connection:
            connection.executemany("DELETE FROM rows WHERE sequence = ?", [(row,) for row in missing])
            if renumber:
                kept = [row for row in range(10) if row not in missing]
                connection.executemany("UPDATE rows SET sequence = ? WHERE sequence = ?", list(enumerate(kept)))
            connection.commit()
        if missing == set(range(10 - len(missing), 10)):
            with Ledger.open(filled, readonly=True) as whole, Ledger.open(path, readonly=True) as cut:
                assert cut.head != whole.head
                assert cut.rows == whole.rows[: len(cut.rows)]
        else:
            with pytest.raises(LedgerError):
                Ledger.open(path)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.permutations(range(10)))
def test_reordered_rows_are_found(filled: Path, order: list[int]) -> None:
    rows = stored(filled)
    with copy_of(filled) as path:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM rows")
            for place, row in enumerate(order):
                connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", (place, *rows[row][1:]))
            connection.commit()
        if list(order) == list(range(10)):
            Ledger.open(path).close()
        else:
            with pytest.raises(LedgerError):
                Ledger.open(path)


@pytest.mark.parametrize("row", range(9))
def test_a_row_with_a_new_digest_of_its_own_breaks_the_next(filled: Path, row: int) -> None:
    """Known-wrong: digests without a chain would accept this."""
    rows = stored(filled)
    _, kind, body, first, count, _ = rows[row]
    previous = rows[row - 1][-1] if row else ""
    changed = _canonical({**json.loads(body), "extra": 1})
    with copy_of(filled) as path:
        with closing(sqlite3.connect(path)) as connection:
            digest = _digest(previous, kind, changed, first, count)
            connection.execute("UPDATE rows SET body = ?, digest = ? WHERE sequence = ?", (changed, digest, row))
            connection.commit()
        with pytest.raises(LedgerError, match=f"row {row + 1} was altered"):
            Ledger.open(path)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.data())
def test_a_damaged_file_is_refused_or_says_the_same(filled: Path, data: st.DataObject) -> None:
    """Some bytes of the file, wherever they are, overwritten."""
    content = bytearray(filled.read_bytes())
    start = data.draw(st.integers(0, len(content) - 1))
    new = data.draw(st.binary(min_size=1, max_size=6))
    content[start : start + len(new)] = new
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        path.write_bytes(content)
        try:
            damaged = Ledger.open(path, readonly=True)
        except LedgerError:
            return
        with damaged, Ledger.open(filled, readonly=True) as whole:
            assert damaged.rows == whole.rows


def test_what_is_not_a_ledger_is_refused(tmp_path: Path) -> None:
    text, empty, other, bare = (tmp_path / name for name in ("text", "empty", "other", "bare"))
    text.write_text("not a database " * 500)
    empty.touch()
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    with closing(sqlite3.connect(bare)) as connection:
        connection.execute("CREATE TABLE rows (sequence, kind, body, first, count, digest)")
    for path in (text, empty, other, bare, tmp_path, tmp_path / "absent"):
        for readonly in (True, False):
            with pytest.raises(LedgerError):
                Ledger.open(path, readonly=readonly)


# files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "added",
    [
        "CREATE TRIGGER gone AFTER INSERT ON rows BEGIN DELETE FROM rows WHERE sequence = new.sequence; END",
        "CREATE TABLE others (sequence INTEGER)",
        "CREATE VIEW shown AS SELECT * FROM rows",
    ],
    ids=["trigger", "table", "view"],
)
def test_a_ledger_holds_nothing_but_its_rows(path: Path, added: str) -> None:
    """A trigger would take back each payment that is written."""
    fill(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ANALYZE")  # a table of SQLite's own
    Ledger.open(path).close()  # positive control
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(added)
    for readonly in (True, False):
        with pytest.raises(LedgerError, match="more than a ledger's rows"):
            Ledger.open(path, readonly=readonly)


def test_a_ledger_is_never_overwritten(path: Path, ledger: Ledger) -> None:
    ledger.plan("train", CHEAP, 5)
    ledger.charge("train")
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, header())
    assert ledger.spent("train") == 1


def test_the_log_of_a_lost_ledger_is_not_read_into_a_new_one(tmp_path: Path) -> None:
    """SQLite would: the new ledger would begin with the old one's header and rows."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    with Ledger.create(old / "ledger.sqlite", header(100.0)) as ledger:
        ledger.plan("train", CHEAP, 5)
        shutil.copy(old / "ledger.sqlite-wal", new)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite-wal"):
        Ledger.create(new / "ledger.sqlite", header())
    (new / "ledger.sqlite-wal").unlink()
    with Ledger.create(new / "ledger.sqlite", header()) as fresh:
        assert len(fresh.rows) == 1
        assert fresh.header == header()


def test_a_half_made_ledger_is_begun_again(path: Path) -> None:
    path.with_name(path.name + ".partial").write_bytes(b"killed here")
    with Ledger.create(path, header()) as ledger:
        assert len(ledger.rows) == 1


def test_a_reader_cannot_write(path: Path, ledger: Ledger) -> None:
    ledger.plan("train", CHEAP, 5)
    with Ledger.open(path, readonly=True) as reader:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.charge("train")
        assert reader.spent("train") == 0
    assert ledger.spent("train") == 0


def test_the_second_of_two_writers_is_stopped_before_it_spends(path: Path, ledger: Ledger) -> None:
    ledger.plan("train", CHEAP, 9)
    with Ledger.open(path) as second:
        ledger.charge("train", 0)
        with pytest.raises(LedgerError, match="another process wrote"):
            second.charge("train", 0)
        with pytest.raises(LedgerError, match="another process wrote"):
            second.bind("anything", "new")
        ledger.charge("train", 1)
    with Ledger.open(path) as third:
        assert third.spent("train") == 2


CHILD = """
import sys
from pathlib import Path
from tacit.errors import LedgerError
from tacit.privacy.ledger import Ledger

with Ledger.open(Path(sys.argv[1])) as ledger:
    print("ready", flush=True)
    sys.stdin.readline()
    step = ledger.spent("train")
    while True:
        try:
            ledger.charge("train", step)
        except LedgerError:
            print("stopped", flush=True)
            break
        print("paid", step, flush=True)
        step += 1
"""


def start_child(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def begin(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


@pytest.mark.slow
@pytest.mark.parametrize("killed_after", [1, 40])
def test_killed_at_any_moment_the_ledger_holds_all_that_was_acknowledged(path: Path, killed_after: int) -> None:
    with Ledger.create(path, header()) as ledger:
        ledger.plan("train", Gaussian(2000.0), 100_000)
    child = start_child(path)
    try:
        begin(child)
        assert child.stdout is not None
        paid = [child.stdout.readline() for _ in range(killed_after)]
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    paid += child.stdout.read().splitlines(keepends=True)
    paid = [line for line in paid if line.endswith("\n")]
    assert paid == [f"paid {step}\n" for step in range(len(paid))]
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    with Ledger.open(path, readonly=True) as reader:
        assert len(paid) <= reader.spent("train") <= len(paid) + 1
    with Ledger.open(path) as ledger:
        spent = ledger.spent("train")
        assert len(paid) <= spent <= len(paid) + 1
        ledger.charge("train", max(0, spent - 3))  # an older checkpoint: free
        assert ledger.spent("train") == spent
        ledger.charge("train", spent)
        assert ledger.spent("train") == spent + 1
    with Ledger.open(path) as ledger:
        assert ledger.spent("train") == spent + 1


@pytest.mark.slow
def test_of_two_processes_one_stops_and_no_payment_is_lost(path: Path) -> None:
    with Ledger.create(path, header()) as ledger:
        ledger.plan("train", Gaussian(2000.0), 100_000)
    children = [start_child(path) for _ in range(2)]
    try:
        for child in children:
            begin(child)
        lines: list[list[str]] = [[], []]
        while not any("stopped\n" in said for said in lines):
            for child, said in zip(children, lines, strict=True):
                assert child.stdout is not None
                said.append(child.stdout.readline())
    finally:
        for child in children:
            child.kill()
            child.wait()
    for child, said in zip(children, lines, strict=True):
        assert child.stdout is not None
        said += child.stdout.read().splitlines(keepends=True)
    paid = [line for said in lines for line in said if line.startswith("paid") and line.endswith("\n")]
    assert len(set(paid)) == len(paid)  # no step was granted to both
    with Ledger.open(path) as ledger:
        assert len(paid) <= ledger.spent("train") <= len(paid) + 1


# folders that cannot be written --------------------------------------------------------------------------------------

READER = """
import os, sys
import urllib.parse  # by pathlib, at its first use; by then this user may not be able to read the folder of Python
from pathlib import Path
from tacit.errors import LedgerError
from tacit.privacy.ledger import Ledger

if os.geteuid() == 0:  # nothing is unwritable to root
    os.setgid(65534)
    os.setuid(65534)
assert not os.access(Path(sys.argv[1]).parent, os.W_OK)
try:
    with Ledger.open(Path(sys.argv[1]), readonly=True) as ledger:
        print(ledger.spent("first"))
except LedgerError:
    print("refused")
"""


def read_without_write_permission(folder: Path) -> str:
    folder.chmod(0o555)
    try:
        run = subprocess.run(
            [sys.executable, "-c", READER, str(folder / "ledger.sqlite")], capture_output=True, text=True, check=True
        )
    finally:
        folder.chmod(0o755)
    return run.stdout.strip()


def test_a_closed_ledger_is_readable_in_a_folder_that_cannot_be_written(filled: Path) -> None:
    with copy_of(filled) as path:
        assert read_without_write_permission(path.parent) == "3"
        assert os.listdir(path.parent) == ["ledger.sqlite"]


def test_there_an_open_log_is_read_or_the_ledger_refused_but_no_payment_overlooked(tmp_path: Path) -> None:
    """Without its log this ledger would look as if nothing had been spent."""
    with Ledger.create(tmp_path / "ledger.sqlite", header()) as ledger:
        ledger.plan("first", CHEAP, 5)
        ledger.charge("first")
        with copy_of(tmp_path / "ledger.sqlite") as path:
            shutil.copy(tmp_path / "ledger.sqlite-wal", path.parent)
            assert read_without_write_permission(path.parent) in ("1", "refused")

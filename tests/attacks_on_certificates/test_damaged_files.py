"""Certificates, manifests and ledgers that somebody has damaged or rewritten: one line each, never a traceback.

What was wrong: `tacit report`, `ledger` and `audit` ended in a traceback on a certificate that was nested 100,000 deep, a list, with
numbers for digests, NaN, text for mu or true for delta, and on a ledger whose rows had valid digests and wrong bodies. Who reads a
traceback does not know whether the certificate holds. The last tests count the tracebacks of some hundreds of mutations: none.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.cli.ledger import command as show_ledger
from tacit.config import parse_config
from tacit.errors import LedgerError, TacitError
from tacit.files import read_json, write_json
from tacit.privacy.certificate import file_digests, make_certificate
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.events import PoissonGaussian, ThresholdedHistogram
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.release.alone import verify_release
from tacit.release.manifest import check_bound, check_manifest, finish_release
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder

from ..ledgers import Row, rewrite_rows
from ..small import small_values, tacit


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder made by hand: a few cheap stages, a release of three files, no private part."""
    run = tmp_path_factory.mktemp("made") / "run"
    (run / "release" / "model").mkdir(parents=True)
    (run / "private").mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (run / "release" / "model" / name).write_text(name)
    values = small_values(run.parent)
    config = parse_config(values)
    write_json(run / "config.json", config.model_dump(mode="json"))
    header = LedgerHeader("user", "add-or-remove", 150, 60.0, 1e-4, config.digest(), "key")
    with Ledger.create(run / "ledger.sqlite", header) as ledger:
        ledger.bind("the training noise's source", "dice")
        ledger.plan("vocabulary", ThresholdedHistogram(6.0, 40, 16), 1, "training units")
        ledger.plan("private", PoissonGaussian(0.1, 2.0), 3, "training units")
        ledger.charge("vocabulary")
        for step in range(3):
            ledger.charge("private", step)
        write_json(
            run / "release" / "certificate.json", make_certificate(ledger, file_digests(run / "release"), "dice")
        )
        finish_release(ledger, run / "release")
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def refused(read: Callable[[], Any]) -> str:
    with pytest.raises(LedgerError) as refusal:
        read()
    said = str(refusal.value)
    assert refusal.value.exit_code == 4
    assert said.isprintable(), said
    assert len(said) < 1000
    return said


# the certificate -----------------------------------------------------------------------------------------------------

WHOLE: list[tuple[str, bytes]] = [
    ("nested", b'{"version": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ("nested objects", b'{"rho":' * 100_000 + b"1" + b"}" * 100_000),
    ("a list", b"[]"),
    ("a number", b"5"),
    ("nothing", b""),
    ("cut", b'{"version": 1'),
    ("no UTF-8", b'{"unit": "\xff\xfe"}'),
    ("a name twice", b'{"version": 1, "version": 1}'),
    ("a long number", b'{"version": ' + b"1" * 5000 + b"}"),
]


@pytest.mark.parametrize("data", [data for _, data in WHOLE], ids=[name for name, _ in WHOLE])
def test_a_certificate_that_is_none(run: Path, data: bytes) -> None:
    path = run / "release" / "certificate.json"
    path.write_bytes(data)
    for read in (
        lambda: read_certificate(path),
        lambda: verify_run(RunFolder(run)),
        lambda: verify_release(path.parent),
    ):
        assert "certificate" in refused(read)


def test_a_huge_certificate_is_not_read(run: Path) -> None:
    path = run / "release" / "certificate.json"
    with path.open("wb") as file:
        file.truncate((50 << 20) + 1)
    assert "larger than 50 MB" in refused(lambda: read_certificate(path))


VALUES: list[tuple[str, Any]] = [
    ("files", {"model/config.json": 5}),
    ("files", {"model/config.json": None}),
    ("files", ["model/config.json"]),
    ("files", {"../../etc/passwd": "0" * 64}),
    ("files", {"/etc/passwd": "0" * 64}),
    ("mu", float("nan")),
    ("mu", "a lot"),
    ("mu", -1.0),
    ("mu", float("inf")),
    ("epsilons", [{"delta": True, "epsilon": 1.0}]),
    ("epsilons", []),
    ("epsilons", {"delta": 1e-4}),
    ("spends", [{"stage": "train", "partition": "p", "count": 10**30, "event": {"kind": "gaussian"}}]),
    ("spends", [{"stage": "train", "partition": "p", "count": 1, "event": {"kind": "magic"}}]),
    ("spends", [{"stage": "train", "partition": "p", "count": 1, "event": {"kind": ["gaussian"]}}]),
    (
        "spends",
        [
            {
                "stage": "train",
                "partition": "p",
                "count": True,
                "event": {"kind": "gaussian", "noise_multiplier": 2.0},
            }
        ],
    ),
    (
        "spends",
        [{"stage": "train", "partition": "p", "count": 1, "event": {"kind": "gaussian", "noise_multiplier": True}}],
    ),
    ("confidentiality", None),
    ("confidentiality", {"bayesian": 5}),
    ("fine_tuning", []),
    ("adaptive", {"delta": 1e-4}),
    ("start", []),
    ("total_variation", 2.0),
    ("units", True),
    ("version", 99),
    ("version", True),
    ("\x1b[31m", 1),
]


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_a_value_of_another_kind(run: Path, name: str, value: Any) -> None:
    path = run / "release" / "certificate.json"
    path.write_text(json.dumps({**read_json(path), name: value}))
    refused(lambda: read_certificate(path))


def test_what_comes_with_version_two_is_read(run: Path) -> None:
    path = run / "release" / "certificate.json"
    behind = {
        "head": "0",
        "unit": "user",
        "units": 9,
        "relation": "replace",
        "epsilon": "infinity",
        "delta": 0.1,
        "spends": [],
    }
    start = {"same_people": True, "given": [], "ancestors": [behind]}
    write_json(path, {**read_json(path), "version": 2, "tacit_version": "1.0", "start": start})
    assert read_certificate(path)["start"] == start


# the ledger ----------------------------------------------------------------------------------------------------------


def changed(number: int, **fields: Any) -> Callable[[list[Row]], list[Row]]:
    """One row's body with other fields."""

    def change(rows: list[Row]) -> list[Row]:
        kind, body, first, count = rows[number]
        return [*rows[:number], (kind, {**body, **fields}, first, count), *rows[number + 1 :]]

    return change


def with_body(number: int, body: Any) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [
        *rows[:number],
        (rows[number][0], body, *rows[number][2:]),
        *rows[number + 1 :],
    ]


def with_row(*row: Any) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [*rows, row]  # pyright: ignore[reportReturnType]


GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 2.0}
LEDGERS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "a list for a header": with_body(0, []),
    "no header": with_body(0, {}),
    "text for delta": changed(0, delta="small"),
    "true for delta": changed(0, delta=True),
    "a relation unknown": changed(0, relation="cousins"),
    "a plan without keys": with_body(2, {"stage": "vocabulary"}),
    "a plan that is text": with_body(2, "plan"),
    "an unknown event": changed(2, event={"kind": "magic"}),
    "an event that is a list": changed(2, event=[]),
    "text for noise": changed(2, event={**GAUSSIAN, "noise_multiplier": "much"}),
    "true for noise": changed(2, event={**GAUSSIAN, "noise_multiplier": True}),
    "a field too many": changed(2, event={**GAUSSIAN, "free": 1}),
    "a partition that is a number": changed(2, partition=5),
    "a partition that is a list": changed(2, partition=["training units"]),
    "a negative limit": changed(2, limit=-1),
    "true for a limit": changed(2, limit=True),
    "a limit beyond all": changed(2, limit=10**15),
    "nested": with_body(1, json.loads("[" * 900 + "]" * 900)),
    "a spend of no stage": with_row("spend", {"stage": "ghost"}, 0, 1),
    "a spend over its limit": with_row("spend", {"stage": "private"}, 3, 1),
    "a negative spend": with_row("spend", {"stage": "private"}, 3, -1),
    "a spend that is counted as text": with_row("spend", {"stage": "private"}, "x", 1),
    "a stage planned twice": lambda rows: [*rows, rows[2]],
    "a name bound twice": lambda rows: [*rows, rows[1]],
    "two beginnings": lambda rows: [*rows, rows[0]],
    "a row of no kind": with_row("gift", {}, 0, 0),
    "a release that is none": with_row("release", {"manifest": "x"}, 0, 0),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_whose_digests_hold_and_whose_rows_do_not(run: Path, name: str) -> None:
    rewrite_rows(run / "ledger.sqlite", LEDGERS[name])
    for readonly in (True, False):
        said = refused(lambda readonly=readonly: Ledger.open(run / "ledger.sqlite", readonly=readonly))
        assert "ledger.sqlite" in said


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "report", "ledger", "audit"])
def test_the_commands_say_it_in_one_line(run: Path, command: str) -> None:
    rewrite_rows(run / "ledger.sqlite", LEDGERS["a partition that is a number"])
    done = tacit(command, run)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "report"])
def test_the_commands_say_it_of_a_certificate(run: Path, command: str) -> None:
    (run / "release" / "certificate.json").write_bytes(WHOLE[0][1])
    done = tacit(command, run)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)


# a few hundred mutations ---------------------------------------------------------------------------------------------

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 0.5, 1e300, 1e-300, 2**60, "", "x", "infinity", "\x1b[31m",
    [], {}, [[]], {"kind": "gaussian"}, [None], "a" * 10_000, {"": ""},
]  # fmt: skip


def places(values: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(values, dict | list):
        for key in values if isinstance(values, dict) else range(len(values)):
            yield from places(values[key], (*place, key))


def mutated(values: Any, dice: random.Random) -> Any:
    """The values with one place replaced, removed, or doubled under another name."""
    place = dice.choice(list(places(values)))
    if not place:
        return dice.choice(ODD)
    values = copy.deepcopy(values)
    inside = values
    for key in place[:-1]:
        inside = inside[key]
    how = dice.randrange(4)
    if how == 0:
        del inside[place[-1]]
    elif how == 1 and isinstance(inside, dict):
        inside[f"{place[-1]}2"] = inside[place[-1]]
    else:
        inside[place[-1]] = dice.choice(ODD)
    return values


def _require_one_line(error: TacitError) -> None:
    assert error.exit_code == 4
    assert str(error).isprintable()


@pytest.mark.parametrize("name", ["certificate.json", "manifest.json"])
def test_mutated_files_of_a_release(run: Path, name: str) -> None:
    """The whole check of a lone release: each mutation is refused in a line, or fails a check."""
    path, dice = run / "release" / name, random.Random(16)
    whole = read_json(path)
    for _ in range(150):
        values = mutated(whole, dice)
        path.write_text(json.dumps(values))
        try:
            checks = verify_release(run / "release") if name == "certificate.json" else check_manifest(run / "release")
        except TacitError as error:
            _require_one_line(error)
        else:
            with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
                checks.append(check_bound(ledger, run / "release"))
            assert values == whole or not all(check.holds for check in checks)


def test_mutated_rows_of_a_ledger(run: Path) -> None:
    """Read, and where that is possible checked in whole."""
    path, dice = run / "ledger.sqlite", random.Random(17)
    saved = path.read_bytes()
    readable = 0
    for _ in range(200):
        path.write_bytes(saved)

        def change(rows: list[Row]) -> list[Row]:
            number = dice.randrange(len(rows))
            kind, body, first, count = rows[number]
            how = dice.randrange(6)
            if how == 0:
                return [*rows[:number], *rows[number + 1 :]]
            if how == 1:
                first, count = dice.choice([0, 1, -1, 7, "x", None, 2**60]), dice.choice([0, 1, -1, 3])
            else:
                body = mutated(body, dice)
            return [*rows[:number], (kind, body, first or 0, count), *rows[number + 1 :]]

        rewrite_rows(path, change)
        try:
            with Ledger.open(path, readonly=True) as ledger:
                same = ledger.certified_head == read_json(run / "release" / "certificate.json")["ledger_head"]
            readable += 1
            if readable < 25:
                show_ledger(run, as_json=True)
                checks = verify_run(RunFolder(run))
                assert same or not all(check.holds for check in checks)
        except TacitError as error:
            _require_one_line(error)
    assert readable > 10

"""The command line: the issue's numbers, one line and one exit code for every mistake, and a tour that names everything."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tacit import config as configuration
from tacit.cli.main import main
from tacit.cli.reference import all_commands
from tacit.failures import is_out_of_memory
from tacit.files import read_json
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import PoissonGaussian, Spend, ThresholdedHistogram
from tacit.privacy.ledger import Ledger, LedgerHeader

from ..small import small_values, write_config, write_corpora
from .calling import Tacit, assert_one_line

TOUR = (Path(__file__).parents[2] / "docs" / "tour.md").read_text(encoding="utf-8")
PRIVATE_WORD = "zqprivateword"

# the accountant ------------------------------------------------------------------------------------------------------

TRAINING = ("--sampling-probability", "0.0015792", "--noise-multiplier", "2.72", "--steps", "31250")
SMALL = ("--sampling-probability", "0.0256", "--noise-multiplier", "1.85", "--steps", "390", "--delta", "8e-5")


def test_the_issues_example_of_training(tacit: Tacit) -> None:
    found = tacit("accountant", "epsilon", *TRAINING, "--delta", "1e-8", "--json").json
    assert found["epsilon"] == pytest.approx(0.529, abs=1e-3)
    assert found["epsilon_rdp"] == pytest.approx(0.561, abs=1e-3)
    assert (found["delta"], found["noise_multiplier"], found["steps"]) == (1e-8, 2.72, 31250)


def test_the_issues_example_of_the_histogram(tacit: Tacit) -> None:
    histogram = ("accountant", "histogram", "--noise-stddev", "200", "--max-words", "256", "--json")
    found = tacit(*histogram, "--threshold", "982.5").json
    assert found["delta"] == pytest.approx(1.18e-4, rel=5e-3)
    assert found["threshold"] == 982.5
    found = tacit(*histogram, "--threshold", "1370", "--delta", "1e-9").json
    assert found["epsilon"] == pytest.approx(0.4242, abs=1e-4)
    assert (found["delta"], found["threshold"], found["max_words"]) == (1e-9, 1370, 256)


@pytest.mark.slow
def test_the_issues_example_of_both(tacit: Tacit) -> None:
    options = ("--noise-stddev", "200", "--threshold", "1370", "--max-words", "256", *TRAINING, "--delta", "1.1e-8")
    found = tacit("accountant", "joint", *options, "--json").json
    assert found["epsilon"] == pytest.approx(0.665, abs=1e-3)
    assert {"epsilon", "delta", "noise_multiplier", "threshold"} <= found.keys()
    assert found["epsilon"] < found["epsilon_vocabulary_alone"] + found["epsilon_training_alone"]


def test_replacement_costs_more(tacit: Tacit) -> None:
    """SOUNDNESS section 1: 1 under add-or-remove is 1.93 under replace-one."""
    assert tacit("accountant", "epsilon", *SMALL, "--json").json["epsilon"] == pytest.approx(1.0, abs=0.01)
    found = tacit("accountant", "epsilon", *SMALL, "--relation", "replace", "--json").json
    assert found["epsilon"] == pytest.approx(1.93, abs=0.01)
    assert found["relation"] == "replace"


def test_noise_meets_its_epsilon_and_hardly_more(tacit: Tacit) -> None:
    options = ("--sampling-probability", "0.05", "--steps", "100", "--delta", "1e-6")
    found = tacit("accountant", "noise", "--epsilon", "3", *options, "--json").json
    again = tacit("accountant", "epsilon", "--noise-multiplier", str(found["noise_multiplier"]), *options, "--json")
    assert again.json["epsilon"] == pytest.approx(found["epsilon"], rel=1e-9)
    assert 2.95 < found["epsilon"] <= 3
    assert found["delta"] == 1e-6


def test_histogram_solves_noise_and_threshold(tacit: Tacit) -> None:
    budget = ("--epsilon", "1", "--delta", "1e-6", "--max-words", "16", "--json")
    both = tacit("accountant", "histogram", *budget).json
    assert both["epsilon"] <= 1
    assert both["noise"] == "discrete-gaussian"
    assert both["threshold"] == int(both["threshold"])
    one = tacit("accountant", "histogram", *budget, "--noise-stddev", "30").json
    assert one["epsilon"] <= 1
    lower = ("--max-words", "16", "--noise-stddev", "30", "--threshold", str(one["threshold"] - 1), "--delta", "1e-6")
    found = tacit("accountant", "histogram", *lower, "--json").json["epsilon"]
    assert float(found) > 1  # one less would break the budget; infinity is a string in JSON


def test_words_for_people_name_the_same_numbers(tacit: Tacit) -> None:
    shown = tacit("accountant", "epsilon", *SMALL).out
    found = tacit("accountant", "epsilon", *SMALL, "--json").json
    assert f"epsilon: {found['epsilon']:.6g}\n" in shown
    assert "noise multiplier: 1.85\n" in shown


BAD_NUMBERS = [
    ("epsilon", {"--noise-multiplier": "nan"}, "noise_multiplier"),
    ("epsilon", {"--noise-multiplier": "0"}, "noise_multiplier"),
    ("epsilon", {"--sampling-probability": "nan"}, "sampling_probability"),
    ("epsilon", {"--sampling-probability": "1.5"}, "sampling_probability"),
    ("epsilon", {"--steps": "0"}, "at least 1"),
    ("epsilon", {"--delta": "nan"}, "delta"),
    ("epsilon", {"--delta": "1"}, "delta"),
    ("epsilon", {"--relation": "swap"}, "--relation"),
    ("noise", {"--epsilon": "nan"}, "epsilon"),
    ("noise", {"--epsilon": "0"}, "epsilon"),
    ("noise", {"--epsilon": "-1"}, "epsilon"),
    ("noise", {"--delta": "0"}, "delta"),
    ("histogram", {"--threshold": "nan"}, "threshold"),
    ("histogram", {"--noise-stddev": "nan"}, "--noise-stddev"),
    ("histogram", {"--noise-stddev": "-2"}, "--noise-stddev"),
    ("histogram", {"--max-words": "0"}, "--max-words"),
    ("histogram", {"--noise": "laplace"}, "--noise"),
    ("histogram", {"--delta": "nan"}, "delta"),
    ("joint", {"--noise-stddev": "inf"}, "--noise-stddev"),
    ("joint", {"--noise-multiplier": "-1"}, "noise_multiplier"),
]
GOOD = {
    "epsilon": {"--noise-multiplier": "1", "--sampling-probability": "0.1", "--steps": "5", "--delta": "1e-6"},
    "noise": {"--epsilon": "1", "--sampling-probability": "0.1", "--steps": "5", "--delta": "1e-6"},
    "histogram": {"--noise-stddev": "200", "--threshold": "1400", "--max-words": "16"},
}
GOOD["joint"] = GOOD["epsilon"] | GOOD["histogram"]


@pytest.mark.parametrize(("command", "bad", "named"), BAD_NUMBERS)
def test_an_impossible_number_is_one_line(tacit: Tacit, command: str, bad: dict[str, str], named: str) -> None:
    options = [part for pair in (GOOD[command] | bad).items() for part in pair]
    assert_one_line(tacit("accountant", command, *options, "--json"), 2, named)


@pytest.mark.parametrize("missing", ["--threshold", "--noise-stddev"])
def test_a_histogram_with_too_few_options(tacit: Tacit, missing: str) -> None:
    options = [part for name, value in GOOD["histogram"].items() if name != missing for part in (name, value)]
    assert_one_line(tacit("accountant", "histogram", *options), 2, missing)


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_loss_distribution_draws_svg_and_png(tacit: Tacit, tmp_path: Path, relation: str) -> None:
    options = [part for pair in (GOOD["epsilon"] | {"--relation": relation}).items() for part in pair]
    for name in ("loss.svg", "loss.png"):
        done = tacit("accountant", "loss-distribution", tmp_path / name, *options)
        assert done.code == 0, done.err
        assert done.out.strip() == str(tmp_path / name)
    assert ElementTree.parse(tmp_path / "loss.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert_one_line(tacit("accountant", "loss-distribution", tmp_path / "loss.pdf", *options), 2, "loss.pdf", ".svg")
    assert_one_line(tacit("accountant", "loss-distribution", tmp_path / "no" / "a.svg", *options), 2, "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loss.png", "loss.svg"]


# the environment -----------------------------------------------------------------------------------------------------


def test_env(tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = tacit("env", "--json").json
    assert {"tacit", "python", "torch", "transformers", "opendp", "device", "cores", "private folders"} <= found.keys()
    assert {"key", "training noise", "vocabulary noise"} <= found.keys()
    assert found["private folders"] == "mode 0700 holds here"
    shown = tacit("env").out
    assert all(str(value) in shown for value in found.values())
    assert list(tmp_path.iterdir()) == []


# configurations that are refused -------------------------------------------------------------------------------------


def values_with(folder: Path, section: str, **options: Any) -> dict[str, Any]:
    values = small_values(folder)
    return {**values, section: {**values[section], **options}}


def dp_phase(folder: Path, **options: Any) -> dict[str, Any]:
    values = small_values(folder)
    public, private = values["phases"]
    return {**values, "phases": [public, {**private, **options}]}


BUDGET = {"epsilon": 9.0, "delta": 1e-4}
BAD_CONFIGS: list[tuple[str, Callable[[Path], dict[str, Any]], int, tuple[str, ...]]] = [
    ("unknown", lambda f: values_with(f, "model", widht=3), 2, ("model.widht", "did you mean 'width'")),
    ("unknown at the top", lambda f: small_values(f, titel="x"), 2, ("'titel'", "did you mean 'title'")),
    ("unknown in a phase", lambda f: dp_phase(f, clip_nrom=1), 2, ("clip_nrom", "did you mean 'clip_norm'")),
    ("unknown budget", lambda f: values_with(f, "privacy", budget={**BUDGET, "epsilom": 1}), 2, ("'epsilon'",)),
    ("delta", lambda f: values_with(f, "privacy", budget={**BUDGET, "delta": 1 / 150}), 2, ("delta-too-large",)),
    ("epsilon 0", lambda f: values_with(f, "privacy", budget={**BUDGET, "epsilon": 0}), 2, ("budget.epsilon",)),
    ("epsilon below 0", lambda f: values_with(f, "privacy", budget={**BUDGET, "epsilon": -2}), 2, ("budget.epsilon",)),
    ("NaN", lambda f: values_with(f, "privacy", budget={**BUDGET, "epsilon": float("nan")}), 2, ("budget.epsilon",)),
    ("NaN delta", lambda f: values_with(f, "privacy", budget={**BUDGET, "delta": float("nan")}), 2, ("budget.delta",)),
    ("NaN clip", lambda f: dp_phase(f, clip_norm=float("nan")), 2, ("clip_norm",)),
    ("infinite noise", lambda f: dp_phase(f, noise_multiplier=float("inf")), 2, ("noise_multiplier",)),
    ("over budget", lambda f: dp_phase(f, noise_multiplier=0.4), 3, ("budget is 9", "Nothing was spent")),
    ("hoory", lambda f: values_with(f, "vocabulary", method="hoory"), 2, ("vocabulary-formula",)),
    ("unit", lambda f: values_with(f, "privacy", unit="family"), 2, ("privacy.unit",)),
    ("no user field", lambda f: values_with(f, "private", user_field=None), 2, ("private.user_field",)),
    ("missing option", lambda f: {k: v for k, v in small_values(f).items() if k != "privacy"}, 2, ("'privacy'",)),
    ("stage name", lambda f: dp_phase(f, name="evaluation"), 2, ("'evaluation'",)),
]


@pytest.mark.parametrize(
    ("values", "code", "parts"), [bad[1:] for bad in BAD_CONFIGS], ids=[bad[0] for bad in BAD_CONFIGS]
)
def test_a_bad_configuration_is_one_line_and_leaves_nothing(
    tacit: Tacit,
    tmp_path: Path,
    corpora: Path,
    values: Callable[[Path], dict[str, Any]],
    code: int,
    parts: tuple[str, ...],
) -> None:
    path = write_config(tmp_path / "config.yaml", values(corpora))
    for command in ("plan", "run"):
        done = tacit(command, path)
        assert_one_line(done, code, *parts)
        assert done.out == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.yaml"]
    assert sorted(entry.name for entry in corpora.iterdir()) == ["notes.jsonl", "public.jsonl"]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"a: [1\nb: 2\n", ":2: not valid YAML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"- 1\n", "mapping"),
        (b"", "the file is empty"),
        (b"# a\n", "the file is empty"),
    ],
)
def test_a_file_that_is_no_configuration(tacit: Tacit, tmp_path: Path, content: bytes, part: str) -> None:
    (tmp_path / "config.yaml").write_bytes(content)
    assert_one_line(tacit("plan", tmp_path / "config.yaml"), 2, "config.yaml", part)


def test_a_missing_configuration(tacit: Tacit, tmp_path: Path) -> None:
    for command in ("plan", "run", "compare"):
        assert_one_line(tacit(command, tmp_path / "no.yaml"), 2, "no.yaml: no such configuration file")


def test_a_command_that_was_renamed_says_its_new_name(tacit: Tacit, tmp_path: Path) -> None:
    """Whatever is given to it, and without a look at it."""
    for command, new in (
        ("vocabulary", "--until vocabulary`"),
        ("train", "--until control`"),
        ("evaluate", "compare CONFIG`"),
    ):
        assert_one_line(
            tacit(command, tmp_path / "no.yaml"), 2, f"`tacit {command}` is now `tacit run CONFIG --until", new
        )
        assert command not in tacit("--help").out.split()


def test_a_stage_that_there_is_not_is_refused_before_a_folder_is_made(tacit: Tacit, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", small_values(tmp_path))
    assert_one_line(
        tacit("run", config, "--until", "realease"), 2, "--until realease: there is no such stage; the stages are"
    )
    assert list(tmp_path.iterdir()) == [config]


# data that is refused ------------------------------------------------------------------------------------------------


def with_line(line: bytes) -> Callable[[bytes], bytes]:
    """The corpus with this as its fourth line."""
    return lambda data: b"\n".join([*data.split(b"\n")[:3], line, *data.split(b"\n")[3:]])


def note(**fields: Any) -> bytes:
    return json.dumps({"note_id": "n", "patient_id": "p", "text": PRIVATE_WORD, **fields}).encode()


BAD_DATA: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "missing file": (lambda data: None, "notes.jsonl"),
    "empty corpus": (lambda data: b"", "notes.jsonl: the corpus is empty"),
    "blank lines": (lambda data: b"\n \n\n", "empty"),
    "invalid UTF-8": (with_line(PRIVATE_WORD.encode() + b"\xff\xfe"), "notes.jsonl, line 4"),
    "not JSON": (with_line(b'{"text": "' + PRIVATE_WORD.encode()), "notes.jsonl, line 4"),
    "too long": (with_line(note(text=PRIVATE_WORD * 400)), "notes.jsonl, line 4"),
    "no user": (with_line(b'{"note_id": "n", "text": "' + PRIVATE_WORD.encode() + b'"}'), "'patient_id'"),
    "empty user": (with_line(note(patient_id="")), "notes.jsonl, line 4"),
    "text is a number": (with_line(note(text=7)), "notes.jsonl, line 4"),
}


SEEN_AT_ONCE = {"missing file", "empty corpus", "blank lines"}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    write_corpora(folder, patients=150, records=40)
    return folder


@pytest.mark.parametrize("kind", BAD_DATA)
def test_bad_data_is_one_line_without_its_text(tacit: Tacit, tmp_path: Path, corpora: Path, kind: str) -> None:
    change, part = BAD_DATA[kind]
    data = change((corpora / "notes.jsonl").read_bytes())
    if data is not None:
        (tmp_path / "notes.jsonl").write_bytes(data)
    (tmp_path / "public.jsonl").write_bytes((corpora / "public.jsonl").read_bytes())
    values = values_with(tmp_path, "private", max_record_bytes=3000)
    run = tmp_path / "run"
    for is_there in (False, True):
        done = tacit("run", write_config(tmp_path / "config.yaml", values), "--until", "vocabulary")
        assert_one_line(done, 4, "notes.jsonl", part)
        assert PRIVATE_WORD not in done.out + done.err
        assert run.exists() == is_there  # what this start made goes
        run.mkdir(exist_ok=True)
    if kind in SEEN_AT_ONCE:  # in the first second, before there is a run
        assert list(run.iterdir()) == []
        return
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.spends() == []
    assert not (run / "release").exists()
    assert not list(run.rglob("*.partial")) + list(run.rglob(".*"))
    assert list((run / "private" / "vocabulary").iterdir()) == []


# run folders that are refused ----------------------------------------------------------------------------------------

RUN_COMMANDS = [("ledger", 4), ("verify", 4), ("audit", 2), ("report", 2)]


@pytest.mark.parametrize(("command", "code"), RUN_COMMANDS)
def test_not_a_run_folder(tacit: Tacit, tmp_path: Path, command: str, code: int) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        assert_one_line(tacit(command, folder), code, str(folder), "tacit run CONFIG")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A folder with a ledger of one paid stage, a configuration and a certificate that is none."""
    run = tmp_path / "run"
    (run / "release").mkdir(parents=True)
    header = LedgerHeader("user", "add-or-remove", 100, 8.0, 1e-5, "digest", "commitment")
    with Ledger.create(run / "ledger.sqlite", header) as ledger:
        ledger.plan("private", PoissonGaussian(0.1, 2.0), 3)
        ledger.charge("private", 0)
    checked = configuration.parse_config(small_values(tmp_path))
    (run / "config.json").write_text(json.dumps(checked.model_dump(mode="json")))
    (run / "release" / "certificate.json").write_text("{}")
    return run


def test_ledger_shows_a_whole_one(tacit: Tacit, run_folder: Path) -> None:
    found = tacit("ledger", run_folder, "--json").json
    assert [(stage["stage"], stage["spent"], stage["planned"]) for stage in found["stages"]] == [("private", 1, 3)]
    assert found["epsilon"] == found["stages"][0]["epsilon_alone"] > 0
    assert "1/3" in tacit("ledger", run_folder).out


def _garbage(ledger: Path) -> None:
    ledger.write_bytes(b"this is no database" * 100)


def _altered(ledger: Path) -> None:
    with sqlite3.connect(ledger) as connection:
        connection.execute("UPDATE rows SET count = 0 WHERE kind = 'spend'")
    connection.close()


def _cut(ledger: Path) -> None:
    ledger.write_bytes(ledger.read_bytes()[:5000])


def _without_a_row(ledger: Path) -> None:
    with sqlite3.connect(ledger) as connection:
        connection.execute("DELETE FROM rows WHERE kind = 'plan'")
    connection.close()


@pytest.mark.parametrize("damage", [_garbage, _altered, _cut, _without_a_row])
@pytest.mark.parametrize("command", ["ledger", "verify"])
def test_a_damaged_ledger(tacit: Tacit, run_folder: Path, damage: Callable[[Path], None], command: str) -> None:
    damage(run_folder / "ledger.sqlite")
    assert_one_line(tacit(command, run_folder), 4, "ledger.sqlite")


@pytest.mark.parametrize("certificate", ["{", "[]", "{}", "5", '{"epsilons": [{"epsilon": "x"}]}'])
def test_a_damaged_certificate(tacit: Tacit, run_folder: Path, certificate: str) -> None:
    (run_folder / "release" / "certificate.json").write_text(certificate)
    assert_one_line(tacit("verify", run_folder), 4, "certificate")


@pytest.mark.parametrize("content", [b'{"a', b"\xff", b""])
@pytest.mark.parametrize("command", ["audit", "report"])
def test_a_damaged_configuration_of_a_run(tacit: Tacit, run_folder: Path, content: bytes, command: str) -> None:
    (run_folder / "config.json").write_bytes(content)
    assert_one_line(tacit(command, run_folder), 4, "config.json")


def test_a_run_that_has_not_finished_has_no_report(tacit: Tacit, run_folder: Path) -> None:
    (run_folder / "release" / "certificate.json").unlink()
    assert_one_line(tacit("report", run_folder), 2, "has not finished")
    assert read_json(run_folder / "config.json")["title"] == "small test run"


def test_a_run_without_canaries_has_no_audit(tacit: Tacit, run_folder: Path) -> None:
    values = {**read_json(run_folder / "config.json"), "audit": None}
    (run_folder / "config.json").write_text(json.dumps(values))
    assert_one_line(tacit("audit", run_folder), 2, "no canaries")


def test_ctrl_c_is_one_line_and_130(tacit: Tacit) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        """As Ctrl-C in the command; on a busy machine the alarm may ring before it, and then rings again."""
        where = frame
        while where is not None and where.f_code is not main.__code__:
            where = where.f_back
        if where is None:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
        else:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        options = ("--epsilon", "1.234", "--sampling-probability", "0.0123", "--steps", "4321", "--delta", "1e-6")
        done = tacit("accountant", "noise", *options)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert_one_line(done, 130, "interrupted", "run the same command again")


# help and tour -------------------------------------------------------------------------------------------------------


COMMANDS = all_commands()


def test_every_command_is_known() -> None:
    assert len(COMMANDS) == 26


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_tour_and_has_help_for_every_option(tacit: Tacit, name: str) -> None:
    """The options themselves are in docs/options.md: tests/cli/test_reference.py."""
    command = COMMANDS[name]
    assert command.help
    done = tacit(*name.split()[1:], "--help")
    assert done.code == 0
    assert re.search(rf"`{name}[ `]", TOUR), f"docs/tour.md does not show {name}"
    for parameter in command.params:
        assert parameter.name == "help" or parameter.help, f"{name}: {parameter.name} has no help"


@pytest.mark.parametrize(("noise", "delta"), [(60.0, 1e-9), (61.5, 1e-5), (75.0, 1e-7), (333.0, 1e-9)])
def test_what_is_printed_of_a_histogram_holds_of_the_printed_numbers(tacit: Tacit, noise: float, delta: float) -> None:
    """Rounded to the nearest, 13 of 30 thresholds did not have the printed delta: their true epsilon was infinite. 26th attack."""
    options = ("--noise-stddev", str(noise), "--max-words", "64", "--epsilon", "1", "--delta", str(delta))
    said = dict(line.split(": ", 1) for line in tacit("accountant", "histogram", *options).out.splitlines())
    event = ThresholdedHistogram(noise, float(said["threshold"]), 64, "gaussian")
    assert epsilon([Spend(event)], delta) <= float(said["epsilon"])
    lower = ThresholdedHistogram(noise, float(said["threshold"]) * (1 - 1e-5), 64, "gaussian")
    assert epsilon([Spend(lower)], delta) > float(said["epsilon"]), "the test has power"


PANIC = type(
    "PanicException", (BaseException,), {"__module__": "pyo3_runtime"}
)  # of libraries in Rust; cannot be imported


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError("std::bad_alloc"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("can't start new thread"), True),
        (type("OutOfMemoryError", (RuntimeError,), {})("of a card"), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"), True),
        (RuntimeError("unable to mmap 12 bytes from file <a/b>: Cannot allocate memory (12)"), True),
        (RuntimeError("no span found in 'the shop was out of memory cards'"), False),  # a text decides nothing
        (RuntimeError("could not create a primitive"), True),  # of oneDNN, under a limit of memory
        (RuntimeError("could not execute a primitive"), True),
        (
            PANIC(
                "The global thread pool has not been initialized.: ThreadPoolBuildError { kind: IOError(Os { code: 11"
            ),
            True,
        ),
        (PANIC("index out of bounds: the len is 3 but the index is 3"), False),
        (
            PANIC("byte index 1 is not a char boundary; it is inside 'é' of `out of memory, ThreadPoolBuildError`"),
            False,
        ),
        (RuntimeError("could not create a primitive descriptor for a matmul primitive"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_that_was_refused_is_told_from_other_errors(error: BaseException, is_memory: bool) -> None:
    """`make hostile` meets it for real, under a limit."""
    wrapped = ValueError("while reading")
    wrapped.__cause__ = error
    assert is_out_of_memory(error) == is_out_of_memory(wrapped) == is_memory


def test_what_the_papers_corollary_claims_is_printed_in_lines(tacit: Tacit) -> None:
    """The same numbers as in JSON, and no Python."""
    histogram = ("accountant", "histogram", "--noise-stddev", "200", "--max-words", "256", "--threshold", "1370")
    claim = tacit(*histogram, "--delta", "1e-9", "--json").json["hoory_claim"]
    done = tacit(*histogram, "--delta", "1e-9")
    assert done.code == 0
    assert "{" not in done.out
    printed = dict(line.split(": ") for line in done.out.splitlines())
    found = {name.removeprefix("hoory claim, "): float(value) for name, value in printed.items() if "hoory" in name}
    assert found == {name.replace("_", " "): pytest.approx(value, rel=1e-5) for name, value in claim.items()}

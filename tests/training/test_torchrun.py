"""The command under torchrun: the run of one process, one ledger, and one clear line when it cannot begin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tacit.config import parse_config
from tacit.engine.distributed import ALONE, Ranks
from tacit.errors import DataError, UsageError
from tacit.pipeline import opening, training
from tacit.pipeline.opening import open_run
from tacit.pipeline.stages import walk
from tacit.pipeline.state import give
from tacit.pipeline.training import assist
from tacit.privacy.ledger import Ledger
from tacit.runs.folder import RunFolder
from tacit.training.sharded_checkpoint import read_into
from tacit.version import installed

from ..adaptive_runs import adaptive_values
from ..processes import LIMIT, agent_store, check_one_says, free_port, in_processes, rank_environment, values_of
from ..small import small_values, tacit, write_config, write_corpora
from ..started import command, start

pytestmark = pytest.mark.slow


def torchrun(world: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """``torchrun --nproc-per-node WORLD -m tacit ...``, on a port of its own."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*launcher, "-m", "tacit", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs on the same text with the same key and vocabulary, whose noise is not a function of the key."""
    folder = tmp_path_factory.mktemp("torchrun")
    write_corpora(folder)
    first = write_config(folder / "one.yaml", small_values(folder))
    assert tacit("run", first, "--until", "vocabulary").returncode == 0
    shutil.copytree(folder / "run", folder / "other")
    shutil.copytree(folder / "run", folder / "start")
    return first, write_config(folder / "other.yaml", small_values(folder, run=str(folder / "other")))


def weights_of(run: Path, phase: str) -> dict[str, torch.Tensor]:
    return torch.load(run / "private" / "checkpoints" / f"{phase}.pt", weights_only=True)["model"]


def ledger_of(run: Path) -> list[tuple[Any, ...]]:
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        return [(row.sequence, row.kind, row.body, row.first, row.count, row.digest) for row in ledger.rows]


def test_a_run_on_two_processes_is_that_of_one(configs: tuple[Path, Path]) -> None:
    """The public phase is done once: its sums are rounded in another order on two processes, and the noise of what follows is
    derived from the very bits that it begins with."""
    one, other = configs[0].parent / "run", configs[0].parent / "other"
    alone = tacit("run", configs[0], "--until", "control")
    assert alone.returncode == 0, alone.stderr
    shutil.copytree(one / "private" / "checkpoints", other / "private" / "checkpoints", dirs_exist_ok=True)
    for path in (other / "private" / "checkpoints").glob("*private.pt"):
        path.unlink()
    together = torchrun(2, "run", configs[1])
    assert together.returncode == 0, together.stderr
    training, whole = ledger_of(one), ledger_of(other)
    assert whole[: len(training)] == training
    assert [body["stage"] for _, kind, body, *_ in whole[len(training) :] if kind == "spend"] == ["evaluation"]
    for phase in ("private", "control-private"):
        found = weights_of(other, phase)
        for name, expected in weights_of(one, phase).items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-5, msg=f"{phase} {name}")
    assert together.stdout.count("Guaranteed for every user") == 1  # rank 0 alone speaks
    assert together.stderr.count("Release: model, certificate and report") == 1
    assert tacit("verify", other).returncode == 0


def test_a_sharded_run_is_that_of_one_process(configs: tuple[Path, Path], tmp_path: Path) -> None:
    """From one public phase, on whose weights the noise hangs: private phase and control, read again by one process."""
    one = configs[0].parent / "run"
    if not (one / "private" / "checkpoints" / "control-private.pt").exists():
        assert tacit("run", configs[0], "--until", "control").returncode == 0
    other = one.with_name("sharded")
    shutil.copytree(one.with_name("start"), other)
    config = write_config(other.with_suffix(".yaml"), small_values(other.parent, run=str(other)))
    (other / "private" / "checkpoints").mkdir(exist_ok=True)
    shutil.copy(one / "private" / "checkpoints" / "public.pt", other / "private" / "checkpoints")
    together = ranks_of_the_command(2, tmp_path, "run", config, "--set", "compute.shard=true")
    assert together == [(0, [])] * 2
    assert (other / "private" / "checkpoints" / "private.pt").is_dir()
    assert tacit("verify", other).returncode == 0
    found, expected = (
        load_file(run / "release" / "model" / "model.safetensors") for run in (other, released(configs[0]))
    )
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_a_sharded_public_phase_is_that_of_one_process(configs: tuple[Path, Path], tmp_path: Path) -> None:
    """In float32, and the private phase begins with what it left."""
    one = configs[0].parent / "run"
    if not (one / "private" / "checkpoints" / "public.pt").exists():
        assert tacit("run", configs[0], "--until", "training").returncode == 0
    other = one.with_name("sharded-public")
    shutil.copytree(one.with_name("start"), other)
    config = write_config(other.with_suffix(".yaml"), small_values(other.parent, run=str(other)))
    command = ("run", config, "--until", "training", "--set", "compute.shard=true")
    assert ranks_of_the_command(2, tmp_path, *command) == [(0, [])] * 2
    expected, path = weights_of(one, "public"), other / "private" / "checkpoints" / "public.pt"
    found = {f"model.{name}": torch.zeros_like(value) for name, value in expected.items()}
    read_into(path, found)
    for name, value in expected.items():
        torch.testing.assert_close(found[f"model.{name}"], value, rtol=1e-4, atol=1e-5, msg=name)
    assert (path.with_name("private.pt")).is_dir()


def released(config: Path) -> Path:
    """The run of one process, to its end."""
    assert tacit("run", config).returncode == 0
    return config.parent / "run"


def ranks_of_the_command(
    world: int, folder: Path, *arguments: str | Path, of_last: tuple[str, ...] = ()
) -> list[tuple[int | None, list[str]]]:
    """``tacit ...`` in so many processes with the environment that torchrun gives: how each ended, and its lines of errors.

    torchrun itself is in the test above; here nobody ends the others when one ends.

    Args:
        of_last: further arguments of the last process.
    """
    running, port = [], free_port()
    for rank in range(world):
        (folder / str(rank)).mkdir()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in rank_environment(rank, world, port).items():
                patch.setenv(name, value)
            own = [str(one) for one in (*arguments, *(of_last if rank == world - 1 else ()))]
            running.append(start(command, own, f"rank {rank}", output=folder / str(rank)))
    store = agent_store(port)
    for process in running:
        process.join(LIMIT)
    del store
    errors = [(folder / str(rank) / "err").read_text().splitlines() for rank in range(world)]
    return [
        (process.exitcode, [line for line in lines if line.startswith("tacit: ")])
        for process, lines in zip(running, errors, strict=True)
    ]


def test_when_the_first_process_cannot_begin_all_end_with_its_line(configs: tuple[Path, Path], tmp_path: Path) -> None:
    with RunFolder(configs[0].parent / "run").alone():
        first, second = ranks_of_the_command(2, tmp_path, "run", configs[0], "--until", "control")
    assert first[0] == UsageError.exit_code
    assert len(first[1]) == 1
    assert "another process is using this run folder" in first[1][0]
    assert second == (first[0], [])  # it ends in the same way, and says nothing more


def test_a_process_with_another_option_ends_all_with_one_line(configs: tuple[Path, Path], tmp_path: Path) -> None:
    """Not one a process: whoever reads the end of a log of many finds the reason."""
    run, other = ("run", configs[0], "--until", "control"), ("--set", "masking_probability=0.2")
    ended = ranks_of_the_command(3, tmp_path, *run, of_last=other)
    assert [code for code, _ in ended] == [DataError.exit_code] * 3
    (line,) = [line for _, lines in ended for line in lines]
    assert line.startswith("tacit: the configuration: rank 2 has another one than rank 0")


def opened_by(ranks: Ranks, mine: dict[str, Any], others: dict[str, Any]) -> None:
    """Rank 0 opens its run and trains; the other rank assists with what it was given."""
    if ranks.first:
        with open_run(parse_config(mine), None, ranks) as state:
            walk(state, "control")
    else:
        assist(parse_config(others), ranks)


@pytest.fixture(scope="module", params=["strata", "clip-weights", "literal"])
def adaptive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], ...]:
    """Three runs of one form of adaptive DP, with one key, that stand before the scoring: their public phase is done once."""
    folder = tmp_path_factory.mktemp(request.param)
    write_corpora(folder)
    values = adaptive_values(folder, request.param)
    for phase in values["phases"]:
        phase["steps"] = min(phase["steps"], 5)
    with open_run(parse_config(values)) as state:
        walk(state, "pretraining")
    copies = [{**values, "run": str(folder / name)} for name in ("two", "wrong")]
    for copy in copies:
        shutil.copytree(folder / "run", copy["run"])
    return values, *copies


def test_adaptive_dp_on_two_processes_is_that_of_one(adaptive: tuple[dict[str, Any], ...]) -> None:
    one, two, _ = adaptive
    opened_by(ALONE, one, one)
    values_of(in_processes(2, lambda ranks: opened_by(ranks, two, two)))
    folders = [RunFolder(Path(values["run"])) for values in (one, two)]
    assert ledger_of(folders[0].root) == ledger_of(folders[1].root)  # with what the sums are made from, rho among it
    for path in folders[0].checkpoints.glob("*.pt"):
        found = weights_of(folders[1].root, path.stem)
        for name, expected in weights_of(folders[0].root, path.stem).items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-5, msg=f"{path.stem} {name}")


def test_a_process_that_counts_units_otherwise_is_refused(
    adaptive: tuple[dict[str, Any], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known wrong: it turns the privacy probabilities round; no step is paid."""
    values = adaptive[2]

    def work(ranks: Ranks) -> None:
        if not ranks.first:
            monkeypatch.setattr(training, "give", lambda state, load, rho_U: give(state, load, 1 - rho_U))
        opened_by(ranks, values, values)

    check_one_says(in_processes(2, work), "rank 1 has another one than rank 0")
    with Ledger.open(Path(values["run"]) / "ledger.sqlite", readonly=True) as ledger:
        assert not ledger.has_paid


def place(folder: Path, corpora: Path, drop: int) -> Path:
    """A machine's own folder: the corpora, with some of the private records left out."""
    folder.mkdir()
    lines = (corpora / "notes.jsonl").read_text().splitlines(keepends=True)
    (folder / "notes.jsonl").write_text("".join(lines[drop:]))
    shutil.copy(corpora / "public.jsonl", folder / "public.jsonl")
    return folder


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("configuration", "the configuration: rank 1 has another one than rank 0"),
        ("library", "the version of tacit, or of a library: rank 1 has another one than rank 0"),
        ("run folder", "rank 1 does not see the key of rank 0"),
        ("corpus", "rank 1 reads another private corpus than rank 0"),
    ],
)
def test_a_process_that_sees_something_else_is_refused(
    configs: tuple[Path, Path], other: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process in a folder of its own, with relative paths in the configuration; no step is paid."""
    places = [place(tmp_path / str(rank), configs[0].parent, rank) for rank in range(2)]
    values = small_values(Path(), run="run" if other == "run folder" else str(tmp_path / "run"))
    changed = {**values, "masking_probability": 0.2} if other == "configuration" else values

    def work(ranks: Ranks) -> None:
        os.chdir(places[ranks.rank])
        if other == "library" and not ranks.first:
            monkeypatch.setattr(opening, "installed", lambda: installed().replace("torch", "torch 9"))
        opened_by(ranks, values, changed)

    check_one_says(in_processes(2, work), message)
    run = places[0] / "run" if other == "run folder" else tmp_path / "run"
    if other in ("configuration", "library"):  # found before anything is written
        assert not (run / "ledger.sqlite").exists()
        return
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.spent("private") == 0

"""SIGKILL at random instants of every kind of run; the same command again until it ends; the end bit for bit as if nothing was."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hostile.attack import Attack, Outcome, Setting
from hostile.cases import CASES
from hostile.children import NOON, TIMEOUT, Child, complaint, start
from hostile.endings import differences, twice_spent
from hostile.starts import Begun, begun, resume, spends

__all__ = ["KILLS", "kill_at"]

_KILLS = 5
_AT_A_WRITE = 0.4
"""Of the kills, so many come just when a file has appeared, gone, or changed."""

_PATIENCE = 20.0
"""Seconds that a process has to notice that another one was killed, before it is killed too."""

_FROM_NOTHING, _RANKS, _LAUNCHER = (
    "BERT, histogram, from an empty folder",
    "LSTM, two processes, one killed",
    "LSTM, torchrun, the launcher killed",
)


def _seen(run: Path) -> tuple[object, ...]:
    """What is in the folders where a run writes: names and times."""
    found = []
    for folder in (run, run / "private", run / "private" / "vocabulary", run / "private" / "checkpoints"):
        try:
            found.append(tuple((entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(folder)))
        except OSError:  # not there, or gone between the two calls
            found.append(())
    return tuple(found)


def kill_at(rng: random.Random, child: Child, run: Path, seconds: float) -> None:
    """Kill a start at an instant within so many seconds, or just when something is written after it; or let it end before."""
    instant, at_a_write, moment = rng.uniform(0.0, seconds), rng.random() < _AT_A_WRITE, rng.uniform(0.0, 0.003)
    if not child.over(instant):
        if at_a_write:
            before = _seen(run)
            while _seen(run) == before and not child.over(0.0005):
                pass
            child.over(moment)
        child.kill()


def _disturbed(rng: random.Random, one: Begun, config: Path, folder: Path, kills: int) -> tuple[int, list[str]]:
    """Kill the run so many times, or until it ends by itself: how often, and what was not as expected."""
    killed, wrong = 0, []
    for _ in range(kills):
        child = Child([one.case.command, config], folder / "said")
        kill_at(rng, child, folder / "run", one.seconds)
        ended = child.end()
        killed += ended.killed
        if not ended.killed:
            wrong += [said for said in [complaint(ended, codes=(0,))] if said]
            break
    return killed, wrong


def _checked(one: Begun, config: Path, folder: Path, end: Path) -> list[str]:
    """End the run, and compare."""
    wrong = resume(one, config, folder)
    return [wrong] if wrong else [*differences(folder / "run", end), *twice_spent(folder / "run")]


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    with setting.trial("kills", row, number) as place:
        if row == _FROM_NOTHING:
            return _from_nothing(setting, place.rng, place.folder)
        if row in (_RANKS, _LAUNCHER):
            one = begun(setting, "LSTM")
            return _together(one, place.rng, place.folder, _PAIRS[row])
        one = begun(setting, row)
        config = one.copy(place.folder)
        killed, wrong = _disturbed(place.rng, one, config, place.folder, _KILLS)
        return Outcome(killed, _short(wrong or _checked(one, config, place.folder, one.end)))


def _short(lines: Sequence[str]) -> tuple[str, ...]:
    """All that went wrong in a trial as one failure, so that a run counts once."""
    return ("; ".join(lines)[:600],) if lines else ()


# from an empty folder --------------------------------------------------------------------------------------------------


def _from_nothing(setting: Setting, rng: random.Random, folder: Path) -> Outcome:
    """Also while the key is drawn and the ledger made; the twin goes on from the last copy without spending, with the same noise."""
    one = begun(setting, "BERT, histogram")
    config, kept, killed = one.configured(folder), folder / "twin" / "run", 0
    for seconds in (0.3, 0.6, 1.0, one.seconds, one.seconds):
        child = Child(["run", config], folder / "said")
        kill_at(rng, child, folder / "run", seconds)
        killed += child.end().killed
        if (folder / "run" / "ledger.sqlite").exists() and not spends(folder / "run"):
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder / "run", kept, ignore=shutil.ignore_patterns(".*.partial"))
    wrong = resume(one, config, folder)
    if wrong or not kept.exists():
        return Outcome(killed, _short([wrong] if wrong else []))
    made, place = folder / "run" / "private" / "vocabulary", kept / "private" / "vocabulary"
    place.mkdir(mode=0o700, exist_ok=True)
    for noise in made.glob("noise*.npy"):
        shutil.copy2(noise, place / noise.name)
    ended = start(["run", one.configured(kept.parent)], folder / "twin-said")
    if ended.code:
        return Outcome(killed, _short([f"the twin ended with {ended.code}: {ended.err.strip()[-200:]}"]))
    return Outcome(killed, _short([*differences(folder / "run", kept), *twice_spent(folder / "run")]))


# several processes -------------------------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _ranks(config: Path, folder: Path) -> list[Child]:
    """Two processes with the environment that torchrun gives them."""
    port = _free_port()

    def joined(rank: int) -> Callable[[], None]:
        def prepare() -> None:
            size = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            os.environ |= {"TORCHELASTIC_RUN_ID": "hostile", "RANK": str(rank), "LOCAL_RANK": str(rank), **size}

        return prepare

    return [Child(["run", config], folder / f"rank-{rank}", prepare=joined(rank)) for rank in range(2)]


def _kill_a_rank(rng: random.Random, one: Begun, config: Path, folder: Path) -> tuple[int, list[str]]:
    victim = rng.randrange(2)
    children = _ranks(config, folder)
    kill_at(rng, children[victim], folder / "run", one.seconds)
    first = children[victim].end()
    other = children[1 - victim]
    if not first.killed:
        ended = (first, other.end())
        return 0, [said for each in ended for said in [complaint(each, codes=(0,))] if said]
    if not other.over(
        _PATIENCE
    ):  # as the launcher does: until they have joined, nothing tells one that the other is gone
        other.kill()
    last = other.end()
    said = "" if last.killed else complaint(last, codes=(0, 2, 4, 7))
    return 1, [f"the other process: {said}"] if said else []


def _end_of_ranks(config: Path, folder: Path) -> str:
    ended = [child.end() for child in _ranks(config, folder)]
    return next((said for each in ended for said in [complaint(each, codes=(0,))] if said), "")


def _torchrun(config: Path, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    root = Path(__file__).parents[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOSTILE_CLOCK": str(NOON), "PYTHONPATH": _python_path(root)}
    with (folder / "torchrun.err").open("wb") as said:
        arguments = [*command, "hostile.command", "run", str(config)]
        return subprocess.Popen(arguments, stdout=said, stderr=said, env=environment, start_new_session=True)


def _python_path(root: Path) -> str:
    return os.pathsep.join([str(root), str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])


def _kill_the_launcher(rng: random.Random, one: Begun, config: Path, folder: Path) -> tuple[int, list[str]]:
    """SIGKILL to the launcher alone; its two processes go on, or end. What they still do must not harm the next start."""
    launcher = _torchrun(config, folder)
    try:
        launcher.wait(rng.uniform(2.0, 8.0 + 2 * one.seconds))
        return 0, []
    except subprocess.TimeoutExpired:
        launcher.kill()
    launcher.wait()
    time.sleep(rng.uniform(0.0, 1.0))
    return 1, []


def _end_of_torchrun(config: Path, folder: Path) -> str:
    """Start again until the orphans have left the folder."""
    code, said = 1, ""
    for _ in range(60):
        code = _torchrun(config, folder).wait(TIMEOUT)
        said = (folder / "torchrun.err").read_text(errors="replace")
        if code == 0 or "another process is using this run folder" not in said:
            break
        time.sleep(1.0)
    own = [line for line in said.splitlines() if line.startswith("tacit: ")]
    return "" if code == 0 else f"exit code {code}: {(own or said.splitlines() or ['nothing'])[-1][:200]}"


_Kill = Callable[[random.Random, Begun, Path, Path], tuple[int, list[str]]]
_PAIRS: dict[str, tuple[int, _Kill, Callable[[Path, Path], str]]] = {
    _RANKS: (3, _kill_a_rank, _end_of_ranks),
    _LAUNCHER: (1, _kill_the_launcher, _end_of_torchrun),
}


def _together(
    one: Begun, rng: random.Random, folder: Path, how: tuple[int, _Kill, Callable[[Path, Path], str]]
) -> Outcome:
    """Compared with a run of two processes that were left alone: the sums of two processes are added in another order than one's."""
    most, kill, finish = how
    end = _end_of_two(one)
    config, killed, wrong = one.copy(folder), 0, []
    for _ in range(most):
        found, said = kill(rng, one, config, folder)
        killed += found
        wrong += said
        if not found:
            break
    last = finish(config, folder)
    left = _end_orphans(config)
    wrong += [last] if last else [*differences(folder / "run", end), *twice_spent(folder / "run")]
    return Outcome(killed, _short(wrong), ("processes left waiting for the launcher",) * left)


def _end_orphans(config: Path) -> int:
    """Kill the processes of a launcher that was killed while they waited for it; they hold nothing, and would wait half an hour."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            if b"hostile.command" in words and str(config).encode() in words:
                os.kill(int(path.parent.name), signal.SIGKILL)
                found += 1
        except OSError:  # it has ended
            continue
    return found


def _end_of_two(one: Begun) -> Path:
    """The undisturbed run of two processes from the same beginning, made once."""
    folder = one.end.parent.with_name("end-of-two")
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        partial = folder.with_name(f"end-of-two-{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        said = _end_of_ranks(one.copy(partial), partial)
        if said:
            raise RuntimeError(f"the undisturbed run of two processes: {said}")
        (partial / "done").touch()
        if not folder.exists():
            partial.rename(folder)
    return folder / "run"


# the control ---------------------------------------------------------------------------------------------------------------


def _no_noise_after_a_kill() -> None:
    """A known-wrong `tacit`: a phase that goes on from a checkpoint leaves its first noise out."""
    import tacit.training.dp_step as steps

    real, calls = steps.add_noise_, [0]

    def wrong(*arguments: object, **options: object) -> object:
        calls[0] += 1
        return None if calls[0] == 1 else real(*arguments, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]

    steps.add_noise_ = wrong


def _control(setting: Setting) -> Outcome:
    with setting.trial("kills", "control", 0) as place:
        one = begun(setting, "BERT, histogram")
        config = one.copy(place.folder)
        child = Child(["run", config], place.folder / "said")
        checkpoint = place.folder / "run" / "private" / "checkpoints" / "private.pt"
        while not checkpoint.exists() and not child.over(0.001):
            pass
        child.kill()
        killed = child.end().killed
        ended = start(["run", config], place.folder / "wrong", prepare=_no_noise_after_a_kill)
        said = complaint(ended, codes=(0,))
        return Outcome(int(killed), _short([said] if said else differences(place.folder / "run", one.end)))


KILLS = Attack(
    title="Killed at random instants",
    says=(
        "SIGKILL up to five times, three in five uniformly over the run's time, the others just when a file has changed; then "
        "the same command until it ends. Expected: the same end; each stage is paid once. Rows count kills; a run that ends "
        "otherwise is one failure."
    ),
    rows=(*CASES, _FROM_NOTHING, _RANKS, _LAUNCHER),
    count=1000,
    a_trial=4,
    trial=_trial,
    control_says="a phase that goes on from its checkpoint leaves out its first noise",
    control=_control,
)

"""`python -m hostile`: run the attacks, go on where an earlier start stopped, and write the page.

python -m hostile                                         all of them; hours
python -m hostile --only kills --count 20                 a part
python -m hostile --only kills --row "CRT, two rounds" --number 3    one trial again, whatever is stored
python -m hostile --page docs/reliability.md --only none  the page from what is stored
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hostile.attack import Attack, Outcome, Setting, Unavailable
from hostile.children import load
from hostile.results import CONTROL, Results, about

_ROOT = Path(__file__).parents[1]
_ROUNDS = 5


@dataclass(frozen=True)
class _Trial:
    attack: str
    row: str
    number: int


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m hostile", description="Attacks on a running tacit; docs/reliability.md has the figures."
    )
    parser.add_argument("--only", action="append", metavar="ATTACK", help="these attacks alone; `none` for the page")
    parser.add_argument("--count", type=int, help="attacks a family, instead of its own number")
    parser.add_argument("--row", help="with --only: this row alone")
    parser.add_argument("--number", type=int, help="with --row: this trial, done anew and not stored")
    parser.add_argument("--seed", type=int, default=1, help="of the harness's choices (1)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes; as many as cores if not given"
    )
    parser.add_argument(
        "--out", type=Path, default=_ROOT / "build" / "hostile", help="results and scratch (build/hostile)"
    )
    parser.add_argument(
        "--page",
        type=Path,
        help="write the figures of these attacks into this file, between its markers or as a new page",
    )
    parser.add_argument("--fresh", action="store_true", help="forget what is stored in --out")
    return parser.parse_args()


def _wanted(attack: Attack, options: argparse.Namespace) -> int:
    return attack.count if options.count is None else options.count


def _trials(attacks: dict[str, Attack], options: argparse.Namespace, numbers: dict[str, int]) -> Iterator[_Trial]:
    """The control first, then round the rows, as many trials of each attack as it is said."""
    for name, attack in attacks.items():
        rows = [row for row in attack.rows if options.row in (None, row)]
        if not rows:
            sys.exit(f"hostile: {name} has no row {options.row!r}; it has: {', '.join(attack.rows)}")
        if options.row is None:
            yield _Trial(name, CONTROL, 0)
        for place in range(numbers[name]):
            yield _Trial(name, rows[place % len(rows)], place // len(rows))


def _all(attacks: dict[str, Attack], options: argparse.Namespace, setting: Setting) -> None:
    """Trials until there are as many attacks as wanted: how many a trial comes to is known when it is done."""
    numbers = {name: math.ceil(_wanted(attack, options) / attack.a_trial) for name, attack in attacks.items()}
    for _ in range(_ROUNDS):
        _in_jobs(attacks, options, setting, numbers)
        results = Results(options.out / "results")
        lacking = {
            name: _wanted(attack, options) - results.tried(name, options.seed) for name, attack in attacks.items()
        }
        more = {name: lack for name, lack in lacking.items() if lack > 0 and not results.unavailable(name)}
        if not more or options.row is not None:
            return
        for name, lack in more.items():
            numbers[name] += math.ceil(lack / attacks[name].a_trial)


def _outcome(attack: Attack, setting: Setting, trial: _Trial) -> tuple[Outcome, str]:
    """What it came to; and why it cannot be done here, where it cannot."""
    try:
        attack.check()
        if trial.row == CONTROL:
            caught = attack.control(setting).failures
            notes = (_without_place(caught[0], setting)[:200],) if caught else ()
            return Outcome(1, () if caught else ("the control was not caught",), notes), ""
        outcome = attack.trial(setting, trial.row, trial.number)
        return replace(outcome, failures=tuple(_without_place(line, setting) for line in outcome.failures)), ""
    except Unavailable as reason:
        return Outcome(0), str(reason)
    except (
        Exception
    ) as error:  # of the harness, or of what it starts: a failure that must be seen, and not the end of the others
        line = f"the harness: {type(error).__name__}: {error}"[:600]
        return Outcome(1, (_without_place(line, setting),)), ""


def _without_place(line: str, setting: Setting) -> str:
    """Where the scratch folder lies is nobody's business."""
    return line.replace(str(setting.root), "...")


def _work(
    job: int, attacks: dict[str, Attack], options: argparse.Namespace, setting: Setting, numbers: dict[str, int]
) -> None:
    """Every n-th trial that is not done."""
    results = Results(options.out / "results", job)
    todo = [
        trial
        for trial in _trials(attacks, options, numbers)
        if not results.has(trial.attack, trial.row, trial.number, options.seed)
    ]
    for trial in todo[job :: options.jobs]:
        begun = time.monotonic()
        outcome, unavailable = _outcome(attacks[trial.attack], setting, trial)
        results.add(trial.attack, trial.row, trial.number, options.seed, outcome, unavailable)
        _tell(trial, outcome, unavailable, time.monotonic() - begun)


def _tell(trial: _Trial, outcome: Outcome, unavailable: str, seconds: float) -> None:
    said = unavailable or "; ".join(outcome.failures) or "as expected"
    print(f"{trial.attack} | {trial.row} | {trial.number}: {outcome.tried} tried, {said} ({seconds:.1f} s)", flush=True)


def _check_same(out: Path, fresh: bool) -> None:
    """Results of one source alone are added up."""
    path = out / "about.txt"
    now = "\n".join(f"{name}: {value}" for name, value in about().items()) + "\n"
    if fresh:
        shutil.rmtree(out, ignore_errors=True)
    if path.exists() and path.read_text() != now:
        sys.exit(f"hostile: {out} has results of another source or machine; give --fresh, or another --out")
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(now)


def _in_jobs(
    attacks: dict[str, Attack], options: argparse.Namespace, setting: Setting, numbers: dict[str, int]
) -> None:
    jobs = []
    for job in range(options.jobs):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _work(job, attacks, options, setting, numbers)
                code = 0
            except KeyboardInterrupt:
                code = 130
            finally:
                sys.stdout.flush()
                os._exit(code)
        jobs.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in jobs]
    if any(codes):
        sys.exit(f"hostile: a job ended with {max(codes)}; the same command goes on")


def main() -> None:
    """Attacks, then the page; exit code 1 where something was not as expected."""
    options = _arguments()
    from hostile.families import ATTACKS
    from hostile.page import failures, write_page

    names = list(ATTACKS) if options.only is None else [name for name in options.only if name != "none"]
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        sys.exit(f"hostile: no attack is called {unknown[0]!r}; there are {', '.join(ATTACKS)}")
    attacks = {name: ATTACKS[name] for name in names}
    setting = Setting(options.out.resolve() / "scratch", options.seed)
    os.environ["XDG_CACHE_HOME"] = str(setting.root / "cache")  # what it has solved, and nothing that was there before
    if attacks:
        load()
    if options.number is not None:
        (name,) = attacks
        trial = _Trial(name, options.row, options.number)
        begun = time.monotonic()
        outcome, unavailable = _outcome(attacks[name], setting, trial)
        _tell(trial, outcome, unavailable, time.monotonic() - begun)
        sys.exit(1 if outcome.failures else 0)
    _check_same(options.out, options.fresh)
    if attacks:
        _all(attacks, options, setting)
    results = Results(options.out / "results")
    if options.page is not None:
        write_page(options.page, ATTACKS, results, options.seed, names)
    wrong = failures(results, names, options.seed)
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

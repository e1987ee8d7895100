"""The order of a run: `stages`, and how they are walked. A run that was stopped goes on at the first stage that is not done.

Every stage leaves its result in the run folder, which is how it is seen to be done. Under torchrun rank 0 walks them, and the
other ranks `assist` it in the stages that train (`tacit.pipeline.training`, docs/distributed.md).
"""

from __future__ import annotations

import dataclasses
import time

from tacit.audit.attacks import ATTACKS, check_attacks
from tacit.config import RunConfig
from tacit.config.base import named
from tacit.engine.distributed import ALONE, Ranks
from tacit.pipeline.attacks import attack_stage, check_stored_gate
from tacit.pipeline.event_file import FILE_NAME, EventFile, spent_epsilon
from tacit.pipeline.opening import open_run
from tacit.pipeline.order import STAGES, in_order
from tacit.pipeline.result import RunResult
from tacit.pipeline.state import RunState
from tacit.progress import Reporter
from tacit.runs.folder import RunFolder
from tacit.runs.stages import Stage, names_of
from tacit.runs.stages import walk as walk_stages

__all__ = ["run", "run_until", "stages", "walk"]


def stages() -> tuple[Stage[RunState], ...]:
    """All stages, in order (`tacit.pipeline.order`); each attack of `ATTACKS` is one."""
    own: dict[str, Stage[RunState]] = {name: named(place) for name, place in STAGES.items()}
    return tuple(in_order(own, map(attack_stage, ATTACKS.values())))


def walk(state: RunState, until: str | None = None) -> None:
    """Do what is left of an open run, up to and with the stage ``until`` (`tacit.runs.stages.walk`); None: all of it.

    Raises:
        UsageError: there is no such stage.
        TacitError: see the members in tacit.errors; what is already spent stays in the ledger.
    """
    all_stages = [_recorded(stage) for stage in stages()]
    walk_stages(all_stages, state, state.config, until or all_stages[-1].name, state.reporter.say)


def _recorded(stage: Stage[RunState]) -> Stage[RunState]:
    """The stage, which leaves a line in run/private/events.jsonl when it begins and when it is done."""

    def do(state: RunState) -> None:
        file, begun = EventFile(state.folder.private / FILE_NAME), time.monotonic()
        file.reached(stage.name, 0, 1, 0.0)
        stage.do(state)
        file.reached(stage.name, 1, 1, time.monotonic() - begun, spent_epsilon(state.ledger))

    return dataclasses.replace(stage, do=do)


def run_until(config: RunConfig, until: str | None, reporter: Reporter | None = None, ranks: Ranks = ALONE) -> None:
    """The stages of a run up to and with one of them (None: all); calling it again, or `run`, goes on. Raises as `run`."""
    names_of(stages(), until)  # before a folder is made, as with the options of the attacks
    check_attacks(config)
    with open_run(config, reporter, ranks) as state:
        walk(state, until)
        check_stored_gate(state)


def run(config: RunConfig, reporter: Reporter | None = None, ranks: Ranks = ALONE) -> RunResult:
    """All stages from text to report; calling it again continues a run that was stopped, and a finished run is left as it is.

    With several ranks rank 0 calls this, and the others `assist` it (`tacit.pipeline.training`).

    Raises:
        TacitError: see the members in tacit.errors; what is already spent stays in the ledger.
    """
    run_until(config, None, reporter, ranks)
    return RunResult(RunFolder(config.resolved_run))

"""The order of a run: `stages`, and how they are walked. A run that was stopped goes on at the first stage that is not done.

Every stage leaves its result in the run folder, which is how it is seen to be done. Under torchrun rank 0 walks them, and the
other ranks `assist` it in the stages that train (`tacit.pipeline.training`, docs/distributed.md).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from tacit.audit.attacks import ATTACKS, check_attacks
from tacit.config import RunConfig
from tacit.engine.distributed import ALONE, Ranks
from tacit.pipeline.attacks import attack_stage, check_stored_gate
from tacit.pipeline.corpus import rho_of_units, screen
from tacit.pipeline.evaluation import evaluate
from tacit.pipeline.event_file import FILE_NAME, EventFile, spent_epsilon
from tacit.pipeline.opening import open_run
from tacit.pipeline.pages import is_reported, report_to_curator
from tacit.pipeline.release import release_run
from tacit.pipeline.result import RunResult
from tacit.pipeline.screening import screened_folder
from tacit.pipeline.state import RunState
from tacit.pipeline.training import Part, is_trained, pretrain, train, train_control
from tacit.pipeline.vocabulary import vocabulary
from tacit.progress import Reporter
from tacit.release.writing import is_released
from tacit.runs.folder import RunFolder
from tacit.runs.stages import Stage, names_of
from tacit.runs.stages import walk as walk_stages

__all__ = ["run", "run_until", "stages", "walk"]


def _always(config: RunConfig) -> bool:
    return True


def _begins_public(config: RunConfig) -> bool:
    streams = [phase.stream for phase in config.phases]
    return streams[0] == "public" and set(streams) != {"public"}


def _left(*names: str) -> Callable[[RunState], bool]:
    """Whether a file is there, by its parts below run/private."""
    return lambda state: state.folder.private.joinpath(*names).exists()


def _trained(part: Part) -> Callable[[RunState], bool]:
    return lambda state: is_trained(state, part)


def stages() -> tuple[Stage[RunState], ...]:
    """All stages, in order; each attack of `ATTACKS` is one. What one leaves is what those after it read."""
    return (
        Stage(
            "screening",
            lambda config: config.screening is not None,
            lambda state: (screened_folder(state.folder) / "receipt.json").exists(),
            screen,
        ),
        Stage("vocabulary", _always, _left("vocabulary", "tokenizer.json"), vocabulary),
        Stage("pretraining", _begins_public, _trained("pretraining"), pretrain),
        Stage("scoring", lambda config: config.adaptive is not None, _trained("training"), rho_of_units),
        Stage("training", _always, _trained("training"), train),
        Stage(
            "control", lambda config: bool(config.audit and config.audit.control), _trained("control"), train_control
        ),
        Stage("evaluation", _always, _left("evaluation.json"), evaluate),
        *map(attack_stage, ATTACKS.values()),
        Stage("release", _always, lambda state: is_released(state.folder, state.ledger), release_run),
        Stage("report", _always, is_reported, report_to_curator),
    )


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

"""The stages `pretraining`, `training` and `control`: the phases, in three parts; and how other processes `assist` them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from tacit.config import AuditOptions, RunConfig, stratum_number
from tacit.engine.distributed import Ranks
from tacit.errors import DataError
from tacit.pipeline.coins import has_coins, watched_rows
from tacit.pipeline.corpus import fingerprint, rho_of_units
from tacit.pipeline.opening import join_run
from tacit.pipeline.rows import control_rows, drawn_coins, rows_of
from tacit.pipeline.state import RunState, give
from tacit.progress import without_warnings
from tacit.runs.stages import Stage, always
from tacit.training.checkpoint import finished_steps, load_weights, watched_products
from tacit.training.loop import run_phase
from tacit.training.phases import Phase, last_before_private
from tacit.training.plans import ControlPlan, DpPlan, NoiselessPlan, PlainPlan
from tacit.training.watching import Watched

__all__ = [
    "CONTROL",
    "PRETRAINING",
    "SCORING",
    "TRAINING",
    "Part",
    "assist",
    "is_trained",
    "noted_products",
    "pretrain",
    "train",
    "train_control",
]

Part = Literal["pretraining", "training", "control"]

_TITLES: dict[Part, str] = {"pretraining": "Pre-training", "training": "Training", "control": "Control without DP"}

_WITHOUT_SECRETS = ("public", "screened", "redacted")
"""Streams that hold no secret, except one that the policies missed. The control repeats the run from the first phase on that reads
any other stream."""


def pretrain(state: RunState) -> None:
    """The public phases before the first private one."""
    _run_part(state, "pretraining")


def train(state: RunState) -> None:
    """The phases from the first private one on; of a run without private phases, all."""
    _run_part(state, "training")


def train_control(state: RunState) -> None:
    """The audit's positive control, without DP or without noise, from where the public phases ended."""
    _run_part(state, "control")


def is_trained(state: RunState, part: Part) -> bool:
    """Whether the last checkpoint of a part is there, whole; a part without phases is done."""
    prefix, phases = _phases_of(state, part)[0], _own_phases(state, part)
    return not phases or finished_steps(state.checkpoint(prefix + phases[-1].name)) == phases[-1].steps


def _begins_public(config: RunConfig) -> bool:
    streams = [phase.stream for phase in config.phases]
    return streams[0] == "public" and set(streams) != {"public"}


PRETRAINING = Stage("pretraining", _begins_public, lambda state: is_trained(state, "pretraining"), pretrain)
SCORING = Stage(
    "scoring",
    lambda config: config.adaptive is not None,
    lambda state: is_trained(state, "training"),  # which is what needs it
    rho_of_units,
)
TRAINING = Stage("training", always, lambda state: is_trained(state, "training"), train)
CONTROL = Stage(
    "control",
    lambda config: bool(config.audit and config.audit.control),
    lambda state: is_trained(state, "control"),
    train_control,
)


def _phases_of(state: RunState, part: Part) -> tuple[str, tuple[Phase, ...]]:
    """How the checkpoints of a part's phases begin, and all phases that lead to its end."""
    if part == "control":
        return "control-", _control_phases(state)
    phases = state.mechanisms.phases
    return "", phases[: _first_private(phases)] if part == "pretraining" else phases


def _own_phases(state: RunState, part: Part) -> tuple[Phase, ...]:
    """The phases that the part itself trains; the weights before them are in the run's own checkpoints."""
    _, phases = _phases_of(state, part)
    if part == "pretraining":
        return phases
    if part == "training":
        return phases[_first_private(phases) :]
    return phases[_first_with_secrets(phases) :]


def _first_private(phases: tuple[Phase, ...]) -> int:
    """The number of the first phase that reads private text; 0 where none does, for then all is one part."""
    before = last_before_private(phases)
    return 0 if before is None else phases.index(before) + 1


def _first_with_secrets(phases: tuple[Phase, ...]) -> int:
    return next((number for number, phase in enumerate(phases) if phase.stream not in _WITHOUT_SECRETS), len(phases))


def _run_part(state: RunState, part: Part) -> None:
    """Begin, at every rank, with the checkpoint before the part, and go through its own phases."""
    if state.ranks.first and has_coins(state.config) and part == "training":
        drawn_coins(state)  # bound before another rank makes the rows in which they stand
    _call_others(state, part)
    prefix, phases = _phases_of(state, part)
    own = _own_phases(state, part)
    model = state.new_model()
    torch.nn.Module.to(model, state.device)  # transformers' own `to` has no types
    if len(own) < len(phases):
        load_weights(state.checkpoint(phases[len(phases) - len(own) - 1].name), model)
    sharded = state.config.compute.shard and state.ranks.world > 1
    for number, phase in enumerate(own):
        if sharded and number:
            model = state.new_model()  # of the last phase's this rank has a part
            torch.nn.Module.to(model, state.device)
            load_weights(state.checkpoint(prefix + own[number - 1].name), model)
        draws_rows = part == "control" and phase.stream == "private" and not phase.plan.is_dp
        stream = control_rows(state) if draws_rows else rows_of(state, phase.stream)
        state.ranks.meet()
        with state.reporter.stage(f"{_title(state, part)}: {phase.name}", phase.steps) as bar:
            run_phase(
                model,
                phase,
                stream,
                state.objective_of(phase),
                state.ledger if state.ranks.first and part != "control" else None,
                state.streams.child("phase", prefix + phase.name),
                state.config.compute,
                state.checkpoint(prefix + phase.name),
                bar.advance_to,
                state.ranks,
                _watched(state, phase),
            )


def _watched(state: RunState, phase: Phase) -> Watched | None:
    """The examples of the audit, where the curator looks at updates (``audit.white_box``) of a phase that may read them."""
    audit = state.config.audit
    if audit is None or not audit.white_box or phase.stream != "private":
        return None
    plan = next(planned.plan for planned in state.mechanisms.phases if planned.name == phase.name)
    assert isinstance(plan, DpPlan)  # `check_coins` refuses others
    return Watched(watched_rows(state, drawn_coins(state)), plan)


def noted_products(state: RunState, part: Part) -> np.ndarray:
    """What a part's updates said of each example of the audit, over all of its phases (`tacit.training.watching`); float64.

    Raises:
        DataError: nothing was noted.
    """
    prefix, phases = _phases_of(state, part)
    paths = [state.checkpoint(prefix + phase.name) for phase in phases if phase.stream == "private"]
    return np.sum([watched_products(path) for path in paths], axis=0)


def _title(state: RunState, part: Part) -> str:
    audit = state.config.audit
    return (
        "Control without noise" if part == "control" and audit and audit.control == "without-noise" else _TITLES[part]
    )


def _control_phases(state: RunState) -> tuple[Phase, ...]:
    """The phases with ordinary training in place of DP, or without its noise. The model never leaves run/private."""
    options = state.config.audit
    assert options is not None
    planned = state.mechanisms.phases
    own = {phase.name for phase in planned[_first_with_secrets(planned) :]}  # those before are the run's own
    noisy = sum(phase.plan.is_dp for phase in planned)
    enough = options.enough_control_steps(state.config.privacy.units, max(1, noisy))
    phases: list[Phase] = []
    for phase in planned:
        if phase.plan.is_dp:
            phase = _without_noise(phase) if options.control == "without-noise" else _without_dp(phase, options, enough)
        elif type(phase.plan) is PlainPlan and phase.name in own:  # on weights that private text made without noise
            phase = dataclasses.replace(phase, plan=ControlPlan(phase.plan.batch_size))
        if phase.previous in own:
            phase = dataclasses.replace(phase, previous=f"control-{phase.previous}")
        phases.append(phase)
    return tuple(phases)


def _without_dp(phase: Phase, options: AuditOptions, enough: int) -> Phase:
    """Ordinary training, of at least so many steps unless they are given; all that it learns is attacked."""
    return dataclasses.replace(
        phase,
        plan=ControlPlan(options.control_batch),
        steps=options.control_steps or max(phase.steps, enough),
        optimizer=dataclasses.replace(phase.optimizer, learning_rate=options.control_learning_rate, keep=None),
    )


def _without_noise(phase: Phase) -> Phase:
    """The phase's steps without noise, with draws of their own: an attack that finds nothing here has no power over this training."""
    assert isinstance(phase.plan, DpPlan)
    return dataclasses.replace(phase, plan=NoiselessPlan.of(phase.plan))


# the other processes under torchrun ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Order:
    """What rank 0 tells the other ranks before it trains.

    Args:
        part: which part.
        fingerprint: what the ledger knows of the private corpus.
        rho_U: each training unit's privacy probability (U,), which rank 0 alone scores; None where the part does not read them.
    """

    part: Part
    fingerprint: str
    rho_U: np.ndarray | None


def assist(config: RunConfig, ranks: Ranks) -> None:
    """Do this rank's part of all training that rank 0 begins, until it closes the run.

    Raises:
        DataError: this process has another configuration or version of the code, or sees another key or private corpus.
        LostError: rank 0 stopped.
    """
    state = join_run(config, ranks)
    while (order := ranks.hear()) is not None:
        if fingerprint(state) != order.fingerprint:
            raise DataError(f"rank {ranks.rank} reads another private corpus than rank 0; share the data")
        if order.rho_U is not None:
            give(state, rho_of_units, order.rho_U)
        with without_warnings():
            _run_part(state, order.part)


def _call_others(state: RunState, part: Part) -> None:
    if state.ranks.first and state.ranks.world > 1:
        state.ranks.tell(_Order(part, fingerprint(state), rho_of_units(state) if _reads_rho(state, part) else None))


def _reads_rho(state: RunState, part: Part) -> bool:
    """Whether the part trains on private rows with adaptive DP; the scorer may be what an earlier part leaves."""
    streams = [phase.stream for phase in _own_phases(state, part)]
    private = any(stream == "private" or stratum_number(stream) is not None for stream in streams)
    return state.config.adaptive is not None and private

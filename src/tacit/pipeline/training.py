"""The stage `train`: the phases in order, then (when asked) the control without DP; and how other processes `assist` it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from tacit.config import RunConfig
from tacit.engine.distributed import Ranks
from tacit.errors import DataError
from tacit.pipeline.opening import join_run
from tacit.pipeline.state import RunState
from tacit.pipeline.vocabulary import vocabulary
from tacit.training.checkpoint import finished_steps, load_weights
from tacit.training.loop import run_phase
from tacit.training.plans import DpPlan, Phase, PlainPlan

__all__ = ["assist", "train"]

_WITHOUT_SECRETS = ("public", "screened", "redacted")
"""Streams that hold no secret but a missed one; the control is trained anew from the first phase on that reads another."""


def train(state: RunState) -> None:
    """Run the phases in order, then the control without DP when the audit asks for it."""
    vocabulary(state)
    _run_phases(state, "")
    if state.config.audit is not None and state.config.audit.control:
        _run_phases(state, "control-")


def _run_phases(state: RunState, prefix: str) -> None:
    """All phases, or those of the control; at every rank, of which the first one alone looks whether they are done."""
    phases = _control_phases(state) if prefix else state.mechanisms.phases
    last = state.checkpoint(prefix + phases[-1].name)
    if state.ranks.first and finished_steps(last) == phases[-1].steps:
        return
    _call_others(state, prefix)
    model = state.new_model()
    torch.nn.Module.to(model, state.device)  # transformers' own `to` has no types
    title = "Control without DP" if prefix else "Training"
    begun = not prefix
    for phase in phases:
        begun = begun or phase.stream not in _WITHOUT_SECRETS
        if not begun:  # the control begins where the public phases ended
            load_weights(state.checkpoint(phase.name), model)
            continue
        stream = state.stream(phase.stream)
        state.ranks.meet()
        with state.reporter.stage(f"{title}: {phase.name}", phase.steps) as bar:
            run_phase(
                model,
                phase,
                stream,
                state.objective_of(phase),
                state.ledger if state.ranks.first and not prefix else None,
                state.streams.child("phase", prefix + phase.name),
                state.config.compute,
                state.checkpoint(prefix + phase.name),
                bar.advance_to,
                state.ranks,
            )


def _control_phases(state: RunState) -> tuple[Phase, ...]:
    """The same phases with ordinary training in place of DP: the positive control. Its model never leaves run/private."""
    options = state.config.audit
    assert options is not None
    planned = state.mechanisms.phases
    first = next((number for number, phase in enumerate(planned) if phase.stream not in _WITHOUT_SECRETS), len(planned))
    own = {phase.name for phase in planned[first:]}  # those before are the run's own
    noisy = sum(isinstance(phase.plan, DpPlan) for phase in planned)
    enough = options.enough_control_steps(state.config.privacy.units, max(1, noisy))
    phases: list[Phase] = []
    for phase in planned:
        if isinstance(phase.plan, DpPlan):
            steps = options.control_steps or max(phase.steps, enough)
            rate = options.control_learning_rate
            optimizer = dataclasses.replace(
                phase.optimizer, learning_rate=rate, keep=None
            )  # all that it learned is attacked
            phase = dataclasses.replace(phase, plan=PlainPlan(options.control_batch), steps=steps, optimizer=optimizer)
        if phase.previous in own:
            phase = dataclasses.replace(phase, previous=f"control-{phase.previous}")
        phases.append(phase)
    return tuple(phases)


# the other processes under torchrun ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Phases:
    """What it tells them before it trains: which phases, and what the ledger knows of the private corpus."""

    prefix: str
    fingerprint: str


def assist(config: RunConfig, ranks: Ranks) -> None:
    """Do this rank's part of all training that the first process begins, until it closes the run.

    Raises:
        UsageError: this process has another configuration.
        DataError: it sees another key or private corpus.
        TacitError: the first process stopped.
    """
    state = join_run(config, ranks)
    while (order := ranks.hear()) is not None:
        if state.private_corpus[1] != order.fingerprint:
            raise DataError(f"process {ranks.rank} reads another private corpus than process 0; share the data")
        _run_phases(state, order.prefix)


def _call_others(state: RunState, prefix: str) -> None:
    if state.ranks.first and state.ranks.world > 1:
        state.ranks.tell(_Phases(prefix, state.private_corpus[1]))

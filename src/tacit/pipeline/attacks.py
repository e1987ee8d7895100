"""The stages of the attacks (`tacit.audit.attacks`): on the released model and on its positive control."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.audit.attack import CONTROL, CONTROL_WITHOUT_NOISE, RELEASED, Attack, Found, Given, UndecidedError
from tacit.audit.attacks import check_gate
from tacit.audit.coins_plan import claimed_epsilon
from tacit.corpus.secrets import SecretFormat
from tacit.corpus.units import Unit
from tacit.errors import StorageError, TacitError, UsageError
from tacit.failures import is_out_of_memory
from tacit.files import storage_error, write_json
from tacit.pipeline.attack_files import attack_file, store, stored_attacks
from tacit.pipeline.corpus import membership_samples, private_units
from tacit.pipeline.records import secret_form, secrets_of
from tacit.pipeline.rows import drawn_canaries, drawn_coins, planted_contexts, public_held_out_rows, tokenized
from tacit.pipeline.state import RunState
from tacit.pipeline.training import noted_products
from tacit.runs.stages import Stage
from tacit.training.checkpoint import load_weights
from tacit.training.loop import run_phase
from tacit.training.phases import AdamOptions, Phase, last_before_private
from tacit.training.plans import ControlPlan

__all__ = ["attack_stage", "audited_models", "check_stored_gate", "measure"]


def attack_stage(attack: Attack) -> Stage[RunState]:
    """The stage that makes an attack, and writes what it finds to run/private."""
    return Stage(
        attack.stage_name,
        attack.is_asked,
        lambda state: attack_file(state.folder, attack).exists(),
        lambda state: store(state.folder, attack, measure(state, attack)),
    )


def measure(state: RunState, attack: Attack) -> Found:
    """What an attack finds, the released model first; plain values.

    Nothing of the curator's can stop a run or change a line of its progress: neither an attack that reads private text nor the
    control.

    Raises:
        TacitError: a public attack fails on the released model.
        DataError: (a LedgerError) the private corpus has changed, and the attack reads it.
    """
    if not attack.public:
        private_units(state)  # that it is the corpus which was trained on is no finding of the attack
    found: dict[str, Any] = {}
    undecided: list[str] = []  # the first reason counts
    with _noted(undecided, stops=attack.public):
        measure_model = attack.prepare(_given(state, attack))
    for name, path in audited_models(state).items():
        state.reporter.say(f"Audit: {attack.title} under the {name} ...")  # also where nothing will be measured
        if undecided:
            continue
        failed: list[str] = []
        with _noted(failed, stops=attack.public and name == RELEASED):
            found[name] = measure_model(_attacked(state, attack, name, path))
        if (
            name == RELEASED or not attack.public
        ):  # a public attack's rows of the released model do not hang on the control
            undecided += failed
    return {"undecided": f"undecided: {undecided[0]}"} if undecided else found


def _attacked(state: RunState, attack: Attack, name: str, path: Path) -> PreTrainedModel | np.ndarray:
    """A model, or what its training noted."""
    if attack.of_training:
        return noted_products(state, "training" if name == RELEASED else "control")
    model = state.new_model()
    load_weights(path, model)
    return model


@contextmanager
def _noted(reasons: list[str], stops: bool) -> Iterator[None]:
    """Note why something failed, unless it is to stop the run.

    Of what tacit did not raise on purpose only the kind is noted, because its message may hold private text. Storage and memory that
    are refused are the machine's doing, and stop any run.
    """
    try:
        yield
    except UndecidedError as error:
        reasons.append(str(error))
    except Exception as error:
        if stops or isinstance(error, OSError | StorageError) or storage_error(error) or is_out_of_memory(error):
            raise
        # such as a text without a token, or a loss that is no number
        reasons.append(str(error) if isinstance(error, TacitError) else f"the attack failed ({type(error).__name__})")


def audited_models(state: RunState) -> dict[str, Path]:
    """Checkpoints of the released model and, where there is one, of the control."""
    last = state.mechanisms.phases[-1].name
    models = {RELEASED: state.checkpoint(last)}
    control = state.config.audit.control if state.config.audit is not None else False
    if control:
        models[CONTROL_WITHOUT_NOISE if control == "without-noise" else CONTROL] = state.checkpoint(f"control-{last}")
    return models


def _given(state: RunState, attack: Attack) -> Given:
    """What this attack may read: private text only where its rows are the curator's alone."""

    def own(load: Callable[[RunState], Any]) -> Callable[[], Any]:
        return lambda: load(state)

    def refuse(*given: Any) -> NoReturn:
        raise UsageError(
            f"attack {attack.name}: its rows are part of the release, so it may not read private text; make it the curator's alone"
        )

    return Given(
        config=state.config,
        streams=state.streams.child(attack.stage_name),
        tokenizer=state.tokenizer,
        special=state.special,
        keep=lambda name, values: write_json(state.folder.private / name, values),
        masking=lambda: state.masking,
        public_rows=own(public_held_out_rows),
        canaries=own(drawn_canaries),
        secrets=own(_secrets),
        coins=own(drawn_coins),
        model_before=own(_model_before),
        proven=own(_proven),
        private_units=refuse if attack.public else own(private_units),
        planted_contexts=refuse if attack.public else functools.partial(planted_contexts, state),
        membership_samples=refuse if attack.public else own(membership_samples),
        shadow_model=refuse if attack.public else functools.partial(_shadow_model, state),
    )


def _model_before(state: RunState) -> PreTrainedModel:
    """The model as the public phases left it, or as the run begins with it."""
    before = last_before_private(state.mechanisms.phases)
    return state.new_model() if before is None else state.trained_model(before.name)


def _shadow_model(state: RunState, number: int, texts: Sequence[str]) -> PreTrainedModel:
    """Trained as a control without DP is, and as private: its checkpoint is a function of the texts.

    How long is a function of public numbers, so that the time does not tell how many texts qualify.
    """
    options = state.config.audit
    assert options is not None
    assert options.membership is not None
    phase = Phase(
        f"shadow_{number}",  # no phase of a run may have such a name
        "private",
        ControlPlan(options.control_batch),
        math.ceil(options.enough_control_steps(options.membership.pairs, 1)),
        AdamOptions(options.control_learning_rate),
    )
    stream = tokenized(state, [Unit(f"shadow:{place}", (text,)) for place, text in enumerate(texts)])
    streams = state.streams.child("phase", phase.name)
    model = _model_before(state)
    torch.nn.Module.to(model, state.device)  # transformers' own `to` has no types
    run_phase(model, phase, stream, state.objective, None, streams, state.config.compute, state.checkpoint(phase.name))
    return model


def _proven(state: RunState) -> float:
    return claimed_epsilon(state.config, state.ledger.spends())


def _secrets(state: RunState) -> tuple[SecretFormat, tuple[int, ...]]:
    form = secret_form(state.config)
    if form is None:
        raise UsageError("texts with secrets are planted for a causal model alone; a masked one has canaries")
    return form, secrets_of(state.config, state.streams)


def check_stored_gate(state: RunState) -> None:
    """The gate, on what the stages found (`tacit.audit.attacks.check_gate`).

    Raises:
        AuditError: a test is below the gate.
    """
    check_gate(state.config, stored_attacks(state.config, state.folder))

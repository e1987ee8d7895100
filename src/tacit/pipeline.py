"""A run from text to report: each stage is a function of the run's state, and `run` is all of them in order.

    open_run   folder, lock, key, configuration check, ledger with every private stage planned (opening.py)
    vocabulary DP histogram -> WordPiece -> tokenizer
    train      the phases, then (when asked) the control without DP
    evaluate   held-out text: public exactly, private through a mechanism
    audit      exposure of the planted canaries
    report     run/release as a whole

Every stage looks first for its own finished output, so running the same command again continues where it stopped. Only
`tacit.release` writes to run/release; everything else stays in run/private (mode 0700).

Under torchrun the first process does all of this, and the others `assist` it in the training phases (docs/distributed.md).
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertForMaskedLM

from tacit.audit.exposure import Exposure, measure_exposure
from tacit.config import RunConfig
from tacit.engine.distributed import Ranks
from tacit.errors import AuditError, DataError
from tacit.files import private_folder, read_json, write_atomically, write_json
from tacit.opening import join_run
from tacit.planning import EVALUATION, VOCABULARY
from tacit.run_state import RunState
from tacit.tasks.masked_lm import means_of_sum, noisy_sum, score_units, unigram, unit_vectors
from tacit.training.checkpoint import finished_steps, load_weights
from tacit.training.loop import run_phase
from tacit.training.plans import DpPlan, Phase, PlainPlan
from tacit.vocabulary.count import count_words
from tacit.vocabulary.select import draw_noise, release
from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer
from tacit.vocabulary.wordpiece import train_wordpiece

__all__ = ["assist", "audit", "check_audit_gate", "evaluate", "train", "vocabulary"]


def vocabulary(state: RunState) -> None:
    """Release the word histogram under its event, train WordPiece on the release, write the tokenizer (Hoory 3.2)."""
    folder = private_folder(state.folder.private / "vocabulary")
    if (folder / "tokenizer.json").exists():
        return
    state.check_data()
    options = state.config.vocabulary
    text = TokenizerOptions(lowercase=options.lowercase)
    state.reporter.say("Vocabulary: counting words under the contribution bound ...")
    units = ((unit.unit_id, unit.texts) for unit in state.private_units[0])
    counts = count_words(units, state.mechanisms.vocabulary.max_words, state.streams.child("vocabulary"), text)
    noise = _vocabulary_noise(state, folder, len(counts))
    state.ledger.charge(VOCABULARY)
    released = release(counts, noise, int(state.mechanisms.vocabulary.threshold))
    write_json(folder / "released.json", released)
    if not released:
        state.reporter.say("Vocabulary: no word reached the threshold; the tokenizer has single characters only")
    pieces = train_wordpiece(released, options.size, text.alphabet, min_frequency=options.min_count)
    tokenizer = build_tokenizer(pieces, text)
    write_atomically(folder / "tokenizer.json", lambda partial: tokenizer.save(str(partial)))
    state.reporter.say(f"Vocabulary: {len(released)} words released, {len(pieces)} pieces")


def _vocabulary_noise(state: RunState, folder: Path, words: int) -> np.ndarray:
    """The noise of the release, drawn once: on disk, and its keyed digest in the ledger, before it meets a count.

    A killed run therefore repeats the same release, and other noise (a second release for the price of one) is refused.
    """
    path = folder / "noise.npy"
    if not path.exists():
        noise = draw_noise(words, state.mechanisms.vocabulary.noise_stddev)
        write_atomically(path, lambda partial: _save_array(partial, noise))
    digest = hashlib.blake2b(path.read_bytes(), key=state.streams.derive("noise digest"), digest_size=32)
    state.ledger.bind("the vocabulary's noise", digest.hexdigest())
    return np.load(path)


def _save_array(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array)


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
        begun = begun or phase.stream == "private"
        if not begun:  # the control begins where the public phases ended
            load_weights(state.checkpoint(phase.name), model)
            continue
        stream = state.public_stream if phase.stream == "public" else state.private_stream
        state.ranks.meet()
        with state.reporter.stage(f"{title}: {phase.name}", phase.steps) as bar:
            run_phase(
                model,
                phase,
                stream,
                state.masking,
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
    phases = []
    for phase in state.mechanisms.phases:
        if isinstance(phase.plan, DpPlan):
            steps = options.control_steps or phase.steps
            optimizer = dataclasses.replace(phase.optimizer, learning_rate=options.control_learning_rate)
            phase = dataclasses.replace(phase, plan=PlainPlan(options.control_batch), steps=steps, optimizer=optimizer)
        phases.append(phase)
    return tuple(phases)


def evaluate(state: RunState) -> dict[str, Any]:
    """Masked-token accuracy and perplexity on held-out text, beside baselines; written to run/private/evaluation.json.

    Public text is scored exactly. The private part is one Gaussian release in the ledger, on units kept from training.
    """
    train(state)
    path = state.folder.private / "evaluation.json"
    if path.exists():
        return read_json(path)
    vocabulary_size = state.masking.vocabulary_size
    models: dict[str, BertForMaskedLM | np.ndarray] = {
        "released model": state.trained_model(state.config.phases[-1].name)
    }
    public_phases = [phase.name for phase in state.config.phases if phase.stream == "public"]
    if public_phases and state.config.dp_phases:
        models["after public phase"] = state.trained_model(public_phases[-1])
    models["unigram"] = unigram(state.public_stream, state.masking.special_ids, vocabulary_size)
    bound = 1.5 * float(np.log(vocabulary_size))
    state.reporter.say("Evaluation: held-out text ...")
    scores = score_units(models, state.public_held_out, 1, state.masking, state.streams.child("evaluation"))
    total = unit_vectors(scores, bound).sum(axis=0)
    found: dict[str, Any] = {
        "public": means_of_sum(total, tuple(models), 0.0, bound),
        "vocabulary_size": vocabulary_size,
    }
    if state.mechanisms.evaluation is not None:
        found["private"] = _evaluate_private(state, models, bound)
    write_json(path, found)
    return found


def _evaluate_private(state: RunState, models: dict[str, BertForMaskedLM | np.ndarray], bound: float) -> dict[str, Any]:
    event = state.mechanisms.evaluation
    assert event is not None
    streams = state.streams.child("evaluation")
    stream = state.sequences(state.private_units[1])
    state.ledger.charge(EVALUATION)
    scores = score_units(models, stream, state.config.evaluation.sequences_per_unit, state.masking, streams)
    vectors = unit_vectors(scores, bound)
    total = noisy_sum(vectors, event.noise_multiplier, streams.generator("noise"))
    return means_of_sum(total, tuple(models), event.noise_multiplier * float(np.sqrt(vectors.shape[1])), bound)


def audit(state: RunState) -> dict[str, list[Exposure]]:
    """Exposure of the canaries under the released model and, as a positive control, under the model without DP.

    Written to run/private/audit.json; the canaries themselves to run/private/canaries.json. See `check_audit_gate`.
    """
    options = state.config.audit
    if options is None:
        return {}
    train(state)
    write_json(state.folder.private / "canaries.json", [dataclasses.asdict(canary) for canary in state.canaries])
    last = state.config.phases[-1].name
    models = {"released model": state.checkpoint(last)}
    if options.control:
        models["control without DP"] = state.checkpoint(f"control-{last}")
    contexts = state.public_held_out
    rows = slice(0, min(options.contexts, contexts.sequences))
    found: dict[str, list[Exposure]] = {}
    for name, path in models.items():
        state.reporter.say(f"Audit: exposure of {len(state.canaries)} canaries under the {name} ...")
        model = state.new_model()
        load_weights(path, model)
        streams = state.streams.child("audit")
        found[name] = measure_exposure(
            model, state.canaries, contexts.ids_ST[rows], contexts.lengths_S[rows], state.masking, streams
        )
    values = {name: [dataclasses.asdict(row) for row in exposures] for name, exposures in found.items()}
    write_json(state.folder.private / "audit.json", values)
    return found


def check_audit_gate(state: RunState, found: dict[str, list[Exposure]]) -> None:
    """Fail when a released pattern's p-value is below the configured gate."""
    gate = state.config.audit.max_exposure_p_value if state.config.audit else 0.0
    for row in found.get("released model", []):
        if row.p_value < gate:
            raise AuditError(
                f"audit: pattern {row.pattern} is exposed by {row.bits:.2f} bits, p = {row.p_value:.2g}, below the gate {gate:g}; "
                "do not publish this release: check the engine and the ledger"
            )


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

"""A run from text to report: each stage is a function of the run's state, and `run` is all of them in order.

    open_run   folder, lock, key, configuration check, ledger with every private stage planned (opening.py)
    vocabulary DP histogram -> WordPiece -> tokenizer
    train      the phases, then (when asked) the control without DP
    evaluate   held-out text: public exactly, private through a mechanism
    audit      exposure of the planted canaries; membership: the attack on the corpus itself
    report     run/release as a whole

Every stage looks first for its own finished output, so running the same command again continues where it stopped. Only
`tacit.release` writes to run/release; everything else stays in run/private (mode 0700).

Under torchrun the first process does all of this, and the others `assist` it in the training phases (docs/distributed.md).
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.audit.candidates import candidate_exposure
from tacit.audit.exposure import Exposure, measure_exposure
from tacit.audit.membership import MembershipReport, measure_membership
from tacit.audit.scorers import scorer_of
from tacit.audit.trie import build_trie, score_candidates
from tacit.config import RunConfig
from tacit.corpus.units import Unit
from tacit.engine.distributed import Ranks
from tacit.errors import AuditError, DataError
from tacit.files import private_folder, read_json, write_atomically, write_json
from tacit.given import given_tokenizer, reserved_tokens
from tacit.marking import cut
from tacit.opening import join_run
from tacit.planning import EVALUATION, VOCABULARY
from tacit.privacy.events import Gaussian, ThresholdedHistogram
from tacit.randomness import Streams
from tacit.run_state import RunState
from tacit.screen_stage import redacted_units, secret_form, secrets_of
from tacit.tasks import causal_lm, masked_lm
from tacit.training.checkpoint import finished_steps, load_weights
from tacit.training.loop import run_phase
from tacit.training.plans import DpPlan, Phase, PlainPlan
from tacit.training.sequences import SequenceStream
from tacit.vocabulary.count import count_words
from tacit.vocabulary.select import draw_noise, release
from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer
from tacit.vocabulary.wordpiece import train_wordpiece

__all__ = ["assist", "audit", "check_audit_gate", "evaluate", "membership", "train", "vocabulary"]

_WITH_SECRETS = ("private", "marked")
"""Streams that may hold a secret; the control is trained anew from the first phase on that reads one of them."""


def vocabulary(state: RunState) -> None:
    """Write the tokenizer: WordPiece from a histogram of words, released under its event (Hoory 3.2), or a given one."""
    folder = private_folder(state.vocabulary_folder)
    if (folder / "tokenizer.json").exists():
        return
    state.check_data()
    options = state.config.vocabulary
    if options.method == "given":
        _write_given(state, folder)
        return
    text = TokenizerOptions(lowercase=options.lowercase)
    event = state.mechanisms.vocabulary
    if isinstance(event, ThresholdedHistogram):
        released = _released_words(state, event, folder, text)
    else:
        released = _words_without_noise(state, text)
    write_json(folder / "released.json", released)
    if not released:
        state.reporter.say("Vocabulary: no word reached the threshold; the tokenizer has single characters only")
    reserved = reserved_tokens(state.config)
    size = options.size - len(reserved)
    pieces = train_wordpiece(released, size, text.alphabet, min_frequency=options.min_count)
    tokenizer = build_tokenizer(pieces, text, reserved)
    write_atomically(folder / "tokenizer.json", lambda partial: tokenizer.save(str(partial)))
    state.reporter.say(f"Vocabulary: {len(released)} words released, {len(pieces)} pieces")


def _write_given(state: RunState, folder: Path) -> None:
    """The given tokenizer: nothing is released from the private text."""
    given = given_tokenizer(state.config)
    write_json(folder / "released.json", {})
    write_json(folder / "special_tokens.json", dict(given.names))
    write_atomically(folder / "tokenizer.json", lambda partial: given.tokenizer.save(str(partial)))
    state.reporter.say(f"Vocabulary: given, {given.special.size} entries")


def _released_words(
    state: RunState, event: ThresholdedHistogram, folder: Path, text: TokenizerOptions
) -> dict[str, int]:
    """Noisy counts of the private words that reach the threshold."""
    state.reporter.say("Vocabulary: counting words under the contribution bound ...")
    counts = _word_counts(state, state.private_units[0], event.max_words, text)
    noise = _vocabulary_noise(state, event, folder, len(counts))
    state.ledger.charge(VOCABULARY)
    return release(counts, noise, int(event.threshold))


def _words_without_noise(state: RunState, text: TokenizerOptions) -> dict[str, int]:
    """All words of the public corpora; where there are none, of the screened or unmarked text, whose release the ledger holds."""
    state.reporter.say("Vocabulary: counting words ...")
    if state.config.public:
        return _word_counts(state, state.public_units[0], sys.maxsize, text)
    state.ledger.charge(VOCABULARY)
    units = state.screened_units if state.config.marking is None else _unmarked_units(state)
    return _word_counts(state, units, sys.maxsize, text)


def _unmarked_units(state: RunState) -> list[Unit]:
    """What is public of the marked text: no word of it is, or is beside, a private one."""
    return [Unit(marked.unit.unit_id, (marked.public_text,)) for marked in state.marked_texts]


def _word_counts(state: RunState, units: list[Unit], most: int, text: TokenizerOptions) -> dict[str, int]:
    return count_words(((unit.unit_id, unit.texts) for unit in units), most, state.streams.child("vocabulary"), text)


def _vocabulary_noise(state: RunState, event: ThresholdedHistogram, folder: Path, words: int) -> np.ndarray:
    """The noise of the release, drawn once: on disk, and its keyed digest in the ledger, before it meets a count.

    A killed run therefore repeats the same release, and other noise (a second release for the price of one) is refused.
    """
    path = folder / "noise.npy"
    if not path.exists():
        noise = draw_noise(words, event.noise_stddev)
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
        begun = begun or phase.stream in _WITH_SECRETS
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
    first = next((number for number, phase in enumerate(planned) if phase.stream in _WITH_SECRETS), len(planned))
    own = {phase.name for phase in planned[first:]}  # those before are the run's own
    phases: list[Phase] = []
    for phase in planned:
        if isinstance(phase.plan, DpPlan):
            steps = options.control_steps or phase.steps
            optimizer = dataclasses.replace(phase.optimizer, learning_rate=options.control_learning_rate)
            phase = dataclasses.replace(phase, plan=PlainPlan(options.control_batch), steps=steps, optimizer=optimizer)
        if phase.previous in own:
            phase = dataclasses.replace(phase, previous=f"control-{phase.previous}")
        phases.append(phase)
    return tuple(phases)


def evaluate(state: RunState) -> dict[str, Any]:
    """How well the model predicts held-out text, beside baselines; written to run/private/evaluation.json.

    Public text is scored exactly. The private part is one Gaussian release in the ledger, on units kept from training. With
    screening or marking there is no such release: the part ``curator`` is exact, and for the curator alone.
    """
    train(state)
    path = state.folder.private / "evaluation.json"
    if path.exists():
        return read_json(path)
    state.reporter.say("Evaluation: held-out text ...")
    models = _models_to_evaluate(state)
    found: dict[str, Any] = {"vocabulary_size": state.special.size}
    streams = state.streams.child("evaluation")
    if state.config.public:
        found["public"] = _exact_scores(state, models, state.public_held_out, state.public_held_out_units, 1)
    if state.mechanisms.evaluation is not None:
        found["private"] = _evaluate_private(state, state.mechanisms.evaluation, models, streams)
    elif state.private_units[1]:
        units = state.private_units[1]
        for name, texts in _curators_texts(state.config, units).items():
            found[name] = _exact_scores(state, models, state.sequences(texts), texts, None)
    write_json(path, found)
    return found


def _curators_texts(config: RunConfig, units: list[Unit]) -> dict[str, list[Unit]]:
    """Held-out units in the forms that are scored: as training shows them, and raw."""
    if config.marking is not None:
        return {"curator": cut(units, config.marking.data_point)}
    return {"curator": redacted_units(config, units), "curator_raw": units}


Models = dict[str, PreTrainedModel | np.ndarray]


def _models_to_evaluate(state: RunState) -> Models:
    """The released model, the one before private text where there is one, and the words' own frequencies."""
    models: Models = {"released model": state.trained_model(state.mechanisms.phases[-1].name)}
    of_public = [phase for phase in state.mechanisms.phases if phase.stream == "public"]
    if of_public and state.config.dp_phases and state.config.rounds == 1:
        models["after public phase"] = state.trained_model(of_public[-1].name)
    stream = state.plain_stream
    size, no_text = state.special.size, state.special.ids
    causal = state.config.model.is_causal
    models["unigram"] = causal_lm.unigram(stream, size) if causal else masked_lm.unigram(stream, no_text, size)
    return models


def _loss_bound(state: RunState) -> float:
    """Nats a token beyond which a loss counts as this: half as much again as the uniform model's."""
    return 1.5 * float(np.log(state.special.size))


def _unit_vectors(
    state: RunState, models: Models, stream: SequenceStream, per_unit: int, streams: Streams
) -> np.ndarray:
    """What each unit adds to a sum that may be released: entries in [0, 1]."""
    if state.config.model.is_causal:
        return causal_lm.unit_vectors(causal_lm.score_units(models, stream, streams, per_unit), _loss_bound(state))
    scores = masked_lm.score_units(models, stream, per_unit, state.masking, streams)
    return masked_lm.unit_vectors(scores, _loss_bound(state))


def _means(state: RunState, models: Models, total_M: np.ndarray, noise_stddev: float) -> dict[str, Any]:
    means_of_sum = causal_lm.means_of_sum if state.config.model.is_causal else masked_lm.means_of_sum
    return means_of_sum(total_M, tuple(models), noise_stddev, _loss_bound(state))


def _exact_scores(
    state: RunState, models: Models, stream: SequenceStream, units: list[Unit], per_unit: int | None
) -> dict[str, Any]:
    """Without noise, over all tokens. A causal model has perplexities a token and a word, and bits a byte of the texts."""
    streams = state.streams.child("evaluation")
    if not state.config.model.is_causal:
        at_most = per_unit or state.config.evaluation.sequences_per_unit
        return _means(state, models, _unit_vectors(state, models, stream, at_most, streams).sum(axis=0), 0.0)
    sizes = causal_lm.text_sizes(units)
    found: dict[str, Any] = {}
    for name, losses in causal_lm.score_units(models, stream, streams).items():
        exact = causal_lm.perplexities(losses, *sizes)
        found[name] = {
            "perplexity": exact.per_token,
            "perplexity_per_word": exact.per_word,
            "bits_per_byte": exact.bits_per_byte,
        }
    return found


def _evaluate_private(state: RunState, event: Gaussian, models: Models, streams: Streams) -> dict[str, Any]:
    stream = state.sequences(state.private_units[1])
    state.ledger.charge(EVALUATION)
    vectors = _unit_vectors(state, models, stream, state.config.evaluation.sequences_per_unit, streams)
    total = masked_lm.noisy_sum(vectors, event.noise_multiplier, streams.generator("noise"))
    return _means(state, models, total, event.noise_multiplier * float(np.sqrt(vectors.shape[1])))


def audit(state: RunState) -> dict[str, list[Exposure]]:
    """Exposure of the canaries under the released model and, as a positive control, under the model without DP.

    Written to run/private/audit.json; the canaries themselves to run/private/canaries.json. See `check_audit_gate`.
    """
    options = state.config.audit
    if options is None:
        return {}
    train(state)
    if state.config.model.is_causal:
        return _audit_secrets(state)
    write_json(state.folder.private / "canaries.json", [dataclasses.asdict(canary) for canary in state.canaries])
    models = _audited_models(state)
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


def _audited_models(state: RunState) -> dict[str, Path]:
    """Checkpoints of the released model and, where there is one, of the control."""
    last = state.mechanisms.phases[-1].name
    models = {"released model": state.checkpoint(last)}
    if state.config.audit is not None and state.config.audit.control:
        models["control without DP"] = state.checkpoint(f"control-{last}")
    return models


def _audit_secrets(state: RunState) -> dict[str, list[Exposure]]:
    """Exposure of a causal model's canaries by their exact rank among all candidates: mean and highest over the canaries."""
    form, secrets = secret_form(state.config), secrets_of(state.config, state.streams)
    assert form is not None
    write_json(state.folder.private / "canaries.json", [form.text(secret) for secret in secrets])
    trie = build_trie(state.tokenizer, form)
    found: dict[str, list[Exposure]] = {}
    for name, path in _audited_models(state).items():
        state.reporter.say(f"Audit: exposure of {len(secrets)} secrets among {form.candidates} under the {name} ...")
        model = state.new_model()
        load_weights(path, model)
        model.eval()
        measured = candidate_exposure(score_candidates(scorer_of(model), trie, [state.special.start]), secrets)
        found[name] = [
            Exposure(
                pattern=form.prefix + "d" * form.digits,
                canaries=measured.canaries,
                mean_rank=float(np.mean(measured.ranks)),
                bits=measured.mean_bits,
                null_bits=measured.null_mean_bits,
                p_value=measured.mean_p_value,
                ceiling_bits=measured.ceiling_bits,
                max_bits=measured.max_bits,
                null_max_bits=measured.null_max_bits,
                max_p_value=measured.max_p_value,
            )
        ]
    values = {name: [dataclasses.asdict(row) for row in exposures] for name, exposures in found.items()}
    write_json(state.folder.private / "audit.json", values)
    return found


def membership(state: RunState) -> dict[str, MembershipReport]:
    """Membership inference on the run's own texts, under the released model and, as a positive control, the one without DP.

    A function of private text beside the model, so it is the curator's alone: written to run/private/membership.json, and from there
    to the curator's copy of the report. Empty where the configuration does not ask for it.
    """
    options = state.config.audit.membership if state.config.audit else None
    if options is None:
        return {}
    train(state)
    samples = state.membership_samples  # how many these are is private, and no line says it
    found: dict[str, MembershipReport] = {}
    for name, path in _audited_models(state).items():
        state.reporter.say(f"Audit: membership inference under the {name} ...")
        model = state.new_model()
        load_weights(path, model)
        found[name] = measure_membership(
            model,
            state.tokenizer,
            samples,
            [state.special.start],
            state.streams.child("membership"),
            options.group_size,
            [state.special.end],
            state.config.model.length,
        )
    write_json(state.folder.private / "membership.json", {name: dataclasses.asdict(row) for name, row in found.items()})
    return found


def check_audit_gate(state: RunState, found: dict[str, list[Exposure]]) -> None:
    """Fail when a released pattern's p-value is below the configured gate; mean and highest exposure are one test there."""
    gate = state.config.audit.max_exposure_p_value if state.config.audit else 0.0
    for row in found.get("released model", []):
        if row.gate_p_value < gate:
            highest = "" if row.max_bits is None else f" (the highest of them by {row.max_bits:.2f})"
            raise AuditError(
                f"audit: pattern {row.pattern} is exposed by {row.bits:.2f} bits{highest}, p = {row.gate_p_value:.2g}, below the "
                f"gate {gate:g}; do not publish this release: check the engine and the ledger"
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

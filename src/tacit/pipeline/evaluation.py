"""The stage `evaluate`: held-out text; public exactly, private through a mechanism."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from tacit.config import RunConfig
from tacit.corpus.chats import answer_of
from tacit.corpus.units import Unit
from tacit.engine.total import bits_of_weights
from tacit.errors import DataError, RefusedError
from tacit.evaluation import causal_lm, masked_lm
from tacit.evaluation.examples import Example, completions, fillings
from tacit.files import write_json
from tacit.models.memory import remembered_length
from tacit.pipeline.corpus import private_units
from tacit.pipeline.marking import cut
from tacit.pipeline.rows import (
    has_unigram,
    private_held_out_rows,
    public_answers,
    public_held_out_rows,
    tokenized,
    unigram_rows,
)
from tacit.pipeline.screening import redacted_units
from tacit.pipeline.state import RunState
from tacit.planning import EVALUATION
from tacit.privacy.events import Gaussian
from tacit.randomness import KeyedRandomness
from tacit.runs.stages import Stage, always
from tacit.training.objectives import Objective
from tacit.training.phases import last_before_private
from tacit.training.sequences import SequenceStream
from tacit.training.sums import scores_digest
from tacit.training.unit_rows import all_widths
from tacit.vocabulary.special import SpecialTokens

__all__ = ["STAGE", "evaluate", "made_up_row"]


def evaluate(state: RunState) -> None:
    """How well the model predicts held-out text, beside baselines; written to run/private/evaluation.json.

    Public text is scored exactly. The private part is one Gaussian release in the ledger, on units kept from training. With
    screening or marking there is no such release: the part ``curator`` is exact, and for the curator alone.
    """
    state.reporter.say("Evaluation: held-out text ...")
    # by the configuration: whether a unit is held out is private, and must not decide which models may have diverged
    scored = bool(state.config.public) or state.config.evaluation.held_out > 0
    models = _models_to_evaluate(state) if scored else _released_model(state)
    _refuse_diverged(models)
    if state.mechanisms.evaluation is not None and state.config.model.folder is not None:
        _refuse_memory(state, models)
    found: dict[str, Any] = {"vocabulary_size": state.special.size}
    streams = state.streams.child("evaluation")
    if state.config.public:
        found["public"] = _exact_scores(state, models, public_held_out_rows(state), public_answers(state), 1)
        found["examples"] = [dataclasses.asdict(example) for example in _examples(state, models)]
    if state.mechanisms.evaluation is not None:
        found["private"] = _evaluate_private(state, state.mechanisms.evaluation, models, streams)
    elif units := private_units(state)[1]:
        for name, texts in _curators_texts(state.config, units).items():
            with suppress(
                DataError
            ):  # texts without a token: for the curator there is no score then, and the run goes on
                found[name] = _exact_scores(state, models, tokenized(state, texts), texts, None)
    write_json(state.folder.private / "evaluation.json", found)


_EXAMPLES = 5


STAGE = Stage("evaluation", always, lambda state: (state.folder.private / "evaluation.json").exists(), evaluate)


def _examples(state: RunState, models: Models) -> list[Example]:
    """What the models write for the first public held-out texts: of released weights and public text, so it costs nothing."""
    networks = {name: model for name, model in models.items() if isinstance(model, PreTrainedModel)}
    rows, special = public_held_out_rows(state), state.special
    if state.config.model.is_causal:
        found = completions(networks, state.tokenizer, rows, special)
    else:
        assert special.mask is not None  # `RunState.masking` has asked for it
        found = fillings(networks, state.tokenizer, rows, special, special.mask)
    return list(itertools.islice(found, _EXAMPLES))


def _curators_texts(config: RunConfig, units: Sequence[Unit]) -> dict[str, Sequence[Unit]]:
    """Held-out units in the forms that are scored: as training shows them, and raw."""
    if config.marking is not None:
        return {"curator": cut(units, config.marking.data_point)}
    return {"curator": redacted_units(config, units), "curator_raw": units}


Models = dict[str, PreTrainedModel | np.ndarray]

_DIVERGED = (
    "the {} gives no numbers: its training diverged. Lower learning_rate or clip_norm of the phases, in a new run folder; what "
    "this run has spent stays spent"
)


def _refuse_diverged(models: Models) -> None:
    """The models that are looked at are the one to be released and the public one it is compared with; the control stops no run.

    Raises:
        DataError: weights that are not numbers.
    """
    for name, model in models.items():
        if isinstance(model, PreTrainedModel) and not all(bool(own.isfinite().all()) for own in model.parameters()):
            raise DataError(f"evaluation: {_DIVERGED.format(name)}")


def _refuse_memory(state: RunState, models: Models) -> None:
    """One held-out unit may not change how the others are scored. Phases with noise have tried the model before; a run may have none.

    Raises:
        RefusedError: ``unsteady-model``; it depends on weights that may be released, and on made-up rows.
    """
    lengths = sorted(all_widths(state.config.model.length))
    for name, model in models.items():
        if isinstance(model, PreTrainedModel):
            weights = bits_of_weights(model)
            if (
                remembered_length(_made_up_losses(state, model), lengths) is not None
                or bits_of_weights(model) != weights
            ):
                raise RefusedError(
                    "unsteady-model",
                    f"the {name}, a {type(model).__name__}, gives a row another loss after other rows, draws, or writes its own "
                    "weights, so one held-out unit would decide the loss of others; set evaluation.held_out: 0, or take another type "
                    "of model",
                )


def _made_up_losses(state: RunState, model: PreTrainedModel) -> Callable[[int], np.ndarray]:
    """The loss of a made-up row of a length, as held-out units are scored: always the same row, and the same masks in it."""
    ids_1T = made_up_row(state.streams, state.special, state.config.model.length)
    masks = KeyedRandomness(bytes(32))  # no secret: nothing private is read

    def losses(length: int) -> np.ndarray:
        stream = SequenceStream(ids_1T, np.array([length]), np.array([0, 1]), ("made up",))
        if state.config.model.is_causal:
            return causal_lm.score_units({"": model}, stream, masks)[""].nats_U
        return masked_lm.score_units({"": model}, stream, 1, state.masking, masks)[""].loss_U

    return losses


def made_up_row(streams: KeyedRandomness, special: SpecialTokens, length: int) -> np.ndarray:
    """Token ids (1, T), drawn with the key: nobody can make weights that are steady at this row alone."""
    ordinary = np.setdiff1d(np.arange(special.size), special.ids)
    ids_1T = streams.child("evaluation").generator("made up").choice(ordinary, (1, length)).astype(np.int32)
    ids_1T[:, 0] = special.start
    return ids_1T


def _released_model(state: RunState) -> Models:
    """Whose weights have to be numbers, also where nothing is scored."""
    return {"released model": state.trained_model(state.mechanisms.phases[-1].name)}


def _models_to_evaluate(state: RunState) -> Models:
    """The released model, the one before private text where there is one, and the words' own frequencies where they may be known."""
    models = _released_model(state)
    before = last_before_private(state.mechanisms.phases)
    if before is not None:
        models["after public phase"] = state.trained_model(before.name)
    elif state.config.model.folder is not None and not state.config.model.new_vocabulary:
        models["given model"] = (
            state.new_model()
        )  # with an adapter that has learned nothing, it computes what it did without
    if not has_unigram(state.config):
        return models
    stream = unigram_rows(state)
    size, no_text = state.special.size, state.special.ids
    causal = state.config.model.is_causal
    models["unigram"] = causal_lm.unigram(stream, size) if causal else masked_lm.unigram(stream, no_text, size)
    return models


def _loss_bound(state: RunState) -> float:
    """The largest loss that counts, in nats a token: one and a half times that of the uniform model."""
    return 1.5 * float(np.log(state.special.size))


def _unit_vectors(
    state: RunState,
    models: Models,
    stream: SequenceStream,
    per_unit: int,
    streams: KeyedRandomness,
    sizes: causal_lm.UnitSizes | None = None,
) -> np.ndarray:
    """What each unit adds to a sum that may be released: entries in [0, 1]."""
    if state.config.model.is_causal:
        losses = causal_lm.score_units(models, stream, streams, per_unit)
        return causal_lm.unit_vectors(losses, _loss_bound(state), sizes)
    scores = masked_lm.score_units(models, stream, per_unit, state.masking, streams)
    return masked_lm.unit_vectors(scores, _loss_bound(state))


def _means(
    state: RunState, models: Models, total_M: np.ndarray, noise_stddev: float, with_sizes: bool = False
) -> dict[str, Any]:
    names, bound = tuple(models), _loss_bound(state)
    if state.config.model.is_causal:
        return causal_lm.means_of_sum(total_M, names, noise_stddev, bound, with_sizes)
    return masked_lm.means_of_sum(total_M, names, noise_stddev, bound)


def _exact_scores(
    state: RunState, models: Models, stream: SequenceStream, units: Sequence[Unit], per_unit: int | None
) -> dict[str, Any]:
    """Scores without noise, over all tokens. A causal model has perplexities per token and word, and bits per byte of the texts."""
    streams = state.streams.child("evaluation")
    if not state.config.model.is_causal:
        at_most = per_unit or state.config.evaluation.sequences_per_unit
        return _means(state, models, _unit_vectors(state, models, stream, at_most, streams).sum(axis=0), 0.0)
    sizes = causal_lm.text_sizes(units)
    found: dict[str, Any] = {}
    for name, losses in causal_lm.score_units(models, stream, streams).items():
        exact = causal_lm.perplexities(losses, *sizes)
        if not all(map(math.isfinite, dataclasses.astuple(exact))):
            raise DataError(f"evaluation: {_DIVERGED.format(name)}")
        found[name] = {
            "perplexity": exact.per_token,
            "perplexity_per_word": exact.per_word,
            "bits_per_byte": exact.bits_per_byte,
        }
    return found


def _evaluate_private(state: RunState, event: Gaussian, models: Models, streams: KeyedRandomness) -> dict[str, Any]:
    units = private_units(state)[1]
    stream = private_held_out_rows(state)
    per_unit = state.config.evaluation.sequences_per_unit
    sizes = None
    if state.config.evaluation.words_and_bytes:
        sizes = causal_lm.unit_sizes(stream, _answers(units) if state.config.private.is_chat else units)
    made_from = scores_digest(models, stream, _plan(event, per_unit, state.objective, sizes), streams)
    state.ledger.bind("what the evaluation is made from", made_from)
    state.ledger.charge(EVALUATION)
    streams = streams.child("sums", made_from)
    vectors = _unit_vectors(state, models, stream, per_unit, streams, sizes)
    total = masked_lm.noisy_sum(vectors, event.noise_multiplier, streams.generator("noise"))
    return _means(state, models, total, event.noise_multiplier * float(np.sqrt(vectors.shape[1])), sizes is not None)


def _plan(event: Gaussian, per_unit: int, objective: Objective, sizes: causal_lm.UnitSizes | None) -> str:
    """All that decides a unit's vector beside models and rows, private too: texts with equal tokens may differ in words and bytes."""
    plan = repr((event, per_unit, objective))
    return plan if sizes is None else plan + repr([sizes.words_U.tolist(), sizes.bytes_U.tolist()])


def _answers(units: Sequence[Unit]) -> list[Unit]:
    """The part of conversations and responses that is scored."""
    return [Unit(unit.unit_id, tuple(map(answer_of, unit.texts))) for unit in units]

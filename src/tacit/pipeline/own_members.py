"""The attack on texts that the curator gives as members and as non-members, under the models of a finished run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from tacit.audit.attack import RELEASED
from tacit.audit.own_members import Differences, OwnVerdict, ToldApart, differences, judge_own, told_apart
from tacit.audit.pseudo_likelihood import pseudo_nats
from tacit.config import RunConfig
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.corpus.units import Unit
from tacit.errors import UsageError
from tacit.evaluation import causal_lm
from tacit.files import write_json
from tacit.pipeline.attacks import audited_models
from tacit.pipeline.rows import tokenized
from tacit.pipeline.state import RunState
from tacit.training.checkpoint import load_weights
from tacit.training.phases import last_before_private
from tacit.training.sequences import SequenceStream

__all__ = ["FILE_NAME", "OwnMembers", "attack_own_members", "own_source"]

FILE_NAME = "own_members.json"
"""In run/private: what was found last."""


@dataclass(frozen=True)
class OwnMembers:
    """What was found; numbers alone.

    Args:
        score: in words.
        models: by name; the released one, and the control where there is one.
        apart: what tells the files apart without any model.
        without_tokens: texts that have none, and are left out.
        verdict: on the released model.
    """

    score: str
    models: Mapping[str, ToldApart]
    apart: Differences
    without_tokens: int
    verdict: OwnVerdict

    def plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


def own_source(config: RunConfig, path: Path, text_field: str | None) -> Source:
    """How a file of the curator's is read: with the fields of the run's corpus, unless its text has a field of another name."""
    if text_field is not None:
        return Source(path, text_field=text_field)
    if path.name.removesuffix(".gz").endswith(".txt"):  # it has no fields, whatever the corpus has
        return Source(path)
    return dataclasses.replace(
        config.private.source, path=path, format="auto", id_field=None, user_field=None, limit=None
    )


def attack_own_members(state: RunState, members: Source, non_members: Source) -> OwnMembers:
    """Read the files, score their texts under each model, and write what was found to run/private.

    Raises:
        UsageError: the run has not finished.
        DataError: a file cannot be read; fewer than 2 texts of a kind have a token.
    """
    if not state.folder.is_released:
        raise UsageError(f"{state.folder.root}: the run has not finished; `tacit run` goes on with it")
    state.reporter.say("Audit: reading members and non-members ...")
    inside, outside = ([record.text for record in read_records(source)] for source in (members, non_members))
    units = [Unit(f"given:{place}", (text,)) for place, text in enumerate([*inside, *outside])]
    is_member_U = np.arange(len(units)) < len(inside)
    stream = tokenized(state, units)
    reference = _reference(state)
    before_U = 0.0 if reference is None else _mean_nats(state, reference, stream)
    models: dict[str, ToldApart] = {}
    has_token_U = np.ones(len(units), dtype=bool)
    for name, path in audited_models(state).items():
        state.reporter.say(f"Audit: scoring the texts under the {name} ...")
        model = state.new_model()
        load_weights(path, model)
        nats_U = _mean_nats(state, model, stream)
        has_token_U = ~np.isnan(nats_U)
        scores_U = nats_U - before_U
        models[name] = told_apart(scores_U[is_member_U & has_token_U], scores_U[~is_member_U & has_token_U])
    apart = differences(inside, outside, state.streams.child("own-members"))
    result = OwnMembers(
        score="nats a token"
        if reference is None
        else "nats a token, less those of the model before the private phases",
        models=models,
        apart=apart,
        without_tokens=int(np.count_nonzero(~has_token_U)),
        verdict=judge_own(
            models[RELEASED], next((one for name, one in models.items() if name != RELEASED), None), apart
        ),
    )
    write_json(state.folder.private / FILE_NAME, result.plain())
    return result


def _reference(state: RunState) -> PreTrainedModel | None:
    """The model before it read private text: some texts are likely to any model (Watson et al. 2022, arXiv 2111.08440)."""
    before = last_before_private(state.mechanisms.phases)
    if before is not None:
        return state.trained_model(before.name)
    given = state.config.model.folder is not None and not state.config.model.new_vocabulary
    return state.new_model() if given else None


def _mean_nats(state: RunState, model: PreTrainedModel, stream: SequenceStream) -> np.ndarray:
    """Mean nats a token of each unit (U,); NaN where it has no token, infinite where the model gives no number."""
    streams = state.streams.child("own-members")
    if state.config.model.is_causal:
        losses = causal_lm.score_units({RELEASED: model}, stream, streams)[RELEASED]
        nats_U, tokens_U = losses.nats_U, losses.tokens_U
    else:
        nats_U, tokens_U = pseudo_nats(model, stream, state.masking, streams)
    finite_U = np.where(np.isfinite(nats_U), nats_U, np.inf)
    return np.where(tokens_U > 0, finite_U / np.maximum(tokens_U, 1), np.nan)

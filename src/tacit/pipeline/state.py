"""What the stages of one open run share. Reading an attribute has no effect: nothing is charged, bound, screened, scored or written.

What is large is loaded by functions that say so (`tacit.pipeline.corpus`, `tacit.pipeline.rows`), each once in a process: `once`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from tacit.config import RunConfig
from tacit.config.shape import shape_of
from tacit.engine.distributed import ALONE, Ranks
from tacit.errors import DataError, UsageError
from tacit.files import read_result
from tacit.models.kinds import build_model
from tacit.planning import Mechanisms
from tacit.privacy.ledger import Ledger
from tacit.progress import Reporter
from tacit.randomness import KeyedRandomness
from tacit.runs.folder import RunFolder
from tacit.training.checkpoint import load_weights
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective, Objective
from tacit.training.phases import Phase
from tacit.vocabulary.chat_template import TEMPLATE_FILE
from tacit.vocabulary.special import OWN_NAMES, SpecialTokens, special_tokens

__all__ = ["RunState", "give", "objective_of", "once"]

_Loaded = TypeVar("_Loaded")


@dataclass(frozen=True)
class RunState:
    """One open run.

    Args:
        streams: keyed randomness, of the run's key.
        mechanisms: what it will release from private text, as planned in the ledger.
        ledger_if_first: None on a rank that assists rank 0; see `ledger`.
        ranks: the processes that train together.
        loaded: what `once` keeps, by the function that loaded it.
    """

    config: RunConfig
    folder: RunFolder
    ledger_if_first: Ledger | None = field(repr=False)
    streams: KeyedRandomness = field(repr=False)
    mechanisms: Mechanisms
    reporter: Reporter
    ranks: Ranks = ALONE
    loaded: dict[Callable[[RunState], Any], Any] = field(default_factory=dict, repr=False)

    @property
    def ledger(self) -> Ledger:
        """The ledger, which rank 0 alone holds."""
        if self.ledger_if_first is None:
            raise UsageError("only rank 0 of a run holds its ledger")
        return self.ledger_if_first

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The released tokenizer; the stage `vocabulary` has made it."""
        path = self.vocabulary_folder / "tokenizer.json"
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception:  # the library raises this very class
            raise DataError(f"{path}: missing or damaged; bring it back, or use another run folder") from None
        tokenizer.encode_special_tokens = True  # a "[MASK]" that stands in a text is text
        return tokenizer

    @property
    def vocabulary_folder(self) -> Path:
        """What the vocabulary stage leaves."""
        return self.folder.private / "vocabulary"

    @functools.cached_property
    def special_names(self) -> Mapping[str, str]:
        """The tokenizer's special tokens by role; those of a given one were written beside it."""
        path = self.vocabulary_folder / "special_tokens.json"
        return read_result(path) if path.exists() else OWN_NAMES

    @functools.cached_property
    def chat_template(self) -> str | None:
        """How the tokenizer writes messages, in Jinja; the stage `vocabulary` has left it."""
        path = self.vocabulary_folder / TEMPLATE_FILE
        return path.read_text(encoding="utf-8") if path.exists() else None

    @functools.cached_property
    def special(self) -> SpecialTokens:
        """The ids of the tokenizer's special tokens, and how many ids there are."""
        return special_tokens(self.tokenizer, self.special_names)

    @functools.cached_property
    def masking(self) -> Masking:
        """How a masked model's rows are masked."""
        return _masking_of(self.config, self.special)

    @property
    def objective(self) -> Objective:
        """What this run's model is asked about rows that are not marked."""
        return objective_of(self.config, self.special)

    def objective_of(self, phase: Phase) -> Objective:
        """What it is asked in a phase: of marked rows public tokens or private ones, by the phase's plan."""
        if phase.stream != "marked":
            return self.objective
        shape = shape_of(self.config.model)
        return phase.plan.marked_objective(self.special.size, shape.layers, shape.width, self.config.model.length)

    @property
    def device(self) -> torch.device:
        """Where models are trained and audited; each process on a machine has a GPU of its own."""
        name = self.config.compute.device
        return torch.device(name, int(os.environ.get("LOCAL_RANK", 0))) if name == "cuda" else torch.device(name)

    def new_model(self) -> PreTrainedModel:
        """The model that this run begins with."""
        seed = int.from_bytes(self.streams.derive("model")[:8], "big") >> 1
        return build_model(self.config.model, self.special, seed, self.tokenizer)

    def checkpoint(self, phase: str) -> Path:
        """The checkpoint file of a phase."""
        return self.folder.checkpoint(phase)

    def trained_model(self, phase: str) -> PreTrainedModel:
        """The model as it stands in a phase's checkpoint."""
        model = self.new_model()
        load_weights(self.checkpoint(phase), model)
        return model


def objective_of(config: RunConfig, special: SpecialTokens) -> Objective:
    """What a run's model is asked about rows that are not marked."""
    return CausalObjective() if config.model.is_causal else MaskedObjective(_masking_of(config, special))


def _masking_of(config: RunConfig, special: SpecialTokens) -> Masking:
    if special.mask is None:
        raise UsageError("the tokenizer has no mask token, which a masked model needs")
    return Masking(config.masking_probability, special.mask, special.ids, special.size)


def once(load: Callable[[RunState], _Loaded]) -> Callable[[RunState], _Loaded]:
    """Call the function at most once for a state, and keep what it gives: it is large, or makes something in the run folder."""

    @functools.wraps(load)
    def kept(state: RunState) -> _Loaded:
        if load not in state.loaded:
            state.loaded[load] = load(state)
        return state.loaded[load]

    return kept


def give(state: RunState, load: Callable[[RunState], _Loaded], value: _Loaded) -> None:
    """Let a function under `once` give what another process has made, where this one cannot or need not make it again."""
    state.loaded[inspect.unwrap(load)] = value

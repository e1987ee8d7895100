"""What a kind of model is: one row of `tacit.config.kinds.KINDS`. It needs no torch: what does is named, and imported when used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Kind", "ModelShape", "Tagger", "attention_cost", "attention_parameters", "stored_parameters"]


@dataclass(frozen=True)
class ModelShape:
    """What decides how many parameters a model has, and what a step of it costs.

    Args:
        kind: its row.
        layers: of attention, or of the LSTM.
        width: hidden features.
        tied: whether the head's weight is the table of tokens.
        heads: of attention; None where there is none.
        intermediate: width of the feed-forward layers; 0 where there are none.
        positions: that the model can tell apart; None where there is no such limit.
        embedding: width of the table of tokens.
        token_types: BERT's segments; 0 elsewhere.
        vocabulary: token ids, where a folder says it.
        key_value_heads: of attention whose heads share keys and values; None where each has its own.
        stored: numbers in the folder's files of weights, of a kind that counts these.
    """

    kind: Kind = field(repr=False)
    layers: int
    width: int
    embedding: int
    tied: bool
    heads: int | None = None
    intermediate: int = 0
    positions: int | None = None
    token_types: int = 0
    vocabulary: int | None = None
    key_value_heads: int | None = None
    stored: int | None = field(default=None, compare=False)

    def parameters(self, vocabulary: int) -> int:
        """Trainable parameters with so many token ids."""
        return self.kind.parameters(self, vocabulary)


def attention_parameters(shape: ModelShape) -> int:
    """The parameters of all layers of attention with two norms and a feed-forward part, where everything has a bias."""
    width, inner = shape.width, shape.intermediate
    return shape.layers * (4 * (width * width + width) + 2 * width + 2 * width * inner + inner + width + 2 * width)


def attention_cost(shape: ModelShape, length: int) -> int:
    """Multiplications of one such layer at one position of a row of ``length``."""
    return 4 * shape.width**2 + 2 * shape.width * shape.intermediate + 2 * length * shape.width


def stored_parameters(shape: ModelShape, vocabulary: int) -> int:
    """How many numbers are in a folder's files, and in rows for more token ids than its model knows."""
    added = max(0, vocabulary - (shape.vocabulary or 0))
    return (shape.stored or 0) + (1 if shape.tied else 2) * added * shape.embedding


@dataclass(frozen=True)
class Tagger:
    """How a kind tags words.

    Args:
        network: the class, as `Kind.network`.
        parameters: of a shape with so many token ids, without the head.
        head: what the names of the head's parameters begin with.
    """

    network: str
    parameters: Callable[[ModelShape, int], int]
    head: str = "classifier."


def _as_it_is(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return values


def _no_objection(values: Mapping[str, Any]) -> str | None:
    return None


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of model. Whoever wants to know something of a kind asks its row, and nobody compares names.

    Code that needs torch is named as ``"module:name"`` and imported when it is used (`tacit.models.kinds`), so that `tacit plan`
    starts without it. The modules are transformers and those of `tacit.models`; a test holds that.

    Args:
        name: in ``model.kind``.
        model_type: in config.json.
        objective: what it is asked: ``masked`` tokens, or every next token (``causal``).
        network: the class, a ``PreTrainedModel`` whose config class has one option for each key below.
        keys: what config.json calls the numbers of a `ModelShape`; those that are not here have no meaning for this kind.
        dropout: what it calls its probabilities of dropout.
        tied: of a new model, and of one whose config.json does not say it.
        parameters: trainable ones of a shape with so many token ids. The suite compares with the built model.
        layer_cost: multiplications of one layer at one position of a row of some length, for the expected time.
        forward: what the losses are made of, where transformers' own way is not it: of a causal model ``(model, ids (B, T)) ->
            (head, what the head gets (B, T, D))``, of a masked one ``(model, ids (B, T), attention (B, T), slots (B, K)) -> logits
            (B, K, V)``.
        completed: the values of a config.json, with those that follow from others where they are missing.
        objection: how a model of this type is of no use here, in words that follow "holds a gpt2"; None where it is of use.
        initializers: beginnings beside ``standard``, by name: ``(config, seed) -> model``.
        new_vocabulary: ``(model, its tokenizer, the new tokenizer, special tokens of that) -> model``; None where this is not
            known how.
        tagger: None where it does not tag words.
        may_lack: numbers of ``keys`` that a config.json may leave out.
        counts_stored: whether a folder's parameters are counted by the sizes in its files of weights.
        is_family: whether it stands for every model of transformers that has no row of its own; it starts from a folder then.
        releases_state: whether all that goes from one token to the next is a state which selective DP can release
            (`tacit.models.lstm_release`).
    """

    name: str
    model_type: str
    objective: Literal["masked", "causal"]
    network: str
    keys: Mapping[str, str]
    dropout: tuple[str, ...]
    tied: bool
    parameters: Callable[[ModelShape, int], int]
    layer_cost: Callable[[ModelShape, int], int] = attention_cost
    forward: str | None = None
    completed: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _as_it_is
    objection: Callable[[Mapping[str, Any]], str | None] = _no_objection
    initializers: Mapping[str, str] = field(default_factory=dict)
    new_vocabulary: str | None = None
    tagger: Tagger | None = None
    may_lack: frozenset[str] = frozenset()
    counts_stored: bool = False
    is_family: bool = False
    releases_state: bool = False

    @property
    def is_causal(self) -> bool:
        """Whether it predicts next tokens."""
        return self.objective == "causal"

    @property
    def has_heads(self) -> bool:
        """Whether heads of attention share its width."""
        return "heads" in self.keys

    @property
    def loading_class(self) -> Literal["AutoModelForCausalLM", "AutoModelForMaskedLM"] | None:
        """The class that loads a release without us; None where transformers does not have the model."""
        if not self._is_transformers:
            return None
        return "AutoModelForCausalLM" if self.is_causal else "AutoModelForMaskedLM"

    @property
    def loading_module(self) -> Literal["tacit.models.lstm"] | None:
        """What must be imported before transformers can load it; None where it can."""
        return None if self._is_transformers else "tacit.models.lstm"

    @property
    def pipeline_tag(self) -> Literal["text-generation", "fill-mask"] | None:
        """What a model hub calls the task; None where transformers does not have the model."""
        if not self._is_transformers:
            return None
        return "text-generation" if self.is_causal else "fill-mask"

    @property
    def references(self) -> tuple[str, ...]:
        """All that is named for later, ``"module:name"``."""
        tagger = None if self.tagger is None else self.tagger.network
        named = (self.network, self.forward, self.new_vocabulary, tagger, *self.initializers.values())
        return tuple(reference for reference in named if reference is not None)

    @property
    def _is_transformers(self) -> bool:
        return self.network.startswith("transformers:")

"""The shape of the model: the section ``model``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from tacit.config.adapter import AdapterOptions
from tacit.config.base import MOST, Count, Options
from tacit.config.kinds import KINDS, Kind, KindName, kind_named, one_of
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["ModelOptions", "Trained", "check_given", "check_model"]

Trained = Literal["all", "without-embeddings", "biases-and-norms"]
"""Which parameters of a given model are trained."""

_SHAPE = frozenset({"layers", "width", "heads", "intermediate", "initializer"})


class ModelOptions(Options):
    """The shape of the model. Dropout is 0 by default: under DP the noise regularises more than enough.

    Args:
        kind: ``bert`` (masked tokens), ``gpt2``, ``llama`` or ``lstm`` (next tokens; Zhao et al. train one layer of width 200). Of a
            folder also ``causal`` or ``masked``: any other model of transformers that is asked for next or for masked tokens; not
            given, the folder says it.
        folder: a local Hugging Face folder to start from. It decides the shape (``layers``, ``width``, ``heads``,
            ``intermediate`` and ``initializer`` are not given then), and the vocabulary is ``given``: the folder's own tokenizer,
            unless another one is named. A release of ours brings its certificate: what was spent on it counts here too, unless
            ``same_people: false``.
        public: the folder was made from public text alone; needed where no certificate lies beside it.
        new_vocabulary: the run has another vocabulary than the folder's tokenizer, of any method: a BERT's table of pieces begins
            anew, each as the mean of what that tokenizer makes of it. A BERT only; ``vocabulary`` must say which.
        layers: layers.
        width: hidden size, a multiple of ``heads``.
        heads: attention heads; the LSTM has none.
        intermediate: width of the feed-forward layers; not given: 4 times ``width``.
        length: positions of a row; a longer text becomes several rows.
        dropout: in training, whatever the folder says.
        adapter: train small matrices beside the layers of the folder's model, and nothing else (LoRA); not given: the whole model.
        trained: which of the folder's parameters are trained; the others stay as they are, and get no noise. ``all``;
            ``without-embeddings``: all but the tables of embeddings, and a head that shares one; ``biases-and-norms``: those with one
            dimension alone (BitFit; with DP Bu et al. 2022, arXiv 2210.00036).
        initializer: of a new BERT's weights. ``standard``: normal of standard deviation 0.02, which suits width 768; ``scaled``:
            1/sqrt(width), and attention that begins with near positions, with which a narrow model learns to use context much sooner.
    """

    added_later: ClassVar = frozenset({"adapter", "folder", "initializer", "new_vocabulary", "public", "trained"})

    kind: KindName = "bert"
    folder: str | None = None
    public: bool = False
    new_vocabulary: bool = False
    layers: Count = 2
    width: Count = 128
    heads: Count = 2
    intermediate: Count | None = None
    length: Annotated[int, Field(ge=8, le=MOST)] = 64
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    initializer: Literal["standard", "scaled"] = "standard"
    adapter: AdapterOptions | None = None
    trained: Trained = "all"

    @property
    def resolved_folder(self) -> Path:
        """Where there is a folder: it with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        assert self.folder is not None
        return self.located(self.folder)

    @property
    def beside_folder(self) -> set[str]:
        """Options that were set although the folder decides what they say."""
        return set() if self.folder is None else self.model_fields_set & _SHAPE

    @property
    def without_effect(self) -> frozenset[str]:
        """All that a model folder decides."""
        return frozenset() if self.folder is None else _SHAPE

    @property
    def intermediate_width(self) -> int:
        """Width of the feed-forward layer; four times the width unless given."""
        return self.intermediate or 4 * self.width

    @property
    def is_causal(self) -> bool:
        """Whether it predicts next tokens."""
        return self.row.is_causal

    @property
    def row(self) -> Kind:
        """What there is to know of its kind."""
        return kind_named(self.kind)


def check_given(config: RunConfig) -> None:
    """A given model is named, has its vocabulary, and nothing beside it says what it decides."""
    vocabulary, folder = config.vocabulary, config.model.folder
    if config.model.new_vocabulary and (folder is None or config.model.row.new_vocabulary is None):
        raise UsageError(
            "model.new_vocabulary: only a bert that starts from model.folder gets another vocabulary; leave it out"
        )
    if config.model.new_vocabulary and vocabulary.path == folder:
        raise UsageError(
            "model.new_vocabulary: say in the section vocabulary how the new one is made, or which tokenizer it is; without it the "
            "run has that of model.folder"
        )
    if folder is not None and not vocabulary.how.brings_tokenizer and not config.model.new_vocabulary:
        raise UsageError(
            f"vocabulary.method is {vocabulary.method}, but the model in model.folder knows the ids of its own tokenizer only: leave "
            "the section out, or use method: given (a bert also takes model.new_vocabulary: true)"
        )
    if config.model.public and folder is None:
        raise UsageError("model.public is about model.folder; leave it out, or name the folder")
    _check_adapter(config)
    _check_trained(config)
    if config.model.row.is_family and folder is None:
        raise UsageError(
            f"model.kind {config.model.kind} starts from a folder: name it as model.folder, or take a {one_of(KINDS.values())}"
        )
    if folder is not None and config.model.row.counts_stored and config.model.dropout > 0:
        raise UsageError(
            "model.dropout: models of this kind drop in ways of their own, which have no seed for each row; leave it out"
        )
    if config.model.beside_folder:
        raise UsageError(
            f"model.{min(config.model.beside_folder)}: the model in model.folder decides this; leave it out"
        )


def _check_adapter(config: RunConfig) -> None:
    if config.model.adapter is None:
        return
    if config.model.folder is None:
        raise UsageError(
            "model.adapter stands beside a model that is trained already; name it as model.folder, or leave it out"
        )
    if config.model.new_vocabulary:
        raise UsageError(
            "model.adapter: with model.new_vocabulary the table of pieces begins anew, and no adapter trains it; leave one out"
        )
    if config.is_literal:
        raise UsageError(
            "model.adapter: adaptive.form literal is the published form, of a whole model; leave the adapter out"
        )


def _check_trained(config: RunConfig) -> None:
    if config.model.trained == "all":
        return
    if config.model.folder is None:
        raise UsageError(
            f"model.trained: {config.model.trained} leaves the rest of the model as it is, so it must be a trained one: name it as "
            "model.folder, or leave this out"
        )
    if config.model.new_vocabulary:
        raise UsageError(
            f"model.trained: {config.model.trained} with model.new_vocabulary, whose table of pieces begins anew and must "
            "be trained; leave one out"
        )
    if config.model.adapter is not None:
        raise UsageError("model.trained: an adapter is trained alone; leave one of them out")
    if config.is_literal:
        raise UsageError("model.trained: adaptive.form literal is the published form, of a whole model; leave it out")


def check_model(config: RunConfig) -> None:
    """The heads share the width, and rows are long enough for the canaries."""
    if config.model.row.has_heads and config.model.width % config.model.heads:
        raise UsageError(f"model.width {config.model.width} is not a multiple of model.heads {config.model.heads}")
    if config.model.initializer not in ("standard", *config.model.row.initializers):
        begun = one_of(kind for kind in KINDS.values() if config.model.initializer in kind.initializers)
        raise UsageError(
            f"model.initializer: {config.model.initializer} is for a {begun}, not for a {config.model.kind}; leave it out"
        )
    for phase in config.dp_phases if config.model.is_causal else ():
        if phase.maskings > 1:
            raise UsageError(f"phases: {phase.name}: maskings: a {config.model.kind} has no masks; leave it out")
    for pattern in config.audit.patterns if config.audit and not config.model.is_causal else ():
        if len(pattern) > config.model.length - 2:
            raise UsageError(f"audit.patterns: {pattern} does not fit in model.length {config.model.length}")

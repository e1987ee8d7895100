"""The shape of a model, from its options or from a local Hugging Face folder, and where that has its weights. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.config.base import MOST
from tacit.config.model import ModelOptions
from tacit.errors import DataError
from tacit.files import refuse_pipes

__all__ = ["ModelShape", "folder_shape", "read_config", "shape_of", "weight_files"]


@dataclass(frozen=True)
class ModelShape:
    """What decides how many parameters a model has, and what a step of it costs.

    Args:
        kind: ``bert``, ``gpt2`` or ``lstm``.
        layers: of attention, or of the LSTM.
        width: hidden features.
        tied: whether the head's weight is the table of tokens.
        heads: of attention; None for the LSTM.
        intermediate: width of the feed-forward layers; 0 for the LSTM.
        positions: that the model can tell apart; None where there is no such limit.
        embedding: width of the table of tokens.
        token_types: BERT's segments; 0 elsewhere.
        vocabulary: token ids, where a folder says it.
    """

    kind: str
    layers: int
    width: int
    embedding: int
    tied: bool
    heads: int | None = None
    intermediate: int = 0
    positions: int | None = None
    token_types: int = 0
    vocabulary: int | None = None

    def parameters(self, vocabulary: int) -> int:
        """Trainable parameters with so many token ids (a test compares with the built models)."""
        width, inner = self.width, self.intermediate
        table, head = vocabulary * self.embedding, 0 if self.tied else vocabulary * width
        if self.kind == "lstm":
            first = 4 * width * (self.embedding + width) + 8 * width
            return table + first + (self.layers - 1) * (8 * width * width + 8 * width) + head + vocabulary
        layer = 4 * (width * width + width) + 2 * width + 2 * width * inner + inner + width + 2 * width
        body = table + (self.positions or 0) * width + self.layers * layer + head + 2 * width
        if self.kind == "gpt2":
            return body
        biases = vocabulary if self.tied else 2 * vocabulary  # transformers ties the head's bias too
        return body + self.token_types * width + (width * width + width + 2 * width) + biases

    def encoder_parameters(self, vocabulary: int) -> int:
        """Of a BERT without the head that predicts tokens: what a tagger keeps of it."""
        biases, head = (vocabulary, 0) if self.tied else (2 * vocabulary, vocabulary * self.width)
        return self.parameters(vocabulary) - head - (self.width * self.width + 3 * self.width) - biases


def shape_of(options: ModelOptions) -> ModelShape:
    """The shape of the model that a run trains.

    Raises:
        DataError: see `folder_shape`.
    """
    if options.folder is not None:
        return folder_shape(options.resolved_folder, options.kind)
    if options.kind == "lstm":
        return ModelShape("lstm", options.layers, options.width, options.width, tied=False)
    return ModelShape(
        kind=options.kind,
        layers=options.layers,
        width=options.width,
        embedding=options.width,
        tied=True,
        heads=options.heads,
        intermediate=options.intermediate_width,
        positions=options.length,
        token_types=2 if options.kind == "bert" else 0,
    )


_KINDS = {"bert": "bert", "gpt2": "gpt2", "tacit-lstm": "lstm"}
"""By the ``model_type`` in config.json."""

_KEYS: dict[str, dict[str, str]] = {
    "bert": {
        "layers": "num_hidden_layers",
        "width": "hidden_size",
        "embedding": "hidden_size",
        "heads": "num_attention_heads",
        "intermediate": "intermediate_size",
        "positions": "max_position_embeddings",
        "token_types": "type_vocab_size",
    },
    "gpt2": {
        "layers": "n_layer",
        "width": "n_embd",
        "embedding": "n_embd",
        "heads": "n_head",
        "intermediate": "n_inner",
        "positions": "n_positions",
    },
    "lstm": {"layers": "num_hidden_layers", "width": "hidden_size", "embedding": "embedding_size"},
}
"""What config.json calls the numbers of each kind."""


def read_config(folder: Path) -> tuple[str, dict[str, Any]]:
    """The kind of the model in a folder, and the values of its config.json.

    Raises:
        DataError: there is none that can be read, or the model is of no kind that is trained here.
    """
    refuse_pipes(folder)
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(f"{folder} has no config.json that can be read; give the folder of a saved model") from None
    model_type = values.get("model_type") if isinstance(values, dict) else None
    if not isinstance(model_type, str) or model_type not in _KINDS:
        raise DataError(f"{folder} holds a model of type {model_type!r}; known are {', '.join(map(repr, _KINDS))}")
    return _KINDS[model_type], values


def folder_shape(folder: Path, kind: str) -> ModelShape:
    """The shape of the model in a local Hugging Face folder.

    Raises:
        DataError: as `read_config`; another kind of model; a number is missing or none; or the model is a decoder in a form that is
            not trained here.
    """
    found, values = read_config(folder)
    if found != kind:
        raise DataError(f"{folder} holds a model of type {values['model_type']!r}; give the folder of a {kind}")
    if kind != "lstm" and (values.get("add_cross_attention") or (kind == "bert" and values.get("is_decoder"))):
        raise DataError(f"{folder} holds a {kind} as part of an encoder and decoder; give the folder of a plain {kind}")
    if kind == "gpt2" and values.get("n_inner") is None:
        values = {**values, "n_inner": 4 * _number(folder, values, "n_embd")}
    numbers: dict[str, Any] = {name: _number(folder, values, key) for name, key in _KEYS[kind].items()}
    tied = bool(values.get("tie_word_embeddings", kind != "lstm"))
    return ModelShape(kind=kind, tied=tied, vocabulary=_number(folder, values, "vocab_size"), **numbers)


def _number(folder: Path, values: dict[str, Any], key: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise DataError(
            f"{folder}: config.json has no whole number {key} from 1 to 2**40; save the model with transformers"
        )
    return value


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights of the model in a folder: safetensors only, since reading a pickle can run code.

    Raises:
        DataError: there are none, or not all that the index names.
    """
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if not (folder / names[0]).is_file() and index.is_file():
        try:
            names = sorted({str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            raise DataError(f"{index}: no index of weights; save the model again with transformers") from None
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise DataError(
                f"{folder}: its weights cannot be read: there is no {name}, and pickled ones could run code; save the model again"
            )
    return [folder / name for name in names]

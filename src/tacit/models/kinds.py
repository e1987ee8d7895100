"""The networks of `tacit.config.kinds`: building one, or starting from a folder, and saving it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import logging

from tacit.config import ModelOptions
from tacit.config.base import named
from tacit.config.kinds import Kind, kind_named
from tacit.config.shape import read_config, shape_of
from tacit.models.adapters import adapted
from tacit.models.freezing import freeze_but
from tacit.models.given import load_folder
from tacit.models.networks import kind_of_network, network_of
from tacit.models.seeded import seeded
from tacit.vocabulary.given import read_given
from tacit.vocabulary.special import SpecialTokens

__all__ = [
    "CausalForward",
    "MaskedForward",
    "build_model",
    "kind_of_model",
    "load_model",
    "save_model",
]

CausalForward = Callable[[PreTrainedModel, Tensor], tuple[nn.Linear, Tensor]]
"""From a causal model and ids (B, T) to its head, and what that gets (B, T, D)."""

MaskedForward = Callable[[PreTrainedModel, Tensor, Tensor, Tensor], Tensor]
"""From a masked model, ids (B, T), attention (B, T) and slots (B, K) to the logits there (B, K, V)."""


def kind_of_model(model: nn.Module) -> Kind | None:
    """The row whose network this is; None where there is none."""
    if not isinstance(model, PreTrainedModel):
        return None
    return kind_of_network(type(model), model.config.model_type)


def build_model(
    options: ModelOptions, special: SpecialTokens, seed: int, tokenizer: Tokenizer | None = None
) -> PreTrainedModel:
    """The model that a run begins with: new, its weights a function of the seed, or that of ``options.folder``.

    Args:
        options: kind and shape.
        special: of the run's tokenizer.
        seed: also of the rows of a given model's table for tokens that were added to its tokenizer, and of an adapter.
        tokenizer: of the run; needed with ``options.new_vocabulary`` alone.

    Raises:
        DataError: the folder has no whole model of this kind.
        UsageError: an adapter has nothing to adapt, or peft is not installed.
    """
    if options.folder is not None:
        model = _from_folder(options, special, seed, tokenizer)
        if options.adapter is not None:
            return adapted(model, options.adapter, seed)
        freeze_but(model, options.trained)
        return model
    shape, kind = shape_of(options), options.row
    numbers = {key: getattr(shape, part) for part, key in kind.keys.items()}
    network = named(kind.network)
    config = network.config_class(
        vocab_size=special.size,
        tie_word_embeddings=kind.tied,
        **numbers,
        **dict.fromkeys(kind.dropout, options.dropout),
        **_special_ids(kind, special),
    )
    if options.initializer == "standard":
        return seeded(network, config, seed)
    return named(kind.initializers[options.initializer])(config, seed)


def _special_ids(kind: Kind, special: SpecialTokens) -> dict[str, int]:
    """A masked model has no use for those that rows begin and end with."""
    ends = {"bos_token_id": special.start, "eos_token_id": special.end} if kind.is_causal else {}
    return {"pad_token_id": special.pad, **ends}


def _from_folder(
    options: ModelOptions, special: SpecialTokens, seed: int, tokenizer: Tokenizer | None
) -> PreTrainedModel:
    kind = options.row
    model = _loaded(kind, options.resolved_folder, options.dropout)
    if options.new_vocabulary:
        assert kind.new_vocabulary is not None  # check of the configuration
        assert tokenizer is not None
        return named(kind.new_vocabulary)(model, read_given(options.resolved_folder), tokenizer, special)
    if kind.is_causal:  # a BERT keeps its own: its embedding knows the padding
        for name, number in _special_ids(kind, special).items():
            setattr(model.config, name, number)
    if special.size > model.config.vocab_size:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.resize_token_embeddings(special.size, mean_resizing=False)
    return model


def _loaded(kind: Kind, folder: Path, dropout: float | None) -> PreTrainedModel:
    """The model in a folder; with ``dropout`` in place of its own, where that is not None."""
    _, values = read_config(folder)
    network = network_of(kind, folder, values)
    if dropout is None:
        return load_folder(network, folder)
    if not kind.is_family:
        return load_folder(network, folder, dict.fromkeys(kind.dropout, dropout))
    return load_folder(network, folder, dict.fromkeys(_random_options(network, values), dropout))


def _random_options(network: type[PreTrainedModel], values: Mapping[str, Any]) -> list[str]:
    """What a family's config calls its probabilities of dropout, and the noise of what chooses experts."""
    assert network.config_class is not None
    defaults = network.config_class().to_dict()
    found = {name: value for name, value in {**defaults, **values}.items() if "drop" in name or "jitter" in name}
    return [name for name, value in found.items() if isinstance(value, int | float) and not isinstance(value, bool)]


def load_model(folder: Path) -> PreTrainedModel:
    """The model in a local folder, of any kind.

    Raises:
        DataError: as `tacit.config.shape.read_config` and `tacit.models.given.load_folder`.
    """
    return _loaded(kind_named(read_config(folder)[0]), folder, None)


def save_model(model: PreTrainedModel, folder: Path) -> None:
    """Write config.json and model.safetensors, as transformers reads them."""
    logging.disable_progress_bar()
    model.save_pretrained(folder)

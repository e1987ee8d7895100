"""The class of the network of a kind: its own, or of a family the one that transformers has for a folder's ``model_type``.

Only classes that transformers itself brings are found; code in a folder is never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, PreTrainedModel

from tacit.config.base import named
from tacit.config.kinds import FAMILIES, Kind, is_routed, kind_of_type
from tacit.errors import DataError

__all__ = ["is_routed_model", "kind_of_network", "network_of", "reads_padding"]


_READ_PADDING = frozenset({"convbert", "fnet"})
"""ConvBERT's convolutions and FNet's Fourier transforms go over padding."""


def network_of(kind: Kind, folder: Path, values: Mapping[str, Any]) -> type[PreTrainedModel]:
    """The class that loads a folder.

    Args:
        kind: of the folder's model.
        values: its config.json.

    Raises:
        DataError: transformers has none.
    """
    if not kind.is_family:
        return named(kind.network)
    model_type = values.get("model_type")
    mapping = _mapping(kind)
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise DataError(
            f"{folder} holds a model of type {model_type!r}, which this transformers does not know, and code in a folder is never "
            "run; give a model of a type that transformers has"
        )
    if CONFIG_MAPPING[model_type] not in mapping:
        asked = "next" if kind.is_causal else "masked"
        raise DataError(
            f"{folder} holds a model of type {model_type!r}, which transformers never asks for {asked} tokens"
        )
    return mapping[CONFIG_MAPPING[model_type]]


def kind_of_network(network: type[PreTrainedModel], model_type: str) -> Kind | None:
    """The row, or the family, whose network this is; None where there is neither."""
    own = kind_of_type(model_type)
    if own is not None:
        return own if issubclass(network, named(own.network)) else None
    if model_type not in CONFIG_MAPPING:
        return None
    config_class = CONFIG_MAPPING[model_type]
    for kind in FAMILIES.values():
        mapping = _mapping(kind)
        if config_class in mapping and issubclass(network, mapping[config_class]):
            return kind
    return None


def reads_padding(model: PreTrainedModel) -> bool:
    """Whether a row's result hangs on how far it is padded, mask or not: its rows are always as wide as the longest."""
    return model.config.model_type in _READ_PADDING


def is_routed_model(model: PreTrainedModel) -> bool:
    """Whether a model is a mixture of experts (`tacit.config.kinds.is_routed`)."""
    return is_routed(model.config.to_dict())


def _mapping(kind: Kind) -> Any:
    return MODEL_FOR_CAUSAL_LM_MAPPING if kind.is_causal else MODEL_FOR_MASKED_LM_MAPPING

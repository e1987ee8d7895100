"""Reading many prefixes under a causal language model, token by token: what `tacit.audit.trie` asks of a model.

A scorer carries what the model remembers of a prefix, so that one more token costs one position and not the whole prefix again.

Legend: M prefixes at one time, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from transformers import DynamicCache

__all__ = ["SCORERS", "CacheScorer", "PrefixScorer", "Read", "Scorer", "StateScorer", "scorer_of"]

S = TypeVar("S")


@dataclass(frozen=True)
class Read(Generic[S]):
    """What a model says after M prefixes of equal length.

    Args:
        logits_MV: about the next token.
        state: whatever the scorer needs to read one more token.
        row_bytes: memory that one such prefix takes while it is read.
    """

    logits_MV: Tensor
    state: S
    row_bytes: int


class Scorer(Protocol[S]):
    """A causal model that reads many prefixes, token by token. Rows and tokens are int64 on the CPU."""

    def begin(self, ids: Sequence[int]) -> Read[S]:
        """Read one sequence."""
        ...

    def extend(self, state: S, rows_M: Tensor, tokens_M: Tensor) -> Read[S]:
        """Read token m after the prefix in row ``rows_M[m]`` of the state."""
        ...


@dataclass(frozen=True)
class PrefixScorer:
    """Reads whole prefixes again and again: any ``model(input_ids=..., attention_mask=...).logits``, and the slowest."""

    model: nn.Module

    def begin(self, ids: Sequence[int]) -> Read[Tensor]:
        return self._read(torch.tensor([list(ids)]))

    def extend(self, state: Tensor, rows_M: Tensor, tokens_M: Tensor) -> Read[Tensor]:
        return self._read(torch.cat([state[rows_M], tokens_M[:, None]], dim=1))

    def _read(self, ids_MT: Tensor) -> Read[Tensor]:
        on_device = ids_MT.to(_device(self.model))
        logits_MTV = self.model(input_ids=on_device, attention_mask=torch.ones_like(on_device)).logits
        # A copy: a view would keep the logits of all positions.
        return Read(logits_MTV[:, -1].clone(), ids_MT, _row_bytes(logits_MTV))


@dataclass(frozen=True)
class StateScorer:
    """Carries a recurrent state, as `tacit.models.lstm.LstmForCausalLM` does.

    The model takes ``state=`` (None at first) and returns it with the logits: a tuple of tensors with rows in dimension 1.
    """

    model: nn.Module

    def begin(self, ids: Sequence[int]) -> Read[tuple[Tensor, ...]]:
        return self._read(torch.tensor([list(ids)]), None)

    def extend(self, state: tuple[Tensor, ...], rows_M: Tensor, tokens_M: Tensor) -> Read[tuple[Tensor, ...]]:
        rows = rows_M.to(_device(self.model))
        return self._read(tokens_M[:, None], tuple(part.index_select(1, rows) for part in state))

    def _read(self, ids_MT: Tensor, state: tuple[Tensor, ...] | None) -> Read[tuple[Tensor, ...]]:
        output = self.model(input_ids=ids_MT.to(_device(self.model)), state=state)
        logits_MV = output.logits[:, -1]
        return Read(
            logits_MV, output.state, max(_row_bytes(logits_MV), sum(map(_row_bytes, output.state)) // len(ids_MT))
        )


@dataclass(frozen=True)
class CacheScorer:
    """Carries keys and values, for transformers' decoders that fill a ``DynamicCache``, such as GPT-2."""

    model: nn.Module

    def begin(self, ids: Sequence[int]) -> Read[DynamicCache]:
        return self._read(torch.tensor([list(ids)]), DynamicCache())

    def extend(self, state: DynamicCache, rows_M: Tensor, tokens_M: Tensor) -> Read[DynamicCache]:
        rows = rows_M.to(_device(self.model))
        cache = DynamicCache()
        for number, (keys, values) in enumerate(_keys_and_values(state)):
            cache.update(keys.index_select(0, rows), values.index_select(0, rows), number)
        return self._read(tokens_M[:, None], cache)

    def _read(self, ids_MT: Tensor, cache: DynamicCache) -> Read[DynamicCache]:
        ids_MT = ids_MT.to(_device(self.model))
        ones_MT = ids_MT.new_ones(len(ids_MT), cache.get_seq_length() + ids_MT.shape[1])
        output = self.model(input_ids=ids_MT, attention_mask=ones_MT, past_key_values=cache, use_cache=True)
        logits_MV = output.logits[:, -1]
        kept = sum(_row_bytes(keys) + _row_bytes(values) for keys, values in _keys_and_values(cache))
        return Read(logits_MV, cache, max(_row_bytes(logits_MV), kept))


SCORERS: dict[str, Callable[[nn.Module], Scorer[Any]]] = {"tacit-lstm": StateScorer, "gpt2": CacheScorer}
"""Scorers faster than `PrefixScorer`, by the ``model_type`` of a model's config."""


def scorer_of(model: Any) -> Scorer[Any]:
    """The fastest scorer for a transformers model."""
    return SCORERS.get(model.config.model_type, PrefixScorer)(model)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _row_bytes(tensor: Tensor) -> int:
    return tensor.nbytes // len(tensor)


def _keys_and_values(cache: DynamicCache) -> list[tuple[Tensor, Tensor]]:
    layers: list[Any] = cache.layers
    return [(layer.keys, layer.values) for layer in layers]

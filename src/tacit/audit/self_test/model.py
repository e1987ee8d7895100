"""The model of the self-test: a table of words that predicts each next word by itself, embeddings and head tied.

Canary i is word i again and again. Its gradient is nearly all in row i of the table, so the canaries of one training do not meet;
and its two parts, of the embedding and of the head, point the same way, which is the worst case for a clipping that forgets their
cross term. The rows of the table have norm 1 at first, so a canary's gradient has norm 2 (but for the other words' small shares).

Shapes: B rows, T positions, V words, D width, m canaries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel

from tacit.models.causal import weighted_row_losses
from tacit.randomness import KeyedRandomness
from tacit.training.objectives import CausalObjective
from tacit.training.sequences import SequenceStream

__all__ = ["GRADIENT_NORM", "NextWord", "WordTable", "canary_row", "derivatives", "stream_of", "word_table"]

GRADIENT_NORM = 2.0
"""Of a canary, before clipping."""

_WIDTH = 16


class WordTableConfig(PreTrainedConfig):
    """The configuration of a `WordTable`, which is never saved."""

    model_type = "tacit-self-test"


class WordTable(PreTrainedModel):
    """An embedding table of so many words, and a head without bias: one parameter, unless ``tied`` is False."""

    config_class = WordTableConfig

    def __init__(self, words: int, tied: bool = True) -> None:
        super().__init__(WordTableConfig())
        self.table = nn.Embedding(words, _WIDTH)
        self.head = nn.Linear(_WIDTH, words, bias=False)
        if tied:
            self.head.weight = self.table.weight


class NextWord(CausalObjective):
    """Every word but the first from the one before it, through the engine's fused head."""

    def losses(self, model: PreTrainedModel, arrays: Sequence[Tensor], weights_BN: Tensor) -> Tensor:
        assert isinstance(model, WordTable)
        ids_BT = arrays[0]
        return weighted_row_losses(model.head, model.table(ids_BT), ids_BT, weights_BN)


def word_table(words: int, streams: KeyedRandomness) -> WordTable:
    """A model of so many words (a multiple of 4 at least), its rows of norm 1 in random directions."""
    model = WordTable(words)
    rows_VD = streams.generator("weights").standard_normal((words, _WIDTH), dtype=np.float32)
    with torch.no_grad():
        model.table.weight.copy_(F.normalize(torch.from_numpy(rows_VD)))
    return model


def canary_row(word: int, length: int = 3) -> list[int]:
    """A word again and again; rows of fewer than three words have no loss."""
    return [word] * length


def stream_of(rows: Sequence[Sequence[int]], numbers: Sequence[int], length: int) -> SequenceStream:
    """Units of one row each; a unit's key is its public number."""
    ids_ST = np.zeros((len(rows), length), dtype=np.int32)
    for place, row in enumerate(rows):
        ids_ST[place, : len(row)] = row
    lengths_S = np.array([len(row) for row in rows], dtype=np.int32)
    return SequenceStream(ids_ST, lengths_S, np.arange(len(rows) + 1), tuple(str(number) for number in numbers))


def derivatives(model: WordTable, words: np.ndarray, direction_VD: Tensor) -> np.ndarray:
    """How the loss of each canary changes along a direction of the weights (m,): the product of its gradient with it, not clipped.

    By forward differentiation of a plain formula: no code of the engine is in it.
    """
    ids_m = torch.from_numpy(words.astype(np.int64))

    def losses(table_VD: Tensor) -> Tensor:
        return F.cross_entropy(table_VD[ids_m] @ table_VD.T, ids_m, reduction="none")

    found = torch.func.jvp(losses, (model.table.weight.detach(),), (direction_VD,))
    return found[1].double().numpy()

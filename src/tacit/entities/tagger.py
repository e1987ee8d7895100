"""A model with a BIO head: from a local folder, its training objective, and its tags of documents.

Shapes: B rows, T positions, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tacit.config.base import named
from tacit.config.shape import tagger_shape
from tacit.corpus.annotated import AnnotatedDocument
from tacit.engine.cross_entropy import cross_entropy
from tacit.engine.total import Kept, read_rows
from tacit.entities.rows import RowCutter, split_labels
from tacit.models.given import load_folder
from tacit.randomness import KeyedRandomness
from tacit.training.objectives import Objective, Targets

__all__ = ["EntityObjective", "RowLabels", "load_tagger", "predict_tags", "row_labels"]

_ROWS_AT_ONCE = 32


def load_tagger(
    folder: Path, tags: Sequence[str], seed: int, dropout: float, from_scratch: bool = False
) -> PreTrainedModel:
    """The model of a local folder with a new linear head over its last layer, whose weights are a function of the seed.

    Args:
        folder: a model in the Hugging Face layout, of a kind that tags words; a head that it has is left out.
        tags: the head's labels.
        dropout: in training.
        from_scratch: take the folder's shape alone, and new weights too: the control that says what pre-training gives.

    Raises:
        DataError: as `tacit.config.shape.tagger_shape` and `tacit.models.given.load_folder`.
    """
    kind = tagger_shape(folder).kind
    assert kind.tagger is not None  # tagger_shape
    network = named(kind.tagger.network)
    changes: dict[str, Any] = {
        **dict.fromkeys(kind.dropout, dropout),
        "classifier_dropout": None,  # the head's own: then it is that of the layers
        "id2label": dict(enumerate(tags)),
        "label2id": {tag: label for label, tag in enumerate(tags)},
    }
    model = load_folder(network, folder, changes, new_head=kind.tagger.head)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if from_scratch:
            model = network(model.config)
        head = model.get_submodule(kind.tagger.head.removesuffix("."))
        assert isinstance(head, torch.nn.Linear)
        torch.nn.init.normal_(head.weight, std=model.config.initializer_range)
        torch.nn.init.zeros_(head.bias)
    return model


@dataclass(frozen=True)
class EntityObjective(Objective):
    """The tag of every judged word, at its first piece.

    Args:
        size: number of token ids: rows carry labels above it (rows.py).
    """

    size: int
    draws = 0
    may_be_cut = True

    @property
    def tells_padding(self) -> bool:
        """Yes: a tagger sees both sides of a word."""
        return True

    def targets(self, ids_BT: np.ndarray, lengths_B: np.ndarray, uniforms_BnT: np.ndarray) -> Targets:
        """N is T."""
        pieces_BT, labels_BT = split_labels(ids_BT, self.size)
        attention_BT = np.arange(ids_BT.shape[1]) < lengths_B[:, None]
        real_BT = attention_BT & (labels_BT >= 0)
        return Targets((pieces_BT, attention_BT, np.where(real_BT, labels_BT, -100)), real_BT)

    def all_counted(self, targets: Targets) -> Targets:
        pieces_BT, attention_BT, labels_BT = targets.arrays
        return Targets((pieces_BT, attention_BT, np.maximum(labels_BT, 0)), np.ones_like(targets.real_BN))

    def losses(self, model: PreTrainedModel, arrays: Sequence[Tensor], weights_BN: Tensor) -> Tensor:
        """Loss of each row (B,): the sum over its judged words of weight times cross-entropy in nats."""
        ids_BT, attention_BT, labels_BT = arrays
        logits_BTL = model(input_ids=ids_BT, attention_mask=attention_BT).logits
        return (cross_entropy(logits_BTL, labels_BT) * weights_BN).sum(dim=1)


RowLabels = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From pieces (B, T) and lengths (B,) to a label at each position (B, T)."""


def row_labels(model: PreTrainedModel) -> RowLabels:
    """The likeliest label at every position, without dropout; the first one in a row at which the model raises."""

    def labels_of(pieces_BT: np.ndarray, lengths_B: np.ndarray) -> np.ndarray:
        failed_T = np.zeros(pieces_BT.shape[1], dtype=np.int64)
        return read_rows(
            kept, np.arange(len(pieces_BT)), lambda rows: labels_of_rows(pieces_BT[rows], lengths_B[rows]), failed_T
        )

    def labels_of_rows(pieces_BT: np.ndarray, lengths_B: np.ndarray) -> np.ndarray:
        attention_BT = np.arange(pieces_BT.shape[1]) < lengths_B[:, None]
        arrays = (pieces_BT.astype(np.int64), attention_BT.astype(np.int64))
        ids_BT, seen_BT = (torch.from_numpy(array).to(model.device) for array in arrays)
        with torch.no_grad():
            return model(input_ids=ids_BT, attention_mask=seen_BT).logits.argmax(dim=-1).cpu().numpy()

    model.eval()
    kept = Kept(model)
    return labels_of


def predict_tags(
    labels_of: RowLabels, cutter: RowCutter, documents: Sequence[AnnotatedDocument]
) -> list[list[list[str]]]:
    """The tags of each document's sentences, word for word. The true tags are not looked at."""
    stream = cutter.rows(documents, KeyedRandomness(bytes(32)))  # the stream's keys are not used: nothing is drawn here
    order = np.argsort(stream.lengths_S, kind="stable")
    found: dict[int, list[str]] = {}
    for start in range(0, len(order), _ROWS_AT_ONCE):
        chosen = order[start : start + _ROWS_AT_ONCE]
        lengths_B = stream.lengths_S[chosen]
        pieces_BT, judged_BT = split_labels(stream.ids_ST[chosen, : lengths_B.max()], cutter.special.size)
        labels_BT = labels_of(pieces_BT, lengths_B)
        for place, row in enumerate(chosen):
            found[int(row)] = [cutter.tags[label] for label in labels_BT[place, judged_BT[place] >= 0]]
    predicted: list[list[list[str]]] = []
    for number, document in enumerate(documents):
        tags = [tag for row in stream.rows_of(number) for tag in found[int(row)]]
        if len(tags) != len(document.tags):
            raise ValueError("a word was judged not at all, or twice: the windows are wrong")
        predicted.append(_by_sentence(tags, document))
    return predicted


def _by_sentence(tags: list[str], document: AnnotatedDocument) -> list[list[str]]:
    rest = iter(tags)
    return [[next(rest) for _ in sentence.tokens] for sentence in document.sentences]

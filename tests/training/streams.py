"""Token rows of made-up units, and a BERT small enough for a plain autograd loop in float64."""

from __future__ import annotations

import numpy as np
import torch
from transformers import BertForMaskedLM

from tacit.config import ModelOptions
from tacit.training.masking import Masking
from tacit.training.objectives import MaskedObjective
from tacit.training.sequences import SequenceStream

from ..networks import build_bert

torch.set_num_threads(1)  # models this small only lose by a second thread

LENGTH = 12
VOCABULARY = 60
SPECIAL = 5
MASKING = Masking(probability=0.3, mask_id=4, special_ids=range(SPECIAL), vocabulary_size=VOCABULARY)
OBJECTIVE = MaskedObjective(MASKING)


def row(tokens: list[int], length: int = LENGTH) -> tuple[np.ndarray, int]:
    """``[CLS] tokens [SEP]`` and padding, and its length."""
    ids = np.zeros(length, dtype=np.int32)
    ids[: len(tokens) + 2] = [2, *tokens, 3]
    return ids, len(tokens) + 2


def stream_of(units: dict[str, list[list[int]]], length: int = LENGTH) -> SequenceStream:
    """A stream from the tokens of every unit's rows."""
    rows = [row(tokens, length) for texts in units.values() for tokens in texts]
    counts = [len(texts) for texts in units.values()]
    ids_ST = np.stack([ids for ids, _ in rows]) if rows else np.zeros((0, length), dtype=np.int32)
    lengths_S = np.array([size for _, size in rows], dtype=np.int32)
    return SequenceStream(ids_ST, lengths_S, np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), tuple(units))


def random_units(number: int, seed: int = 0) -> dict[str, list[list[int]]]:
    """Units of 1 to 4 rows; one has no row, one the same row six times, one only tokens that are never masked."""
    generator = np.random.default_rng(seed)

    def tokens() -> list[int]:
        return generator.integers(SPECIAL, VOCABULARY, size=generator.integers(1, LENGTH - 1)).tolist()

    units = {f"unit {place}": [tokens() for _ in range(generator.integers(1, 5))] for place in range(number)}
    units["without rows"] = []
    units["repeated"] = [[7, 7, 9, 30, 31, 32, 33, 34]] * 6
    units["unmaskable"] = [[1, 1, 1]]
    return units


def tiny_bert(vocabulary: int = VOCABULARY, length: int = LENGTH, width: int = 8, seed: int = 1) -> BertForMaskedLM:
    """One layer, in float64."""
    options = ModelOptions(layers=1, width=width, heads=2, intermediate=2 * width, length=length)
    model = build_bert(options, vocabulary, 0, seed)
    torch.nn.Module.double(model)
    return model

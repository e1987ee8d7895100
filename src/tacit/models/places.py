"""How many rows may stand beside each other on a CPU without that a row's place decides how it is rounded.

Who stands beside a unit another unit may decide, and so its place among the rows of a micro-batch. In two ways a place shows in last
bits (measured with torch 2.13 and AVX-512; the second one in 3,300 of 9,400 shapes of SiLU and tanh-GELU):

- *Products of few rows, or few features.* The library takes other kernels for the last three rows or fewer, of all or of a thread's
  share; and where a weight has fewer than 12 features on one side and no multiple of 4 on the other.
- *Functions of single numbers.* A tensor is gone through in vectors, and what is left over at its end, or at the end of a thread's
  share, by another program for one number at a time, which rounds exp otherwise.

One last bit is nothing for a model that somebody trained. A model that was made for it, with two weights of 2^23 that cancel but for
that bit, computes its last row differently: one more unit moved a sum by 119 clip norms. So rows stand together only in shapes
without such an end; else one unit is computed at a time, and always stands in the same place.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from transformers import PreTrainedModel

from tacit.models.networks import is_routed_model

__all__ = ["together"]

_IN_A_VECTOR = 64
"""Numbers that a loop takes at once, or a multiple of that: two registers of 32 bfloat16."""

_LEAST_ROWS = 8
"""Rows of a product in a thread's share; of four and more each was the same to the bit."""

_ROWS_MULTIPLE = 4
"""Products with a few features, such as of an adapter of rank 1, differ where rows are odd in number; of even ones none did."""

_FEW = 12
"""Features from which on rows were alike whatever the other side's number (2,880 shapes of torch's linear, one and two threads)."""

_GRAIN = 32768
"""at::internal::GRAIN_SIZE: numbers in a thread's share at least (torch's TensorIterator.h)."""


def together(model: PreTrainedModel, most: int, rows_per_unit: int, positions: Iterable[int]) -> int:
    """How many units may be computed at once: the largest number up to ``most`` for which no place differs, else 1.

    Args:
        model: on the device that it computes on; a GPU has one program for all numbers.
        most: units.
        rows_per_unit: rows of each.
        positions: all widths of rows, and all numbers of places at which a head is asked.
    """
    if is_routed_model(model):  # it multiplies the positions of several rows together
        return 1
    if model.device.type != "cpu":
        return most
    if _has_odd_products(model):
        return 1
    features, threads = _features(model), torch.get_num_threads()
    wanted = sorted({*positions, 1} if model.config.model_type == "tacit-lstm" else {*positions})
    for units in range(most, 1, -1):
        rows = [units * rows_per_unit * width for width in wanted]
        if all(_is_even(count, features, threads) for count in rows):
            return units
    return 1


def _is_even(rows: int, features: set[int], threads: int) -> bool:
    """Whether a tensor of so many rows has no end that is computed in another way, and no thread's share of it has one."""
    if rows < _LEAST_ROWS * threads or rows % _ROWS_MULTIPLE:
        return False
    return all(rows * size % (_IN_A_VECTOR * _shares(rows * size, threads)) == 0 for size in features)


def _has_odd_products(model: PreTrainedModel) -> bool:
    """Whether a weight has a shape whose products, forward or backward, hang on where their rows begin."""
    layers = [module for module in model.modules() if not isinstance(module, nn.Embedding)]  # a table is looked up
    shapes = [sorted(own.shape) for layer in layers for own in layer.parameters(recurse=False) if own.dim() == 2]
    return any((few < _FEW and many % 4) or (many < _FEW and few % 4) for few, many in shapes)


def _shares(numbers: int, threads: int) -> int:
    """Into how many shares a loop over so many numbers is cut (at::parallel_for)."""
    return 1 if numbers < _GRAIN else min(threads, -(-numbers // _GRAIN))


def _features(model: PreTrainedModel) -> set[int]:
    """Sizes of the last dimension of what the model computes: those of its weights, without the rows of tables."""
    tables = {module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)}
    return {size for parameter in model.parameters() for size in parameter.shape if size > 1} - tables

"""How many rows may stand beside each other without that a row's place decides how it is rounded.

Other units decide where a unit stands among the rows of a micro-batch. A place shows in last bits in four ways on a CPU (with torch
2.13 and AVX-512; the last one in 3,300 of 9,400 shapes of SiLU and tanh-GELU):

- *Products of few rows, or few features.* The library takes other kernels for the last three rows or fewer, of all or of a thread's
  share; and where a product has fewer than 12 columns: ``x @ w.T`` with a number of terms that is no multiple of 4, ``g @ w`` with 5,
  6, 7, 9, 10 or 11 columns, whatever the terms (`tests/attacks_on_certificates/test_places_in_a_micro_batch.py` looks for others).
- *Products of a unit's own rows.* Where these have no multiple of 4 features, they begin at other places in memory for each unit.
- *Attention.* Each thread has a buffer of its own, and a row's scores another place in memory; where widths or the size of a head are
  no multiple of 8, buffers begin otherwise for the units of the second thread, and scores of fewer than 12 positions for every unit.
- *Functions of single numbers.* A tensor is gone through in vectors, and what is left over at its end, or at the end of a thread's
  share, by another program for one number at a time, which rounds some functions otherwise: sigmoid, SiLU, GELU by tanh, softplus;
  not exp, tanh, erf, log, softmax. A loop has a share for each 32,768 numbers, but GELU's one for each thread, from 16,384 on.

One last bit is nothing for a model that somebody trained. A model that was made for it, with two weights of 2^23 that cancel but for
that bit, computes its last row differently: one more unit moved a sum by 119 clip norms. So rows stand together only in shapes
without such an end; else one unit is computed at a time, and always stands in the same place.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tacit.models.networks import is_routed_model

__all__ = ["is_measured", "together"]

_IN_A_VECTOR = 64
"""Numbers that a loop takes at once, or a multiple of that: two registers of 32 bfloat16."""

_LEAST_ROWS = 8
"""Rows of a product in a thread's share; of four and more each was the same to the bit."""

_ROWS_MULTIPLE = 4
"""Products with a few features, such as of an adapter of rank 1, differ where rows are odd in number; of even ones none did."""

_FEW = 12
"""Columns from which on rows were alike whatever the number of terms (1,104 shapes of each product, one and two threads)."""

_ALIGNED = 8
"""Of widths and heads, so that the buffers of attention's threads begin alike: 16 numbers are 64 bytes, and 2 x 8 are in each."""

_SHORT = 128
"""Numbers of a row that a GPU adds up alike wherever it begins; longer ones from the first place of memory that is aligned."""

_LSTM = "tacit-lstm"
_WITHOUT_ATTENTION = (_LSTM, "tacit-self-test")

_MEASURED_TYPES = """
tacit-lstm tacit-self-test bert gpt2 llama
mistral qwen2 qwen3 gemma phi phi3 olmo olmo2 stablelm starcoder2 gpt_neox cohere glm helium nemotron ernie4_5 hunyuan_v1_dense
exaone4 seed_oss arcee smollm3 modernbert-decoder gemma2 glm4 granite ministral gemma3_text olmo3 cohere2 falcon bloom opt
albert electra modernbert deberta-v2 eurobert nomic_bert convbert roformer mpnet ernie roberta xlm-roberta camembert distilbert
"""
_MEASURED = frozenset(_MEASURED_TYPES.split())
"""Types of which no row changes a bit of another one, however odd its ids and large its numbers (`test_company_of_every_id.py`)."""

_GRAIN = 32768
"""at::internal::GRAIN_SIZE: numbers in a thread's share at least (torch's TensorIterator.h)."""

_GELU_GRAIN = 16384
"""Of more numbers than these GELU and its backward give each thread a share (torch's Activation.cpp)."""


def together(
    model: PreTrainedModel,
    most: int,
    rows_per_unit: int,
    widths: Iterable[int],
    asked: Iterable[int] = (),
    blank: int = 0,
) -> int:
    """How many units may be computed at once: the largest number up to ``most`` for which no place differs, else 1.

    Args:
        model: on the device that it computes on. A GPU has one program for all numbers (an H100: tests/engine/test_cuda.py) but for
            long rows that begin at odd places. A type that was not measured, and one with weights that are no matrices
            (convolutions, experts), is computed one unit at a time on each.
        most: units.
        rows_per_unit: rows of each.
        widths: all widths of rows.
        asked: all numbers of places of a row at which a head is asked.
        blank: blank units that are computed beside them, where they are more than one.
    """
    if is_routed_model(model):  # it multiplies the positions of several rows together
        return 1
    if not is_measured(model) or any(own.dim() > 2 for own in model.parameters()):
        return 1
    widths, threads = set(widths), torch.get_num_threads()
    if model.device.type != "cpu":
        rows = _features(model) | (set() if model.config.model_type in _WITHOUT_ATTENTION else widths)
        return most if all(size <= _SHORT or size % _ALIGNED == 0 for size in rows) else 1
    if _has_odd_products(model) or not _attends_evenly(model, widths, threads):
        return 1
    features = _features(model)
    wanted = sorted(widths | set(asked) | ({1} if model.config.model_type == _LSTM else set()))
    for units in range(most, 1, -1):
        rows = [(units + blank) * rows_per_unit * width for width in wanted]
        if all(_is_even(count, features, threads) for count in rows):
            return units
    return 1


def is_measured(model: PreTrainedModel) -> bool:
    """Whether a model's type is one of which rows were measured to be independent to the bit, and whose code raises at none."""
    return model.config.model_type in _MEASURED


def _is_even(rows: int, features: set[int], threads: int) -> bool:
    """Whether a tensor of so many rows has no end that is computed in another way, and no thread's share of it has one."""
    if rows < _LEAST_ROWS * threads or rows % _ROWS_MULTIPLE:
        return False
    shares = [(size, share) for size in features for share in _shares(rows * size, threads)]
    # a part of each row is gone through row by row: none is cut in two
    return all(rows % share == 0 and rows * size % (_IN_A_VECTOR * share) == 0 for size, share in shares)


def _attends_evenly(model: PreTrainedModel, widths: set[int], threads: int) -> bool:
    """Whether attention rounds every unit alike, wherever it lies in memory and whichever thread computes it."""
    if model.config.model_type in _WITHOUT_ATTENTION:
        return True
    if any(width < _FEW and width % 4 for width in widths):
        return False
    return threads == 1 or all(size % _ALIGNED == 0 for size in widths | _head_sizes(model))


def _head_sizes(model: PreTrainedModel) -> set[int]:
    """Features of a head of its attention; 1 where its configuration does not say it."""
    values, names = model.config.to_dict(), model.config.attribute_map
    stated = {size for name, size in values.items() if name.endswith("head_dim") and isinstance(size, int)}
    if stated:
        return stated
    width, heads = (values.get(names.get(name, name)) for name in ("hidden_size", "num_attention_heads"))
    return {width // heads} if isinstance(width, int) and isinstance(heads, int) else {1}


def _has_odd_products(model: PreTrainedModel) -> bool:
    """Whether a weight has a shape whose products, forward or backward, hang on where their rows begin."""
    return any(
        _is_odd_product(module, own.shape)
        for module in model.modules()
        for own in module.parameters(recurse=False)
        if own.dim() >= 2
    )


def _is_odd_product(module: nn.Module, shape: torch.Size) -> bool:
    """Beside the layer's own products those of a unit, whose numbers lie at other places in memory for each unit."""
    if len(shape) > 2:  # convolutions and the like: not measured
        return True
    first, last = shape
    if isinstance(module, nn.Embedding):  # looked up; a unit's rows are multiplied with one another
        return last % 4 != 0
    if isinstance(module, nn.Linear):
        return last % 4 != 0 or _is_odd_transposed(first, last) or _is_odd_plain(last)
    if isinstance(module, Conv1D):
        return first % 4 != 0 or _is_odd_plain(last) or _is_odd_transposed(first, last)
    return any(size % 4 or _is_odd_plain(size) for size in shape)


def _is_odd_transposed(columns: int, terms: int) -> bool:
    """Whether the shape of ``x @ w.T`` is odd: the forward of a linear layer, the backward of a Conv1D."""
    return columns < _FEW and terms % 4 != 0


def _is_odd_plain(columns: int) -> bool:
    """Whether the shape of ``g @ w`` is odd: the backward of a linear layer, the forward of a Conv1D."""
    return columns < _FEW and columns not in (1, 2, 3, 4, 8)


def _shares(numbers: int, threads: int) -> set[int]:
    """Into how many shares loops over so many numbers are cut (at::parallel_for)."""
    usual = 1 if numbers < _GRAIN else min(threads, -(-numbers // _GRAIN))
    return {usual, threads} if numbers > _GELU_GRAIN else {usual}


def _features(model: PreTrainedModel) -> set[int]:
    """Sizes of the last dimension of what the model computes: those of its weights, without rows of tables and words of a head.

    What is computed of logits rounds every number alike.
    """
    head, words = model.get_output_embeddings(), model.config.to_dict().get("vocab_size")
    found: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.LSTM):
            found.add(2 * module.hidden_size)  # two gates have one sigmoid
        is_table = isinstance(module, nn.Embedding) or module is head
        for own in module.parameters(recurse=False):
            sizes = own.shape[1:] if is_table else own.shape
            found |= set() if tuple(own.shape) == (words,) else set(sizes)  # a head's bias
    return found

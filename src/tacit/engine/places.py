"""Whether the place of a row among the others decides how it is rounded: each operation of a model is tried on equal rows.

Other units decide where a unit stands in a micro-batch. Libraries take other programs for some places: for what is left over at the
end of a vector or of a thread's share, for rows that begin at odd places of memory, for products of few columns (what was measured is
in `tacit.models.places`). A last bit may decide a ReLU, and then a gradient changes by its own size (TACIT-52).

So an operation that a step computes is computed once more, in the same shapes and on the same device, of made-up numbers of which all
rows are equal; then the results' rows must be equal to the bit. What is found is a function of shapes, device and library alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from tacit.errors import RefusedError

__all__ = ["PlaceWatch"]

_PRODUCTS = "mm addmm bmm baddbmm convolution convolution_backward"
_NUMBERS = """
sigmoid sigmoid_backward silu silu_backward gelu gelu_backward tanh tanh_backward softplus softplus_backward log_sigmoid_forward
log_sigmoid_backward mish mish_backward hardswish hardswish_backward hardsigmoid elu elu_backward exp expm1 log log1p erf pow rsqrt
sin cos addcmul addcdiv lerp
"""
_ROWS = """
_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data native_layer_norm native_layer_norm_backward
_fused_rms_norm _fused_rms_norm_backward native_group_norm native_group_norm_backward sum mean amax logsumexp linalg_vector_norm
var var_mean cumsum
"""
_ATTENTION = """
_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
"""
_TRIED = frozenset(f"{_PRODUCTS} {_NUMBERS} {_ROWS} {_ATTENTION}".split())
"""What computes each row of its own, and rounds. The rest moves numbers or draws them, or has one right result (sums of two numbers,
products, quotients, roots)."""

_TRIES = {"cpu": 24, "cuda": 4}
"""Of each operation: where a place shows at all, a tenth of its last bits differ, and on a CPU there may be few such places."""

_NUMBERS_IN_ALL = 1 << 22
"""Tries are fewer where one has so many numbers."""

_ALIGNED = 64

_known: dict[Any, bool] = {}
"""Whether all rows were equal, of what this process has tried."""


class PlaceWatch(TorchDispatchMode):
    """A context of a model's forward and backward, in which its operations are tried.

    with PlaceWatch() as watch:
        losses(model, batch).sum().backward()
    watch.refuse(units=64)
    """

    def __init__(self) -> None:
        super().__init__()
        self.differing: list[str] = []
        self._seen: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.removesuffix("_")
        if name in _TRIED:
            self._try(func, name, args, kwargs or {}, result)
        return result

    def refuse(self, units: int) -> None:
        """Raises:
        RefusedError: ``place-in-batch``: some operation rounded equal rows otherwise at other places.
        """
        if self.differing:
            raise RefusedError(
                "place-in-batch",
                f"where a unit stands among {units} decides how it is rounded, and other units decide where it stands: "
                f"{self.differing[0]}. Pad features and lengths to multiples of 8, and take micro-batches of 64 units, or of 1",
            )

    def _try(self, func: Any, name: str, args: Any, kwargs: Any, result: Any) -> None:
        leaves, form = tree_flatten((args, kwargs))
        outputs = [leaf for leaf in tree_flatten(result)[0] if _is_numbers(leaf) and leaf.dim() > 0]
        if not outputs or outputs[0].shape[0] < 2 or not _is_of_rows(func, args, kwargs):
            return
        key = (func, _settings(), tuple(_described(leaf) for leaf in leaves))
        if key in self._seen:
            return
        self._seen.add(key)
        if key not in _known:
            _known[key] = _keeps_rows_equal(func, leaves, form, outputs)
        if not _known[key]:
            shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim())
            self.differing.append(f"{name} of {shapes}")


def _keeps_rows_equal(func: Any, leaves: Sequence[Any], form: Any, outputs: Sequence[Tensor]) -> bool:
    """Whether equal rows have equal results, in the precision that the step computes in."""
    rows, numbers = outputs[0].shape[0], sum(leaf.numel() for leaf in outputs)
    tries = _TRIES.get(outputs[0].device.type, max(_TRIES.values()))
    generator = torch.Generator(outputs[0].device).manual_seed(0)
    for _ in range(max(2, min(tries, _NUMBERS_IN_ALL // numbers))):
        made = [_made_up(leaf, rows, generator) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(made, form)
        found = tree_flatten(func(*args, **kwargs))[0]
        if not all(_are_equal(leaf) for leaf in found if _is_numbers(leaf) and leaf.shape[:1] == (rows,)):
            return False
    return True


def _is_numbers(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


def _is_of_rows(func: Any, args: Sequence[Any], kwargs: Any) -> bool:
    """Whether each row of the result is made of a row of what is given: not where the rows are added up, nor with random numbers."""
    named = {one.name: args[place] for place, one in enumerate(func._schema.arguments) if place < len(args)} | kwargs
    if named.get("dropout_p"):
        return False
    dims = named.get("dim", ())
    if not isinstance(dims, int) and "dim" in {one.name for one in func._schema.arguments} and not dims:
        return False  # all is added up
    first = next((leaf for leaf in args if isinstance(leaf, Tensor)), None)
    over = (dims,) if isinstance(dims, int) else tuple(dims or ())
    return first is None or not any(dim % max(1, first.dim()) == 0 for dim in over)


def _settings() -> tuple[Any, ...]:
    """What chooses a program beside shapes."""
    backends: Any = torch.backends
    return torch.get_num_threads(), backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision


def _described(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return repr(leaf)
    return leaf.shape, leaf.stride(), leaf.dtype, str(leaf.device), leaf.storage_offset() % _ALIGNED


def _made_up(like: Tensor, rows: int, generator: torch.Generator) -> Tensor:
    """Laid out like a tensor; where it has so many rows, all are equal. Whole numbers are zero, and what is true or false is true."""
    if not like.is_floating_point():
        return torch.ones_like(like) if like.dtype == torch.bool else torch.zeros_like(like)
    of_rows = like.dim() > 0 and like.shape[0] == rows
    shape = (1, *like.shape[1:]) if of_rows else like.shape
    values = torch.randn(shape, generator=generator, device=like.device, dtype=torch.float32).to(like.dtype)
    values = values.expand(like.shape)
    if any(stride == 0 and size > 1 for size, stride in zip(like.shape, like.stride(), strict=True)):
        return values.contiguous()
    numbers = sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True)) + 1
    offset = like.storage_offset() % _ALIGNED
    room = torch.zeros(max(0, numbers) + offset, dtype=like.dtype, device=like.device)
    return room.as_strided(like.shape, like.stride(), offset).copy_(values)


def _are_equal(found: Tensor) -> bool:
    first = found[:1]
    return bool(((found == first) | (found.isnan() & first.isnan())).all())

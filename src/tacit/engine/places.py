"""Whether the place of a row among the others decides how it is rounded: each operation of a model is tried on equal rows.

Other units decide where a unit stands in a micro-batch. Libraries take other programs for some places: for what is left over at the
end of a vector or of a thread's share, for rows that begin at odd places of memory, for products of few columns (what was measured is
in `tacit.models.places`). A last bit may decide a ReLU, and then a gradient changes by its own size (TACIT-52).

So an operation that a step computes is computed once more, in the same shapes and on the same device, of made-up numbers that are
equal in all units; then the results must be equal to the bit. What is found is a function of shapes, device and library alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from tacit.errors import RefusedError

__all__ = ["PlaceWatch", "at_aligned_places", "engine_at_work", "rows_along"]

_PRODUCTS = "mm addmm bmm baddbmm mv addmv convolution convolution_backward"
_NUMBERS = """
sigmoid sigmoid_backward silu silu_backward gelu gelu_backward tanh tanh_backward softplus softplus_backward log_sigmoid_forward
log_sigmoid_backward mish mish_backward hardswish hardswish_backward hardsigmoid hardsigmoid_backward elu elu_backward glu
glu_backward exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 erf erfc erfinv pow rsqrt sin cos tan asin acos atan atan2 sinh
cosh asinh acosh atanh lgamma digamma addcmul addcdiv lerp
"""
_ROWS = """
_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data _safe_softmax native_layer_norm native_layer_norm_backward
_fused_rms_norm _fused_rms_norm_backward native_group_norm native_group_norm_backward sum mean prod logsumexp linalg_vector_norm norm
var var_mean std std_mean _cdist_forward _trilinear _fft_r2c _fft_c2r _fft_c2c
"""
_ATTENTION = """
_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
"""
_TRIED = frozenset(f"{_PRODUCTS} {_NUMBERS} {_ROWS} {_ATTENTION}".split())
"""What computes each unit of its own, and rounds. Most of the rest moves numbers, draws them, or has one right result (sums and
products of two numbers, quotients, roots)."""

_OF_NUMBERS = frozenset(_NUMBERS.split())

_BY_ALPHA = frozenset(("add", "sub", "rsub"))
"""Sums of two numbers, of which one is multiplied before: two roundings or one."""

_OF_COMPLEX = frozenset(["mul", "div", "reciprocal", "abs", "angle", "sgn", "sqrt", "polar"])
"""Of complex numbers these are several roundings."""

_OF_MATRICES = frozenset(("mm", "addmm", "bmm", "baddbmm"))

_ONE_DIMENSION = frozenset(_ATTENTION.split())
"""Along a unit's positions equal rows have different results, and should."""

_TRIES = {"cpu": 24, "cuda": 4}
"""Of each operation: where a place shows at all, a tenth of its last bits differ, and on a CPU there may be few such places."""

_NUMBERS_IN_ALL = 1 << 20
"""Tries are fewer where one has so many numbers: then a place that shows has many, but for those that `_telling` is for."""

_FEWEST = 3

_TOLD_BY = 4096
"""Numbers among which `_telling` looks: about a tenth of them tell."""

_TELLING_TRIES = 4

_ALIGNED = 64
"""Bytes: the longest vector."""

_along: ContextVar[int | None] = ContextVar("rows along", default=None)

_in_engine: ContextVar[bool] = ContextVar("in the engine", default=False)

_known: dict[Any, bool] = {}
"""Whether equal units had equal results, of what this process has tried."""


class PlaceWatch(TorchDispatchMode):
    """A context of a model's forward and backward, in which its operations are tried.

        with PlaceWatch(rows=64) as watch:
            losses(model, batch).sum().backward()
        watch.refuse(units=64)

    What is not seen: operations beside those that are listed here, those of a library's own (a frozen LSTM on a CPU), and what an
    operation does with tensors at other places of memory than in this context.

    Args:
        rows: of the batch. A dimension of so many numbers, or a multiple of them, is taken for one of units.
        units: of the batch, where each has several rows. A first dimension of a multiple of them is one of units, too.
        with_engine: whether what the engine computes beside the model is looked at.
    """

    supports_higher_order_operators = True

    def __init__(self, rows: int, units: int | None = None, *, with_engine: bool = True) -> None:
        super().__init__()
        self.differing: list[str] = []
        self._rows = rows
        self._units = rows if units is None else units
        self._with_engine = with_engine
        self._seen: set[Any] = set()
        self._on_gpu = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if isinstance(func, OpOverload) and (self._with_engine or not _in_engine.get()):
            name = func.overloadpacket.__name__.removesuffix("_")
            by_alpha = name in _BY_ALPHA and kwargs.get("alpha", 1) != 1
            of_complex = name in _OF_COMPLEX and _has_complex((args, kwargs, result))
            if name in _TRIED or by_alpha or of_complex:
                self._try(func, name, args, kwargs, result, name in _OF_NUMBERS or by_alpha or of_complex)
        return result

    def refuse(self, units: int) -> None:
        """Raises:
        RefusedError: ``place-in-batch``: some operation rounded equal units otherwise at other places.
        """
        if self.differing:
            by_chance = self._on_gpu and not torch.are_deterministic_algorithms_enabled()
            first = "Call torch.use_deterministic_algorithms(True) before the first step. " if by_chance else ""
            raise RefusedError(
                "place-in-batch",
                f"where a unit stands among {units} decides how it is rounded, and other units decide where it stands: "
                f"{self.differing[0]}. {first}Pad features and lengths to multiples of 8, and take micro-batches of 64 units or of 1",
            )

    def _try(self, func: Any, name: str, args: Any, kwargs: Any, result: Any, of_numbers: bool) -> None:
        leaves, form = tree_flatten((args, kwargs))
        outputs = [leaf for leaf in tree_flatten(result)[0] if _is_numbers(leaf)]
        if _draws(func, args, kwargs) or not outputs:
            return
        self._on_gpu |= outputs[0].is_cuda
        for size in self._sizes_of_units(name, outputs[0].shape):
            key = (func, size, _settings(), tuple(_described(leaf) for leaf in leaves))
            if key in self._seen:
                continue
            self._seen.add(key)
            if key not in _known:
                _known[key] = _are_units_equal(func, leaves, form, size, outputs[0], name in _ONE_DIMENSION, of_numbers)
            if not _known[key]:
                shapes = [str(tuple(leaf.shape)) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]
                self.differing.append(f"{name} of {', '.join(shapes)}")

    def _sizes_of_units(self, name: str, shape: torch.Size) -> set[int]:
        """The size of the first dimension that may be of units; of products of matrices the units may be in each, or be each."""
        along = _along.get()
        sizes = shape[:1] if name in _ONE_DIMENSION else shape
        found = [size for size in sizes if size and (size == along or size % self._rows == 0)]
        of_units = {size for size in sizes[:1] if size and size % self._units == 0}
        return of_units | (set(found) if name in _OF_MATRICES else set(found[:1]))


@contextmanager
def engine_at_work() -> Iterator[None]:
    """What is computed here is the engine's own, in shapes that units may decide, and meant to be alike in every place.

    A loop is refused for none of it: a refusal may hang on public shapes alone.
    """
    token = _in_engine.set(True)
    try:
        yield
    finally:
        _in_engine.reset(token)


@contextmanager
def rows_along(size: int) -> Iterator[None]:
    """What is computed here has rows of several units along dimensions of this size, which no number of units divides.

    So has a head its labelled positions: those of a chunk, and others decide at which place of one a unit's stand.
    """
    token = _along.set(size)
    try:
        yield
    finally:
        _along.reset(token)


def at_aligned_places(given: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a call, positional and named, where some begin elsewhere than at 64 bytes with these copied; else the same object.

    A unit that is a part of a larger tensor begins where its index says, and products of few columns are rounded by that.
    """
    args, kwargs = given
    if all(isinstance(value, _SINGLE) and not _begins_oddly(value) for value in (*args, *kwargs.values())):
        return given  # nearly always, and asked at every layer: a walk through what is nested takes ten times as long
    leaves, form = tree_flatten(given)
    odd = [_begins_oddly(leaf) for leaf in leaves]
    if not any(odd):
        return given
    return tree_unflatten([leaf.clone() if copied else leaf for leaf, copied in zip(leaves, odd, strict=True)], form)


_SINGLE = (Tensor, int, float, str, type(None))
"""Nothing stands within these."""


def _begins_oddly(leaf: Any) -> bool:
    return (
        type(leaf) is Tensor and _is_numbers(leaf) and leaf.layout == torch.strided and leaf.data_ptr() % _ALIGNED != 0
    )


def _are_units_equal(
    func: Any, leaves: Sequence[Any], form: Any, size: int, like: Tensor, first_only: bool, of_numbers: bool
) -> bool:
    """Whether units of equal numbers have equal results, in the precision that the step computes in."""
    tries = _TRIES.get(like.device.type, max(_TRIES.values()))
    generators = {
        device: torch.Generator(device).manual_seed(0)
        for device in {leaf.device for leaf in leaves if isinstance(leaf, Tensor)}
    }
    told = _telling(func, leaves, form, generators) if of_numbers else None
    drawn = _FEWEST if told else max(_FEWEST, min(tries, _NUMBERS_IN_ALL // max(1, like.numel())))
    told = told or []
    made = [_MadeUp.like(leaf, size, first_only) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    args, kwargs = tree_unflatten([leaf.whole if isinstance(leaf, _MadeUp) else leaf for leaf in made], form)
    for number in range(len(told) + drawn):
        for place, leaf in enumerate(made):
            if isinstance(leaf, _MadeUp):
                leaf.put(told[number][place] if number < len(told) else None, generators[leaf.whole.device])
        found = [leaf for leaf in tree_flatten(func(*args, **kwargs))[0] if _is_numbers(leaf)]
        for leaf in found:
            along = [place for place in _places_of(leaf, size, first_only) if leaf.shape == like.shape or place == 0]
            if not all(_are_equal(leaf, place) for place in along):
                return False
    return True


def _telling(
    func: Any, leaves: Sequence[Any], form: Any, generators: Mapping[torch.device, torch.Generator]
) -> list[list[Tensor | None]] | None:
    """Numbers for each leaf at which a function has another last bit in the program for single numbers than in that for vectors.

    A large tensor has no more than a few numbers at the end of each thread's share that the former computes: of made-up ones it may
    be that none tells. None where this cannot be said, such as of a function that is none of single numbers.
    """
    if not all(_is_numbers(leaf) for leaf in leaves if isinstance(leaf, Tensor)):
        return None
    made = [_of_several_sizes(leaf, generators[leaf.device]) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    together = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in made]  # a function may write over it
    apart = [leaf.repeat_interleave(2)[::2] if isinstance(leaf, Tensor) else leaf for leaf in made]
    try:
        results = [
            tree_flatten(func(*args, **kwargs))[0]
            for args, kwargs in (tree_unflatten(own, form) for own in (together, apart))
        ]
    except Exception:  # such as a bias that must have as many numbers as a row
        return None
    tells = torch.zeros(_TOLD_BY, dtype=torch.bool)
    for one, other in zip(*results, strict=True):
        if _is_numbers(one) and one.numel():
            if one.shape != (_TOLD_BY,):
                return None
            tells |= ((one != other) & ~(one.isnan() & other.isnan())).cpu()
    places = tells.nonzero().flatten().tolist()[:_TELLING_TRIES]
    return [[leaf[place] if isinstance(leaf, Tensor) else None for leaf in made] for place in places]


def _is_numbers(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _has_complex(values: Any) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in tree_flatten(values)[0])


def _draws(func: Any, args: Sequence[Any], kwargs: Any) -> bool:
    """Whether it drops some numbers by chance."""
    names = [one.name for one in func._schema.arguments]
    return bool((dict(zip(names, args, strict=False)) | kwargs).get("dropout_p"))


def _settings() -> tuple[Any, ...]:
    """What chooses a program beside shapes."""
    backends: Any = torch.backends
    precisions = [one.fp32_precision for one in (backends.cuda.matmul, backends.mkldnn.matmul, backends.cudnn.conv)]
    return torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), backends.mkldnn.enabled, *precisions


def _described(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return repr(leaf)
    return leaf.shape, leaf.stride(), leaf.dtype, str(leaf.device), leaf.storage_offset() % _ALIGNED


def _places_of(leaf: Tensor, size: int, first_only: bool) -> list[int]:
    return [place for place, own in enumerate(leaf.shape[: 1 if first_only else None]) if own == size]


@dataclass(frozen=True)
class _MadeUp:
    """A tensor that is laid out like one of an operation, along the dimensions of units all equal.

    Args:
        whole: the tensor.
        numbers: those of one unit, for all; None: whole numbers are zero, and what may be false is true.
    """

    whole: Tensor
    numbers: Tensor | None

    @classmethod
    def like(cls, leaf: Tensor, size: int, first_only: bool) -> _MadeUp:
        if not _is_numbers(leaf):
            return cls(torch.ones_like(leaf) if leaf.dtype == torch.bool else torch.zeros_like(leaf), None)
        along = _places_of(leaf, size, first_only)
        shape = [1 if place in along else own for place, own in enumerate(leaf.shape)]
        numbers = torch.empty(shape, device=leaf.device, dtype=_type_drawn(leaf))
        strides = list(zip(leaf.shape, leaf.stride(), strict=True))
        if leaf.numel() == 0 or any(step == 0 and own > 1 for own, step in strides):
            return cls(torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device), numbers)
        offset = leaf.storage_offset() % _ALIGNED
        room = torch.zeros(
            sum((own - 1) * step for own, step in strides) + 1 + offset, dtype=leaf.dtype, device=leaf.device
        )
        return cls(room.as_strided(leaf.shape, leaf.stride(), offset), numbers)

    def put(self, value: Tensor | None, generator: torch.Generator) -> None:
        """Numbers that are drawn, or this one everywhere; an operation may have written over the last ones."""
        if self.numbers is not None:
            self.whole.copy_(self.numbers.normal_(generator=generator) if value is None else value)


def _of_several_sizes(leaf: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers about 1, 4 and 16: of some functions only large ones tell."""
    numbers = torch.randn(_TOLD_BY, generator=generator, device=leaf.device, dtype=_type_drawn(leaf))
    return (numbers * 4.0 ** (torch.arange(_TOLD_BY, device=leaf.device) % 3)).to(leaf.dtype)


def _type_drawn(leaf: Tensor) -> torch.dtype:
    return torch.complex64 if leaf.is_complex() else torch.float32


def _are_equal(found: Tensor, along: int) -> bool:
    first = found.narrow(along, 0, 1)
    if torch.equal(found, first.expand_as(found)):  # but for what is no number
        return True
    return bool(((found == first) | (found.isnan() & first.isnan())).all())

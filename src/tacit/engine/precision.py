"""How products are rounded: as the parameters' precision says, whatever the user, torch or the environment would rather have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from tacit.errors import UsageError

__all__ = ["full_precision", "refuse_environment", "refuse_fewer_threads", "refuse_rounded_products"]

_Setting = TypeVar("_Setting")


@contextmanager
def full_precision() -> Iterator[None]:
    """Products in true float32, even where the user allows TF32 or bfloat16: the guarantee rests on the norms.

    Torch has one setting for each library's operation, and two older ones for several of them, which refuse to be read where the
    others say something else. All of them are set, so that what reads any finds it, and all are put back.
    """
    before = [operation.fp32_precision for operation in _operations()]
    of_products, of_cudnn = _read(torch.get_float32_matmul_precision), _read(lambda: torch.backends.cudnn.allow_tf32)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    for operation in _operations():
        operation.fp32_precision = "ieee"
    try:
        yield
    finally:
        if of_products is not None:
            torch.set_float32_matmul_precision(of_products)
        if of_cudnn is not None:
            torch.backends.cudnn.allow_tf32 = of_cudnn
        for operation, precision in zip(_operations(), before, strict=True):
            operation.fp32_precision = precision


def _operations() -> tuple[Any, ...]:
    """What torch rounds to fewer digits where it is allowed to."""
    cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
    return torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv, mkldnn.rnn


def _read(setting: Callable[[], _Setting]) -> _Setting | None:
    """An older setting; None where it contradicts what was set by operation."""
    try:
        return setting()
    except RuntimeError:
        return None


_ROUNDS_PRODUCTS = (
    *("NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATE_DOUBLE_PRECISION"),
    *("CUBLAS_EMULATION_STRATEGY", "CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT"),
)
"""Variables of the environment that NVIDIA's libraries read, whatever torch asks of them."""


def refuse_environment(device: torch.device) -> None:
    """What `refuse_rounded_products` and `refuse_fewer_threads` say of this process as it is now."""
    if device.type == "cpu":
        refuse_fewer_threads(torch.get_num_threads())
    else:
        refuse_rounded_products(device)


def refuse_rounded_products(device: torch.device) -> None:
    """Refuse what rounds products of float32 further on a GPU: not the norm, but the sum would be off by hundredths of a clip norm.

    Raises:
        UsageError: a variable of the environment does. On an H200 `NVIDIA_TF32_OVERRIDE=1` made errors 270 times as large, although
            torch was told of true float32.
    """
    for name in _ROUNDS_PRODUCTS if device.type == "cuda" else ():
        value = os.environ.get(name, "").strip()
        if value not in ("", "0"):
            raise UsageError(f"{name}={value} lets NVIDIA's libraries round products whatever torch asks for; unset it")


def refuse_fewer_threads(threads: int) -> None:
    """Where OpenMP gives fewer threads than torch knows of, oneDNN's products in bfloat16 leave rows unwritten, without an error.

    Args:
        threads: the number that torch is told to use.

    Raises:
        UsageError: a variable of OpenMP gives fewer, or lets something else decide.
    """
    limit = os.environ.get("OMP_THREAD_LIMIT", "").strip()
    if limit.isdigit() and int(limit) < threads:
        raise UsageError(
            f"OMP_THREAD_LIMIT={limit} gives fewer threads than the {threads} that torch would be told; unset it, or tell "
            "torch of so many (compute.threads in a run, torch.set_num_threads in a loop of your own)"
        )
    if threads > 1 and os.environ.get("OMP_MAX_ACTIVE_LEVELS", "").strip() == "0":
        raise UsageError("OMP_MAX_ACTIVE_LEVELS=0 gives one thread where torch would be told of more; unset it")
    if threads > 1 and os.environ.get("OMP_DYNAMIC", "").strip().lower() in ("true", "t", "yes", "y", "on", "1"):
        raise UsageError("OMP_DYNAMIC lets the machine's load decide how many threads compute a sum; unset it")

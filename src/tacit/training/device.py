"""Torch as all training wants it: threads, one result every time, and the device that is asked for."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from tacit.config import ComputeOptions
from tacit.engine.precision import refuse_fewer_threads, refuse_rounded_products
from tacit.errors import UsageError

__all__ = ["computed_by", "processor", "set_up_torch"]


def processor(device: torch.device) -> str:
    """What decides how products of lower precision are rounded: the kind of processor, and the library.

    With and without AVX-512 the sums of one bfloat16 step differ by a hundredth of a clip norm and more.
    """
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    limits = [os.environ.get(name, "") for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")]
    found = [
        torch.backends.cpu.get_cpu_capability(),
        platform.machine(),
        platform.processor(),
        *limits,
        torch.__version__,
    ]
    return ", ".join(part for part in found if part)


def computed_by(device: torch.device) -> str:
    """All of a process and its machine that may decide how its sums are rounded, and how many units it takes together.

    Which of several processes computes a unit, other units decide: so these must be the same in all of them.
    """
    chosen = " ".join(f"{name}={os.environ[name]}" for name in _CHOOSES if name in os.environ)
    if device.type == "cuda":
        return f"{processor(device)}, {chosen}"
    return f"{processor(device)}, {torch.get_num_threads()} threads, {chosen}\n{_kind_of_cpu()}"


_CHOOSES = (
    *("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "OMP_DYNAMIC", "OMP_THREAD_LIMIT"),
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"),
    *("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "DISABLE_ADDMM_CUDA_LT"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_BLAS_PREFER_CUBLASLT"),
)
"""Variables of the environment by which libraries choose their programs."""

_CPUINFO = Path("/proc/cpuinfo")

_NAMES_CPU = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "cache size", "Features"),
    *("CPU implementer", "CPU variant", "CPU part", "CPU revision"),
)


_COMPUTES = re.compile(r"sse|ssse|avx|amx|fma|f16c|bmi|gfni|vaes|popcnt|fp|asimd|sve|sme|bf16|i8mm")


def _kind_of_cpu() -> str:
    """The kind of the first processor as Linux describes it; libraries choose by it. A virtual machine may hide what it is."""
    first = _CPUINFO.read_text(errors="replace").split("\n\n")[0].splitlines() if _CPUINFO.exists() else []
    parts = ((name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in first))
    return "\n".join(f"{name} {_instructions(value)}" for name, value in parts if name in _NAMES_CPU)


def _instructions(value: str) -> str:
    """The parts of a list of what a processor has that compute; others change with the kernel and its options."""
    words = value.split()
    return value if len(words) < 20 else " ".join(word for word in words if _COMPUTES.match(word))


def set_up_torch(compute: ComputeOptions, sharing: int = 1) -> torch.device:
    """Threads, products in true float32, and the same result every time, whatever the calling program has set.

    Args:
        sharing: processes that share the cores of this machine, where ``compute.threads`` does not say how many threads each has.

    Raises:
        UsageError: there is no GPU where one is asked for, or the environment gives fewer threads than torch is told, or less precise
            products.
    """
    threads = compute.threads or max(1, (os.cpu_count() or 1) // sharing)
    refuse_fewer_threads(threads)
    if compute.device == "cuda":
        if not torch.cuda.is_available():
            raise UsageError("compute.device is cuda, but torch finds no CUDA device; set it to cpu")
        refuse_rounded_products(torch.device(compute.device))
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")  # lower precision is an option, which the ledger binds
    torch.backends.cudnn.allow_tf32 = False  # LSTMs and convolutions, which are rounded to TF32 as torch comes
    operations: Any = torch.backends.cudnn
    operations.conv.fp32_precision = operations.rnn.fp32_precision = "ieee"
    logging.set_verbosity_error()  # some models say on the terminal how long a row was
    return torch.device(compute.device)

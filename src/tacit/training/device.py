"""Torch as all training wants it: threads, one result every time, and the device that is asked for."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from tacit.config import ComputeOptions
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
    if device.type == "cuda":
        return processor(device)
    return f"{processor(device)}, {_kind_of_cpu()}, {torch.get_num_threads()} threads"


def _kind_of_cpu() -> str:
    """As Linux names it; libraries choose by it among programs for the same instructions."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(errors="replace").splitlines() if told.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def set_up_torch(compute: ComputeOptions, sharing: int = 1) -> torch.device:
    """Threads, products in true float32, and the same result every time, whatever the calling program has set.

    Args:
        sharing: processes that share the cores of this machine, where ``compute.threads`` does not say how many threads each has.

    Raises:
        UsageError: there is no GPU where one is asked for.
    """
    if compute.device == "cuda":
        if not torch.cuda.is_available():
            raise UsageError("compute.device is cuda, but torch finds no CUDA device; set it to cpu")
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic
    torch.set_num_threads(compute.threads or max(1, (os.cpu_count() or 1) // sharing))
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")  # lower precision is an option, which the ledger binds
    torch.backends.cudnn.allow_tf32 = False  # LSTMs and convolutions, which are rounded to TF32 as torch comes
    operations: Any = torch.backends.cudnn
    operations.conv.fp32_precision = operations.rnn.fp32_precision = "ieee"
    logging.set_verbosity_error()  # some models say on the terminal how long a row was
    return torch.device(compute.device)

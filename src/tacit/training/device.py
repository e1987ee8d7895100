"""Torch as all training wants it: threads, one result every time, and the device that is asked for."""

from __future__ import annotations

import os

import torch

from tacit.config import ComputeOptions
from tacit.errors import UsageError

__all__ = ["set_up_torch"]


def set_up_torch(compute: ComputeOptions, sharing: int = 1) -> torch.device:
    """Threads, and the same result every time.

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
    return torch.device(compute.device)

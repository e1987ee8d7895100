"""Memory for per-unit gradients that a clipper keeps from one context to the next.

Fresh memory costs a CPU more than what is computed into it: the kernel hands out zeroed pages, one fault each, and takes
large blocks back when they are freed. 64 MiB took 15 ms to fill the first time and 1.3 ms after that, where the product that
fills them takes 10 ms. A GPU's allocator keeps what it has, so there nothing is kept here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["WORKSPACE_BYTES", "Workspace"]

WORKSPACE_BYTES = 96 * 2**20
"""The most that one clipper keeps; what does not fit is allocated as usual."""


class Workspace:
    """Pieces of one block of memory, given out in order until it is reset."""

    def __init__(self, most_bytes: int = WORKSPACE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._block = torch.empty(0, dtype=torch.uint8)
        self._used = 0
        self._asked = 0

    def reset(self) -> None:
        """Take all pieces back; the block grows to what the last context asked for, within the limit."""
        wanted = min(self._asked, self._most_bytes)
        if wanted > len(self._block):
            self._block = torch.empty(wanted, dtype=torch.uint8)
        self._used = self._asked = 0

    def empty(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Memory for a tensor of ``like``'s precision, whatever it holds; from the block where that has room."""
        size = -(-math.prod(shape) * like.element_size() // 64) * 64
        if like.device.type != "cpu":
            return like.new_empty(shape)
        self._asked += size
        if self._used + size > len(self._block):
            return like.new_empty(shape)
        piece = self._block[self._used : self._used + math.prod(shape) * like.element_size()]
        self._used += size
        return piece.view(like.dtype).view(shape)

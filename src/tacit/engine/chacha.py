"""ChaCha20 and normals from its bits, in torch's integer operations: training noise on a GPU, with a cryptographic generator.

torch's own generator on a GPU is Philox with 64 bits of seed: not cryptographic, and two of n streams agree with chance n^2 / 2^65.
Here every stream has a key of 256 bits, and any device computes the same bits, so that a CPU without a GPU tests them.
Only the normals' last digits are the device's (its logarithm, cosine and sine).

Legend: N blocks, each 16 words of 32 bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

__all__ = ["keystream", "normals"]

_CONSTANTS = struct.unpack("<4i", b"expand 32-byte k")
_DOUBLE_ROUNDS = 10
_VALUES = 8
"""Normals a block makes: 64 bits each."""


def normals(keys: Sequence[bytes], sizes: Sequence[int], device: torch.device) -> Tensor:
    """Independent standard normals, float64 (sum of sizes,): the first ``sizes[0]`` from the first key's stream, and so on.

    Value j of a key depends on the key and j alone. By Box and Muller (1958): the radius from all 64 bits of one word pair,
    so that the tail reaches 9.4 deviations (chance beyond: 2^-64), the angle from 53 bits.

    Args:
        keys: 32 secret bytes each, never used for anything else; at least one.
        sizes: how many values from each key.
    """
    blocks = [-(-size // _VALUES) for size in sizes]
    pairs_P2 = keystream(keys, blocks, device).view(torch.int64).view(-1, 2)
    radius_P = _open_uniform(pairs_P2[:, 0]).log_().mul_(-2).sqrt_()
    angle_P = ((pairs_P2[:, 1] >> 11) & (2**53 - 1)).double().mul_(2 * math.pi / 2**53)
    values_P2 = torch.stack((angle_P.cos(), angle_P.sin_()), dim=1).mul_(radius_P[:, None])
    own = values_P2.view(-1).split([_VALUES * number for number in blocks])
    return torch.cat([values[:size] for values, size in zip(own, sizes, strict=True)])


def keystream(keys: Sequence[bytes], blocks: Sequence[int], device: torch.device) -> Tensor:
    """The first ``blocks[i]`` blocks of each key's ChaCha20 stream with nonce 0, int32 (N, 16), little-endian (RFC 8439, 2.3).

    The block counter has 32 bits and begins with 0.

    Raises:
        ValueError: a key has not 32 bytes, or a stream would pass the counter's end.
    """
    if any(len(key) != 32 for key in keys) or any(number >= 2**31 for number in blocks):
        raise ValueError("a ChaCha20 key has 32 bytes, and a stream fewer than 2^31 blocks")
    words = [struct.unpack("<8i", key) for key in keys]
    total, counts = sum(blocks), torch.tensor(list(blocks), dtype=torch.int64, device=device)
    firsts = torch.tensor(list(accumulate(blocks, initial=0))[:-1], dtype=torch.int64, device=device)
    keys_8K = torch.tensor(words, dtype=torch.int32, device=device).view(-1, 8).t()
    start_16N = torch.zeros(16, total, dtype=torch.int32, device=device)
    start_16N[:4] = torch.tensor(_CONSTANTS, dtype=torch.int32, device=device)[:, None]
    start_16N[4:12] = keys_8K.repeat_interleave(counts, dim=1, output_size=total)
    start_16N[12] = torch.arange(total, device=device) - firsts.repeat_interleave(counts, output_size=total)
    stream_N16 = torch.empty(total, 16, dtype=torch.int32, device=device)
    return stream_N16.copy_((_rounds(start_16N.clone()) + start_16N).t())


def _rounds(state_16N: Tensor) -> Tensor:
    """Twenty rounds in place: four quarter rounds at once, on the columns and then on the diagonals."""
    a, b, c, d = state_16N.split(4)
    for _ in range(_DOUBLE_ROUNDS):
        _quarter_rounds_(a, b, c, d)
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)
        _quarter_rounds_(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return torch.cat((a, b, c, d))


def _quarter_rounds_(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> None:
    for left, other, by in ((a, d, 16), (c, b, 12), (a, d, 8), (c, b, 7)):
        left.add_(b if left is a else d)
        other.bitwise_xor_(left)
        _rotate_left_(other, by)


def _rotate_left_(words: Tensor, by: int) -> None:
    """Shifting int32 to the right repeats the sign, which the mask takes away."""
    low = (words >> (32 - by)).bitwise_and_((1 << by) - 1)
    words.bitwise_left_shift_(by).bitwise_or_(low)


def _open_uniform(bits: Tensor) -> Tensor:
    """Uniform in (0, 1] from 64 bits, float64: (k + 1/2) / 2^64, to the nearest that float64 holds."""
    high = ((bits >> 11) & (2**53 - 1)).double().mul_(2.0**-53)
    return high.add_((bits & 2047).double().add_(0.5).mul_(2.0**-64))

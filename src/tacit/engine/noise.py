"""Gaussian noise on the clipped sum, once a logical batch, and the sum over all ranks.

The noise is a function of (key, step, the parameter's name, the place in the parameter) and the kind of device alone: `CHUNK` values
at a time have a stream of their own. A step that is run again after a crash draws the same noise, no two steps or parameters ever
share it, and neither the number of threads nor that of ranks changes it. Add it after the last micro-batch, also when
the batch is empty.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn

from tacit.engine.chacha import normals
from tacit.engine.distributed import ALONE, Ranks
from tacit.engine.sharding import is_sharded, shard_of, zero_gradient
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness

__all__ = [
    "CHUNK",
    "Grid",
    "NoiseSource",
    "StepNoise",
    "add_noise_",
    "gradient_of",
    "independent_noise",
    "noise_source",
    "on_grid",
]

CHUNK = 1 << 17
"""Values of a parameter that share one stream: what threads and ranks divide."""

_TOGETHER = 1 << 23
"""Values that a GPU draws at once: of 4 million the launches take longer than the work, of 16 million it takes more memory."""

_MOST_SPACINGS = 2.0**52 / 40
"""Standard deviation of noise, in spacings: 40 of them, and the sum beside it, are whole numbers that float64 holds."""

_DTYPES = (torch.float32, torch.float64)


class NoiseSource(enum.Enum):
    """What training noise is drawn from, in words for the certificate."""

    CHACHA20 = "ChaCha20 keyed by 256 bits (cryptographic), normals by numpy's ziggurat"
    CHACHA20_ON_GPU = "ChaCha20 keyed by 256 bits (cryptographic), computed on the GPU, normals by Box and Muller"


def noise_source(device: torch.device) -> NoiseSource:
    """The source for gradients on a device, a CPU or a CUDA device: the same generator, other normals.

    Raises:
        UsageError: another kind of device.
    """
    sources = {"cpu": NoiseSource.CHACHA20, "cuda": NoiseSource.CHACHA20_ON_GPU}
    if device.type not in sources:
        raise UsageError(f"no noise for gradients on {device.type}; use one of {', '.join(sources)}")
    return sources[device.type]


def on_grid(noise_multiplier: float, clip_norm: float, dimensions: int, smallest: float = 1.0) -> tuple[float, Grid]:
    """The grid of a clipped sum, and the standard deviation that its noise then needs: less than a thousandth more.

    Args:
        noise_multiplier: the event's: what it says of a unit that counts w is noise of noise_multiplier / w times its bound.
        clip_norm: of a unit that counts 1.
        dimensions: trainable numbers.
        smallest: the least that a unit counts, if it counts at all: the rounding of its sum must be little against its own bound.

    Raises:
        UsageError: so much noise has no grid.
    """
    bound = clip_norm * smallest
    grid = Grid.fine_enough(bound, dimensions)
    stddev = noise_multiplier * (clip_norm / bound) * grid.sensitivity(bound, dimensions)
    if stddev > _MOST_SPACINGS * grid.spacing:
        raise UsageError(
            f"noise_multiplier {noise_multiplier:g} is so large beside {dimensions:,} parameters and a least weight of {smallest:g} "
            "that float64 has no grid for both; lower it"
        )
    return stddev, grid


@dataclass(frozen=True)
class Grid:
    """Round the clipped sum to multiples of a public number before the noise, and the noise with it.

    A floating-point sum with floating-point noise lies on values that depend on the sum itself, from which it can be
    read off (Mironov 2012, "On significance of the least significant bits for differential privacy"). On a grid the
    reachable values are the same for every sum. Sum, noise and result are float64 multiples of ``spacing``, exact below
    2^53 spacings; what goes back to float32 parameters is post-processing.

    What it does not give: the rounded ziggurat normals follow the Gaussian law to float64 precision, not exactly, as a
    discrete Gaussian sampler would; the float32 additions before the rounding have their own errors; timing. So it is
    no proof in exact arithmetic. Float32 normals would be no noise for it: near zero there are few of them, so which sums plus a
    normal can be what was released tells the sums apart (TACIT-45).

    Rounding moves each coordinate by at most spacing / 2, for the sum with a unit and for the sum without it, so the
    rounded sums differ by at most ``clip_norm + spacing * sqrt(dimensions)`` in l2. `on_grid` sets the noise from that bound, and the
    event stays what it is. Several ranks add up before anything is rounded, so their number changes nothing.

    The sum is rounded alone. Rounded with its noise to the nearest even multiple, what lies between two multiples would come out even
    whatever the noise (twenty-fifth attack).

    Args:
        spacing: a power of two, so that scaling by it is exact.

    Raises:
        UsageError: spacing is no power of two.
    """

    spacing: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.spacing) and self.spacing > 0 and math.frexp(self.spacing)[0] == 0.5):
            raise UsageError(f"the grid's spacing must be a power of two, not {self.spacing}")

    @classmethod
    def fine_enough(cls, clip_norm: float, dimensions: int) -> Grid:
        """The widest grid that raises the sensitivity by less than a thousandth."""
        return cls(2.0 ** math.floor(math.log2(clip_norm / (1024 * math.sqrt(dimensions)))))

    def sensitivity(self, clip_norm: float, dimensions: int) -> float:
        """Bound on what one unit changes the rounded sum of ``dimensions`` coordinates, in l2."""
        return clip_norm + self.spacing * math.sqrt(dimensions)

    def rounded(self, values: Tensor) -> Tensor:
        """The nearest multiples of the spacing, in float64."""
        return (values.double() / self.spacing).round_() * self.spacing


def add_noise_(
    parameters: Iterable[tuple[str, nn.Parameter]],
    noise_stddev: float,
    streams: KeyedRandomness,
    step: int,
    grid: Grid | None,
    ranks: Ranks = ALONE,
    rests: Mapping[nn.Parameter, Tensor] = MappingProxyType({}),
) -> None:
    """Add independent N(0, noise_stddev^2) to every coordinate of ``p.grad``; zeros are created where it is None.

    With several ranks, which all call this, ``p.grad`` becomes the sum of all ranks' ``p.grad`` with that noise *once*,
    the same on every rank: each draws a share of the noise, and on a grid the sum is rounded before it meets it. The gradient of a
    sharded parameter is a sum over ranks already; each rank adds its part of the same noise.

    A parameter that appears under several names (tied weights) gets noise once, from the first name's streams. Frozen
    parameters are left out. With noise_stddev 0 nothing is drawn.

    Args:
        parameters: ``model.named_parameters()``; names are addresses, so they must not change in a run.
        noise_stddev: standard deviation of the noise on the *sum*: noise_multiplier * clip_norm.
        streams: the run's keyed streams; ``("noise", step, name, chunk)`` are read from their beginnings.
        step: the logical step, never used twice with the same streams.
        grid: what sum and noise are rounded to; `on_grid` gives it, with the noise_stddev that it needs. None: the noise is drawn in
            the parameters' precision, and the last digits of one noisy sum tell what was summed (TACIT-45): for measurements alone.
        ranks: the processes whose gradients are one sum.
        rests: what ``p.grad`` could not hold of sums over many micro-batches (`PerExampleClipper.take_rests`): added behind the
            noise, so that nothing of a sum is rounded before it. With a grid, added before both are rounded, in float64.

    Raises:
        UsageError: the deviation is negative or not finite, the step is negative, a name stands for two parameters, a
            parameter is neither float32 nor float64, or its device has no noise source.
    """
    if not (math.isfinite(noise_stddev) and noise_stddev >= 0):
        raise UsageError(f"noise_stddev must be finite and not negative, not {noise_stddev}")
    if step < 0:
        raise UsageError(f"step must not be negative, not {step}")
    named = _each_once(parameters)
    noise = StepNoise(noise_stddev, streams, step, grid)
    whole = {name: gradient_of(parameter) for name, parameter in named.items() if not is_sharded(parameter)}
    _add_and_sum(whole, noise, ranks, {name: rests[named[name]] for name in whole if named[name] in rests})
    for name, parameter in named.items():
        if name not in whole:
            _add_to_shard(name, parameter, noise, rests.get(parameter))


def independent_noise(
    parameters: Iterable[tuple[str, nn.Parameter]], noise_stddev: float, streams: KeyedRandomness, step: int
) -> dict[str, Tensor]:
    """What `add_noise_` would add, in float64 and not rounded, by name; on one process, of parameters that are whole."""
    noise = StepNoise(noise_stddev, streams, step, None)
    found = {
        name: torch.zeros(parameter.shape, dtype=torch.float64, device=parameter.device)
        for name, parameter in _each_once(parameters).items()
    }
    if noise_stddev > 0:
        _add_chunks(
            noise, [(name, start, own) for name, own in found.items() for start in range(0, own.numel(), CHUNK)]
        )
    return found


def _each_once(parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, nn.Parameter]:
    """Trainable parameters by the first name of each; checked before anything is changed."""
    named: dict[str, nn.Parameter] = {}
    seen: set[nn.Parameter] = set()
    for name, parameter in parameters:
        if name in named and named[name] is not parameter:
            raise UsageError(f"two parameters are called {name}, so they would get the same noise; name them apart")
        if parameter.requires_grad and parameter not in seen:
            if parameter.dtype not in _DTYPES:
                raise UsageError(f"{name} is {parameter.dtype}; noise is added to float32 or float64 parameters only")
            noise_source(parameter.device)
            seen.add(parameter)
            named[name] = parameter
    return named


def _add_and_sum(gradients: dict[str, Tensor], noise: StepNoise, ranks: Ranks, rests: dict[str, Tensor]) -> None:
    """The sum over the ranks and the noise, of which each rank draws some chunks, in place; alone, some parameters at a time.

    A grid needs what it rounds in float64.
    """
    for names in _some_at_a_time(gradients) if ranks.world == 1 else [list(gradients)]:
        own = {name: gradients[name] for name in names}
        if noise.grid is None:
            _add_unrounded(own, noise, ranks, {name: rests[name] for name in names if name in rests})
        else:
            _add_rounded(own, noise, noise.grid, ranks, {name: rests[name] for name in names if name in rests})


def _some_at_a_time(gradients: dict[str, Tensor]) -> list[list[str]]:
    """Names in their order: on a CPU each alone, on a GPU as many as have `_TOGETHER` values; one that has more is alone."""
    parts: list[list[str]] = []
    held = 0
    for name, gradient in gradients.items():
        if not parts or held + gradient.numel() > _TOGETHER or not gradient.is_cuda:
            parts.append([])
            held = 0
        parts[-1].append(name)
        held += gradient.numel()
    return parts


def _add_rounded(
    gradients: dict[str, Tensor], noise: StepNoise, grid: Grid, ranks: Ranks, rests: dict[str, Tensor]
) -> None:
    """The whole sum is rounded, and then meets the noise."""
    sums = {name: gradient.double() for name, gradient in gradients.items()}
    for name, rest in rests.items():
        sums[name] = sums[name] + rest
    if ranks.world == 1:
        drawn = sums = {name: grid.rounded(total) for name, total in sums.items()}
    else:
        ranks.sum_(list(sums.values()))
        drawn = {name: torch.zeros_like(total) for name, total in sums.items()}
    _draw(drawn, noise, ranks)
    if drawn is not sums:
        ranks.sum_(list(drawn.values()))
        sums = {name: grid.rounded(total) + drawn[name] for name, total in sums.items()}
    for name, gradient in gradients.items():
        gradient.copy_(sums[name])


def _add_unrounded(gradients: dict[str, Tensor], noise: StepNoise, ranks: Ranks, rests: dict[str, Tensor]) -> None:
    """Add the noise, and the sums of all ranks, in the gradients' own precision; what that could not hold comes last."""
    _draw(gradients, noise, ranks)
    ranks.sum_(list(gradients.values()))
    if ranks.world > 1:  # a rank may have none where another one has some
        rests = {name: rests.get(name, torch.zeros_like(total)) for name, total in gradients.items()}
        ranks.sum_(list(rests.values()))
    for name, rest in rests.items():
        gradients[name] += rest


def _draw(into: dict[str, Tensor], noise: StepNoise, ranks: Ranks) -> None:
    """Add this rank's chunks of the noise."""
    if noise.stddev > 0:
        chunks = [(name, start) for name, total in into.items() for start in range(0, total.numel(), CHUNK)]
        _add_chunks(noise, [(name, start, into[name]) for name, start in chunks[ranks.rank :: ranks.world]])


def _add_to_shard(name: str, parameter: nn.Parameter, noise: StepNoise, rest: Tensor | None) -> None:
    """The whole parameter's noise, of which this rank's part is kept."""
    if parameter.grad is None:
        parameter.grad = zero_gradient(parameter)
    gradient = parameter.grad
    assert is_sharded(gradient)
    own = gradient.to_local()
    own_rest = rest.to_local() if is_sharded(rest) else None
    total = own
    if noise.grid is not None:
        total = noise.grid.rounded(own if own_rest is None else own.double() + own_rest)
    if noise.stddev > 0:
        full = torch.zeros(parameter.shape, dtype=total.dtype, device=own.device)
        _add_chunks(noise, [(name, start, full) for start in range(0, full.numel(), CHUNK)])
        part = shard_of(gradient, full)
        assert is_sharded(part)
        total += part.to_local()
    if own_rest is not None and noise.grid is None:
        total += own_rest
    if total is not own:
        own.copy_(total)


def gradient_of(parameter: nn.Parameter) -> Tensor:
    """``p.grad`` in one block of memory, made where it is missing."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
    elif not parameter.grad.is_contiguous():
        parameter.grad = parameter.grad.contiguous()
    return parameter.grad


_Chunk = tuple[str, int, Tensor]
"""A parameter's name, where the chunk begins in it, and all of what is added to."""


@dataclass(frozen=True)
class StepNoise:
    """The noise of one step."""

    stddev: float
    streams: KeyedRandomness
    step: int
    grid: Grid | None

    def add_chunk(self, name: str, start: int, total: Tensor) -> None:
        """Add the chunk that begins at ``start``, in numpy: it lets go of the interpreter lock, and starts no threads of its own."""
        part = total.view(-1)[start : start + CHUNK].numpy()
        generator = self.streams.generator("noise", self.step, name, start // CHUNK)
        noise = generator.standard_normal(part.shape, dtype=part.dtype.type)
        noise *= self.stddev
        if self.grid is not None:
            np.rint(noise / self.grid.spacing, out=noise)
            noise *= self.grid.spacing
        part += noise

    def add_by_torch(self, chunks: Sequence[_Chunk], device: torch.device) -> None:
        """Add the chunks, drawn together on their device: a GPU is slow to start many small operations."""
        parts = [total.view(-1)[start : start + CHUNK] for _, start, total in chunks]
        keys = [self.streams.stream_key("noise", self.step, name, start // CHUNK) for name, start, _ in chunks]
        drawn = normals(keys, [part.numel() for part in parts], device).mul_(self.stddev)
        if self.grid is not None:
            drawn = self.grid.rounded(drawn)
        for part, noise in zip(parts, drawn.split([part.numel() for part in parts]), strict=True):
            part.add_(noise)


def _add_chunks(noise: StepNoise, chunks: list[_Chunk]) -> None:
    """Add all chunks, which share no memory, by what each one's device draws with."""
    for device in dict.fromkeys(total.device for _, _, total in chunks):
        own = [chunk for chunk in chunks if chunk[2].device == device]
        if noise_source(device) is NoiseSource.CHACHA20:
            _in_threads(noise, own)
        else:
            most = _TOGETHER // CHUNK
            for first in range(0, len(own), most):
                noise.add_by_torch(own[first : first + most], device)


def _in_threads(noise: StepNoise, chunks: list[_Chunk]) -> None:
    """Add all chunks on as many threads as torch uses."""
    threads = min(torch.get_num_threads(), len(chunks))
    if threads < 2:
        for chunk in chunks:
            noise.add_chunk(*chunk)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(noise.add_chunk, *chunk) for chunk in chunks]:
            done.result()

"""TACIT-51: of a unit of several positions that nearly cancel, inner products in float32 made a norm that was far too small.

The 30th attack needed no made weights: rows of one user in a linear layer that begins with zeros. It added 93 clip norms, and was
told from no unit in 12 of 12 runs of a loop that was certified with epsilon 0.9996. Room for rounding that is set by experience is no
bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.engine import PerExampleClipper, combining, factors, logits
from tacit.engine.combining import combine, squared_norms
from tacit.engine.factors import Lookup, Outer
from tacit.engine.logits import Logits

POSITIONS, FEATURES, WORDS = 8, 1024, 16


def gram_in_float32(x_URk: Tensor) -> Tensor:
    """As it was: long products in parts of 1,024 terms."""
    first, *others = x_URk.split(1024, 2)
    found_URR = torch.bmm(first, first.mT)
    for part in others:
        found_URR.baddbmm_(part, part.mT)
    return found_URR.to(torch.promote_types(x_URk.dtype, torch.float32))


def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (factors, logits):
        monkeypatch.setattr(module, "gram", gram_in_float32)

    def inner_products(outer: Outer, lookup: Lookup) -> Tensor:
        product_URS = torch.bmm(outer.right_URd, lookup.value_URd.mT)
        product_URS *= outer.left_URp.gather(2, lookup.index_UR[:, None, :].expand_as(product_URS))
        return product_URS.sum((1, 2))

    monkeypatch.setattr(combining, "_inner_products", inner_products)


def added(units: int, scale: float, dtype: torch.dtype = torch.float32) -> float:
    """Clip norms that the first unit adds: four rows of one number and four of nearly its opposite, with one label."""
    layer = nn.Linear(FEATURES, WORDS, bias=False, dtype=dtype)
    nn.init.zeros_(layer.weight)
    rows = torch.zeros(units * POSITIONS, FEATURES, dtype=dtype)
    rows[: POSITIONS // 2], rows[POSITIONS // 2 : POSITIONS] = 1.1521947383880615 * scale, -1.1515731811523438 * scale
    weights = torch.zeros(units * POSITIONS, dtype=dtype)
    weights[:POSITIONS] = 1
    clipper = PerExampleClipper(layer, 1.0, POSITIONS)
    with clipper:
        losses = F.cross_entropy(layer(rows), torch.full((len(rows),), 3), reduction="none")
        (losses * weights).sum().backward()
    assert layer.weight.grad is not None
    return float(layer.weight.grad.double().norm())


@pytest.mark.parametrize("units", [2, 8, 64])
def test_a_unit_adds_one_clip_norm_at_most(units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert added(units, 4096.0) <= 1 + 1e-6
    as_it_was(monkeypatch)
    assert added(units, 4096.0) > 10 or torch.backends.cpu.get_cpu_capability() != "AVX512"


Made = tuple[tuple[Outer] | tuple[Outer, Lookup] | tuple[Logits, Lookup], float]


def outer(generator: np.random.Generator, positions: int, features: int) -> Made:
    """Constant vectors, which round all in one way; the true norm of what is left."""
    a, m = (np.float32(1 + generator.random()) for _ in range(2))
    b, n = np.float32(a * (1 + generator.uniform(-1, 1) * 2e-3)), np.float32(m * (1 + generator.uniform(-1, 1) * 2e-3))
    left, right = (torch.full((2, positions, features), float(one)) for one in (m, a))
    left[:, positions // 2 :], right[:, positions // 2 :] = float(n), -float(b)
    rest = positions // 2 * (float(m) * float(a) - float(n) * float(b))
    return (Outer(left, right),), abs(rest) * features


def tied(generator: np.random.Generator, positions: int, features: int) -> Made:
    """A head and the same row of the embedding."""
    c = np.float32(1 + generator.random())
    v = np.float32(c * (1 - generator.uniform(1e-4, 4e-3)))
    left = torch.zeros(2, positions, 64)
    left[:, :, 7] = 1
    right, value = torch.full((2, positions, features), float(c)), torch.full((2, positions, features), -float(v))
    index = torch.full((2, positions), 7)
    return (Outer(left, right), Lookup(index, value, 64)), positions * (float(c) - float(v)) * features**0.5


def fused(generator: np.random.Generator, positions: int, features: int) -> Made:
    """A tied fused head at more positions than it has features, where it adds up gradients and not inner products."""
    positions, features, words = 16 * positions, 64, 128
    c = np.float32(1 + generator.random())
    v = np.float32(c * (1 - generator.uniform(1e-4, 3e-3)))
    bias = torch.zeros(words)
    bias[5] = 100
    head = Logits(
        hidden_URd=torch.full((2, positions, features), float(c)),
        upstream_UR=torch.ones(2, positions),
        label_UR=torch.full((2, positions), 9),
        lse_UR=torch.full((2, positions), 100.0),
        weight_Vd=torch.zeros(words, features),
        bias_V=bias,
        rounding=torch.float32,
        block=words * features,
    )
    value = torch.full((2, 2 * positions, features), -float(v))
    value[:, positions:] *= -1
    index = torch.full((2, 2 * positions), 5)
    index[:, positions:] = 9
    return (head, Lookup(index, value, words)), (2 * features) ** 0.5 * positions * (float(c) - float(v))


def addends(generator: np.random.Generator, positions: int, features: int) -> Made:
    """A vector made one number at a time, so that each addition rounds down, and nearly its opposite."""
    own, total = np.empty(features, dtype=np.float32), np.float32(0)
    for place in range(features):
        tried = (1 + generator.random(16)).astype(np.float32)
        lost = [(float(total) + float(one) ** 2) - float(np.float32(total + one * one)) for one in tried]
        own[place] = tried[int(np.argmax(lost))]
        total = np.float32(total + own[place] * own[place])
    right = torch.from_numpy(own).expand(2, positions, features).clone()
    eta = float(generator.uniform(1e-4, 3e-3))
    right[:, positions // 2 :] *= -(1 + eta)
    left = torch.ones(2, positions, features)
    rest_d = right[0].double().sum(0)
    return (Outer(left, right),), float(rest_d.norm()) * features**0.5


def too_small(make: Callable[[np.random.Generator, int, int], Made], tries: int) -> float:
    """The largest true norm over the computed one, of units with two rows and more that nearly cancel."""
    generator, most = np.random.default_rng(7), 0.0
    for positions in (2, 4, 8, 16, 64):
        for features in (256, 768, 1024, 2048):
            for _ in range(tries):
                made, true = make(generator, positions, features)
                square = float(squared_norms(made)[0])
                most = max(most, true / square**0.5 if square > 0 else 0.0)
    return most


@pytest.mark.slow
def test_nor_of_a_fused_head_at_many_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong: the gradients added up in float32, and squared beside an exact inner product with the embedding's."""
    assert too_small(fused, 3) <= 1 + 1e-6
    real = torch.bmm

    def in_float32(left: Tensor, right: Tensor, **named: Any) -> Tensor:
        is_of_gradients = left.shape[2] > right.shape[2] == 64
        return real(left.float(), right.float()).double() if is_of_gradients else real(left, right, **named)

    monkeypatch.setattr(torch, "bmm", in_float32)
    assert too_small(fused, 3) > 1.001 or torch.backends.cpu.get_cpu_capability() != "AVX512"


@pytest.mark.parametrize("make", [outer, tied, addends])
def test_no_norm_is_below_the_true_one(
    make: Callable[[np.random.Generator, int, int], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 2 if make is addends else 12
    assert too_small(make, tries) <= 1 + 1e-6
    if make is not addends:
        as_it_was(monkeypatch)
        assert too_small(make, tries) > 1.1 or torch.backends.cpu.get_cpu_capability() != "AVX512"


@pytest.mark.parametrize("positions", [4, 8, 32])
def test_nor_of_a_layer_in_float64(positions: int) -> None:
    """There the room for rounding is what any order of summation may lose: n u of an inner product, and u of each pair of positions.

    12.9 clip norms with the room of before; the true norm is of whole numbers.
    """
    generator, most = np.random.default_rng(positions), 0.0
    for _ in range(200):
        a = int(generator.integers(2**26, 2**27))
        b = a + int(generator.integers(1, 16))
        left, right = (torch.ones(2, positions, size, dtype=torch.float64) for size in (16, 1024))
        right[:, : positions // 2], right[:, positions // 2 :] = float(a), -float(b)
        made = combine([Outer(left, right)])
        square = float(Outer(left, right).squared_norms()[0])
        true = positions // 2 * (b - a) * (16 * 1024) ** 0.5
        most = max(most, true / square**0.5 if square > 0 else 0.0, float(len(made) != 1))
    assert most <= 1 + 1e-12

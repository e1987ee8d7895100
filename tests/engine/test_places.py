"""Operations whose results hang on a row's place are found by their shapes; and shapes of which none does pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.engine.places import PlaceWatch
from tacit.errors import RefusedError

torch.set_num_threads(1)

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
AVX512 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512", reason="which shapes differ was measured with AVX-512"
)


def watched(model: nn.Module, *shape: int, device: str = "cpu") -> PlaceWatch:
    """The forward and backward of a model, whose weights are as inside a clipper: they get no ordinary gradient."""
    model.to(device).requires_grad_(False)
    x = torch.randn(shape, device=device, requires_grad=True)
    with PlaceWatch() as watch:
        model(x).square().sum().backward()
    return watch


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def layers(inputs: int, hidden: int, outputs: int = 8, between: type[nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), between(), nn.Linear(hidden, outputs))


def attention(x: Tensor) -> Tensor:
    heads = x.unflatten(2, (4, -1)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


EVEN: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (layers(32, 64), (64, 32)),
    "a few classes": (layers(32, 16, outputs=2), (64, 32)),
    "silu": (layers(16, 32, between=nn.SiLU), (16, 8, 16)),
    "gelu": (nn.Sequential(layers(16, 32, between=nn.GELU), nn.LayerNorm(8)), (16, 24, 16)),
    "attention": (Function(attention), (16, 24, 32)),
    "softmax": (Function(lambda x: x.softmax(-1).log()), (16, 24, 32)),
    "mean": (Function(lambda x: x.mean(1)), (16, 24, 32)),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("name", EVEN)
def test_shapes_without_an_end_pass(name: str, device: str) -> None:
    model, shape = EVEN[name]
    watch = watched(model, *shape, device=device)
    assert watch.differing == []
    watch.refuse(shape[0])


ODD: dict[str, tuple[nn.Module, tuple[int, ...], str]] = {
    "few columns of odd rows": (layers(30, 10, outputs=12), (66, 30), r"addmm of \(10,\), \(66, 30\), \(30, 10\)"),
    "the end of silu": (layers(8, 12, between=nn.SiLU), (3, 12, 8), "silu"),
    "the end of gelu": (Function(lambda x: F.gelu(x, approximate="tanh")), (3, 12, 12), "gelu"),
}


@AVX512
@pytest.mark.parametrize("name", ODD)
def test_shapes_with_an_end_are_found(name: str) -> None:
    model, shape, found = ODD[name]
    with pytest.raises(RefusedError, match=f"place-in-batch.*stands among {shape[0]} .*{found}"):
        watched(model, *shape).refuse(shape[0])


@AVX512
def test_a_backward_is_watched_too() -> None:
    assert any(one.startswith("silu_backward") for one in watched(nn.SiLU(), 3, 12, 12).differing)


@CUDA
def test_long_rows_that_begin_at_odd_places_are_found_on_a_gpu() -> None:
    for function in (lambda x: x.sum(1), lambda x: torch.linalg.vector_norm(x, dim=1), lambda x: x.softmax(1)):
        assert watched(Function(function), 64, 1025, device="cuda").differing
        assert not watched(Function(function), 64, 1024, device="cuda").differing


def test_what_adds_up_or_orders_the_rows_themselves_is_no_operation_of_rows() -> None:
    """Their results differ from row to row as they should."""
    for function in (lambda x: x.sum(0), lambda x: x.cumsum(0), lambda x: x.mean(), lambda x: x.softmax(0)):
        assert watched(Function(function), 16, 16).differing == []


def test_the_numbers_that_are_tried_are_no_ones_own() -> None:
    """Found or not, the same at any text: nothing but shapes is read."""
    found = []
    for fill in (0.0, 1.0, float("nan")):
        x = torch.full((66, 30), fill, requires_grad=True)
        with PlaceWatch() as watch:
            nn.Linear(30, 10).requires_grad_(False)(x).sum().backward()
        found.append(watch.differing)
    assert found[0] == found[1] == found[2]

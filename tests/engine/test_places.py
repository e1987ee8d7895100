"""Operations whose results hang on a row's place are found by their shapes; and shapes of which none does pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.engine import places, token_losses
from tacit.engine.places import PlaceWatch, at_aligned_places
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
    with PlaceWatch(len(x)) as watch:
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
        assert watched(Function(function), 64, 2047, device="cuda").differing
        assert not watched(Function(function), 64, 1024, device="cuda").differing


@AVX512
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (
            lambda x: torch.einsum("bd,pd->bp", x, torch.ones(10, 30)),
            (66, 30),
        ),  # one product of matrices, rows in its second dimension
        (lambda x: torch.einsum("bhd,hdp->bhp", x, torch.ones(4, 30, 10)), (66, 4, 30)),
        (lambda x: F.silu(x.transpose(0, 1).contiguous()), (3, 12, 12)),  # sequence first
        (lambda x: torch.mv(x, torch.ones(32)), (66, 32)),
        (lambda x: torch.logaddexp(x, 2 * x), (3, 12, 12)),
        (lambda x: torch.sinh(x), (3, 12, 12)),
        (lambda x: torch.ones(12, 32) @ x.T, (6, 32)),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x).conj()), (2, 32)),
    ],
    ids=["einsum", "einsum with heads", "sequence first", "mv", "logaddexp", "sinh", "transposed", "complex"],
)
def test_units_are_found_wherever_their_dimension_is(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...]
) -> None:
    assert watched(Function(function), *shape).differing


@AVX512
@pytest.mark.parametrize("shape", [(63, 5561), (64, 5552)], ids=["five", "none"])
def test_a_few_numbers_at_the_end_of_a_threads_share_are_found(
    shape: tuple[int, int], threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 350,000 numbers those at a thread's end are computed apart: made-up ones seldom tell, others always do."""
    odd = shape[0] == 63
    monkeypatch.setattr(places, "_known", {})
    for function in (torch.sigmoid, F.silu, F.softplus):
        assert bool(watched(Function(function), *shape).differing) == odd
    row = torch.randn(200, 1, shape[1], generator=torch.Generator().manual_seed(7))
    found = [torch.sigmoid(one.expand(shape).contiguous()) for one in row[: 24 if odd else 8]]
    assert any(bool((one != one[:1]).any()) for one in found) == odd  # positive control
    monkeypatch.setattr(places, "_known", {})
    monkeypatch.setattr(places, "_telling", lambda *_: None)  # known wrong: by made-up numbers alone
    assert watched(Function(torch.sigmoid), *shape).differing == []


@AVX512
def test_a_second_threads_share_of_attention_is_found(threads: None) -> None:
    """Of three queries a row, as a BERT's last layer has where three tokens are masked: found by the trial of a run."""

    def three(x: Tensor) -> Tensor:
        heads = x.unflatten(2, (2, 8)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads[:, :, :3], heads, heads)

    def four(x: Tensor) -> Tensor:
        heads = x.unflatten(2, (2, 8)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads[:, :, :4], heads, heads)

    assert any("flash" in one for one in watched(Function(three), 64, 16, 16).differing)
    assert watched(Function(four), 64, 16, 16).differing == []


@pytest.fixture
def threads() -> Iterator[None]:
    """Two."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_odd_things_under_the_watch_are_let_through() -> None:
    x = torch.randn(6, 5, requires_grad=True)
    with PlaceWatch(6) as watch:
        (x[:, :0].exp().sum() + x.expand(3, 6, 5).sigmoid().sum() + torch.pow(torch.tensor(2.0), x).sum()).backward()
        F.dropout(x, 0.5).sum().backward()
    odd = (
        ("sigmoid",) if torch.backends.cpu.get_cpu_capability() == "AVX512" else ("sigmoid", "pow")
    )  # 30 numbers: 3 x 8 and 6
    assert all(one.startswith(odd) for one in watch.differing)


@pytest.mark.parametrize("begin", [0, 1, 4, 15, 16])
def test_what_begins_at_an_odd_place_of_memory_is_copied_and_nothing_else(begin: int) -> None:
    room = torch.randn(100)
    given = ((room[begin : begin + 30], torch.arange(9)[1:]), {"mask": None, "x": room[:16]})
    found = at_aligned_places(given)
    assert (found is given) == (begin % 16 == 0)
    ((first, whole), named) = found
    assert first.data_ptr() % 64 == 0
    assert torch.equal(first, room[begin : begin + 30])
    assert whole is given[0][1]
    assert named["x"] is given[1]["x"]


@pytest.mark.parametrize("declared", [True, False], ids=["as it is", "known wrong"])
def test_a_heads_chunks_are_tried_although_no_number_of_units_divides_them(
    declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 37 labelled positions, which fill chunks of 20: a unit's positions stand at other places of them beside other units."""
    if not declared:
        monkeypatch.setattr("tacit.engine.heads.rows_along", lambda _: contextlib.nullcontext())
    head = nn.Linear(7, 30, bias=False).requires_grad_(False)
    hidden, labels = torch.randn(16, 3, 7, requires_grad=True), torch.full((16, 3), -100)
    labels.view(-1)[:37] = 2
    with PlaceWatch(len(hidden)) as watch:
        token_losses(head, hidden, labels, chunk_positions=20).sum().backward()
    tried = {(key[0].overloadpacket.__name__, key[1]) for key in watch._seen}
    assert ({("mm", 20), ("mm", 17), ("sum", 20), ("sum", 17)} <= tried) == declared


def test_what_adds_up_or_orders_the_rows_themselves_is_no_operation_of_rows() -> None:
    """Their results differ from row to row as they should."""
    for function in (lambda x: x.sum(0), lambda x: x.cumsum(0), lambda x: x.mean(), lambda x: x.softmax(0)):
        assert watched(Function(function), 16, 16).differing == []


def test_the_numbers_that_are_tried_are_no_ones_own() -> None:
    """Found or not, the same at any text: nothing but shapes is read."""
    found = []
    for fill in (0.0, 1.0, float("nan")):
        x = torch.full((66, 30), fill, requires_grad=True)
        with PlaceWatch(len(x)) as watch:
            nn.Linear(30, 10).requires_grad_(False)(x).sum().backward()
        found.append(watch.differing)
    assert found[0] == found[1] == found[2]

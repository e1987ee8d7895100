"""ChaCha20 by torch's integer operations against another library and RFC 8439; the normals' law and tail; wrong ones fail."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats
from torch import Tensor

from tacit.engine import chacha
from tacit.engine.chacha import keystream, normals
from tacit.engine.noise import CHUNK, Grid, StepNoise
from tacit.randomness import KeyedRandomness

DEVICES = [torch.device(name) for name in ("cpu", *(["cuda"] if torch.cuda.is_available() else []))]
STREAMS = KeyedRandomness(bytes(range(32)))
FALSE_ALARM = 1e-6


def keys(number: int) -> list[bytes]:
    return [STREAMS.stream_key("test", place) for place in range(number)]


def by_another_library(key: bytes, blocks: int) -> bytes:
    """`cryptography` takes a counter of 32 bits and a nonce of 96 as one number."""
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(64 * blocks))


def bytes_of(words: Tensor) -> bytes:
    return words.cpu().numpy().astype("<i4").tobytes()


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_the_stream_is_another_librarys(device: torch.device) -> None:
    blocks = [1, 0, 7, 3000, 2]
    expected = b"".join(by_another_library(key, number) for key, number in zip(keys(5), blocks, strict=True))
    assert bytes_of(keystream(keys(5), blocks, device)) == expected


def test_the_stream_is_the_rfcs() -> None:
    """RFC 8439, appendix A.1, test vectors 1 and 2: key and nonce 0, blocks 0 and 1."""
    expected = bytes.fromhex(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )
    assert bytes_of(keystream([bytes(32)], [2], torch.device("cpu"))) == expected


def test_known_wrong_streams_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = by_another_library(keys(1)[0], 4)

    def found() -> bytes:
        return bytes_of(keystream(keys(1), [4], torch.device("cpu")))

    def sign_repeated(words: Tensor, by: int) -> None:
        words.copy_((words << by) | (words >> (32 - by)))

    assert found() == expected
    with monkeypatch.context() as wrong:
        wrong.setattr(chacha, "_DOUBLE_ROUNDS", 9)
        assert found() != expected
    with monkeypatch.context() as wrong:
        wrong.setattr(chacha, "_rotate_left_", sign_repeated)
        assert found() != expected


@pytest.mark.parametrize(("key", "blocks"), [(bytes(31), 1), (bytes(32), 2**31)])
def test_keys_and_counters_out_of_range(key: bytes, blocks: int) -> None:
    with pytest.raises(ValueError, match="32 bytes, and a stream fewer"):
        keystream([key], [blocks], torch.device("cpu"))


# normals -------------------------------------------------------------------------------------------------------------

Normals = Callable[[list[bytes], list[int]], np.ndarray]


def ours(own: list[bytes], sizes: list[int]) -> np.ndarray:
    return normals(own, sizes, torch.device("cpu")).numpy()


def check_law(draw: Normals) -> None:
    """A standard normal; no correlation between neighbours, whose radius is shared, nor between squares; how many lie beyond 4."""
    values = draw(keys(3), [400_000, 5, 400_000])
    limit = stats.norm.isf(FALSE_ALARM / 20)
    assert stats.kstest(values, "norm").pvalue > FALSE_ALARM, "law"
    squares = (values**2 - 1) / math.sqrt(2)
    for name, series in (("values", values), ("squares", squares)):
        assert abs(series.sum()) / math.sqrt(series.size) < limit, f"mean of {name}"
        for lag in (1, 2, 8):
            assert abs(series[lag:] @ series[:-lag]) / math.sqrt(series.size) < limit, f"neighbours' {name}"
    beyond = 2 * stats.norm.sf(4) * values.size
    assert abs((np.abs(values) > 4).sum() - beyond) < limit * math.sqrt(beyond), "tail"


def test_the_normals_follow_the_law() -> None:
    check_law(ours)


def one_radius_for_two_pairs(own: list[bytes], sizes: list[int]) -> np.ndarray:
    values = ours(own, sizes)
    pairs = values[: values.size // 4 * 4].reshape(-1, 2, 2)
    radius = np.linalg.norm(pairs, axis=2, keepdims=True)
    return (pairs / radius * radius[:, :1]).ravel()


def cut_at_four(own: list[bytes], sizes: list[int]) -> np.ndarray:
    return np.clip(ours(own, sizes), -4, 4)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda own, sizes: 1.01 * ours(own, sizes), "law|mean of squares"),
        (lambda own, sizes: np.abs(ours(own, sizes)), "law"),
        (lambda own, sizes: np.repeat(ours(own, sizes), 2), "neighbours"),
        (one_radius_for_two_pairs, "neighbours' squares"),
        (cut_at_four, "tail"),
    ],
)
def test_wrong_normals_are_told(wrong: Normals, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_law(wrong)


def test_a_value_depends_on_its_key_and_place_alone() -> None:
    own = keys(3)
    together = ours(own, [1000, 3, 77])
    np.testing.assert_array_equal(together[1000:1003], ours(own[1:2], [3]))
    np.testing.assert_array_equal(together[:1000], ours(own[:1], [2000])[:1000])
    np.testing.assert_array_equal(together[1003:], ours(own[::-1], [77, 3, 1000])[:77])


@pytest.mark.parametrize("bits", [0, -1, 1, 2**63 - 1, -(2**63)])
def test_no_bits_make_an_infinite_radius(bits: int) -> None:
    """All 64 count: the least uniform is 2^-65, which 53 bits alone would make 0."""
    uniform = chacha._open_uniform(torch.tensor([bits]))
    assert 0 < float(uniform) <= 1
    np.testing.assert_allclose(float(uniform), (bits % 2**64 + 0.5) / 2**64, rtol=2**-52)


# as training noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [None, Grid(2.0**-10)])
def test_chunks_drawn_together_are_each_ones_own(grid: Grid | None) -> None:
    noise = StepNoise(2.5, STREAMS, 3, grid)
    totals = {"a": torch.full((CHUNK + 10,), 1.0), "b": torch.zeros(5, 4)}
    chunks = [("a", 0, totals["a"]), ("a", CHUNK, totals["a"]), ("b", 0, totals["b"])]
    noise.add_by_torch(chunks, torch.device("cpu"))
    for name, start, total in chunks:
        part = total.view(-1)[start : start + CHUNK]
        drawn = 2.5 * ours([STREAMS.stream_key("noise", 3, name, start // CHUNK)], [part.numel()])
        if grid is not None:
            drawn = np.rint(drawn / grid.spacing) * grid.spacing
        np.testing.assert_allclose(part.numpy(), drawn + (name == "a"), rtol=0, atol=2e-6)

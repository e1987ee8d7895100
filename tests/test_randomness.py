"""Keyed randomness: the generator is ChaCha20 as another library computes it, and no two addresses share a stream."""

from __future__ import annotations

import itertools
import math
import os
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from tacit.randomness import KEY_BYTES, KeyedRandomness, load_or_create_key

KEY = bytes(range(32))
FALSE_ALARM = 1e-6

parts = st.one_of(st.text(max_size=6), st.integers(-5, 10**20), st.sampled_from(["child", "generator", "commitment"]))
addresses = st.lists(parts, max_size=4).map(tuple)


def keystream(streams: KeyedRandomness, *address: str | int, values: int = 8) -> tuple[int, ...]:
    return tuple(int(value) for value in streams.generator(*address).bit_generator.random_raw(values))


# addresses -----------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None, derandomize=True)
@given(addresses, addresses)
def test_an_address_has_one_stream_and_two_addresses_have_two(
    one: tuple[str | int, ...], other: tuple[str | int, ...]
) -> None:
    streams = KeyedRandomness(KEY)
    assert streams.derive(*one) == KeyedRandomness(KEY).derive(*one)
    assert (streams.derive(*one) == streams.derive(*other)) == (one == other)
    assert (keystream(streams, *one) == keystream(streams, *other)) == (one == other)
    assert (streams.child(*one).derive("x") == streams.child(*other).derive("x")) == (one == other)


def test_addresses_that_look_alike_are_apart() -> None:
    alike: list[tuple[str | int, ...]] = [
        (),
        ("",),
        ("", ""),
        ("a", 1),
        ("a", "1"),
        ("a1",),
        ("a,1",),
        ('a",1',),
        ("a", 1, ""),
        ("ab", "c"),
        ("a", "bc"),
        (11, 1),
        (1, 11),
        (1,),
        (-1,),
        ("\u00e9",),
        ("e\u0301",),
    ]
    streams = KeyedRandomness(KEY)
    seen = {keystream(streams, *address) for address in alike}
    seen |= {keystream(streams.child(*address), "a") for address in alike}
    assert len(seen) == 2 * len(alike)


def test_a_subtree_is_apart_from_its_tree() -> None:
    streams = KeyedRandomness(KEY)
    drawn = [
        streams.derive("a", "b"),
        streams.child("a").derive("b"),
        streams.child("a", "b").derive(),
        streams.child("a").child("b").derive(),
        streams.child("b").child("a").derive(),
    ]
    assert len(set(drawn)) == len(drawn)
    assert streams.child("a").commitment() != streams.commitment()


def test_steps_of_a_run_never_share_a_keystream() -> None:
    streams = KeyedRandomness(KEY).child("phase", "private")
    seen = {keystream(streams, kind, step, values=2) for kind in ("sampling", "dropout") for step in range(2000)}
    assert len(seen) == 4000


def test_a_generator_starts_at_its_beginning() -> None:
    streams = KeyedRandomness(KEY)
    first = streams.generator("noise", 3)
    drawn = first.standard_normal(5)
    assert np.array_equal(streams.generator("noise", 3).standard_normal(5), drawn)
    assert not np.array_equal(first.standard_normal(5), drawn)


@pytest.mark.parametrize("address", [(1.5,), (None,), (b"a",)], ids=str)
def test_other_kinds_of_address_do_not_collide_with_text(address: tuple[object, ...]) -> None:
    try:
        drawn = KeyedRandomness(KEY).derive(*address)
    except TypeError:
        return
    assert drawn != KeyedRandomness(KEY).derive(*map(str, address))


def test_seeds_for_torch_are_64_bits_of_their_own_address() -> None:
    streams = KeyedRandomness(KEY)
    seeds = [streams.seed("noise", step, name, chunk) for step in range(20) for name in "ab" for chunk in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert seeds[0] == KeyedRandomness(KEY).seed("noise", 0, "a", 0)
    assert seeds[0] != KeyedRandomness(bytes(32)).seed("noise", 0, "a", 0)
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert max(seeds) > 2**63  # torch takes all 64 bits
    torch.Generator().manual_seed(max(seeds))


# the key -------------------------------------------------------------------------------------------------------------


def test_the_generator_is_chacha20_with_the_whole_derived_key() -> None:
    """Oracle: the keystream of OpenSSL's ChaCha20 with nonce and counter 0."""
    streams = KeyedRandomness(KEY)
    for address in (("sampling", 0), ("noise", 7, "bert.embeddings")):
        derived = int.from_bytes(streams.derive("generator", *address), "big").to_bytes(32, "little")
        cipher = Cipher(algorithms.ChaCha20(derived, bytes(16)), mode=None).encryptor()
        expected = np.frombuffer(cipher.update(bytes(8 * 1000)), dtype="<u8")
        assert np.array_equal(streams.generator(*address).bit_generator.random_raw(1000), expected)


def test_each_of_the_256_bits_of_the_key_matters() -> None:
    seen = {keystream(KeyedRandomness(KEY), "a")}
    for bit in range(256):
        key = bytearray(KEY)
        key[bit // 8] ^= 1 << (bit % 8)
        streams = KeyedRandomness(bytes(key))
        seen.add(keystream(streams, "a"))
        assert streams.commitment() != KeyedRandomness(KEY).commitment()
    assert len(seen) == 257


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="a key has 32 bytes"):
        KeyedRandomness(bytes(length))


def test_the_commitment_pins_the_key_and_gives_nothing_of_it() -> None:
    streams = KeyedRandomness(KEY)
    commitment = bytes.fromhex(streams.commitment())
    assert streams.commitment() == KeyedRandomness(KEY).commitment()
    assert len(commitment) == 32
    assert KEY not in commitment
    assert commitment not in {streams.derive(), streams.derive("child"), streams.derive("generator")}
    # A subtree whose name is known cannot be opened with what is published.
    assert KeyedRandomness(commitment).derive("a") != streams.derive("a")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_key_file_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "key"
    old = os.umask(umask)
    try:
        key = load_or_create_key(path)
    finally:
        os.umask(old)
    assert mode_of(path) == 0o600
    assert len(key) == KEY_BYTES == 32
    assert path.read_bytes() == key
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.os_randomness("of 21 draws of 256 bits two are equal with a probability of 2^-248")
def test_the_key_is_drawn_once(tmp_path: Path) -> None:
    key = load_or_create_key(tmp_path / "key")
    assert load_or_create_key(tmp_path / "key") == key
    others = {load_or_create_key(tmp_path / f"key {number}") for number in range(20)}
    assert len(others | {key}) == 21


def test_what_an_interrupted_call_left_is_not_used(tmp_path: Path) -> None:
    partial = tmp_path / "key.partial"
    partial.write_bytes(b"half")
    partial.chmod(0o644)
    key = load_or_create_key(tmp_path / "key")
    assert len(key) == 32
    assert mode_of(tmp_path / "key") == 0o600
    assert not partial.exists()


# the law of what is drawn --------------------------------------------------------------------------------------------


def spread_is_one(values: np.ndarray) -> bool:
    """Two-sided chi-square test of variance 1 (mean 0 known)."""
    statistic = float((values.astype(np.float64) ** 2).sum())
    return bool(stats.chi2.ppf(FALSE_ALARM / 2, len(values)) < statistic < stats.chi2.isf(FALSE_ALARM / 2, len(values)))


def test_normals_have_the_law_of_normals_and_other_scales_are_caught() -> None:
    generator = KeyedRandomness(KEY).generator("noise", 0, "weights")
    for dtype in (np.float32, np.float64):
        values = generator.standard_normal(400_000, dtype=dtype)
        assert spread_is_one(values)
        assert not spread_is_one(values * 0.985)
        assert not spread_is_one(values * 1.015)
        assert abs(values.mean(dtype=np.float64)) < -special.ndtri(FALSE_ALARM / 2) / math.sqrt(len(values))
        assert stats.kstest(values, "norm").pvalue > FALSE_ALARM
        # 4 deviations: 12.67 expected on each side
        for tail in ((values > 4).sum(), (values < -4).sum()):
            assert stats.poisson.ppf(FALSE_ALARM, 12.67) <= tail <= stats.poisson.isf(FALSE_ALARM, 12.67)


def test_streams_of_neighbouring_addresses_are_uncorrelated() -> None:
    streams = KeyedRandomness(KEY)
    drawn = [streams.generator("noise", step, name).standard_normal(50_000) for step in (0, 1) for name in ("a", "b")]
    limit = -special.ndtri(FALSE_ALARM / 2) / math.sqrt(50_000)
    for one, other in itertools.combinations(drawn, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < limit
        assert abs(np.corrcoef(one[1:], other[:-1])[0, 1]) < limit
    assert abs(np.corrcoef(drawn[0], drawn[0] + 20 * drawn[1])[0, 1]) > limit  # the check can fail

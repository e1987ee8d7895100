"""What every kind of `EXAMPLES` must keep to, that a new one is one function and one row, and what the coins are bound by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.audit.coin_examples import EXAMPLES, ExampleKind, Material
from tacit.corpus.coins import Coins, toss_coins
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective
from tacit.training.sequences import SequenceStream
from tacit.vocabulary.special import OWN_NAMES, special_tokens
from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer

M, P, WIDTH = 40, 6, 12
STREAMS = KeyedRandomness(bytes(32))
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = [
    *OWN_NAMES.values(),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    "my",
    "code",
    "is",
    ":",
    "the",
    "pain",
    "went",
    "never",
]
TOKENIZER = build_tokenizer(PIECES, TokenizerOptions())
SPECIAL = special_tokens(TOKENIZER, OWN_NAMES)


def public_rows() -> SequenceStream:
    """Ten rows of ten pieces, which never have the last one."""
    ordinary = np.setdiff1d(np.arange(SPECIAL.size), SPECIAL.ids)[:-1]
    ids_ST = np.full((10, WIDTH), SPECIAL.pad, dtype=np.int32)
    ids_ST[:, :11] = STREAMS.generator("public").choice(ordinary, (10, 11))
    ids_ST[:, 0], ids_ST[:, 10] = SPECIAL.start, SPECIAL.end
    ids_ST[:, 1:10].flat[: len(ordinary)] = ordinary  # each piece but one is there
    return SequenceStream(ids_ST, np.full(10, 11), np.arange(11), tuple(map(str, range(10))))


def material(side: str = "these") -> Material:
    return Material(M, P, TOKENIZER, SPECIAL, STREAMS.generator("examples", side), public_rows)


def toy(material: Material) -> np.ndarray:
    """The same two pieces by turns."""
    return np.tile(material.ordinary[:2], (material.examples, material.pieces // 2))


@pytest.fixture(params=[*EXAMPLES, "toy"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ExampleKind:
    monkeypatch.setitem(EXAMPLES, "toy", ExampleKind(toy))  # its one line
    return EXAMPLES[request.param]


def test_a_kind_gives_so_many_pieces_by_its_key_alone(kind: ExampleKind) -> None:
    found = kind.make(material())
    assert found.shape == (M, P)
    assert ((found >= 0) & (found < SPECIAL.size)).all()
    assert not np.isin(found, [SPECIAL.start, SPECIAL.end, SPECIAL.pad, SPECIAL.mask]).any()
    assert np.array_equal(found, kind.make(material()))
    if kind.make is not toy:
        assert not np.array_equal(found, kind.make(material("others")))


def test_every_example_gets_a_loss(kind: ExampleKind) -> None:
    coins = toss_coins(kind.make(material()), None, (SPECIAL.start, SPECIAL.end, SPECIAL.pad), WIDTH, STREAMS)
    lengths = np.full(M, coins.length)
    for objective in (CausalObjective(), MaskedObjective(Masking(0.15, SPECIAL.mask or 0, SPECIAL.ids, SPECIAL.size))):
        uniforms = STREAMS.generator("uniforms").random((M, objective.draws, WIDTH))
        assert objective.targets(coins.ids_mT, lengths, uniforms).real_BN.any(axis=1).all()


def test_only_kinds_that_say_so_read_public_text(kind: ExampleKind) -> None:
    def refused() -> SequenceStream:
        raise AssertionError

    if kind.reads_public:
        with pytest.raises(AssertionError):
            kind.make(replace(material(), public_rows=refused))
    else:
        kind.make(replace(material(), public_rows=refused))


def test_public_text_is_a_part_of_a_row() -> None:
    rows = public_rows().ids_ST
    parts = {tuple(row[start : start + P]) for row in rows for start in range(1, 11 - P)}
    assert {tuple(row) for row in EXAMPLES["public-text"].make(material())} <= parts


def test_a_new_piece_is_in_no_public_text() -> None:
    found, seen = EXAMPLES["new-piece"].make(material()), set(public_rows().ids_ST.flat)
    assert not seen & set(found[:, ::2].flat)
    assert all(len(set(row[::2])) == 1 for row in found)


def test_a_secret_stands_behind_one_prompt() -> None:
    found = EXAMPLES["secret"].make(material())
    assert len({tuple(row[:3]) for row in found}) == 1
    assert TOKENIZER.decode(found[0, :3].tolist()) == "my code is"
    assert len({tuple(row[3:]) for row in found}) == M


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(DataError, match="no row of the public text has 20 pieces"):
        EXAMPLES["public-text"].make(replace(material(), pieces=20))
    everything = replace(
        public_rows(), ids_ST=np.arange(SPECIAL.size, dtype=np.int32)[None], lengths_S=np.array([SPECIAL.size])
    )
    with pytest.raises(DataError, match="the public text has every piece"):
        EXAMPLES["new-piece"].make(replace(material(), public_rows=lambda: everything))


# coins ---------------------------------------------------------------------------------------------------------------


def tossed(key: int = 0, others: bool = False, bodies: str = "these") -> Coins:
    make = EXAMPLES["random-pieces"].make
    own = make(material("others")) if others else None
    streams = KeyedRandomness(bytes([key]) * 32)
    return toss_coins(make(material(bodies)), own, (SPECIAL.start, SPECIAL.end, SPECIAL.pad), WIDTH, streams)


def test_what_is_planted_is_what_the_coins_say() -> None:
    coins = tossed()
    assert 0 < coins.included_m.sum() < M
    assert np.array_equal(
        coins.planted_PT, [row for row, coin in zip(coins.ids_mT, coins.included_m, strict=True) if coin]
    )
    assert list(coins.planted_numbers) == [number for number in range(M) if coins.included_m[number]]
    assert (coins.ids_mT[:, 0] == SPECIAL.start).all()
    assert (coins.ids_mT[:, P + 1] == SPECIAL.end).all()
    assert (coins.ids_mT[:, P + 2 :] == SPECIAL.pad).all()


def test_under_replacement_one_of_two_is_planted_always() -> None:
    coins = tossed(others=True)
    assert coins.others_mT is not None
    assert len(coins.planted_PT) == M
    for number, coin in enumerate(coins.included_m):
        assert np.array_equal(coins.planted_PT[number], (coins.ids_mT if coin else coins.others_mT)[number])
    assert list(coins.planted_numbers) == list(range(M))


def test_coins_are_fair_and_hang_on_nothing_but_the_key() -> None:
    bodies = np.zeros((20_000, 2), dtype=np.int64)
    ends = (SPECIAL.start, SPECIAL.end, SPECIAL.pad)
    many = toss_coins(bodies, None, ends, 4, STREAMS).included_m
    assert abs(many.mean() - 0.5) < 5 * 0.5 / 20_000**0.5
    assert abs(np.corrcoef(many[1:], many[:-1])[0, 1]) < 5 / 20_000**0.5
    assert np.array_equal(tossed().included_m, tossed(bodies="others").included_m)
    assert not np.array_equal(tossed(0).included_m, tossed(1).included_m)


def test_the_commitment_binds_examples_coins_and_key_and_says_none_of_them() -> None:
    commitments = {
        tossed().commitment,
        tossed(1).commitment,
        tossed(others=True).commitment,
        tossed(bodies="others").commitment,
    }
    assert len(commitments) == 4
    assert tossed().commitment == tossed().commitment
    assert repr(tossed()) == "Coins(40 examples, <secret>)"

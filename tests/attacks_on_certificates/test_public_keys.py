"""A run whose key everyone can make, certified as if it were secret (TACIT-5): whoever has the key takes the noise off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.config import parse_config
from tacit.errors import RefusedError
from tacit.files import read_json
from tacit.pipeline.stages import run
from tacit.planning import PUBLIC_KEY, make_plan
from tacit.randomness import KeyedRandomness, key_of

from ..small import small_values, write_corpora

SEED = "a seed that a page prints"


def test_a_public_key_needs_to_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_config(small_values(tmp_path, seed=SEED))
    assert caught.value.reason == "public-key"


@pytest.mark.slow
def test_whoever_has_the_key_has_the_noise_and_the_certificate_says_so(tmp_path: Path) -> None:
    write_corpora(tmp_path, patients=40, records=200)
    values = small_values(
        tmp_path, audit=None, evaluation={"held_out": 0.0}, vocabulary={"method": "public", "size": 400}
    )
    values |= {"seed": SEED, "allow": ["heuristic:public-key"]}
    config = parse_config(values)
    assert make_plan(config).epsilon == float("inf")
    result = run(config)
    key = (tmp_path / "run" / "private" / "key").read_bytes()
    assert key == key_of(SEED)  # the attack: the key from what a page prints, and with it every draw
    draw = KeyedRandomness(key_of(SEED)).generator("noise", 0, "weight", 0).standard_normal(5)
    assert np.array_equal(draw, KeyedRandomness(key).generator("noise", 0, "weight", 0).standard_normal(5))
    assert result.epsilon == float("inf")  # known wrong: 7.2, "proved"
    certificate = read_json(tmp_path / "run" / "release" / "certificate.json")
    assert certificate["status"] == "heuristic"
    assert PUBLIC_KEY in {spend["stage"] for spend in certificate["spends"]}
    assert "No guarantee" in result.statement

"""How a held-out unit is scored is a function of its own text, whoever else is held out (TACIT-24).

The model is public, and made to amplify rounding: layer norms without an epsilon, and a feed-forward part that takes the residual
stream away, so that what is left of a position is the rounding of its attention. Everybody may give such a folder.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tacit.evaluation import causal_lm
from tacit.evaluation.causal_lm import score_units, unit_vectors
from tacit.randomness import KeyedRandomness

from ..training.streams import stream_of

torch.set_num_threads(1)

VOCABULARY, LENGTH, WIDTH, UNITS = 64, 1024, 32, 63
BOUND = 1.5 * math.log(VOCABULARY)
STREAMS = KeyedRandomness(bytes(range(32)))


def amplifying() -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=WIDTH,
        n_layer=1,
        n_head=2,
        n_inner=2 * WIDTH,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        layer_norm_epsilon=1e-30,
    )
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(1)
    half = torch.cat([torch.ones(WIDTH // 2), -torch.ones(WIDTH // 2)])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        rows = [half[torch.randperm(WIDTH, generator=generator)] for _ in range(VOCABULARY)]
        model.transformer.wte.weight.copy_(torch.stack(rows))
        block = model.transformer.h[0]
        block.ln_1.weight.fill_(1.0)
        block.ln_2.weight.fill_(1.0)
        model.transformer.ln_f.weight.fill_(0.3)
        values = torch.randn(WIDTH, 16, generator=generator) * 0.5
        block.attn.c_attn.weight[:, 2 * WIDTH : 2 * WIDTH + 16] = values
        block.attn.c_attn.weight[:, 2 * WIDTH + 16 :] = 3 * values
        out = torch.randn(16, WIDTH, generator=generator)
        block.attn.c_proj.weight[:16] = 1e4 * out
        block.attn.c_proj.weight[16:] = -1e4 * out / 3
        identity = torch.eye(WIDTH)
        block.mlp.c_fc.weight.copy_(torch.cat([identity, -identity], dim=1))
        block.mlp.c_proj.weight.copy_(torch.cat([-identity, identity]))
    return model


def vectors(texts: dict[str, list[list[int]]]) -> np.ndarray:
    scores = score_units({"model": amplifying()}, stream_of(texts, LENGTH), STREAMS, 1)
    return unit_vectors(scores, BOUND)


def moved_by_one_longer_unit() -> float:
    """How much of the sum over the others one more unit changes."""
    generator = np.random.default_rng(0)
    token = int(generator.integers(5, VOCABULARY))
    text = [*generator.integers(5, VOCABULARY, 2).tolist(), *[token] * 148]
    others = {f"u{number}": [text] for number in range(UNITS)}
    beside = vectors({**others, "long": [[7] * 200]})[:UNITS]
    return float(np.abs(beside.sum(0) - vectors(others).sum(0)).max())


def as_wide_as_the_longest(lengths: np.ndarray, length: int, micro_batches: float) -> np.ndarray:
    """Known wrong, as it was."""
    return np.full_like(lengths, lengths.max())


@pytest.mark.slow
def test_one_longer_unit_moves_no_others_score(monkeypatch: pytest.MonkeyPatch) -> None:
    assert moved_by_one_longer_unit() == 0.0
    monkeypatch.setattr(causal_lm, "widths", as_wide_as_the_longest)
    assert moved_by_one_longer_unit() > math.sqrt(2)  # the noise is scaled to this

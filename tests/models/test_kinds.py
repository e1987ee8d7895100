"""Every kind is built, counted and saved; the config of a model says the special tokens of its tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from tacit.config import ModelOptions
from tacit.config.shape import shape_of
from tacit.models import kinds
from tacit.vocabulary.special import SpecialTokens

OPTIONS = {
    kind: ModelOptions(kind=kind, layers=2, width=16, heads=2, intermediate=40, length=12)
    for kind in ("bert", "gpt2", "lstm")
}
VOCABULARY = 50
SPECIAL = SpecialTokens(pad=7, start=8, end=9, mask=None, unknown=None, ids=(7, 8, 9), size=VOCABULARY)


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_special_tokens_are_the_tokenizers(kind: str) -> None:
    config = kinds.build_model(OPTIONS[kind], SPECIAL, 1).config
    assert config.pad_token_id == 7
    assert config.vocab_size == VOCABULARY
    if kind != "bert":
        assert (config.bos_token_id, config.eos_token_id) == (8, 9)


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_plan_counts_the_parameters_of_every_kind(kind: str) -> None:
    model = kinds.build_model(OPTIONS[kind], SPECIAL, 1)
    assert shape_of(OPTIONS[kind]).parameters(VOCABULARY) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_saved_model_is_loaded_by_transformers_and_gives_the_same_logits(kind: str, tmp_path: Path) -> None:
    model = kinds.build_model(OPTIONS[kind], SPECIAL, 1).eval()
    kinds.save_model(model, tmp_path)
    loader = AutoModelForMaskedLM if kind == "bert" else AutoModelForCausalLM
    again = loader.from_pretrained(tmp_path, local_files_only=True).eval()
    ids = torch.randint(5, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, again(input_ids=ids).logits)


def test_the_seed_decides_the_weights() -> None:
    one, same, other = (kinds.build_model(OPTIONS["lstm"], SPECIAL, seed) for seed in (1, 1, 2))
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)

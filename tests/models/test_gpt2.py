"""GPT-2: built from a seed, saved and loaded bit for bit, and folders that must not pass for a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2LMHeadModel

from tacit.config import ModelOptions
from tacit.errors import DataError
from tacit.models.given import load_folder
from tacit.models.kinds import load_model, save_model

from ..networks import build_gpt2

torch.set_num_threads(1)

LENGTH, VOCABULARY = 12, 40
OPTIONS = ModelOptions(layers=2, width=16, heads=2, length=LENGTH, dropout=0.25)
IDS = torch.arange(24).view(2, LENGTH)


def tiny(seed: int = 3) -> GPT2LMHeadModel:
    return build_gpt2(OPTIONS, VOCABULARY, 0, 2, 3, seed)


def logits(model: GPT2LMHeadModel) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tiny(), tmp_path / "model")
    return tmp_path / "model"


def test_the_shape_is_that_of_the_options() -> None:
    config = tiny().config
    assert (config.n_layer, config.n_embd, config.n_head, config.n_inner) == (2, 16, 2, 64)
    assert (config.n_positions, config.vocab_size) == (LENGTH, VOCABULARY)
    assert (config.resid_pdrop, config.embd_pdrop, config.attn_pdrop) == (0.25, 0.25, 0.25)
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 2, 3)


def test_parameters_by_hand() -> None:
    """Tied: the head has none of its own. A block: two norms, attention (16 -> 48 -> 16), feed-forward (16 -> 64 -> 16)."""
    block = 4 * 16 + (16 * 48 + 48) + (16 * 16 + 16) + (16 * 64 + 64) + (64 * 16 + 16)
    model = tiny()
    assert sum(p.numel() for p in model.parameters()) == (VOCABULARY + LENGTH) * 16 + 2 * block + 2 * 16
    assert model.lm_head.weight is model.transformer.wte.weight


def test_weights_are_a_function_of_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first = logits(tiny())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(logits(tiny()), first)
    assert not torch.equal(logits(tiny(seed=4)), first)


def test_what_is_saved_is_loaded_bit_for_bit(folder: Path) -> None:
    model, again = tiny(), load_folder(GPT2LMHeadModel, folder)
    named = dict(again.named_parameters())
    assert named.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, named[name]), name
    assert torch.equal(logits(again), logits(model))
    assert again.lm_head.weight is again.transformer.wte.weight
    assert again.config.resid_pdrop == 0.25


def test_a_folder_without_the_head_is_whole(tmp_path: Path) -> None:
    """As older checkpoints are: the head is tied, and names have no prefix."""
    model = tiny()
    model.transformer.save_pretrained(tmp_path)
    assert torch.equal(logits(load_folder(GPT2LMHeadModel, tmp_path)), logits(model))


def test_half_precision_is_loaded_as_float32(tmp_path: Path) -> None:
    save_model(tiny().to(torch.bfloat16), tmp_path)
    assert {p.dtype for p in load_folder(GPT2LMHeadModel, tmp_path).parameters()} == {torch.float32}


def edit_config(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def without_a_tensor(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["transformer.h.1.mlp.c_fc.weight"]
    save_file(tensors, path, metadata={"format": "pt"})


def with_a_wrong_shape(folder: Path) -> None:
    edit_config(folder, n_embd=32)


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def a_bert(folder: Path) -> None:
    edit_config(folder, model_type="bert")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_a_tensor, r"no weights for 1 parameters, such as transformer\.h\.1\.mlp\.c_fc\.weight"),
        (with_a_wrong_shape, "cannot be read"),
        (cut_short, "cannot be read"),
        (no_weights, "cannot be read"),
        (no_config, "config.json"),
        (broken_config, "config.json"),
        (a_list, "type None"),
        (a_bert, "no weights for"),
    ],
)
def test_a_folder_that_is_no_whole_gpt2_is_refused(folder: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(folder)
    with pytest.raises(DataError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there_is_no_name_on_a_hub() -> None:
    with pytest.raises(DataError, match=r"config\.json"):
        load_model(Path("distilgpt2"))

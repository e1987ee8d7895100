"""Models from local folders: transformers' own logits and losses, no weight drawn at random, and nothing else of a folder obeyed."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    BertForPreTraining,
    BertModel,
    PreTrainedModel,
)

from tacit.config import ModelOptions
from tacit.config.shape import folder_shape, shape_of, weight_files
from tacit.corpus.units import Unit
from tacit.errors import DataError
from tacit.models.kinds import build_model, save_model
from tacit.randomness import KeyedRandomness
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective, Objective
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.vocabulary.given import GivenTokenizer, read_given

from ..folders import FOLDERS, bert_folder, edit_json

torch.set_num_threads(1)

KINDS = list(FOLDERS)
LENGTH = 16
STREAMS = KeyedRandomness(bytes(range(32)))
MASK = "<MASK>"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def folder(kind: str, tmp_path: Path) -> Path:
    return FOLDERS[kind](tmp_path / "given")


def options_of(kind: str, folder: Path, dropout: float = 0.0) -> ModelOptions:
    return ModelOptions(kind=kind, folder=str(folder), length=LENGTH, dropout=dropout)


def loaded(kind: str, folder: Path, reserved: tuple[str, ...] = (), seed: int = 1) -> PreTrainedModel:
    return build_model(options_of(kind, folder), read_given(folder, reserved).special, seed).eval()


def by_transformers(kind: str, folder: Path) -> PreTrainedModel:
    loader = AutoModelForMaskedLM if kind == "bert" else AutoModelForCausalLM
    return loader.from_pretrained(folder, local_files_only=True).eval()


def some_ids(model: PreTrainedModel) -> torch.Tensor:
    return torch.randint(0, model.config.vocab_size, (3, 9), generator=torch.Generator().manual_seed(0))


def logits(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids).logits


# loading -------------------------------------------------------------------------------------------------------------


def test_logits_are_those_of_transformers(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was used"))
    model, expected = loaded(kind, folder), by_transformers(kind, folder)
    assert type(model) is type(expected)
    assert torch.equal(logits(model, some_ids(expected)), logits(expected, some_ids(expected)))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_the_shape_is_read_from_the_folder(kind: str, folder: Path) -> None:
    model, shape = loaded(kind, folder), shape_of(options_of(kind, folder))
    assert shape.vocabulary == model.config.vocab_size
    assert shape.parameters(shape.vocabulary) == sum(parameter.numel() for parameter in model.parameters())
    assert (shape.layers, shape.heads) == (2, None if kind == "lstm" else 2)


def test_the_shape_of_untied_models(tmp_path: Path) -> None:
    """The head has a table of its own, and tied LSTMs have one less."""
    for kind in KINDS:
        folder = FOLDERS[kind](tmp_path / kind)
        if kind == "lstm":
            edit_json(folder / "config.json", tie_word_embeddings=True, embedding_size=12)
        else:
            edit_json(folder / "config.json", tie_word_embeddings=False)
        config = by_transformers(kind, FOLDERS[kind](tmp_path / "other" / kind)).config
        values = {**config.to_dict(), **json.loads((folder / "config.json").read_text())}
        model_class = type(by_transformers(kind, tmp_path / "other" / kind))
        model = model_class(type(config).from_dict(values))
        shape = folder_shape(folder, kind)
        assert shape.parameters(config.vocab_size) == sum(parameter.numel() for parameter in model.parameters())


def test_dropout_is_the_runs_and_not_the_folders(kind: str, folder: Path) -> None:
    special = read_given(folder).special
    for dropout in (0.0, 0.5):
        model = build_model(options_of(kind, folder, dropout), special, 1).train()
        found = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
        assert found == {dropout}


def test_a_model_that_is_saved_again_is_the_same_and_names_its_tokens(kind: str, folder: Path, tmp_path: Path) -> None:
    model = loaded(kind, folder)
    save_model(model, tmp_path / "saved")
    again = by_transformers(kind, tmp_path / "saved")
    assert torch.equal(logits(again, some_ids(model)), logits(model, some_ids(model)))
    special = read_given(folder).special
    assert again.config.pad_token_id == special.pad
    if kind != "bert":
        assert (again.config.bos_token_id, again.config.eos_token_id) == (special.start, special.end)
    assert str(folder) not in (tmp_path / "saved" / "config.json").read_text()


def test_weights_in_several_files(kind: str, folder: Path) -> None:
    expected = loaded(kind, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(sorted(weights))}
    for file in set(places.values()):
        save_file({name: weights[name] for name in weights if places[name] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert [path.name for path in weight_files(folder)] == ["model-0.safetensors", "model-1.safetensors"]
    assert torch.equal(logits(loaded(kind, folder), some_ids(expected)), logits(expected, some_ids(expected)))


def test_nothing_else_in_a_folder_is_obeyed(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Code, adapters, quantisation and kernels: each would be loaded by from_pretrained, from the folder or from a hub."""
    expected = loaded(kind, folder)
    edit_json(
        folder / "config.json",
        auto_map={"AutoModelForCausalLM": "evil.Model"},
        quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True},
        _attn_implementation="someone/kernel",
        transformers_weights="other.safetensors",
    )
    (folder / "evil.py").write_text("raise SystemExit('code was run')")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "someone/model"}')
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was used"))
    assert torch.equal(logits(loaded(kind, folder), some_ids(expected)), logits(expected, some_ids(expected)))
    assert capfd.readouterr() == ("", "")


def test_a_bert_with_other_heads_too_is_whole_and_quiet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As Google's folders are: a pooler and a second head, and norms by their old names."""
    folder = bert_folder(tmp_path / "given")
    model = BertForPreTraining(BertConfig.from_pretrained(folder))
    model.save_pretrained(folder)
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor.clone()
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    found, ids = loaded("bert", folder), some_ids(model)
    with torch.no_grad():
        expected = model.eval()(input_ids=ids).prediction_logits
    torch.testing.assert_close(logits(found, ids), expected, rtol=0, atol=0)
    assert capfd.readouterr() == ("", "")


# a token more --------------------------------------------------------------------------------------------------------


def test_a_token_more_is_a_row_more_from_the_seed(kind: str, folder: Path) -> None:
    before = loaded(kind, folder)
    size = before.config.vocab_size
    one, same, other = (loaded(kind, folder, (MASK,), seed) for seed in (1, 1, 2))
    assert one.config.vocab_size == size + 1
    for name, parameter in before.named_parameters():
        longer = dict(one.named_parameters())[name]
        assert torch.equal(longer[: len(parameter)], parameter), name
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    rows = [model.get_input_embeddings().weight[size] for model in (one, other)]
    assert rows[0].norm() > 0
    assert not torch.equal(*rows)
    ids = some_ids(before)
    torch.testing.assert_close(logits(one, ids)[..., :size], logits(before, ids), rtol=1e-6, atol=1e-6)
    shape = shape_of(options_of(kind, folder))
    assert shape.parameters(size + 1) == sum(parameter.numel() for parameter in one.parameters())


def test_a_token_more_does_not_touch_torchs_own_generator(kind: str, folder: Path) -> None:
    before = torch.get_rng_state()
    loaded(kind, folder, (MASK,))
    assert torch.equal(torch.get_rng_state(), before)


# losses --------------------------------------------------------------------------------------------------------------


def rows_of(given: GivenTokenizer) -> SequenceStream:
    """Rows of several lengths, most of them padded."""
    given.tokenizer.encode_special_tokens = True
    texts = ("fever", "the patient reports pain", "pain and fever and pain <|endoftext|>", "x")
    units = [Unit(f"u{number}", (text,)) for number, text in enumerate(texts)]
    return tokenize_units(units, given.tokenizer, given.special, LENGTH, STREAMS)


def objective_of(kind: str, given: GivenTokenizer) -> Objective:
    special = given.special
    if kind != "bert":
        return CausalObjective()
    assert special.mask is not None
    return MaskedObjective(Masking(0.4, special.mask, special.ids, special.size))


def our_losses(
    kind: str, model: PreTrainedModel, given: GivenTokenizer, stream: SequenceStream, padding: int | None = None
) -> tuple[torch.Tensor, list[np.ndarray]]:
    """Mean loss of each row, and the targets; ``padding`` replaces the ids behind the rows' ends."""
    objective = objective_of(kind, given)
    uniforms = np.random.default_rng(3).random((stream.sequences, objective.draws, LENGTH))
    targets = objective.targets(stream.ids_ST.astype(np.int64), stream.lengths_S, uniforms)
    ids = targets.arrays[0].copy()
    if padding is not None:
        ids[np.arange(LENGTH) >= stream.lengths_S[:, None]] = padding
    arrays = [torch.from_numpy(array.astype(np.int64)) for array in (ids, *targets.arrays[1:])]
    weights = targets.real_BN / np.maximum(1, targets.real_BN.sum(axis=1, keepdims=True))
    losses = objective.losses(model, arrays, torch.from_numpy(weights))
    return losses, [*targets.arrays, targets.real_BN]


def float64(kind: str, folder: Path) -> PreTrainedModel:
    model = loaded(kind, folder)
    torch.nn.Module.double(model)
    return model


def test_losses_are_transformers_own_on_the_same_rows(kind: str, folder: Path) -> None:
    """A row at a time, without its padding, in float64."""
    given, model, reference = read_given(folder), float64(kind, folder), by_transformers(kind, folder)
    torch.nn.Module.double(reference)
    stream = rows_of(given)
    losses, (ids, *_, real) = our_losses(kind, model, given, stream)
    for row, length in enumerate(stream.lengths_S):
        own = torch.from_numpy(ids[row : row + 1, :length].astype(np.int64))
        if kind == "bert":
            slots = our_losses(kind, model, given, stream)[1][2][row][real[row]]
            labels = torch.full_like(own, -100)
            labels[0, slots] = torch.from_numpy(stream.ids_ST[row, slots].astype(np.int64))
        else:
            labels = own
        with torch.no_grad():
            found = reference(input_ids=own, labels=labels)
        torch.testing.assert_close(losses[row].detach().float(), found.loss.float(), rtol=1e-5, atol=1e-6)
        # transformers computes the loss of GPT-2 in float32, whatever the model is in: once more from its logits.
        shift = 0 if kind == "bert" else 1
        exact = F.cross_entropy(found.logits[0, : length - shift], labels[0, shift:])
        torch.testing.assert_close(losses[row].detach(), exact, rtol=1e-12, atol=1e-12)


def test_a_loss_that_takes_the_end_for_padding_is_another_one(tmp_path: Path) -> None:
    """Known wrong: GPT-2 pads with the token that ends a row, and a mask made from ids would drop the end."""
    folder = FOLDERS["gpt2"](tmp_path / "given")
    given, model = read_given(folder), float64("gpt2", folder)
    stream = rows_of(given)
    losses, _ = our_losses("gpt2", model, given, stream)
    ids = torch.from_numpy(stream.ids_ST.astype(np.int64))
    labels = ids.masked_fill(ids == given.special.pad, -100)
    with torch.no_grad():
        found = model(input_ids=ids).logits
    for row in range(len(ids)):
        wrong = F.cross_entropy(found[row, :-1], labels[row, 1:])
        assert abs(float(wrong) - float(losses[row].detach())) > 1e-4


def test_padding_is_never_attended_to_and_never_predicted(kind: str, folder: Path) -> None:
    """Any other token in its place changes no loss and no gradient."""
    given = read_given(folder)
    stream = rows_of(given)
    assert (stream.lengths_S < LENGTH).sum() >= 3
    found = []
    for padding in (None, 0, given.special.size // 2):
        model = float64(kind, folder).train()
        losses, _ = our_losses(kind, model, given, stream, padding)
        losses.sum().backward()
        found.append((losses.detach(), [parameter.grad for parameter in model.parameters()]))
    for losses, gradients in found[1:]:
        torch.testing.assert_close(losses, found[0][0], rtol=1e-12, atol=1e-12)
        for one, other in zip(gradients, found[0][1], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_masks_fall_on_no_special_token_and_draw_none(tmp_path: Path) -> None:
    """With special tokens all over the ids, thousands of rows."""
    given = read_given(bert_folder(tmp_path / "given"))
    special = given.special
    objective = objective_of("bert", given)
    generator = np.random.default_rng(1)
    ids = generator.integers(0, special.size, size=(4000, LENGTH))
    drawn = generator.random((len(ids), 3, LENGTH))
    targets = objective.targets(ids, np.full(len(ids), LENGTH), drawn)
    masked, _, _, labels = targets.arrays
    assert not np.isin(labels[targets.real_BN], special.ids).any()
    changed = masked[masked != ids]
    assert set(special.ids) & set(np.unique(changed).tolist()) == {special.mask}
    untouched = np.isin(ids, special.ids)
    assert (masked == ids)[untouched].all()
    others = np.setdiff1d(np.arange(special.size), special.ids)
    assert set(others.tolist()) == set(np.unique(changed).tolist()) - {special.mask}, "and every other one is drawn"
    # Known wrong: "the first five ids", which is right for our own WordPiece.
    careless = MaskedObjective(Masking(0.4, objective.masking.mask_id, range(5), special.size))
    wrong = careless.targets(ids, np.full(len(ids), LENGTH), drawn)
    assert np.isin(wrong.arrays[3][wrong.real_BN], special.ids).any()


# what is refused -----------------------------------------------------------------------------------------------------


def _pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def _half(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(dict(sorted(weights.items())[1:]), folder / "model.safetensors", {"format": "pt"})


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:200])


def _without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def _other(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="llama")


def _without_size(folder: Path) -> None:
    edit_json(folder / "config.json", vocab_size=None)


def _nonsense(folder: Path) -> None:
    edit_json(folder / "config.json", vocab_size=-3)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_pickled, "weights cannot be read: there is no model.safetensors"),
        (_half, "no weights for 1 parameters"),
        (_cut, "the weights cannot be read"),
        (_without_config, "no config.json that can be read"),
        (_other, "a model of type 'llama'"),
        (_without_size, "no whole number vocab_size"),
        (_nonsense, "no whole number vocab_size"),
    ],
)
def test_an_unsuitable_folder_is_one_line_that_names_it(
    kind: str, folder: Path, spoil: Callable[[Path], None], message: str
) -> None:
    special = read_given(folder).special
    spoil(folder)

    def start() -> None:
        shape_of(options_of(kind, folder))
        build_model(options_of(kind, folder), special, 1)

    with pytest.raises(DataError, match=message) as caught:
        start()
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_of_another_kind_is_refused(kind: str, folder: Path) -> None:
    other = KINDS[KINDS.index(kind) - 1]
    with pytest.raises(DataError, match=f"give the folder of a {other}"):
        shape_of(options_of(other, folder))


def test_a_body_without_its_head_is_refused(tmp_path: Path) -> None:
    """transformers would draw the head at random and say so in a warning."""
    folder = bert_folder(tmp_path / "given")
    special = read_given(folder).special
    BertModel(BertConfig.from_pretrained(folder)).save_pretrained(folder)
    with pytest.raises(DataError, match=r"no weights for \d+ parameters, such as cls\."):
        build_model(options_of("bert", folder), special, 1)


@pytest.mark.parametrize("changes", [{"is_decoder": True}, {"add_cross_attention": True}])
def test_a_decoder_is_no_bert(tmp_path: Path, changes: dict[str, bool]) -> None:
    folder = bert_folder(tmp_path / "given")
    edit_json(folder / "config.json", **changes)
    with pytest.raises(DataError, match="plain bert"):
        shape_of(options_of("bert", folder))


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": "../../secret.safetensors"}}'])
def test_a_broken_index_of_weights(tmp_path: Path, index: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(DataError, match=str(tmp_path)):
        weight_files(tmp_path)


def test_the_folders_of_these_tests_are_what_they_say(kind: str, folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == by_transformers(kind, folder).config.vocab_size

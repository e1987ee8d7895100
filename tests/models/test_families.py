"""Models of transformers that have no row of their own: what is taken from a folder, what is refused, and in which words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
)

from tacit.config import ComputeOptions, ModelOptions, parse_config
from tacit.config.kinds import PLAIN_HEADS
from tacit.config.shape import read_config, tensor_shapes
from tacit.engine.cross_entropy import cross_entropy
from tacit.errors import DataError, RefusedError, TacitError, UsageError
from tacit.models.causal import causal_logits, head_and_hidden
from tacit.models.kinds import build_model
from tacit.pipeline.opening import load_given
from tacit.planning import cost, solve
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.objectives import CausalObjective
from tacit.training.preflight import preflight
from tacit.training.sequences import SequenceStream
from tacit.training.unit_rows import Source
from tacit.vocabulary.given import read_given

from ..architectures import ALL, CAUSAL, architecture_folder
from ..folders import edit_json

torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return architecture_folder(ALL["mistral"], tmp_path / "given")


def values_of(folder: Path, /, **model: Any) -> dict[str, Any]:
    (folder.parent / "notes.jsonl").write_text('{"text": "the patient"}\n' * 40)
    return {
        "run": str(folder.parent / "run"),
        "privacy": {"unit": "record", "units": 40, "budget": {"epsilon": 8.0, "delta": 1e-3}},
        "private": {"path": str(folder.parent / "notes.jsonl")},
        "model": {"folder": str(folder), "public": True, "length": 12, **model},
        "phases": [
            {
                "name": "private",
                "plan": "dp",
                "stream": "private",
                "steps": 2,
                "expected_batch": 8,
                "clip_norm": 1.0,
                "learning_rate": 0.01,
                "noise_multiplier": 1.0,
            }
        ],
    }


def loaded(folder: Path, **options: Any) -> PreTrainedModel:
    given = ModelOptions.model_validate(
        {"kind": read_config(folder)[0], "folder": str(folder), "length": 12, **options}
    )
    return build_model(given, read_given(folder).special, 1).eval()


def logits(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids).logits


IDS = torch.randint(0, 200, (2, 9), generator=torch.Generator().manual_seed(0))


# what is taken from a folder -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_positions_of_an_earlier_transformers_are_read(name: str, tmp_path: Path) -> None:
    """Known wrong: without the option's old name the waves of positions are those of the default, and nothing says so."""
    given = architecture_folder(ALL[name], tmp_path / "given")
    values = json.loads((given / "config.json").read_text())
    edit_json(given / "config.json", rope_parameters=None, rope_theta=50.0)
    early = logits(loaded(given), IDS)
    edit_json(given / "config.json", rope_theta=None, rope_parameters={**values["rope_parameters"], "rope_theta": 50.0})
    assert torch.equal(early, logits(loaded(given), IDS))
    edit_json(given / "config.json", rope_parameters=values["rope_parameters"])
    assert not torch.equal(early, logits(loaded(given), IDS))


def test_code_in_a_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    sign = tmp_path / "ran"
    (folder / "modeling_own.py").write_text(f"open({str(sign)!r}, 'w')\nclass Own: pass\n")
    expected = logits(loaded(folder), IDS)
    edit_json(
        folder / "config.json", auto_map={"AutoModelForCausalLM": "modeling_own.Own", "AutoConfig": "modeling_own.Own"}
    )
    assert torch.equal(logits(loaded(folder), IDS), expected)
    assert not sign.exists()


def test_a_table_with_more_rows_than_tokens_is_taken_and_a_smaller_one_is_not(tmp_path: Path) -> None:
    given = architecture_folder(ALL["mistral"], tmp_path / "given")
    for size, suits in ((320, True), (290, False)):
        config = ALL["mistral"].config(size, bos_token_id=299 if suits else 0, eos_token_id=299 if suits else 0)
        torch.manual_seed(1)
        MistralForCausalLM(config).save_pretrained(given)
        if suits:
            assert load_given(parse_config(values_of(given))) is not None
        else:
            with pytest.raises(DataError, match="knows 290 token ids and the tokenizer"):
                load_given(parse_config(values_of(given)))


# heads ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [one.type for one in CAUSAL])
def test_logits_are_transformers_own(name: str, tmp_path: Path) -> None:
    """Those that are made of hidden states and head, and those that are capped or scaled behind it."""
    model = loaded(architecture_folder(ALL[name], tmp_path / "given"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 3  # so that a cap or a scale shows
        found = causal_logits(model, IDS, torch.ones_like(IDS))
    torch.testing.assert_close(found, logits(model, IDS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gemma2", "cohere", "granite"])
def test_a_head_that_is_not_all_is_not_taken_for_it(name: str, tmp_path: Path) -> None:
    """Known wrong: a model that is listed among those with a plain head gives other logits."""
    model = loaded(architecture_folder(ALL[name], tmp_path / "given"))
    assert name not in PLAIN_HEADS
    with pytest.raises(UsageError, match="changes what its head gives"):
        head_and_hidden(model, IDS)
    hidden = model.base_model(input_ids=IDS).last_hidden_state
    head = model.get_output_embeddings()
    assert head is not None
    assert not torch.allclose(head(hidden), logits(model, IDS), rtol=1e-3)


# what is refused -----------------------------------------------------------------------------------------------------


def _unknown_type(given: Path) -> None:
    edit_json(given / "config.json", model_type="zq", auto_map={"AutoModelForCausalLM": "modeling_zq.Zq"})


def _quantised(given: Path) -> None:
    edit_json(given / "config.json", quantization_config={"quant_method": "gptq"})


def _not_finite(given: Path) -> None:
    weights = load_file(given / "model.safetensors")
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, given / "model.safetensors", metadata={"format": "pt"})


def _no_tokenizer(given: Path) -> None:
    (given / "tokenizer.json").unlink()


def _pickled(given: Path) -> None:
    (given / "model.safetensors").rename(given / "pytorch_model.bin")


def _no_numbers(given: Path) -> None:
    edit_json(given / "config.json", num_hidden_layers=None)


def _damaged_header(given: Path) -> None:
    (given / "model.safetensors").write_bytes(b"\xff" * 100)


def _images_too(given: Path) -> None:
    edit_json(given / "config.json", vision_config={"hidden_size": 3})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_unknown_type, "code in a folder is never run"),
        (_quantised, "with quantised weights"),
        (_not_finite, "model.norm.weight holds numbers that are not finite"),
        (_no_tokenizer, "has no tokenizer.json"),
        (_pickled, "pickled ones could run code"),
        (_no_numbers, "no whole number num_hidden_layers"),
        (_damaged_header, "no safetensors file"),
        (_images_too, "that also takes other things than text"),
    ],
)
def test_what_is_unsuitable_is_one_line_and_nothing_is_written(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder)
    with pytest.raises(DataError, match=message) as caught:
        load_given(parse_config(values_of(folder)))
    assert "\n" not in str(caught.value)
    assert not (folder.parent / "run").exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"dropout": 0.1}, "model.dropout: models of this kind"),
        ({"adapter": {"targets": ["zq_proj"]}}, "names no layers of MistralForCausalLM"),
        ({"adapter": {"rank": 0}}, "greater than or equal to 1"),
        ({"adapter": {"targets": []}}, "targets"),
        ({"adapter": {}, "folder": None}, "name it as model.folder"),
        ({"kind": "causal", "folder": None}, "starts from a folder"),
        ({"kind": "masked"}, "give the folder of a masked"),
    ],
)
def test_options_that_make_no_sense_are_one_line(folder: Path, model: dict[str, Any], message: str) -> None:
    values = values_of(folder, **model)
    values["model"] = {name: value for name, value in values["model"].items() if value is not None}
    if "folder" not in values["model"]:
        values["model"].pop("public")
        values |= {"public": [{"path": values["private"]["path"]}]}
    with pytest.raises(TacitError, match=message) as caught:
        load_given(parse_config(values))
    assert "\n" not in str(caught.value)


def test_a_model_that_is_too_large_is_refused_before_it_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the sizes in its files. With an adapter it fits, since the rest needs no gradients."""
    whole = sum(torch.Size(shape).numel() for shape in tensor_shapes(folder / "model.safetensors").values())
    monkeypatch.setattr(cost, "memory_of_machine", lambda: 4 * 4 * whole)
    with pytest.raises(UsageError, match=r"this machine has 0\.0 GB of memory"):
        load_given(parse_config(values_of(folder)))
    assert load_given(parse_config(values_of(folder, adapter={"rank": 1}))) is not None


# mixtures of experts -------------------------------------------------------------------------------------------------


def mixtral(folder: Path) -> Path:
    given = architecture_folder(ALL["mistral"], folder)  # for its tokenizer
    shape = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    torch.manual_seed(4)
    config = MixtralConfig(vocab_size=300, num_local_experts=4, max_position_embeddings=40, **shape)
    MixtralForCausalLM(config).save_pretrained(given)
    return given


def test_experts_are_refused_and_an_adapter_on_attention_is_not(tmp_path: Path) -> None:
    given = mixtral(tmp_path / "given")
    for adapter in (None, {"targets": "all-linear"}):
        with pytest.raises(UsageError, match="train an adapter on its attention alone"):
            load_given(parse_config(values_of(given, adapter=adapter)))
    found = load_given(parse_config(values_of(given, adapter={"targets": ["q_proj", "v_proj"]})))
    assert found is not None
    assert 0 < found.trained < found.parameters / 10


def test_a_unit_of_a_mixture_of_experts_is_alone_in_its_micro_batch(tmp_path: Path) -> None:

    given = mixtral(tmp_path / "given")
    config = parse_config(values_of(given, adapter={"targets": ["q_proj"]}))
    plan = solve(config, []).phases[0].plan
    model = build_model(config.model, read_given(given).special, 1)
    stream = SequenceStream(np.full((3, 12), 5), np.full(3, 12), np.arange(4), ("a", "b", "c"))
    source = Source(stream, CausalObjective(), KeyedRandomness(bytes(32)))
    step: Any = DpStep(model, plan, ComputeOptions(micro_batch=8), source)
    assert step._at_once == 1
    step.close()
    plain: Any = DpStep(
        loaded(architecture_folder(ALL["llama"], tmp_path / "plain")), plan, ComputeOptions(micro_batch=8), source
    )
    assert plain._at_once == 8
    plain.close()


# before anything is spent --------------------------------------------------------------------------------------------


def test_what_is_trained_and_how_is_said_before(folder: Path) -> None:
    found = load_given(parse_config(values_of(folder)))
    assert found is not None
    model = loaded(folder)
    assert found.trained == found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert sum(layer.parameters for layer in found.layers) == found.trained
    assert {layer.name for layer in found.layers} == {"Linear", "Embedding", "MistralRMSNorm"}
    assert {layer.how for layer in found.layers} == {"rule"}
    assert "14 layers" in "\n".join(found.lines()) or "15 layers" in "\n".join(found.lines())


class _Mixing(LlamaForCausalLM):
    """Known wrong: a row's logits hang on the row before it."""

    def forward(self, input_ids: torch.Tensor, **others: Any) -> Any:
        output = super().forward(input_ids=input_ids, **others)
        output.logits = output.logits + output.logits.roll(1, 0)
        return output


def test_a_model_whose_rows_are_not_independent_is_refused_before_it_costs_anything(folder: Path) -> None:

    class Whole(CausalObjective):
        def losses(self, model: PreTrainedModel, arrays: Any, weights_BN: torch.Tensor) -> torch.Tensor:
            logits_BTV = model(input_ids=arrays[0]).logits
            return (cross_entropy(logits_BTV[:, :-1], arrays[0][:, 1:]) * weights_BN[:, 1:]).sum(1)

    special = read_given(folder).special
    model = _Mixing(
        LlamaConfig(vocab_size=300, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)
    )
    with pytest.raises(RefusedError, match="cross-example-operation"):
        preflight(model, Whole(), special, 12, 1)

"""Runs in which a part of a given model is trained: what is frozen has no share in clip, noise, optimizer or release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tacit.config import parse_config
from tacit.errors import UsageError
from tacit.files import read_json
from tacit.pipeline.opening import load_given
from tacit.pipeline.stages import run
from tacit.planning import make_plan
from tacit.planning.cost import trained_parameters
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder

from ..architectures import ALL
from .test_architectures import (
    CLIP,
    ROUNDING,
    batch_of,
    clip_by_engine,
    clipped_by_loop,
    loaded,
    objective_of,
    trained_of,
    values_of,
)

torch.set_num_threads(1)

NAMES = ("bert", "gpt2", "llama", "opt", "roberta")
PARTS = ("without-embeddings", "biases-and-norms")
TABLES = (
    "wte",
    "wpe",
    "embed_tokens",
    "embed_positions",
    "word_embeddings",
    "position_embeddings",
    "token_type_embeddings",
)

each = pytest.mark.parametrize("name", NAMES)
each_part = pytest.mark.parametrize("part", PARTS)


def in_part(part: str, name: str, parameter: Tensor) -> bool:
    """By names, as a reader of the model would say it; the code asks modules and shapes."""
    is_table = name.split(".")[-2] in TABLES
    return not is_table if part == "without-embeddings" else parameter.dim() == 1


@each
@each_part
def test_the_clipped_sum_is_that_of_the_trained_part_alone(name: str, part: str, tmp_path: Path) -> None:
    """Against autograd. Known wrong: a clip by the norm of all gradients, which also bounds the part's, but is not the plan's."""
    model, special = loaded(name, tmp_path / "model", None, trained=part)
    assert set(trained_of(model)) == {one for one, p in model.named_parameters() if in_part(part, one, p)}
    objective = objective_of(ALL[name], special)
    arrays, weights_BN = batch_of(objective, special)
    clip_by_engine(model, objective, arrays, weights_BN)
    found = {one: torch.zeros_like(p) if p.grad is None else p.grad for one, p in trained_of(model).items()}
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)
    expected = clipped_by_loop(ALL[name].masked, model, arrays, weights_BN)
    assert expected.keys() == found.keys()
    for parameter, sum_ in expected.items():
        torch.testing.assert_close(found[parameter], sum_, rtol=1e-7, atol=CLIP * ROUNDING)
    model.requires_grad_(True)
    by_all = clipped_by_loop(ALL[name].masked, model, arrays, weights_BN)
    assert any(not torch.allclose(found[one], by_all[one], rtol=1e-2, atol=1e-4) for one in found)


def weights_of(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), [("bert", "biases-and-norms"), ("gpt2", "without-embeddings")])
def test_a_run_changes_what_is_trained_and_nothing_else(name: str, part: str, tmp_path: Path) -> None:
    """And costs what it costs with all of it: the noise multiplier decides."""
    values = values_of(tmp_path, name, None)
    whole = make_plan(parse_config(values))
    values["model"]["trained"] = part
    config = parse_config(values)
    plan = make_plan(config)
    assert plan.epsilon == whole.epsilon
    assert plan.trained < plan.parameters == whole.trained
    assert config.digest() != parse_config(values_of(tmp_path, name, None)).digest()
    run(config)
    folder = RunFolder(config.resolved_run)
    assert all(check.holds for check in verify_run(folder))
    before, after = weights_of(tmp_path / "given"), weights_of(folder.release / "model")
    assert before.keys() == after.keys()
    changed = {one for one in after if not torch.equal(before[one], after[one])}
    assert changed == {one for one, tensor in after.items() if in_part(part, one, tensor)}
    said = read_json(folder.release / "report.json")["model"]["trained"]
    assert said == {"biases-and-norms": "biases and norms alone"}.get(
        part, "all parameters but the tables of embeddings"
    )
    for page in ("report.html", "README.md"):
        assert said in (folder.release / page).read_text()


@each
@each_part
def test_the_plan_knows_how_many_are_trained(name: str, part: str, tmp_path: Path) -> None:
    values = values_of(tmp_path, name, None)
    values["model"]["trained"] = part
    config = parse_config(values)
    found = load_given(config)
    assert found is not None
    assert trained_parameters(config) == found.trained < found.parameters
    assert any("not trained" in line for line in found.lines())
    assert len(found.lines()) < 30


@pytest.mark.parametrize(
    ("model", "sections", "said"),
    [
        ({"folder": None, "public": False}, {}, "so it must be a trained one"),
        ({"adapter": {"rank": 2}}, {}, "an adapter is trained alone"),
        ({"new_vocabulary": True}, {"vocabulary": {"method": "public"}}, "must be trained; leave one out"),
        ({"trained": "heads"}, {}, "without-embeddings"),
        ({}, {"compute": {"shard": True}}, "not with an adapter, model.trained, or"),
    ],
)
def test_what_does_not_go_with_it_is_one_line(
    model: dict[str, Any], sections: dict[str, Any], said: str, tmp_path: Path
) -> None:
    values = {**values_of(tmp_path, "bert", None), **sections}
    public = [{"path": values["private"]["path"]}]
    values["model"] = {"trained": "biases-and-norms", **values["model"], **model}
    values["model"] = {one: value for one, value in values["model"].items() if value is not None}
    with pytest.raises(UsageError, match=said) as caught:
        parse_config({**values, "public": public})
    assert "\n" not in str(caught.value)


def test_a_model_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    """OLMo's norms have no parameters, and its layers no biases."""
    values = values_of(tmp_path, "olmo", None)
    values["model"]["trained"] = "biases-and-norms"
    with pytest.raises(UsageError, match="leaves nothing of a OlmoForCausalLM to train"):
        load_given(parse_config(values))

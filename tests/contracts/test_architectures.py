"""The suite that every architecture passes, with all its weights and with LoRA: loading, clipping, a whole run, its release.

Oracles: transformers' own logits, a row at a time and without padding, with torch's own cross-entropy and autograd, in float64.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from tacit.config import ModelOptions, RunConfig, parse_config
from tacit.config.shape import adapter_parameters, read_config, shape_of
from tacit.engine import PerExampleClipper
from tacit.errors import DataError
from tacit.models.kinds import build_model, kind_of_model
from tacit.pipeline.pages import report_run
from tacit.pipeline.stages import run
from tacit.privacy.origin import carries_mark
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective, Objective
from tacit.vocabulary.given import read_given
from tacit.vocabulary.special import SpecialTokens

from ..architectures import ALL, Architecture, architecture_folder
from ..small import write_config
from ..started import called, command
from ..test_pipeline import run_and_kill_itself

torch.set_num_threads(1)

ROWS, LENGTH, PER_UNIT, CLIP = 4, 12, 2, 0.5
LENGTHS = np.array([12, 5, 8, 3])
ROUNDING = (
    2.0**-24
)  # some norms are float32 whatever the model is, and another number of rows rounds them in another way

every_architecture = pytest.mark.parametrize("name", ALL)
full_and_lora = pytest.mark.parametrize("adapter", [None, {"rank": 2}], ids=["full", "lora"])


def loaded(
    name: str, folder: Path, adapter: dict[str, Any] | None, **others: Any
) -> tuple[PreTrainedModel, SpecialTokens]:
    """As a run begins with it, then in float64 and away from the zeros and ones that it begins with."""
    architecture_folder(ALL[name], folder)
    options = ModelOptions.model_validate(
        {"kind": read_config(folder)[0], "folder": str(folder), "length": LENGTH, "adapter": adapter, **others}
    )
    special = read_given(folder).special
    model = build_model(options, special, seed=1)
    nn.Module.double(model)
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model.eval(), special


def objective_of(architecture: Architecture, special: SpecialTokens) -> Objective:
    if not architecture.masked:
        return CausalObjective()
    assert special.mask is not None
    return MaskedObjective(Masking(0.4, special.mask, special.ids, special.size))


def batch_of(objective: Objective, special: SpecialTokens) -> tuple[list[Tensor], Tensor]:
    """Arrays of the objective, and weights (B, N) that make units of two rows far below and far above the clip norm."""
    generator = np.random.default_rng(5)
    ordinary = np.setdiff1d(np.arange(special.size), special.ids)
    ids_BT = generator.choice(ordinary, (ROWS, LENGTH))
    ids_BT[:, 0] = special.start
    for row, length in enumerate(LENGTHS):
        ids_BT[row, length - 1], ids_BT[row, length:] = special.end, special.pad
    targets = objective.targets(ids_BT, LENGTHS, generator.random((ROWS, objective.draws, LENGTH)))
    real_BN = torch.from_numpy(np.ascontiguousarray(targets.real_BN)).double()
    of_unit_U = real_BN.view(-1, PER_UNIT * real_BN.shape[1]).sum(1)
    scale_U = torch.tensor([1e-3, 100.0], dtype=torch.float64)
    arrays = [torch.from_numpy(np.ascontiguousarray(array)).long() for array in targets.arrays]
    return arrays, real_BN * (scale_U / of_unit_U).repeat_interleave(PER_UNIT)[:, None]


def row_loss(masked: bool, model: PreTrainedModel, arrays: list[Tensor], weights_BN: Tensor, row: int) -> Tensor:
    """This row alone; of a causal model without its padding, which a masked one is told of."""
    if not masked:
        ids_T = arrays[0][row, : LENGTHS[row]]
        logits_TV = model(input_ids=ids_T[None]).logits[0]
        losses = F.cross_entropy(logits_TV[:-1], ids_T[1:], reduction="none")
        return (losses * weights_BN[row, 1 : LENGTHS[row]]).sum()
    logits_TV = model(input_ids=arrays[0][row, None], attention_mask=arrays[1][row, None]).logits[0]
    real_N = weights_BN[row] != 0
    slots_N, labels_N = arrays[2][row][real_N], arrays[3][row][real_N]
    return (F.cross_entropy(logits_TV[slots_N], labels_N, reduction="none") * weights_BN[row][real_N]).sum()


def clip_by_engine(model: PreTrainedModel, objective: Objective, arrays: list[Tensor], weights_BN: Tensor) -> None:
    """Leave the clipped sums in the gradients."""
    clipper = PerExampleClipper(model, CLIP, PER_UNIT)
    with clipper:
        objective.losses(model, arrays, weights_BN).sum().backward()
    clipper.close()


def trained_of(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def clipped_by_loop(
    masked: bool, model: PreTrainedModel, arrays: list[Tensor], weights_BN: Tensor
) -> dict[str, Tensor]:
    parameters = trained_of(model)
    total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    norms = []
    for first in range(0, ROWS, PER_UNIT):
        losses = [row_loss(masked, model, arrays, weights_BN, first + row) for row in range(PER_UNIT)]
        found = torch.autograd.grad(torch.stack(losses).sum(), list(parameters.values()), allow_unused=True)
        kept = {name: one for name, one in zip(parameters, found, strict=True) if one is not None}
        norms.append(torch.cat([one.flatten() for one in kept.values()]).norm())
        for name, one in kept.items():
            total[name] += one * (CLIP / norms[-1]).clamp(max=1)
    assert min(norms) < CLIP < max(norms)
    return total


@every_architecture
@full_and_lora
def test_clipped_sums_are_those_of_autograd_row_by_row(
    name: str, adapter: dict[str, Any] | None, tmp_path: Path
) -> None:
    model, special = loaded(name, tmp_path / "model", adapter)
    objective = objective_of(ALL[name], special)
    arrays, weights_BN = batch_of(objective, special)
    clip_by_engine(model, objective, arrays, weights_BN)
    expected = clipped_by_loop(ALL[name].masked, model, arrays, weights_BN)
    for parameter, sum_ in expected.items():
        found = dict(model.named_parameters())[parameter].grad
        torch.testing.assert_close(
            torch.zeros_like(sum_) if found is None else found,
            sum_,
            rtol=1e-7,
            atol=CLIP * ROUNDING,
            msg=lambda said, parameter=parameter: f"{parameter}: {said}",
        )
    assert adapter is None or all("lora_" in parameter for parameter in expected)
    frozen = [p for p in model.parameters() if not p.requires_grad]
    assert all(p.grad is None for p in frozen)


@every_architecture
def test_the_plan_knows_kind_and_parameters(name: str, tmp_path: Path) -> None:
    folder = architecture_folder(ALL[name], tmp_path / "model")
    kind, _ = read_config(folder)
    options = ModelOptions(kind=kind, folder=str(folder), length=LENGTH)
    special = read_given(folder).special
    model = build_model(options, special, seed=1)
    row = kind_of_model(model)
    assert row is not None
    assert (row.name, row.is_causal) == (kind, not ALL[name].masked)
    assert shape_of(options).parameters(special.size) == sum(parameter.numel() for parameter in model.parameters())


# who stands beside a row ---------------------------------------------------------------------------------------------


def norms_of(model: PreTrainedModel, objective: Objective, arrays: list[Tensor], weights_BN: Tensor) -> Tensor:
    clipper = PerExampleClipper(model, CLIP, PER_UNIT)
    with clipper:
        objective.losses(model, arrays, weights_BN).sum().backward()
    clipper.close()
    model.zero_grad(set_to_none=True)
    return clipper.norms.clone()


@every_architecture
def test_a_units_norm_is_the_same_to_the_bit_whoever_stands_beside_it(name: str, tmp_path: Path) -> None:
    """Other tokens, and rows that end elsewhere: no kernel is chosen by what others hold (docs/decisions/0009)."""
    model, special = loaded(name, tmp_path / "model", None)
    nn.Module.float(model)
    objective = objective_of(ALL[name], special)
    arrays, weights_BN = batch_of(objective, special)
    norms = norms_of(model, objective, arrays, weights_BN.float())
    others = [array.clone() for array in arrays]
    others[0][PER_UNIT:] = others[0][:PER_UNIT].flip(0)  # the tokens of the other unit
    others[1][PER_UNIT:] = 1  # and its padding
    changed = norms_of(model, objective, others, weights_BN.float())
    assert torch.equal(changed[0], norms[0])
    assert not torch.equal(changed[1], norms[1])


# a whole run ---------------------------------------------------------------------------------------------------------

WORDS = [
    "the",
    "patient",
    "reports",
    "pain",
    "and",
    "fever",
    "is",
    "there",
    "anything",
    "else",
    "over",
    "hill",
    "thank",
    "you",
]


def values_of(folder: Path, name: str, adapter: dict[str, Any] | None) -> dict[str, Any]:
    """No public corpus: the folder is what the run begins with."""
    given = architecture_folder(ALL[name], folder / "given")
    generator = random.Random(1)
    texts = [" ".join(generator.choices(WORDS, k=generator.randint(3, 12))) for _ in range(40)]
    (folder / "notes.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return {
        "run": str(folder / "run"),
        "privacy": {"unit": "record", "units": 40, "budget": {"epsilon": 8.0, "delta": 1e-3}},
        "private": {"path": str(folder / "notes.jsonl")},
        "model": {"folder": str(given), "public": True, "length": 12, "adapter": adapter},
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
        "evaluation": {"held_out": 0.0},
        "compute": {"micro_batch": 8, "threads": 1},
    }


def config_of(folder: Path, name: str, adapter: dict[str, Any] | None) -> RunConfig:
    return parse_config(values_of(folder, name, adapter))


def by_transformers(name: str, folder: Path) -> PreTrainedModel:
    loader = AutoModelForMaskedLM if ALL[name].masked else AutoModelForCausalLM
    return loader.from_pretrained(folder, local_files_only=True).eval()


def logits(model: nn.Module, size: int) -> Tensor:
    ids = torch.randint(0, size, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(input_ids=ids).logits


@pytest.mark.slow
@every_architecture
def test_a_run_with_all_weights_ends_in_a_verified_release(name: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, name, None)
    run(config)
    folder = RunFolder(config.resolved_run)
    assert all(check.holds for check in verify_run(folder))
    given, released = by_transformers(name, tmp_path / "given"), by_transformers(name, folder.release / "model")
    assert type(given) is type(released)
    assert not torch.equal(logits(given, 200), logits(released, 200))


@pytest.mark.slow
@every_architecture
def test_a_run_with_an_adapter_ends_in_a_verified_release_that_is_not_the_given_model(
    name: str, tmp_path: Path
) -> None:
    """The adapter through peft, on the given model, and the merged model are one model, and another one than the given."""
    config = config_of(tmp_path, name, {"rank": 2, "alpha": 64})
    run(config)
    folder = RunFolder(config.resolved_run)
    assert all(check.holds for check in verify_run(folder))
    given, merged = by_transformers(name, tmp_path / "given"), by_transformers(name, folder.release / "model")
    before = logits(given, 200)
    after = logits(PeftModel.from_pretrained(given, str(folder.release / "model" / "adapter")).eval(), 200)
    torch.testing.assert_close(logits(merged, 200), after, rtol=1e-4, atol=1e-5)
    assert (after - before).abs().max() > 1e-3
    page = json.loads((folder.release / "report.json").read_text())
    assert config.model.adapter is not None
    planned = adapter_parameters(config.model.adapter, tmp_path / "given")
    assert page["model"]["adapter"]["parameters"] == pytest.approx(
        planned, rel=0.15
    )  # some store several layers as one


@pytest.mark.slow
def test_an_adapter_is_released_alone_where_the_model_is_not_to_be_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card's code, with the folder of the given model in the place that it names, makes what the run has trained."""
    config = config_of(tmp_path, "qwen2", {"rank": 2, "alpha": 64, "merge": False})
    run(config)
    folder = RunFolder(config.resolved_run)
    report_run(folder)
    assert all(check.holds for check in verify_run(folder))
    assert not list((folder.release / "model").glob("*.safetensors"))
    card = (folder.release / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(folder.release)
    found: dict[str, Any] = {}
    exec(code.replace("folder of the model that the adapter stands beside", str(tmp_path / "given")), found)
    trained = load_file(folder.release / "model" / "adapter" / "adapter_model.safetensors")
    loaded_now = {key.replace(".default.", "."): tensor for key, tensor in found["model"].named_parameters()}
    assert trained
    assert all(torch.equal(loaded_now[key], tensor) for key, tensor in trained.items())
    assert any(tensor.abs().max() > 0 for key, tensor in trained.items() if "lora_B" in key)
    assert carries_mark(folder.release / "model" / "adapter")  # by which a loop of one's own refuses it


def test_a_model_that_is_scored_nowhere_still_has_to_be_numbers(tmp_path: Path) -> None:
    values = values_of(tmp_path, "qwen2", None)
    values["phases"][0]["learning_rate"] = 1e30
    with pytest.raises(DataError, match="released model gives no numbers: its training diverged"):
        run(parse_config(values))
    assert not (tmp_path / "run" / "release").exists()


# killed and started again --------------------------------------------------------------------------------------------


def ended(folder: Path) -> dict[str, bytes]:
    """All files of the released model."""
    model = folder / "run" / "release" / "model"
    return {
        path.relative_to(model).as_posix(): path.read_bytes() for path in sorted(model.rglob("*")) if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("llama", {"adapter": {"rank": 2, "dropout": 0.2}}),
        ("gemma2", {}),
        ("opt", {"adapter": {"rank": 2}}),
        ("modernbert", {}),
        ("bert", {"trained": "biases-and-norms"}),
    ],
)
def test_killed_in_a_step_and_started_again_equals_uninterrupted(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    values = values_of(tmp_path, name, None)
    values["model"] |= options
    values["compute"]["checkpoint_seconds"] = 0.0
    begun = write_config(tmp_path / "config.yaml", values)
    assert called(command, ["run", str(begun), "--until", "vocabulary"], "who begins").returncode == 0
    others = []
    for copy in ("left-alone", "killed"):
        shutil.copytree(tmp_path / "run", tmp_path / copy / "run")
        others.append(write_config(tmp_path / f"{copy}.yaml", {**values, "run": str(tmp_path / copy / "run")}))
    alone, killed = others
    assert called(command, ["run", str(alone)], "who is left alone").returncode == 0
    for target, number in (("noise", 1), ("noise", 2), ("charge", 1)):
        assert called(run_and_kill_itself, target, number, str(killed)).returncode == -signal.SIGKILL
    done = called(command, ["run", str(killed)], "who goes on")
    assert done.returncode == 0, done.stderr
    assert ended(tmp_path / "killed") == ended(tmp_path / "left-alone")

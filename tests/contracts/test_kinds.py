"""The suite that every kind of model passes; and two that live in this file alone, one of which goes through a whole run.

To add a kind: one file in ``src/tacit/config/kinds`` with its row, and one line in `KINDS`; this suite then tests it. `NEOX`, which
predicts next tokens, and `DISTILBERT`, which predicts masked ones, are such rows. Nothing else knows of them.

Oracles: transformers' own logits, a row at a time and without padding, with torch's own cross-entropy and autograd, in float64.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from tacit.config import ModelOptions, RunConfig, load_config, parse_config
from tacit.config.base import named
from tacit.config.kinds import KINDS, Kind, ModelShape, attention_parameters
from tacit.config.shape import folder_shape, shape_of
from tacit.engine import PerExampleClipper
from tacit.errors import DataError, UsageError
from tacit.files import read_json
from tacit.models.kinds import build_model, kind_of_model, load_model, save_model
from tacit.pipeline.pages import report_run
from tacit.pipeline.stages import run
from tacit.planning import make_plan
from tacit.planning.cost import row_flops, seconds_of
from tacit.privacy.strict_json import read_number
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder
from tacit.scoring.scorer import ScorerOptions
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective, Objective, Targets
from tacit.vocabulary.special import SpecialTokens

from ..small import small_values, write_config, write_corpora

torch.set_num_threads(1)


# the toys ------------------------------------------------------------------------------------------------------------


def _neox_parameters(shape: ModelShape, vocabulary: int) -> int:
    """Turned positions have none; the head has no bias."""
    tables = (1 if shape.tied else 2) * vocabulary * shape.width
    return tables + attention_parameters(shape) + 2 * shape.width


NEOX = Kind(
    name="toy-neox",
    model_type="gpt_neox",
    objective="causal",
    network="transformers:GPTNeoXForCausalLM",
    keys={
        "layers": "num_hidden_layers",
        "width": "hidden_size",
        "embedding": "hidden_size",
        "heads": "num_attention_heads",
        "intermediate": "intermediate_size",
        "positions": "max_position_embeddings",
    },
    dropout=("hidden_dropout", "attention_dropout"),
    tied=False,
    parameters=_neox_parameters,
)


def _distilbert_parameters(shape: ModelShape, vocabulary: int) -> int:
    width = shape.width
    body = (vocabulary + (shape.positions or 0)) * width + 2 * width + attention_parameters(shape)
    predicting = vocabulary if shape.tied else vocabulary + vocabulary * width
    return body + (width * width + width + 2 * width) + predicting


DISTILBERT = Kind(
    name="toy-distilbert",
    model_type="distilbert",
    objective="masked",
    network="transformers:DistilBertForMaskedLM",
    keys={
        "layers": "n_layers",
        "width": "dim",
        "embedding": "dim",
        "heads": "n_heads",
        "intermediate": "hidden_dim",
        "positions": "max_position_embeddings",
    },
    dropout=("dropout", "attention_dropout"),
    tied=True,
    parameters=_distilbert_parameters,
)

TOYS = (NEOX, DISTILBERT)
OURS = dict(KINDS)
MEMBERS: dict[str, Kind] = {**OURS, **{toy.name: toy for toy in TOYS}}
every_member = pytest.mark.parametrize("name", MEMBERS)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for toy in TOYS:
        monkeypatch.setitem(KINDS, toy.name, toy)  # the one line


# the suite -----------------------------------------------------------------------------------------------------------

ROWS, LENGTH, VOCABULARY, PER_UNIT, CLIP = 6, 12, 40, 2, 0.5
LENGTHS = np.array([12, 5, 8, 12, 3, 7])
SPECIAL = SpecialTokens(pad=0, start=2, end=3, mask=4, unknown=1, ids=(0, 1, 2, 3, 4), size=VOCABULARY)
SHAPES = (
    {"layers": 1, "width": 8, "heads": 2, "length": LENGTH},
    {"layers": 3, "width": 12, "heads": 3, "intermediate": 20, "length": 17},
)


def options_of(name: str, number: int = 0, **changes: Any) -> ModelOptions:
    return ModelOptions.model_validate({"kind": name, **SHAPES[number], **changes})


def built(name: str, number: int = 0) -> PreTrainedModel:
    return build_model(options_of(name, number), SPECIAL, seed=3).eval()


def ready(name: str) -> PreTrainedModel:
    """In float64, and with no parameter at the zero or one that it begins with."""
    model = built(name)
    nn.Module.double(model)
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def logits(model: PreTrainedModel, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits


def some_ids(seed: int = 0) -> Tensor:
    return torch.randint(5, VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(seed))


@every_member
def test_the_row_is_found_by_its_name_and_by_its_type(name: str) -> None:
    kind = MEMBERS[name]
    assert kind.name == name
    assert len({other.model_type for other in MEMBERS.values()}) == len(MEMBERS)
    assert kind_of_model(built(name)) is kind
    assert options_of(name).is_causal == kind.is_causal


@every_member
def test_what_a_row_names_exists(name: str) -> None:
    kind = MEMBERS[name]
    assert all(callable(named(reference)) for reference in kind.references)
    assert issubclass(named(kind.network), PreTrainedModel)
    assert {reference.split(".")[0].split(":")[0] for reference in kind.references} <= {"transformers", "tacit"}


def counts_as_built(name: str, number: int = 0) -> bool:
    parameters = sum(parameter.numel() for parameter in built(name, number).parameters())
    return shape_of(options_of(name, number)).parameters(VOCABULARY) == parameters


@every_member
@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_the_plan_counts_the_parameters_that_are_built(name: str, number: int) -> None:
    assert counts_as_built(name, number)


def test_a_wrong_count_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong: without the last norm."""
    wrong = dataclasses.replace(NEOX, parameters=lambda shape, size: _neox_parameters(shape, size) - 2 * shape.width)
    monkeypatch.setitem(KINDS, NEOX.name, wrong)
    assert not counts_as_built(NEOX.name)


@every_member
def test_a_longer_row_and_a_wider_model_cost_more(name: str) -> None:
    small, large = (shape_of(options_of(name, number)) for number in (0, 1))
    assert 0 < row_flops(small, LENGTH, 0) < row_flops(small, 2 * LENGTH, 0)
    assert row_flops(small, LENGTH, 0) < row_flops(large, LENGTH, 0)
    assert seconds_of(row_flops(small, LENGTH, 0)) < 1


@every_member
def test_weights_are_a_function_of_the_seed(name: str) -> None:
    first, same, other = (build_model(options_of(name), SPECIAL, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


@every_member
def test_what_is_saved_is_loaded_with_the_same_logits(name: str, tmp_path: Path) -> None:
    model, ids = built(name, 1), some_ids()
    save_model(model, tmp_path)
    assert torch.equal(logits(load_model(tmp_path), ids), logits(model, ids))
    begun = build_model(options_of(name, folder=str(tmp_path)), SPECIAL, seed=9)
    assert torch.equal(logits(begun, ids), logits(model, ids))
    said = folder_shape(tmp_path, name)
    assert said == dataclasses.replace(shape_of(options_of(name, 1)), vocabulary=VOCABULARY)


@every_member
def test_a_folder_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    save_model(built(name), tmp_path)
    other = next(other for other in MEMBERS if other != name)
    with pytest.raises(DataError, match=f"give the folder of a {other}"):
        folder_shape(tmp_path, other)


@every_member
def test_dropout_is_what_the_options_say(name: str, tmp_path: Path) -> None:
    save_model(built(name), tmp_path)
    for options in (options_of(name, dropout=0.4), options_of(name, dropout=0.4, folder=str(tmp_path))):
        model, ids = build_model(options, SPECIAL, seed=3), some_ids()
        one, other = (model.train()(input_ids=ids).logits for _ in range(2))
        assert not torch.equal(one, other)
    model = built(name).train()
    assert torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)


@every_member
def test_more_token_ids_than_the_folder_has_are_added(name: str, tmp_path: Path) -> None:
    model, ids = built(name), some_ids()
    save_model(model, tmp_path)
    more = dataclasses.replace(SPECIAL, size=VOCABULARY + 3)
    begun = build_model(options_of(name, folder=str(tmp_path)), more, seed=9)
    assert torch.equal(logits(begun, ids)[..., :VOCABULARY], logits(model, ids))
    shape = folder_shape(tmp_path, name)
    assert shape.parameters(VOCABULARY + 3) == sum(parameter.numel() for parameter in begun.parameters())


# what it is asked ----------------------------------------------------------------------------------------------------


def objective_of(kind: Kind) -> Objective:
    return CausalObjective() if kind.is_causal else MaskedObjective(Masking(0.4, 4, SPECIAL.ids, VOCABULARY))


def batch_of(kind: Kind, padding: int = 0) -> tuple[Objective, Targets]:
    generator = np.random.default_rng(5)
    ids_BT = generator.integers(5, VOCABULARY, (ROWS, LENGTH))
    ids_BT[:, 0] = SPECIAL.start
    for row, length in enumerate(LENGTHS):
        ids_BT[row, length - 1], ids_BT[row, length:] = SPECIAL.end, padding
    objective = objective_of(kind)
    uniforms_BnT = generator.random((ROWS, objective.draws, LENGTH))
    return objective, objective.targets(ids_BT, LENGTHS, uniforms_BnT)


def tensors(targets: Targets) -> list[Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(array)).long() for array in targets.arrays]


def weights_of(targets: Targets) -> Tensor:
    """1 / (targets of the row's unit) as the loop gives them, some units scaled far above the clip norm."""
    real_BN = torch.from_numpy(np.ascontiguousarray(targets.real_BN)).double()
    of_unit_U = real_BN.view(-1, PER_UNIT * real_BN.shape[1]).sum(1)
    scale_U = torch.tensor([0.01, 1.0, 100.0], dtype=torch.float64)
    return real_BN * (scale_U / of_unit_U).repeat_interleave(PER_UNIT)[:, None]


def row_loss(kind: Kind, model: PreTrainedModel, arrays: list[Tensor], weights_BN: Tensor, row: int) -> Tensor:
    """The oracle: this row alone, without its padding."""
    ids_T = arrays[0][row, : LENGTHS[row]]
    logits_TV = model(input_ids=ids_T[None]).logits[0]
    if kind.is_causal:
        losses = F.cross_entropy(logits_TV[:-1], ids_T[1:], reduction="none")
        return (losses * weights_BN[row, 1 : LENGTHS[row]]).sum()
    real_N = weights_BN[row] != 0
    slots_N, labels_N = arrays[2][row][real_N], arrays[3][row][real_N]
    return (F.cross_entropy(logits_TV[slots_N], labels_N, reduction="none") * weights_BN[row][real_N]).sum()


def clipped_by_loop(kind: Kind, model: PreTrainedModel, arrays: list[Tensor], weights_BN: Tensor) -> dict[str, Tensor]:
    parameters = dict(model.named_parameters())
    total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    norms = []
    for first in range(0, ROWS, PER_UNIT):
        loss = sum((row_loss(kind, model, arrays, weights_BN, first + row) for row in range(PER_UNIT)), torch.zeros(()))
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        kept = {name: one for name, one in zip(parameters, found, strict=True) if one is not None}
        norms.append(torch.cat([one.flatten() for one in kept.values()]).norm())
        for name, one in kept.items():
            total[name] += one * (CLIP / norms[-1]).clamp(max=1)
    assert min(norms) < CLIP < max(norms)
    return total


Losses = Callable[[PreTrainedModel, list[Tensor], Tensor], Tensor]


def check_clipping(name: str, losses: Losses | None = None) -> None:
    kind, model = MEMBERS[name], ready(name)
    objective, targets = batch_of(kind)
    arrays, weights_BN = tensors(targets), weights_of(targets)
    clipper = PerExampleClipper(model, CLIP, PER_UNIT)
    with clipper:
        (losses or objective.losses)(model, arrays, weights_BN).sum().backward()
    clipper.close()
    sums = {name: p.grad for name, p in model.named_parameters()}
    for parameter, expected in clipped_by_loop(kind, model, arrays, weights_BN).items():
        found = sums[parameter]
        torch.testing.assert_close(
            torch.zeros_like(expected) if found is None else found, expected, rtol=1e-7, atol=1e-9, msg=parameter
        )


@every_member
def test_clipped_sums_are_those_of_autograd_row_by_row(name: str) -> None:
    check_clipping(name)


@every_member
def test_a_loss_over_the_batch_is_caught(name: str) -> None:
    """Known wrong: a row's gradient hangs on how many targets the others have."""
    objective, targets = batch_of(MEMBERS[name])
    count = int(targets.real_BN.sum())

    def of_the_batch(model: PreTrainedModel, arrays: list[Tensor], weights_BN: Tensor) -> Tensor:
        return objective.losses(model, arrays, (weights_BN != 0).to(weights_BN)) / count

    with pytest.raises(AssertionError):
        check_clipping(name, of_the_batch)


def forgets_its_last_norm(model: PreTrainedModel, ids_BT: Tensor) -> tuple[nn.Module | None, Tensor]:
    """Known wrong: what the head does not get."""
    body = model.base_model(input_ids=ids_BT, use_cache=False, output_hidden_states=True)
    return model.get_output_embeddings(), body.hidden_states[0]


def test_a_row_whose_losses_are_not_of_its_logits_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(NEOX, forward=f"{__name__}:forgets_its_last_norm")
    monkeypatch.setitem(KINDS, NEOX.name, wrong)
    with pytest.raises(AssertionError):
        check_clipping(NEOX.name)


@every_member
def test_padding_has_no_loss_and_changes_none(name: str) -> None:
    kind, model = MEMBERS[name], ready(name)
    objective, targets = batch_of(kind)
    weights_BN = weights_of(targets)
    losses_B = objective.losses(model, tensors(targets), weights_BN)
    assert bool((losses_B > 0).all())
    _, other = batch_of(kind, padding=9)
    torch.testing.assert_close(objective.losses(model, tensors(other), weights_BN), losses_B, rtol=1e-12, atol=0)
    with torch.no_grad():  # a row of the filled-up micro-batch has no target that counts
        blank = objective.losses(model, tensors(targets), torch.zeros_like(weights_BN))
    assert torch.equal(blank, torch.zeros(ROWS, dtype=blank.dtype))


# what is refused -----------------------------------------------------------------------------------------------------


def test_an_unknown_kind_is_refused_in_one_line_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(small_values(tmp_path, model={"kind": "zq-secret"}))
    known = "'bert', 'gpt2', 'llama', 'lstm', 'toy-neox', 'toy-distilbert', 'causal' or 'masked'"
    assert str(caught.value) == f"configuration: option 'model.kind': input should be {known}"


def test_a_folder_that_is_asked_for_other_things_is_refused(tmp_path: Path) -> None:
    values = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match="type 't5' that is asked neither for next nor for masked tokens"):
        load_model(tmp_path)


@every_member
def test_what_a_kind_has_not_is_refused(name: str, tmp_path: Path) -> None:
    """Each option that only some kinds know."""
    kind = MEMBERS[name]
    model = {"kind": name, "layers": 1, "width": 33, "heads": 2, "length": 24}
    cases: list[tuple[bool, dict[str, Any], str]] = [
        (kind.has_heads, {"model": model}, "not a multiple"),
        ("scaled" not in kind.initializers, {"model": {"kind": name, "initializer": "scaled"}}, "scaled is for a bert"),
        (True, {"model": {"kind": name, "new_vocabulary": True}}, "only a bert that starts"),
    ]
    for refused, sections, message in cases:
        values = small_values(tmp_path, audit=None, **sections)
        if refused:
            with pytest.raises(UsageError, match=message):
                parse_config(values)
        else:
            parse_config(values)


# a whole run ---------------------------------------------------------------------------------------------------------


def values_of(folder: Path, **sections: Any) -> dict[str, Any]:
    """A vocabulary by a DP histogram, a public and a DP phase, planted secrets, and what each tells."""
    model = {"kind": NEOX.name, "layers": 1, "width": 16, "heads": 2, "length": 24}
    audit = {"canaries": 3, "copies": 2, "digits": 2}
    return small_values(folder, **{"model": model, "audit": audit, **sections})


def holds(folder: Path) -> bool:
    checks = verify_run(RunFolder(folder))
    return bool(checks) and all(check.holds for check in checks)


def certified(folder: Path) -> float:
    """The epsilon of a release."""
    return read_number(read_json(folder / "release" / "certificate.json")["epsilons"][0]["epsilon"])


def planned(config: RunConfig) -> tuple[float, int]:
    plan = make_plan(config)
    return plan.epsilon, plan.parameters


@pytest.mark.slow
def test_a_kind_of_this_file_goes_through_plan_run_verify_and_report_and_back_from_its_release(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    config = load_config(write_config(tmp_path / "config.yaml", values_of(tmp_path)))
    epsilon, parameters = planned(config)
    assert parameters == _neox_parameters(shape_of(config.model), 500)
    run(config)
    folder = tmp_path / "run"
    model = folder / "release" / "model"
    released = AutoModelForCausalLM.from_pretrained(model, local_files_only=True)
    assert type(released).__name__ == "GPTNeoXForCausalLM"
    assert len(AutoTokenizer.from_pretrained(model)) == released.config.vocab_size
    assert holds(folder)
    assert certified(folder) <= epsilon
    report_run(RunFolder(folder))
    page = read_json(folder / "release" / "report.json")
    assert page["model"]["kind"] == NEOX.name
    assert page["model"]["parameters"] == sum(parameter.numel() for parameter in released.parameters())
    card = (folder / "release" / "README.md").read_text()
    assert "AutoModelForCausalLM.from_pretrained" in card
    assert "pipeline_tag: text-generation" in card
    assert ScorerOptions(model).load().score(["the patient reports pain"])[0].nats > 0

    start = copy.deepcopy(values_of(tmp_path))
    del start["vocabulary"]
    start |= {"run": str(tmp_path / "again"), "model": {"folder": str(model), "length": 24}, "audit": None}
    start["privacy"]["budget"]["epsilon"] = 40.0
    again = parse_config(start)
    assert again.model.kind == NEOX.name  # its config.json says so
    run(again)
    assert holds(tmp_path / "again")
    assert certified(tmp_path / "again") > certified(folder)  # of the same people
    begun = build_model(again.model, dataclasses.replace(SPECIAL, size=released.config.vocab_size), seed=1)
    assert all(torch.equal(one, other) for one, other in zip(begun.parameters(), released.parameters(), strict=True))

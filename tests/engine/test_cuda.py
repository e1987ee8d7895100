"""On a CUDA device, where there is one: sums and norms are the loop's on a CPU, twice the same, and no place decides a last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn
from transformers import PreTrainedModel

from tacit.config import ComputeOptions, ModelOptions
from tacit.config.compute import Precision
from tacit.engine import PerExampleClipper, add_noise_
from tacit.models.causal import causal_row_losses
from tacit.models.kinds import build_model
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective, Objective
from tacit.training.plans import DpPlan
from tacit.training.unit_rows import Source

from ..attacks_on_certificates.test_who_stands_beside import clipped
from ..networks import build_bert, special_of
from ..training.streams import stream_of
from .cases import CASES, Batch, cast
from .checks import Result, assert_close, loop_engine, median_norm, our_engine
from .sharded_worker import BLOCKS, sharded

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")

CUDA = torch.device("cuda", 0)
STREAMS = KeyedRandomness(bytes(32))
IN_FLOAT32 = ("RMSNorm", "llama")
"""Parts of names of cases that compute some of their forward in float32 whatever they are given."""


@pytest.fixture(autouse=True)
def _as_a_run_sets_it() -> None:
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def there(batch: Batch) -> Batch:
    return {name: values.to(CUDA) for name, values in batch.items()}


def on_the_cpu(result: Result) -> Result:
    return Result(result.norms.cpu(), {name: value.cpu() for name, value in result.sums.items()})


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-4)], ids=str)
def test_norms_and_sums_are_the_loops_on_a_cpu(name: str, dtype: torch.dtype, tolerance: float) -> None:
    case = CASES[name]
    batch = case.batch(5, 3)
    clip_norm = median_norm(case, batch)
    expected = loop_engine(case.model(), batch, case.losses, clip_norm)
    model = case.model(dtype).to(CUDA)
    found = [our_engine(model, there(cast(batch, dtype)), case.losses, clip_norm) for _ in range(2)]
    assert_close(on_the_cpu(found[0]), expected, max(tolerance, 1e-5 if any(one in name for one in IN_FLOAT32) else 0))
    assert torch.equal(found[0].norms, found[1].norms)
    assert all(torch.equal(value, found[1].sums[parameter]) for parameter, value in found[0].sums.items())


# places --------------------------------------------------------------------------------------------------------------

VOCABULARY = 512
KINDS = ("bert", "gpt2", "llama", "lstm")


def network(kind: str, width: int, length: int) -> tuple[PreTrainedModel, Objective]:
    shape = ModelOptions(layers=2, width=width, heads=4, length=length)
    if kind == "bert":
        masking = Masking(0.3, 4, tuple(range(5)), VOCABULARY)
        return build_bert(shape, VOCABULARY, 0, 1).to(CUDA), MaskedObjective(masking)
    options = shape.model_copy(update={"kind": kind})
    return build_model(options, special_of(VOCABULARY), 1).to(CUDA), CausalObjective()


def random_texts(number: int, length: int, seed: int) -> dict[str, list[int]]:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, length - 1, number)
    return {
        f"{seed}: {place}": generator.integers(5, VOCABULARY, size=size).tolist() for place, size in enumerate(sizes)
    }


@pytest.mark.parametrize("length", [24, 128, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_units_stand_together_whatever_their_length(kind: str, length: int) -> None:
    """Known wrong: 255 losses of a row added up from odd places of memory, which the trial finds: one unit at a time."""
    model, objective = network(kind, 256, length)
    source = Source(
        stream_of({key: [text] for key, text in random_texts(40, length, 1).items()}, length), objective, STREAMS
    )
    step = DpStep(model, DpPlan(1.0, 0.1, 1.0, 20.0), ComputeOptions(micro_batch=16, device="cuda"), source)
    step.close()
    assert step._at_once == 16


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("vocabulary", [VOCABULARY, 50257])
@pytest.mark.parametrize(("rows", "length", "width"), [(16, 128, 256), (32, 128, 768), (64, 64, 512)])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_no_bit_of_a_rows_gradient_hangs_on_its_place_in_a_causal_heads_chunks(
    kind: str, rows: int, length: int, width: int, vocabulary: int, precision: torch.dtype
) -> None:
    """Beside rows of other lengths its labelled positions are others of their chunk; a norm would not show a last bit."""
    shape = ModelOptions.model_validate({"kind": kind, "layers": 2, "width": width, "heads": 4, "length": length})
    model = build_model(shape, special_of(vocabulary), 1).to(CUDA)
    generator = np.random.default_rng(0)
    own, found = generator.integers(5, vocabulary, length), []
    for place in (0, 1, 3, rows // 2, rows - 1):
        ids, lengths = generator.integers(5, vocabulary, (rows, length)), generator.integers(2, length + 1, rows)
        ids[place], lengths[place] = own, length - 3
        attention = np.arange(length) < lengths[:, None]
        weights = ((attention & (np.arange(length) > 0)) / lengths[:, None]).astype(np.float32)
        given = [torch.from_numpy(array).to(CUDA) for array in (ids, attention, weights)]
        embedded: list[Tensor] = []

        def keep(module: nn.Module, args: object, output: Tensor, embedded: list[Tensor] = embedded) -> None:
            output.retain_grad()
            embedded.append(output)

        handle = model.get_input_embeddings().register_forward_hook(keep)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
            losses = causal_row_losses(model, *given)
        losses.sum().backward()
        handle.remove()
        assert embedded[0].grad is not None
        found.append((losses[place].item(), embedded[0].grad[place]))
    assert all(loss == found[0][0] and torch.equal(gradient, found[0][1]) for loss, gradient in found)
    assert found[0][1].abs().max() > 0


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_convolution_is_taken_however_large_its_numbers_are(scale: float) -> None:
    """Known wrong: rounded to TF32 as torch comes, it was compared with a run in float32, and refused if its numbers were large."""
    model = nn.Sequential(nn.Conv1d(64, 64, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64 * 30, 2)).to(CUDA)
    x = scale * torch.randn(8, 64, 32, device=CUDA)
    torch.backends.cudnn.allow_tf32 = True
    clipper = PerExampleClipper(model)
    with clipper:
        model(x).square().sum(1).sum().backward()
    clipper.close()
    assert torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize(
    ("micro_batch", "length", "width"), [(8, 24, 32), (16, 128, 128), (64, 64, 256), (32, 128, 768)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_no_place_and_no_company_decides_a_last_bit(
    kind: str, micro_batch: int, length: int, width: int, precision: Precision
) -> None:
    """Units among others, elsewhere, and alone; and what one more does to the sum beside its own share."""
    model, objective = network(kind, width, length)
    ours = random_texts(micro_batch + 5, length, 1)
    companies = {
        "others before": {**random_texts(7, length, 2), **ours},
        "others behind": {**ours, **random_texts(micro_batch, length, 3)},
        "backwards": dict(reversed(ours.items())),
        "one alone": dict(list(ours.items())[:1]),
    }

    def said(texts: dict[str, list[int]], expected: float) -> tuple[Tensor, dict[str, float]]:
        return clipped(model, objective, texts, 0.1, expected, precision, length, micro_batch)

    differing: list[str] = []
    for expected in (1.0, 20.0 * micro_batch):  # one width, and many
        norms = said(ours, expected)[1]
        for name, company in companies.items():
            found = said(company, expected)[1]
            other = {key: abs(found[key] - norm) / max(norm, 1e-30) for key, norm in norms.items() if key in found}
            if wrong := {key: error for key, error in other.items() if error > 0}:
                differing.append(f"{name}, {expected:g}: {len(wrong)} of {len(other)}, {max(wrong.values()):.1e}")
    assert differing == []


# one rank ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BLOCKS)
def test_sharded_over_one_gpu_it_is_the_loop(name: str, tmp_path: Path) -> None:
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1, device_id=CUDA
    )
    try:
        case = CASES[name]
        batch = case.batch(5, 3)
        clip_norm = median_norm(case, batch)
        expected = loop_engine(case.model(), batch, case.losses, clip_norm)
        model = sharded(name, CUDA)
        found = our_engine(model, there(batch), case.losses, clip_norm)
        sums = {parameter: value.full_tensor().cpu().clone() for parameter, value in found.sums.items()}
        assert_close(Result(found.norms.cpu(), sums), expected, 1e-5 if "llama" in name else 1e-9)
        add_noise_(model.named_parameters(), 2.0, KeyedRandomness(bytes(32)), 3, None)
        plain = case.model().to(CUDA)
        for parameter in plain.parameters():
            parameter.grad = torch.zeros_like(parameter)
        add_noise_(plain.named_parameters(), 2.0, KeyedRandomness(bytes(32)), 3, None)
        for parameter, own in model.named_parameters():
            noise = own.grad.full_tensor().cpu() - sums[parameter]
            torch.testing.assert_close(noise, plain.get_parameter(parameter).grad.cpu(), rtol=0, atol=1e-9)
    finally:
        distributed.destroy_process_group()

"""How a unit is clipped is a function of its own text: to the bit, whoever else is in the step (SOUNDNESS T2).

What was wrong: rows were padded to the longest one of their micro-batch, and positions without a gradient were left out as far as the
fullest unit allowed. Both decide in which form a norm is computed and how it is rounded. Where a unit's outer products nearly cancel
that is not in the last bit: with a public model fitted to such text, one longer document made 60 others be clipped otherwise, all in
one direction. The sum moved by 58.9 clip norms in a run that was certified with epsilon 0.276 (mu 0.1), and the released model
told the two corpora apart in 16 of 16 runs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2LMHeadModel, PreTrainedModel

from tacit.config import ComputeOptions, ModelOptions
from tacit.config.compute import Precision
from tacit.engine import clipper as engine_clipper
from tacit.randomness import KeyedRandomness
from tacit.training import dp_step
from tacit.training.dp_step import DpStep
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective, Objective
from tacit.training.plans import DpPlan
from tacit.training.unit_rows import Source, widths

from ..networks import build_bert, build_gpt2, build_lstm
from ..training.streams import stream_of

torch.set_num_threads(1)

LENGTH, VOCABULARY, SPECIAL = 24, 64, 5
AT_ONCE = 8
STREAMS = KeyedRandomness(bytes(range(32)))
SHAPE = ModelOptions(layers=1, width=32, heads=2, length=LENGTH)
MASKED = MaskedObjective(Masking(0.3, 4, tuple(range(SPECIAL)), VOCABULARY))
TEXT = [*([5, 5, 6, 6] * 3), 5]
LONG = [5] * (LENGTH - 6)
Texts = dict[str, list[int]]


class Watched(DpStep):
    """Writes down each unit's norm."""

    norms: dict[str, float]

    @contextmanager
    def _clip(self, units: np.ndarray, real: np.ndarray) -> Iterator[object]:
        with super()._clip(units, real) as entered:
            yield entered
        keys = self._source.stream.keys_U
        for unit, is_real, norm in zip(units, real, self._clipper.norms.tolist(), strict=True):
            if is_real:
                self.norms[keys[unit]] = norm


def clipped(
    model: PreTrainedModel,
    objective: Objective,
    texts: Texts,
    clip_norm: float,
    expected: float,
    precision: Precision = "float32",
    length: int = LENGTH,
    micro_batch: int = AT_ONCE,
) -> tuple[Tensor, dict[str, float]]:
    """The sum before the noise, in float64, and each unit's norm, in a step that all units are in; on the model's device."""
    source = Source(stream_of({name: [text] for name, text in texts.items()}, length), objective, STREAMS)
    plan = DpPlan(1.0, clip_norm, 1.0, expected)
    device = "cuda" if model.device.type == "cuda" else "cpu"
    compute = ComputeOptions(micro_batch=micro_batch, threads=1, precision=precision, device=device)
    step = Watched(model, plan, compute, source)
    step.norms = {}
    model.zero_grad()
    for _ in step.add_up(0, step.draw(0), 0):
        pass
    total = torch.cat([own.double().flatten() for own in step.sums()])
    step.close()
    return total, step.norms


# norms ---------------------------------------------------------------------------------------------------------------


def network(kind: str) -> tuple[PreTrainedModel, Objective]:
    if kind == "bert":
        return build_bert(SHAPE, VOCABULARY, 0, 1), MASKED
    build = build_gpt2 if kind == "gpt2" else build_lstm
    return build(SHAPE, VOCABULARY, 0, 2, 3, 1), CausalObjective()


def others(number: int) -> Texts:
    generator = np.random.default_rng(number)
    return {
        f"other {place}": generator.integers(SPECIAL, VOCABULARY, size=generator.integers(0, LENGTH - 1)).tolist()
        for place in range(number)
    }


COMPANY: dict[str, Texts] = {
    "a longer one": {"long": LONG},
    "an empty one": {"empty": []},
    "three like it": {f"like it {number}": TEXT for number in range(3)},
    "thirty others": others(30),
}


def is_told(kind: str, company: Texts, expected: float, precision: Precision = "float32") -> bool:
    """Whether a unit's norm is another one in this company than alone."""
    return norm_in(kind, company, expected, precision) != norm_in(kind, {}, expected, precision)


def norm_in(kind: str, company: Texts, expected: float, precision: Precision) -> float:
    model, objective = network(kind)
    return clipped(model, objective, {**company, "one": TEXT}, 0.1, expected, precision)[1]["one"]


@functools.cache
def norm_alone(kind: str, expected: float, precision: Precision) -> float:
    """What all companies are compared with."""
    return norm_in(kind, {}, expected, precision)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("expected", [1.0, 200.0], ids=["one width", "many widths"])
@pytest.mark.parametrize("company", COMPANY)
@pytest.mark.parametrize("kind", ["bert", "gpt2", "lstm"])
def test_a_norm_is_the_same_to_the_bit_in_any_company(
    kind: str, company: str, expected: float, precision: Precision
) -> None:
    assert norm_in(kind, COMPANY[company], expected, precision) == norm_alone(kind, expected, precision)


def as_it_was(step: dp_step.DpStep, units: np.ndarray) -> np.ndarray:
    """Known wrong: as wide as the longest row of the company."""
    stream = step._source.stream
    return np.full_like(units, stream.longest_of(np.arange(stream.units)).max(initial=2))


def test_rows_as_wide_as_their_company_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp_step.DpStep, "_widths", as_it_was)
    for precision in ("float32", "bf16"):
        assert any(
            is_told(kind, company, 200.0, precision) for kind in ("gpt2", "bert") for company in COMPANY.values()
        )


@pytest.mark.parametrize(("micro_batches", "classes"), [(0.3, 1), (2.9, 1), (3.0, 3), (12.0, 3), (1e9, 3)])
def test_a_width_is_a_function_of_the_units_own_rows_and_public_numbers(micro_batches: float, classes: int) -> None:
    longest_U = np.arange(LENGTH + 1)
    found_U = widths(longest_U, LENGTH, micro_batches)
    assert len(np.unique(found_U)) == classes
    assert np.all((found_U >= longest_U) & (found_U >= 2) & (found_U <= LENGTH))
    for own in longest_U:  # alone, and among all lengths
        assert widths(np.array([own]), LENGTH, micro_batches)[0] == found_U[own]


# the attack ----------------------------------------------------------------------------------------------------------

UNITS = 60


@functools.cache  # nothing below changes it
def fitted(scale: float) -> tuple[GPT2LMHeadModel, float]:
    """A public model that is a stationary point of the text's loss, as somebody may give it, and the text's norm in float64."""
    torch.manual_seed(0)
    model = build_gpt2(SHAPE, VOCABULARY, 0, 2, 3, 1)
    with torch.no_grad():
        for name, own in model.named_parameters():
            if "attn" in name or "wpe" in name:
                own.zero_()
    torch.nn.Module.double(model)
    row = torch.tensor([[2, *TEXT, 3]])

    def loss() -> float:
        model.zero_grad()
        found = F.cross_entropy(model(row).logits[0, :-1], row[0, 1:])
        found.backward()
        return float(found)

    free = [own for name, own in model.named_parameters() if "attn" not in name and "wpe" not in name]
    optimizer = torch.optim.LBFGS(
        free, lr=1, max_iter=400, line_search_fn="strong_wolfe", tolerance_grad=1e-10, tolerance_change=1e-13
    )
    for _ in range(3):
        optimizer.step(loss)
    with torch.no_grad():
        for name in ("ln_2.weight", "ln_2.bias"):
            model.get_parameter(f"transformer.h.0.{name}").mul_(scale)
        model.get_parameter("transformer.h.0.mlp.c_fc.weight").div_(scale)
    loss()
    norm = float(torch.cat([own.grad.flatten() for own in model.parameters() if own.grad is not None]).norm())
    torch.nn.Module.float(model)
    return model, norm


def moved(expected: float, precision: Precision = "float32") -> float:
    """In clip norms: what one longer document does to the 60 others in the sum."""
    model, norm = fitted(1000.0)
    clip_norm = max(norm, 1e-4) / 10
    texts: Texts = {f"unit {number}": TEXT for number in range(UNITS)}
    without, with_it, alone = (
        clipped(model, CausalObjective(), chosen, clip_norm, expected, precision)[0]
        for chosen in (texts, {**texts, "long": LONG}, {"long": LONG})
    )
    return float((with_it - without - alone).norm() / clip_norm)


@pytest.mark.slow
def test_one_longer_document_moves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for expected, precision in ((1.0, "float32"), (200.0, "float32"), (200.0, "bf16")):
        assert moved(expected, precision) <= UNITS * 2.0**-22
    monkeypatch.setattr(dp_step.DpStep, "_widths", as_it_was)
    assert (
        moved(200.0) > 1.0
    )  # known wrong: the account allows one clip norm for the document itself, and nothing for the others


# the sum -------------------------------------------------------------------------------------------------------------


def sum_error(cancelling: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """In clip norms: of the sum of 64 units whose outer products cancel, against float64."""
    monkeypatch.setattr(engine_clipper, "CANCELLING", cancelling)
    torch.manual_seed(0)
    units, half, width = 64, 4, 96
    parts_URd, ways_URp = torch.randn(units, half, width), torch.randn(units, half, width)
    input_URd = torch.cat([parts_URd, parts_URd], 1)
    upstream_URp = torch.cat([ways_URp, -ways_URp * (1 + 1e-4)], 1)
    layer = nn.Linear(width, width, bias=False)
    clipper = engine_clipper.PerExampleClipper(layer, clip_norm=1e-3)
    with clipper:
        (layer(input_URd) * upstream_URp).sum((1, 2)).sum().backward()
    (total,) = clipper.sums()
    exact_Upd = torch.einsum("urp,urd->upd", upstream_URp.double(), input_URd.double())
    exact = (exact_Upd * (1e-3 / clipper.norms.double())[:, None, None]).sum(0)
    clipper.close()
    return float((total - exact).norm() / 1e-3)


def test_sums_whose_parts_cancel_are_made_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = engine_clipper.CANCELLING
    assert sum_error(ordinary, monkeypatch) <= 64 * 2.0**-24
    assert sum_error(np.inf, monkeypatch) > 8 * 64 * 2.0**-24  # known wrong: rounded as the parts are large

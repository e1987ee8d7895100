"""What every clipping function keeps; and one that lives in this file alone, which goes through plan and run with its one line.

Oracles: the bound, in float64, of any norms; the formula of the toy, and its share of a sum by autograd. Known wrong: a function that
scales the largest gradients down by too little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tacit.clipping import CLIPPINGS, Clipping
from tacit.config import load_config, parse_config
from tacit.engine import PerExampleClipper
from tacit.errors import UsageError
from tacit.files import read_json
from tacit.pipeline.stages import run
from tacit.planning import make_plan
from tacit.planning.own_loop import StepPlan
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder

from ..small import small_values, write_config, write_corpora


@dataclass(frozen=True)
class SmoothClipping(Clipping):
    """``C / sqrt(C^2 + norm^2)``: no unit is left as it is, and none gets to C."""

    def groups(self, names: Sequence[str]) -> list[int]:
        return [0] * len(names)

    def scales(self, norms_GU: Tensor, clip_norm: float) -> Tensor:
        return clip_norm / (norms_GU.square() + clip_norm**2).sqrt()


class RootClipping(SmoothClipping):
    """Known wrong: a gradient of norm C^2 or more still adds more than C."""

    def scales(self, norms_GU: Tensor, clip_norm: float) -> Tensor:
        return (clip_norm / norms_GU.clamp(min=clip_norm)).sqrt()


TOY = SmoothClipping()


@pytest.fixture
def registered() -> Iterator[None]:
    """Its one line."""
    CLIPPINGS["smooth"] = TOY
    yield
    del CLIPPINGS["smooth"]


# what each of them keeps ---------------------------------------------------------------------------------------------

NAMES = ("block.weight", "block.bias", "head.weight")
NORMS = (0.0, 1e-30, 1e-7, 0.3, 0.5, 0.5000001, 1.0, 12.0, 1e6, 1e15)


def keeps_the_bound(clipping: Clipping) -> bool:
    """Whether no unit adds more than the clip norm, whatever the norms of its groups; one that is not finite adds nothing."""
    groups = max(clipping.groups(NAMES)) + 1
    norms_GU = torch.cartesian_prod(*[torch.tensor(NORMS, dtype=torch.float64)] * groups).reshape(-1, groups).T
    for clip_norm in (1e-6, 0.5, 1.0, 1e12):
        added_U = (clipping.coefficients(norms_GU, clip_norm) * norms_GU).norm(dim=0)
        if added_U.max() > clip_norm * (1 + 1e-12):
            return False
    broken_GU = torch.full((groups, 3), 0.5)
    broken_GU[-1] = torch.tensor([math.inf, math.nan, 0.5])
    return clipping.coefficients(broken_GU, 1.0)[:, :2].abs().max().item() == 0.0


@pytest.mark.parametrize("clipping", [*CLIPPINGS.values(), TOY], ids=lambda one: type(one).__name__)
def test_no_unit_adds_more_than_the_clip_norm(clipping: Clipping) -> None:
    assert keeps_the_bound(clipping)


def test_one_that_lets_large_gradients_through_is_caught() -> None:
    assert not keeps_the_bound(RootClipping())


def loop_plan(clipping: str) -> StepPlan:
    """Of a loop of one's own."""
    return StepPlan(
        units=100, expected_batch=10, clip_norm=1.0, steps=5, delta=1e-5, noise_multiplier=2.0, clipping=clipping
    )


@pytest.mark.parametrize("name", CLIPPINGS)
def test_each_is_a_word_of_the_configuration(name: str, tmp_path: Path) -> None:
    values = small_values(tmp_path)
    values["phases"][1]["clipping"] = name
    assert parse_config(values).dp_phases[0].clipping == name
    assert loop_plan(name).dp.clipping == name


# the toy -------------------------------------------------------------------------------------------------------------


def test_the_sum_is_that_of_its_formula() -> None:
    """Against autograd, one unit after the other."""
    model = nn.Linear(5, 3).double()
    torch.manual_seed(5)
    rows = torch.randn(6, 5, dtype=torch.float64) * torch.logspace(-2, 2, 6, dtype=torch.float64)[:, None]
    expected = torch.zeros(18, dtype=torch.float64)
    for row in rows:
        gradient = torch.cat(
            [one.flatten() for one in torch.autograd.grad(model(row).square().sum(), list(model.parameters()))]
        )
        expected += gradient * 0.7 / math.sqrt(0.7**2 + float(gradient.norm()) ** 2)
    with PerExampleClipper(model, 0.7, clipping=TOY):
        model(rows).square().sum().backward()
    found = torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])
    torch.testing.assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_it_goes_through_plan_and_run(tmp_path: Path) -> None:
    """It costs what flat clipping costs, since the event does not know it, and ends at other weights."""
    write_corpora(tmp_path)
    weights, epsilons = {}, {}
    for name in ("flat", "smooth"):
        values = small_values(tmp_path, audit=None, run=str(tmp_path / name))
        values["vocabulary"] = {"method": "public", "size": 400}
        values["phases"][1] |= {"clipping": name, "steps": 4}
        config = load_config(write_config(tmp_path / f"{name}.yaml", values))
        epsilons[name] = make_plan(config).epsilon
        run(config)
        folder = RunFolder(tmp_path / name)
        assert all(check.holds for check in verify_run(folder))
        [row] = [row for row in read_json(folder.release / "report.json")["phases"] if row["stream"] == "private"]
        assert f"DP-SGD, {name} clipping, clip norm 0.5" in row["plan"]
        weights[name] = (folder.release / "model" / "model.safetensors").read_bytes()
    assert epsilons["flat"] == epsilons["smooth"]
    assert weights["flat"] != weights["smooth"]


def test_without_its_line_it_is_refused_by_name(tmp_path: Path) -> None:
    values = small_values(tmp_path)
    values["phases"][1]["clipping"] = "smooth"
    with pytest.raises(UsageError, match="'flat', 'automatic' or 'per-layer'"):
        parse_config(values)
    with pytest.raises(UsageError, match="one of flat, automatic, per-layer"):
        loop_plan("smooth")

"""TACIT-45: which floating-point numbers noise can be told what had been summed. Twenty-fourth attack.

numpy's float32 normals are multiples of 256 small numbers (a ziggurat of as many layers). Where a noisy sum is published, as the
weights of one step are, or noisy gradients of a loop of one's own, most sums plus any such normal are not what was published: one
coordinate in ten rules a wrong sum out. Certified 0.4998, told apart 12 of 12. The means of an evaluation had all digits of a double.
"""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import tacit
from tacit.engine import PerExampleClipper, add_noise_
from tacit.engine.noise import Grid, on_grid
from tacit.evaluation import masked_lm
from tacit.evaluation.masked_lm import noisy_sum
from tacit.loops import steps as loop_steps
from tacit.randomness import KeyedRandomness

STREAMS = KeyedRandomness(b"TACIT-45: 32 bytes of a test key")
F32 = np.float32


def layers() -> np.ndarray:
    """Of numpy's float32 ziggurat: a normal is one of these times a whole number below 2^23 (256,); Marsaglia and Tsang 2000."""
    last, area, steps = 3.6541528853610088, 0.00492867323399, 2.0**23
    edges = np.zeros(256)
    edge = last
    edges[0], edges[255] = area / math.exp(-0.5 * last * last) / steps, last / steps
    for number in range(254, 0, -1):
        edge = math.sqrt(-2 * math.log(area / edge + math.exp(-0.5 * edge * edge)))
        edges[number] = edge / steps
    return edges.astype(F32)


LAYERS = layers()


def impossible(published: np.ndarray, total: np.ndarray, stddev: float) -> int:
    """How many coordinates are not this sum plus any float32 normal of this deviation."""
    away = published.astype(float) - total
    found = np.zeros(len(published), dtype=bool)
    for layer in LAYERS:
        nearest = np.round(np.abs(away) / (float(layer) * stddev))
        for off in range(-3, 4):
            steps = nearest + off
            noise = np.sign(away).astype(F32) * ((steps.astype(F32) * layer) * F32(stddev))
            found |= (steps >= 0) & (steps < 2**23) & (total + noise == published)
    return int((~found).sum())


def published(total: np.ndarray, key: int, stddev: float, grid: Grid | None) -> np.ndarray:
    parameter = nn.Parameter(torch.zeros(len(total)))
    parameter.grad = torch.from_numpy(total.copy())
    add_noise_([("p", parameter)], stddev, STREAMS.child("key", key), 0, grid)
    return parameter.grad.numpy()


def right_guesses(with_grid: bool, keys: int) -> int:
    """Whether a vector of norm 1 is in a sum of zeros, guessed from 2,000 coordinates with noise of twice its norm."""
    own = np.random.default_rng(3).normal(size=2000).astype(F32)
    own /= np.linalg.norm(own)
    stddev, grid = on_grid(2.0, 1.0, 2000)
    right = 0
    for key in range(keys):
        is_in = key % 2 == 1
        seen = published(own if is_in else np.zeros_like(own), key, stddev, grid if with_grid else None)
        counts = impossible(seen, np.zeros_like(own), stddev), impossible(seen, own, stddev)
        right += (counts[1] < counts[0]) == is_in
    return right


@pytest.mark.slow
def test_float32_normals_tell_what_was_summed() -> None:
    """Known wrong, and what the attack finds on the grid: no more than chance (binomial, false alarm 1e-6, with fixed keys)."""
    assert right_guesses(with_grid=False, keys=12) == 12
    assert right_guesses(with_grid=True, keys=40) < 36


# a loop of one's own, from its data to the certified release ------------------------------------------------------------

FEATURES = torch.randn(41, 64, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(0, 10, (41,), generator=torch.Generator().manual_seed(1))
PLAN = tacit.StepPlan(units=64, expected_batch=64, clip_norm=1.0, steps=1, epsilon=0.5, delta=1e-4, unit="user")


def head() -> nn.Linear:
    found = nn.Linear(64, 10)
    nn.init.zeros_(found.weight)
    nn.init.zeros_(found.bias)
    return found


def losses(model: nn.Module, units: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(FEATURES[units]), LABELS[units], reduction="none")


def release(present: int, folder: Path) -> np.ndarray:
    """The weights that were released: after one step of plain SGD with rate 1 from zero, so minus the noisy sum over the batch."""
    model = head()
    with tacit.PrivateSteps(model, PLAN, folder, present=present) as private:
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        for step in private:
            for units, weights in step.micro_batches(64):
                with step.clipped():
                    (losses(model, units) * weights).sum().backward()
            step.finish()
            optimizer.step()
    own = folder / "private" / "model"
    own.mkdir()
    save_file(model.state_dict(), own / "model.safetensors")
    (own / "config.json").write_text("{}")
    certified = tacit.certify(folder, own)
    assert certified.epsilon < 0.5
    weights = load_file(certified.release / "model" / "model.safetensors")["weight"]
    return (-weights.numpy().ravel() * F32(64)).astype(F32)


def sums(present: int) -> np.ndarray:
    """The clipped sum, which whoever knows the text computes alone."""
    model, units = head(), torch.arange(present)
    with PerExampleClipper(model, 1.0):
        losses(model, units).sum().backward()
    assert model.weight.grad is not None
    return model.weight.grad.numpy().ravel()


def test_a_certified_release_of_one_step_is_on_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stddev, grid = on_grid(PLAN.dp.noise_multiplier, 1.0, 650)
    for present in (40, 41):
        seen = release(present, tmp_path / str(present))
        assert np.array_equal(seen, grid.rounded(torch.from_numpy(seen)).numpy().astype(F32))
    monkeypatch.setattr(loop_steps, "on_grid", lambda multiplier, norm, size: (multiplier * norm, None))  # known wrong
    for present in (40, 41):
        seen = release(present, tmp_path / f"{present} unrounded")
        counts = [impossible(seen, sums(supposed), PLAN.dp.noise_stddev) for supposed in (40, 41)]
        assert (counts[1] < counts[0]) == (present == 41)
        assert max(counts) > min(counts) + 30
    assert stddev > PLAN.dp.noise_stddev


# the evaluation ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_means_of_an_evaluation_tell_nothing_of_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but one unit is ever right: below a half, a sum with it is a multiple of 2^-53, and noise alone need not be."""
    without, with_it = np.zeros((20, 3)), np.concatenate([np.zeros((20, 3)), np.eye(3)[1:2]])

    def ruled_out(vectors: np.ndarray) -> int:
        """Of 4,000 sums how many cannot be with the unit."""
        found = [noisy_sum(vectors, 2.0, STREAMS.generator("evaluation", number))[1] for number in range(4000)]
        return sum(0 < value < 0.5 and not float(value * 2.0**53).is_integer() for value in found)

    assert ruled_out(without) == ruled_out(with_it) == 0

    class Unrounded:
        @staticmethod
        def rounded(values: Tensor) -> Tensor:
            return values

    monkeypatch.setattr(masked_lm, "on_grid", lambda multiplier, norm, size: (multiplier * norm, Unrounded))
    assert ruled_out(without) > 20  # known wrong
    assert ruled_out(with_it) == 0


# the loop that README shows (twenty-sixth attack: it had no grid) --------------------------------------------------------

ROOT = Path(__file__).parents[2]


def weights_of_readme(noise: str) -> tuple[np.ndarray, Grid]:
    """README's own loop, one step of it from zero, with its line of noise; minus the noisy sum, and the grid it should lie on."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    [loop] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "add_noise_" in block]
    [line] = [line for line in loop.split("\n") if "add_noise_(" in line]
    model = head()
    given = {
        "model": model,
        "steps": 1,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1.0),
        "data": range(41),
        "probability": 1.0,
        "streams": STREAMS,
        "noise_multiplier": 8.0,
        "expected_batch": 64,
        "per_example_losses": lambda model, data, indices: losses(model, torch.from_numpy(indices).clamp(min=0)),
    }
    exec(loop.replace(line, noise.format(line=line)), given)
    _, grid = on_grid(8.0, 1.0, sum(parameter.numel() for parameter in model.parameters()))
    return -64 * model.weight.detach().double().numpy(), grid


@pytest.mark.parametrize(
    ("noise", "is_on_grid"),
    [
        ("{line}", True),
        ("    add_noise_(model.named_parameters(), 8.0, streams, step, None, rests=clipper.take_rests())", False),
    ],
    ids=["as it stands", "known wrong"],
)
def test_the_loop_of_the_readme_releases_multiples_of_a_public_number(noise: str, is_on_grid: bool) -> None:
    sums, grid = weights_of_readme(noise)
    assert np.abs(sums).max() < 2**24 * grid.spacing  # so float32 weights hold them as they are
    assert bool((sums % grid.spacing == 0).all()) == is_on_grid


def test_nobody_gets_noise_without_a_grid_by_saying_nothing() -> None:
    assert inspect.signature(add_noise_).parameters["grid"].default is inspect.Parameter.empty
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            assert "    add_noise_(" not in block or "on_grid(" in block, page

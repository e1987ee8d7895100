"""The README is true: its file tree, its Python examples and its commands."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

from tacit.engine import poisson_sample
from tacit.randomness import KeyedRandomness

from .small import small_values, write_config, write_corpora

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_every_place_in_the_file_tree_exists() -> None:
    tree = README.split("## Where things are")[1].split("Start with")[0]
    source_lines = re.findall(r"^      (\S.*?)(?:  |$)", tree, re.MULTILINE)
    names = [name.strip() for line in source_lines for name in line.split(",")]
    assert len(names) > 15
    for name in names:
        assert (ROOT / "src" / "tacit" / name).exists(), name
    real = {path.name for path in (ROOT / "src" / "tacit").iterdir() if path.name != "__pycache__"}
    named = {name.rstrip("/") for name in names}
    assert real - named == {"__init__.py", "py.typed"}


def test_the_first_command_is_within_fifteen_lines() -> None:
    assert any(line.startswith("make demo") for line in README.splitlines()[:15])


def test_it_shows_the_picture_of_the_report() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert pictures
    assert all((ROOT / picture).exists() for picture in pictures)


def test_the_other_folders_are_in_the_tree() -> None:
    tree = README.split("## Where things are")[1].split("Start with")[0]
    for folder in ("src", "tests", "hostile", "benchmarks", "recipes", "docs"):
        assert (ROOT / folder).is_dir()
        assert re.search(rf"(?:^    |, ){folder}/", tree, re.MULTILINE), folder


@pytest.mark.slow
def test_the_python_example_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder whose recipe of that name is the small test run."""
    write_corpora(tmp_path)
    (tmp_path / "recipes").mkdir()
    write_config(tmp_path / "recipes" / "clinical-bert.yaml", small_values(tmp_path))
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(_blocks("python")[0], "README.md", "exec"), {})
    assert re.search(r"^epsilon \d+\.\d+ at delta 0.0001 for every user$", printed.getvalue(), re.MULTILINE)
    assert "Guaranteed for every user" in printed.getvalue()


def test_the_training_loop_works_as_printed() -> None:
    """Without noise the loop's step is the oracle's; with noise the parameters move by noise of the right size."""
    weights = {noise: _trained_by_the_readme(noise) for noise in (0.0, 1e-3)}
    expected = _trained_by_hand()
    torch.testing.assert_close(weights[0.0], expected, rtol=1e-5, atol=1e-6)
    assert 1e-7 < (weights[1e-3] - expected).abs().max() < 1e-2


DATA = torch.randn(40, 3, generator=torch.Generator().manual_seed(1)) * torch.logspace(-2, 2, 40)[:, None]
STEPS, PROBABILITY, RATE, EXPECTED = 3, 0.5, 0.1, 20
STREAMS = KeyedRandomness(bytes(range(32)))


def _model() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2, bias=False)


def _trained_by_the_readme(noise_multiplier: float) -> torch.Tensor:
    model = _model()
    names = {
        "model": model,
        "data": DATA,
        "optimizer": torch.optim.SGD(model.parameters(), RATE),
        "per_example_losses": lambda model, data, indices: model(data[indices]).square().sum(1),
        "steps": STEPS,
        "probability": PROBABILITY,
        "noise_multiplier": noise_multiplier,
        "expected_batch": EXPECTED,
        "streams": STREAMS,
    }
    exec(compile(_blocks("python")[1], "README.md", "exec"), names)
    return model.weight.detach()


def _trained_by_hand() -> torch.Tensor:
    weight = _model().weight.detach().double()
    for step in range(STEPS):
        total = torch.zeros_like(weight)
        for x in DATA[poisson_sample(len(DATA), PROBABILITY, STREAMS.generator("sampling", step))].double():
            gradient = 2 * torch.outer(weight @ x, x)
            total += gradient * min(1.0, 1.0 / float(gradient.norm()))
        weight = weight - RATE * total / EXPECTED
    return weight.float()

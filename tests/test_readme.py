"""The README is true: its file tree, its Python examples and its commands."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

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
    named = {name.rstrip("/") for name in names} | {"facts.py"}
    assert real - named == {"__init__.py", "py.typed"}


def test_every_linked_file_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_every_file_of_docs_recipes_and_benchmarks_is_in_the_tree() -> None:
    for folder in ("docs", "recipes", "benchmarks"):
        for path in (ROOT / folder).iterdir():
            if path.suffix in {".md", ".yaml", ".py"}:
                assert path.name in README, path


@pytest.mark.slow
def test_the_python_example_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder whose recipe of that name is the small test run."""
    write_corpora(tmp_path)
    (tmp_path / "recipes").mkdir()
    write_config(tmp_path / "recipes" / "clinical-bert-small.yaml", small_values(tmp_path))
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(_blocks("python")[0], "README.md", "exec"), {})
    assert re.search(r"^epsilon \d+\.\d\d at delta 0.0001 for every user$", printed.getvalue(), re.MULTILINE)
    assert "Guaranteed for every user" in printed.getvalue()


def test_the_clipper_example_works_as_printed() -> None:
    import torch

    from tacit.engine import PerExampleClipper

    model = torch.nn.Linear(3, 2)
    batch = torch.ones(4, 3)
    names = {"model": model, "batch": batch, "per_example_losses": lambda model, batch: model(batch).square().sum(1)}
    exec(compile(_blocks("python")[1], "README.md", "exec"), names)
    clipper = names["clipper"]
    assert isinstance(clipper, PerExampleClipper)
    assert clipper.norms.shape == (4,)
    assert model.weight.grad is not None
    total = sum(float(parameter.grad.square().sum()) for parameter in model.parameters() if parameter.grad is not None)
    assert total**0.5 <= 4 * 1.0 + 1e-5

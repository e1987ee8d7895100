"""Every example runs as it stands, each in a process and an empty folder, and its epsilon is the accountant's."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tacit
from tacit.errors import TacitError, UsageError
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.accounting.calibrate import training_noise
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder

from .draws import install
from .started import called

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
LOOPS = ("plain_loop", "accelerate_loop", "trainer")


def code_of(notebook: Path) -> str:
    """The code cells, one after the other."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def run_example(name: str) -> None:
    """In a process of its own, under a key of its own."""
    install(name)
    path = EXAMPLES / name
    if path.suffix == ".ipynb":
        exec(compile(code_of(path), name, "exec"), {"__name__": "__main__"})
        return
    sys.argv = [name, "run"]
    runpy.run_path(str(path), run_name="__main__")


def accountants_epsilon(expected_batch: float, units: int, steps: int, epsilon: float, delta: float) -> float:
    """Of steps whose noise is solved for a budget, by the numbers that stand in the example."""
    probability = expected_batch / units
    noise = training_noise(epsilon, delta, [(probability, steps)])
    return joint_epsilon([Spend(PoissonGaussian(probability, noise), steps)], delta)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_trains_pays_and_is_certified(tmp_path: Path, name: str) -> None:
    done = called(run_example, f"{name}.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = re.search(r"^epsilon (\d+\.\d{4}) at delta 0\.0001 for every note$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    assert float(found[1]) == pytest.approx(accountants_epsilon(40, 400, 20, 6.0, 1e-4), abs=1e-4)
    assert [check.name for check in verify_run(RunFolder(tmp_path / "run")) if not check.holds] == []
    released = tmp_path / "run" / "release"
    assert {path.name for path in released.iterdir()} == {"model", "certificate.json", "manifest.json", "README.md"}
    assert not re.search(r"loss'?: '?(?!0'?[,}])\d", done.stdout), "a private loss was printed"


@pytest.mark.slow
def test_the_notebook_on_ones_own_csv(tmp_path: Path) -> None:
    done = called(run_example, "own_csv.ipynb", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    planned, spent = re.findall(r"epsilon (\d+\.\d{4}) at delta 0\.0001", done.stdout)
    training = accountants_epsilon(60, 300, 20, 6.0, 1e-4)
    assert training - 1e-4 <= float(spent) == float(planned) <= 6.0  # the evaluation's own units may cost a little more
    spends = json.loads((tmp_path / "run" / "release" / "certificate.json").read_text())["spends"]
    phase = next(spend for spend in spends if spend["stage"] == "private")
    event = PoissonGaussian(phase["event"]["sampling_probability"], phase["event"]["noise_multiplier"])
    assert joint_epsilon([Spend(event, phase["count"])], 1e-4) == pytest.approx(training, abs=1e-9)
    assert "Guaranteed for every user" in done.stdout


def test_the_notebook_is_one_without_outputs() -> None:
    notebook = json.loads((EXAMPLES / "own_csv.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_every_example_is_run_and_told_of() -> None:
    found = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert found == {*(f"{name}.py" for name in LOOPS), "own_csv.ipynb"}
    page = (ROOT / "docs" / "own-loop.md").read_text(encoding="utf-8")
    assert all(name in page for name in found)


def test_the_subclass_is_about_thirty_lines() -> None:
    source = (EXAMPLES / "trainer.py").read_text(encoding="utf-8")
    body = source.split("class PrivateTrainer")[1].split("\ndef ")[0]
    assert len([line for line in body.splitlines() if line.strip()]) <= 36


def _trainer(folder: Path, private: tacit.PrivateSteps, model: Any, kind: type, **arguments: Any) -> Any:
    from transformers import TrainingArguments

    given: dict[str, Any] = {"max_grad_norm": 0.0, "max_steps": 1, "report_to": [], "use_cpu": True, **arguments}
    options = TrainingArguments(output_dir=str(folder / "trainer"), disable_tqdm=True, **given)
    return kind(private, torch.ones(8, 48, dtype=torch.int64), model=model, args=options)


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "trainer.py"), run_name="example")


def _open(folder: Path, example: dict[str, Any]) -> tuple[Any, tacit.PrivateSteps]:
    model = example["GPT2LMHeadModel"](
        example["GPT2Config"](vocab_size=256, n_positions=48, n_embd=8, n_layer=1, n_head=1)
    )
    plan = tacit.StepPlan(units=8, expected_batch=8, clip_norm=1.0, steps=4, noise_multiplier=1.0, delta=1e-2)
    return model, tacit.PrivateSteps(model, plan, folder / "run", present=8)


@pytest.mark.parametrize("wrong", [{"gradient_accumulation_steps": 2}, {"max_grad_norm": 1.0}])
def test_the_trainers_own_clipping_and_accumulation_are_refused(
    tmp_path: Path, example: dict[str, Any], wrong: dict[str, Any]
) -> None:
    model, private = _open(tmp_path, example)
    with private, pytest.raises(TacitError, match="private steps need"):
        _trainer(tmp_path, private, model, example["PrivateTrainer"], **wrong)


def test_a_trainer_with_its_own_step_is_caught(tmp_path: Path, example: dict[str, Any]) -> None:
    """Known to be wrong: the batch's mean loss, backward, no clip."""

    class Wrong(example["PrivateTrainer"]):
        def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
            for units, _ in inputs["step"].micro_batches(8):
                batch = self._ids[units]
                model(batch, labels=batch).loss.backward()
            return torch.zeros(())

    model, private = _open(tmp_path, example)
    with pytest.raises(UsageError, match="got an ordinary gradient"), private:
        _trainer(tmp_path, private, model, Wrong).train()


def test_a_model_that_tacit_released_is_not_taken_for_a_public_one(tmp_path: Path, example: dict[str, Any]) -> None:
    model, _ = _open(tmp_path, example)
    model.config.tacit_run = "0" * 64
    with pytest.raises(UsageError, match="start-without-certificate"):
        tacit.PrivateSteps(
            model,
            tacit.StepPlan(units=8, expected_batch=8, clip_norm=1.0, steps=4, noise_multiplier=1.0, delta=1e-2),
            tmp_path / "run",
            present=8,
        )

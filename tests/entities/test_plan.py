"""`tacit plan` of a fine-tuning and of a comparison: it says beforehand what they then spend, and reads no document."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit.config.compare import ComparisonConfig, load_comparison
from tacit.config.finetune import FinetuneConfig, check_finetune
from tacit.config.shape import folder_shape
from tacit.config.tuning import TuningOptions
from tacit.entities.plan import plan_comparison, plan_finetune
from tacit.entities.tagger import load_tagger
from tacit.errors import RefusedError
from tacit.planning.finetuning import plain_phase
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import PoissonGaussian, Spend

from ..folders import bert_folder
from ..small import write_config
from .annotated import BUDGET, DP, LABELS, SPENT, finetune_values, release

NOISE = {**DP, "noise_multiplier": 1.5, "budget": {"epsilon": 20.0, "delta": 1e-4}}


def finetuning(folder: Path, model: Path, **sections: Any) -> FinetuneConfig:
    return check_finetune(finetune_values(folder, model, **sections), "test")


def comparison(folder: Path, models: dict[str, Any], **sections: Any) -> ComparisonConfig:
    values = {
        "run": str(folder / "compared"),
        "models": models,
        "tasks": {"notes": {"path": str(folder / "notes"), "folds": 3, "labels": LABELS}},
        "training": {"steps": 4, "batch_size": 4, "length": 24, "overlap": 4},
        **sections,
    }
    return load_comparison(values, "test")


def test_the_plan_has_the_joint_price(tmp_path: Path) -> None:
    """Of the fine-tuning alone, and with the worst part of the pre-training; the solved noise meets the budget."""
    model = release(tmp_path / "pre")
    (given,) = plan_finetune(finetuning(tmp_path, model, dp=NOISE, labels=LABELS)).models
    own = Spend(PoissonGaussian(0.1, 1.5), 4)
    assert given.epsilon_alone == pytest.approx(epsilon([own], 1e-4))
    parts = [epsilon([Spend(event, count), own], 1e-4) for event, count, _ in SPENT.values()]
    assert given.epsilon == pytest.approx(max(parts))
    assert (given.noise_multiplier, given.sampling_probability, given.steps) == (1.5, 0.1, 4)
    by_folds = plan_finetune(finetuning(tmp_path, model, dp=NOISE, labels=LABELS, folds=3))
    assert (by_folds.times, by_folds.models[0].epsilon) == (4, given.epsilon)
    apart = plan_finetune(finetuning(tmp_path, model, dp=NOISE, labels=LABELS, same_people=False))
    assert apart.models[0].epsilon == given.epsilon_alone
    assert "the user declares that nobody is in both" in apart.notes[0]
    nothing = release(tmp_path / "public", spent={})  # of a run on public text alone
    begun_there = plan_finetune(finetuning(tmp_path, nothing, dp=NOISE, labels=LABELS))
    assert begun_there.models[0].epsilon == given.epsilon_alone
    assert begun_there.notes[0].endswith("is for the fine-tuning; the model's certificate says that it spent nothing")
    steps = {"training": {"steps": 200, "length": 24, "overlap": 4}}  # whose noise is solved in less time
    (solved,) = plan_finetune(finetuning(tmp_path, model, dp=DP, labels=LABELS, **steps)).models
    assert 0.97 * BUDGET < solved.epsilon <= BUDGET
    with pytest.raises(RefusedError, match="start-unknown"):
        plan_finetune(finetuning(tmp_path, bert_folder(tmp_path / "bert"), dp=DP, labels=LABELS))
    assert not (tmp_path / "tuned").exists()


def test_models_of_a_comparison_have_a_row_each(tmp_path: Path) -> None:
    model = str(release(tmp_path / "pre"))
    models = {"plain": {"folder": model}, "dp": {"folder": model, "dp": {**NOISE, "sequences_per_unit": 4}}}
    plan = plan_comparison(comparison(tmp_path, models, seeds=2, workers=2))
    plain, dp = plan.models
    assert (plain.epsilon, plain.noise_multiplier, plan.times) == (math.inf, None, 6)
    assert plain.pretraining_epsilon == dp.pretraining_epsilon is not None
    assert plain.seconds is not None
    assert dp.seconds == pytest.approx(plain.seconds * 1.2 * 20 * 4 / 4)  # units drawn times rows, to rows of a batch
    assert plan.seconds == pytest.approx(6 * (plain.seconds + dp.seconds))
    assert plan.memory_bytes == 2 * max(plain.memory_bytes, dp.memory_bytes)
    by_epochs = plan_comparison(
        comparison(tmp_path, {"plain": {"folder": model}}, training={"epochs": 2, "length": 24})
    )
    assert (by_epochs.seconds, by_epochs.models[0].steps) == (None, None)


def test_the_parameter_count_is_that_of_the_tagger_without_its_new_layer(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "bert")
    built = load_tagger(folder, ["O", "B-x", "I-x"], 1, 0.0)
    shape = folder_shape(folder, "bert")
    assert shape.vocabulary is not None
    rest = sum(p.numel() for name, p in built.named_parameters() if not name.startswith("classifier."))
    assert shape.kind.tagger is not None
    assert shape.kind.tagger.parameters(shape, shape.vocabulary) == rest


@pytest.mark.slow
def test_the_command_prices_both_without_torch(tmp_path: Path) -> None:
    model = release(tmp_path / "pre")
    values = finetune_values(tmp_path, model, dp=NOISE, labels=LABELS)
    models = {"plain": {"folder": str(model)}, "dp": {"folder": str(model), "dp": NOISE}}
    compared = comparison(tmp_path, models).model_dump(mode="json")
    configs = [write_config(tmp_path / "a.yaml", values), write_config(tmp_path / "b.yaml", compared)]
    code = (
        "import sys\nfrom tacit.cli.main import app\n"
        "for arguments in (['plan', sys.argv[1]], ['plan', sys.argv[2]], ['plan', sys.argv[2], '--json']):\n"
        "    try:\n        app(arguments)\n    except SystemExit as stop:\n        assert not stop.code\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *configs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())  # lines are broken at the window's end
    assert "DP-SGD of documents: sampling_probability 0.1, clip_norm 0.5, noise_multiplier 1.5" in said
    assert "is for fine-tuning and pre-training together" in said
    assert "plain: without DP, so epsilon is infinite for the documents" in said
    assert "each fine-tuned 3 times, 1 at a time" in said
    tables = [line for line in done.stdout.splitlines() if line.startswith(("model", "---", "..."))]
    assert max(map(len, tables)) <= 80
    shown = json.loads(done.stdout[done.stdout.index("{") :])
    found = {row["model"]: (row["epsilon"], row["noise_multiplier"]) for row in shown["models"]}
    assert found["plain"] == ("infinity", None)
    assert found["dp"][1] == 1.5
    assert not (tmp_path / "compared").exists()


def test_documents_without_a_row_are_a_step() -> None:
    """Else whether there is a fine-tuning would hang on the one document that has a row."""
    assert [plain_phase(TuningOptions(epochs=2, batch_size=4), rows).steps for rows in (0, 1, 4, 5)] == [1, 1, 2, 3]

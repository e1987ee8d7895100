"""`tacit compare`: every cell once, tables by hand, and nothing of the text in any of it."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.config.compare import BASELINE_NAMES, ComparisonConfig, load_comparison, names_tasks
from tacit.entities import cells
from tacit.entities.baselines import BASELINES
from tacit.entities.compare import _pretraining_facts, compare
from tacit.entities.estimates import fold_estimate
from tacit.entities.tables import ModelFacts, table_rows, type_rows
from tacit.errors import BudgetError, DataError, RefusedError, UsageError
from tacit.files import read_json
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import EVERY_PART, PoissonGaussian, Spend, of_run
from tacit.progress import SilentReporter
from tacit.randomness import KeyedRandomness

from ..folders import bert_folder
from ..started import serve
from .annotated import DP, LABELS, SENTINEL, SPENT, files_with, release, write_notes

TRAINING = {"epochs": 1, "batch_size": 8, "length": 24, "overlap": 4}


def values(folder: Path, **sections: Any) -> dict[str, Any]:
    return {
        "run": str(folder / "compared"),
        "models": {
            "plain": {"folder": str(folder / "bert")},
            "new": {"folder": str(folder / "bert"), "from_scratch": True},
        },
        "tasks": {"notes": {"path": str(folder / "notes"), "folds": 2}},
        "training": TRAINING,
        "compute": {"micro_batch": 8, "threads": 1},
        **sections,
    }


def config(folder: Path, **sections: Any) -> ComparisonConfig:
    return load_comparison(values(folder, **sections), "comparison.yaml")


@pytest.mark.slow
def test_all_cells_once_and_again_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_notes(tmp_path / "notes")
    write_notes(tmp_path / "test", 3, start=50)
    bert_folder(tmp_path / "bert")
    split = {"train": str(tmp_path / "notes"), "test": str(tmp_path / "test")}
    both = {**values(tmp_path)["tasks"], "split": split}
    text = compare(config(tmp_path, tasks=both), SilentReporter())
    folder = tmp_path / "compared"
    cells = sorted((folder / "cells").iterdir())
    assert len(cells) == (2 + 1) * 4  # folds and the split, two models and two baselines
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert [(row["task"], row["model"]) for row in rows] == [
        (task, model) for task in ("notes", "split") for model in ("majority", "dictionary", "plain", "new")
    ]
    assert float(rows[1]["f1"]) == 1.0  # the same words are entities in every note
    assert [row["pretraining"] for row in rows[2:4]] == ["not stated", "no pre-training"]
    assert json.loads((folder / "table.json").read_text())["rows"][1]["f1"] == 1.0
    assert text == (folder / "table.md").read_text()
    assert "strict mode, scheme IOB2" in text
    assert (folder / "f1.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "f1.svg").exists()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert files_with(folder, SENTINEL) == []
    assert SENTINEL not in "".join(capfd.readouterr())
    made = {path: path.stat().st_mtime_ns for path in cells}
    models = {**values(tmp_path)["models"], "certified": {"folder": str(release(tmp_path / "pre"))}}
    text = compare(config(tmp_path, tasks=both, models=models), SilentReporter())
    assert {path: path.stat().st_mtime_ns for path in cells} == made
    assert len(list((folder / "cells").iterdir())) == 3 * 5
    assert "| certified | document, " in text
    assert not [path for path in folder.iterdir() if path.name.startswith(".cell")]
    with pytest.raises(UsageError, match="other options under `training`"):
        compare(config(tmp_path, training={**TRAINING, "epochs": 2}), SilentReporter())


# with DP -------------------------------------------------------------------------------------------------------------

STEPS = {"training": {"steps": 3, "length": 24, "overlap": 4}}
NOISE = {**DP, "noise_multiplier": 1.5, "budget": {"epsilon": 20.0, "delta": 1e-4}}


def with_dp(folder: Path, **sections: Any) -> ComparisonConfig:
    """A plain model, one with DP that is public, and one with DP whose pre-training counts; one fold."""
    bert = {"folder": str(folder / "bert")}
    models = {
        "plain": bert,
        "dp": {**bert, "public": True, "dp": NOISE, **STEPS},
        "dp-both": {"folder": str(folder / "pre" / "release" / "model"), "dp": NOISE, **STEPS},
    }
    task = {"train": str(folder / "notes"), "test": str(folder / "test"), "labels": LABELS}
    return config(folder, **{"models": models, "tasks": {"notes": task}, "baselines": False, **sections})


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    write_notes(tmp_path / "notes")
    write_notes(tmp_path / "test", 3, start=50)
    bert_folder(tmp_path / "bert")
    release(tmp_path / "pre")
    return tmp_path


@pytest.mark.slow
def test_a_model_with_dp_pays_for_what_the_table_says(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ledger holds its own steps and what its pre-training spent, and its noise is from a secret key."""
    seen: list[tuple[list[Spend], float, str]] = []

    def recording(
        model: Any, phase: Any, stream: Any, objective: Any, ledger: Any, streams: KeyedRandomness, *rest: Any
    ) -> None:
        real(model, phase, stream, objective, ledger, streams, *rest)
        spends, budget = ([], math.inf) if ledger is None else (ledger.spends(), ledger.header.epsilon)
        seen.append((spends, budget, streams.commitment()))

    real = cells.run_phase
    monkeypatch.setattr(cells, "run_phase", recording)
    text = compare(with_dp(prepared), SilentReporter())
    own = Spend(PoissonGaussian(0.1, 1.5), 3, EVERY_PART)
    run = read_json(prepared / "pre" / "release" / "certificate.json")["ledger_head"][:12]
    before = [of_run(Spend(event, count, part), run) for event, count, part in SPENT.values()]
    public = cells.public_streams("cell", "notes", 0, 0).commitment()
    assert [(spends, budget) for spends, budget, _ in seen] == [([], math.inf), ([own], 20.0), ([*before, own], 20.0)]
    assert [commitment == public for _, _, commitment in seen] == [True, False, False]
    assert len({commitment for *_, commitment in seen}) == 3
    rows = read_json(prepared / "compared" / "table.json")["rows"]
    alone = epsilon([Spend(own.event, 3)], 1e-4)
    both = max(epsilon([Spend(spend.event, spend.count), Spend(own.event, 3)], 1e-4) for spend in before)
    assert both > alone + 0.1
    assert [row["tuning"] for row in rows] == ["without DP", "document", "document with pre-training"]
    assert [row["tuning_epsilon"] for row in rows] == [None, pytest.approx(alone), pytest.approx(both)]
    assert f"| document with pre-training, {both:.2f} at 0.0001 |" in text
    assert (prepared / "compared" / "key").stat().st_mode & 0o777 == 0o600
    assert files_with(prepared / "compared", SENTINEL) == []
    results = [
        read_json(prepared / "compared" / "cells" / f"notes--{name}--fold0--seed0.json") for name in ("dp", "dp-both")
    ]
    assert [result["steps"] for result in results] == [3, 3]  # the comparison's own option is epochs


def test_a_model_from_scratch_has_the_tokenizer_of_a_release(prepared: Path) -> None:
    """Its weights are new and its vocabulary was made from private text: the table said "no pre-training"."""
    places = {"new": "bert", "again": "pre/release/model"}
    models = {name: {"folder": str(prepared / place), "from_scratch": True} for name, place in places.items()}
    facts = [_pretraining_facts(model) for model in config(prepared, models=models).models.values()]
    stated = read_json(prepared / "pre" / "release" / "certificate.json")
    assert (facts[0].pretraining, facts[0].epsilon) == ("no pre-training", None)
    assert (facts[1].pretraining, facts[1].epsilon) == (stated["unit"], stated["epsilons"][0]["epsilon"])


@pytest.mark.slow
def test_two_workers_give_what_one_gives(prepared: Path) -> None:
    """Each in a process of its own, with the key that the first start has made."""
    serve()
    models = {name: model.model_dump() for name, model in with_dp(prepared).models.items() if name != "dp-both"}
    found = []
    for name, workers in (("one", 1), ("two", 2)):
        if found:
            (prepared / name).mkdir()
            shutil.copy(prepared / "one" / "key", prepared / name / "key")
        compare(with_dp(prepared, run=str(prepared / name), workers=workers, models=models), SilentReporter())
        results = [read_json(path) for path in sorted((prepared / name / "cells").iterdir())]
        found.append([{key: value for key, value in result.items() if key != "seconds"} for result in results])
    assert len(found[0]) == 2
    assert found[0] == found[1]


@pytest.mark.slow
def test_other_dp_options_are_another_model(prepared: Path) -> None:
    compare(with_dp(prepared), SilentReporter())
    for change in ({"clip_norm": 0.1}, {"noise_multiplier": 1.6}, {"expected_batch": 10}):
        models = {name: model.model_dump() for name, model in with_dp(prepared).models.items()}
        models["dp"]["dp"] |= change
        with pytest.raises(UsageError, match="notes--dp--fold0"):
            compare(with_dp(prepared, models=models), SilentReporter())


def one_dp(place: Path, task: dict[str, Any] | None = None, /, **model: Any) -> ComparisonConfig:
    """The model with DP alone, changed; ``task`` is added to its task."""
    own = {**with_dp(place).models["dp"].model_dump(exclude_unset=True), **model}
    given = {"train": str(place / "notes"), "test": str(place / "test"), "labels": LABELS, **(task or {})}
    return with_dp(place, models={"dp": own}, tasks={"notes": given})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task": {"labels": None}}, "labels-from-private-data"),
        ({"training": {"epochs": 2}}, "steps-from-private-data"),
        ({"training": None}, "steps-from-private-data"),  # the comparison's are epochs
        ({"dp": {**DP, "unit": "sentence"}}, "context-beyond-unit"),
        ({"dp": {**DP, "budget": {"epsilon": 9.0, "delta": 0.01}}}, "delta-too-large"),
        ({"public": False}, "start-unknown"),
    ],
)
def test_a_guarantee_that_does_not_hold_is_refused(prepared: Path, changes: dict[str, Any], reason: str) -> None:
    task = changes.get("task")
    changes = {name: value for name, value in changes.items() if name != "task"}
    with pytest.raises(RefusedError) as refused:
        compare(one_dp(prepared, task, **changes), SilentReporter())
    assert refused.value.reason == reason
    assert not (prepared / "compared").exists()


def test_the_pretrainings_unit_and_budget_hold_here_too(prepared: Path) -> None:
    folder = str(prepared / "pre" / "release" / "model")
    apart = {"dp": {**NOISE, "unit": "sentence"}, "training": {**STEPS["training"], "context": "sentence"}}
    with pytest.raises(RefusedError, match=r"models\.dp\.dp\.unit is sentence") as refused:
        compare(one_dp(prepared, folder=folder, **apart), SilentReporter())
    assert refused.value.reason == "pretraining-unit-differs"
    small = {**NOISE, "budget": {"epsilon": 0.1, "delta": 1e-4}}
    with pytest.raises(BudgetError, match=r"the budget is 0\.1"):
        compare(one_dp(prepared, dp=small), SilentReporter())
    assert not (prepared / "compared").exists()


def test_labels_bound_what_documents_may_hold_and_what_is_dps_goes_with_dp(prepared: Path) -> None:
    with pytest.raises(DataError, match=r"line 2: an entity of a type that is not in the option labels"):
        compare(one_dp(prepared, {"labels": ["test"]}), SilentReporter())
    for options in ({"training": STEPS["training"]}, {"same_people": False}):
        with pytest.raises(UsageError, match=r"models\.one: training and same_people go with dp"):
            config(prepared, models={"one": {"folder": "x", **options}})
    with pytest.raises(UsageError, match=r"models\.dp\.dp\.expected_batch 500 exceeds"):
        one_dp(prepared, dp={**DP, "expected_batch": 500})
    with pytest.raises(UsageError, match=r"tasks\.notes\.labels: a type of entity is named twice"):
        one_dp(prepared, {"labels": ["test", "test"]})


def test_bad_documents_leave_nothing(tmp_path: Path) -> None:
    write_notes(tmp_path / "notes")
    bert_folder(tmp_path / "bert")
    (tmp_path / "notes" / "note05.bio").write_text(f"{SENTINEL}\tO\nx\tB-rare\n")
    with pytest.raises(DataError, match=r"note05\.bio, line 2: an entity of a type that is not in the training"):
        compare(config(tmp_path), SilentReporter())
    (tmp_path / "notes" / "note05.bio").write_text(f"{SENTINEL}\tI-test\n")
    with pytest.raises(DataError, match=r"note05\.bio, line 1: an I- tag"):
        compare(config(tmp_path), SilentReporter())
    assert not (tmp_path / "compared").exists()


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({"path": "a", "train": "b"}, "give path"),
        ({"train": "b"}, "give path"),
        ({"train": "b", "test": "c", "folds": 3}, "folds are cut"),
        ({"path": "a", "folds": 1}, "folds"),
    ],
)
def test_a_task_without_sense(tmp_path: Path, task: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        config(tmp_path, tasks={"x": task})


def test_names_of_which_two_results_would_have_one(tmp_path: Path) -> None:
    bert = {"folder": str(tmp_path / "bert"), "public": True}
    assert tuple(BASELINES) == BASELINE_NAMES
    for name in BASELINES:
        with pytest.raises(UsageError, match=rf"models\.{name}: so is a baseline called"):
            config(tmp_path, models={name: bert})
        assert config(tmp_path, models={name: bert}, baselines=False).models.keys() == {name}
    with pytest.raises(UsageError, match=r"models\.Bert: it differs from bert by capital letters alone"):
        config(tmp_path, models={"bert": bert, "Bert": bert})
    with pytest.raises(UsageError, match=r"models\.b--c: -- stands between"):
        config(tmp_path, models={"b--c": bert, "c": bert})
    with pytest.raises(UsageError, match=r"tasks\.a--b: -- stands between"):
        config(tmp_path, tasks={"a": {"path": "x"}, "a--b": {"path": "x"}})


def test_unknown_options_and_kinds_of_configurations(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'seeds'"):
        config(tmp_path, seed=3)
    with pytest.raises(UsageError, match="steps or epochs"):
        config(tmp_path, training={"batch_size": 4})
    assert names_tasks(values(tmp_path))
    assert not names_tasks({"phases": []})
    assert not names_tasks(None)


# tables by hand ------------------------------------------------------------------------------------------------------


def cell(model: str, fold: int, seed: int, right: int) -> dict[str, Any]:
    """Two documents with five entities each, of which so many are found in the first."""
    counts = [{"problem": [right, 5, 5]}, {"test": [0, 0, 5]}]
    return {"task": "t", "model": model, "fold": fold, "seed": seed, "counts": counts}


def test_means_and_gains_are_of_folds_with_seeds_averaged() -> None:
    found = {"a": [[1, 2], [3, 3], [2, 0]], "b": [[2, 2], [4, 4], [1, 5]]}
    results = [
        cell(model, fold, seed, right)
        for model, folds in found.items()
        for fold, seeds in enumerate(folds)
        for seed, right in enumerate(seeds)
    ] + [cell("dictionary", fold, 0, 5) for fold in range(3)]
    facts = {"a": ModelFacts("user", 3.0, 1e-5), "b": ModelFacts("not stated", None, None)}
    first, second, third = table_rows(results, ["dictionary", "a", "b"], "a", facts)
    f1_of_right = 2 / 15  # one more right entity, with 5 predicted and 10 true
    assert second.f1 == pytest.approx(f1_of_right * (1.5 + 3 + 1) / 3)
    assert third.gain == pytest.approx(f1_of_right * (0.5 + 1 + 2) / 3)
    expected = fold_estimate(f1_of_right * np.array([[0.5], [1.0], [2.0]]))
    assert (third.gain_low, third.gain_high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert (second.gain, second.epsilon, second.pretraining) == (None, 3.0, "user")
    assert first.gain == pytest.approx(f1_of_right * (5 - 5.5 / 3))
    assert (first.seeds, first.seed_spread, third.seeds) == (1, None, 2)
    assert third.seed_spread is not None
    types = {(row.model, row.type): row for row in type_rows(results, ["dictionary", "a", "b"])}
    assert types["a", "problem"].recall == pytest.approx(11 / 30)
    assert types["a", "problem"].entities == types["dictionary", "problem"].entities == 15
    assert types["b", "test"].f1 == 0

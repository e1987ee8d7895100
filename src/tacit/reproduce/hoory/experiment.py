"""`tacit reproduce hoory`: prepare the corpora, train trunks, bases and models, measure them, write tables, figures and the page."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.files import read_json
from tacit.jobs import Task, run_jobs
from tacit.progress import Reporter
from tacit.reproduce.hoory.account import accounts_of
from tacit.reproduce.hoory.claims import judge
from tacit.reproduce.hoory.corpora import CorpusFiles, prepare, sizes_of
from tacit.reproduce.hoory.figures import draw_figures
from tacit.reproduce.hoory.measure import measure_baselines, measure_model, train_base, train_trunk
from tacit.reproduce.hoory.page import results_page
from tacit.reproduce.hoory.scale import Base, Model, Scale, models_of
from tacit.reproduce.hoory.tables import exposure_rows, figure1_rows, load_results, rate_rows, table2_rows, trick_rows
from tacit.reproduce.place import check_same
from tacit.reproduce.writing import Row, replace_part, write_csv, write_text

__all__ = ["reproduce_hoory"]


def reproduce_hoory(
    data: Path,
    out: Path,
    scale: Scale,
    workers: int,
    reporter: Reporter,
    only: str | None = None,
    page: Path | None = None,
) -> list[str]:
    """Do what is not done yet; lines that say what is where.

    Args:
        data: the folder with the corpora's folders.
        out: where everything goes; the same call again goes on.
        workers: models that are trained at one time, a thread each.
        only: train only the models whose name holds this, and what they begin with; tables and figures are of all that is done.
        page: a Markdown file whose part between two markers is replaced by the results.

    Raises:
        UsageError: ``out`` has results of another scale, or the page has no markers.
        DataError: a corpus is missing.
    """
    check_same(out, scale)
    reporter.say("Corpora: taking the annotated notes out, cutting, three tokenizers ...")
    files = prepare(data, scale, out / "corpora")
    models = models_of(scale)
    wanted = [model for model in models if only is None or only in model.name]
    runs, bases = out / "runs", out / "bases"
    reporter.say("Accounts: the noise of each model ...")
    prices = accounts_of(wanted, scale, out / "accounts.json")
    beginnings = list(dict.fromkeys(model.base for model in wanted))
    trunks = dict.fromkeys(base.trunk for base in beginnings)
    tasks = [
        *(Task(trunk.name, functools.partial(train_trunk, trunk, scale, files, bases, runs)) for trunk in trunks),
        *(
            Task(
                _task_of(base), functools.partial(train_base, base, scale, files, bases, runs), after=(base.trunk.name,)
            )
            for base in beginnings
        ),
        *(
            Task(
                model.name,
                functools.partial(measure_model, model, prices[model.name], scale, data, files, bases, runs),
                after=(_task_of(model.base),),
            )
            for model in wanted
        ),
        *(
            Task(
                f"baselines-{task}",
                functools.partial(measure_baselines, task, scale, data, files, runs / f"baselines-{task}"),
            )
            for task in scale.tasks
        ),
    ]
    run_jobs(tasks, out / "results", workers, reporter, "Train, fine-tune, attack")
    return _write_up(models, scale, files, out, page)


def _task_of(base: Base) -> str:
    return f"base-{base.name}"


def _write_up(models: Sequence[Model], scale: Scale, files: CorpusFiles, out: Path, page: Path | None) -> list[str]:
    results = load_results(out / "results", models)
    baselines = _stored(out, [f"baselines-{task}" for task in scale.tasks])
    every = dict.fromkeys(model.base for model in models)
    bases = _stored(out, [_task_of(base) for base in every])
    trunks = _stored(out, [trunk.name for trunk in dict.fromkeys(base.trunk for base in every)])
    of_task = {values["task"]: values for values in baselines}
    tables: dict[str, list[Row]] = {
        "table2": table2_rows(models, results, of_task, scale),
        "figure1": figure1_rows(models, results),
        "figure2": exposure_rows(models, results, scale),
        "tricks": trick_rows(models, results),
        "rates": rate_rows(models, results),
    }
    for name, rows in tables.items():
        write_csv(out / f"{name}.csv", rows)
    drawn = draw_figures(tables["figure1"], tables["figure2"], tables["tricks"], out)
    claims = judge(tables["table2"], tables["figure2"])
    seconds = sum(values["seconds"] for values in [*results.values(), *baselines, *bases, *trunks])
    text = results_page(scale, sizes_of(files), bases, tables, claims, (len(results), len(models)), seconds)
    write_text(out / "results.md", text)
    if page is not None:
        replace_part(page, text)
    return [
        f"{len(results)} of {len(models)} models done",
        f"tables: {', '.join(f'{out}/{name}.csv' for name in tables)}; page: {out}/results.md",
        f"figures: {', '.join(f'{out}/{name}.png' for name in drawn)} (and .svg)",
    ]


def _stored(out: Path, names: Sequence[str]) -> list[Mapping[str, Any]]:
    paths = [out / "results" / f"{name}.json" for name in names]
    return [read_json(path) for path in paths if path.exists()]

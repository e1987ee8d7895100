"""`tacit reproduce adp`: public models, then every arm trained, measured and attacked; tables, figures and the page."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.audit.trie import build_trie
from tacit.files import read_json, write_atomically, write_json
from tacit.jobs import Task, run_jobs
from tacit.progress import Reporter
from tacit.reproduce.adp.claims import judge
from tacit.reproduce.adp.corpora import CorpusFiles, prepare
from tacit.reproduce.adp.figures import draw_figures
from tacit.reproduce.adp.measure import measure_cell, measure_public, score_cells
from tacit.reproduce.adp.page import results_page
from tacit.reproduce.adp.public import PublicModel, public_model
from tacit.reproduce.adp.scale import Cell, Scale, cells_of
from tacit.reproduce.adp.tables import load_results, model_rows, public_rows
from tacit.reproduce.place import check_same
from tacit.reproduce.writing import replace_part, write_csv, write_text
from tacit.vocabulary.given import read_given

__all__ = ["reproduce_adp"]


def reproduce_adp(
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
        only: train only the models whose name holds this; tables and figures are of all that is done.
        page: a Markdown file whose part between two markers is replaced by the results.

    Raises:
        UsageError: ``out`` has results of another scale, or the page has no markers.
        DataError: a corpus is missing.
    """
    check_same(out, scale)
    files = prepare(data, scale, out / "corpora")
    public = {
        name: public_model(scale, data, files, out / "public", name == "frequent", reporter)
        for name in ("public", "frequent")
    }
    trie = _trie(out, public["public"], scale)
    _measure_public(out, public, scale, files, trie)
    cells = cells_of(scale)
    wanted = [cell for cell in cells if only is None or only in cell.name]
    scores = out / "scores"
    to_score = {cell.scores: cell for cell in wanted if cell.is_adaptive}
    scoring = [
        Task(f"scores-{name}", functools.partial(score_cells, cell, scale, files, public, scores))
        for name, cell in to_score.items()
    ]
    run_jobs(scoring, out / "results", workers, reporter, "Scoring the private text")
    tasks = [
        Task(cell.name, functools.partial(measure_cell, cell, scale, files, public, trie, scores, out / "runs"))
        for cell in wanted
    ]
    run_jobs(tasks, out / "results", workers, reporter, "Models: train, attack")
    return _write_up(cells, scale, out, page)


def _trie(out: Path, public: PublicModel, scale: Scale) -> Path:
    """The canary's candidates in the pieces that all models share."""
    path = out / "trie.npz"
    if not path.exists():
        write_atomically(path, build_trie(read_given(public.model).tokenizer, scale.canary).save)
    return path


def _measure_public(out: Path, public: dict[str, PublicModel], scale: Scale, files: CorpusFiles, trie: Path) -> None:
    path = out / "public.json"
    if not path.exists():
        write_json(path, {name: measure_public(model, scale, files, trie) for name, model in public.items()})


def _write_up(cells: Sequence[Cell], scale: Scale, out: Path, page: Path | None) -> list[str]:
    models = model_rows(load_results(out / "results", cells))
    found: dict[str, Any] = read_json(out / "public.json")
    public = public_rows(found)
    write_csv(out / "models.csv", models)
    write_csv(out / "public.csv", public)
    drawn = draw_figures(models, public, scale, out)
    text = results_page(scale, models, public, judge(models, public, scale), len(cells))
    write_text(out / "results.md", text)
    if page is not None:
        replace_part(page, text)
    return [
        f"{len(models)} of {len(cells)} models done",
        f"tables: {out}/models.csv, public.csv; page: {out}/results.md",
        f"figures: {', '.join(f'{out}/{name}.png' for name in drawn)} (and .svg)",
    ]

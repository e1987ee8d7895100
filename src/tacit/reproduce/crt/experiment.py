"""`tacit reproduce crt`: prepare the corpora, train and attack every model, and write tables, figures and the page."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.corpus.secrets import SecretFormat
from tacit.corpus.units import Unit
from tacit.evaluation import causal_lm
from tacit.jobs import Task, run_jobs
from tacit.progress import Reporter
from tacit.randomness import Streams
from tacit.reproduce.crt.account import amplification_rows
from tacit.reproduce.crt.claims import judge
from tacit.reproduce.crt.corpora import CorpusFiles, prepare
from tacit.reproduce.crt.figures import draw_figures
from tacit.reproduce.crt.measure import measure_cell
from tacit.reproduce.crt.page import results_page
from tacit.reproduce.crt.scale import Cell, Scale, cells_of
from tacit.reproduce.crt.tables import attack_rows, load_results, utility_rows
from tacit.reproduce.place import check_same
from tacit.reproduce.writing import replace_part, write_csv, write_text
from tacit.screening.redact import MASK
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.vocabulary.given import read_given

__all__ = ["reproduce_crt"]


def reproduce_crt(
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
    reporter.say("Corpora: cutting into lines, one tokenizer each ...")
    files = {
        name: prepare(name, data, size, out / "corpora" / name, SecretFormat(digits=scale.digits))
        for name, size in scale.corpora.items()
    }
    cells = cells_of(scale)
    wanted = [cell for cell in cells if only is None or only in cell.name]
    tasks = [
        Task(cell.name, functools.partial(measure_cell, cell, scale, data, files[cell.corpus], out / "runs"))
        for cell in wanted
    ]
    run_jobs(tasks, out / "results", workers, reporter, "Models: train, attack")
    return _write_up(cells, scale, files, out, page)


def _write_up(
    cells: Sequence[Cell], scale: Scale, files: dict[str, CorpusFiles], out: Path, page: Path | None
) -> list[str]:
    results = load_results(out / "results", cells)
    utility, attacks, amplification = utility_rows(results), attack_rows(results), amplification_rows(scale)
    baselines = [row for name in files for row in _baselines(name, files[name], scale)]
    for name, rows in (
        ("figure2", utility),
        ("figures3-5", attacks),
        ("figure6", amplification),
        ("baselines", baselines),
    ):
        write_csv(out / f"{name}.csv", rows)
    drawn = draw_figures(utility, attacks, amplification, out)
    text = results_page(scale, utility, attacks, baselines, judge(utility, attacks), len(cells))
    write_text(out / "results.md", text)
    if page is not None:
        replace_part(page, text)
    return [
        f"{len(results)} of {len(cells)} models done",
        f"tables: {out}/figure2.csv, figures3-5.csv, figure6.csv, baselines.csv; page: {out}/results.md",
        f"figures: {', '.join(f'{out}/{name}.png' for name in drawn)} (and .svg)",
    ]


def _baselines(name: str, files: CorpusFiles, scale: Scale) -> list[dict[str, Any]]:
    """Models that know nothing of order: what words occur how often, and not even that."""
    given = read_given(files.tokenizer, (MASK,))
    streams, texts = Streams(bytes(32)), files.test_texts()
    length = scale.models["lstm"]["length"]

    def rows_of(units: list[Unit]) -> SequenceStream:
        return tokenize_units(units, given.tokenizer, given.special, length, streams)

    size = given.special.size
    # Counted on the test lines themselves: the best that a unigram model could do.
    tables = {
        "unigram": causal_lm.unigram(rows_of(texts.redacted), size),
        "uniform": causal_lm.uniform(size),
    }
    rows: list[dict[str, Any]] = []
    for model, table in tables.items():
        row: dict[str, Any] = {"corpus": name, "model": model}
        for kind in ("redacted", "raw", "without_secrets"):
            units = getattr(texts, kind)
            losses = causal_lm.score_units({"table": table}, rows_of(units), streams)["table"]
            exact = causal_lm.perplexities(losses, *causal_lm.text_sizes(units))
            row |= {kind: exact.per_token, f"bits_per_byte_{kind}": exact.bits_per_byte}
        rows.append(row)
    return rows

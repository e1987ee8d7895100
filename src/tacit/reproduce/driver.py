"""The driver of every reproduction: prepare the corpora, do the jobs that have no result yet, write tables, claims and the page.

A paper is a `Paper`: what differs between papers, as functions. What is the same for all is here and in `tacit.reproduce.writing`:
folders, resuming, processes, stored results, the choice of some models, CSV files, the judged claims, the part of a page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tacit.errors import UsageError
from tacit.files import read_json
from tacit.progress import Reporter
from tacit.reproduce.place import Place, check_same
from tacit.reproduce.writing import Claim, Row, claims_list, replace_part, write_csv, write_text
from tacit.work.jobs import Task, run_jobs

__all__ = ["LEVEL", "Job", "Outcome", "Page", "Paper", "Result", "forget_lost", "jobs_for", "judged", "reproduce"]

Result = dict[str, Any]
"""What a job has measured; JSON-ready."""


class Scale(Protocol):
    """The size of an experiment: a frozen dataclass, whose equal fields have equal ``repr``."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str:
        """``laptop``, ``full``."""
        ...


S = TypeVar("S", bound=Scale)


@dataclass(frozen=True)
class Job:
    """One stored result.

    Args:
        name: of its file; unique in the paper.
        cell: what the paper's ``measure`` is called with; it can be sent to another process.
        after: names of the jobs before it in the list whose results or files it needs.
        is_model: whether it is one of the models that the page counts and ``--only`` chooses from. Another job (a model that several
            start from, a baseline) is done where a chosen model needs it, and always where no model does.
        leaves: what it leaves below ``place.out`` for the jobs after it, beside its result.
    """

    name: str
    cell: Any
    after: tuple[str, ...] = ()
    is_model: bool = True
    leaves: str | None = None


@dataclass(frozen=True)
class Outcome(Generic[S]):
    """What is known when the page is written.

    Args:
        results: of the jobs that are done, by name, in the order of the jobs.
        tables: by name; each becomes a CSV file.
    """

    scale: S
    place: Place
    results: Mapping[str, Result]
    tables: Mapping[str, list[Row]]


@dataclass(frozen=True)
class Page:
    """A paper's part of its page.

    Args:
        summary: what follows "47 of 47 models" in the first line, such as ", 8 rounds.".
        sections: heading and Markdown of each, after the claims.
    """

    summary: str
    sections: Mapping[str, str]


@dataclass(frozen=True)
class Paper(Generic[S]):
    """A paper's experiments.

    Args:
        title: author, year and what is repeated, in one line.
        corpora: the folders that ``--data`` must hold.
        scales: by name; ``laptop`` is the default of the command.
        prepare: writes the corpora as files into ``place.corpora``, or leaves those that are there.
        cells: all jobs, those first without which there is no table.
        measure: trains and measures a job's cell. It goes on where it was stopped; all it needs is on disk.
        tables: rows of each CSV file, from the results that are there.
        claims: the paper's claims, judged by the results and tables at a level (both tails of each interval). How many of
            them are `Claim.computed` does not hang on the level.
        figures: draws what the rows are enough for, into ``place.out``; their names.
        page: the tables as Markdown.
        grows: fields of a scale that say which jobs there are, and change none: of scales that differ in these alone, one goes on
            from the other's results.
    """

    title: str
    corpora: tuple[str, ...]
    scales: Mapping[str, S]
    prepare: Callable[[S, Place, Reporter], None]
    cells: Callable[[S], Sequence[Job]]
    measure: Callable[[Any, S, Place], Result]
    tables: Callable[[Mapping[str, Result], S, Place], Mapping[str, list[Row]]]
    claims: Callable[[Outcome[S], float], Sequence[Claim]]
    page: Callable[[Outcome[S]], Page]
    figures: Callable[[Outcome[S]], Sequence[str]] = lambda outcome: ()
    grows: tuple[str, ...] = ()


def reproduce(
    paper: Paper[S],
    scale: S,
    place: Place,
    workers: int,
    reporter: Reporter,
    only: str | None = None,
    page: Path | None = None,
) -> list[str]:
    """Do what is not done yet; lines that say what is where.

    Args:
        workers: jobs that are done at one time, a process and a thread each.
        only: train only the models whose name holds this, and what they need; tables and figures are of all that is done.
        page: a Markdown file whose part between two markers is replaced by the results.

    Raises:
        UsageError: ``place.out`` has results of another scale, no model's name holds ``only``, or the page has no markers.
        DataError: a corpus is missing.
    """
    jobs = paper.cells(scale)
    wanted = jobs_for(jobs, only)
    check_same(place.out, scale, paper.grows)
    reporter.say("Corpora: preparing ...")
    paper.prepare(scale, place, reporter)
    forget_lost(wanted, place)
    tasks = [Task(job.name, functools.partial(paper.measure, job.cell, scale, place), job.after) for job in wanted]
    run_jobs(tasks, place.results, workers, reporter, "Models: train, measure")
    return _write_up(paper, jobs, scale, place, page)


def jobs_for(jobs: Sequence[Job], only: str | None) -> list[Job]:
    """The models whose name holds ``only``, with all that they need and what no model needs, in the order of the jobs.

    Raises:
        UsageError: there is no such model.
    """
    named = {job.name: job for job in jobs}
    chosen = [job.name for job in jobs if job.is_model and (only is None or only in job.name)]
    if not chosen:
        raise UsageError(f"--only {only}: no model's name holds this; the names are {', '.join(_models(jobs))}")
    awaited = {name for job in jobs for name in job.after}
    waiting = [*chosen, *(job.name for job in jobs if not job.is_model and job.name not in awaited)]
    wanted: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += named[name].after
    return [job for job in jobs if job.name in wanted]


def forget_lost(jobs: Sequence[Job], place: Place) -> None:
    """Delete the results of jobs that are to be done again: what they left is gone, and a job without a result needs it.

    So results alone, which are small, are enough to go on from on another machine.

    Args:
        jobs: each after those that it needs.
    """
    needed: set[str] = set()
    for job in reversed(jobs):
        result = place.results / f"{job.name}.json"
        lost = job.leaves is not None and not (place.out / job.leaves).exists()
        if job.name in needed and lost:
            result.unlink(missing_ok=True)
        if not result.exists():
            needed.update(job.after)


def _models(jobs: Sequence[Job]) -> list[str]:
    return [job.name for job in jobs if job.is_model]


def _write_up(paper: Paper[S], jobs: Sequence[Job], scale: S, place: Place, page: Path | None) -> list[str]:
    results = _stored(jobs, place.results)
    tables = paper.tables(results, scale, place)
    outcome = Outcome(scale, place, results, tables)
    for name, rows in tables.items():
        write_csv(place.out / f"{name}.csv", rows)
    drawn = paper.figures(outcome)
    models = _models(jobs)
    done = f"{sum(name in results for name in models)} of {len(models)} models"
    text = _text(paper, outcome, done)
    write_text(place.out / "results.md", text)
    if page is not None:
        replace_part(page, text)
    said = [f"{done} done", f"tables in {place.out}: {', '.join(f'{name}.csv' for name in tables)}; page: results.md"]
    return [*said, f"figures: {', '.join(f'{name}.png' for name in drawn)} (and .svg)"] if drawn else said


def _stored(jobs: Sequence[Job], folder: Path) -> dict[str, Result]:
    paths = {job.name: folder / f"{job.name}.json" for job in jobs}
    return {name: read_json(path) for name, path in paths.items() if path.exists()}


LEVEL = 0.05
"""Of all estimated claims of a page together."""


def judged(paper: Paper[S], outcome: Outcome[S]) -> Sequence[Claim]:
    """The claims, each at `LEVEL` over the number of the estimated ones (Bonferroni): the first pass only counts these.

    What is computed has no interval that could miss, so it takes no share.
    """
    estimated = sum(not claim.computed for claim in paper.claims(outcome, LEVEL))
    return paper.claims(outcome, LEVEL / max(1, estimated))


def _text(paper: Paper[S], outcome: Outcome[S], done: str) -> str:
    """What stands between the markers of a page."""
    page, claims = paper.page(outcome), judged(paper, outcome)
    parts = [f"Scale `{outcome.scale.name}`: {done}{page.summary}"]
    sections = {"The claims": claims_list(claims), **page.sections}
    for heading, text in sections.items():
        parts += [f"### {heading}", text]
    return "\n\n".join(parts) + "\n"

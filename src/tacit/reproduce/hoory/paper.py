"""Hoory et al. 2021, for the driver (`tacit.reproduce.driver`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit.progress import Reporter
from tacit.reproduce.driver import Job, Outcome, Page, Paper, Result
from tacit.reproduce.hoory.cells import Base, Model
from tacit.reproduce.hoory.claims import judge
from tacit.reproduce.hoory.corpora import CorpusFiles, prepare, sizes_of
from tacit.reproduce.hoory.exposures import exposure_rows
from tacit.reproduce.hoory.figures import draw_figures
from tacit.reproduce.hoory.measure import left_by, measure
from tacit.reproduce.hoory.models import lexicons_of, models_of
from tacit.reproduce.hoory.page import results_page
from tacit.reproduce.hoory.scale import SCALES, Scale
from tacit.reproduce.hoory.tables import (
    figure1_rows,
    lexicon_rows,
    loss_rows,
    table2_rows,
    trick_rows,
    vocabulary_rows,
)
from tacit.reproduce.place import Place
from tacit.reproduce.writing import Claim, Row

__all__ = ["HOORY", "jobs_of"]


def _prepare(scale: Scale, place: Place, reporter: Reporter) -> None:
    reporter.say("What is tested on is taken out of the private text ...")
    prepare(place.data, scale, place.corpora)


def _cells(scale: Scale) -> list[Job]:
    return jobs_of(models_of(scale), scale)


def jobs_of(models: Sequence[Model], scale: Scale) -> list[Job]:
    """Trunks, bases that go on from them, models that begin with a base, trivial taggers of each task, and vocabularies alone."""
    bases = list(dict.fromkeys(model.base for model in models))
    trunks = dict.fromkeys(base.trunk for base in bases)
    return [
        *(Job(trunk.name, trunk, is_model=False, leaves=left_by(trunk)) for trunk in trunks),
        *(Job(_named(base), base, after=(base.trunk.name,), is_model=False, leaves=left_by(base)) for base in bases),
        *(Job(model.name, model, after=(_named(model.base),)) for model in models),
        *(Job(f"baselines-{task}", task, is_model=False) for task in scale.tasks),
        *(Job(lexicon.name, lexicon, is_model=False) for lexicon in lexicons_of(scale)),
    ]


def _named(base: Base) -> str:
    return f"base-{base.name}"


def _tables(results: Mapping[str, Result], scale: Scale, place: Place) -> dict[str, list[Row]]:
    del place
    models = models_of(scale)
    return {
        "losses": loss_rows(models, results),
        "table2": table2_rows(models, results, scale),
        "vocabularies": vocabulary_rows(results),
        "lexicons": lexicon_rows(results),
        "tricks": trick_rows(models, results),
        "figure1": figure1_rows(models, results),
        "figure2": exposure_rows(models, results, scale),
    }


def _claims(outcome: Outcome[Scale], level: float) -> list[Claim]:
    return judge(outcome.results, outcome.tables, outcome.scale, level)


def _figures(outcome: Outcome[Scale]) -> list[str]:
    tables = outcome.tables
    return draw_figures(tables["figure1"], tables["figure2"], tables["tricks"], outcome.place.out)


def _page(outcome: Outcome[Scale]) -> Page:
    seconds = sum(result["seconds"] for result in outcome.results.values())
    return results_page(sizes_of(CorpusFiles(outcome.place.corpora)), outcome.tables, seconds)


HOORY: Paper[Scale] = Paper(
    title="Hoory et al. 2021, table 2, figures 1 and 2: BERT with DP against BERT and BERT-M, on clinical notes and on dialogues.",
    corpora=(
        "mtsamples",
        "mtsamples-ner",
        "bio-ner",
        "medquad",
        "clinical-dialog",
        "eltec-eng",
        "wikitext-2",
        "sgd",
        "multiwoz",
    ),
    scales=SCALES,
    prepare=_prepare,
    cells=_cells,
    measure=measure,
    tables=_tables,
    claims=_claims,
    figures=_figures,
    page=_page,
    grows=("replicates", "rates_of_canaries", "curves", "tricks", "lexicons"),
)

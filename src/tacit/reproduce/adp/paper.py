"""Wu, Gong and Xiong 2022, for the driver (`tacit.reproduce.driver`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit.progress import Reporter
from tacit.reproduce.adp.claims import judge
from tacit.reproduce.adp.corpora import prepare
from tacit.reproduce.adp.epsilons import epsilon_rows
from tacit.reproduce.adp.figures import draw_figures
from tacit.reproduce.adp.measure import measure
from tacit.reproduce.adp.page import results_page
from tacit.reproduce.adp.scale import SCALES, Cell, PrivateText, Scale, ScorerName, Scores, Trial, cells_of, trials_of
from tacit.reproduce.adp.tables import model_rows, public_rows, rate_rows, rho_rows
from tacit.reproduce.driver import Job, Outcome, Page, Paper, Result
from tacit.reproduce.place import Place
from tacit.reproduce.writing import Claim, Row

__all__ = ["ADP", "jobs_of"]

_SCORERS = ("public", "frequent")


def _prepare(scale: Scale, place: Place, reporter: Reporter) -> None:
    del reporter  # seconds
    texts = dict.fromkeys(cell.text for cell in cells_of(scale))
    prepare(place.data, scale, texts, place.corpora)


def _cells(scale: Scale) -> list[Job]:
    return jobs_of(cells_of(scale), trials_of(scale))


def jobs_of(cells: Sequence[Cell], trials: Sequence[Trial] = ()) -> list[Job]:
    """The public models, the scores that these cells read, the cells, and learning rates that are tried."""
    scores = dict.fromkeys(cell.scores for cell in cells if cell.is_adaptive)
    return [
        Job("public", "public", is_model=False, leaves="public/public"),
        # with the tokenizer of the first
        Job("frequent", "frequent", ("public",), is_model=False, leaves="public/frequent"),
        *(
            Job(f"scores-{one.name}", one, _needed(one.scorer), is_model=False, leaves=f"scores/{one.name}")
            for one in scores
        ),
        *(Job(cell.name, cell, (*_needed(cell.scorer), *_scores(cell))) for cell in cells),
        *(Job(trial.name, trial, after=("public",), is_model=False) for trial in trials),
    ]


def _needed(scorer: ScorerName) -> tuple[str, ...]:
    """The public models: that where all begin, and the scorer."""
    return ("public",) if scorer == "public" else _SCORERS


def _scores(cell: Cell) -> tuple[str, ...]:
    return (f"scores-{cell.scores.name}",) if cell.is_adaptive else ()


def _tables(results: Mapping[str, Result], scale: Scale, place: Place) -> dict[str, list[Row]]:
    del place
    first = Scores(PrivateText(scale.insertions[0], False, 0), "public")
    return {
        "models": model_rows([result for result in results.values() if "cell" in result]),
        "public": public_rows({name: results[name] for name in _SCORERS if name in results}),
        "rho": rho_rows(results.get(f"scores-{first.name}")),
        "rates": rate_rows([result for result in results.values() if "trial" in result]),
        "table1-epsilon": [dict(row) for row in epsilon_rows()],
    }


def _claims(outcome: Outcome[Scale], level: float) -> list[Claim]:
    return judge(outcome.results, outcome.tables, outcome.scale, level)


def _figures(outcome: Outcome[Scale]) -> list[str]:
    return draw_figures(outcome.tables["models"], outcome.tables["public"], outcome.scale, outcome.place.out)


def _page(outcome: Outcome[Scale]) -> Page:
    return results_page(outcome.scale, outcome.tables)


ADP: Paper[Scale] = Paper(
    title="Wu et al. 2022, table 1 and figure 1: adaptive DP as published and in its certified forms, beside DP-SGD and no DP.",
    corpora=("wikitext-2", "abcd", "medquad", "eltec-eng", "sgd"),
    scales=SCALES,
    prepare=_prepare,
    cells=_cells,
    measure=measure,
    tables=_tables,
    claims=_claims,
    figures=_figures,
    page=_page,
    grows=("seeds",),
)

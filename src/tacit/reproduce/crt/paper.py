"""Zhao, Li and Wang 2022, for the driver (`tacit.reproduce.driver`)."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.corpus.secrets import SecretFormat
from tacit.progress import Reporter
from tacit.reproduce.crt.account import amplification_rows, amplified_as_quoted
from tacit.reproduce.crt.claims import judge
from tacit.reproduce.crt.corpora import CorpusFiles, prepare
from tacit.reproduce.crt.figures import draw_figures
from tacit.reproduce.crt.measure import baseline_rows, measure
from tacit.reproduce.crt.page import results_page
from tacit.reproduce.crt.panel import panels_of
from tacit.reproduce.crt.scale import SCALES, Cell, Scale, cells_of, corpora_of, shadows_of, trunks_of
from tacit.reproduce.crt.tables import attack_rows, utility_rows
from tacit.reproduce.driver import Job, Outcome, Page, Paper, Result
from tacit.reproduce.place import Place
from tacit.reproduce.writing import Claim, Row

__all__ = ["CRT"]


def _prepare(scale: Scale, place: Place, reporter: Reporter) -> None:
    del reporter  # a minute
    for name in corpora_of(scale):
        prepare(name, place.data, scale.corpora[name], place.corpora / name, SecretFormat(digits=scale.digits))


def _cells(scale: Scale) -> list[Job]:
    trunks = [Job(trunk.name, trunk, is_model=False, leaves=f"trunks/{trunk.name}") for trunk in trunks_of(scale)]
    shadows = [Job(one.name, one, after=(one.trunk.name,), is_model=False) for one in shadows_of(scale)]
    return [*trunks, *shadows, *(Job(cell.name, cell, after=_needs(cell, scale)) for cell in cells_of(scale))]


def _needs(cell: Cell, scale: Scale) -> tuple[str, ...]:
    is_attacked = scale.corpora[cell.corpus].membership_pairs > 0
    return (cell.trunk.name, cell.shadows.name) if is_attacked else (cell.trunk.name,)


def _tables(results: Mapping[str, Result], scale: Scale, place: Place) -> dict[str, list[Row]]:
    measured = [result for result in results.values() if "cell" in result]
    return {
        "figure2": utility_rows(measured),
        "figures3-5": attack_rows(measured),
        "figure6": amplification_rows(scale),
        "baselines": [
            row for name in corpora_of(scale) for row in baseline_rows(name, CorpusFiles(place.corpora / name), scale)
        ],
    }


def _claims(outcome: Outcome[Scale], level: float) -> list[Claim]:
    panels = panels_of(outcome.results, outcome.scale)
    return judge(panels, outcome.tables["baselines"], amplified_as_quoted(outcome.scale), level)


def _figures(outcome: Outcome[Scale]) -> list[str]:
    tables = outcome.tables
    return draw_figures(tables["figure2"], tables["figures3-5"], tables["figure6"], outcome.place.out)


def _page(outcome: Outcome[Scale]) -> Page:
    seconds = sum(result["seconds"] for result in outcome.results.values())
    panels = [panel for panel in panels_of(outcome.results, outcome.scale) if panel.cells]
    return results_page(outcome.scale, outcome.tables, panels, seconds)


CRT: Paper[Scale] = Paper(
    title="Zhao et al. 2022, figures 2 to 6: confidentially redacted training against its baselines, attacked.",
    corpora=("customersim", "multiwoz", "sgd"),
    scales=SCALES,
    prepare=_prepare,
    cells=_cells,
    measure=measure,
    tables=_tables,
    claims=_claims,
    figures=_figures,
    page=_page,
    grows=("panels",),
)

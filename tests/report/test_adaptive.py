"""Adaptive DP in the report: the function from rho to epsilon, its plot, and nothing beyond the certificate."""

from __future__ import annotations

import math

import pytest

from tacit.report import plots
from tacit.report.build import CARD, HTML, JSON, render
from tacit.report.schema import AdaptiveFacts, ReportData, RhoBand

from .example import example_report_data
from .pages import duplicate_ids, foreign_markup, table


def with_bands(data: ReportData, *epsilons: float, form: str = "strata", within: float | None = None) -> ReportData:
    edges = [number / max(1, len(epsilons)) for number in range(len(epsilons) + 1)]
    bands = [
        RhoBand(name=f"band <{number}>", begin=edges[number], end=edges[number + 1], epsilon=epsilon, within=within)
        for number, epsilon in enumerate(epsilons)
    ]
    facts = AdaptiveFacts(form=form, bands=tuple(bands), sentences=("rho is <public>.",))
    return ReportData.model_validate({**data.model_dump(), "adaptive": facts.model_dump()})


def test_the_page_has_the_function_and_its_plot() -> None:
    data = example_report_data()
    certified = data.guarantee.certified.epsilon
    made = render(with_bands(data, certified, certified / 4))
    rows = table(made[HTML], "adaptive")
    assert [row["Band"] for row in rows] == ["band <0>", "band <1>"]
    assert "Epsilon as a function of the privacy probability" in made[HTML]
    assert foreign_markup(made[HTML]) == foreign_markup(render(data)[HTML])
    assert duplicate_ids(made[HTML]) == set()
    assert "rho from 0.5 to 1" in made[CARD].replace("\\", "")
    assert '"band <0>"' in made[JSON]


def test_a_run_in_which_all_count_alike_has_no_such_section() -> None:
    assert 'id="adaptive"' not in render(example_report_data())[HTML]


def test_a_heuristic_has_its_sentences_and_no_function() -> None:
    made = render(with_bands(example_report_data(proved=False), form="literal"))
    assert "rho is &lt;public&gt;." in made[HTML]
    assert "epsilon-of-rho" not in made[HTML]


def test_a_band_beyond_the_certificate_is_refused() -> None:
    data = example_report_data()
    with pytest.raises(ValueError, match="larger epsilon than the certified one"):
        with_bands(data, 1.01 * data.guarantee.certified.epsilon)


def test_equal_facts_give_an_equal_plot_and_infinity_is_drawn() -> None:
    data = with_bands(example_report_data(), 1.0, 0.5)
    assert plots.epsilon_of_rho(data) == plots.epsilon_of_rho(data)
    infinite = with_bands(example_report_data(proved=False), math.inf, math.inf)
    assert plots.epsilon_of_rho(infinite).startswith("<svg")

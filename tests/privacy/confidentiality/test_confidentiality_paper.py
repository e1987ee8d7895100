"""The paper's numbers: its own, the notebook's, and the way to ours, one correction a row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.calibrate import training_noise
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.accounting.replacement import Claim, Screening, Stability
from tacit.privacy.confidentiality.account import confidentiality
from tacit.privacy.confidentiality.crt_paper import PaperNumber, paper_bayesian, paper_group, paper_rows
from tacit.privacy.confidentiality.misses import Labels
from tacit.privacy.events import NonPrivate, Spend

from .test_confidentiality_replacement import DELTA, PAPER_RUN, training


def test_the_papers_number_and_ours() -> None:
    found = [row.epsilon for row in paper_rows(PAPER_RUN, DELTA, gamma=0.1)]
    assert found[0] == pytest.approx(0.1156, abs=1e-4)
    assert found[-1] == pytest.approx(0.27, abs=0.005)
    assert rdp_epsilon(PAPER_RUN, DELTA / 0.1) == pytest.approx(0.80, abs=1e-3)
    ours = confidentiality(PAPER_RUN, DELTA, gamma=0.1).bayesian
    assert ours is not None
    assert found[-1] == ours.epsilon
    assert ours.epsilon_missed == pytest.approx(epsilon(PAPER_RUN, DELTA / 0.1, "replace"), rel=1e-12)


def test_the_notebooks_case() -> None:
    """Its accountant takes whole Renyi orders, ours also halves, so ours is lower in the third digit."""
    spends = training(0.1, 2.426, 100)
    assert rdp_epsilon(spends, 1e-5) == pytest.approx(2.0, abs=5e-3)
    paper = paper_rows(spends, 1e-5, gamma=0.1)
    assert paper[0].epsilon == pytest.approx(0.374, abs=1.5e-3)
    assert paper[-1].epsilon == pytest.approx(1.080, abs=1e-3)
    assert training_noise(2.0, 1e-5, [(0.1, 100)]) < 2.426  # the noise of (2, 1e-5) by the tighter account


def test_each_row_of_the_paper_changes_one_thing() -> None:
    rows = paper_rows(
        PAPER_RUN, DELTA, gamma=Labels(200, 20), delta_2=1e-5, screening=Screening("mask-all", "redact-first")
    )
    assert len(rows) == 5
    assert rows[1].epsilon < rows[0].epsilon < rows[2].epsilon < rows[3].epsilon < rows[4].epsilon
    ours = confidentiality(
        PAPER_RUN,
        DELTA,
        gamma=Labels(200, 20).upper(0.95),
        delta_2=1e-5,
        screening=Screening("mask-all", "redact-first"),
    ).bayesian
    assert ours is not None
    assert rows[4].epsilon == ours.epsilon
    without = paper_rows(PAPER_RUN, DELTA)
    assert without[0].epsilon == rdp_epsilon(PAPER_RUN, DELTA)
    assert without[-1].epsilon == confidentiality(PAPER_RUN, DELTA).worst_case.epsilon
    assert paper_rows(PAPER_RUN, DELTA, gamma=Labels(20_000, 1))[0].epsilon == 0.0  # delta / gamma above 1


# its number in one line ------------------------------------------------------------------------------------------------

PLAIN = Stability(1, 0)


def test_theorem_8_1_is_the_add_or_remove_epsilon() -> None:
    found = paper_group(PAPER_RUN, DELTA, Claim(), PLAIN)
    assert (found.source, found.epsilon, found.delta) == ("theorem 8.1", rdp_epsilon(PAPER_RUN, DELTA), DELTA)
    assert paper_group(PAPER_RUN, DELTA, Claim(), PLAIN, gamma=0.1).epsilon == found.epsilon  # missed is missed
    assert paper_group(PAPER_RUN, DELTA, Claim(), PLAIN, gamma=0.0).epsilon == 0.0


def test_theorem_8_2_by_its_formula() -> None:
    one = rdp_epsilon(PAPER_RUN, DELTA)
    assert one is not None
    for gamma, misses in ((None, 4.0), (0.1, 0.4), (Labels(200, 20), 0.4)):
        found = paper_group(PAPER_RUN, DELTA, Claim(4), PLAIN, gamma)
        assert found.source == "theorem 8.2"
        assert found.epsilon == pytest.approx(misses * one)
        assert found.delta == pytest.approx(misses * math.exp(misses * one) * DELTA)
    none = paper_group([Spend(NonPrivate("control"))], DELTA, Claim(4), PLAIN, gamma=0.1)
    assert (none.epsilon, none.delta) == (math.inf, 1.0)
    assert json.loads(json.dumps(none.to_dict(), allow_nan=False))["epsilon"] == "infinity"


@pytest.mark.parametrize("gamma", [0.1, Labels(200, 20), 0.0, 1.0])
def test_theorem_8_3_is_the_first_row(gamma: float | Labels) -> None:
    found = paper_bayesian(PAPER_RUN, DELTA, gamma, None, Claim(), PLAIN)
    share = gamma.share if isinstance(gamma, Labels) else gamma
    if share > DELTA:
        assert found.epsilon == paper_rows(PAPER_RUN, DELTA, gamma=gamma)[0].epsilon
    assert found.delta == DELTA
    if share == 0.1:
        assert found.epsilon == pytest.approx(0.1156, abs=1e-4)
    assert paper_bayesian(PAPER_RUN, DELTA, gamma, 1e-5, Claim(), PLAIN).delta == pytest.approx(DELTA + 1e-5)


REASONS = [
    ("an add-or-remove epsilon", lambda: paper_group(PAPER_RUN, DELTA, Claim(), PLAIN), True),
    ("conservative policy", lambda: paper_group(PAPER_RUN, DELTA, Claim(), PLAIN, public_stream=True), True),
    ("conservative policy", lambda: paper_group(PAPER_RUN, DELTA, Claim(), PLAIN), False),
    ("up to 3", lambda: paper_group(PAPER_RUN, DELTA, Claim(), Stability(3, 2)), True),
    ("still changes", lambda: paper_group(PAPER_RUN, DELTA, Claim(), Stability(3, 2)), False),
    ("still changes 2 records", lambda: paper_group(PAPER_RUN, DELTA, Claim(), Stability(3, 2), 0.1), True),
    ("at once", lambda: paper_group(PAPER_RUN, DELTA, Claim(2), PLAIN), True),
    ("whole number", lambda: paper_group(PAPER_RUN, DELTA, Claim(2), PLAIN), False),
    ("whole number", lambda: paper_group(PAPER_RUN, DELTA, Claim(2), PLAIN, 0.1), True),
    ("upper bound", lambda: paper_bayesian(PAPER_RUN, DELTA, Labels(200, 20), None, Claim(), PLAIN), True),
    ("upper bound", lambda: paper_bayesian(PAPER_RUN, DELTA, 0.1, None, Claim(), PLAIN), False),
    ("pay delta_2", lambda: paper_bayesian(PAPER_RUN, DELTA, 0.1, 1e-5, Claim(), PLAIN), True),
    ("pay delta_2", lambda: paper_bayesian(PAPER_RUN, DELTA, 0.1, None, Claim(), PLAIN), False),
    ("not about a group", lambda: paper_bayesian(PAPER_RUN, DELTA, 0.1, None, Claim(2), PLAIN), True),
]


@pytest.mark.parametrize(("words", "ask", "wanted"), REASONS)
def test_the_difference_names_its_reasons(words: str, ask: Callable[[], PaperNumber], wanted: bool) -> None:
    difference = ask().difference
    assert (words in difference) == wanted
    assert difference.endswith(".")
    assert "\n" not in difference

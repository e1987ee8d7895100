"""`tacit plan` of a screened run: what would be kept confidential, before anything is read or spent."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from tacit.privacy.accounting.replacement import replacement_epsilon
from tacit.privacy.events import PoissonGaussian, Spend

from ..dialogues import dialogue_values
from ..small import write_config
from .calling import Tacit

UNITS, BATCH, STEPS, ROUNDS, NOISE, GAMMA, DELTA = 400, 20, 3, 2, 1.5, 0.01, 1e-4
PLAIN = {"name": "public", "plan": "plain", "stream": "screened", "steps": 4, "batch_size": 8, "learning_rate": 1e-2}
NOISY = {
    "name": "private",
    "plan": "dp",
    "stream": "private",
    "steps": STEPS,
    "expected_batch": BATCH,
    "clip_norm": 0.5,
    "learning_rate": 1e-2,
    "noise_multiplier": NOISE,
}
LINE = re.compile(r"^(worst-case|screened|bayesian)[^:]*: epsilon (\S+) at delta (\S+)$", re.MULTILINE)


def lines(tacit: Tacit, folder: Path, screening: dict[str, Any], *phases: dict[str, Any], **sections: Any) -> Any:
    values = dialogue_values(
        folder, UNITS, rounds=ROUNDS, screening={"data_point": "line", **screening}, phases=list(phases), **sections
    )
    done = tacit("plan", write_config(folder / "config.yaml", values))
    assert not (folder / "run").exists()
    return done, {kind: float(epsilon) for kind, epsilon, _ in LINE.findall(done.out)}


def epsilon_at(delta: float) -> float:
    return replacement_epsilon([Spend(PoissonGaussian(BATCH / UNITS, NOISE), ROUNDS * STEPS)], delta, 1)


def test_all_three_lines_are_printed_the_worst_case_first(tacit: Tacit, tmp_path: Path) -> None:
    done, found = lines(tacit, tmp_path, {"gamma": GAMMA, "delta2": DELTA / 4}, PLAIN, NOISY)
    assert done.code == 0, done.err
    assert list(found) == ["worst-case", "screened", "bayesian"]
    assert found["worst-case"] == math.inf
    assert found["screened"] == pytest.approx(epsilon_at(DELTA), rel=1e-3)
    assert found["bayesian"] == pytest.approx(epsilon_at(DELTA - DELTA / 4), rel=1e-3)
    assert found["bayesian"] != pytest.approx(found["screened"], rel=1e-2)  # so that neither can stand for the other


def test_a_run_that_would_keep_nothing_is_shown_and_then_refused(tacit: Tacit, tmp_path: Path) -> None:
    done, found = lines(tacit, tmp_path, {}, PLAIN, NOISY)
    assert done.code == 2
    assert "no-confidentiality" in done.err
    assert found == {"worst-case": math.inf}
    assert "screened, bayesian: epsilon inf\n  Nothing is guaranteed" in done.out
    allowed, _ = lines(tacit, tmp_path, {}, PLAIN, NOISY, allow=["heuristic:no-confidentiality"])
    assert allowed.code == 0, allowed.err

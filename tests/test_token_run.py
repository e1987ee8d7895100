"""A run whose policies mark token by token: its certificate has theorem 8.3, and every number of it is recomputed."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.config import RunConfig, parse_config
from tacit.errors import RefusedError
from tacit.files import read_json, write_json
from tacit.planning import make_plan
from tacit.planning.confidentiality import check_statement, planned_statement, run_statement
from tacit.planning.mechanisms import solve
from tacit.privacy.accounting.replacement import replacement_epsilon
from tacit.privacy.confidentiality.restated import check_restated
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import stated_spends

from .dialogues import Run, dialogue_values, run_dialogues, shown
from .small import tacit, write_config

BALANCED = "kind: tokens\nname: mine\nwords: [wolkenstein]\npatterns: ['(?i)zqvornak[0-9]+', '[0-9-]{7,}', '[^@]+@[^@]+']\n"
CONSERVATIVE = "kind: tokens\nname: strict\nmark: unlisted\nlists: [common]\n"
GAMMA, DELTA_2, DELTA = 0.05, 5e-5, 1e-4


def values(folder: Path, **screening: Any) -> dict[str, Any]:
    policies = {"balanced": BALANCED, "conservative": CONSERVATIVE}
    for role, text in policies.items():
        (folder / f"{role}.yaml").write_text(text)
    own: dict[str, Any] = {"policies": "tokens", "data_point": "line", "gamma": GAMMA, "delta2": DELTA_2}
    own |= {role: str(folder / f"{role}.yaml") for role in policies}
    phases = [
        {"name": "public", "plan": "plain", "stream": "screened", "steps": 2, "batch_size": 8},
        {"name": "private", "plan": "dp", "stream": "private", "steps": 2, "expected_batch": 20, "clip_norm": 0.5},
    ]
    return dialogue_values(
        folder,
        400,
        title="tokens",
        rounds=1,
        screening=own | screening,
        phases=[phase | {"learning_rate": 1e-2} for phase in phases],
    )


def options(folder: Path, **screening: Any) -> RunConfig:
    return parse_config(values(folder, **screening))


# what is refused ------------------------------------------------------------------------------------------------------

CONTEXT = "name: mine\nleast_score: 0.3\npatterns: [{label: n, pattern: '[0-9]+'}]\n"


@pytest.mark.parametrize("role", ["balanced", "conservative"])
def test_a_policy_that_reads_context_is_not_taken_for_one_of_tokens(role: str, tmp_path: Path) -> None:
    config = options(tmp_path)
    (tmp_path / f"{role}.yaml").write_text(CONTEXT)
    with pytest.raises(RefusedError, match="this policy reads context") as refused:
        make_plan(config)
    assert refused.value.reason == "policy-not-local"
    assert tacit("run", write_config(tmp_path / "c.yaml", values(tmp_path))).returncode != 2
    (tmp_path / f"{role}.yaml").write_text(CONTEXT)
    done = tacit("run", tmp_path / "c.yaml")
    assert done.returncode == 2
    assert "policy-not-local" in done.stderr


@pytest.mark.parametrize(
    ("screening", "reason"),
    [
        ({"balanced": None}, "policy-not-local"),
        ({"conservative": None}, "policy-not-local"),
        ({"missed": 0.01}, "policy-not-local"),
        ({"group": {"by": "document", "most": 4}}, "group-with-tokens"),
    ],
)
def test_what_breaks_the_theorem_is_refused(screening: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        options(tmp_path, **screening)
    assert refused.value.reason == reason
    options(tmp_path, policies="context", **screening)  # which claims less

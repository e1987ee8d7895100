"""A run of adaptive DP small enough for tests, in each of its forms."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tacit.privacy.events import Relation

from .small import small_values

STEPS = 30
PUBLIC = {"name": "public", "plan": "plain", "stream": "public", "steps": 3, "batch_size": 8, "learning_rate": 1e-3}
DP = {"plan": "dp", "steps": STEPS, "expected_batch": 20, "clip_norm": 0.5, "learning_rate": 1e-3}
STRATA = [{**DP, "name": "likely", "stream": "stratum-1"}, {**DP, "name": "unlikely", "stream": "stratum-2"}]
WHOLE = [{**DP, "name": "private", "stream": "private"}]
BUDGET = {"public-like": 1.0, "private-like": 0.4}


def adaptive_values(
    folder: Path, form: str = "strata", relation: Relation = "add-or-remove", **adaptive: Any
) -> dict[str, Any]:
    own: dict[str, Any] = {"form": form, "scorer": {"phase": "public"}, "lower": 5.0, "upper": 7.0}
    if form != "literal":
        own |= {"thresholds": [0.5], "budget": BUDGET}
    phases = STRATA if form == "strata" else WHOLE
    if form == "literal":
        phases = [{**WHOLE[0], "noise_multiplier": 1.0}]
    return small_values(
        folder,
        privacy={"unit": "record", "units": 250, "relation": relation, "budget": {"epsilon": 2.0, "delta": 1e-4}},
        vocabulary={"method": "public", "size": 500},
        model={"kind": "gpt2", "layers": 1, "width": 32, "heads": 2, "length": 24},
        adaptive={**own, **adaptive},
        phases=copy.deepcopy([PUBLIC, *phases]),  # a test may change its own
        audit={"canaries": 2, "copies": 3, "digits": 3},
        allow=["heuristic:adp"] if form == "literal" else [],
    )

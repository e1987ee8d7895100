"""Which budget to state: what an epsilon means in guesses, what others state, and how many units it takes. `tacit plan --advise`."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from tacit.config import RunConfig
from tacit.planning.cost import trained_parameters
from tacit.planning.text import columns, wrapped
from tacit.planning.usefulness import units_needed
from tacit.privacy.accounting.accountant import mu_at

__all__ = ["Advice", "advice", "advice_text", "right_guesses", "right_guesses_of_gaussian", "usual_delta"]

EPSILONS = (0.5, 1.0, 3.0, 8.0)
_UNITS, _PARAMETERS = 10_000, 1_000_000
"""Where no configuration is given."""

PRECEDENTS = (
    ("Ponomareva et al. 2023 (How to DP-fy ML)", "up to 1 is strong, up to 10 reasonable, above needs other evidence"),
    ("Gboard's language models (2024), users", "0.994 to 13.69 at delta 1e-10"),
    ("VaultGemma (2025), sequences of 1,024 tokens", "2.0 at delta 1.1e-10"),
    ("Li et al. 2022, Yu et al. 2022, fine-tuning, records", "3 to 8 at delta below 1/records"),
    ("Anil et al. 2021, BERT-large, records", "5.36"),
    ("US Census 2020, redistricting, persons", "17.14 at delta 1e-10"),
)
"""What others state: whose number, and which epsilon. A record is far less than a user: compare units first."""


def right_guesses(epsilon: float, delta: float) -> float:
    """How often, at most, one guesses right whether a unit is in the corpus, at even odds, from any (epsilon, delta) release.

    (e^epsilon + delta) / (1 + e^epsilon): half of one plus the largest total variation (Kairouz et al. 2015, theorem 2.1).

    >>> round(right_guesses(1.0, 0.0), 3)
    0.731
    """
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


def right_guesses_of_gaussian(epsilon: float, delta: float) -> float:
    """`right_guesses` of Gaussian noise that has exactly this epsilon at this delta, as a run of ours nearly is: Phi(mu / 2).

    >>> round(right_guesses_of_gaussian(8.0, 1e-5), 3)
    0.798
    """
    return 0.5 * (1 + math.erf(mu_at(epsilon, delta) / 2 / math.sqrt(2)))


def usual_delta(units: int) -> float:
    """A power of ten at most a tenth of one over the units: so the chance of a whole unit's failure is small over all of them.

    >>> usual_delta(20_000), usual_delta(10_000)
    (1e-06, 1e-05)
    """
    return float(f"1e{-(len(str(units - 1)) + 1) if units > 1 else -1}")


@dataclass(frozen=True)
class Advice:
    """What the budgets mean for so many units of a model of so many parameters."""

    unit: str
    units: int
    delta: float
    parameters: int

    def rows(self) -> list[dict[str, float]]:
        """A row for each epsilon: right guesses (of any release, and of Gaussian noise) and the units from which on it can work."""
        return [
            {
                "epsilon": epsilon,
                "right_guesses": right_guesses(epsilon, self.delta),
                "right_guesses_of_gaussian": right_guesses_of_gaussian(epsilon, self.delta),
                "units_needed": units_needed(epsilon, self.delta, self.parameters),
            }
            for epsilon in EPSILONS
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**dataclasses.asdict(self), "usual_delta": usual_delta(self.units), "budgets": self.rows()}


def advice(config: RunConfig | None) -> Advice:
    """Advice for a configuration's units and model, with its own delta; without one for a small model of ten thousand users."""
    if config is None:
        return Advice("user", _UNITS, usual_delta(_UNITS), _PARAMETERS)
    privacy = config.privacy
    parameters = trained_parameters(config)
    return Advice(privacy.unit_name, privacy.units, privacy.budget.delta, parameters)


def advice_text(given: Advice, width: int) -> str:
    """The advice for a window."""
    delta, unit = given.delta, given.unit
    rows = [
        [
            f"{row['epsilon']:g}",
            _percent(row["right_guesses"]),
            _percent(row["right_guesses_of_gaussian"]),
            f"{row['units_needed']:,}",
            f"{10 * row['units_needed']:,}",
        ]
        for row in given.rows()
    ]
    said = [
        f"For {given.units:,} {unit}s, delta {delta:g} and a model of {given.parameters:,} parameters:",
        columns(["epsilon", "guesses, any", "guesses, here", "units, least", "units, better"], rows),
        f"guesses: someone who gives even odds that a {unit} is in the corpus, knows its text and sees the release guesses right "
        "at most so often; 50 % is no better than a coin. any: of whatever has this epsilon and delta; here: of Gaussian noise, "
        "which a run of tacit nearly is (its report states its own number).",
        "units, least: with fewer no batch and no number of steps brings what all parameters learn above the noise; better: ten "
        "times as many. A model that starts from public text gets along with fewer.",
        "What others state: " + "; ".join(f"{who}: {what}" for who, what in PRECEDENTS) + ".",
        *(f"{name}: {words}" for name, words in _choices(given)),
    ]
    return "\n\n".join(text if "\n" in text else wrapped(_whole(text), width) for text in said)


def _choices(given: Advice) -> list[tuple[str, str]]:
    """What to state, option by option."""
    return [
        (
            "epsilon",
            "state the smallest at which the model is still of use; begin with 3. At 8 the attack on one unit is hindered, not "
            "excluded: rely on it only beside a large unit and the audit.",
        ),
        (
            "delta",
            f"must be below one over the units (1/{given.units:,}); take at most a tenth of that: {usual_delta(given.units):g}.",
        ),
        (
            "unit",
            "the largest thing that must be protected, which is a person (user) wherever records say whose they are.",
        ),
        ("units", "a public statement, rounded, never the exact count; tacit never counts for you."),
        (
            "clip norm",
            "0.5, and leave it: noise grows with it, so epsilon does not depend on it, and a learning rate makes up for the rest. "
            "Of public text you may choose both; trying several on private text is several runs, and each spends its own budget.",
        ),
    ]


def _percent(share: float) -> str:
    """Rounded up, as a bound is."""
    return f"{math.ceil(1000 * share) / 10:.1f} %"


def _whole(text: str) -> str:
    """Numbers stay with what they are of."""
    return text.replace(" %", "\xa0%").replace("epsilon ", "epsilon\xa0").replace("delta 1", "delta\xa01")

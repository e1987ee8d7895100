"""A draft for OpenDP's registry of deployments of differential privacy, from the facts of a report.

The shape is that of ``schemas/deployments-schema.yaml`` in opendp/deployments-registry-data: three tiers, no other fields. What tacit
does not know (who publishes, what for, where) is `OPEN`, for the curator to fill in.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from tacit.errors import UsageError
from tacit.report.prose.asked import asked_answers
from tacit.report.prose.numbers import bound_text
from tacit.report.schema import ReportData

__all__ = ["OPEN", "registry_record", "registry_text"]

OPEN = "TO BE FILLED IN"

_HEAD = f"""\
# A draft for OpenDP's registry of deployments (opendp/deployments-registry-data). Replace every "{OPEN}", check the rest,
# and look at the registry's own schema, which may have changed since.
"""


def registry_text(data: ReportData) -> str:
    """The draft as YAML. Raises UsageError as `registry_record` does."""
    return _HEAD + yaml.safe_dump(registry_record(data), sort_keys=False, allow_unicode=True, width=110)


def registry_record(data: ReportData) -> dict[str, Any]:
    """The draft as plain values.

    Raises:
        UsageError: the run has no guarantee, so it is no deployment of differential privacy.
    """
    if not data.guarantee.is_proved:
        raise UsageError(
            f"{data.run_name}: no differential privacy is proved of it, so it does not belong in the registry"
        )
    answers = asked_answers(data)
    return {
        "url_slug": re.sub("[^a-z0-9]+", "-", f"{data.title} {data.run_name}".lower()).strip("-"),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(data),
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": _domain(data),
                "unprotected_quantities": "The stated number of units, all options of the run, and the public text that it read.",
            },
            "privacy_loss": _privacy_loss(data, answers["unit"], answers["neighbours"]),
            "deployment_model": {
                "model_name": "Central",
                "actors": f"{answers['trust']} Whoever has the release need not be trusted.",
                "release_type": "One release",
                "release_type_details": f"Further releases from the same text: {OPEN}.",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
                "access_type_details": "The released files are published as they are.",
            },
            "accounting": {
                "post_processing": "None is needed: whatever is computed from the released files is covered.",
                "composition": answers["accounting"],
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": answers["tuning"],
                "mechanisms": f"{answers['mechanisms']} {data.guarantee.randomness} {answers['access']}",
                "justification": OPEN,
            },
            "administrative": {
                "sources": OPEN,
                "notes": f"Made by tacit {data.tacit_version}; head of the ledger {data.ledger_head}.",
                "registry_authors": [OPEN],
            },
        },
    }


def _basic(data: ReportData) -> dict[str, Any]:
    model = data.model
    return {
        "name": data.title,
        "data_curators": [OPEN],
        "intended_use": OPEN,
        "data_product_type": "Machine learning model",
        "data_product_region": OPEN,
        "description": f"A language model ({model.kind}, {model.parameters:,} parameters), trained on private text with DP-SGD.",
        "publication_date": OPEN,
    }


def _domain(data: ReportData) -> str:
    """What every corpus is like that the guarantee compares."""
    stated = [row.text for row in data.guarantee.assumptions if row.text.startswith("Every corpus")]
    return " ".join(stated) or OPEN


def _privacy_loss(data: ReportData, unit: str, neighbours: str) -> dict[str, Any]:
    pair = data.guarantee.certified
    groups = "; ".join(
        f"{row.who}: {bound_text(row.epsilon)}" for row in data.whose if not row.of_unit and row.epsilon < 1e300
    )
    return {
        "privacy_unit": data.guarantee.unit,
        "privacy_unit_details": f"{unit} {neighbours}",
        "privacy_parameters": {"epsilon": pair.epsilon, "delta": pair.delta},
        "privacy_parameters_details": f"As one Gaussian mechanism, mu is {bound_text(data.guarantee.mu)}."
        + (f" Epsilon at the same delta of {groups}." if groups else ""),
    }

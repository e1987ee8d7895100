"""From the cells' results to the tables behind the figures: a CSV for each, and rows for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.reproduce.writing import Row, number

__all__ = ["attack_rows", "utility_rows"]


def utility_rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Figure 2: perplexity and epsilon after every round."""
    rows: list[Row] = []
    for result in results:
        for one in result["rounds"]:
            rows.append(
                {
                    **result["cell"],
                    "round": one["round"],
                    "epsilon_paper": number(one["epsilons"]["paper"]),
                    "epsilon_ours": number(one["epsilons"]["ours"]),
                    "epsilon_worst_case": number(one["epsilons"]["worst_case"]),
                    "epsilon_selective": number(one["epsilons"]["selective"]),
                    **{f"perplexity_{name}": one["texts"][name]["perplexity"] for name in _TEXTS},
                    **{f"bits_per_byte_{name}": one["texts"][name]["bits_per_byte"] for name in _TEXTS},
                }
            )
    return rows


_TEXTS = ("redacted", "raw", "without_secrets")


def attack_rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Figures 3 to 5: exposure and membership inference of the last round's model, with their nulls and intervals."""
    rows: list[Row] = []
    for result in results:
        exposure, membership = result["exposure"], result["membership"]
        row: Row = {**result["cell"]}
        for name in ("max_bits", "null_max_bits", "max_p_value", "mean_bits", "null_mean_bits", "mean_p_value"):
            row[f"exposure_{name}"] = exposure[name]
        row |= _membership(membership)
        rows.append(row | {"noise_multiplier": result["noise_multiplier"], "seconds": round(result["seconds"], 1)})
    return rows


def _membership(found: Mapping[str, Any] | None) -> Row:
    """No number where nobody was attacked, since too few secrets stand in what was trained on."""
    row: Row = {}
    for attack in ("single", "group"):
        row |= _attack(attack, {} if found is None else found[attack])
        row |= _parts(f"{attack}_blind_auc", None if found is None else found[f"{attack}_blind"]["auc"])
        row |= _attack(f"shadow_{attack}", {} if found is None else found["shadow"][attack])
        row[f"{attack}_members"] = 0 if found is None else found[attack]["members"]
    return row | _parts("twin_accuracy", None if found is None else found["twins"])


def _attack(name: str, own: Mapping[str, Any]) -> Row:
    tpr = own.get("tpr")
    at_1_percent = {f"{name}_tpr_at_1_percent": None if tpr is None else tpr["value"]}
    return _parts(f"{name}_accuracy", own.get("accuracy")) | _parts(f"{name}_auc", own.get("auc")) | at_1_percent


def _parts(name: str, estimate: Mapping[str, float] | None) -> Row:
    return {f"{name}_{part}": None if estimate is None else estimate[part] for part in ("value", "low", "high")}

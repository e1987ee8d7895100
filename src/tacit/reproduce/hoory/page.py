"""The tables of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.reproduce.driver import Page
from tacit.reproduce.hoory.scale import DELTA, Base
from tacit.reproduce.writing import Row, markdown_table

__all__ = ["results_page"]


_TABLE2 = [
    "model",
    "ε vocabulary",
    "ε training",
    "ε joint",
    "F1 (95 %)",
    "by pre-training",
    "gain over BERT",
    "share kept",
]
_TRICKS = [
    "training",
    "ε",
    "masked loss",
    "difference (95 %)",
    "F1 (95 %)",
    "difference (95 %)",
    "seconds",
]


def results_page(sizes: Mapping[str, Any], tables: Mapping[str, Sequence[Row]], seconds: float) -> Page:
    """The page from all tables but ``rates``, of which no claim is.

    Args:
        sizes: of the prepared corpora.
        seconds: of all processes together.
    """
    notes, out = sizes["notes"], sizes["left-out"]
    summary = (
        f", {seconds / 60:.0f} process-minutes in all; delta {DELTA:g}, unit: note. "
        f"{notes['records']} notes of {notes['words']} words are trained on; {out['records']} share text with one of the "
        f"{sizes['annotated notes']} annotated notes and are left out."
    )
    sections = {
        f"Table 2: entity F1 on {task}": markdown_table(
            _TABLE2, [_table2(row) for row in tables["table2"] if row["task"] == task]
        )
        for task in dict.fromkeys(row["task"] for row in tables["table2"])
    }
    sections |= {
        "The vocabularies": markdown_table(
            ["base", "pieces", "words from the notes", "pieces a word"],
            [_vocabulary(row) for row in tables["vocabularies"]],
        ),
        "What each trick gives": markdown_table(_TRICKS, [_trick(row) for row in tables["tricks"]]),
        "Figure 1: noise, steps, batch": markdown_table(
            ["varied", "value", "ε", "F1 (95 %)", "masked loss"], [_figure1(row) for row in tables["figure1"]]
        ),
        "Figure 2: exposure of the canaries in bits (p-value)": _exposures(tables["figure2"]),
    }
    return Page(summary, sections)


def _epsilon(value: float | None) -> str:
    return "" if value is None else "∞" if math.isinf(value) else f"{value:.2f}" if value else "-"


def _between(row: Row, name: str, form: str = ".3f") -> str:
    value, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return ""
    return f"{value:{form}}" if low is None else f"{value:{form}} ({low:{form}}, {high:{form}})"


def _table2(row: Row) -> list[str]:
    share = "" if row["share"] is None else f"{100 * row['share']:.0f} %"
    if row["share_low"] is not None:
        share += f" ({100 * row['share_low']:.0f}, {100 * row['share_high']:.0f})"
    prices = [_epsilon(row[name]) for name in ("epsilon_vocabulary", "epsilon_training", "epsilon")]
    scores = [_between(row, "f1"), row["pretrainings"], _between(row, "gain", "+.3f")]
    return [row["model"], *prices, *scores, share]


def _vocabulary(row: Row) -> list[str]:
    base = Base(row["vocabulary"], row["text"], row["epsilon"], row["replicate"])
    own_words = "" if row["own_words"] is None else str(row["own_words"])
    return [base.name, str(row["pieces"]), own_words, f"{row['pieces_a_word']:.3f}"]


def _trick(row: Row) -> list[str]:
    loss = "-" if row["loss_nats"] is None else f"{row['loss_nats']:.3f}"
    losses, scores = [loss, _between(row, "change", "+.3f")], [_between(row, "f1"), _between(row, "gain", "+.3f")]
    return [row["words"], _epsilon(row["epsilon"]), *losses, *scores, f"{row['training_seconds']:.0f}"]


def _figure1(row: Row) -> list[str]:
    return [
        row["varied"],
        f"{row['value']:.4g}",
        _epsilon(row["epsilon"]),
        _between(row, "f1"),
        f"{row['loss_nats']:.3f}",
    ]


def _exposures(rows: Sequence[Row]) -> str:
    """A row a training and number of occurrences, a column a pattern."""
    patterns = list(dict.fromkeys(row["pattern"] for row in rows))
    found: dict[str, Row] = {row["model"]: row for row in rows}
    cells = {(row["model"], row["pattern"]): f"{row['bits']:.2f} ({row['p_value']:.2g})" for row in rows}
    lines = [
        [
            f"DP, ε {row['epsilon']:.2f}" if row["dp"] else "without DP",
            f"{row['occurrences']:.0f}",
            *(cells[model, pattern] for pattern in patterns),
            f"{row['null_bits']:.2f}",
        ]
        for model, row in found.items()
    ]
    return markdown_table(["training", "occurrences", *patterns, "null"], lines)

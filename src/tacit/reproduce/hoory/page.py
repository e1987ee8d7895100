"""The page of the results: what was run, the paper's claims as our numbers judge them, and the tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.reproduce.hoory.scale import DELTA, Scale
from tacit.reproduce.writing import Claim, Row, claims_table, markdown_table

__all__ = ["results_page"]


def results_page(
    scale: Scale,
    sizes: Mapping[str, Any],
    bases: Sequence[Mapping[str, Any]],
    tables: Mapping[str, Sequence[Row]],
    claims: Sequence[Claim],
    done: tuple[int, int],
    seconds: float,
) -> str:
    """Markdown.

    Args:
        sizes: of the prepared corpora.
        bases: results of the bases.
        tables: ``table2``, ``figure1``, ``figure2``, ``tricks``, ``rates``.
        done: models that are done, and all.
        seconds: of all processes together.
    """
    notes, out = sizes["notes"], sizes["left-out"]
    parts = [
        f"Scale `{scale.name}`: {done[0]} of {done[1]} models, {seconds / 60:.0f} process-minutes in all; delta {DELTA:g}, unit: "
        "note. "
        f"{notes['records']} notes of {notes['words']} words are trained on; {out['records']} share text with one of the "
        f"{sizes['annotated notes']} annotated notes and are left out.",
        "### The claims",
        claims_table(claims, "task"),
        "### Table 2: entity F1",
        markdown_table(_TABLE2, [_table2(row) for row in tables["table2"]]),
        "### The vocabularies",
        markdown_table(
            ["vocabulary", "pieces", "words that the notes brought", "pieces a word of the left-out notes"],
            _bases(bases),
        ),
        "### What each trick gives",
        markdown_table(_TRICKS, [_trick(row) for row in tables["tricks"]]),
        "### Figure 1: noise, steps, batch",
        markdown_table(
            ["varied", "value", "ε", "F1 (95 %)", "masked loss (nats)"], [_figure1(row) for row in tables["figure1"]]
        ),
        "### Figure 2: exposure of the canaries",
        markdown_table(
            ["training", "pattern", "occurrences", "exposure (bits)", "null", "p"],
            [_exposure(row) for row in tables["figure2"]],
        ),
        "### The learning rate, on health answers in the notes' place",
        markdown_table(["learning rate", "masked loss (nats)", "accuracy"], [_rate(row) for row in tables["rates"]]),
    ]
    return "\n\n".join(parts) + "\n"


_TABLE2 = [
    "task",
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
    "masked loss (nats)",
    "difference to the reference (95 %)",
    "F1 (95 %)",
    "difference (95 %)",
    "seconds",
]


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
    named = f"{row['model']}: {row['words']}"
    scores = [_between(row, "f1"), row["pretrainings"], _between(row, "gain", "+.3f")]
    return [row["task"], named, *prices, *scores, share]


def _bases(bases: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            _begun_with(base["base"]),
            str(base["pieces"]),
            "" if base["own_words"] is None else str(base["own_words"]),
            f"{base['pieces_a_word']:.3f}",
        ]
        for base in bases
    ]


def _begun_with(base: Mapping[str, Any]) -> str:
    """A base in words."""
    budget = "" if base["epsilon"] is None else f", of a budget of ε {base['epsilon']:g}"
    again = "" if base["replicate"] == 1 else f", pre-training {base['replicate']}"
    return f"{base['vocabulary']}{budget} (last text: {base['text']}{again})"


def _trick(row: Row) -> list[str]:
    loss = "other pieces" if row["loss_nats"] is None else f"{row['loss_nats']:.3f}"
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


def _exposure(row: Row) -> list[str]:
    training = f"DP, ε {row['epsilon']:.2f}" if row["dp"] else "without DP"
    numbers = [f"{row['occurrences']:.0f}", f"{row['bits']:.2f}", f"{row['null_bits']:.2f}", f"{row['p_value']:.2g}"]
    return [training, row["pattern"], *numbers]


def _rate(row: Row) -> list[str]:
    return [f"{row['learning_rate']:g}", f"{row['loss_nats']:.3f}", f"{row['accuracy']:.3f}"]

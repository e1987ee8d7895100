"""The tables of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.reproduce.driver import Page
from tacit.reproduce.hoory.cells import DELTA, UNITS, Base
from tacit.reproduce.hoory.exposures import mean_exposures
from tacit.reproduce.writing import Row, markdown_table

__all__ = ["results_page"]

_PRICES = ["ε vocabulary", "ε training", "ε joint"]
_LOSSES = ["model", *_PRICES, "services", "trainings", "masked loss", "gain over BERT", "share of BERT-M's"]
_TABLE2 = ["model", "vocabulary", *_PRICES[2:], "F1", "gain over BERT", "share of BERT-M's"]


def results_page(sizes: Mapping[str, Any], tables: Mapping[str, Sequence[Row]], seconds: float) -> Page:
    """The page from all tables.

    Args:
        sizes: of the prepared corpora.
        seconds: of all processes together.
    """
    notes, dialogues = sizes["notes"], sizes["dialogues"]
    summary = (
        f", {seconds / 60:.0f} process-minutes in all; delta {DELTA:g}, units: {notes['records']} notes of {notes['words']} words "
        f"and {dialogues['records']} dialogues of {dialogues['words']} (stated: {UNITS['notes']} and {UNITS['dialogues']}). "
        f"{sizes['left-out-notes']['records']} notes share text with one of the {sizes['annotated notes']} annotated ones and "
        "are left out. Intervals of the tables are at 95 % each, over trainings and test documents."
    )
    sections = {
        "Masked loss (nats) of text that was left out": markdown_table(_LOSSES, list(map(_loss, tables["losses"])))
    }
    sections |= {
        f"Table 2: entity F1 on {_task(task, part)}": markdown_table(
            _TABLE2, [_table2(row) for row in tables["table2"] if (row["task"], row["part"]) == (task, part)]
        )
        for task, part in dict.fromkeys((row["task"], row["part"]) for row in tables["table2"])
    }
    sections |= {
        "Vocabularies of the models": markdown_table(
            ["base", "pieces", "words from private text", "pieces a word of notes", "of dialogues"],
            [_vocabulary(row) for row in tables["vocabularies"]],
        ),
        "DP vocabularies of private words alone, as large as their budget makes them": markdown_table(
            ["text", "ε", "words", "pieces", "pieces a word"], [_lexicon(row) for row in tables["lexicons"]]
        ),
        "What a change of the DP training gives, on public dialogues": markdown_table(
            ["dialogues", "training", "masked loss", "difference (95 %, over dialogues)", "seconds"],
            list(map(_trick, tables["tricks"])),
        ),
        "Figure 1: noise, steps, batch": markdown_table(
            ["varied", "value", "noise multiplier", "ε", "masked loss"], list(map(_figure1, tables["figure1"]))
        ),
        "Figure 2: exposure of the canaries in bits (p-value)": _exposures(tables["figure2"]),
    }
    return Page(summary, sections)


def _task(task: str, part: str) -> str:
    return f"{task}, unseen services" if part == "unseen" else task


def _epsilon(value: float | None) -> str:
    return "" if value is None else "∞" if math.isinf(value) else f"{value:.2f}" if value else "-"


def _between(row: Row, name: str, form: str = ".3f") -> str:
    value, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return ""
    return f"{value:{form}}" if math.isinf(low) else f"{value:{form}} ({low:{form}}, {high:{form}})"


def _share(row: Row) -> str:
    return _between(
        {name: value and 100 * value for name, value in row.items() if name.startswith("share")}, "share", ".0f"
    )


def _loss(row: Row) -> list[str]:
    prices = [_epsilon(row[name]) for name in ("epsilon_vocabulary", "epsilon_training", "epsilon")]
    text = row["text"] if row["model"].startswith("dialogues") else ""
    gains = [_between(row, "loss"), _between(row, "gain", "+.3f"), _share(row)]
    return [row["model"], *prices, text, str(row["trainings"]), *gains]


def _table2(row: Row) -> list[str]:
    model, _, vocabulary = row["words"].partition(", ")
    if not vocabulary:
        model = row["model"]
    return [
        model,
        vocabulary,
        _epsilon(row["epsilon"]),
        _between(row, "f1"),
        _between(row, "gain", "+.3f"),
        _share(row),
    ]


def _vocabulary(row: Row) -> list[str]:
    base = Base(row["vocabulary"], row["text"], row["private"], row["epsilon"])
    words = [_number(row[f"pieces_a_word_of_{private}"]) for private in ("notes", "dialogues")]
    return [base.name, str(row["pieces"]), "" if row["own_words"] is None else str(row["own_words"]), *words]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _lexicon(row: Row) -> list[str]:
    return [
        row["private"],
        f"{row['epsilon']:.2f}",
        str(row["words"]),
        str(row["pieces"]),
        _number(row["pieces_a_word"]),
    ]


def _trick(row: Row) -> list[str]:
    numbers = [_number(row["loss"]), _between(row, "change", "+.3f"), f"{row['training_seconds']:.0f}"]
    return [str(row["units"]), row["words"], *numbers]


_VARIED = {
    "noise": "noise",
    "steps": "steps",
    "batch": "batch",
    "root": "batch, noise in proportion to its root",
    "passes": "batch at one ε, as many passes",
}


def _figure1(row: Row) -> list[str]:
    shown = [f"{row['value']:.4g}", f"{row['noise']:.3g}", _epsilon(row["epsilon"])]
    return [_VARIED[row["varied"]], *shown, _between(row, "loss")]


def _exposures(rows: Sequence[Row]) -> str:
    """A row a way of training, number of occurrences and kind of contexts, a column a pattern."""
    rows = mean_exposures(rows)
    patterns = list(dict.fromkeys(row["pattern"] for row in rows))
    found: dict[tuple[str, str], Row] = {(row["model"], row["contexts"]): row for row in rows}
    cells = {
        (row["model"], row["contexts"], row["pattern"]): f"{row['bits']:.2f} ({row['p_value']:.2g})" for row in rows
    }
    lines = [
        [
            f"{row['words']}, ε {row['epsilon']:.2f}" if row["dp"] else "without DP",
            row["contexts"],
            f"{row['occurrences']:.0f}",
            f"{row['trainings']}",
            *(cells.get((*key, pattern), "") for pattern in patterns),
            f"{row['null_bits']:.2f}",
        ]
        for key, row in found.items()
    ]
    return markdown_table(["training", "masked in", "occurrences", "trainings", *patterns, "null"], lines)

"""The tables of the page: one for each corpus and model with a row a training, the epsilons, figure 6, copies and deduplication."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tacit.reproduce.crt.asked import CRT
from tacit.reproduce.crt.panel import COPIES, Arms, Attack, PanelResults
from tacit.reproduce.crt.runs import DELTA
from tacit.reproduce.crt.scale import ARMS, GAMMAS, UTILITY_GAMMA, Scale
from tacit.reproduce.crt.utility import percent
from tacit.reproduce.driver import LEVEL, Page
from tacit.reproduce.writing import Row, markdown_table

__all__ = ["results_page"]

_TEXTS = ("redacted", "raw", "without_secrets")
_MAIN = ("redacted", "crt", "noiseless", "public-lines", "raw", "dp-sgd", "s-dp")
"""Of the other arms the ablation tells."""
_HEADS = [
    "training",
    "γ",
    "redacted",
    "raw",
    "no secrets",
    "highest exposure (p)",
    "membership",
    "against shadows",
    "groups",
    "against shadows",
    "twins",
]
_ATTACKS: dict[Attack, int] = {"single": 3, "shadow_single": 3, "group": 2, "shadow_group": 2, "twin": 3}
"""Columns of the attacks on membership, and their digits."""


def results_page(
    scale: Scale, tables: Mapping[str, Sequence[Row]], panels: Sequence[PanelResults], seconds: float
) -> Page:
    """The page from the results, ``figure2``, ``figures3-5``, ``figure6`` and ``baselines``.

    Args:
        seconds: of all jobs.
    """
    utility, attacks = tables["figure2"], tables["figures3-5"]
    summary = (
        f", {seconds / 3600:.1f} process-hours in all; epsilon {scale.epsilon:g} at delta {DELTA:g} in every arm that has one, "
        f"{scale.rounds} rounds. The claims together are judged at level {LEVEL:g}."
    )
    sections = {
        f"Figures 2 to 5: {panel.name}, {panel.seeds} seed(s)": markdown_table(_HEADS, _panel(panel))
        for panel in panels
    }
    heads = ["corpus, model", "CRT", "its lines, all without noise", "CRT against these"]
    sections |= {
        "Perplexity of redacted text above redaction alone's": markdown_table(heads, _distances(panels)),
        "Epsilon of DP-SGD, CRT and S-DP": markdown_table(
            ["corpus", "training", "γ", "noise multiplier", "ε paper", "ε ours", "ε selective"],
            _epsilons(utility, attacks),
        ),
        "Figure 6: epsilon of definition 4": markdown_table(
            ["ε'", "γ", "paper's formula", "policies of tokens", "policies that read context"],
            _figure6(tables["figure6"]),
        ),
        "Models that know no order": markdown_table(
            ["corpus", "model", "redacted", "raw", "no secrets"],
            [[row["corpus"], row["model"], *(f"{row[text]:.1f}" for text in _TEXTS)] for row in tables["baselines"]],
        ),
    }
    if scale.ablation:
        heading = "Copies of the canaries and deduplication: customersim, lstm, γ = 0.5, first seed"
        heads = ["training", "copies", "highest exposure (p)", "mean exposure (p)"]
        sections[heading] = markdown_table(heads, _ablation(attacks))
    return Page(summary, sections)


def _panel(panel: PanelResults) -> list[list[str]]:
    """A row a training: means over its seeds. Exposure has the combined p-value of the seeds' mean exposures."""
    rows = (
        [["public model", "", *_utility(panel, Arms("trunk")), *[""] * (len(_ATTACKS) + 1)]]
        if panel.trunk is not None
        else []
    )
    for name in _MAIN:
        for gamma in panel.gammas(name):
            arm = Arms(name, gamma)
            rows.append([ARMS[name], _gamma(name, gamma), *_utility(panel, arm), *_attacks(panel, arm)])
    return rows


def _distances(panels: Sequence[PanelResults]) -> list[list[str]]:
    """How far CRT is from redaction alone, how far its lines are by ordinary training, and what training with DP adds: noise,
    clipping, and steps and rates of its own."""
    alone, apart = (Arms(name, UTILITY_GAMMA) for name in ("redacted", "noiseless"))
    pairs = ((CRT, alone), (apart, alone), (CRT, apart))
    rows = []
    for panel in panels:
        ratios = [panel.ratio(own, other, "redacted", 0.05) for own, other in pairs]
        rows.append([panel.name, *("" if ratio is None else percent(ratio) for ratio in ratios)])
    return rows


def _utility(panel: PanelResults, arm: Arms) -> list[str]:
    return [f"{panel.perplexity(arm, text):.2f}" for text in _TEXTS]


def _attacks(panel: PanelResults, arm: Arms) -> list[str]:
    exposure = f"{panel.bits(arm):.1f} ({panel.exposure(arm):.2g})"
    found = [(panel.accuracy(arm, attack, 0.05), digits) for attack, digits in _ATTACKS.items()]
    return [exposure, *("too few" if own is None else f"{own.value:.{digits}f}" for own, digits in found)]


def _gamma(arm: str, gamma: float) -> str:
    return "" if arm in ("raw", "dp-sgd") else f"{gamma:g}"


def _last(utility: Sequence[Row]) -> list[Row]:
    """After the last round."""
    last = max((row["round"] for row in utility), default=0)
    return [row for row in utility if row["round"] == last]


def _epsilons(utility: Sequence[Row], attacks: Sequence[Row]) -> list[list[str]]:
    """The epsilons of arms with noise; both kinds of model and all seeds have the same."""
    noise = {
        (row["corpus"], row["arm"]): row["noise_multiplier"] for row in attacks if row["noise_multiplier"] is not None
    }
    found = []
    for row in _last(utility):
        if (row["corpus"], row["arm"]) in noise and row["copies"] == COPIES and row["gamma"] in (0.0, 0.1, 0.5):
            epsilons = [_epsilon(row[f"epsilon_{name}"]) for name in ("paper", "ours", "selective")]
            multiplier = f"{noise[row['corpus'], row['arm']]:.3f}"
            found.append((row["corpus"], ARMS[row["arm"]], _gamma(row["arm"], row["gamma"]), multiplier, *epsilons))
    return [list(row) for row in dict.fromkeys(found)]


def _epsilon(value: float | None) -> str:
    return "" if value is None else "∞" if math.isinf(value) else f"{value:.2f}"


def _figure6(rows: Sequence[Row]) -> list[list[str]]:
    chosen = [row for row in rows if row["gamma"] in GAMMAS]
    return [
        [
            f"{row['epsilon_before']:.2f}",
            f"{row['gamma']:g}",
            *(f"{row[name]:.2f}" for name in ("paper", "ours", "ours_context")),
        ]
        for row in chosen
    ]


def _ablation(rows: Sequence[Row]) -> list[list[str]]:
    chosen = [
        row
        for row in rows
        if (row["corpus"], row["model"], row["seed"]) == ("customersim", "lstm", 0)
        and (row["gamma"] == 0.5 or row["arm"] in ("raw", "dp-sgd"))
    ]
    return [
        [ARMS[row["arm"]], str(row["copies"]), _bits(row, "max", 1), _bits(row, "mean", 2)]
        for row in sorted(chosen, key=lambda row: (row["arm"], row["copies"]))
    ]


def _bits(row: Row, name: str, digits: int) -> str:
    return f"{row[f'exposure_{name}_bits']:.{digits}f} ({row[f'exposure_{name}_p_value']:.2g})"

"""What was measured of one corpus and kind of model, over the seeds: perplexities, attacks and exposures, with intervals.

Shapes: S seeds, D test dialogues.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tacit.audit.inference import Estimate
from tacit.reproduce.crt.scale import Scale, cells_of
from tacit.reproduce.judging import fishers, log_ratio, over_seeds

__all__ = ["COPIES", "Arms", "Attack", "PanelResults", "panels_of", "ratio_of_ratios", "ratio_of_texts"]

_Texts = Mapping[int, Mapping[str, Any]]
"""What models make of one test text, by seed (`PanelResults.texts`)."""
Attack = Literal["single", "group", "shadow_single", "shadow_group", "twin"]
"""On single texts and groups by their losses, and by these less those under shadow models; on a line and its twin by losses."""
COPIES = 20
"""Of each canary in all claims; of others the ablation tells."""

_TRIALS = 2
"""Guesses for each member, one of it and one of its non-member; with twins there is one of both."""


@dataclass(frozen=True)
class Arms:
    """A training at a share of misses; ``trunk``: no training at all."""

    name: str
    gamma: float = 0.0


@dataclass(frozen=True)
class PanelResults:
    """The results of a panel.

    Args:
        cells: of its models, as `tacit.reproduce.crt.measure.measure` has them.
        trunk: of the model that all begin with; None: not known.
        planned: the trainings of its scale, run or not; those that were run are planned in any case.
        attacked: whether its scale tries membership.
    """

    corpus: str
    model: str
    cells: Sequence[Mapping[str, Any]]
    trunk: Mapping[str, Any] | None = None
    planned: frozenset[Arms] = frozenset()
    attacked: bool = True

    @property
    def name(self) -> str:
        """The name of the panel as the page has it."""
        return f"{self.corpus}, {self.model}"

    @property
    def seeds(self) -> int:
        """The number of seeds of its models."""
        return len({cell["cell"]["seed"] for cell in self.cells})

    def gammas(self, arm: str) -> list[float]:
        """Shares of misses that were run."""
        return sorted({cell["cell"]["gamma"] for cell in self._usual() if cell["cell"]["arm"] == arm})

    def plans(self, arm: str) -> list[float]:
        """Shares of misses that are planned, or were run."""
        return sorted({one.gamma for one in self.planned if one.name == arm} | {*self.gammas(arm)})

    def of(self, arm: Arms) -> dict[int, Mapping[str, Any]]:
        """Results by seed."""
        wanted = (arm.name, arm.gamma)
        found = {cell["cell"]["seed"]: cell for cell in self._usual() if _arm(cell) == wanted}
        return dict(sorted(found.items()))

    def _usual(self) -> list[Mapping[str, Any]]:
        return [cell for cell in self.cells if cell["cell"]["copies"] == COPIES]

    def ratio(self, own: Arms, other: Arms, text: str, level: float) -> Estimate | None:
        """The log of (perplexity of ``own`` / perplexity of ``other``), on the seeds that both have; None: there is none."""
        return ratio_of_texts(self.texts(own, text), self.texts(other, text), level)

    def perplexity(self, arm: Arms, text: str) -> float:
        """Mean over the seeds, of logarithms."""
        return math.exp(float(np.mean([math.log(found["perplexity"]) for found in self.texts(arm, text).values()])))

    def texts(self, arm: Arms, text: str) -> Mapping[int, Mapping[str, Any]]:
        """What a training's models make of a test text, by seed; the trunk is the same for all seeds."""
        if arm.name == "trunk":
            if self.trunk is None:
                return {}
            own: Mapping[str, Any] = self.trunk["texts"][text]
            return {cell["cell"]["seed"]: own for cell in self.cells}
        return {seed: cell["rounds"][-1]["texts"][text] for seed, cell in self.of(arm).items()}

    def accuracy(self, arm: Arms, attack: Attack, level: float) -> Estimate | None:
        """Accuracy of an attack, mean over the seeds.

        The lines that are attacked are drawn once for all seeds, so what they add to the variance does not shrink with seeds.
        """
        values, trials = self._attacked(arm, attack)
        if not values:
            return None
        within = float(np.mean([value * (1 - value) / count for value, count in zip(values, trials, strict=True)]))
        return over_seeds(np.array(values), within, max(1.0, float(np.mean(trials)) - 1), level)

    def group_over_single(self, arm: Arms, level: float) -> Estimate | None:
        """Accuracy of the group attack less that on single texts."""
        group, groups = self._attacked(arm, "group")
        single, _ = self._attacked(arm, "single")
        if not group:
            return None
        within = float(np.mean([value * (1 - value) / count for value, count in zip(group, groups, strict=True)]))
        return over_seeds(np.array(group) - np.array(single), within, max(1.0, float(np.mean(groups)) - 1), level)

    def blind_group_over_single(self, arm: Arms, level: float) -> Estimate | None:
        """Accuracy of the group attack less that on single texts, of one who has no model."""
        found = [cell["membership"] for cell in self.of(arm).values() if cell["membership"] is not None]
        if not found:
            return None
        group, single = (
            np.array([own[f"{kind}_blind"]["accuracy"]["value"] for own in found]) for kind in ("group", "single")
        )
        groups = float(np.mean([own["group"]["members"] for own in found]))
        return over_seeds(group - single, float(np.mean(group * (1 - group))) / groups, max(1.0, groups - 1), level)

    def _attacked(self, arm: Arms, attack: Attack) -> tuple[list[float], list[int]]:
        """Accuracy and number of guesses of each seed in which somebody was attacked."""
        found = [cell["membership"] for cell in self.of(arm).values() if cell["membership"] is not None]
        if attack == "twin":
            return [own["twins"]["value"] for own in found], [own["single"]["members"] for own in found]
        kind = attack.removeprefix("shadow_")
        reports = [own["shadow"][kind] if attack != kind else own[kind] for own in found]
        return (
            [report["accuracy"]["value"] for report in reports],
            [_TRIALS * report["members"] for report in reports],
        )

    def blind(self, arm: Arms, kind: Literal["single", "group"], level: float) -> Estimate | None:
        """Accuracy of the guesses of one who has no model (`tacit.audit.blind`); of half the trials, as its interval there."""
        found = [cell["membership"] for cell in self.of(arm).values() if cell["membership"] is not None]
        if not found:
            return None
        values = [own[f"{kind}_blind"]["accuracy"]["value"] for own in found]
        within = float(
            np.mean([value * (1 - value) / own[kind]["members"] for value, own in zip(values, found, strict=True)])
        )
        return over_seeds(np.array(values), within, max(1.0, float(found[0][kind]["members"]) - 1), level)

    def over_blind(self, arm: Arms, attack: Attack, kind: Literal["single", "group"], level: float) -> Estimate | None:
        """Accuracy of an attack less that of the guesses of one who has no model."""
        values, trials = self._attacked(arm, attack)
        found = [cell["membership"] for cell in self.of(arm).values() if cell["membership"] is not None]
        if not values:
            return None
        blind = [own[f"{kind}_blind"]["accuracy"]["value"] for own in found]
        members = [own[kind]["members"] for own in found]
        variances = [
            value * (1 - value) / count + other * (1 - other) / half
            for value, count, other, half in zip(values, trials, blind, members, strict=True)
        ]
        df = max(1.0, float(np.mean(members)) - 1)
        return over_seeds(np.array(values) - np.array(blind), float(np.mean(variances)), df, level)

    def exposure(self, arm: Arms) -> float | None:
        """Probability of so high a mean exposure where nothing was learned: Fisher's combination of the seeds' p-values, whose
        canaries and keys are independent."""
        found = [cell["exposure"]["mean_p_value"] for cell in self.of(arm).values()]
        return fishers(found) if found else None

    def bits(self, arm: Arms) -> float:
        """Highest exposure of the canaries, mean over the seeds: what the paper shows."""
        return float(np.mean([cell["exposure"]["max_bits"] for cell in self.of(arm).values()]))

    def above_null(self, arm: Arms, level: float) -> Estimate | None:
        """Bits of mean exposure more than where nothing was learned."""
        found = [cell["exposure"] for cell in self.of(arm).values()]
        bits = np.array([own["mean_bits"] - own["null_mean_bits"] for own in found])
        return over_seeds(bits, 0.0, 1.0, level) if found else None

    def exposed_beside(self, own: Arms, other: Arms, level: float) -> Estimate | None:
        """Bits of mean exposure of one training less those of another, whose canaries are the same."""
        mine, others = self.of(own), self.of(other)
        seeds = sorted(mine.keys() & others.keys())
        if not seeds:
            return None
        bits = [mine[seed]["exposure"]["mean_bits"] - others[seed]["exposure"]["mean_bits"] for seed in seeds]
        return over_seeds(np.array(bits), 0.0, 1.0, level)


def _arm(cell: Mapping[str, Any]) -> tuple[str, float]:
    return cell["cell"]["arm"], cell["cell"]["gamma"]


def ratio_of_texts(own: _Texts, other: _Texts, level: float) -> Estimate | None:
    """The log of a ratio of perplexities of one test text (`PanelResults.texts`), on the seeds that both have."""
    return _log_ratio([own], [other], level)


def ratio_of_ratios(
    own: _Texts, other: _Texts, own_before: _Texts, other_before: _Texts, level: float
) -> Estimate | None:
    """The log of (own / other) / (own before / other before), as `ratio_of_texts`: what training adds to a model's advantage."""
    return _log_ratio([own, other_before], [other, own_before], level)


def _log_ratio(own: Sequence[_Texts], other: Sequence[_Texts], level: float) -> Estimate | None:
    sides = [*own, *other]
    seeds = sorted(set(sides[0]).intersection(*sides[1:]))
    if not seeds:
        return None
    own_SD, other_SD = (
        np.sum([[texts[seed]["nats"] for seed in seeds] for texts in side], axis=0) for side in (own, other)
    )
    return log_ratio(own_SD, other_SD, np.array(sides[0][seeds[0]]["tokens"], dtype=float), level)


def panels_of(results: Mapping[str, Mapping[str, Any]], scale: Scale) -> list[PanelResults]:
    """Every panel of the scale, also those of which nothing was run."""
    cells = [result for result in results.values() if "cell" in result]
    trunks = {tuple(result["trunk"].values()): result for result in results.values() if "trunk" in result}
    return [_panel(panel.corpus, panel.model, cells, trunks, scale) for panel in scale.panels]


def _panel(
    corpus: str,
    model: str,
    cells: Sequence[Mapping[str, Any]],
    trunks: Mapping[tuple[Any, ...], Mapping[str, Any]],
    scale: Scale,
) -> PanelResults:
    name = (corpus, model)
    planned = {
        Arms(cell.arm, cell.gamma)
        for cell in cells_of(scale)
        if (cell.corpus, cell.model) == name and cell.copies == COPIES
    }
    own = [cell for cell in cells if (cell["cell"]["corpus"], cell["cell"]["model"]) == name]
    attacked = scale.corpora[corpus].membership_pairs > 0
    return PanelResults(corpus, model, own, trunks.get(name), frozenset(planned), attacked)

"""The claims of figures 3 to 5: exposure of canaries and membership. Each gamma is a test of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tacit.audit.inference import Estimate
from tacit.reproduce.crt.asked import TRUNK, Found, Question
from tacit.reproduce.crt.panel import Arms, Attack, PanelResults
from tacit.reproduce.judging import FEWEST, TOLD_ALONE, above, all_at_null, all_of, any_of, below, beside_controls

__all__ = ["QUESTIONS_OF_ATTACKS"]

_Kind = Literal["single", "group", "twin"]
_ATTACKS: dict[_Kind, tuple[str, dict[Attack, str]]] = {
    "single": ("membership", {"single": "by losses", "shadow_single": "against shadow models"}),
    "group": ("group membership", {"group": "by losses", "shadow_group": "against shadow models"}),
    "twin": ("twin membership", {"twin": ""}),
}
"""What each claim of membership is called, and the attacks that judge it together."""
_REDACTED = "redaction alone"

# Figure 3


def _crt_unexposed(panel: PanelResults, level: float) -> Found | None:
    """The control of gamma 0, where redaction alone has nothing to give away, is training on raw text."""
    controls = {gamma: Arms("redacted", gamma) if gamma > 0 else Arms("raw") for gamma in panel.gammas("crt")}
    return _unexposed(panel, "crt", controls, level)


def _redacted_unexposed(panel: PanelResults, level: float) -> Found | None:
    controls = {0.0: Arms("raw")} if 0.0 in panel.gammas("redacted") else {}
    return _unexposed(panel, "redacted", controls, level)


def _unexposed(panel: PanelResults, arm: str, controls: Mapping[float, Arms], level: float) -> Found | None:
    """Whether exposure is at its null, where that of the control's canaries is not, in models better than the public one."""
    if not controls:
        return None
    at_each = level / len(controls)
    verdicts = [_at_null(panel, Arms(arm, gamma), control, at_each) for gamma, control in controls.items()]
    idle = _idle(panel, arm, list(controls), level)
    numbers = _exposures(panel, arm, list(controls), at_each, verdicts)
    verdict, doubt = _where_all_ran(_unless_idle(all_of(verdicts), idle), panel, arm)
    return Found(verdict, f"{numbers}{_says_idle(idle)}{doubt}")


def _at_null(panel: PanelResults, own: Arms, control: Arms, level: float) -> bool | None:
    """Whether a training's canaries are at their null, and told to be less exposed than the control's, which are not.

    That a level is shared by many claims must not make "nothing was found" easier: what would be told alone leaves it undecided.
    """
    p_value, of_control = panel.exposure(own), panel.exposure(control)
    if p_value is not None and p_value < level:
        return False
    less = panel.exposed_beside(own, control, level)
    if p_value is None or of_control is None or less is None:
        return None
    return True if p_value >= TOLD_ALONE and of_control < level and below(less, 0.0) is True else None


def _where_all_ran(verdict: bool | None, panel: PanelResults, arm: str) -> tuple[bool | None, str]:
    """A claim of every gamma is undecided until all that are planned were run; and words on it."""
    missing = [f"{gamma:g}" for gamma in panel.plans(arm) if gamma not in panel.gammas(arm)]
    return (None, f"; not run at γ {', '.join(missing)}") if verdict and missing else (verdict, "")


def _idle(panel: PanelResults, arm: str, gammas: Sequence[float], level: float) -> list[float]:
    """The gammas at which a training is not told to be better than the public model that it began as, by redacted text."""
    ratios = {gamma: panel.ratio(Arms(arm, gamma), TRUNK, "redacted", level) for gamma in gammas}
    return [gamma for gamma, ratio in ratios.items() if ratio is None or below(ratio, 0.0) is not True]


def _unless_idle(verdict: bool | None, idle: Sequence[float]) -> bool | None:
    """A model that learned nothing is at every null, too."""
    return None if verdict and idle else verdict


def _says_idle(idle: Sequence[float]) -> str:
    where = ", ".join(f"{gamma:g}" for gamma in idle)
    return f"; not told to be better than the public model, which is at its null too, at γ {where}" if idle else ""


def _exposed(arm: str) -> Callable[[PanelResults, float], Found | None]:
    def find(panel: PanelResults, level: float) -> Found | None:
        gammas = [gamma for gamma in panel.gammas(arm) if gamma > 0]
        if not gammas:
            return None
        at_each = level / len(gammas)
        found = [panel.exposure(Arms(arm, gamma)) for gamma in gammas]
        seeds = [len(panel.of(Arms(arm, gamma))) for gamma in gammas]
        verdicts = [
            True if own is not None and own < at_each and count >= FEWEST else None
            for own, count in zip(found, seeds, strict=True)
        ]
        verdict, doubt = _where_all_ran(all_of(verdicts), panel, arm)
        return Found(verdict, f"{_exposures(panel, arm, gammas, at_each, verdicts)}{doubt}")

    return find


def _exposures(
    panel: PanelResults, arm: str, gammas: Sequence[float], level: float, verdicts: Sequence[bool | None]
) -> str:
    """Bits and p-value at each gamma; what decides nothing is said."""
    parts = []
    for gamma, verdict in zip(gammas, verdicts, strict=True):
        p_value = panel.exposure(Arms(arm, gamma))
        assert p_value is not None
        doubt = ", undecided" if verdict is None else ""
        parts.append(f"γ {gamma:g}: {panel.bits(Arms(arm, gamma)):.1f} bits (p {p_value:.2g}{doubt})")
    return f"{'; '.join(parts)}; level {level:.1g}"


def _selective_like_redacted(panel: PanelResults, level: float) -> Found | None:
    """Where redaction alone is within that bit of the null, a model that exposes nothing passes too: it must be above it."""
    gammas = [gamma for gamma in panel.gammas("s-dp") if gamma > 0]
    at_each = level / max(1, len(gammas))
    found = [panel.exposed_beside(Arms("s-dp", gamma), Arms("redacted", gamma), at_each) for gamma in gammas]
    known = [(gamma, own) for gamma, own in zip(gammas, found, strict=True) if own is not None]
    if not known:
        return None
    beside = {gamma: panel.above_null(Arms("redacted", gamma), at_each) for gamma, _ in known}
    powerless = [gamma for gamma, own in beside.items() if own is None or above(own, _A_BIT) is not True]
    verdict, missing = _where_all_ran(all_of(above(own, -_A_BIT) for _, own in known), panel, "s-dp")
    numbers = "; ".join(f"γ {gamma:g}: {_interval(own, '+.1f')}" for gamma, own in known)
    where = ", ".join(f"{gamma:g}" for gamma in powerless)
    doubt = f"; redaction alone is not told to be a bit above its null at γ {where}" if powerless else ""
    return Found(None if verdict and powerless else verdict, f"{numbers} bits{doubt}{missing}")


_A_BIT = 1.0

# Figures 4 and 5


def _crt_at_chance(kind: _Kind) -> Callable[[PanelResults, float], Found | None]:
    _, attacks = _ATTACKS[kind]

    def find(panel: PanelResults, level: float) -> Found | None:
        gammas = [gamma for gamma in panel.gammas("crt") if panel.accuracy(Arms("crt", gamma), kind, level) is not None]
        if not gammas:
            return None
        judged = [_at_chance(panel, gamma, attacks, level / len(gammas) / len(attacks)) for gamma in gammas]
        parts = [f"γ {gamma:g}: {numbers}" for gamma, (_, numbers) in zip(gammas, judged, strict=True)]
        idle = _idle(panel, "crt", gammas, level)
        verdict = _unless_idle(all_of(verdict for verdict, _ in judged), idle)
        verdict, doubt = _where_all_ran(verdict, panel, "crt")
        return Found(verdict, f"{'; '.join(parts)}{_says_idle(idle)}{doubt}")

    return find


def _at_chance(
    panel: PanelResults, gamma: float, attacks: Mapping[Attack, str], level: float
) -> tuple[bool | None, str]:
    """Whether all attacks on CRT at a gamma are at chance, beside the same on redaction alone; and the numbers."""
    found: list[tuple[Estimate, Estimate | None]] = []
    parts: list[str] = []
    for attack, words in attacks.items():
        own, control = (panel.accuracy(Arms(arm, gamma), attack, level) for arm in ("crt", "redacted"))
        assert own is not None
        found.append((own, control))
        beside = "none" if control is None else _interval(control, ".3f")
        parts.append(f"{words} {_interval(own, '.3f')} beside {beside}".strip())
    verdict = all_at_null(found, 0.5)
    return verdict, ", ".join([*parts, *(["undecided"] if verdict is None else [])])


def _found(arm: str, kind: _Kind) -> Callable[[PanelResults, float], Found | None]:
    _, attacks = _ATTACKS[kind]

    def find(panel: PanelResults, level: float) -> Found | None:
        most = Arms(arm, max(panel.gammas(arm), default=0.0))
        found = {words: panel.accuracy(most, attack, level / len(attacks)) for attack, words in attacks.items()}
        known = {words: own for words, own in found.items() if own is not None}
        if not known or most.gamma == 0:
            return None
        numbers = ", ".join(f"{words} {_interval(own, '.3f')}".strip() for words, own in known.items())
        verdict = any_of(above(own, 0.5) for own in known.values())
        if kind == "twin":  # which of the two was trained on a coin decided: without a model nobody tells them apart
            return Found(verdict, numbers)
        holds, passed_by, doubt = beside_controls(verdict, {_BLIND: _blind_passes(panel, most, kind, attacks, level)})
        return Found(holds, f"{numbers}{doubt}", passed_by)

    return find


def _blind_passes(
    panel: PanelResults, arm: Arms, kind: Literal["single", "group"], attacks: Mapping[Attack, str], level: float
) -> bool | None:
    """Whether one who has no model tells members, too: not, where an attack is told to tell more of them."""
    blind = panel.blind(arm, kind, level)
    if blind is not None and above(blind, 0.5):
        return True
    over = [panel.over_blind(arm, attack, kind, level / len(attacks)) for attack in attacks]
    return False if any(own is not None and above(own, 0.0) is True for own in over) else None


_BLIND = "one who has no model"


def _groups_are_easier(arm: str) -> Callable[[PanelResults, float], Found | None]:
    def find(panel: PanelResults, level: float) -> Found | None:
        most = Arms(arm, max(panel.gammas(arm), default=0.0))
        found = panel.group_over_single(most, level) if most.gamma > 0 else None
        if found is None:
            return None
        blind = panel.blind_group_over_single(most, level)
        passed = _BLIND if blind is not None and above(blind, 0.0) else ""
        return Found(above(found, 0.0), _interval(found, "+.3f"), passed)

    return find


def _figure(kind: _Kind) -> str:
    return {"single": "figure 4", "group": "figure 5", "twin": "(ours)"}[kind]


def _interval(estimate: Estimate, form: str) -> str:
    if math.isinf(estimate.low):
        return f"{estimate.value:{form}} (one seed)"
    return f"{estimate.value:{form}} ({estimate.low:{form}} to {estimate.high:{form}})"


_TRAININGS = (("redacted", _REDACTED), ("s-dp", "S-DP"))
QUESTIONS_OF_ATTACKS: tuple[Question, ...] = (
    Question("figure 3: CRT's canaries are at their null for every gamma that is tried", _crt_unexposed),
    Question(
        "figure 3: redaction alone keeps canaries at their null at gamma 0",
        _redacted_unexposed,
        "redacted",
        misses=False,
    ),
    *(
        Question(
            f"figure 3: {name} exposes canaries for every gamma above 0 that is tried", _exposed(arm), arm, misses=True
        )
        for arm, name in _TRAININGS
    ),
    Question(
        "figure 3: S-DP exposes canaries like redaction alone for every gamma above 0 that is tried (by no bit less in the mean)",
        _selective_like_redacted,
        "s-dp",
        misses=True,
    ),
    *(
        Question(
            f"{_figure(kind)}: {name} accuracy against CRT is at chance for every gamma that is tried, beside {_REDACTED}",
            _crt_at_chance(kind),
            misses=True,
            attacks=True,
        )
        for kind, (name, _) in _ATTACKS.items()
    ),
    *(
        Question(
            f"{_figure(kind)}: {name} accuracy against {trained} is above chance at the highest gamma",
            _found(arm, kind),
            arm,
            misses=True,
            attacks=True,
        )
        for kind, (name, _) in _ATTACKS.items()
        for arm, trained in _TRAININGS
    ),
    *(
        Question(
            f"figure 5: {name} gives more away to the group attack than to the one on single texts, at the highest gamma",
            _groups_are_easier(arm),
            arm,
            misses=True,
            attacks=True,
        )
        for arm, name in _TRAININGS
    ),
)

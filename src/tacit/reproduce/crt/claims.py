"""The paper's claims, judged by our results: each as one line, with its numbers, that says whether it shows.

The paper has no numbered claims; these are its sentences on figures 2 to 6 and what the figures show. What decides and what must
have power beside it is `tacit.reproduce.judging`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from tacit.audit.inference import Estimate
from tacit.reproduce.crt.panel import Arms, Attack, PanelResults
from tacit.reproduce.crt.scale import UTILITY_GAMMA
from tacit.reproduce.judging import above, all_at_null, all_of, any_of, below, over_seeds
from tacit.reproduce.writing import Claim, Row

__all__ = ["judge"]

_CLOSE = math.log(1.1)
Kind = Literal["single", "group", "twin"]
_ATTACKS: dict[Kind, tuple[str, dict[Attack, str]]] = {
    "single": ("membership", {"single": "by losses", "shadow_single": "against shadow models"}),
    "group": ("group membership", {"group": "by losses", "shadow_group": "against shadow models"}),
    "twin": ("twin membership", {"twin": ""}),
}
"""What each claim of membership is called, and the attacks that judge it together."""
_REDACTED = "redaction alone"
Make = Callable[[PanelResults, float], Claim | None]


def judge(
    panels: Sequence[PanelResults], baselines: Sequence[Row], amplified: Mapping[str, float], level: float
) -> list[Claim]:
    """All claims for which there are results.

    Args:
        baselines: perplexities of models that know no order, by corpus.
        amplified: epsilon of figure 6 at (epsilon' 1, gamma 0.1): ``paper``, ``ours``, ``ours_context``.
        level: of each claim.
    """
    claims = [claim for make in _CLAIMS for panel in panels if (claim := make(panel, level)) is not None]
    claims += [claim for corpus in ("customersim", "multiwoz") for claim in _by_model(panels, corpus, level)]
    return [*claims, *_easier(panels, baselines, level), _amplifies(amplified)]


# Figure 2


def _close_to_non_private(panel: PanelResults, level: float) -> Claim | None:
    text = "figure 2: CRT's perplexity of redacted text is within 10 % of the non-private model's"
    plain, alone = Arms("redacted", UTILITY_GAMMA), Arms("public-lines", UTILITY_GAMMA)
    found = panel.ratio(_CRT, plain, "redacted", level)
    if found is None:
        return None
    passed = [
        (panel.ratio(arm, plain, "redacted", level), words)
        for arm, words in ((Arms("trunk"), "the public model"), (alone, "training on its public lines alone"))
    ]
    others = [words for own, words in passed if own is not None and below(own, _CLOSE)]
    return Claim(
        text, panel.name, below(found, _CLOSE), _compared(panel, _CRT, plain, "redacted", found), passed_by=_or(others)
    )


def _better_than_dp_sgd(panel: PanelResults, level: float) -> Claim | None:
    text = "figure 2: CRT's perplexity of lines without secrets is below DP-SGD's at the same epsilon"
    dp, alone = Arms("dp-sgd"), Arms("public-lines", UTILITY_GAMMA)
    found, other = (panel.ratio(arm, dp, "without_secrets", level) for arm in (_CRT, alone))
    if found is None:
        return None
    passed = "training on its public lines alone" if other is not None and below(other, 0.0) else ""
    return Claim(
        text, panel.name, below(found, 0.0), _compared(panel, _CRT, dp, "without_secrets", found), passed_by=passed
    )


def _noise_teaches(panel: PanelResults, level: float) -> Claim | None:
    text = "(ours) the private lines teach something: CRT's perplexity of redacted text is below that of its public lines alone"
    alone = Arms("public-lines", UTILITY_GAMMA)
    found = panel.ratio(_CRT, alone, "redacted", level)
    return (
        None
        if found is None
        else Claim(text, panel.name, below(found, 0.0), _compared(panel, _CRT, alone, "redacted", found))
    )


_CRT = Arms("crt", UTILITY_GAMMA)


def _compared(panel: PanelResults, own: Arms, other: Arms, text: str, ratio: Estimate) -> str:
    against = f"{panel.perplexity(own, text):.2f} against {panel.perplexity(other, text):.2f}"
    return f"{against}, {_percent(ratio)}"


def _percent(ratio: Estimate) -> str:
    return f"{100 * math.expm1(ratio.value):+.1f} % ({_bound(ratio.low)} to {_bound(ratio.high)})"


def _bound(log: float) -> str:
    """Of an interval of one seed there is none; one of two may be hundreds wide."""
    return "anything" if math.isinf(log) or log > 3 else f"{100 * math.expm1(log):+.1f}"


def _or(names: Sequence[str]) -> str:
    return " and ".join(names)


def _by_model(panels: Sequence[PanelResults], corpus: str, level: float) -> list[Claim]:
    """The same text and tokenizer, so perplexities compare; the seeds' keys are the same."""
    found = {panel.model: panel for panel in panels if panel.corpus == corpus}
    if len(found) < 2:
        return []
    claims = []
    for arm, name in ((_CRT, "CRT"), (Arms("dp-sgd"), "DP-SGD")):
        both = PanelResults(
            corpus,
            "",
            [
                {**cell, "cell": {**cell["cell"], "arm": panel.model, "gamma": 0.0}}
                for panel in found.values()
                for cell in panel.of(arm).values()
            ],
        )
        ratio = both.ratio(Arms("gpt2"), Arms("lstm"), "redacted", level)
        if ratio is not None:
            numbers = _compared(both, Arms("gpt2"), Arms("lstm"), "redacted", ratio)
            text = "figure 2: GPT-2 has a lower perplexity than the LSTM"
            claims.append(Claim(text, f"{corpus}, {name}", below(ratio, 0.0), numbers))
    return claims


def _easier(panels: Sequence[PanelResults], baselines: Sequence[Row], level: float) -> list[Claim]:
    """Two corpora share no test text: the documents of both are drawn."""
    found = {panel.corpus: panel for panel in panels if panel.model == "lstm"}
    if not {"customersim", "multiwoz"} <= found.keys():
        return []
    logs = [_log_perplexities(found[corpus]) for corpus in ("customersim", "multiwoz")]
    seeds = min(len(values) for values, _ in logs)
    if seeds == 0:
        return []
    difference = over_seeds(logs[0][0][:seeds] - logs[1][0][:seeds], logs[0][1] + logs[1][1], 100, level)
    unigram = {row["corpus"]: row["redacted"] for row in baselines if row["model"] == "unigram"}
    passed = "counting words" if unigram.get("customersim", 0) < unigram.get("multiwoz", 0) else ""
    numbers = " against ".join(
        f"{found[corpus].perplexity(_CRT, 'redacted'):.2f}" for corpus in ("customersim", "multiwoz")
    )
    text = "figure 2: models of CustomerSim have lower perplexities than those of MultiWOZ"
    return [Claim(text, "CRT, lstm", below(difference, 0.0), numbers, passed_by=passed)]


def _log_perplexities(panel: PanelResults) -> tuple[np.ndarray, float]:
    """Of CRT by seed, and the variance that their mean has from the draw of dialogues."""
    texts = [cell["rounds"][-1]["texts"]["redacted"] for cell in panel.of(_CRT).values()]
    if not texts:
        return np.zeros(0), 0.0
    tokens_D = np.array(texts[0]["tokens"], dtype=float)
    nats_D = np.mean([text["nats"] for text in texts], axis=0)
    rest_D = (nats_D - nats_D.sum() / tokens_D.sum() * tokens_D) / tokens_D.mean()
    return np.array([math.log(text["perplexity"]) for text in texts]), float(rest_D.var(ddof=1)) / len(rest_D)


# Figure 3: each gamma is a test of its own


def _crt_unexposed(panel: PanelResults, level: float) -> Claim | None:
    """The control of gamma 0, where redaction alone has nothing to give away, is training on raw text."""
    text = "figure 3: CRT's canaries are at their null for every gamma"
    controls = {gamma: Arms("redacted", gamma) if gamma > 0 else Arms("raw") for gamma in panel.gammas("crt")}
    return _unexposed(text, panel, "crt", controls, level)


def _redacted_unexposed(panel: PanelResults, level: float) -> Claim | None:
    text = "figure 3: redaction alone keeps canaries at their null at gamma 0"
    controls = {0.0: Arms("raw")} if 0.0 in panel.gammas("redacted") else {}
    return _unexposed(text, panel, "redacted", controls, level)


def _unexposed(text: str, panel: PanelResults, arm: str, controls: Mapping[float, Arms], level: float) -> Claim | None:
    """At its null, where the control's canaries are exposed at the same level."""
    if not controls:
        return None
    at_each = level / len(controls)
    verdicts: list[bool | None] = []
    for gamma, control in controls.items():
        own, other = panel.exposure(Arms(arm, gamma)), panel.exposure(control)
        has_power = other is not None and other < at_each
        verdicts.append(None if own is None else False if own < at_each else True if has_power else None)
    return Claim(text, panel.name, all_of(verdicts), _exposures(panel, arm, list(controls), at_each, verdicts))


def _exposed(arm: str, name: str) -> Make:
    def make(panel: PanelResults, level: float) -> Claim | None:
        gammas = [gamma for gamma in panel.gammas(arm) if gamma > 0]
        if not gammas:
            return None
        at_each = level / len(gammas)
        found = [panel.exposure(Arms(arm, gamma)) for gamma in gammas]
        verdicts = [True if own is not None and own < at_each else None for own in found]
        text = f"figure 3: {name} exposes canaries for every gamma above 0"
        return Claim(text, panel.name, all_of(verdicts), _exposures(panel, arm, gammas, at_each, verdicts))

    return make


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


def _selective_like_redacted(panel: PanelResults, level: float) -> Claim | None:
    text = "figure 3: S-DP exposes canaries like redaction alone for every gamma above 0 (by no bit less in the mean)"
    gammas = [gamma for gamma in panel.gammas("s-dp") if gamma > 0]
    at_each = level / max(1, len(gammas))
    found = [panel.exposed_beside(Arms("s-dp", gamma), Arms("redacted", gamma), at_each) for gamma in gammas]
    known = [(gamma, own) for gamma, own in zip(gammas, found, strict=True) if own is not None]
    if not known:
        return None
    numbers = "; ".join(f"γ {gamma:g}: {_interval(own, '+.1f')}" for gamma, own in known)
    return Claim(text, panel.name, all_of(above(own, -1.0) for _, own in known), f"{numbers} bits")


# Figures 4 and 5


def _crt_at_chance(kind: Kind) -> Make:
    name, attacks = _ATTACKS[kind]

    def make(panel: PanelResults, level: float) -> Claim | None:
        gammas = [gamma for gamma in panel.gammas("crt") if panel.accuracy(Arms("crt", gamma), kind, level) is not None]
        if not gammas:
            return None
        judged = [_at_chance(panel, gamma, attacks, level / len(gammas) / len(attacks)) for gamma in gammas]
        parts = [f"γ {gamma:g}: {numbers}" for gamma, (_, numbers) in zip(gammas, judged, strict=True)]
        text = f"{_figure(kind)}: {name} accuracy against CRT is at chance for every gamma, beside {_REDACTED}"
        return Claim(text, panel.name, all_of(verdict for verdict, _ in judged), "; ".join(parts))

    return make


def _at_chance(
    panel: PanelResults, gamma: float, attacks: Mapping[Attack, str], level: float
) -> tuple[bool | None, str]:
    """Of all attacks on CRT at a gamma, beside the same on redaction alone; and the numbers."""
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


def _found(arm: str, trained: str, kind: Kind) -> Make:
    name, attacks = _ATTACKS[kind]

    def make(panel: PanelResults, level: float) -> Claim | None:
        most = Arms(arm, max(panel.gammas(arm), default=0.0))
        found = {words: panel.accuracy(most, attack, level / len(attacks)) for attack, words in attacks.items()}
        known = {words: own for words, own in found.items() if own is not None}
        if not known or most.gamma == 0:
            return None
        blind = None if kind == "twin" else panel.blind(most, kind, level)
        passed = "one who has no model" if blind is not None and above(blind, 0.5) else ""
        numbers = ", ".join(f"{words} {_interval(own, '.3f')}".strip() for words, own in known.items())
        text = f"{_figure(kind)}: {name} accuracy against {trained} is above chance at the highest gamma"
        return Claim(text, panel.name, any_of(above(own, 0.5) for own in known.values()), numbers, passed_by=passed)

    return make


def _groups_are_easier(arm: str, name: str) -> Make:
    def make(panel: PanelResults, level: float) -> Claim | None:
        most = max(panel.gammas(arm), default=0.0)
        found = panel.group_over_single(Arms(arm, most), level) if most > 0 else None
        text = f"figure 5: {name} gives more away to the group attack than to the one on single texts, at the highest gamma"
        return None if found is None else Claim(text, panel.name, above(found, 0.0), _interval(found, "+.3f"))

    return make


def _figure(kind: Kind) -> str:
    return {"single": "figure 4", "group": "figure 5", "twin": "(ours)"}[kind]


def _interval(estimate: Estimate, form: str) -> str:
    if math.isinf(estimate.low):
        return f"{estimate.value:{form}} (one seed)"
    return f"{estimate.value:{form}} ({estimate.low:{form}} to {estimate.high:{form}})"


# Figure 6


def _amplifies(epsilon: Mapping[str, float]) -> Claim:
    """Computed, and no estimate: for our policies, which read context, nothing is amplified."""
    text = "figure 6: redaction with gamma 0.1 makes epsilon' 1 an epsilon of definition 4 of 0.12"
    numbers = (
        f"the paper's formula gives {epsilon['paper']:.3f}; replace-one, policies of tokens {epsilon['ours']:.3f}, "
        f"policies that read context {epsilon['ours_context']:.3f}"
    )
    return Claim(text, "", epsilon["ours_context"] <= 0.12, numbers)


_CLAIMS: tuple[Make, ...] = (
    _close_to_non_private,
    _better_than_dp_sgd,
    _noise_teaches,
    _crt_unexposed,
    _redacted_unexposed,
    _exposed("redacted", _REDACTED),
    _exposed("s-dp", "S-DP"),
    _selective_like_redacted,
    *(_crt_at_chance(kind) for kind in _ATTACKS),
    *(_found(arm, name, kind) for kind in _ATTACKS for arm, name in (("redacted", _REDACTED), ("s-dp", "S-DP"))),
    *(_groups_are_easier(arm, name) for arm, name in (("redacted", _REDACTED), ("s-dp", "S-DP"))),
)

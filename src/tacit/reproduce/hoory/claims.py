"""The paper's claims, and some of our own, judged one by one: each has its row, also where nothing was run yet."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.audit.inference import Estimate
from tacit.privacy.accounting.histogram import hoory_claim
from tacit.reproduce.hoory.account import epsilon_of_steps
from tacit.reproduce.hoory.cells import EPSILONS, MAIN, Private
from tacit.reproduce.hoory.evidence import Evidence, Measure, dictionary
from tacit.reproduce.hoory.scale import Scale
from tacit.reproduce.judging import above, all_of
from tacit.reproduce.writing import Claim, Row

__all__ = ["judge", "measures_of"]

_NOT_RUN = "not run yet"
_KEPT = 0.6
_PAPER_KEPT = "60 to 78 %"  # its table 2: 78 and 68 % at epsilon 0.51 + 2.8, 70 and 60 % at 0.51 + 0.6, for an example
_AIMS = dict(zip(EPSILONS, (0.75, 0.65, 0.5), strict=True))
_FAR = 3.0
"""Bits of exposure that the paper's figure 2 has between training with and without DP, at least."""
_OBLIVIOUS = 0.1
"""Epsilons that differ by less than a tenth are the same here."""


def judge(
    results: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Sequence[Row]], scale: Scale, level: float
) -> list[Claim]:
    """All claims.

    Args:
        level: of each interval.
    """
    of = Evidence(results, level)
    return [
        *(claim for private in MAIN for claim in _losses(of, private)),
        *(
            claim
            for task in scale.tasks
            for measure in measures_of(task, scale)
            for claim in _table2(of, measure, scale)
        ),
        *_vocabularies(of, scale),
        *_figure1(of, tables["figure1"]),
        *_figure2(tables["figure2"], level),
        *_accounts(),
    ]


def measures_of(task: str, scale: Scale) -> list[Measure]:
    """F1 of a task; where most dialogues are labelled also on those of unseen services."""
    sizes = scale.tasks
    most = max((size.labelled or 0 for size in sizes.values() if size.private == "dialogues"), default=0)
    both = sizes[task].private == "dialogues" and sizes[task].labelled == most
    return [Measure(task), *([Measure(task, "unseen")] if both else [])]


def _panel(measure: Measure) -> str:
    return f"{measure.task}, unseen services" if measure.part == "unseen" else measure.task


def _verdict(estimate: Estimate | None, bound: float = 0.0) -> bool | None:
    return None if estimate is None else above(estimate, bound)


def _better(text: str, panel: str, of: Evidence, measure: Measure, own: str, other: str, paper: str = "") -> Claim:
    """That one row is better than another."""
    gain = of.gain(measure, own, other)
    return Claim(
        text, panel, _verdict(gain), _NOT_RUN if gain is None else _numbers(of, measure, own, other, gain), paper
    )


def _numbers(of: Evidence, measure: Measure, own: str, other: str, gain: Estimate) -> str:
    means = [of.mean(measure, row) for row in (own, other)]
    values = " against ".join(f"{abs(mean.value):.3f}" for mean in means if mean is not None)
    return f"{values}, better by {_interval(gain)}"


def _interval(estimate: Estimate) -> str:
    if math.isinf(estimate.low):
        return f"{estimate.value:+.3f} (no interval)"
    return f"{estimate.value:+.3f} ({estimate.low:+.3f} to {estimate.high:+.3f})"


def _keeps(text: str, panel: str, of: Evidence, measure: Measure, family: str, epsilon: float, least: float) -> Claim:
    """That a share of BERT-M's gain is kept; undecided where that gain is not told from 0."""
    bert, best, own = (f"{family}-{arm}" for arm in ("bert", "bert-m", f"dp-{epsilon:g}"))
    gain, kept = of.gain(measure, best, bert), of.kept(measure, own, bert, best, least)
    if gain is None or kept is None:
        return Claim(text, panel, None, _NOT_RUN)
    if above(gain, 0.0) is not True:
        return Claim(text, panel, None, f"BERT-M's gain is not told from 0: {_interval(gain)}")
    share = of.share(measure, own, bert, best)
    assert share is not None
    numbers = f"{100 * share.value:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"
    return Claim(text, panel, above(kept, 0.0), numbers)


# Masked losses and table 2 ----------------------------------------------------------------------------------------------


def _losses(of: Evidence, private: Private) -> list[Claim]:
    """What the private text teaches, by the masked loss of other such text."""
    family, loss = MAIN[private], Measure()
    claims = [
        _better(
            "(ours) BERT-M has a lower masked loss than BERT, with the same public text and pieces",
            private,
            of,
            loss,
            f"{family}-bert-m",
            f"{family}-bert",
        )
    ]
    for epsilon in EPSILONS:
        own, panel = f"{family}-dp-{epsilon:g}", f"{private}, ε {epsilon:g}"
        text = "(ours) BERT-DP has a lower masked loss than BERT, which has not read the private text"
        claims.append(_better(text, panel, of, loss, own, f"{family}-bert"))
        if private == "dialogues":
            aim = _AIMS[epsilon]
            text = f"(our aim) BERT-DP keeps at least {100 * aim:.0f} % of BERT-M's gain in masked loss"
            claims.append(_keeps(text, panel, of, loss, family, epsilon, aim))
    text = "(ours) a larger epsilon gives a lower masked loss"
    claims += [
        _better(
            text, f"{private}, ε {more:g} against {less:g}", of, loss, f"{family}-dp-{more:g}", f"{family}-dp-{less:g}"
        )
        for more, less in itertools.pairwise(EPSILONS)
    ]
    return claims


def _table2(of: Evidence, measure: Measure, scale: Scale) -> list[Claim]:
    """Entity F1 after fine-tuning, of models that differ in their private training alone."""
    family, panel = MAIN[scale.tasks[measure.task].private], _panel(measure)
    bert, best = f"{family}-bert", f"{family}-bert-m"
    claims = [_better("table 2: BERT-M's F1 is above BERT's", panel, of, measure, best, bert, "76.3 and 86.8")]
    for epsilon in EPSILONS:
        own, of_epsilon = f"{family}-dp-{epsilon:g}", f"{panel}, ε {epsilon:g}"
        text = "table 2: BERT-DP's F1 is above BERT's, which has not read the private text"
        claims.append(_better(text, of_epsilon, of, measure, own, bert, "83.7 and 84.5 against 76.3"))
        text = "table 2: BERT-DP keeps at least 60 % of BERT-M's gain in F1"
        kept = _keeps(text, of_epsilon, of, measure, family, epsilon, _KEPT)
        claims.append(Claim(text, of_epsilon, kept.holds, kept.numbers, _PAPER_KEPT))
    most, least = EPSILONS[0], EPSILONS[-1]
    text = f"table 2: F1 is higher at epsilon {most:g} than at {least:g}"
    claims.append(
        _better(text, panel, of, measure, f"{family}-dp-{most:g}", f"{family}-dp-{least:g}", "84.5 against 83.7")
    )
    return [*claims, _strong_enough(of, measure, family)]


def _strong_enough(of: Evidence, measure: Measure, family: str) -> Claim:
    """A tagger that looks words up is no model of language: where it is better, the taggers are too weak to judge models by."""
    rows = [f"{family}-{arm}" for arm in ("bert", "bert-m", *(f"dp-{epsilon:g}" for epsilon in EPSILONS))]
    gains = [of.gain(measure, row, dictionary(measure.task)) for row in rows]
    numbers, known = _NOT_RUN, of.mean(measure, dictionary(measure.task))
    if known is not None and None not in gains:
        lowest = min((gain for gain in gains if gain is not None), key=lambda gain: gain.value)
        numbers = f"the dictionary has {known.value:.3f}; the weakest BERT is better by {_interval(lowest)}"
    return Claim(
        "(ours) every BERT tags better than a dictionary", _panel(measure), all_of(map(_verdict, gains)), numbers
    )


def _vocabularies(of: Evidence, scale: Scale) -> list[Claim]:
    """What the pieces alone change, on dialogues: their masked losses do not compare."""
    most = EPSILONS[0]
    pairs = (
        (
            f"section 6: a DP vocabulary helps: BERT-DP with it has a higher F1 than with the public one, both at epsilon {most:g}",
            f"dialogues-dp-dp-{most:g}",
            f"dialogues-general-dp-{most:g}",
        ),
        (
            "section 6: a vocabulary of the private text helps where it costs nothing: BERT-M's F1 is higher with its own",
            "dialogues-own-bert-m",
            "dialogues-general-bert-m",
        ),
        (
            "section 3.2: WordPiece by likelihood, as the paper describes it, gives BERT a higher F1 than by frequency",
            "dialogues-likelihood-bert",
            "dialogues-general-bert",
        ),
    )
    measures = [
        measure
        for task, size in scale.tasks.items()
        if size.private == "dialogues"
        for measure in measures_of(task, scale)
        if measure.part == "seen"
    ]
    return [
        _better(text, _panel(measure), of, measure, own, other) for text, own, other in pairs for measure in measures
    ]


# Figure 1 ---------------------------------------------------------------------------------------------------------------

_VARIED = {
    "noise": "figure 1: more noise gives a higher masked loss",
    "steps": "figure 1: more steps give a lower masked loss",
    "batch": "figure 1: a larger batch with the same noise multiplier gives a lower masked loss",
    "passes": "section 5.1: at one epsilon and as many passes, a larger batch gives a lower masked loss",
}
_EPSILON_OF = {
    "noise": ("figure 1: more noise, a smaller epsilon", -1),
    "steps": ("figure 1: more steps, a larger epsilon", 1),
    "batch": ("figure 1: a larger batch with the same noise multiplier, a larger epsilon", 1),
}


def _figure1(of: Evidence, rows: Sequence[Row]) -> list[Claim]:
    """Between neighbouring points; the paper shows F1, which tells less."""
    claims: list[Claim] = []
    for varied, text in _VARIED.items():
        points = sorted((row for row in rows if row["varied"] == varied), key=lambda row: row["value"])
        if len(points) < 2:
            claims.append(Claim(text, "", None, _NOT_RUN))
        for less, more in itertools.pairwise(points):
            better, worse = (less, more) if varied == "noise" else (more, less)
            panel = f"{less['value']:.4g} to {more['value']:.4g}"
            claims.append(_better(text, panel, of, Measure(), better["row"], worse["row"]))
        if varied in _EPSILON_OF:
            claims.append(_epsilons(*_EPSILON_OF[varied], points))
    return [*claims, _root(rows)]


def _epsilons(text: str, sign: int, points: Sequence[Row]) -> Claim:
    """Computed, not drawn: there is nothing to be undecided about."""
    if len(points) < 2:
        return Claim(text, "", None, _NOT_RUN)
    found = [row["epsilon"] for row in points]
    holds = all(sign * (after - before) > 0 for before, after in itertools.pairwise(found))
    return Claim(text, "", holds, ", ".join(f"{row['value']:.4g}: {row['epsilon']:.2f}" for row in points))


def _root(rows: Sequence[Row]) -> Claim:
    text = "section 3.3: noise in proportion to the root of the batch makes epsilon the same for all batches"
    points = sorted((row for row in rows if row["varied"] == "root"), key=lambda row: row["value"])
    if len(points) < 2:
        return Claim(text, "", None, _NOT_RUN)
    found = [row["epsilon"] for row in points]
    numbers = ", ".join(f"batch {row['value']:.4g}, noise {row['noise']:.3g}: {row['epsilon']:.2f}" for row in points)
    return Claim(text, "", max(found) < (1 + _OBLIVIOUS) * min(found), numbers)


# Figure 2 ---------------------------------------------------------------------------------------------------------------


def _figure2(rows: Sequence[Row], level: float) -> list[Claim]:
    """Of each number of occurrences, in public contexts and where the canaries were planted."""
    claims: list[Claim] = []
    for where in ("public contexts", "training contexts"):
        own = [row for row in rows if row["contexts"] == where]
        source = "figure 2" if where == "public contexts" else "(ours)"
        noisy = {row["model"]: row for row in own if row["dp"]}
        for model, one in noisy.items():
            shown = [row for row in own if row["model"] == model]
            control = [row for row in own if not row["dp"] and row["probability"] == one["probability"]]
            panel = f"{where}, {one['words']}, ε {one['epsilon']:.2f}, {one['occurrences']:.0f} occurrences"
            claims += _exposed(source, panel, shown, control, level)
        if not noisy:
            claims += _exposed(source, where, [], [], level)
    return claims


def _exposed(source: str, panel: str, own: Sequence[Row], control: Sequence[Row], level: float) -> list[Claim]:
    at_null = f"{source}: exposure under DP is at its null"
    less = f"{source}: DP exposes each pattern by at least 3 bits less than training without it"
    if not own or not control:
        return [Claim(text, panel, None, _NOT_RUN) for text in (at_null, less)]
    each = level / len(own)
    told = min(row["p_value"] for row in own) < each
    has_power = all(row["p_value"] < each for row in control) and _most(own) < min(row["bits"] for row in control)
    numbers = f"{_bits(own)}, least p-value {min(row['p_value'] for row in own):.2g}; without DP {_bits(control)}"
    numbers += f"; null {own[0]['null_bits']:.2f}, level {each:.2g}"
    far = min(row["bits"] for row in control) - _FAR
    able = all(row["bits"] > row["null_bits"] + _FAR and row["p_value"] < each for row in control)
    return [
        Claim(at_null, panel, False if told else True if has_power else None, numbers),
        Claim(
            less, panel, _most(own) < far if able else None, f"at most {_most(own):.1f} against {far + _FAR:.1f} bits"
        ),
    ]


def _most(rows: Sequence[Row]) -> float:
    return max(row["bits"] for row in rows)


def _bits(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row['pattern']} {row['bits']:.1f}" for row in rows) + " bits"


# The printed epsilons ---------------------------------------------------------------------------------------------------


@functools.cache
def _accounts() -> tuple[Claim, ...]:
    """Of an example, as the paper has them: there are about ten of each text, with other masks."""
    histogram = hoory_claim(noise_stddev=200.0, max_words=256, delta=1e-9)
    training = epsilon_of_steps(131_072 / 83e6, 2.72, 31_250, 1e-8)
    return (
        Claim(
            "corollary 1: noise 200 and the threshold 982.5 give a vocabulary of 256 words an example delta 1e-9",
            "",
            histogram.smallest_true_delta <= 1e-9,
            f"delta is at least {histogram.smallest_true_delta:.3g}",
        ),
        Claim(
            "table 2: noise 2.72, batches of 131,072 of 83 million examples and 31,250 steps have epsilon 0.6 at delta 1e-8",
            "",
            training <= 0.6,
            f"{training:.3f}",
        ),
    )

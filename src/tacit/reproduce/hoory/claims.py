"""The paper's claims, and some of our own, judged one by one: each has its row, also where nothing was run yet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.audit.inference import Estimate
from tacit.reproduce.hoory.cells import EPSILONS, MAIN, Private, replicate_of, row_of
from tacit.reproduce.hoory.evidence import Evidence, Measure, dictionary
from tacit.reproduce.hoory.exposures import mean_exposures
from tacit.reproduce.hoory.printed import epsilons_of_figure1, printed_epsilons
from tacit.reproduce.hoory.scale import Scale
from tacit.reproduce.judging import FEWEST, TOLD_ALONE, above, all_of, below, over_seeds
from tacit.reproduce.writing import Claim, Row

__all__ = ["judge", "measures_of"]

_NOT_RUN = "not run yet"
_KEPT = 0.6
_PAPER_KEPT = "60 to 78 %"  # its table 2: 78 and 68 % at epsilon 0.51 + 2.8, 70 and 60 % at 0.51 + 0.6, for an example
_AIMS = dict(zip(EPSILONS, (0.75, 0.65, 0.5), strict=True))
_FAR = 3.0
"""Bits of exposure that the paper's figure 2 has between training with and without DP, at least."""
_SLIGHTLY = 0.031
"""F1 that DP costs at most in the paper's table 2: 86.8 less 83.7."""
_PUBLIC = "BERT, which read no private text,"


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
        *_public_text(of, scale),
        *_figure1(of, tables["figure1"]),
        *epsilons_of_figure1(scale),
        *_figure2(of, tables["figure2"]),
        *printed_epsilons(),
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


def _trend(text: str, panel: str, of: Evidence, measure: Measure, rows: tuple[str, str, str], paper: str = "") -> Claim:
    """That one row is better than another, where both read private text.

    Where DP training only harms, less of it harms less, and BERT passes in the place of the better row: so that one must be better
    than BERT, too.

    Args:
        rows: the better one, the other, and BERT of the same measure.
    """
    own, other, bert = rows
    claim = _better(text, panel, of, measure, own, other, paper)
    passes, learned = (_verdict(of.gain(measure, *pair)) for pair in ((bert, other), (own, bert)))
    if claim.holds and passes:
        return replace(claim, passed_by=_PUBLIC)
    if claim.holds and passes is None and learned is not True:
        return replace(claim, holds=None, numbers=f"{claim.numbers}, but not told to be better than BERT")
    return claim


def _numbers(of: Evidence, measure: Measure, own: str, other: str, gain: Estimate) -> str:
    """Both means over the trainings that both rows have, and their difference."""
    values = " against ".join(f"{abs(float(values_SD.mean())):.3f}" for values_SD in of.values(measure, own, other))
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
        _trend(
            text,
            f"{private}, ε {more:g} against {less:g}",
            of,
            loss,
            (f"{family}-dp-{more:g}", f"{family}-dp-{less:g}", f"{family}-bert"),
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
    claims += [
        _trend(
            text, panel, of, measure, (f"{family}-dp-{most:g}", f"{family}-dp-{least:g}", bert), "84.5 against 83.7"
        ),
        _slightly(of, measure, family),
    ]
    return [*claims, _strong_enough(of, measure, family)]


def _slightly(of: Evidence, measure: Measure, family: str) -> Claim:
    """Where BERT is as near, or may be, there was nothing to lose."""
    bert, best, own = (f"{family}-{arm}" for arm in ("bert", "bert-m", f"dp-{EPSILONS[-1]:g}"))
    text = f"section 5.1: at epsilon {EPSILONS[-1]:g} F1 is only slightly below BERT-M's (at most {_SLIGHTLY:g}, the paper's most)"
    paper, panel = "83.7 and 81.2 against 86.8 and 83.6", _panel(measure)
    lost, beside = of.gain(measure, own, best), of.gain(measure, bert, best)
    if lost is None or beside is None:
        return Claim(text, panel, None, _NOT_RUN, paper)
    numbers, holds = f"{_interval(lost)}; BERT {_interval(beside)}", above(lost, -_SLIGHTLY)
    passes = above(beside, -_SLIGHTLY)
    if holds and passes is None:
        return Claim(text, panel, None, f"{numbers}, which is not told to be further below", paper)
    return Claim(text, panel, holds, numbers, paper, _PUBLIC if passes else "")


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
    )
    measures = [
        measure
        for task, size in scale.tasks.items()
        if size.private == "dialogues"
        for measure in measures_of(task, scale)
        if measure.part == "seen"
    ]
    bert = f"{MAIN['dialogues']}-bert"
    text = "section 3.2: WordPiece by likelihood, as the paper describes it, gives BERT a higher F1 than by frequency"
    return [
        *(
            _trend(text, _panel(measure), of, measure, (own, other, bert))
            for text, own, other in pairs
            for measure in measures
        ),
        *(_better(text, _panel(measure), of, measure, "dialogues-likelihood-bert", bert) for measure in measures),
    ]


def _public_text(of: Evidence, scale: Scale) -> list[Claim]:
    """The paper's BioBERT: no model here reads private text. Its vocabulary has the medical text's words, too."""
    text = "table 2: public medical text alone (the paper's BioBERT) gives BERT a higher F1 than general text"
    return [
        _better(text, task, of, Measure(task), "notes-public-bert", "notes-general-bert", "86.5 against 76.3")
        for task, size in scale.tasks.items()
        if size.private == "notes"
    ]


# Figure 1 ---------------------------------------------------------------------------------------------------------------

_VARIED = {
    "noise": "figure 1: more noise gives a higher masked loss",
    "steps": "figure 1: more steps give a lower masked loss",
    "batch": "figure 1: a larger batch with the same noise multiplier gives a lower masked loss",
    "passes": "section 5.1: at one epsilon and as many passes, a larger batch gives a lower masked loss",
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
            claims.append(_trend(text, panel, of, Measure(), (better["row"], worse["row"], f"{MAIN['notes']}-bert")))
    return claims


# Figure 2 ---------------------------------------------------------------------------------------------------------------


def _figure2(of: Evidence, rows: Sequence[Row]) -> list[Claim]:
    """The claims of figure 2 for each number of occurrences, in public contexts and where the canaries were planted."""
    claims: list[Claim] = []
    for where in ("public contexts", "training contexts"):
        own = [row for row in rows if row["contexts"] == where]
        source = "figure 2" if where == "public contexts" else "(ours)"
        noisy = {row_of(row["model"]): row for row in own if row["dp"]}
        for model, one in noisy.items():
            shown = [row for row in own if row_of(row["model"]) == model]
            control = [row for row in own if not row["dp"] and row["probability"] == one["probability"]]
            panel = f"{where}, {one['words']}, ε {one['epsilon']:.2f}, {one['occurrences']:.0f} occurrences"
            claims += _exposed(source, panel, shown, control, of)
        if not noisy:
            claims += _exposed(source, where, [], [], of)
    return claims


def _exposed(source: str, panel: str, own: Sequence[Row], control: Sequence[Row], of: Evidence) -> list[Claim]:
    """A model that learned nothing would pass too: it must have a lower masked loss than the public one that it began as.

    Args:
        own, control: a row for each pattern and training.
    """
    at_null = f"{source}: exposure under DP is at its null"
    less = f"{source}: DP exposes each pattern by at least 3 bits less than training without it"
    if not own or not control:
        return [Claim(text, panel, None, _NOT_RUN) for text in (at_null, less)]
    means, of_control = mean_exposures(own), mean_exposures(control)
    each = of.level / len(means)
    less_by = [_bits_less(own, control, row["pattern"], each) for row in means]
    numbers = (
        f"{_bits(means)}, least p-value {min(row['p_value'] for row in means):.2g}; without DP {_bits(of_control)}"
    )
    numbers += f"; null {means[0]['null_bits']:.2f}, level {each:.2g}"
    further = "; ".join(
        f"{row['pattern']} {_interval(_negative(one))}" for row, one in zip(means, less_by, strict=True)
    )
    verdicts = {
        at_null: (_at_null(means, of_control, less_by, each), numbers),
        less: (_far_less(own, of_control, less_by, each), f"{further} bits less"),
    }
    learned, words = _learned(of, means[0]["model"], means[0]["trainings"])
    claims = [Claim(text, panel, holds, f"{said}; {words}") for text, (holds, said) in verdicts.items()]
    nothing = "; a model that learned nothing passes too"
    return [
        replace(claim, holds=None, numbers=claim.numbers + nothing) if claim.holds and not learned else claim
        for claim in claims
    ]


def _bits_less(own: Sequence[Row], control: Sequence[Row], pattern: str, level: float) -> Estimate:
    """How many bits more a pattern is exposed than in the control: the mean over the trainings that both have."""
    of_own, of_control = (
        {replicate_of(row["model"]): row["bits"] for row in rows if row["pattern"] == pattern}
        for rows in (own, control)
    )
    shared = sorted(of_own.keys() & of_control.keys())
    if not shared:
        return Estimate(0.0, -math.inf, math.inf)
    return over_seeds(np.array([of_own[one] - of_control[one] for one in shared]), 0.0, 1, level)


def _at_null(means: Sequence[Row], control: Sequence[Row], less_by: Sequence[Estimate], level: float) -> bool | None:
    """Whether nothing is found of any pattern, and less of each than in the control, where all are found.

    That a level is shared by many claims must not make "nothing was found" easier: what would be told alone leaves it undecided.
    """
    least = min(row["p_value"] for row in means)
    if least < level:
        return False
    has_power = all(row["p_value"] < level for row in control) and all(below(one, 0.0) is True for one in less_by)
    return True if has_power and least * len(means) >= TOLD_ALONE else None


def _far_less(own: Sequence[Row], control: Sequence[Row], less_by: Sequence[Estimate], level: float) -> bool | None:
    """Whether each pattern is exposed by three bits less; not, where one is the first of all candidates in every training."""
    if not all(row["bits"] > row["null_bits"] + _FAR and row["p_value"] < level for row in control):
        return None
    for row in control:
        bits = [one["bits"] for one in own if one["pattern"] == row["pattern"]]
        if len(bits) >= FEWEST and min(bits) >= row["ceiling_bits"] - 1e-9:
            return False
    return all_of(below(one, -_FAR) for one in less_by)


def _learned(of: Evidence, model: str, trainings: int) -> tuple[bool, str]:
    """Whether the masked loss of left-out notes is told to be below that of the public model; and the numbers."""
    begun_as = f"{MAIN['notes']}-bert"
    gain = of.gain(Measure(), model, begun_as)
    if gain is None:
        return False, "the public model that it began as was not run"
    own, public = (
        -float(values_SD.mean()) if values_SD.size else math.nan for values_SD in of.values(Measure(), model, begun_as)
    )
    words = (
        f"masked loss {own:.2f} against {public:.2f} of the public model that it began as, better by {_interval(gain)}"
    )
    return above(gain, 0.0) is True, f"{words}; {trainings} training{'s' if trainings > 1 else ''}"


def _negative(estimate: Estimate) -> Estimate:
    return Estimate(-estimate.value, -estimate.high, -estimate.low)


def _bits(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row['pattern']} {row['bits']:.1f}" for row in rows) + " bits"

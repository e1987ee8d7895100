"""The paper's claims, and those of the certified forms, judged one by one: each has its row, also where nothing was run yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.audit.inference import Estimate
from tacit.reproduce.adp.corpora import TEXTS
from tacit.reproduce.adp.evidence import Evidence, Model, mean_share, share_difference
from tacit.reproduce.adp.printed import printed
from tacit.reproduce.adp.scale import ARMS, ARMS_WITH_NOISE, CERTIFIED, EXPOSED, ONE_RECORD, Arm, Cell, Scale, Scores
from tacit.reproduce.adp.tables import PAPER
from tacit.reproduce.judging import FEWEST, above, all_of, below, beside_controls
from tacit.reproduce.writing import Claim, Row

__all__ = ["judge"]

_NOT_RUN = "not run yet"
_PUBLIC: dict[str, str] = {"model": "the public model, which read no private line,", "unigram": "counting words"}


def judge(
    results: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Sequence[Row]], scale: Scale, level: float
) -> list[Claim]:
    """All claims.

    Args:
        level: of each interval.
    """
    of = Evidence(results, scale, level)
    return [
        *_trends(of),
        *_certified(of),
        *_useful(of),
        *_exposed(of),
        *_deduplicated(of),
        *_scorer(of),
        *printed(tables),
    ]


# Perplexity -----------------------------------------------------------------------------------------------------------


def _ratio(estimate: Estimate) -> str:
    low, value, high = np.exp([estimate.low, estimate.value, estimate.high])
    return f"ratio {value:.3f} ({low:.3f} to {high:.3f})"


def _lower(of: Evidence, own: Model, other: Model, text: str = "wikipedia") -> bool | None:
    """Whether its perplexity is lower; None where they were not run, too."""
    found = of.log_ratio([own], [other], text)
    return None if found is None else below(found, 0.0)


def _compared(of: Evidence, own: Model, other: Model, text: str = "wikipedia") -> str:
    found = of.log_ratio([own], [other], text)
    if found is None:
        return _NOT_RUN
    return f"{of.perplexity(own, text):.2f} against {of.perplexity(other, text):.2f}; {_ratio(found)}"


def _published(training: str, noise: float) -> str:
    return next(
        (f"{row['perplexity']:.0f}" for row in PAPER if (row["training"], row["noise"]) == (training, noise)), ""
    )


def _against(training: str, other: str, noise: float) -> str:
    own, base = (
        _published(training, noise),
        f"{PAPER[0]['perplexity']:.0f}" if other == "No-DP" else _published(other, noise),
    )
    return f"{own} against {base}" if own and base else ""


def _trends(of: Evidence) -> list[Claim]:
    """Table 1: what DP costs, what more noise costs, and what the published algorithm gains by less noise.

    What costs something is passed by who learned nothing at all: the public model, which is worse than training without DP.
    """
    least, noises = of.scale.insertions[0], of.scale.noise
    plain = Cell("plain", 0.0, least)
    learned_nothing = {_PUBLIC["model"]: _lower(of, plain, "model")}
    dp, literal = ({noise: Cell(arm, noise, least) for noise in noises} for arm in ("dp-sgd", "literal"))
    claims = []
    for noise in noises:
        panel = f"s = {noise:g}"
        claims += [
            _beside(
                Claim(
                    "DP-SGD has a higher perplexity than training without DP",
                    panel,
                    _lower(of, plain, dp[noise]),
                    _compared(of, dp[noise], plain),
                    _against("DP-SGD", "No-DP", noise),
                ),
                learned_nothing,
            ),
            _beside(
                Claim(
                    "the published algorithm has a lower perplexity than DP-SGD at the same s (its epsilon is infinite)",
                    panel,
                    _lower(of, literal[noise], dp[noise]),
                    _compared(of, literal[noise], dp[noise]),
                    _against("ADP", "DP-SGD", noise),
                ),
                _unlimited(of, plain, dp[noise]),
            ),
            _beside(
                Claim(
                    "the published algorithm has a higher perplexity than training without DP",
                    panel,
                    _lower(of, plain, literal[noise]),
                    _compared(of, literal[noise], plain),
                    _against("ADP", "No-DP", noise),
                ),
                learned_nothing,
            ),
        ]
    first, last = noises[0], noises[-1]
    text = f"DP-SGD has a higher perplexity at s = {last:g} than at s = {first:g}"
    claims.append(_beyond_public(of, Claim(text, "", None, _compared(of, dp[last], dp[first])), dp[first], dp[last]))
    return [*claims, _gain_grows(of, dp[first], dp[last], literal[first], literal[last])]


def _beside(claim: Claim, controls: Mapping[str, bool | None]) -> Claim:
    """The claim, judged beside models that have nothing of what it is about (`beside_controls`)."""
    holds, passed_by, doubt = beside_controls(claim.holds, controls)
    return replace(claim, holds=holds, numbers=f"{claim.numbers}{doubt}", passed_by=passed_by)


def _unlimited(of: Evidence, plain: Cell, dp: Cell) -> dict[str, bool | None]:
    """Whether training without DP is better than DP-SGD; where it is not, whether who read no private line is."""
    without = _lower(of, plain, dp)
    controls = {"training without DP, whose epsilon is infinite as well,": without}
    return controls if without else controls | {name: _lower(of, model, dp) for model, name in _PUBLIC.items()}


def _beyond_public(of: Evidence, claim: Claim, own: Cell, other: Cell, text: str = "wikipedia") -> Claim:
    """The claim, judged: that one model has a lower perplexity than another, where both read private text.

    Where DP training only harms, less harm is better, and the public model passes in the place of the better one: so that one must be
    better than the public model, too.
    """
    holds, passed_by = _lower(of, own, other, text), _passing(of, other, text)
    if holds and not passed_by and _lower(of, own, "model", text) is not True:
        numbers = f"{claim.numbers}, but not told to be better than the public model"
        return replace(claim, holds=None, numbers=numbers)
    return replace(claim, holds=holds, passed_by=passed_by)


def _gain_grows(of: Evidence, dp_first: Cell, dp_last: Cell, first: Cell, last: Cell) -> Claim:
    """Any model that does not get worse with s passes, too."""
    text = f"the published algorithm gains more on DP-SGD at s = {last.noise:g} than at s = {first.noise:g}"
    found = of.log_ratio([last, dp_first], [dp_last, first], "wikipedia")
    if found is None:
        return Claim(text, "", None, _NOT_RUN)
    claim = Claim(text, "", below(found, 0.0), f"of both gains the {_ratio(found)}", "0.415 against 0.584")
    return _beside(claim, {_PUBLIC["model"]: _lower(of, dp_first, dp_last)})


def _certified(of: Evidence) -> list[Claim]:
    """Each form by itself, at the same worst case and at the same protection of private-like text, on both texts."""
    least, claims = of.scale.insertions[0], []
    baselines: dict[Arm, str] = {"dp-sgd": "worst-case epsilon", "dp-sgd-protected": "epsilon for private-like text"}
    for baseline, what in baselines.items():
        for form in CERTIFIED:
            for noise in of.scale.noise:
                own, other = Cell(form, noise, least), Cell(baseline, noise, least)
                judged = f"at the same {what}, {ARMS[form]} has a lower perplexity than DP-SGD"
                for text in TEXTS:
                    claim = Claim(judged, f"s = {noise:g}, {TEXTS[text]}", None, _compared(of, own, other, text))
                    claims.append(_beyond_public(of, claim, own, other, text))
    return claims


def _passing(of: Evidence, other: Cell, text: str) -> str:
    """Who without any private line is better than a baseline; empty where nobody is."""
    return next((name for model, name in _PUBLIC.items() if _lower(of, model, other, text)), "")


def _useful(of: Evidence) -> list[Claim]:
    """Every model that read private text, against those that did not."""
    least = of.scale.insertions[0]
    groups = {"No-DP": [Cell("plain", 0.0, least)]} | {
        f"s = {noise:g}": [Cell(arm, noise, least) for arm in ARMS_WITH_NOISE] for noise in of.scale.noise
    }
    names: dict[Model, str] = {
        "unigram": "counting words (the unigram of the test text)",
        "model": "the public model that it began as",
    }
    return [
        _beside(
            Claim(f"every model is better than {name}", panel, *_all_better(of, cells, model)),
            {} if model == "model" else {_PUBLIC["model"]: _lower(of, "model", model)},
        )
        for model, name in names.items()
        for panel, cells in groups.items()
    ]


def _all_better(of: Evidence, cells: Sequence[Cell], model: Model) -> tuple[bool | None, str]:
    run = [cell for cell in cells if of.seeds(cell)]
    verdict = all_of(_lower(of, cell, model) for cell in cells)
    if not run:
        return verdict, _NOT_RUN
    worst = max(run, key=lambda cell: of.perplexity(cell, "wikipedia"))
    return verdict, f"the worst is {ARMS[worst.arm]}: {_compared(of, worst, model)}"


# Exposure -------------------------------------------------------------------------------------------------------------


def _bits(estimate: Estimate) -> str:
    return f"{estimate.value:.1f} bits ({estimate.low:.1f} to {estimate.high:.1f})"


def _null_bits(of: Evidence) -> float:
    return of.results["public"]["exposure"]["null_bits"]


def _exposed(of: Evidence) -> list[Claim]:
    """Figure 1."""
    first, copies = of.scale.noise[0], of.scale.insertions
    plain = {count: Cell("plain", 0.0, count) for count in copies}
    claims = [_without_dp(of, cell) for cell in plain.values()]
    text = f"without DP {copies[-1]:,} copies expose the canary more than {copies[0]:,}"
    claims.append(Claim(text, "", *_more(of, plain[copies[-1]], plain[copies[0]])))
    for count in copies[1:]:
        claims += [
            _less_exposed(of, Cell(arm, first, count), plain[count], f"{ARMS[arm]}, {count:,} copies")
            for arm in EXPOSED
        ]
        claims.append(_exposes_more(of, Cell("literal", first, count), Cell("dp-sgd", first, count)))
    return claims


def _without_dp(of: Evidence, cell: Cell) -> Claim:
    text, panel, found = "without DP the canary is exposed", f"{cell.copies:,} copies", of.exposure(cell)
    if found is None:
        return Claim(text, panel, None, _NOT_RUN)
    enough = None if len(of.seeds(cell)) < FEWEST else above(found, _null_bits(of))
    return Claim(text, panel, enough, f"{_bits(found)}; null {_null_bits(of):.2f}")


def _exposes_more(of: Evidence, literal: Cell, dp: Cell) -> Claim:
    """Both must be better than the public model: who has diverged exposes nothing either."""
    text = "the published algorithm exposes the canary more than DP-SGD, both better than the public model"
    more, numbers = _more(of, literal, dp)
    holds = all_of([more, *(_lower(of, cell, "model") for cell in (literal, dp))]) if more else more
    return Claim(text, f"{literal.copies:,} copies", holds, numbers, "slightly worse than DP-SGD")


def _more(of: Evidence, own: Cell, other: Cell) -> tuple[bool | None, str]:
    found = of.exposure_difference(own, other)
    return (None, _NOT_RUN) if found is None else (above(found, 0.0), f"{_bits(found)} more")


def _less_exposed(of: Evidence, own: Cell, plain: Cell, panel: str) -> Claim:
    """A model that learned nothing would pass too, so it must also be better than the public one.

    Where the canary is the first of all candidates in every replicate, it is not protected, and there is no rank above it.
    """
    text = "the canary is less exposed than without DP, by a model that is better than the public one"
    found = of.exposure_difference(own, plain)
    if found is None:
        return Claim(text, panel, None, _NOT_RUN)
    seeds = of.seeds(own, plain)
    bits_S, plain_S = of.bits(own, seeds), of.bits(plain, seeds)
    first_S = bits_S >= math.log2(of.scale.canary.candidates) - 1e-9
    less = False if first_S.all() and len(seeds) > 1 else below(found, -_A_BIT)
    numbers = f"{bits_S.mean():.1f} against {plain_S.mean():.1f} bits; {_bits(found)} more"
    return Claim(text, panel, all_of([less, _lower(of, own, "model")]), numbers, "less exposed at 1,000 copies")


_A_BIT = 1.0
"""Twice as far down among all candidates: less is no difference."""


def _deduplicated(of: Evidence) -> list[Claim]:
    """The canary as one record; the control is the same text with all copies, without DP."""
    first, most = of.scale.noise[0], of.scale.insertions[-1]
    copies, plain = Cell("plain", 0.0, most), Cell("plain", 0.0, most, deduplicated=True)
    control = of.exposure(copies)
    text = f"{most:,} copies, each different line once: nothing of the canary is found, in a model better than the public one"
    claims = []
    for arm in ONE_RECORD:
        cell = Cell(arm, first, most, deduplicated=True)
        own = of.exposure(cell)
        if own is None:
            claims.append(Claim(text, ARMS[arm], None, _NOT_RUN))
            continue
        null = _null_bits(of)
        holds = all_of([_nothing_found(of, cell, copies), _lower(of, cell, "model")])
        says = "no control" if control is None else f"without DP and deduplication {_bits(control)}"
        claim = Claim(text, ARMS[arm], holds, f"{_bits(own)}; null {null:.2f}; {says}")
        passes = _nothing_found(of, plain, copies)
        claims.append(_beside(claim, {"training without DP on each different line once": passes}))
    return claims


def _nothing_found(of: Evidence, cell: Cell, control: Cell) -> bool | None:
    """Whether the canary is at its null, and less exposed, by a bit at least, than in the control, where it is exposed."""
    own, exposed, less = of.exposure(cell), of.exposure(control), of.exposure_difference(cell, control)
    if own is None or above(own, _null_bits(of)):
        return None if own is None else False
    has_power = exposed is not None and above(exposed, _null_bits(of)) is True
    return True if has_power and less is not None and below(less, -_A_BIT) is True else None


# The scorer -----------------------------------------------------------------------------------------------------------


def _scorer(of: Evidence) -> list[Claim]:
    text = "the scorer is better than counting words (the unigram of the test text)"
    claims = [
        Claim(text, TEXTS[one], _lower(of, "model", "unigram", one), _compared(of, "model", "unigram", one))
        for one in TEXTS
    ]
    return [*claims, *_found_by_rho(of), *_canary_rho(of)]


_PERSONAL = ("customer's line with a number", "customer's line without one")


def _found_by_rho(of: Evidence) -> list[Claim]:
    """Assumption 1: what is personal is what a public model finds unlikely."""
    scored = _scored(of)
    often = "it is private-like more often than a paragraph of Wikipedia"
    most = f"most of it is private-like (rho at least {of.scale.threshold:g})"
    if scored is None:
        return [Claim(text, kind, None, _NOT_RUN) for text in (often, most) for kind in _PERSONAL]
    kinds = scored["kinds"]
    claims = []
    for kind in _PERSONAL:
        difference = share_difference(kinds[kind], kinds["paragraph"], of.level)
        claims.append(Claim(often, kind, above(difference, 0.0), f"{_share(difference)} more of a document's lines"))
    for kind in _PERSONAL:
        share = mean_share(kinds[kind], of.level)
        claim = Claim(most, kind, above(share, 0.5), f"{_share(share)} of a document's lines")
        claims.append(_beside(claim, _most_paragraphs(of)))
    return claims


def _scored(of: Evidence) -> Mapping[str, Any] | None:
    return of.results.get(f"scores-{Scores(Cell('literal', 1.0, of.scale.insertions[0]).text, 'public').name}")


def _most_paragraphs(of: Evidence) -> dict[str, bool | None]:
    """The control of what says that something is private-like: that not most of Wikipedia is."""
    scored = _scored(of)
    share = None if scored is None else above(mean_share(scored["kinds"]["paragraph"], of.level), 0.5)
    return {"a paragraph of Wikipedia": share}


def _share(estimate: Estimate) -> str:
    low, value, high = (100 * number for number in (estimate.low, estimate.value, estimate.high))
    return f"{value:.0f} % ({low:.0f} to {high:.0f})"


def _canary_rho(of: Evidence) -> list[Claim]:
    """Measured numbers, of each replicate's canary; there is nothing to estimate."""
    texts = (
        "the public model finds the canary unlikely: it is in the private-like band",
        f"the weak point: with {of.scale.frequent:,} copies in the scorer's own text the canary is out of that band",
    )
    if not {"public", "frequent"} <= of.results.keys():
        return [Claim(text, "", None, _NOT_RUN) for text in texts]
    rho, [frequent, *_] = (of.results[name]["canary_rho"] for name in ("public", "frequent"))
    private = [value >= of.scale.threshold for value in rho]
    numbers = f"rho {min(rho):.2f} to {max(rho):.2f}, threshold {of.scale.threshold:g}"
    unlikely = Claim(texts[0], "", True if all(private) else False if not any(private) else None, numbers)
    out = frequent < of.scale.threshold <= rho[0]
    return [
        _beside(unlikely, _most_paragraphs(of)),
        Claim(texts[1], "", out, f"{rho[0]:.2f} without, {frequent:.2f} with"),
    ]

"""The paper's claims, judged by our results: each as one line, with its numbers, that says whether it shows."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.reproduce.writing import Claim, Row

__all__ = ["judge"]

_AIM = 0.6
_PAPER = "60 to 78 %"  # its table 2: 78 and 68 % at epsilon 0.51 + 2.8, 70 and 60 % at 0.51 + 0.6, for an example
_LEVEL = 0.05
_FAR_ABOVE = 3.0  # bits over the null


def judge(table: Sequence[Row], exposures: Sequence[Row]) -> list[Claim]:
    """All claims for which there are rows."""
    claims: list[Claim] = []
    for task in dict.fromkeys(row["task"] for row in table):
        claims += _utility(task, {row["model"]: row for row in table if row["task"] == task})
    return claims + _memory(exposures)


def _utility(task: str, rows: dict[str, Row]) -> list[Claim]:
    bert, best = rows.get("bert"), rows.get("bert-m")
    if bert is None or best is None:
        return []
    told = "BERT-M's gain over BERT, of which a share is kept, is told from 0"
    claims = [_above_zero(told, task, best, "gain")]
    for own in (rows[name] for name in ("bert-dp-8", "bert-dp-3") if name in rows):
        panel = f"{task}, ε {own['epsilon']:.2f}"
        order = f"{bert['f1']:.3f}, {own['f1']:.3f}, {best['f1']:.3f}"
        right = bert["f1"] < own["f1"] <= best["f1"]
        claims += [
            Claim("F1: BERT < BERT-DP <= BERT-M in the mean", panel, right, order),
            _above_zero("BERT-DP's gain over BERT is told from 0", panel, own, "gain"),
            _kept("60 to 100 % of BERT-M's gain is kept in the mean", panel, own, best),
        ]
        if own["notes"] is not None:
            text = "BERT-DP is above BERT with the same public medical text: the notes themselves add something"
            claims.append(_above_zero(text, panel, own, "notes"))
    own, best = rows.get("bert-dp-8-general"), rows.get("bert-m-general")
    if own is not None and best is not None:
        text = "the same without medical public text, as in the paper: 60 to 100 % of that BERT-M's gain"
        share = own["gain"] / best["gain"] if best["gain"] > 0 else None
        panel = f"{task}, ε {own['epsilon']:.2f}"
        claims.append(_kept(text, panel, {**own, "share": share, "share_low": None}, best))
    return claims


def _above_zero(text: str, panel: str, row: Row, name: str) -> Claim:
    """Where there is no interval, nothing is told from 0."""
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    bounds = "no interval" if low is None else f"{low:+.3f} to {high:+.3f}"
    return Claim(text, panel, low is not None and low > 0, f"{value:+.3f} ({bounds})")


def _kept(text: str, panel: str, own: Row, best: Row) -> Claim:
    """Of a gain that may be none, a share says nothing, be it large or small: so where BERT-DP is above BERT-M it does not show."""
    share = own["share"]
    if share is None:
        return Claim(text, panel, False, "BERT-M gains nothing, so there is no share", _PAPER)
    bounds = "no interval"
    if own["share_low"] is not None:
        bounds = f"{100 * own['share_low']:.0f} to {100 * own['share_high']:.0f} %"
    of_what = f"{own['gain']:+.3f} of {best['gain']:+.3f}"
    return Claim(text, panel, _AIM <= share <= 1, f"{100 * share:.0f} %: {of_what} ({bounds})", _PAPER)


def _memory(rows: Sequence[Row]) -> list[Claim]:
    """Of each epsilon and number of occurrences; and of both trainings where the canaries are most frequent."""
    noisy, control = [row for row in rows if row["dp"]], [row for row in rows if not row["dp"]]
    claims: list[Claim] = []
    level = _LEVEL / max(1, len(noisy))
    for epsilon, probability in dict.fromkeys((row["epsilon"], row["probability"]) for row in noisy):
        own = [row for row in noisy if (row["epsilon"], row["probability"]) == (epsilon, probability)]
        least, often = min(row["p_value"] for row in own), own[0]["occurrences"]
        text = "exposure under DP is not told from its null"
        panel = f"ε {epsilon:.2f}, {often:.0f} occurrences of a canary"
        numbers = f"{_bits(own)}; null {own[0]['null_bits']:.2f}; least p-value {least:.2g} (level {level:.2g})"
        claims.append(Claim(text, panel, least >= level, numbers))
    if not control:
        return claims
    most = max(row["probability"] for row in control)
    own = [row for row in control if row["probability"] == most]
    lowest = min(row["bits"] for row in own)
    for epsilon in dict.fromkeys(row["epsilon"] for row in noisy if row["probability"] == most):
        highest = max(row["bits"] for row in noisy if (row["epsilon"], row["probability"]) == (epsilon, most))
        text = "where canaries are most frequent, DP exposes each pattern by 3 bits less (the paper's claim)"
        numbers = f"at most {highest:.1f} against {lowest:.1f} bits"
        claims.append(Claim(text, f"ε {epsilon:.2f}", highest < lowest - _FAR_ABOVE, numbers))
    far = all(row["bits"] > row["null_bits"] + _FAR_ABOVE for row in own)
    text = "without DP every pattern is exposed by 3 bits more than its null"
    panel = f"{own[0]['occurrences']:.0f} occurrences"
    claims.append(Claim(text, panel, far, f"{_bits(own)}; null {own[0]['null_bits']:.2f}"))
    return claims


def _bits(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row['pattern']} {row['bits']:.1f}" for row in rows) + " bits"

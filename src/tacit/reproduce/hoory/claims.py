"""The paper's claims, judged by our results: each as one line, with its numbers, that says whether it shows."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.reproduce.writing import Claim, Row

__all__ = ["judge"]

_AIM = 0.6
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
    claims: list[Claim] = []
    if best is not None:
        claims += _told_from_zero("BERT-M's gain over BERT, of which a share is kept, is told from 0", task, best)
    for name in ("bert-dp-8", "bert-dp-3"):
        own = rows.get(name)
        if own is None or bert is None or best is None:
            continue
        epsilon = f"epsilon {own['epsilon']:.2f}"
        order = f"{bert['f1']:.3f}, {own['f1']:.3f}, {best['f1']:.3f}"
        claims.append(
            Claim(f"F1: BERT < BERT-DP <= BERT-M ({epsilon})", task, bert["f1"] < own["f1"] <= best["f1"], order)
        )
        claims += _told_from_zero(f"BERT-DP's gain over BERT is told from 0 ({epsilon})", task, own)
        claims.append(_kept(task, own, epsilon))
    medical, dp = rows.get("bert-medical"), rows.get("bert-dp-8")
    if medical is not None and dp is not None:
        text = "BERT-DP is above BERT with the same public medical text: the notes themselves add something"
        claims.append(Claim(text, task, dp["f1"] > medical["f1"], f"{dp['f1']:.3f} against {medical['f1']:.3f}"))
    return claims


def _told_from_zero(text: str, task: str, own: Row) -> list[Claim]:
    """None where there is no interval."""
    low, high = own["gain_low"], own["gain_high"]
    if low is None:
        return []
    return [Claim(text, task, low > 0, f"{own['gain']:+.3f} ({low:+.3f} to {high:+.3f})")]


def _kept(task: str, own: Row, epsilon: str) -> Claim:
    text = f"at least 60 % of BERT-M's gain is kept ({epsilon})"
    if own["share"] is None:
        return Claim(text, task, False, "BERT-M gains nothing, so there is no share")
    bounds = "no interval"
    if own["share_low"] is not None:
        bounds = f"{100 * own['share_low']:.0f} to {100 * own['share_high']:.0f} %"
    return Claim(text, task, own["share"] >= _AIM, f"{100 * own['share']:.0f} % ({bounds})")


def _memory(rows: Sequence[Row]) -> list[Claim]:
    """Of each epsilon and number of occurrences; and of both trainings where the canaries are most frequent."""
    noisy, control = [row for row in rows if row["dp"]], [row for row in rows if not row["dp"]]
    claims: list[Claim] = []
    for epsilon, occurrences in dict.fromkeys((row["epsilon"], row["occurrences"]) for row in noisy):
        own = [row for row in noisy if (row["epsilon"], row["occurrences"]) == (epsilon, occurrences)]
        least, level = min(row["p_value"] for row in own), _LEVEL / len(noisy)
        bits = ", ".join(f"{row['pattern']} {row['bits']:.1f}" for row in own)
        text = f"exposure under DP (epsilon {epsilon:.2f}) is at its null, at {occurrences:.0f} occurrences of a canary"
        numbers = f"{bits} bits; null {own[0]['null_bits']:.2f}; least p-value {least:.2g} (level {level:.2g})"
        claims.append(Claim(text, "canaries", least >= level, numbers))
    if control:
        most = max(row["occurrences"] for row in control)
        own = [row for row in control if row["occurrences"] == most]
        under = [row for row in noisy if row["occurrences"] == most]
        if under:
            highest, lowest = max(row["bits"] for row in under), min(row["bits"] for row in own)
            text = f"at {most:.0f} occurrences DP exposes every pattern by 3 bits less than training without DP (the paper's claim)"
            claims.append(
                Claim(
                    text, "canaries", highest < lowest - _FAR_ABOVE, f"at most {highest:.1f} against {lowest:.1f} bits"
                )
            )
        far = all(row["bits"] > row["null_bits"] + _FAR_ABOVE for row in own)
        told = ", ".join(f"{row['pattern']} {row['bits']:.1f}" for row in own)
        text = f"without DP, at {most:.0f} occurrences, every pattern is exposed by 3 bits more than its null"
        claims.append(Claim(text, "canaries", far, f"{told} bits; null {own[0]['null_bits']:.2f}"))
    return claims

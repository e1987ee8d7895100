"""The claims, judged by our results: each as one line, with its numbers, that says whether it shows."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.reproduce.adp.scale import ARMS, CERTIFIED, Scale
from tacit.reproduce.adp.tables import PAPER
from tacit.reproduce.writing import Claim, Row

__all__ = ["judge"]

_LESS = "less exposed"


def judge(models: Sequence[Row], public: Sequence[Row], scale: Scale) -> list[Claim]:
    """All claims for which there are rows."""
    claims: list[Claim] = []
    table = [row for row in models if row["copies"] == scale.insertions[0] and not row["frequent"]]
    for noise in scale.noise:
        own = {row["arm"]: row for row in reversed(table) if row["noise"] == noise}  # the first seed
        claims += _of_noise(own, f"s = {noise:g}")
    claims += _of_literal(table, scale)
    claims += _useful(table, public)
    claims += _of_canary(models, public, scale)
    return claims


def _of_noise(rows: dict[str, Row], panel: str) -> list[Claim]:
    """What the certified forms are beside DP-SGD, at the same worst case and at the same protection of private-like text."""
    texts = {
        "dp-sgd": "at the same worst-case epsilon, a certified form has a lower perplexity than DP-SGD",
        "dp-sgd-protected": "at the same epsilon for private-like text, a certified form has a lower perplexity than DP-SGD",
    }
    forms = [rows[arm] for arm in CERTIFIED if arm in rows]
    claims = []
    for baseline, text in texts.items():
        if baseline not in rows or not forms:
            continue
        best = min(row["perplexity"] for row in forms)
        numbers = "; ".join(f"{ARMS[row['arm']]} {row['perplexity']:.2f}" for row in forms)
        other = rows[baseline]["perplexity"]
        claims.append(Claim(text, panel, best < other, f"{numbers}; DP-SGD {other:.2f}"))
    return claims


def _of_literal(rows: Sequence[Row], scale: Scale) -> list[Claim]:
    """The paper's own claim: less noise, so a better model. It says nothing of privacy."""
    claims = []
    for noise in scale.noise:
        pair = [
            next((row for row in rows if (row["arm"], row["noise"]) == (arm, noise)), None)
            for arm in ("literal", "dp-sgd")
        ]
        if pair[0] is None or pair[1] is None:
            continue
        literal, other = pair[0]["perplexity"], pair[1]["perplexity"]
        text = "the published algorithm has a lower perplexity than DP-SGD at the same s (its epsilon is infinite)"
        published = {row["training"]: row["perplexity"] for row in PAPER if row["noise"] == noise}
        paper = f"{published['ADP']:.0f} against {published['DP-SGD']:.0f}" if published else ""
        numbers = f"{literal:.2f} against {other:.2f}"
        claims.append(Claim(text, f"s = {noise:g}", literal < other, numbers, paper))
    return claims


def _useful(rows: Sequence[Row], public: Sequence[Row]) -> list[Claim]:
    if not rows:
        return []
    [unigram] = [row["perplexity"] for row in public if row["model"] == "unigram"]
    worst = max(rows, key=lambda row: row["perplexity"])
    text = "every model is better than counting words (the unigram of the test text)"
    numbers = f"{unigram:.1f}; the worst model has {worst['perplexity']:.1f}"
    return [Claim(text, "", worst["perplexity"] < unigram, numbers)]


def _of_canary(models: Sequence[Row], public: Sequence[Row], scale: Scale) -> list[Claim]:
    """Exposure at the most copies, and what a frequent secret loses."""
    most, first = scale.insertions[-1], scale.noise[0]
    clean = {
        row["arm"]: row
        for row in reversed(models)
        if row["copies"] == most and row["noise"] in (0.0, first) and not row["frequent"]
    }
    claims = []
    forms = [clean[arm] for arm in CERTIFIED if arm in clean]
    if forms and "plain" in clean:
        bits = "; ".join(f"{ARMS[row['arm']]} {row['exposure_bits']:.1f}" for row in forms)
        text = f"{most:,} copies expose the canary less in a certified form than without DP"
        shows = max(row["exposure_bits"] for row in forms) < clean["plain"]["exposure_bits"]
        claims.append(
            Claim(text, f"s = {first:g}", shows, f"{bits}; No-DP {clean['plain']['exposure_bits']:.1f} bits", _LESS)
        )
    rho = {row["model"]: row["canary_rho"] for row in public if row["model"] in ("public", "frequent")}
    if len(rho) == 2:
        text = "the public model finds the canary unlikely: it is in the private-like band"
        numbers = f"rho {rho['public']:.2f}, threshold {scale.threshold:g}"
        claims.append(Claim(text, "", rho["public"] >= scale.threshold, numbers))
        text = f"the weak point: {scale.frequent:,} copies in the scorer's own text lower the canary's rho"
        numbers = f"{rho['public']:.2f} without, {rho['frequent']:.2f} with"
        claims.append(Claim(text, "", rho["frequent"] < rho["public"], numbers))
    return claims

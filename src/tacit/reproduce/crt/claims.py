"""The paper's claims, judged by our results: each as one line, with its numbers, that says whether it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.reproduce.writing import Claim, Row

__all__ = ["judge"]

_CLOSE = 1.1
_EXPOSED_BITS = 10.0
_LEVEL = 0.05


def judge(utility: Sequence[Row], attacks: Sequence[Row]) -> list[Claim]:
    """All claims for which there are rows."""
    claims: list[Claim] = []
    for corpus, model in dict.fromkeys((row["corpus"], row["model"]) for row in attacks):
        of = _Panel(f"{corpus}, {model}", _of(utility, corpus, model), _of(attacks, corpus, model))
        claims += [claim for make in _CLAIMS if (claim := make(of)) is not None]
    return claims


def _of(rows: Sequence[Row], corpus: str, model: str) -> list[Row]:
    return [row for row in rows if (row["corpus"], row["model"], row["copies"]) == (corpus, model, 20)]


@dataclass(frozen=True)
class _Panel:
    name: str
    utility: list[Row]
    attacks: list[Row]

    def perplexity(self, arm: str, gamma: float, text: str) -> float | None:
        """After the last round, mean over the seeds."""
        rows = [row for row in self.utility if row["arm"] == arm and row["gamma"] == gamma]
        last = max((row["round"] for row in rows), default=0)
        values = [row[f"perplexity_{text}"] for row in rows if row["round"] == last]
        return sum(values) / len(values) if values else None

    @property
    def gamma(self) -> float:
        """Where utility is compared: the least share of misses above 0 that was run."""
        return min((row["gamma"] for row in self.utility if row["arm"] == "crt" and row["gamma"] > 0), default=0.0)

    def attacked(self, arm: str, wanted: Callable[[Row], bool] = lambda row: True) -> list[Row]:
        return [row for row in self.attacks if row["arm"] == arm and wanted(row)]


def _close_to_non_private(panel: _Panel) -> Claim | None:
    crt, plain = (panel.perplexity(arm, panel.gamma, "redacted") for arm in ("crt", "redacted"))
    if crt is None or plain is None:
        return None
    text = "CRT's perplexity of redacted text is within 10 % of the non-private model's"
    return Claim(
        text, panel.name, crt <= _CLOSE * plain, f"{crt:.2f} against {plain:.2f}, {100 * (crt / plain - 1):+.1f} %"
    )


def _better_than_dp_sgd(panel: _Panel) -> Claim | None:
    crt = panel.perplexity("crt", panel.gamma, "without_secrets")
    dp = panel.perplexity("dp-sgd", 0.0, "without_secrets")
    if crt is None or dp is None:
        return None
    text = "CRT's perplexity of lines without secrets is below DP-SGD's at the same noise"
    return Claim(text, panel.name, crt < dp, f"{crt:.2f} against {dp:.2f}")


def _crt_at_its_null(panel: _Panel) -> Claim | None:
    rows = panel.attacked("crt")
    if not rows:
        return None
    least = min(row["exposure_max_p_value"] for row in rows)
    bits = ", ".join(f"{row['exposure_max_bits']:.1f}" for row in rows)
    text = f"CRT's highest exposure is at its null ({rows[0]['exposure_null_max_bits']:.2f} bits) for every gamma"
    numbers = f"{bits} bits; least p-value {least:.2g} of {len(rows)} (level {_LEVEL / len(rows):.2g})"
    return Claim(text, panel.name, least >= _LEVEL / len(rows), numbers)


def _exposed(arm: str, name: str) -> Callable[[_Panel], Claim | None]:
    def make(panel: _Panel) -> Claim | None:
        rows = panel.attacked(arm, lambda row: row["gamma"] > 0)
        if not rows:
            return None
        bits = ", ".join(f"{row['exposure_max_bits']:.1f}" for row in rows)
        shows = all(row["exposure_max_bits"] > _EXPOSED_BITS for row in rows)
        return Claim(
            f"{name} exposes a canary by more than 10 bits for every gamma above 0", panel.name, shows, f"{bits} bits"
        )

    return make


def _membership(attack: str, name: str) -> Callable[[_Panel], Claim | None]:
    """Judged where the same attack on redaction alone, which trains on the missed secrets without noise, is not at chance."""

    def at_chance(row: Row) -> bool:
        return bool(row[f"{attack}_accuracy_low"] <= 0.5 <= row[f"{attack}_accuracy_high"])

    def make(panel: _Panel) -> Claim | None:
        rows = [row for row in panel.attacked("crt") if row[f"{attack}_accuracy_value"] is not None]
        if not rows:
            return None
        controls = panel.attacked("redacted", lambda row: row[f"{attack}_accuracy_value"] is not None)
        with_power = {(row["gamma"], row["seed"]) for row in controls if not at_chance(row)}
        judged = [row for row in rows if (row["gamma"], row["seed"]) in with_power]
        outside = [row for row in judged if not at_chance(row)]
        values = ", ".join(f"{row[f'{attack}_accuracy_value']:.3f}" for row in judged)
        text = f"{name} accuracy against CRT is within its 95 % interval of 0.5, where redaction alone is not"
        without = f"redaction alone is at chance too in {len(rows) - len(judged)} of {len(rows)}"
        if not judged:
            return Claim(text, panel.name, None, f"no power: {without}")
        return Claim(text, panel.name, not outside, f"{values}; {len(outside)} of {len(judged)} outside; {without}")

    return make


_CLAIMS: tuple[Callable[[_Panel], Claim | None], ...] = (
    _close_to_non_private,
    _better_than_dp_sgd,
    _crt_at_its_null,
    _exposed("redacted", "redaction alone"),
    _exposed("s-dp", "S-DP"),
    _membership("single", "membership"),
    _membership("group", "group membership"),
    _membership("twin", "twin membership"),
)

"""What a report says of adaptive DP: epsilon as a public function of rho, or why the published algorithm has none."""

from __future__ import annotations

from typing import Any

from tacit.config import AdaptiveOptions, RunConfig
from tacit.privacy.ledger import Ledger
from tacit.privacy.rounded import upper
from tacit.privacy.strict_json import read_number
from tacit.report import schema

__all__ = ["adaptive_facts"]


def adaptive_facts(config: RunConfig, ledger: Ledger, certificate: dict[str, Any]) -> schema.AdaptiveFacts | None:
    """What the certificate's function says; None of a run in which all units count alike."""
    options = config.adaptive
    if options is None:
        return None
    rows = certificate["adaptive"]["epsilon_of_rho"] if "adaptive" in certificate else []
    bands = tuple(
        schema.RhoBand(
            name=name,
            begin=row["from"],
            end=row["to"],
            epsilon=read_number(row["epsilon"]),
            within=read_number(row["within"]) if "within" in row else None,
        )
        for name, row in zip(options.names, rows, strict=False)
    )
    chosen = certificate.get("adaptive", {}).get("bands_from") == "unit-and-releases"
    worst = _chosen(certificate["adaptive"]) if chosen else []
    sentences = [
        _rho(certificate["rho"], chosen),
        *(_literal(ledger) if options.form == "literal" else _certified(options)),
        *worst,
    ]
    return schema.AdaptiveFacts(form=options.form, bands=bands, sentences=tuple(sentences))


def _chosen(stated: dict[str, Any]) -> list[str]:
    return [
        "The scorer may have read text in pieces of a vocabulary that was released from private text, so the rho of a text may "
        "depend on that release. A row of the table holds for the outcomes in which a text has such a rho; over all outcomes, "
        f"whatever the vocabulary came out as, epsilon is {upper(read_number(stated['worst']))}."
    ]


def _rho(stated: dict[str, Any], chosen: bool) -> str:
    alone = "it and what was released before" if chosen else "it alone"
    return (
        f"rho = clip((ln PPL - {stated['lower']:g}) / {stated['upper'] - stated['lower']:g}, 0, 1), where PPL is the perplexity of "
        f"the text under {stated['scorer']}. Constants, scorer and thresholds are public, so the rho of a text depends on {alone}."
    )


def _certified(options: AdaptiveOptions) -> list[str]:
    sentences = [
        "The table is a function: what is guaranteed for a text of some rho. Which rho a text of the corpus has, and how many have "
        "it, is private and is not stated here."
    ]
    if options.form == "strata":
        sentences.append(
            "A stratum without any text costs no unit anything. Its phases are run and paid for like those of every other, on noise "
            "alone: to skip them would show that it is empty. So this page is the same whether or not there is such a stratum."
        )
    return sentences


def _literal(ledger: Ledger) -> list[str]:
    reasons = {reason for plan in ledger.plans.values() if (reason := plan.event.no_guarantee) is not None}
    return [
        "This is the published algorithm, a heuristic: the scale of the noise is a function of the private batch, and a noisy "
        "gradient shows it. Epsilon is infinite for every rho.",
        *(f"The attack in this run's own numbers: {reason}." for reason in sorted(reasons)),
    ]

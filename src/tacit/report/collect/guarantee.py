"""What a report says of the guarantee: whom it is for, what it rests on, and what it does not cover."""

from __future__ import annotations

from typing import Any

from tacit.config import PrivacyOptions, RunConfig
from tacit.privacy.strict_json import read_number
from tacit.report import schema
from tacit.report.collect.assumptions import assumptions

__all__ = ["confidentiality_lines", "guarantee", "missed_shares", "unit_description"]

_UNITS = {
    "record": "one record of the private corpus",
    "document": "one document: all records with the same document id",
    "user": "one person: all records with the same user id",
}


def guarantee(config: RunConfig, certificate: dict[str, Any]) -> schema.Guarantee:
    """The guarantee that a certificate states, with what it rests on."""
    privacy = config.privacy
    return schema.Guarantee(
        unit=privacy.unit_name,
        unit_description=unit_description(privacy),
        relation=privacy.relation,
        epsilons=_epsilon_pairs(certificate),
        mu=read_number(certificate["mu"]),
        mu_delta=certificate["epsilons"][0]["delta"],
        status=certificate["status"],
        covered_outputs=(
            f"model/: weights, configuration and tokenizer ({config.vocabulary.how.origin})",
            "certificate.json, report.html, report.json and README.md, with every number in them",
        ),
        assumptions=assumptions(config, certificate["start"], missed_shares(certificate)),
        not_covered=_not_covered(config),
        randomness=certificate["randomness"],
    )


def unit_description(privacy: PrivacyOptions) -> str:
    """The unit in plain words."""
    return _UNITS[privacy.unit] if isinstance(privacy.unit, str) else privacy.unit.description


def _epsilon_pairs(certificate: dict[str, Any]) -> tuple[schema.EpsilonPair, ...]:
    """The certified pairs and, when there is a guarantee, the pair at epsilon 0 that bounds a guess best."""
    pairs = [
        schema.EpsilonPair(delta=pair["delta"], epsilon=read_number(pair["epsilon"]))
        for pair in certificate["epsilons"]
    ]
    if certificate["status"] == "proved" and 0 < certificate["total_variation"] < 1:
        pairs.append(schema.EpsilonPair(delta=certificate["total_variation"], epsilon=0.0))
    return tuple(pairs)


def _not_covered(config: RunConfig) -> tuple[str, ...]:
    unit = config.privacy.unit_name
    return (
        f"What several {unit}s have in common: facts, habits or names that occur with many of them can be learned.",
        f"Groups: for k {unit}s together the bound is weaker (epsilon grows k times or more, and delta too).",
        "Public text: the public corpora get no protection.",
        "Other releases of the same private text, by this tool or by others: every further release adds up.",
        "Everything in run/private: checkpoints, keys, canaries and the curator's copy of the report are not safe to publish.",
        "Time: how long the run took depends on the private text and is visible to whoever watches the machine.",
    )


def confidentiality_lines(certificate: dict[str, Any]) -> tuple[schema.ConfidentialityLine, ...]:
    """The confidentiality statement of a certificate; nothing where it has none."""
    stated = certificate.get("confidentiality", {})
    lines = (stated.get(name) for name in ("worst_case", "screened", "bayesian"))
    return tuple(
        schema.ConfidentialityLine(
            **{
                name: line[name]
                for name in ("kind", "definition", "status", "sentence", "assumption", "epsilon", "delta")
            },
            paper=line["paper"]["epsilon"],
            difference=line["paper"]["difference"],
        )
        for line in lines
        if line is not None
    )


def missed_shares(certificate: dict[str, Any]) -> tuple[schema.MissedShare, ...]:
    """The bounds on the misses that the statement rests on; nothing in an older certificate, which does not have them."""
    return tuple(schema.MissedShare(**share) for share in certificate.get("confidentiality", {}).get("shares", ()))

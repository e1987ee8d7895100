"""What a report says of the attacks: exposure of canaries, and for the curator membership inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.audit.exposure import Exposure
from tacit.config import RunConfig
from tacit.report import schema

__all__ = ["exposure_rows", "membership_facts"]


def exposure_rows(config: RunConfig, exposures: dict[str, list[Exposure]]) -> tuple[schema.ExposureRow, ...]:
    """Exposure of the canaries by model, the released one first; nothing where there was no audit."""
    options = config.audit
    if options is None:
        return ()
    return tuple(
        schema.ExposureRow(
            pattern=row.pattern,
            model=schema.CONTROL if name == schema.CONTROL else schema.RELEASED,
            canaries=row.canaries,
            insertion_probability=_insertion_probability(config),
            exposure_bits=row.bits,
            null_bits=row.null_bits,
            p_value=row.p_value,
            ceiling_bits=row.ceiling_bits,
            rank_mean=row.mean_rank,
            max_bits=row.max_bits,
            null_max_bits=row.null_max_bits,
            max_p_value=row.max_p_value,
        )
        for name, rows in _released_first(exposures)
        for row in rows
    )


def _insertion_probability(config: RunConfig) -> float:
    """The chance that a unit has a given canary: drawn for each sequence (masked models), or by copies that are units (causal)."""
    assert config.audit is not None
    if config.model.is_causal:
        return min(1.0, config.audit.copies / config.privacy.units)
    return config.audit.probability


def membership_facts(config: RunConfig, found: Mapping[str, Any]) -> schema.MembershipFacts:
    """Of run/private/membership.json: by model a `tacit.audit.membership.MembershipReport` as plain values, or why there is none."""
    assert config.audit is not None
    assert config.audit.membership is not None
    if "undecided" in found:
        return schema.MembershipFacts(pairs_wanted=config.audit.membership.pairs, undecided=found["undecided"])
    rows = [
        _membership_row(model, texts, report[attack], report[f"{attack}_blind"])
        for model, report in _released_first(found)
        for attack, texts in (("single", 1), ("group", report["group_size"]))
    ]
    return schema.MembershipFacts(pairs_wanted=config.audit.membership.pairs, rows=tuple(rows))


def _membership_row(
    model: str, texts: int, attack: Mapping[str, Any], blind: Mapping[str, Any]
) -> schema.MembershipRow:
    return schema.MembershipRow(
        model=schema.CONTROL if model == schema.CONTROL else schema.RELEASED,
        texts=texts,
        members=attack["members"],
        accuracy=schema.Estimated(**attack["accuracy"]),
        auc=schema.Estimated(**attack["auc"]),
        tpr=None if attack["tpr"] is None else schema.Estimated(**attack["tpr"]),
        at_chance=attack["at_chance"],
        blind_accuracy=schema.Estimated(**blind["accuracy"]),
        blind_auc=schema.Estimated(**blind["auc"]),
        blind_at_chance=blind["at_chance"],
    )


def _released_first(by_model: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A file of the run folder has its keys in the order of the alphabet."""
    return sorted(by_model.items(), key=lambda item: item[0] == schema.CONTROL)

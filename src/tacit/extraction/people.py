"""Whom DP fine-tuning is about: the people of its documents may be those of the pre-training, whose spends then count too."""

from __future__ import annotations

from tacit.config.entities import DpTuning, StartModel
from tacit.errors import RefusedError
from tacit.extraction.start import Pretraining
from tacit.privacy.events import NonPrivate, Spend

__all__ = ["check_people", "inherited"]

_INHERITED = "pre-training: "


def check_people(
    model: StartModel, dp: DpTuning | None, same_people: bool, pretraining: Pretraining | None, place: str = ""
) -> None:
    """DP fine-tuning knows what its model was made from, and counts it in the same unit where the people may be the same.

    Args:
        place: of the options in the configuration, for errors; ``models.NAME.`` in a comparison.

    Raises:
        RefusedError: it cannot know, or the two do not compose.
    """
    if dp is None:
        return
    if pretraining is None:
        _require_public(model, place or "model.")
    elif same_people:
        _require_composable(model, dp, pretraining, place)


def _require_public(model: StartModel, place: str) -> None:
    if not model.public:
        raise RefusedError(
            "pretraining-unknown",
            f"{place}folder {model.folder} has no certificate beside it, so what its training spent is unknown; say "
            f"{place}public: true if it was made from public text alone",
        )


def _require_composable(model: StartModel, dp: DpTuning, pretraining: Pretraining, place: str) -> None:
    if pretraining.leaves_out:
        raise RefusedError(
            "pretraining-unknown",
            f"the certificate of {model.folder} leaves out an earlier training, on other people as its user declared, who may "
            "be those of these documents; say same_people: false if nobody is in any of the texts, or start from another model",
        )
    for name, mine, theirs in (("unit", dp.unit, pretraining.unit), ("relation", dp.relation, pretraining.relation)):
        if mine != theirs:
            raise RefusedError(
                "pretraining-unit-differs",
                f"{place}dp.{name} is {mine} and the pre-training's certificate says {theirs}: the two do not compose; use the "
                "same, or say same_people: false if nobody is in both texts",
            )
    if any(isinstance(spend.event, NonPrivate) for spend in pretraining.spends.values()):
        raise RefusedError(
            "pretraining-without-guarantee",
            f"the certificate of {model.folder} has no finite epsilon, so none holds for people who are in both texts; say "
            "same_people: false if nobody is, or leave dp out",
        )
    if dp.budget.delta >= 1 / pretraining.units:
        raise RefusedError(
            "delta-too-large",
            f"{place}dp.budget.delta is {dp.budget.delta:g} but must be below 1/{pretraining.units}, the pre-training's units",
        )


def inherited(dp: DpTuning | None, same_people: bool, pretraining: Pretraining | None) -> dict[str, Spend]:
    """What the pre-training spent on people who may be in the documents too; without DP nothing finite would come of it."""
    if dp is None or pretraining is None or not same_people:
        return {}
    return {_INHERITED + stage: spend for stage, spend in pretraining.spends.items()}

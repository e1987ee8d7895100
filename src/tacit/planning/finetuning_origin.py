"""Whom DP fine-tuning is about: the people of its documents may be those of the pre-training, whose spends then count too."""

from __future__ import annotations

from tacit.config.tuning import DpTuning, StartModel
from tacit.planning.origins import together
from tacit.privacy.events import Spend
from tacit.privacy.origin import certificate_of, origin_of
from tacit.privacy.provenance import Ancestor, Provenance
from tacit.privacy.refused_starts import check_composition
from tacit.privacy.strict_json import read_number

__all__ = ["certified_epsilon", "inherited", "pretraining_of", "provenance_of_model"]

_ROLE = "the model folder"


def provenance_of_model(
    model: StartModel, dp: DpTuning | None, same_people: bool, digest: str | None = None, place: str = ""
) -> Provenance:
    """Where a fine-tuning begins. With new weights too: the tokenizer is a release of its own.

    DP fine-tuning knows what its model was made from, and counts it in the same unit where the people may be the same.

    Args:
        digest: of the folder's files.
        place: of the options in the configuration, for errors; ``models.NAME.`` in a comparison.

    Raises:
        RefusedError: it cannot know, or the two do not compose.
        DataError: the certificate is damaged, or of other files than those of the folder.
    """
    option = f"{place or 'model.'}folder"
    origin = origin_of(_ROLE, model.resolved_folder, option, model.public, digest, allow_unknown=dp is None)
    found = together([origin], same_people)
    if dp is not None:
        check_composition(found, dp.unit, dp.relation, dp.budget.delta, unbounded=False, place=f"{place}dp.")
    return found


def pretraining_of(model: StartModel) -> Ancestor | None:
    """The release that a model is of; None where no certificate is beside it. For tables, which release nothing.

    Raises:
        DataError: the certificate is damaged, or of other files than those of the folder.
    """
    if certificate_of(model.resolved_folder) is None:
        return None
    return origin_of(_ROLE, model.resolved_folder, "folder", declared=False).ancestors[-1]


def certified_epsilon(ancestor: Ancestor) -> float:
    """The epsilon that its certificate says; infinite where there is no guarantee."""
    return read_number(ancestor.epsilon)


def inherited(dp: DpTuning | None, start: Provenance) -> dict[str, Spend]:
    """What was spent before on people who may be in the documents too; without DP nothing finite would come of it."""
    return {} if dp is None else start.inherited

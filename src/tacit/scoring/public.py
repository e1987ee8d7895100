"""Whether a scorer may score: its training text is public, as far as that can be told.

A record's rho decides how well it is protected, and the mechanisms take it for a function of this record and of public numbers. A
model that was trained on the private text makes it a function of all records, and no account covers that. A release of ours says
in its certificate what it read of private text, itself and through what it started from; of any other folder the user says that it is
public.
"""

from __future__ import annotations

from pathlib import Path

from tacit.errors import DataError, RefusedError
from tacit.privacy.origin import origin_of, released_model

__all__ = ["USERS_WORD", "require_public_scorer", "scorer_folder"]

USERS_WORD = "on your statement: nothing in the folder says what its model was trained on"

scorer_folder = released_model


def require_public_scorer(folder: Path, same_people: bool = True) -> str:
    """Why the model in a Hugging Face folder counts as public, in words.

    Args:
        folder: of `scorer_folder`.
        same_people: whether the people whom it was trained on may be those who are scored. Otherwise any release will do: what is
            scored had no part in it.

    Raises:
        RefusedError: it belongs to a run of ours that read private text, or whose certificate is missing, damaged, or of other files.
    """
    try:
        origin = origin_of("the scorer", folder, "the scorer", declared=True)
    except RefusedError as error:
        reason = str(error).removeprefix(f"refused ({error.reason}): ")
        raise RefusedError("scorer-not-public", f"{reason}; or give a public model") from None
    except DataError as error:
        raise RefusedError("scorer-not-public", f"{error}; or give a public model") from None
    if not origin.ancestors:
        return USERS_WORD
    if not same_people:
        return "on your statement: a release on other people"
    if any(ancestor.spends for ancestor in origin.ancestors):
        raise RefusedError(
            "scorer-not-public",
            f"{folder}: its certificate says that it has read private text, itself or through what it started from, and no ledger of "
            "the scored run accounts for that; give a public model, or a release of a run whose phases and vocabulary are public",
        )
    return "by its certificate: no private text was read for it"

"""Where a run may not begin: what was spent before would not compose with what it spends, or there is no guarantee to go on with."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.errors import RefusedError
from tacit.privacy.events import NonPrivate
from tacit.privacy.provenance import PUBLIC_KEY_REASON, SHORT, Ancestor, Provenance

__all__ = ["check_composition", "refuse_own_key"]


def refuse_own_key(ancestors: Iterable[Ancestor], key: str) -> None:
    """A run whose folder was copied with its key may not go on from the release of the other copy, whoever the people are.

    Where they read the same, both draw the same units under the same noise; and the account composes two independent draws. A release
    without any noise, or of a public key, has nothing to lose.

    Args:
        key: the fingerprint of the run's own.

    Raises:
        RefusedError: ``two-releases-of-one-key``.
    """
    for ancestor in ancestors:
        events = [spend.event for _, spend in ancestor.spends]
        hides = any(event.is_private for event in events) and NonPrivate(PUBLIC_KEY_REASON) not in events
        if key and ancestor.key == key and hides:
            raise RefusedError(
                "two-releases-of-one-key",
                f"the release {ancestor.head[:SHORT]} that this starts from was made under this run's own key, in a copy of its "
                "folder: both may draw the same units, or even the same noise, and no account of both is known; begin a new folder",
            )


def check_composition(
    provenance: Provenance, unit: str, relation: str, delta: float, unbounded: bool, place: str = ""
) -> None:
    """What was spent before is counted in the units of this run, or the run is refused.

    Args:
        unit, relation, delta: of the run's own guarantee.
        unbounded: the run promises no finite epsilon; then an infinite one behind it changes nothing. Units have to agree all the
            same: what is behind it may be all that it spends, and its epsilon is finite then.
        place: of the options in the configuration, for errors.

    Raises:
        RefusedError: the two do not compose, or there is no guarantee to go on with.
    """
    keys: dict[str, str] = {}
    for ancestor in provenance.ancestors if provenance.same_people else ():
        if not ancestor.spends:
            continue
        short = ancestor.head[:SHORT]
        if ancestor.key and keys.setdefault(ancestor.key, short) != short:
            raise RefusedError(
                "two-releases-of-one-key",
                f"the releases {keys[ancestor.key]} and {short} that this starts from were made in copies of one begun run folder: "
                "they may have drawn the same units, or even the same noise, and no account of both is known; start from one",
            )
        if any(not spend.event.is_private for _, spend in ancestor.spends) and not unbounded:
            raise RefusedError(
                "pretraining-without-guarantee",
                f"the release {short} that this starts from has no finite epsilon, so none holds for people who are in both texts; "
                "say same_people: false if nobody is, or start from another model",
            )
        for name, mine, theirs in (("unit", unit, ancestor.unit), ("relation", relation, ancestor.relation)):
            if mine != theirs:
                raise RefusedError(
                    "pretraining-unit-differs",
                    f"{place}{name} is {mine} and the certificate of the release {short} that this starts from says {theirs}: the "
                    "two do not compose; use the same, or say same_people: false if nobody is in both texts",
                )
        if delta >= 1 / max(1, ancestor.units):
            raise RefusedError(
                "delta-too-large",
                f"{place}budget.delta is {delta:g} but must be below 1/{ancestor.units}, the units of the release {short} that this "
                "starts from",
            )
    if provenance.has_unknown and not unbounded:
        raise RefusedError(
            "start-unknown",
            "a release that this starts from was itself given something of which nothing is known; start from another one",
        )

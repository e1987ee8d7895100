"""What it costs to publish several releases: one account of everything that they and the releases behind them have spent.

The worst case is that the same people's text is in all of them; then every event composes, each release once, and a unit may be in
any part of each run (`tacit.privacy.events.of_run`). That nobody is in two of them is an assumption that only their curator can make.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.errors import LedgerError, UsageError
from tacit.files import quoted
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import (
    START,
    Ancestor,
    Provenance,
    merged,
    read_ancestors,
    spend_to_dict,
    stated_spends,
    stated_start,
)
from tacit.privacy.strict_json import read_number
from tacit.release.alone import check_start
from tacit.release.manifest import CERTIFICATE
from tacit.runs.folder import RunFolder

__all__ = ["Composed", "Published", "compose", "published"]


@dataclass(frozen=True)
class Published:
    """A finished release, by its certificate.

    Args:
        place: as it was named.
        release: its folder.
        certificate: as it is there; of a run's folder it lists what the ledger holds.
        from_ledger: whether the ledger was read.
    """

    place: Path
    release: Path
    certificate: dict[str, Any]
    from_ledger: bool

    @property
    def name(self) -> str:
        """The run's folder, or that of a released one."""
        parts = [part for part in self.place.absolute().parts if part != "release"]
        return parts[-1]

    @property
    def epsilon(self) -> float:
        """The certified one."""
        return read_number(self.certificate["epsilons"][0]["epsilon"])

    @property
    def delta(self) -> float:
        """That belongs to it."""
        return float(self.certificate["epsilons"][0]["delta"])


@dataclass(frozen=True)
class Composed:
    """Epsilon of publishing them all at ``delta``; or why there is none: ``refused``.

    Args:
        releases: how many releases are counted, those behind the named ones among them.
        assumed: what it rests on.
        unit: whose epsilon it is.
    """

    delta: float
    epsilon: float | None
    releases: int
    assumed: str
    refused: str = ""
    unit: str = ""


def published(place: Path) -> Published:
    """The finished release of a run's folder, or a released folder alone.

    Raises:
        UsageError: no certificate is there.
        LedgerError: it is damaged, or not what the ledger holds.
    """
    folder = RunFolder(place)
    if folder.is_released:
        stated = read_certificate(folder.certificate)
        if not folder.ledger.is_file():
            raise LedgerError(f"{place}: without its ledger; name {folder.release} to read the certificate alone")
        _compare(folder, stated)
        return Published(place, folder.release, _with_its_start(place, stated), True)
    if (place / CERTIFICATE).is_file():
        return Published(place, place, _with_its_start(place, read_certificate(place / CERTIFICATE)), False)
    raise UsageError(f"{place}: no finished run, and no release; `tacit run CONFIG` finishes a run")


def _compare(folder: RunFolder, stated: dict[str, Any]) -> None:
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        spends = [spend_to_dict(stage, spend) for stage, spend in ledger.spends_by_stage().items()]
        header = {name: getattr(ledger.header, name) for name in ("unit", "relation", "units", "key_commitment")}
        same = spends == stated["spends"] and ledger.certified_head == stated["ledger_head"]
        same = same and _begins_alike(ledger, stated)
        if not same or any(stated[name] != value for name, value in header.items()):
            raise LedgerError(
                f"{folder.root}: the certificate is not of this ledger; see `tacit verify {quoted(folder.root)}`"
            )


def _begins_alike(ledger: Ledger, stated: dict[str, Any]) -> bool:
    """Whether certificate and ledger have one start."""
    bound = ledger.bound(START)
    try:
        begun = Provenance() if bound is None else Provenance.from_dict(json.loads(bound))
        return begun == stated_start(stated)
    except (AttributeError, LookupError, TypeError, ValueError, UsageError):  # it has another form
        return False


def _with_its_start(place: Path, stated: dict[str, Any]) -> dict[str, Any]:
    """The certificate, if the releases that it says it began with are those whose spends it counts: these are composed."""
    if not check_start(stated).holds:
        raise LedgerError(
            f"{place}: the certificate counts other spends than its start has; see `tacit verify {quoted(place)}`"
        )
    return stated


def compose(releases: Sequence[Published], delta: float | None = None, same_people: bool = True) -> Composed:
    """The account of publishing these releases together.

    Args:
        releases: at least one; one that is named twice counts once.
        delta: of the result; None: the largest certified one.
        same_people: whether one person's text may be in several of them. If not, the largest epsilon of one release holds for all.

    Raises:
        UsageError: a delta that is too large for the number of units.
    """
    delta = max(one.delta for one in releases) if delta is None else delta
    ancestors = merged(ancestor for one in releases for ancestor in read_ancestors(one.certificate)[0])
    most = max(ancestor.units for ancestor in ancestors)
    if delta * most >= 1:
        raise UsageError(f"delta is {delta:g}; it must be below 1/{most}, the largest number of units")
    if not same_people:
        return _apart(releases, delta, len(ancestors))
    refused = _why_not(ancestors)
    if refused:
        return Composed(delta, None, len(ancestors), _SAME_PEOPLE, refused)
    behind = [stated_start(one.certificate) for one in releases]
    provenance = Provenance(tuple(given for start in behind for given in start.given), ancestors)
    counted = next((one for one in ancestors if one.spends), ancestors[0])
    epsilon = joint_epsilon(list(provenance.inherited.values()), delta, counted.relation)
    return Composed(delta, epsilon, len(ancestors), _SAME_PEOPLE, unit=counted.unit)


_SAME_PEOPLE = (
    "The same people's text may be in all of them, and in the releases that they began from. Releases that are not named here are "
    "not counted, nor options that were chosen by looking at one of these."
)
_OTHER_PEOPLE = (
    "Nobody's text is in two of them, nor in releases that two of them began from, as their curator says; no program can check "
    "that."
)


def _apart(releases: Sequence[Published], delta: float, count: int) -> Composed:
    """The worst of them: each at the common delta, with what it inherited, or else beside all that it began with.

    What a release that began with other people does not count of those behind it, holds for these people, all the same.
    """
    others = [start for one in releases if not (start := stated_start(one.certificate)).same_people]
    for start in others:
        if refused := _why_not(start.ancestors):
            return Composed(delta, None, count, _OTHER_PEOPLE, refused)
    behind = [ancestor for start in others for ancestor in start.ancestors if ancestor.spends]
    units = {one.certificate["unit"] for one in releases} | {ancestor.unit for ancestor in behind}
    relations = {one.certificate["relation"] for one in releases} | {ancestor.relation for ancestor in behind}
    if len(units) > 1 or len(relations) > 1:
        return Composed(delta, None, count, _OTHER_PEOPLE, _differ(units, relations))
    relation = releases[0].certificate["relation"]
    accounts = [stated_spends(one.certificate) for one in releases]
    accounts += [list(replace(start, same_people=True).inherited.values()) for start in others]
    epsilons = [joint_epsilon(spends, delta, relation) for spends in accounts]
    return Composed(delta, max(epsilons), count, _OTHER_PEOPLE, unit=releases[0].certificate["unit"])


def _why_not(ancestors: Sequence[Ancestor]) -> str:
    """Why the releases have no common account; empty where they have one."""
    counted = [ancestor for ancestor in ancestors if ancestor.spends]
    units, relations = {one.unit for one in counted}, {one.relation for one in counted}
    if len(units) > 1 or len(relations) > 1:
        return _differ(units, relations)
    heads: dict[str, str] = {}
    for ancestor in counted:
        if ancestor.key and heads.setdefault(ancestor.key, ancestor.head) != ancestor.head:
            return (
                f"the releases {heads[ancestor.key][:12]} and {ancestor.head[:12]} were made in copies of one begun run folder: they "
                "may have drawn the same units, or even the same noise, and no account of both is known; publish one"
            )
    return ""


def _differ(units: set[str], relations: set[str]) -> str:
    what = [
        f"{name} ({' and '.join(sorted(values))})"
        for name, values in (("units", units), ("relations", relations))
        if len(values) > 1
    ]
    return (
        f"their certificates are about different {' and '.join(what)}: a statement about the one says nothing about the other, so "
        "they have no common epsilon"
    )

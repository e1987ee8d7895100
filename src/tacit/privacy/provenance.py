"""Where a run began: what it was given, the releases behind that, and what these have spent on the same people.

A model, a tokenizer, a scorer or a word list that was made from private text carries what it learned of that text into every run that
starts from it. So its spends come with it: those of the release that it is of, and of all releases behind that one, however many runs
lie between. They are in the new run's ledger before anything else, each release once, and the certificate says where the run began,
so that the next run finds all of it there. SOUNDNESS: a chain A -> B -> C never costs less than A.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from tacit.errors import UsageError
from tacit.privacy.events import (
    EVERY_PART,
    BandedPoissonGaussian,
    Chosen,
    Exchange,
    NonPrivate,
    Relation,
    Spend,
    event_from_dict,
    event_to_dict,
    of_run,
)
from tacit.privacy.strict_json import read_number

__all__ = [
    "BEGUN",
    "GENUINE",
    "HONEST_PROGRAMS",
    "HONEST_WEIGHTS",
    "MADE_BY",
    "NOISE_SOURCE",
    "PUBLIC",
    "PUBLIC_KEY_REASON",
    "SHORT",
    "START",
    "UNKNOWN",
    "Ancestor",
    "Given",
    "Provenance",
    "has_others_programs",
    "has_others_weights",
    "inherited_stage",
    "is_inherited",
    "merged",
    "read_ancestors",
    "spend_to_dict",
    "stated_spends",
    "stated_start",
]

BEGUN = "the day of the beginning"
"""Under this name the ledger holds the day (UTC) on which the run began: the one time that a release shows."""

MADE_BY = "the version of tacit"
"""Under this name the ledger holds the version that began it."""

NOISE_SOURCE = "the training noise's source"
"""Under this name the ledger holds what the noise of the training is drawn from."""

START = "the start"
"""Under this name the ledger holds, as JSON, where the run began."""

PUBLIC_KEY_REASON = "the key is made from the public option seed, so all noise can be taken off"
"""Of the event that a run with such a key has."""

PUBLIC = "declared public"
UNKNOWN = "unknown"
_UNKNOWN_START = "nothing is known of the private text behind what the run started from"
_THIS = "this run"
SHORT = 12
"""Digits of a head that stand for it, in names of stages and in errors."""
_OF = ": "


@dataclass(frozen=True)
class Ancestor:
    """A release behind what a run was given.

    Args:
        head: the end of its ledger, which says which release it is.
        unit, units, relation: of its own certificate.
        epsilon, delta: as it certifies them, with all that it inherited.
        spends: its own, by stage; not those that it inherited.
        key: the fingerprint of its key; empty where an earlier version of tacit wrote it down.
    """

    head: str
    unit: str
    units: int
    relation: Relation
    epsilon: float | str
    delta: float
    spends: tuple[tuple[str, Spend], ...]
    key: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            **{name: value for name, value in asdict(self).items() if name != "spends"},
            "spends": [spend_to_dict(stage, spend) for stage, spend in self.spends],
        }


@dataclass(frozen=True)
class Given:
    """Something that a run was given.

    Args:
        role: what it is, as the ledger calls it.
        digest: SHA-256 of its files; None where they are not read for that.
        origin: the head of the release that it is of, ``declared public``, or ``unknown``.
        given_to: the head of the release that was given it; ``this run``.
    """

    role: str
    digest: str | None
    origin: str
    given_to: str = _THIS


HONEST_WEIGHTS = (
    "Nobody made the given weights so that they enlarge the last bits of a sum, by which one unit could show in others (TACIT-25); "
    "with compute.micro_batch: 1 training does not rest on that."
)
"""Assumed of weights that no release of ours vouches for."""

GENUINE = (
    "The certificates of the releases that this began with are as tacit wrote them: `tacit verify` computes each again, and a "
    "signature says whose it is."
)
"""Assumed where a run began with releases: of their certificates the form and the files are checked, and no more."""

HONEST_PROGRAMS = (
    "Nobody who knew words of the private text made the given files (models, tokenizers, chat templates, a policy's models), which "
    "are programs: what one could do at such a word, to end a run or to change how others are read, is undone or refused as far as "
    "it is known (TACIT-32 to 44)."
)
"""Assumed of files that no release of ours vouches for."""

_WEIGHTS = ("the model folder", "the scorer")
_PROGRAMS = (*_WEIGHTS, "the given tokenizer", "the model of detector")


def has_others_weights(start: Mapping[str, Any]) -> bool:
    """Whether something was given weights that are of no release of ours.

    Args:
        start: as `Provenance.to_dict` gives it.
    """
    return _has_others(start, _WEIGHTS)


def has_others_programs(start: Mapping[str, Any]) -> bool:
    """Whether something was given files that are programs, and of no release of ours.

    Args:
        start: as `Provenance.to_dict` gives it.
    """
    return _has_others(start, _PROGRAMS)


def _has_others(start: Mapping[str, Any], roles: tuple[str, ...]) -> bool:
    ancestors = {ancestor["head"] for ancestor in start["ancestors"]}
    return any(given["role"].startswith(roles) and given["origin"] not in ancestors for given in start["given"])


@dataclass(frozen=True)
class Provenance:
    """Where a run began.

    Args:
        given: what it was given, and what the releases behind that were given.
        ancestors: these releases, each once, none before one that it began with.
        same_people: whether their people may be those of the run's private text.

    Raises:
        UsageError: stages that would have one name in a later ledger, so that one of them would not count: of a release that is there
            twice, or of two releases (by chance that is one in 2^48; somebody can make two).
    """

    given: tuple[Given, ...] = ()
    ancestors: tuple[Ancestor, ...] = ()
    same_people: bool = True

    def __post_init__(self) -> None:
        heads: dict[str, str] = {}
        for ancestor in self.ancestors:
            short, names = ancestor.head[:SHORT], [stage for stage, _ in ancestor.spends]
            if heads.get(short) == ancestor.head or len(set(names)) < len(names):
                raise UsageError(
                    f"the release {short}, or one of its stages, is twice among what was begun with, and one of the two would not "
                    "count; bring back the certificate that says so"
                )
            if short in heads:
                raise UsageError(
                    f"two releases have ledgers that both end in {short}..., and cannot be told apart; take one of them"
                )
            heads[short] = ancestor.head

    @property
    def all_spends(self) -> dict[str, Spend]:
        """What all ancestors have spent, by the stage's name in a later ledger, each in the parts of its own run."""
        return {
            inherited_stage(ancestor.head, stage): of_run(spend, ancestor.head[:SHORT])
            for ancestor in self.ancestors
            for stage, spend in ancestor.spends
        }

    @property
    def inherited(self) -> dict[str, Spend]:
        """What counts for the people of this run: no guarantee is left where an origin is unknown."""
        if not self.same_people:
            return {}
        unknown = {inherited_stage(UNKNOWN, "start"): Spend(NonPrivate(_UNKNOWN_START), 1, EVERY_PART)}
        return {**(unknown if self.has_unknown else {}), **self.all_spends}

    @property
    def has_unknown(self) -> bool:
        """Whether the origin of something that the run, or one behind it, was given is unknown."""
        return any(given.origin == UNKNOWN for given in self.given)

    @property
    def is_public(self) -> bool:
        """Whether nothing that it began with was made from private text, of whichever people."""
        return not self.all_spends and not self.has_unknown

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read it from the certificate's block ``start``, or from the ledger.

        Raises:
            LookupError, TypeError, ValueError, UsageError: it is something else.
        """
        ancestors = (
            Ancestor(**{**each, "spends": tuple(_spend_from_dict(spend) for spend in each["spends"])})
            for each in values["ancestors"]
        )
        if not isinstance(values["same_people"], bool):
            raise TypeError("same_people is true or false")
        return cls(tuple(Given(**each) for each in values["given"]), tuple(ancestors), values["same_people"])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: the certificate's block ``start``."""
        return {
            "same_people": self.same_people,
            "given": [asdict(given) for given in self.given],
            "ancestors": [ancestor.to_dict() for ancestor in self.ancestors],
        }


def inherited_stage(head: str, stage: str) -> str:
    """The name in a later ledger of a stage of the release with this head; a stage of a run's own has no colon."""
    return f"{head[:SHORT]}{_OF}{stage}"


def is_inherited(stage: str) -> bool:
    """Whether a stage of a ledger was taken over from an earlier release."""
    return _OF in stage


def read_ancestors(certificate: Mapping[str, Any]) -> tuple[tuple[Ancestor, ...], tuple[Given, ...]]:
    """All releases behind that of a certificate, and it, the oldest first; and what they were given.

    In this order they are paid for: which choice of words came first decides how it enters the account.

    Raises:
        LookupError, TypeError, ValueError, UsageError: it is no certificate of this version.
    """
    own = tuple(_spend_from_dict(values) for values in certificate["spends"] if not is_inherited(values["stage"]))
    if not certificate["start"][
        "same_people"
    ]:  # an earlier one may say that no release decided its bands, of the scorer's people
        own = tuple((stage, _decided_by_releases(spend)) for stage, spend in own)
    if "confidentiality" in certificate and not own:
        raise ValueError("a confidentiality statement without anything that was spent")
    pair, start = certificate["epsilons"][0], certificate["start"]
    head = str(certificate["ledger_head"])
    this = Ancestor(
        head=head,
        unit=certificate["unit"],
        units=certificate["units"],
        relation=certificate["relation"],
        epsilon=pair["epsilon"],
        delta=pair["delta"],
        spends=own,
        key=certificate["key_commitment"],
    )
    behind = Provenance.from_dict(start)
    given = (replace(given, given_to=_to(given.given_to, head)) for given in behind.given)
    return (*behind.ancestors, this), tuple(given)


def _decided_by_releases(spend: Spend) -> Spend:
    banded = isinstance(spend.event, BandedPoissonGaussian)
    return replace(spend, event=replace(spend.event, bands_from="unit-and-releases")) if banded else spend


def stated_start(certificate: Mapping[str, Any]) -> Provenance:
    """Where a certificate says that its run began.

    Raises:
        LookupError, TypeError, ValueError, UsageError: it is no certificate of this version.
    """
    return Provenance.from_dict(certificate["start"])


def stated_spends(certificate: Mapping[str, Any]) -> list[Spend]:
    """All that a certificate says was spent, what was inherited among it, in its order.

    Raises:
        LookupError, TypeError, ValueError, UsageError: it is no certificate of this version.
    """
    return [_spend_from_dict(values)[1] for values in certificate["spends"]]


def _to(given_to: str, head: str) -> str:
    return head if given_to == _THIS else given_to


def merged(ancestors: Iterable[Ancestor]) -> tuple[Ancestor, ...]:
    """Each release once, since what two things have in common was spent once. The ancestors of a release stand before it.

    Raises:
        UsageError: two certificates say different things of one release, so that no more than one is as tacit wrote it.
    """
    found: dict[str, Ancestor] = {}
    for ancestor in ancestors:
        known = found.setdefault(ancestor.head, ancestor)
        found[ancestor.head] = known if known == ancestor else _agreed(known, ancestor)
    return tuple(found.values())


def _agreed(one: Ancestor, other: Ancestor) -> Ancestor:
    """What two certificates say of one release, where they differ in what an earlier version of tacit left out: the stricter of it.

    Such a version says no key of a release behind its own, and may say that no release decided bands (`read_ancestors`). The
    certified epsilon, which follows from the spends, is then another, too.

    Raises:
        UsageError: they differ in more.
    """
    epsilon = max(one.epsilon, other.epsilon, key=read_number)
    both = [
        replace(one, key=one.key or other.key, epsilon=epsilon),
        replace(other, key=other.key or one.key, epsilon=epsilon),
    ]
    if one.spends != other.spends:
        both = [
            replace(each, spends=tuple((stage, _decided_by_releases(spend)) for stage, spend in each.spends))
            for each in both
        ]
    differ = [field.name for field in fields(Ancestor) if getattr(both[0], field.name) != getattr(both[1], field.name)]
    if differ:
        raise UsageError(
            f"two certificates say different things of the release {one.head[:SHORT]} ({', '.join(differ)}), so one of them is not "
            "as tacit wrote it; `tacit verify` the run folder of that release, and leave out what does not agree with it"
        )
    return both[0]


def spend_to_dict(stage: str, spend: Spend) -> dict[str, Any]:
    """JSON-ready: an entry of a certificate's ``spends``."""
    assert not isinstance(spend.event, Exchange | Chosen)  # accounts alone have these
    return {
        "stage": stage,
        "partition": spend.partition,
        "count": spend.count,
        "event": event_to_dict(spend.event),
    }


def _spend_from_dict(values: Mapping[str, Any]) -> tuple[str, Spend]:
    return values["stage"], Spend(event_from_dict(values["event"]), values["count"], values["partition"])

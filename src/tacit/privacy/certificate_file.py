"""The one way in which a certificate is read: its shape is checked in full before anything looks into it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from tacit.errors import DataError, LedgerError
from tacit.privacy.events import EVENTS, BandsFrom, Relation
from tacit.privacy.ledger_rows import MOST_STEPS, Digest, Number, Strict, check_event
from tacit.privacy.strict_json import read_strict, what_is_wrong

__all__ = ["Certificate", "check_certificate", "read_certificate", "stays_inside"]

_MOST_BYTES = 50 << 20

Delta = Annotated[float, Field(gt=0, lt=1)]
Plain = Annotated[JsonValue, WithJsonSchema({})]
"""Any value of JSON."""


class StatedEpsilon(Strict):
    """One point of the privacy curve.

    Args:
        delta: above 0 and below 1.
        epsilon: at this delta; the word "infinity" where there is none.
    """

    delta: Delta
    epsilon: Number


class StatedSpend(Strict):
    """A mechanism that read the private units, and how often; epsilon follows from all of these and from nothing else.

    Args:
        stage: of the run; with ": " in its name it was taken over from an earlier release.
        partition: the part of the units that it read.
        count: how often it ran.
        event: the mechanism, by ``kind``, with the numbers that an accountant needs (docs/guarantees.md).
    """

    stage: str
    partition: Annotated[str, Field(min_length=1)]
    count: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    event: Annotated[
        dict[str, Any],
        WithJsonSchema({"type": "object", "required": ["kind"], "properties": {"kind": {"enum": list(EVENTS)}}}),
    ]

    @field_validator("event")
    @classmethod
    def _is_known(cls, event: dict[str, Any]) -> dict[str, Any]:
        check_event(event)
        return event


class StatedRho(Strict):
    """Epsilon of a unit whose privacy probability rho is in a band.

    Args:
        begin, end: the band.
        epsilon: of it.
        within: under replacement, by a unit of the same band.
        worst_partner_from: under replacement, where the band of the worst other unit begins.
    """

    begin: Annotated[float, Field(alias="from", description="where the band begins")]
    end: Annotated[float, Field(alias="to", description="where it ends")]
    epsilon: Number
    within: Number | None = None
    worst_partner_from: float | None = None


class StatedAdaptive(Strict):
    """Epsilon as a public function of rho (docs/adaptive.md).

    Args:
        delta: the certified one.
        relation: the neighbouring relation.
        epsilon_of_rho: a row a band.
        bands_from: what decides a unit's band.
        worst: epsilon over all outcomes.
    """

    delta: Delta
    relation: Relation
    epsilon_of_rho: list[StatedRho]
    bands_from: BandsFrom
    worst: Number


class StatedLine(BaseModel):
    """A line of a confidentiality statement, of which `tacit verify` recomputes every value.

    Args:
        sentence: what holds.
        assumption: what that rests on.
    """

    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)
    sentence: str
    assumption: str


class StatedConfidentiality(BaseModel):
    """The confidentiality statement of a run on screened text (docs/confidentiality.md).

    Args:
        worst_case: for every secret.
        bayesian: for a secret drawn at random, where the misses are bounded.
    """

    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)
    worst_case: StatedLine
    bayesian: StatedLine | None


class StatedFineTuning(BaseModel):
    """The certificate of a fine-tuned tagger (docs/entities.md).

    Args:
        statement: whom it is about, in words.
    """

    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)
    statement: str


class StatedLoop(Strict):
    """The certificate of a training loop of one's own (docs/own-loop.md).

    Args:
        statement: what is guaranteed, in words.
        assumptions: what the loop's author answers for.
    """

    statement: str
    assumptions: Annotated[list[str], Field(min_length=1)]


class StatedGiven(Strict):
    """Something that a run was given.

    Args:
        role: what it is, as the ledger calls it.
        digest: SHA-256 of its files, where they are read for that.
        origin: the head of the release that it is of; or that it was declared public, or is unknown.
        given_to: the head of the release that was given it, or "this run".
    """

    role: str
    digest: str | None
    origin: str
    given_to: str


class StatedAncestor(Strict):
    """A release behind what a run was given, by its own certificate.

    Args:
        head: its ``ledger_head``.
        unit: as it certifies it.
        units: how many there are, as was stated.
        relation: as it certifies it.
        epsilon: the certified one, with all that it inherited.
        delta: of this epsilon.
        spends: its own, not those that it inherited.
        key: its ``key_commitment``; earlier certificates leave it out.
    """

    head: str
    unit: str
    units: Annotated[int, Field(ge=0)]
    relation: Relation
    epsilon: Number
    delta: Delta
    spends: list[StatedSpend]
    key: str = ""


class StatedStart(Strict):
    """Where a run began.

    Args:
        same_people: whether people of the releases behind it may be those of its private text.
        given: what it was given, and what these releases were given.
        ancestors: these releases, each once.
    """

    same_people: bool
    given: list[StatedGiven]
    ancestors: list[StatedAncestor]


class Certificate(Strict):
    """What a release guarantees, computed from its ledger (docs/guarantees.md, "The certificate's form").

    Args:
        version: of this form.
        status: proved, or heuristic where nothing is and every epsilon is infinite.
        unit: the privacy unit.
        units: how many there are, as was stated.
        relation: neighbouring corpora differ by one unit added or removed, or by one replaced.
        epsilons: points of the curve; the first is the certified pair.
        total_variation: an upper bound of it between neighbouring corpora: delta at epsilon 0.
        mu: of the Gaussian mechanism with the certified pair, a summary.
        budget: what the run was given.
        spends: everything that was spent, in order.
        ledger_head: SHA-256 of the ledger's last row of the run.
        config_digest: SHA-256 of the configuration without its options of speed.
        key_commitment: fingerprint of the run's secret key.
        randomness: where the noise comes from, in words.
        files: SHA-256 of the covered files, by path in the release.
        rho: of a run with adaptive DP, what makes the privacy probability.
        adaptive: epsilon as a function of rho.
        confidentiality: of a run on screened text.
        fine_tuning: of a fine-tuning.
        own_loop: of a training loop of one's own.
        start: where the run began, and the releases behind that (from version 2 on).
        tacit_version: which version of tacit began it (from version 2 on).
        domain: what is assumed of every corpus that is compared, in words; earlier certificates leave it to docs/guarantees.md.
    """

    version: Annotated[int, Field(ge=1, le=2)]
    status: Literal["proved", "heuristic"]
    unit: str
    units: Annotated[int, Field(ge=0)]
    relation: Relation
    epsilons: Annotated[list[StatedEpsilon], Field(min_length=1, max_length=20)]
    total_variation: Annotated[float, Field(ge=0, le=1)]
    mu: Number
    budget: StatedEpsilon
    spends: list[StatedSpend]
    ledger_head: Digest
    config_digest: str
    key_commitment: str
    randomness: str
    files: dict[str, Digest]
    rho: Plain = None
    adaptive: StatedAdaptive | None = None
    confidentiality: StatedConfidentiality | None = None
    fine_tuning: StatedFineTuning | None = None
    own_loop: StatedLoop | None = None
    start: StatedStart | None = None
    tacit_version: str | None = None
    domain: str | None = None

    @model_validator(mode="after")
    def _says_where_it_began(self) -> Certificate:
        beside = self.start is not None, self.tacit_version is not None
        if beside != (self.version > 1, self.version > 1):
            raise ValueError("start and tacit_version belong to every form but the first")
        return self

    @field_validator("files")
    @classmethod
    def _are_inside(cls, files: dict[str, str]) -> dict[str, str]:
        if not all(stays_inside(name) for name in files):
            raise ValueError("a file's name leads out of the release")
        return files


def stays_inside(name: str) -> bool:
    """Whether a name is a relative path in its plain form, which leads to a place below its folder."""
    path = PurePosixPath(name)
    plain = path.as_posix() == name and name.isprintable()
    return plain and name != "." and not path.is_absolute() and ".." not in path.parts


def check_certificate(values: Any, where: str) -> dict[str, Any]:
    """The values of a certificate, unchanged, when they have the shape of one.

    Args:
        where: names the file in the error.

    Raises:
        LedgerError: a value is missing, unknown, or of another type or range.
    """
    try:
        Certificate.model_validate(values)
    except ValidationError as error:
        reason = what_is_wrong(error)
    except (RecursionError, ArithmeticError):
        reason = "nested too deep, or a number beyond all bounds"
    else:
        absent = [name for name, value in values.items() if value is None]
        if not absent:
            return values
        reason = f"{absent[0]} is there without a value"
    raise LedgerError(f"{where}: the certificate is damaged or of another version ({reason}); bring it back as it was")


def read_certificate(path: Path) -> dict[str, Any]:
    """A certificate as JSON values, which have the shape of one; that they are true is for `tacit verify` to say.

    Raises:
        LedgerError: it is missing, too large, not JSON, or not a certificate, in one line.
    """
    try:
        values = read_strict(path, _MOST_BYTES)
    except DataError as error:
        raise LedgerError(f"{error} (it holds the certificate)") from None
    return check_certificate(values, str(path))

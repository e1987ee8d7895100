"""The one way in which a certificate is read: its shape is checked in full before anything looks into it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from tacit.errors import DataError, LedgerError
from tacit.privacy.events import BandsFrom, Relation
from tacit.privacy.ledger_rows import MOST_STEPS, Digest, Number, Strict, check_event
from tacit.privacy.strict_json import read_strict, what_is_wrong

__all__ = ["check_certificate", "read_certificate", "stays_inside"]

_MOST_BYTES = 50 << 20

Delta = Annotated[float, Field(gt=0, lt=1)]


class _Epsilon(Strict):
    delta: Delta
    epsilon: Number


class _Spent(Strict):
    stage: str
    partition: Annotated[str, Field(min_length=1)]
    count: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    event: dict[str, Any]

    @field_validator("event")
    @classmethod
    def _is_known(cls, event: dict[str, Any]) -> dict[str, Any]:
        check_event(event)
        return event


class _Rho(Strict):
    begin: Annotated[float, Field(alias="from")]
    end: Annotated[float, Field(alias="to")]
    epsilon: Number
    within: Number | None = None
    worst_partner_from: float | None = None


class _Adaptive(Strict):
    delta: Delta
    relation: Relation
    epsilon_of_rho: list[_Rho]
    bands_from: BandsFrom
    worst: Number


class _Line(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)
    sentence: str
    assumption: str


class _Confidentiality(BaseModel):
    """Of which `tacit verify` recomputes every value; here only what is printed from it."""

    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)
    worst_case: _Line
    bayesian: _Line | None


class _FineTuning(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)
    statement: str


class _OwnLoop(Strict):
    """Of a training loop of one's own."""

    statement: str
    assumptions: Annotated[list[str], Field(min_length=1)]


class _Certificate(Strict):
    version: Annotated[int, Field(ge=1, le=2)]
    status: Literal["proved", "heuristic"]
    unit: str
    units: Annotated[int, Field(ge=0)]
    relation: Relation
    epsilons: Annotated[list[_Epsilon], Field(min_length=1, max_length=20)]
    total_variation: Annotated[float, Field(ge=0, le=1)]
    mu: Number
    budget: _Epsilon
    spends: list[_Spent]
    ledger_head: Digest
    config_digest: str
    key_commitment: str
    randomness: str
    files: dict[str, Digest]
    rho: JsonValue = None
    adaptive: _Adaptive | None = None
    confidentiality: _Confidentiality | None = None
    fine_tuning: _FineTuning | None = None
    own_loop: _OwnLoop | None = None
    start: dict[str, JsonValue] | None = None
    tacit_version: str | None = None

    @model_validator(mode="after")
    def _says_where_it_began(self) -> _Certificate:
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
        _Certificate.model_validate(values)
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

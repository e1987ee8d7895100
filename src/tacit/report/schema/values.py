"""What all facts of a report share: frozen models, and the kinds of values that they hold."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictFloat,
    StrictInt,
    StringConstraints,
)

__all__ = [
    "BEFORE",
    "CONTROL",
    "CONTROL_WITHOUT_NOISE",
    "CURATOR_TEXT",
    "EPSILON",
    "GIVEN",
    "INFINITY",
    "RELEASED",
    "SHARE",
    "UNIFORM",
    "UNIGRAM",
    "Count",
    "Delta",
    "Epsilon",
    "Facts",
    "HexDigest",
    "Interval",
    "Note",
    "Parameters",
    "Probability",
    "Text",
]

INFINITY = "infinity"
"""How an infinite epsilon is written in JSON and in words."""

RELEASED = "released model"
CONTROL = "control without DP"
CONTROL_WITHOUT_NOISE = "control without noise"
SHARE = "share"
EPSILON = "epsilon"
"""The unit of a row whose value is a lower bound on epsilon at the certified delta."""
BEFORE = "after public phase"
GIVEN = "given model"
UNIGRAM = "unigram"
UNIFORM = "uniform"
CURATOR_TEXT = "private held-out text (exact, for the curator)"


def _read_infinity(value: object) -> object:
    return math.inf if value == INFINITY else value


def _write_infinity(value: float) -> float | str:
    return INFINITY if math.isinf(value) else value


# Control characters (and the two code points that XML forbids) have no place in a page, an SVG or a Markdown line.
_Printable = StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f\x{fffe}\x{ffff}]*$")
Note = Annotated[str, _Printable]
Text = Annotated[str, _Printable, StringConstraints(min_length=1)]
HexDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12,128}$")]
Epsilon = Annotated[
    float,
    Field(ge=0, allow_inf_nan=True),
    BeforeValidator(_read_infinity),
    PlainSerializer(_write_infinity, when_used="json"),
]
Delta = Annotated[float, Field(gt=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Parameters = dict[Text, StrictInt | StrictFloat | Text]
Interval = tuple[float, float]


class Facts(BaseModel):
    """Frozen; unknown fields are refused; an error never repeats the value that it refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

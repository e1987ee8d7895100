"""What all sections of the configuration share: frozen models that refuse what they do not know, number types, and paths."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from tacit.clipping import LARGEST, LEAST
from tacit.corpus.places import Place, is_remote, place
from tacit.errors import UsageError

__all__ = [
    "MOST",
    "ClipNorm",
    "Count",
    "NameIn",
    "Noise",
    "Options",
    "Positive",
    "Printable",
    "Probability",
    "Rate",
    "Share",
    "Steps",
    "WholeConfig",
    "beside",
    "expanded",
    "file_folder",
    "name_in",
    "named",
    "shown",
    "substituted",
    "values_digest",
]

Probability = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
MOST = 2**40
"""The largest count: with it no product of some of them is beyond floating point."""

Count = Annotated[int, Field(ge=1, le=MOST)]
Noise = Annotated[float, Field(gt=0, le=1e9)]  # over a clip norm: with more of it nothing is left to be seen
Steps = Annotated[int, Field(ge=1, le=10**9)]  # what a row of the ledger may hold
Rate = Annotated[float, Field(gt=0, le=1e30)]  # of learning; ten times as much still is a number of single precision
ClipNorm = Annotated[float, Field(ge=LEAST, le=LARGEST)]


def _printable(text: str) -> str:
    """The report refuses others, and would when all is paid."""
    if not text or any(unicodedata.category(one) == "Cc" or one in "\ufffe\uffff" for one in text):
        raise PydanticCustomError(
            "printable", "should have a character at least, and no line breaks or other control characters"
        )
    return text


Printable = Annotated[str, AfterValidator(_printable)]
"""What stands on a page."""


def shown(folder: Path) -> Path:
    """The folder, whose name stands on a page.

    Raises:
        UsageError: its name is not printable; a variable in it may have had a line break.
    """
    try:
        _printable(folder.absolute().name)
    except PydanticCustomError as error:
        raise UsageError(f"run: the name of the folder {str(folder.absolute())!r} {error}") from None
    return folder


class Options(BaseModel):
    """A section of the configuration.

    A run's digest is of its options' plain values, so whatever is added to a section would end every run that was begun before. An
    option that is named in ``added_later`` is left out of the plain values while it has its default, and these runs go on.

    The folder that relative paths are relative to is no option of a section and no plain value: a configuration keeps its digest when
    its folder moves. Sections get it when they are checked (`beside`); without one it is the working directory.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    added_later: ClassVar[frozenset[str]] = frozenset()

    _folder: Path | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Take the folder of the file that holds the options."""
        self._folder = file_folder(context)

    def located(self, path: str) -> Path:
        """A path of the options as it is used: with ``${NAME:-default}`` expanded, and relative to the file that names it."""
        return expanded(path) if self._folder is None else self._folder / expanded(path)

    def located_corpus(self, path: str) -> Place:
        """The place of a corpus as it is used: as `located`, or in an object store (`tacit.corpus.places`)."""
        address = substituted(path)
        if not is_remote(address):
            return self.located(path)
        found = place(address)
        return self.located(str(found)) if isinstance(found, Path) else found

    @model_validator(mode="before")
    @classmethod
    def _no_truth_as_number(cls, given: Any) -> Any:
        """Python's true is the number 1: an epsilon that somebody switched on would be one of 1."""
        for name, value in given.items() if isinstance(given, dict) else ():
            values = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
            if any(isinstance(one, bool) for one in values) and not _takes_truth(cls, name, value):
                raise ValueError(f"option {name!r} is a number or a word, not true or false")
        return given

    @property
    def without_effect(self) -> frozenset[str]:
        """Options that change nothing, for what another one says: they are no part of the plain values either."""
        return frozenset()

    @model_serializer(mode="wrap")
    def _plain_values(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        at_default = {name for name in self.added_later if getattr(self, name) == fields[name].default}
        left_out = at_default | self.without_effect
        return {name: value for name, value in handler(self).items() if name not in left_out}


class WholeConfig(Options):
    """All options of something that is begun in a folder and gone on with there.

    ``changeable``: those that may differ between two starts, since they change no result and no guarantee.
    """

    changeable: ClassVar[frozenset[str]]

    def comparable(self) -> dict[str, Any]:
        """The options that must not change between two starts, as plain values."""
        return self.model_dump(mode="json", exclude=set(self.changeable))

    def digest(self) -> str:
        """SHA-256 of everything that can change a result or a guarantee."""
        return values_digest(self.comparable())


def values_digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _takes_truth(options: type[Options], name: str, value: Any) -> bool:
    """Whether an option may be true or false; a section within it sees to its own, and nobody knows an unknown one."""
    if name not in options.model_fields:
        return True
    waiting, kinds = [options.model_fields[name].annotation], set[Any]()
    while waiting:
        kind = waiting.pop()
        kinds.add(kind)
        waiting.extend(get_args(kind))
    has_section = any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)
    return bool in kinds or Any in kinds or (has_section and not isinstance(value, bool))


@dataclass(frozen=True)
class NameIn(AfterValidator):
    """The check that a word is one of some names, with these names for a reference of the options."""

    names: Callable[[], Iterable[str]]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The names are a schema's enumeration."""
        return {**handler(core_schema), "enum": list(self.names())}


def name_in(names: Callable[[], Iterable[str]]) -> NameIn:
    """Check that a word is one of these, as a ``Literal`` of them would. The names are asked for when there is a word to check.

    A registry then needs no second list of its names in the options.
    """

    def check(word: str) -> str:
        known = list(names())
        if word not in known:
            *others, last = map(repr, known)
            said = f"{', '.join(others)} or {last}" if others else last
            raise PydanticCustomError("unknown_name", "Input should be {names}", {"names": said})
        return word

    return NameIn(check, names)


def named(path: str) -> Any:
    """What a row of a registry names as ``"module:name"``, for what a light command must not import."""
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)


_FOLDER = "the folder that relative paths are relative to"


def beside(folder: Path | None) -> dict[str, Path | None]:
    """The context of a check in which options are those of a file in this folder; None: of no file."""
    return {_FOLDER: folder}


def file_folder(context: Any) -> Path | None:
    """The folder of `beside`."""
    return context.get(_FOLDER) if isinstance(context, dict) else None


def expanded(path: str) -> Path:
    """The path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment.

    Raises:
        UsageError: the environment has no such name, and there is no default; or it is an address in an object store.
    """
    found = substituted(path)
    if is_remote(found):
        scheme = found.partition("://")[0]  # what follows may hold a password
        raise UsageError(
            f"a path is an address of {scheme}://: only private and public corpora may lie in an object store; copy it here"
        )
    return Path(found)


def substituted(path: str) -> str:
    """The text of a path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment.

    Raises:
        UsageError: the environment has no such name, and there is no default.
    """

    def value(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(3)
        found = os.environ.get(name, default)
        if found is None:
            raise UsageError(f"path {path!r}: the environment has no {name}; set it or write ${{{name}:-default}}")
        return found

    return re.sub(r"\$\{(\w+)(:-([^}]*))?\}", value, path)

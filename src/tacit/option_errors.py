"""What is wrong with the options of a file, in one line: what pydantic found, in a reader's words."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tacit.by_name import ByName

__all__ = ["in_one_line", "option_places"]

Words = Mapping[str, type[BaseModel]]


def in_one_line(error: ValidationError, source: str, root: type[BaseModel], by_word: Words) -> str:
    """All options that are unknown, each with what may be meant; where there is none, the first other thing that is wrong.

    A misspelt required option is both unknown and missing: the unknown name is what helps.

    Args:
        source: how the file is named.
        root: the class of its options.
        by_word: classes that `ByName` chooses by a word, which pydantic puts into the place of an error.
    """
    found: list[Any] = error.errors(include_url=False, include_input=False)
    unknown = [one for one in found if one["type"] == "extra_forbidden"]
    if not unknown:
        return f"{source}: {_explained(found[0], by_word)}"
    hints = [(_place_of(one, by_word), _hint(one["loc"], _place_of(one, by_word), root, by_word)) for one in unknown]
    if len(hints) == 1:
        return f"{source}: unknown option {hints[0][0]!r}; {hints[0][1]}"
    return f"{source}: {len(hints)} unknown options: {', '.join(f'{place!r} ({hint})' for place, hint in hints)}"


def _explained(error: Any, by_word: Words) -> str:
    place = _place_of(error, by_word)
    if error["type"] in ("model_type", "dict_type", "model_attributes_type"):
        if not place:
            return "the whole file must be a section: a mapping of options, {name: value, ...}"
        return f"option {place!r} is a section: write its options below it, or {{name: value, ...}}"
    if error["type"] == "missing":
        return f"option {place!r} is missing"
    return f"option {place!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


def _place_of(error: Any, by_word: Words) -> str:
    inner = (*by_word, "TupleUnit")
    return ".".join(str(part) for part in error["loc"] if part not in inner and not str(part).startswith("literal["))


def _field_names(location: tuple[Any, ...], root: type[BaseModel], by_word: Words) -> list[str]:
    """The valid option names at the place where an unknown one was found."""
    model: Any = root
    for part in location[:-1]:
        if isinstance(part, int) or part in by_word:
            model = by_word.get(part, model) if isinstance(part, str) else model
            continue
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            continue
        model = _model_in(field.annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def _hint(found: tuple[Any, ...], location: str, root: type[BaseModel], by_word: Words) -> str:
    """What may be meant by an unknown option: one of its name elsewhere, or one here that is spelled nearly so."""
    name, here = str(found[-1]), _field_names(found, root, by_word)
    longer = [own for own in here if own.startswith(f"{name}_")]  # text_field for text
    if longer:
        return f"did you mean {longer[0]!r}?"
    elsewhere = _nearest([place for place in option_places(root) if place.split(".")[-1] == name], location)
    if elsewhere is not None:
        return f"did you mean {elsewhere!r}?"
    near = difflib.get_close_matches(name, here, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"valid here: {', '.join(here)}"


def _nearest(places: Sequence[str], location: str) -> str | None:
    """The place that has most of its sections in common with the location, of these the shortest; None where there is none."""

    def rank(place: str) -> tuple[int, int]:
        pairs = zip(place.split(".")[:-1], location.split(".")[:-1], strict=False)
        common = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return -common, place.count(".")

    return min(places, key=rank, default=None)


def option_places(root: type[BaseModel]) -> list[str]:
    """The dotted places of all options, such as ``privacy.budget.epsilon``; ``N`` stands for the number of a list's item."""
    found: list[str] = []
    waiting: list[tuple[str, type[BaseModel]]] = [("", root)]
    while waiting:
        place, model = waiting.pop(0)
        for name, field in model.model_fields.items():
            here = f"{place}{name}"
            found.append(here)
            waiting += [(f"{here}.{item}", inner) for item, inner in _sections(field.annotation)]
    return list(dict.fromkeys(found))


def _sections(annotation: Any, item: str = "") -> list[tuple[str, type[BaseModel]]]:
    """The sections that an option holds, and how one of several is named."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(item, annotation)]
    for one in getattr(annotation, "__metadata__", ()):
        if isinstance(one, ByName):
            return [(item, model) for model in one.registry.values()]
    origin, inner = get_origin(annotation), get_args(annotation)
    item = "N." if origin is tuple else "NAME." if origin is dict else item
    return [one for part in inner for one in _sections(part, item)]

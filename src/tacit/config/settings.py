"""Single options from a command line: ``privacy.budget.epsilon=3`` in the values of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from tacit.errors import UsageError
from tacit.strict_yaml import parse_yaml

__all__ = ["with_settings"]


def with_settings(values: Any, settings: Sequence[str]) -> Any:
    """The values with some replaced or added; those that are given stay as they are.

    Args:
        values: of a YAML file.
        settings: each a dotted place, ``=`` and a value in YAML. A list's item is named by its number from 0, or by its ``name``,
            as a phase's is.

    Raises:
        UsageError: a setting is not of this form, or there is no such place in a list.

    >>> with_settings({"rounds": 1, "phases": [{"name": "private", "steps": 5}]}, ["phases.private.steps=9", "model.kind=lstm"])
    {'rounds': 1, 'phases': [{'name': 'private', 'steps': 9}], 'model': {'kind': 'lstm'}}
    """
    for setting in settings:
        place, sign, said = setting.partition("=")
        parts = place.strip().split(".")
        if not sign or not all(parts):
            raise UsageError(
                f"--set {setting}: write an option's place, = and its value, such as privacy.budget.epsilon=3"
            )
        try:
            value = parse_yaml(said)
        except yaml.YAMLError:
            raise UsageError(f"--set {place}: its value is not valid YAML") from None
        values = _with_value(values, parts, value, setting)
    return values


def _with_value(values: Any, parts: Sequence[str], value: Any, setting: str) -> Any:
    if not parts:
        return value
    first, rest = parts[0], parts[1:]
    if values is None:
        values = {}
    if isinstance(values, list):
        number = _number_in(values, first, setting)
        return [_with_value(item, rest, value, setting) if at == number else item for at, item in enumerate(values)]
    if not isinstance(values, dict):
        raise UsageError(f"--set {setting}: what is before {first} is no section, but a single value")
    return {**values, first: _with_value(values.get(first), rest, value, setting)}


def _number_in(items: list[Any], name: str, setting: str) -> int:
    names = [str(item.get("name", at)) if isinstance(item, dict) else str(at) for at, item in enumerate(items)]
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) < len(items):
        return int(name)
    raise UsageError(f"--set {setting}: the list has no item {name}; it has {', '.join(names) or 'none'}")

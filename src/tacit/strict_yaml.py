"""YAML in which no key stands twice: the last one would count, and a reader sees the first."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

__all__ = ["parse_yaml"]


class _OnceOnly(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode) or name.tag == "tag:yaml.org,2002:merge":
                continue
            if name.value in seen:
                raise yaml.constructor.ConstructorError(None, None, "a key that stands twice", name.start_mark)
            seen.add(name.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """The plain values of one YAML document, as ``yaml.safe_load`` reads them.

    Raises:
        yaml.YAMLError: it is no YAML, has a tag that stands for an object, or a key twice.
    """
    try:
        return yaml.load(text, _OnceOnly)  # a SafeLoader
    except ValueError as error:  # a date that there is not, a number with too many digits
        raise yaml.YAMLError("a value that is none") from error

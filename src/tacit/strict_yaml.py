"""YAML in which no key stands twice, and a number is what a reader sees.

Of a key that stands twice the last one would count, and a reader sees the first. PyYAML follows YAML 1.1, where ``0150`` is 104 and
``1:30`` is 90; here plain words mean what the core schema of YAML 1.2.2 (10.3.2) says, and merge keys (``<<``) are kept.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

__all__ = ["parse_yaml"]


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode) or name.tag == "tag:yaml.org,2002:merge":
                continue
            if name.value in seen:
                raise yaml.constructor.ConstructorError(None, None, "a key that stands twice", name.start_mark)
            seen.add(name.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        word = self.construct_scalar(node)
        return int(word, 0) if word.startswith(("0o", "0x")) else int(word)


_Strict.yaml_implicit_resolvers = {}  # none of PyYAML's
_Strict.add_constructor("tag:yaml.org,2002:int", _Strict.construct_yaml_int)
for _tag, _words, _first in (
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
):
    _Strict.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_words})\\Z"), _first)


def parse_yaml(text: str) -> Any:
    """The plain values of one YAML document.

    Raises:
        yaml.YAMLError: it is no YAML, has a tag that stands for an object, or a key twice.
    """
    try:
        return yaml.load(text, _Strict)  # a SafeLoader
    except ValueError as error:  # a date that there is not, a number with too many digits
        raise yaml.YAMLError("a value that is none") from error

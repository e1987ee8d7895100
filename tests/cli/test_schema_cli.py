"""`tacit schema` agrees with what checks a configuration: it takes what that takes, and refuses an unknown or misspelt option."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tacit.cli.schema import KINDS, schema_text
from tacit.config.load import read_yaml
from tacit.strict_yaml import parse_yaml

from ..dialogues import dialogue_values
from ..small import small_values
from .calling import Tacit, assert_one_line

ROOT = Path(__file__).parents[2]
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
BOUNDS = {
    "minimum": lambda value, bound: value >= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}
APPLIES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(
        ("required", "properties", "additionalProperties", "patternProperties", "propertyNames", "minProperties"), dict
    ),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), list),
    **dict.fromkeys(("pattern", "minLength", "maxLength"), str),
    **dict.fromkeys(BOUNDS, (int, float)),
}
"""A rule says nothing of a value of another type."""

SAID = {"title", "description", "default", "discriminator", "$schema", "$defs"}


def fits(value: Any, schema: Any, root: dict[str, Any]) -> bool:
    """Whether a value is of the schema: the part of JSON Schema 2020-12 that ours use, and an error for any other."""
    if schema is True:
        return True
    for key, rule in schema.items():
        if key in SAID or not isinstance(value, APPLIES.get(key, object)):
            continue
        if not _fits_rule(value, key, rule, schema, root):
            return False
    return True


def _fits_rule(value: Any, key: str, rule: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    match key:
        case "$ref":
            return fits(value, root["$defs"][rule.removeprefix("#/$defs/")], root)
        case "type":
            return isinstance(value, TYPES[rule]) and (rule == "boolean" or not isinstance(value, bool))
        case "enum":
            return value in rule
        case "const":
            return value == rule
        case "anyOf":
            return any(fits(value, one, root) for one in rule)
        case "oneOf":
            return sum(fits(value, one, root) for one in rule) == 1
        case "required":
            return all(name in value for name in rule)
        case "properties":
            return all(fits(one, rule[name], root) for name, one in value.items() if name in rule)
        case "additionalProperties":
            others = [one for name, one in value.items() if name not in schema.get("properties", {})]
            return not others if rule is False else all(fits(one, rule, root) for one in others)
        case "patternProperties":
            return all(
                fits(value[name], one, root) for of, one in rule.items() for name in value if re.search(of, name)
            )
        case "propertyNames":
            return all(fits(name, rule, root) for name in value)
        case "items":
            return all(fits(one, rule, root) for one in value)
        case "prefixItems":
            return all(fits(one, of, root) for one, of in zip(value, rule, strict=False))
        case "minItems" | "minProperties" | "minLength":
            return len(value) >= rule
        case "maxItems" | "maxLength":
            return len(value) <= rule
        case "pattern":
            return re.search(rule, value) is not None
        case _ if key in BOUNDS:
            return BOUNDS[key](value, rule)
    raise AssertionError(f"the test knows no {key}")


RUN = json.loads(schema_text("run"))
RUNS = [*(ROOT / "recipes").glob("*.yaml"), *(ROOT / "src" / "tacit" / "recipes").glob("*.yaml")]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_recipe_fits_and_names_its_schema(path: Path) -> None:
    values = read_yaml(path)
    kind = "compare" if "tasks" in values else "run"
    assert fits(values, json.loads(schema_text(kind)), json.loads(schema_text(kind)))
    if path.stem != "demo":  # whose text is made by `tacit demo`
        named = "tacit.schema.json" if path.parent.parent.name == "tacit" else f"../docs/schema/{kind}.json"
        assert path.read_text().splitlines()[0] == f"# yaml-language-server: $schema={named}"


def test_other_configurations_fit(tmp_path: Path) -> None:
    assert fits(small_values(tmp_path), RUN, RUN)
    assert not fits(dialogue_values(tmp_path, 100), RUN, RUN)  # it has no phases
    for text in re.findall(r"```yaml\n(title: .*?)```", (ROOT / "docs" / "tour.md").read_text(), re.DOTALL):
        assert fits(parse_yaml(text), RUN, RUN)
    policy = json.loads(schema_text("policy"))
    for path in (ROOT / "src" / "tacit" / "screening" / "policies").glob("*.yaml"):
        assert fits(parse_yaml(path.read_text()), policy, policy)
    tuning = json.loads(schema_text("finetune"))
    values = {"run": "r", "model": {"folder": "m"}, "documents": {"path": "d"}, "training": {"epochs": 1}}
    assert fits(values, tuning, tuning)


def changed(folder: Path, place: str, value: Any) -> dict[str, Any]:
    values = small_values(folder)
    part: Any = values
    *sections, last = place.split(".")
    for name in sections:
        part = part[int(name)] if name.isdigit() else part[name]
    part[last] = value
    return values


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("titel", "x"),
        ("privacy.epsilon", 3),
        ("privacy.budget.delta", 0),
        ("privacy.unit", "family"),
        ("privacy.units", 0.5),
        ("phases.1.clip_nrom", 1),
        ("phases.1.plan", "noisy"),
        ("private.format", "pdf"),
        ("vocabulary.method", "magic"),
        ("model.kind", "t5"),
        ("public.0.times", 0),
        ("phases", []),
        ("audit.control", "perhaps"),
    ],
)
def test_a_mistake_does_not_fit(tmp_path: Path, place: str, value: Any) -> None:
    assert not fits(changed(tmp_path, place, value), RUN, RUN)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_printed_fresh_and_says_what_options_mean(tacit: Tacit, kind: str) -> None:
    printed = tacit("schema", "--kind", kind)
    assert printed.out == schema_text(kind) == (ROOT / "docs" / "schema" / f"{kind}.json").read_text()
    parts = [printed.json, *printed.json.get("$defs", {}).values()]
    for part in parts:
        assert "Args:" not in part["description"]
        for name, option in part.get("properties", {}).items():
            assert option.get("description") or kind == "policy", name


def test_an_unknown_kind_is_one_line(tacit: Tacit) -> None:
    assert_one_line(tacit("schema", "--kind", "models"), 2, "run, finetune, compare, policy, token-policy, certificate")

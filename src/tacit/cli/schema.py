"""`tacit schema`: the JSON Schema of a configuration, from which an editor knows its options, and that of a certificate.

``python -m tacit.cli.schema docs/schema`` writes those that recipes name; a test fails when they are not fresh.
"""

from __future__ import annotations

import inspect
import json
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["KINDS", "command", "schema_text"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

KINDS = ("run", "finetune", "compare", "policy", "token-policy", "certificate")


def command(
    kind: Annotated[str, typer.Option(help="run, finetune, compare, policy, token-policy or certificate.")] = "run",
) -> None:
    """Print the JSON Schema of a configuration, or of a certificate, with what each field means.

    An editor reads it from the first line of a configuration: `# yaml-language-server: $schema=FILE`.
    """
    if kind not in KINDS:
        raise UsageError(f"--kind {kind}: choose {', '.join(KINDS)}")
    typer.echo(schema_text(kind), nl=False)


def schema_text(kind: str) -> str:
    """The schema of one of `KINDS` as JSON.

    What options mean together is not in it: `tacit plan` checks that.
    """
    root = _root(kind)
    schema: dict[str, Any] = root.model_json_schema()
    models = {model.__name__: model for model in _models(root)}
    for name, part in ((root.__name__, schema), *schema.get("$defs", {}).items()):
        _explain(part, models[name])
    return json.dumps({"$schema": _DIALECT, **schema}, indent=1, ensure_ascii=False) + "\n"


def _root(kind: str) -> type[BaseModel]:
    from tacit.config.compare import ComparisonConfig
    from tacit.config.finetune import FinetuneConfig
    from tacit.config.run import RunConfig
    from tacit.privacy.certificate_file import Certificate
    from tacit.screening.policy import PolicyOptions
    from tacit.screening.tokens import TokenPolicyOptions

    roots = {
        "run": RunConfig,
        "finetune": FinetuneConfig,
        "compare": ComparisonConfig,
        "policy": PolicyOptions,
        "token-policy": TokenPolicyOptions,
        "certificate": Certificate,
    }
    return roots[kind]


def _models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """The sections of a configuration, itself among them."""
    from pydantic import BaseModel

    from tacit.by_name import ByName

    found: list[type[BaseModel]] = []
    waiting: list[Any] = [root]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found:
            found.append(kind)
            waiting += [info.annotation for info in kind.model_fields.values()]
        for one in getattr(kind, "__metadata__", ()):
            waiting += one.registry.values() if isinstance(one, ByName) else ()
        waiting += typing.get_args(kind)
    return found


def _explain(part: dict[str, Any], model: type[BaseModel]) -> None:
    """Give each option its own words, and the section only the first paragraph of its docstring, in place of the whole one."""
    from tacit.cli.reference import argument_words

    words: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        words |= argument_words(inspect.getdoc(kind) or "" if "__doc__" in vars(kind) else "")
    part["description"] = " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split())
    for name, option in part.get("properties", {}).items():
        option.pop("title", None)
        if name in words:
            option["description"] = words[name]


if __name__ == "__main__":
    for _kind in KINDS:
        (Path(sys.argv[1]) / f"{_kind}.json").write_text(schema_text(_kind), encoding="utf-8")

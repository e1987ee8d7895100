"""A configuration from YAML, with one line for whatever is wrong in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml
from pydantic import BaseModel

from tacit.config.base import beside, expanded
from tacit.config.phases import PHASES
from tacit.config.run import RunConfig, check_meaning
from tacit.config.settings import with_settings
from tacit.config.shape import missing_folder, read_config
from tacit.config.vocabulary import VocabularyOptions
from tacit.errors import UsageError
from tacit.option_errors import in_one_line
from tacit.strict_yaml import parse_yaml

__all__ = ["config_differences", "load_config", "parse_config", "read_yaml", "validated"]

C = TypeVar("C", bound=BaseModel)


def parse_config(values: Any, source: str = "configuration", folder: Path | None = None) -> RunConfig:
    """Check plain values (as parsed from YAML) and return the configuration.

    Args:
        source: how the values are named in an error.
        folder: of the file that they are from, to which relative paths are relative; None: to the working directory.

    Raises:
        UsageError: an unknown, missing or impossible option; the line names the nearest valid name.
        RefusedError: a guarantee that cannot be proved, with its reason code.
        DataError: what kind of model is in ``model.folder`` cannot be read.
    """
    config = _with_folder(validated(RunConfig, values, source, folder))
    check_meaning(config)
    return config


def validated(kind: type[C], values: Any, source: str, folder: Path | None = None) -> C:
    """Plain values as options of this kind; ``folder`` as of `parse_config`.

    Raises:
        UsageError: an unknown, missing or impossible option; the line names the nearest valid name.
    """
    if not isinstance(values, dict):
        raise UsageError(f"{source}: a configuration is a mapping of options; see `recipes/`")
    _refuse_another_commands(kind, values, source)
    relative_to = values.get("relative_to")
    place = _place(folder, relative_to if isinstance(relative_to, str) else None)
    if place is not None and isinstance(relative_to, str | None):
        values = {
            **values,
            "relative_to": str(place.absolute()),
        }  # the run folder keeps it, and a relative one would mislead
    try:
        return kind.model_validate(values, context=beside(place))
    except pydantic.ValidationError as error:
        raise UsageError(in_one_line(error, source, kind, PHASES)) from None


_OWN = {"phases": "tacit run", "documents": "tacit finetune", "tasks": "tacit compare"}
"""An option that only configurations of one command have, and the command."""


def _refuse_another_commands(kind: type[BaseModel], values: dict[str, Any], source: str) -> None:
    mine = [option for option in _OWN if option in kind.model_fields]
    others = [option for option in _OWN if option in values and option not in mine]
    if mine and others and not any(option in values for option in mine):
        raise UsageError(
            f"{source}: it has `{others[0]}`, so it is a configuration of another command: {_OWN[others[0]]}"
        )


def _place(folder: Path | None, relative_to: str | None) -> Path | None:
    """The folder that relative paths are relative to, shortest; None: no file says so, and it is the working directory."""
    if folder is None and relative_to is None:
        return None
    place = ((folder or Path()) / expanded(relative_to or ".")).resolve()
    here = Path.cwd()
    return place.relative_to(here) if place.is_relative_to(here) else place


def _with_folder(config: RunConfig) -> RunConfig:
    """What a model folder says where the configuration does not: the kind of its model, and its own tokenizer."""
    model, vocabulary = config.model, config.vocabulary
    if model.folder is None:
        return config
    if "kind" not in model.model_fields_set:
        if not model.resolved_folder.exists():
            raise missing_folder(model.folder, model.resolved_folder)
        model = model.model_copy(update={"kind": read_config(model.resolved_folder)[0]})
    if "vocabulary" not in config.model_fields_set:
        vocabulary = VocabularyOptions.model_validate(
            {"method": "given", "path": model.folder}, context=beside(model.located(""))
        )
    elif vocabulary.how.brings_tokenizer and vocabulary.path is None:
        vocabulary = vocabulary.model_copy(update={"path": model.folder})
    return config.model_copy(update={"model": model, "vocabulary": vocabulary})


def load_config(path: Path, settings: Sequence[str] = ()) -> RunConfig:
    """Read and check a YAML configuration, with ``settings`` as of `read_yaml`. Raises like `parse_config`."""
    return parse_config(read_yaml(path, settings), str(path), path.parent)


def read_yaml(path: Path, settings: Sequence[str] = ()) -> Any:
    """The plain values of a YAML file, in which ``settings``, such as ``privacy.budget.epsilon=3``, replace single ones.

    Raises:
        UsageError: there is no such file, it is empty or not YAML, or a setting has no place in it.
    """
    values = with_settings(_parsed(path), settings)
    if values is None:
        raise UsageError(f"{path}: the file is empty: it holds no option; see `recipes/`")
    return values


def _parsed(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"{path}: no such configuration file")
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise UsageError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise UsageError(f"{path}: not valid YAML") from None


def config_differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Options that differ, as ``name: old -> new`` lines; list members are named by their place."""
    lines: list[str] = []
    for key in sorted(set(old) | set(new)):
        before, after = _by_place(old.get(key)), _by_place(new.get(key))
        if isinstance(before, dict) and isinstance(after, dict):
            lines += config_differences(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {_in_words(before)} -> {_in_words(after)}")
    return lines


def _in_words(value: Any) -> str:
    """A value for a line: a section is not written out."""
    return "a section" if isinstance(value, dict) else str(value)


def _by_place(value: Any) -> Any:
    """A list of mappings as a mapping from places, so that only what differs in a member is shown."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return {str(place): item for place, item in enumerate(value)}
    return value

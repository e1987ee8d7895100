"""Where a reproduction works, and at which scale: a folder for one scale, and runs that begin with a public key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tacit.config import RunConfig
from tacit.errors import UsageError
from tacit.files import read_json, write_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Place", "check_same", "scale_named", "with_public_key"]

S = TypeVar("S")


@dataclass(frozen=True)
class Place:
    """The folders of one reproduction.

    Args:
        data: the corpora as they were published, a folder each; nothing is written there.
        out: everything that is made.
    """

    data: Path
    out: Path

    @property
    def corpora(self) -> Path:
        """The corpora as the experiment uses them."""
        return self.out / "corpora"

    @property
    def runs(self) -> Path:
        """Run folders of models that are being trained; each is removed when its model is measured."""
        return self.out / "runs"

    @property
    def results(self) -> Path:
        """A JSON file for each job that is done."""
        return self.out / "results"


def scale_named(scales: Mapping[str, S], name: str) -> S:
    """The scale of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in scales:
        raise UsageError(f"scale is {name!r}; it must be one of {', '.join(scales)}")
    return scales[name]


def check_same(out: Path, scale: DataclassInstance, grows: Collection[str] = ()) -> None:
    """Make the folder, or go on with it.

    Args:
        grows: fields of the scale that say which results there are, and change none.

    Raises:
        UsageError: it has results of a scale that differs in more than its name and these.
    """
    path = out / "scale.json"
    chosen = {"name", *grows}
    described = {one.name: repr(getattr(scale, one.name)) for one in fields(scale) if one.name not in chosen}
    if path.exists() and read_json(path) != described:
        raise UsageError(f"{out}: there are results of another scale or version; use another --out folder")
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, described)


def with_public_key(config: RunConfig, seed: str) -> RunConfig:
    """The run with a key that anyone can make of this text, so that the experiment can be repeated to the bit.

    A model whose key is public has no guarantee of its own, and its certificate says so; the epsilons of the experiment are those
    that the same training has with a secret key.
    """
    return config.model_copy(update={"seed": seed, "allow": (*config.allow, "heuristic:public-key")})

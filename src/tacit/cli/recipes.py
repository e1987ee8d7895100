"""The recipes in the package: configurations that need no text from elsewhere, since made-up text for them is written beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RECIPES", "Recipe", "recipe_text"]


@dataclass(frozen=True)
class Recipe:
    """A packaged configuration, ``recipes/NAME.yaml``.

    Args:
        words: what it is, in a line.
        write_corpora: writes the made-up text that it names into a folder, unless it is there, and returns where.
    """

    words: str
    write_corpora: Callable[[Path], list[Path]]


def recipe_text(name: str) -> str:
    """The recipe's YAML."""
    from importlib.resources import files

    return files("tacit").joinpath(f"recipes/{name}.yaml").read_text(encoding="utf-8")


def _notes(folder: Path) -> Path:
    from tacit.corpus.synthetic import SyntheticPrivate, write_private

    path = folder / "clinical-notes.jsonl"
    if not path.exists():
        write_private(path, SyntheticPrivate())
    return path


def _public(folder: Path) -> Path:
    from tacit.corpus.synthetic import SyntheticPublic, write_public

    path = folder / "public-text.jsonl"
    if not path.exists():
        write_public(path, SyntheticPublic())
    return path


def _chats(folder: Path) -> Path:
    from tacit.corpus.synthetic_chats import SyntheticChats, write_chats

    path = folder / "chats.jsonl"
    if not path.exists():
        write_chats(path, SyntheticChats())
    return path


RECIPES: dict[str, Recipe] = {
    "clinical-notes": Recipe(
        "a DP vocabulary and a DP BERT, every patient protected (Hoory et al. 2021)",
        lambda folder: [_notes(folder), _public(folder)],
    ),
    "support-chats": Recipe(
        "chats redacted and split, an LSTM trained by turns (CRT, Zhao et al. 2022)", lambda folder: [_chats(folder)]
    ),
    "user-chats": Recipe(
        "a DP GPT-2 of chats, every customer protected", lambda folder: [_chats(folder), _public(folder)]
    ),
}
"""By name; `tacit init --list` shows them."""

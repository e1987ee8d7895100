"""The recipes in the package: configurations that need no text from elsewhere, since made-up text for them is written beside them."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.cli import made_up
from tacit.cli.made_up import MadeUp

__all__ = ["RECIPES", "Recipe", "recipe_text"]


@dataclass(frozen=True)
class Recipe:
    """A packaged configuration, ``recipes/NAME.yaml``.

    Args:
        words: what it is, in a line.
        corpora: the made-up text that it names.
    """

    words: str
    corpora: tuple[MadeUp, ...]


def recipe_text(name: str) -> str:
    """The recipe's YAML."""
    from importlib.resources import files

    return files("tacit").joinpath(f"recipes/{name}.yaml").read_text(encoding="utf-8")


RECIPES: dict[str, Recipe] = {
    "clinical-notes": Recipe(
        "a DP vocabulary and a DP BERT, every patient protected (Hoory et al. 2021)", (made_up.NOTES, made_up.PUBLIC)
    ),
    "support-chats": Recipe(
        "chats redacted and split, an LSTM trained by turns (CRT, Zhao et al. 2022)", (made_up.CHATS,)
    ),
    "user-chats": Recipe("a DP GPT-2 of chats, every customer protected", (made_up.CHATS, made_up.PUBLIC)),
}
"""By name; `tacit init --list` shows them."""

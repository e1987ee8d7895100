"""The vocabulary and its method: the section ``vocabulary``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tacit.config.base import Count, Options, Positive, Share, expanded

__all__ = ["VocabularyOptions"]


class VocabularyOptions(Options):
    """The vocabulary of the tokenizer (Hoory et al. 3.2 under the exact law).

    Args:
        method: ``histogram`` (exact law, integer noise), ``hoory`` (the paper's formula; needs ``allow: [heuristic:hoory]``),
            ``public`` (from the public corpora alone, which costs nothing; with ``screening`` and none, from the screened text),
            or ``given`` (a tokenizer that was not made from the private text, which costs nothing either).
        path: of a given tokenizer: a folder with ``tokenizer.json``, or that file. It decides all that follows here.
        max_words: N, distinct words a unit contributes; a keyed random choice beyond.
        size: pieces of the tokenizer, special tokens and alphabet included.
        epsilon_share: the vocabulary alone gets this share of the budget's epsilon when its noise is solved. Gaussian
            mechanisms add up in squares, so 0.3 costs the training only a few percent more noise.
        delta_share: likewise of delta.
        noise_stddev: given instead of solved (then ``threshold`` too).
        threshold: given instead of solved.
        lowercase: normalise to lower case and strip accents.
        min_count: WordPiece merges pairs that occur at least this often in the noisy counts.
    """

    added_later: ClassVar = frozenset({"path"})

    method: Literal["histogram", "hoory", "public", "given"] = "histogram"
    path: str | None = None
    max_words: Count = 128
    size: Annotated[int, Field(ge=300, le=200_000)] = 8192
    epsilon_share: Share = 0.3
    delta_share: Share = 0.1
    noise_stddev: Positive | None = None
    threshold: float | None = None
    lowercase: bool = True
    min_count: Count = 1

    @property
    def resolved_path(self) -> Path:
        """Of a given tokenizer: the path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        assert self.path is not None
        return expanded(self.path)

    @property
    def beside_given(self) -> set[str]:
        """Options that were set although a given tokenizer decides what they say."""
        return set() if self.method != "given" else self.model_fields_set - {"method", "path"}

    @property
    def without_effect(self) -> frozenset[str]:
        """All that a given tokenizer decides."""
        return frozenset(type(self).model_fields) - {"method", "path"} if self.method == "given" else frozenset()

"""The vocabulary and its method: the section ``vocabulary``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from tacit.config.base import Count, NameIn, Options, Positive, Share
from tacit.config.vocabulary_methods import METHODS
from tacit.config.vocabulary_methods.method import VocabularyMethod

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["VocabularyOptions", "check_formula", "check_vocabulary"]


def _known(method: str) -> str:
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known: {', '.join(METHODS)}")
    return method


class VocabularyOptions(Options):
    """The vocabulary of the tokenizer (Hoory et al. 3.2 under the exact law; docs/vocabulary.md).

    Args:
        method: ``weighted`` (a unit's words share its weight: 1/sqrt(words) each; exact law up to integer noise), ``histogram``
            (each word counts 1; exact law, and the one whose noise may be given),
            ``sips`` (as weighted in rounds; what a round releases leaves room for the rest in the next one),
            ``hoory`` (the paper's formula; needs ``allow: [heuristic:hoory]``),
            ``public`` (from the public corpora alone, which costs nothing; with ``screening`` and none, from the screened text),
            or ``given`` (a tokenizer that was not made from the private text, which costs nothing either).
        path: with ``method: given``: a folder with ``tokenizer.json``, or that file. It decides everything below but ``public``; not
            given: the tokenizer of ``model.folder``.
        public: the given tokenizer was made from public text alone; needed where no certificate lies beside it.
        public_words: word lists made from public text, a word a line, with its count there behind a tab where that is known. These
            words are in the vocabulary whatever the private text holds, so they cost nothing, and leave room for others. With
            histogram, weighted or sips.
        public_corpora: the words that occur often in the run's own public corpora are such a list too.
        counts_share: part of the vocabulary's squared budget for noisy counts of the words that were chosen, which WordPiece is
            trained on; 0.15 when not given, and none for a histogram without public words, which has counts already. 0: no counts,
            and the noisy weights stand for them; with weighted and sips, where there are no public words.
        rounds: of ``sips``: their parts of what is left of the squared budget, in their order; they are scaled to add up to one.
        max_words: distinct words that one unit contributes at most, in each round; of more words a keyed random choice is taken.
        size: pieces of the tokenizer, special tokens and alphabet included.
        epsilon_share: the vocabulary alone gets this share of the budget's epsilon when its noise is solved. Gaussian
            mechanisms add up in squares, so 0.3 costs the training only a few percent more noise.
        delta_share: the same for delta.
        noise_stddev: of ``histogram``: noise on a word's count, given instead of solved; with ``threshold``, at least 3.
        threshold: smallest noisy count that is released, a whole number, given instead of solved.
        lowercase: normalise to lower case and strip accents.
        min_count: WordPiece merges pairs that occur at least this often in the noisy counts.
    """

    added_later: ClassVar = frozenset({"path", "public", "public_words", "public_corpora", "counts_share", "rounds"})

    method: Annotated[str, NameIn(_known, lambda: METHODS)] = "weighted"
    path: str | None = None
    public: bool = False
    public_words: tuple[str, ...] = ()
    public_corpora: bool = False
    counts_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    rounds: Annotated[tuple[Share, ...], Field(min_length=1, max_length=16)] = (0.02, 0.06, 0.2, 0.72)
    max_words: Count = 128
    size: Annotated[int, Field(ge=300, le=200_000)] = 8192
    epsilon_share: Share = 0.3
    delta_share: Share = 0.1
    noise_stddev: Positive | None = None
    threshold: float | None = None
    lowercase: bool = True
    min_count: Count = 1

    @property
    def how(self) -> VocabularyMethod:
        """The method itself: everything that hangs on which one it is, it answers."""
        return METHODS[self.method]

    @property
    def resolved_path(self) -> Path:
        """The path of a given tokenizer, with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        assert self.path is not None
        return self.located(self.path)

    @property
    def public_word_paths(self) -> tuple[Path, ...]:
        """The word lists, with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        return tuple(self.located(path) for path in self.public_words)

    @property
    def knows_words(self) -> bool:
        """Whether some words are in the vocabulary whatever the private text holds."""
        return bool(self.public_words) or self.public_corpora

    @property
    def share_of_counts(self) -> float:
        """The part of the squared budget for counts; 0: none are released beside the histogram's own."""
        return self.how.usual_counts_share(self) if self.counts_share is None else self.counts_share

    @property
    def without_effect(self) -> frozenset[str]:
        """All that a given tokenizer decides."""
        reads = self.how.reads
        return frozenset() if reads is None else frozenset(type(self).model_fields) - reads


def check_formula(config: RunConfig) -> None:
    """A method without a proof is wanted as such."""
    config.vocabulary.how.check_allowed(config)


def check_vocabulary(config: RunConfig) -> None:
    """No option is given that the method has no use for, or finds itself."""
    config.vocabulary.how.check(config)

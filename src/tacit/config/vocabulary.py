"""The vocabulary and its method: the section ``vocabulary``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from tacit.config.base import Count, Options, Positive, Share, expanded
from tacit.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["VocabularyOptions", "check_formula", "check_vocabulary"]


class VocabularyOptions(Options):
    """The vocabulary of the tokenizer (Hoory et al. 3.2 under the exact law; docs/vocabulary.md).

    Args:
        method: ``histogram`` (exact law, integer noise), ``weighted`` (a unit's words share its weight: 1/sqrt(words) each),
            ``sips`` (the same in rounds; what a round releases leaves room for the rest in the next one),
            ``hoory`` (the paper's formula; needs ``allow: [heuristic:hoory]``),
            ``public`` (from the public corpora alone, which costs nothing; with ``screening`` and none, from the screened text),
            or ``given`` (a tokenizer that was not made from the private text, which costs nothing either).
        path: of a given tokenizer: a folder with ``tokenizer.json``, or that file. It decides all that follows here.
        public: the given tokenizer was made from public text alone; needed where no certificate lies beside it.
        public_words: word lists made from public text, a word a line, with its count there behind a tab where that is known. These
            words are in the vocabulary whatever the private text holds, so they cost nothing, and leave room for others. With
            histogram, weighted or sips.
        public_corpora: the words that occur often in the run's own public corpora are such a list too.
        counts_share: part of the vocabulary's squared budget for noisy counts of the words that were chosen, which WordPiece is
            trained on; 0.15 when not given, and none for a histogram without public words, which has counts already. 0: no counts,
            and the noisy weights stand for them; with weighted and sips, where there are no public words.
        rounds: of ``sips``: their parts of what is left of the squared budget, in their order; they are scaled to add up to one.
        max_words: N, distinct words a unit contributes, in each round; a keyed random choice beyond.
        size: pieces of the tokenizer, special tokens and alphabet included.
        epsilon_share: the vocabulary alone gets this share of the budget's epsilon when its noise is solved. Gaussian
            mechanisms add up in squares, so 0.3 costs the training only a few percent more noise.
        delta_share: likewise of delta.
        noise_stddev: given instead of solved (then ``threshold`` too).
        threshold: given instead of solved.
        lowercase: normalise to lower case and strip accents.
        min_count: WordPiece merges pairs that occur at least this often in the noisy counts.
    """

    added_later: ClassVar = frozenset({"path", "public", "public_words", "public_corpora", "counts_share", "rounds"})

    method: Literal["histogram", "weighted", "sips", "hoory", "public", "given"] = "histogram"
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
    def resolved_path(self) -> Path:
        """Of a given tokenizer: the path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        assert self.path is not None
        return expanded(self.path)

    @property
    def public_word_paths(self) -> tuple[Path, ...]:
        """The word lists, with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        return tuple(expanded(path) for path in self.public_words)

    @property
    def knows_words(self) -> bool:
        """Whether some words are in the vocabulary whatever the private text holds."""
        return bool(self.public_words) or self.public_corpora

    @property
    def share_of_counts(self) -> float:
        """The part of the squared budget for counts; 0: none are released beside the histogram's own."""
        if self.counts_share is not None:
            return self.counts_share
        return 0.15 if self.method in ("weighted", "sips") or self.knows_words else 0.0

    @property
    def in_rounds(self) -> bool:
        """Whether choosing words and counting them are releases of their own."""
        return self.method in ("weighted", "sips") or self.share_of_counts > 0

    @property
    def beside_given(self) -> set[str]:
        """Options that were set although a given tokenizer decides what they say."""
        return set() if self.method != "given" else self.model_fields_set - {"method", "path", "public"}

    @property
    def without_effect(self) -> frozenset[str]:
        """All that a given tokenizer decides."""
        return (
            frozenset(type(self).model_fields) - {"method", "path", "public"} if self.method == "given" else frozenset()
        )


def check_formula(config: RunConfig) -> None:
    """The vocabulary by the paper's formula is wanted as such."""
    if config.vocabulary.method == "hoory" and "heuristic:hoory" not in config.allow:
        raise RefusedError(
            "vocabulary-formula",
            "vocabulary.method: hoory uses the paper's threshold, whose true delta is far above the one it claims; "
            "use method: histogram, or add heuristic:hoory to allow (reported with epsilon = infinity)",
        )


def check_vocabulary(config: RunConfig) -> None:
    """No option is given that the method has no use for, or finds itself."""
    options = config.vocabulary
    if options.method not in ("histogram", "weighted", "sips"):
        for name in sorted(
            {"public_words", "public_corpora", "counts_share"} & options.model_fields_set - options.beside_given
        ):
            raise UsageError(f"vocabulary.{name}: method {options.method} has no use for it; leave it out")
    if options.counts_share == 0 and options.knows_words:
        raise UsageError(
            "vocabulary.counts_share: public words have no weights that could stand for their counts; take a share above 0"
        )
    if options.method not in ("sips", "given") and "rounds" in options.model_fields_set:
        raise UsageError(f"vocabulary.rounds: method {options.method} has one round; leave it out, or use method: sips")
    if options.in_rounds and (options.noise_stddev is not None or options.threshold is not None):
        raise UsageError(
            "vocabulary: noise_stddev and threshold cannot be given with method weighted or sips, public_words, public_corpora or "
            "counts_share: they are solved; leave them out"
        )
    if options.method == "hoory" and options.threshold is not None:
        raise UsageError("vocabulary.threshold: method hoory computes it by the paper's formula; leave it out")
    if options.method == "histogram" and (options.noise_stddev is None) != (options.threshold is None):
        raise UsageError("vocabulary: give noise_stddev and threshold together, or neither")

"""What every way of making a vocabulary is, and what it may ask of a run's text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, ClassVar

from tacit.errors import RefusedError, UsageError
from tacit.privacy.events import Event, Relation
from tacit.privacy.words import VocabularyEvent

if TYPE_CHECKING:  # a section of the configuration has a method, so the module of the section imports this one
    from tacit.config.run import RunConfig
    from tacit.config.vocabulary import VocabularyOptions

__all__ = [
    "VOCABULARY",
    "VOCABULARY_COUNTS",
    "VocabularyMethod",
    "WordSource",
    "budget_of",
    "refuse_options",
    "vocabulary_round",
]

VOCABULARY = "vocabulary"
VOCABULARY_COUNTS = "vocabulary counts"
"""Names of a vocabulary's releases in the ledger."""


def vocabulary_round(number: int) -> str:
    """The name of a round of the vocabulary, from 0; a phase's name holds no blank, so none is like it."""
    return VOCABULARY if number == 0 else f"{VOCABULARY} round {number + 1}"


class WordSource(ABC):
    """All that a method may ask of a run's text. The pipeline implements it (`tacit.pipeline.vocabulary`).

    `release_under` is the one way from private text to words, whatever the method. It counts under the bound of the stage's planned
    event, keeps the noise on disk with its digest in the ledger, charges the stage, and only then lets the noise meet the counts.
    With this order the ledger is true, and a killed run repeats its release instead of drawing a second one. It stands in one place,
    so that a new method cannot get it wrong: a method never holds a count without its noise, nor the noise alone.
    """

    @abstractmethod
    def release_under(self, stage: str, known: AbstractSet[str] = frozenset()) -> dict[str, int]:
        """One planned release of the private text, paid for when this returns: words with their noisy counts.

        Args:
            stage: a release of `VocabularyMethod.event`, by its name in the ledger. Its event says how it is run
                (`tacit.privacy.words.word_release`), and under `NonPrivate` the counts have no noise.
            known: words that are public by now. A release with a threshold leaves them out; one without gives counts of these.

        Raises:
            UsageError: no such release was planned.
        """

    @abstractmethod
    def public_words(self) -> dict[str, int]:
        """Words of the lists in `vocabulary.public_words`, and with `public_corpora` those of the public corpora; counts there."""

    @abstractmethod
    def words_of_public_corpora(self) -> dict[str, int]:
        """All words of the public corpora, each with the number of records that it stands in."""

    @abstractmethod
    def estimated(
        self, public: Mapping[str, int], rounds: Mapping[str, Mapping[str, int]], counts: Mapping[str, int] | None
    ) -> dict[str, int]:
        """A count of at least 1 for every word, from what was released alone (`tacit.vocabulary.estimate`).

        Args:
            public: `public_words`.
            rounds: what each release with a threshold gave, by its stage.
            counts: what the stage `VOCABULARY_COUNTS` gave; None: it was not planned.
        """


class VocabularyMethod(ABC):
    """One way of making a vocabulary. A subclass is final, has no state, and is a line in `METHODS`.

    Everything here but `release` is a function of the configuration and of released values: `tacit plan`, `tacit verify` and the
    report ask it without any text.
    """

    kinds: ClassVar[tuple[type, ...]]
    """Of its events: a ledger with another one under its stages is not that of its configuration."""

    origin: ClassVar[str] = "the vocabulary came from a private release"
    """Where the released tokenizer comes from, in the report's words."""

    law: ClassVar[str | None] = None
    """A sentence: what is proved of the law of its events. None: it reads no private text, or has no guarantee."""

    counts_private_text: ClassVar[bool] = True
    """Whether it counts words of raw private text. Screening and marking take only methods that do not."""

    brings_tokenizer: ClassVar[bool] = False
    """Whether the tokenizer is there already, at `vocabulary.path`, so that no words are released."""

    reads: ClassVar[frozenset[str] | None] = None
    """Options of the section that it looks at, the others being no part of the configuration; None: all of them."""

    heuristic: ClassVar[str | None] = None
    """Of a method without a proof: the entry that `allow` must hold. See `refusal`."""

    # options ----------------------------------------------------------------------------------------------------------

    def refusal(self) -> RefusedError:
        """What is raised for a method with a `heuristic` where `allow` does not hold that entry, with its reason code."""
        raise UsageError(
            f"vocabulary.method: {type(self).__qualname__} has a heuristic and no refusal; mend the method"
        )

    def check_allowed(self, config: RunConfig) -> None:
        """Refuse a method without a proof where it is not wanted as such."""
        if self.heuristic is not None and self.heuristic not in config.allow:
            raise self.refusal()

    def check(self, config: RunConfig) -> None:
        """Refuse options that make no sense with this method.

        Raises:
            UsageError: names the option.
        """
        options = config.vocabulary
        if self.brings_tokenizer != (options.path is not None):
            raise UsageError(
                "vocabulary: method: given needs a path, to a folder with tokenizer.json or that file, and no other does"
            )
        if options.public and not self.brings_tokenizer:
            raise UsageError("vocabulary.public is about a given tokenizer; leave it out")
        self.check_options(options)

    def check_options(self, options: VocabularyOptions) -> None:
        """Check this method's own options; without a definition: it has no use for public words, nor for counts or rounds."""
        refuse_options(options, {"public_words", "public_corpora", "counts_share"}, "has no use for it; leave it out")
        refuse_options(options, {"rounds"}, "has one round; leave it out, or use method: sips")

    def usual_counts_share(self, options: VocabularyOptions) -> float:
        """`vocabulary.counts_share` where it is not given."""
        return 0.0

    # plan -------------------------------------------------------------------------------------------------------------

    def reads_private_text(self, config: RunConfig) -> bool:
        """Whether it spends something: `event` is then not None."""
        return True

    def is_public(self, config: RunConfig) -> bool:
        """Whether it is certain that nothing of the tokenizer comes from any private text."""
        return False

    @abstractmethod
    def event(self, config: RunConfig) -> VocabularyEvent | None:
        """What it spends, with noise that meets its share of the budget (`budget_of`), or that the configuration gives.

        Raises:
            BudgetError: no noise meets the share.
        """

    def event_in(self, config: RunConfig, planned: Mapping[str, Event]) -> VocabularyEvent | None:
        """`event` as a ledger has it; without a definition: one event under the name `VOCABULARY`.

        Args:
            planned: the events of all stages, by name.

        Returns:
            None where the ledger lacks some of it, or has an event of another kind there.
        """
        found = planned.get(VOCABULARY)
        return found if isinstance(found, self.kinds) else None

    def stated_event(self, config: RunConfig) -> Event | None:
        """The event under `VOCABULARY` where the configuration gives all of it, and none is solved: `tacit verify` wants this one."""
        return None

    def shown(self, config: RunConfig) -> str:
        """What `tacit plan` says happens in a stage without an event, or in one that has no guarantee."""
        return "words of private text, without a guarantee"

    def notes(self, config: RunConfig, event: VocabularyEvent | None) -> Sequence[str]:
        """What a reader of the plan should know beside its numbers."""
        return ()

    # release ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        """The vocabulary's words, each with a count of at least 1, which is all that WordPiece reads.

        Args:
            event: as planned in the ledger. Every release in it is asked for once: else the run ends with an error.
            source: all that it may ask of the run's text.
        """

    # report -----------------------------------------------------------------------------------------------------------

    def described(self, config: RunConfig) -> str:
        """The vocabulary in the report's words; without a definition: the method's name, and which public words are beside it."""
        options = config.vocabulary
        known = {
            "public word lists": bool(options.public_words),
            "words of the public corpora": options.public_corpora,
        }
        beside = " and ".join(name for name, used in known.items() if used)
        return options.method + (f" beside {beside}" if beside else "")


def budget_of(config: RunConfig) -> tuple[float, float, Relation]:
    """(epsilon, delta) that the vocabulary alone may have when its noise is solved, and the neighbouring relation."""
    options, privacy = config.vocabulary, config.privacy
    return config.least_epsilon * options.epsilon_share, privacy.budget.delta * options.delta_share, privacy.relation


def refuse_options(options: VocabularyOptions, names: AbstractSet[str], why: str) -> None:
    """Refuse options that were given although the method does not look at them.

    A stored configuration holds every option that was not added later, so of these a default was not given.

    Raises:
        UsageError: names the first of them.
    """
    fields = type(options).model_fields
    for name in sorted(names & options.model_fields_set):
        if name in options.added_later or getattr(options, name) != fields[name].default:
            raise UsageError(f"vocabulary.{name}: method {options.method} {why}")

"""The method ``given``: a tokenizer that is there already, and was not made from this run's private text."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tacit.config.vocabulary_methods.method import VocabularyMethod, WordSource
from tacit.errors import UsageError
from tacit.privacy.words import VocabularyEvent

if TYPE_CHECKING:
    from tacit.config.run import RunConfig
    from tacit.config.vocabulary import VocabularyOptions

__all__ = ["Given"]

_READS = frozenset({"method", "path", "public"})


@final
class Given(VocabularyMethod):
    """It costs nothing here; what a release spent on it, `tacit.planning.origins` finds in that release's certificate."""

    kinds = ()
    origin = "the tokenizer was given, and is public"
    counts_private_text = False
    brings_tokenizer = True
    reads = _READS

    def check_options(self, options: VocabularyOptions) -> None:
        beside = options.model_fields_set - _READS
        if beside:
            raise UsageError(f"vocabulary.{min(beside)}: the given tokenizer decides this; leave it out")

    def reads_private_text(self, config: RunConfig) -> bool:
        return False

    def event(self, config: RunConfig) -> None:
        return None

    def shown(self, config: RunConfig) -> str:
        return "given tokenizer"

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return {}  # its tokenizer holds all that there is

    def described(self, config: RunConfig) -> str:
        return "a given tokenizer, public by the user's declaration"

"""The method ``public``: words of the public corpora, or of what screening or marking leaves of the private text."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tacit.config.vocabulary_methods.method import VOCABULARY, VocabularyMethod, WordSource
from tacit.privacy.events import NonPrivate
from tacit.privacy.words import VocabularyEvent

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["Public"]


@final
class Public(VocabularyMethod):
    """It costs nothing where there are public corpora. Else it has no guarantee, and the ledger says so."""

    kinds = (NonPrivate,)
    origin = "the vocabulary is that of text that gets no protection"
    counts_private_text = False

    def reads_private_text(self, config: RunConfig) -> bool:
        return not config.public

    def is_public(self, config: RunConfig) -> bool:
        return bool(config.public)

    def event(self, config: RunConfig) -> NonPrivate | None:
        return NonPrivate(f"vocabulary of {_text(config)} text") if self.reads_private_text(config) else None

    def shown(self, config: RunConfig) -> str:
        return f"words of {_text(config)} text"

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return source.words_of_public_corpora() if event is None else source.release_under(VOCABULARY)

    def described(self, config: RunConfig) -> str:
        return "words of the public corpora" if config.public else f"words of the {_text(config)} text, without noise"


def _text(config: RunConfig) -> str:
    """Which text the words come from."""
    if config.public:
        return "public"
    return "screened" if config.marking is None else "unmarked"

"""How a run makes rows of its units: all that decides them, in one object that can be sent to another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import Tokenizer

from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.vocabulary.chats import ChatEncoder
from tacit.vocabulary.encode import TextIds
from tacit.vocabulary.rendering import rendered_apart
from tacit.vocabulary.special import SpecialTokens, special_tokens

__all__ = ["Tokenising", "copies_of"]


def copies_of(unit: Unit, times: int) -> list[Unit]:
    """A unit, and the same texts under other ids, which have random choices of their own."""
    return [unit, *(Unit(f"{unit.unit_id}:copy {number}", unit.texts) for number in range(2, times + 1))]


@dataclass(frozen=True)
class Tokenising:
    """How a run makes rows of its units.

    Args:
        tokenizer_json: the tokenizer as its file has it.
        names: its special tokens by role.
        length: positions of a row.
        streams: for the units' keys.
        template: how messages are written, in Jinja; and where it was read, for errors.
        has_chats: whether there may be conversations among the texts of any part: rows then say which tokens count.
    """

    tokenizer_json: str
    names: Mapping[str, str]
    length: int
    streams: KeyedRandomness
    template: tuple[str, str]
    has_chats: bool

    def rows(self, units: Sequence[Unit], is_chat: Sequence[bool]) -> SequenceStream:
        """Rows of units, of which some may hold conversations."""
        chats = self._chats if self.has_chats else None
        return tokenize_units(
            units, self._tokenizer, self._special, self.length, self.streams, chats, is_chat, self._ids_of
        )

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_str(self.tokenizer_json)
        tokenizer.encode_special_tokens = True  # a "[MASK]" that stands in a text is text
        return tokenizer

    @cached_property
    def _ids_of(self) -> TextIds:
        return TextIds(self._tokenizer, self._special)

    @cached_property
    def _special(self) -> SpecialTokens:
        return special_tokens(self._tokenizer, self.names)

    @cached_property
    def _chats(self) -> ChatEncoder:
        return ChatEncoder(self._tokenizer, self._special, self.names, rendered_apart(*self.template))

    def __getstate__(self) -> dict[str, object]:
        """The state without what is made of the rest."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

"""From texts to tokens, for every text: one that its tokenizer gives up on has no tokens.

A given tokenizer may have an expression in its normalizer or pre-tokenizer that backtracks, such as ``(x+x+)+y``; on a text that is
too much for it the library panics. As an error, one text would decide whether there is a release.

Where a tokenizer cuts text into words and words into pieces, as BERT's do, the words of a corpus are few, and `TextIds` remembers the
pieces of each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain

from tokenizers import Encoding, Tokenizer

from tacit.failures import is_out_of_memory, is_panic
from tacit.vocabulary.special import SpecialTokens
from tacit.vocabulary.tokenizer import MAX_WORD_LENGTH, cuts_into_words

__all__ = ["TextIds", "encode_texts"]

_REMEMBERED = 1 << 17
_SPACES = str.maketrans("\n\t\r", "   ")
_WORDS = re.compile("[0-9A-Za-z]+|[!-/:-@[-`{-~]").findall


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str], *, offsets: bool = False) -> list[Encoding]:
    """The encoding of each text, without the tokens that begin and end a row.

    Args:
        tokenizer: without padding and truncation.
        texts: any.
        offsets: whether the encodings hold where tokens stand; without is faster.
    """
    encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
    try:
        return encode(list(texts), add_special_tokens=False)
    except BaseException as error:
        if not (is_panic(error) or any(map(_has_half_a_surrogate, texts))) or is_out_of_memory(error):
            raise
    if len(texts) == 1:
        return encode([""], add_special_tokens=False)
    return [encoding for text in texts for encoding in encode_texts(tokenizer, [text], offsets=offsets)]


def _has_half_a_surrogate(text: object) -> bool:
    """Which is no character, and cannot be given to the library."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


class TextIds:
    """The ids of texts: `SpecialTokens.text_ids` of `encode_texts`, several times as fast where the tokenizer cuts text into words.

    The pipeline never looks across a space, tab or line break. Between them printable ASCII has words that are runs of letters and
    digits, and every other sign on its own; what else stands there the library cuts, once. A text in which an added token may stand,
    such as a special one, is the library's as a whole.

    Args:
        tokenizer: without padding and truncation; it must not be changed any more.
        special: its special tokens.
    """

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._pieces: _Pieces | None = None
        if cuts_into_words(tokenizer):
            self._lowercase = json.loads(tokenizer.to_str())["normalizer"]["lowercase"]
            self._pieces = _Pieces(tokenizer, special)
            added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
            folded = [] if tokenizer.normalizer is None else map(tokenizer.normalizer.normalize_str, added)
            self._added = {content.lower().translate(_SPACES) for content in (*added, *folded)}
            self._has_spaces = any(" " in content for content in self._added)

    def __call__(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """The ids of each text, without those that begin and end a row."""
        of_words = [None if self._pieces is None else self._words(text) for text in texts]
        others = iter(
            encode_texts(self._tokenizer, [text for text, words in zip(texts, of_words, strict=True) if words is None])
        )
        pieces: dict[str, Sequence[int]] = {} if self._pieces is None else self._pieces
        return [
            self._special.text_ids(next(others).ids)
            if words is None
            else list(chain.from_iterable(map(pieces.__getitem__, words)))
            for words in of_words
        ]

    def _words(self, text: str) -> list[str] | None:
        """The words of a text, or stretches without spaces that the library cuts; None: it is the library's as a whole."""
        if not text.isascii() and _has_half_a_surrogate(text):
            return None
        spaced = text.translate(_SPACES)
        folded = spaced.lower()
        if any(content in folded for content in self._added):
            return None
        if spaced.isascii() and spaced.isprintable():
            return _WORDS(folded if self._lowercase else spaced)
        # an added token of several stretches may be what accents and control characters leave of this text
        if self._has_spaces:
            return None
        return list(chain.from_iterable(map(self._words_of_stretch, spaced.split(" "))))

    def _words_of_stretch(self, stretch: str) -> Sequence[str]:
        if stretch.isascii() and stretch.isprintable():
            return _WORDS(stretch.lower() if self._lowercase else stretch)
        return [stretch]


class _Pieces(dict[str, Sequence[int]]):
    """The ids of words and stretches, which the library is asked for once, as long as there is room."""

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._special = special

    def __missing__(self, word: str) -> Sequence[int]:
        ids = tuple(self._special.text_ids(self._tokenizer.encode(word, add_special_tokens=False).ids))
        if len(self) < _REMEMBERED and len(word) <= MAX_WORD_LENGTH:
            self[word] = ids
        return ids

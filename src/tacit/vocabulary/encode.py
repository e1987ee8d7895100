"""From texts to tokens, for every text: one that its tokenizer gives up on has no tokens.

A given tokenizer may have an expression in its normalizer or pre-tokenizer that backtracks, such as ``(x+x+)+y``; on a text that is
too much for it the library panics. As an error, one text would decide whether there is a release.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Encoding, Tokenizer

from tacit.failures import is_out_of_memory, is_panic

__all__ = ["encode_texts"]


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
    return isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text)

"""The special tokens of a run's tokenizer, by their ids: what rows begin and end with, padding, the mask, and what is no text.

Our own WordPiece has five, in front; a given tokenizer may have others, anywhere: GPT-2's has one, the last, which begins,
ends and pads. Nothing else in the package knows an id by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import Tokenizer

__all__ = ["OWN_NAMES", "ROLES", "SpecialTokens", "special_tokens"]

ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token", "bos_token", "eos_token")
"""What a special token is for, as transformers calls it in ``tokenizer_config.json``."""

OWN_NAMES: Mapping[str, str] = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
"""Those of our own WordPiece."""

_STARTS = ("cls_token", "bos_token", "sep_token", "eos_token")
_ENDS = ("sep_token", "eos_token", "cls_token", "bos_token")
"""The first one that a tokenizer has begins, or ends, every row."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids.

    Args:
        pad: behind a row's end; never attended to, never predicted. Where a tokenizer has none, it is ``end``.
        start: the first token of every row.
        end: the last one.
        mask: what a masked model sees in the place of a token; None where the tokenizer has none.
        unknown: for text that the tokenizer cannot spell; None where it spells everything.
        ids: those that stand for no text, ascending: special tokens, and numbers below ``size`` that no token has. They are
            never masked, and never drawn as a replacement or for a canary.
        size: the largest id plus one: what a model's embedding has to hold.
    """

    pad: int
    start: int
    end: int
    mask: int | None
    unknown: int | None
    ids: tuple[int, ...]
    size: int

    def text_ids(self, ids: Sequence[int]) -> Sequence[int]:
        """The ids of a text, in which a special token that is spelled there is text.

        Where special tokens are looked for before a text is cut, ``encode_special_tokens`` sees to that. Some tokenizers also
        have them among the words of their model (unigram models do): such a word is an unknown one here, and left out where
        the tokenizer has no token for these.
        """
        if self._no_text.isdisjoint(ids):
            return ids
        instead = () if self.unknown is None else (self.unknown,)
        return [one for number in ids for one in (instead if number in self._no_text else (number,))]

    @cached_property
    def _no_text(self) -> frozenset[int]:
        return frozenset(self.ids) - {self.unknown}


def special_tokens(tokenizer: Tokenizer, names: Mapping[str, str]) -> SpecialTokens:
    """The special tokens of a tokenizer: those it marks as special, and the named ones.

    Args:
        tokenizer: any.
        names: its tokens by their roles (`ROLES`); among them one that can begin or end a row.

    Raises:
        KeyError: it has no such token, or none that can begin a row.
    """
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    ids = {role: vocabulary[token] for role, token in names.items()}
    start, end = (next((ids[role] for role in roles if role in ids), None) for roles in (_STARTS, _ENDS))
    if start is None or end is None:
        raise KeyError("bos_token")
    marked = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    size = max(vocabulary.values()) + 1
    pad, mask, unknown = ids.get("pad_token", end), ids.get("mask_token"), ids.get("unk_token")
    return SpecialTokens(
        pad=pad,
        start=start,
        end=end,
        mask=mask,
        unknown=None if unknown in (pad, start, end, mask) else unknown,  # GPT-2's is a mere name: it spells everything
        ids=tuple(sorted(marked | set(ids.values()) | set(range(size)).difference(vocabulary.values()))),
        size=size,
    )

"""What a model writes: greedy continuations of a causal model, and what a masked one puts into a gap.

They are made of the model's weights and of public text alone, so of a model that is released they tell nothing more.

Shapes: R rows, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from tacit.training.sequences import SequenceStream
from tacit.vocabulary.special import SpecialTokens

__all__ = ["Example", "completions", "fillings"]

PROMPT = 8
"""Tokens of a row that a continuation begins with."""

WRITTEN = 16
"""Tokens of a continuation, at most."""

GUESSES = 3
"""Tokens that a masked model may name for a gap."""


@dataclass(frozen=True)
class Example:
    """One text.

    Args:
        prompt: what the models were given; a gap is ``___``.
        text: what stands in the corpus.
        written: by model, what it wrote.
    """

    prompt: str
    text: str
    written: dict[str, str]


def completions(
    models: Mapping[str, PreTrainedModel], tokenizer: Tokenizer, stream: SequenceStream, special: SpecialTokens
) -> Iterator[Example]:
    """What causal models write after the beginning of each row that is long enough; greedy, so it is a function of the weights."""
    for row_T in _rows(stream):
        given_T = row_T[: PROMPT + 1]  # behind the token that rows begin with
        if len(row_T) < PROMPT + 3:
            continue
        ending = row_T[len(given_T) : len(given_T) + WRITTEN]
        written = {
            name: _readable(tokenizer, _continued(model, given_T, len(ending), special))
            for name, model in models.items()
        }
        yield Example(_readable(tokenizer, given_T), _readable(tokenizer, ending), written)


@torch.no_grad()
def _continued(model: PreTrainedModel, given_T: np.ndarray, tokens: int, special: SpecialTokens) -> np.ndarray:
    ids_1T = torch.from_numpy(given_T.astype(np.int64)).to(model.device)[None]
    silent = torch.tensor(sorted(special.ids), device=model.device)  # a text is asked for, and special tokens are none
    model.eval()
    for _ in range(tokens):
        logits_V = model(ids_1T).logits[0, -1]
        logits_V[silent] = -torch.inf
        ids_1T = torch.cat([ids_1T, logits_V.argmax()[None, None]], dim=1)
    return ids_1T[0, len(given_T) :].cpu().numpy()


def fillings(
    models: Mapping[str, PreTrainedModel],
    tokenizer: Tokenizer,
    stream: SequenceStream,
    special: SpecialTokens,
    mask: int,
) -> Iterator[Example]:
    """What masked models think stands in the middle of each row that is long enough, the likeliest first."""
    for row_T in _rows(stream):
        gap = len(row_T) // 2
        if len(row_T) < PROMPT + 2 or int(row_T[gap]) in special.ids:
            continue
        given_T = row_T.copy()
        given_T[gap] = mask
        before, after = _readable(tokenizer, row_T[:gap]), _readable(tokenizer, row_T[gap + 1 :])
        written = {
            name: ", ".join(_readable(tokenizer, np.array([guess])) for guess in _guesses(model, given_T, gap, special))
            for name, model in models.items()
        }
        yield Example(f"{before} ___ {after}".strip(), _readable(tokenizer, row_T[gap : gap + 1]), written)


@torch.no_grad()
def _guesses(model: PreTrainedModel, given_T: np.ndarray, gap: int, special: SpecialTokens) -> list[int]:
    ids_1T = torch.from_numpy(given_T.astype(np.int64)).to(model.device)[None]
    model.eval()
    logits_V = model(input_ids=ids_1T, attention_mask=torch.ones_like(ids_1T)).logits[0, gap]
    logits_V[torch.tensor(sorted(special.ids), device=model.device)] = -torch.inf
    return [int(token) for token in logits_V.topk(min(GUESSES, special.size - len(special.ids))).indices]


def _rows(stream: SequenceStream) -> Iterator[np.ndarray]:
    for row_T, length in zip(stream.ids_ST, stream.lengths_S, strict=True):
        yield row_T[: int(length)]


def _readable(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """Text on one line, without what a page cannot show."""
    text = tokenizer.decode([int(one) for one in ids], skip_special_tokens=True)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())

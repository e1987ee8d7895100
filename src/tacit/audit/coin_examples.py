"""What audit examples are made of: `EXAMPLES`. A new kind is a function and a row. Needs no torch.

Whatever they hold, the coins are drawn apart from them, so a kind decides how much an attack sees, and never whether a bound is true.

Shapes: m examples, P pieces of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer

from tacit.errors import DataError
from tacit.storage.arrays import row_pieces
from tacit.training.sequences import SequenceStream
from tacit.vocabulary.encode import encode_texts
from tacit.vocabulary.special import SpecialTokens

__all__ = ["EXAMPLES", "ExampleKind", "Material"]

_PROMPT = "My code is:"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Material:
    """What examples are made of. None of it is private text.

    Args:
        examples: m.
        pieces: P.
        special: which ids stand for no text.
        generator: keyed, of these examples alone.
        public_rows: the public text that is trained on.
    """

    examples: int
    pieces: int
    tokenizer: Tokenizer = field(repr=False)
    special: SpecialTokens
    generator: np.random.Generator = field(repr=False)
    public_rows: Callable[[], SequenceStream] = field(repr=False)

    @property
    def ordinary(self) -> np.ndarray:
        """The ids that stand for text."""
        return np.setdiff1d(np.arange(self.special.size), self.special.ids)


@dataclass(frozen=True)
class ExampleKind:
    """A member of `EXAMPLES`.

    Args:
        make: gives ids (m, P).
        reads_public: whether it needs public text.
    """

    make: Callable[[Material], np.ndarray]
    reads_public: bool = False


def _random_pieces(material: Material) -> np.ndarray:
    """Pieces uniform over the vocabulary, as canaries of a masked model are."""
    return material.generator.choice(material.ordinary, (material.examples, material.pieces))


def _random_words(material: Material) -> np.ndarray:
    """Words of three to eight random letters: text that is like no other."""
    generator, pieces = material.generator, material.pieces
    lengths = generator.integers(3, 9, size=(material.examples, pieces))
    texts = [" ".join("".join(generator.choice(list(_LETTERS), length)) for length in own) for own in lengths]
    found = [encoding.ids[:pieces] for encoding in encode_texts(material.tokenizer, texts)]
    if any(len(ids) < pieces for ids in found):
        raise DataError("audit.coins: the tokenizer has no pieces for random words; choose another kind of examples")
    return np.array(found)


def _public_text(material: Material) -> np.ndarray:
    """Pieces that follow each other in public training text."""
    rows, pieces = material.public_rows(), material.pieces
    enough = np.flatnonzero(np.asarray(rows.lengths_S) >= pieces + 2)
    if len(enough) == 0:
        raise DataError(f"audit.coins: no row of the public text has {pieces} pieces; lower audit.coins.pieces")
    chosen_m = material.generator.choice(enough, material.examples)
    starts_m = 1 + material.generator.integers(rows.lengths_S[chosen_m] - pieces - 1)
    return rows.ids_ST[chosen_m[:, None], starts_m[:, None] + np.arange(pieces)]


def _new_piece(material: Material) -> np.ndarray:
    """Random pieces, every other one a piece that the public text never has."""
    unseen = material.ordinary
    for ids_BT in row_pieces(material.public_rows().ids_ST):
        unseen = np.setdiff1d(unseen, ids_BT)
    if len(unseen) == 0:
        raise DataError("audit.coins: the public text has every piece; choose another kind of examples")
    ids_mP = _random_pieces(material)
    ids_mP[:, ::2] = material.generator.choice(unseen, material.examples)[:, None]
    return ids_mP


def _secret(material: Material) -> np.ndarray:
    """A prompt that all examples begin with, at most half of them, and a secret of random pieces."""
    ids_mP = _random_pieces(material)
    prompt = encode_texts(material.tokenizer, [_PROMPT])[0].ids[: material.pieces // 2]
    ids_mP[:, : len(prompt)] = prompt
    return ids_mP


EXAMPLES: dict[str, ExampleKind] = {
    "random-pieces": ExampleKind(_random_pieces),
    "random-words": ExampleKind(_random_words),
    "public-text": ExampleKind(_public_text, reads_public=True),
    "new-piece": ExampleKind(_new_piece, reads_public=True),
    "secret": ExampleKind(_secret),
}
"""By name."""

"""The public text pipeline: normalise, cut into words, and the WordPiece tokenizer that is released.

Nothing here looks at private text. The alphabet is a constant of this file, so every word over it can be spelled with
the pieces that any vocabulary of ours holds (each character, and each character with the ``##`` prefix): such a word
never becomes ``[UNK]``, whatever the private release kept. The files load with ``transformers.AutoTokenizer``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from tacit.errors import UsageError
from tacit.vocabulary.chat_template import TEMPLATE_FILE
from tacit.vocabulary.special import OWN_NAMES

__all__ = [
    "CONTINUATION",
    "MAX_WORD_LENGTH",
    "PUBLIC_ALPHABET",
    "SPECIAL_TOKENS",
    "TokenizerOptions",
    "build_tokenizer",
    "cuts_into_words",
    "normalizer_and_pretokenizer",
    "save_tokenizer",
    "words_of",
]

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Their ids are 0 to 4, in this order."""

CONTINUATION = "##"
"""Prefix of a piece that does not begin a word."""

MAX_WORD_LENGTH = 100
"""Words with more characters are not counted, and the tokenizer gives ``[UNK]`` for them."""

_ASCII = "".join(chr(code) for code in range(0x21, 0x7F))
_LATIN_1 = "".join(chr(code) for code in range(0xA1, 0x100) if code != 0xAD)  # 0xAD is the soft hyphen: never printed
_TYPOGRAPHY_AND_MEDICINE = "–—‘’“”„•…†‡€™≤≥≈→←↑↓√αβγδΔκλμσΩω"

PUBLIC_ALPHABET = _ASCII + _LATIN_1 + _TYPOGRAPHY_AND_MEDICINE
"""Printable ASCII, Latin-1 (µ, °, ±, ½ and the accented letters) and a few signs of clinical and edited text."""


@dataclass(frozen=True)
class TokenizerOptions:
    """How text becomes words. Public: decided before anybody looks at the data.

    Args:
        lowercase: also strips accents, as in uncased BERT; without it, case and accents are kept.
        alphabet: the characters that words may hold. They are kept as the normaliser leaves them, distinct and in the
            order of their code points ("éA" becomes "ae" with ``lowercase``); white space and controls fall out.

    Raises:
        UsageError: no character is left in the alphabet.
    """

    lowercase: bool = True
    alphabet: str = PUBLIC_ALPHABET

    def __post_init__(self) -> None:
        normalizer = _normalizer(self.lowercase)
        characters = {c for given in self.alphabet for c in normalizer.normalize_str(given)} - {" "}
        if not characters:
            raise UsageError("the tokenizer's alphabet is empty; give the characters that words may hold")
        object.__setattr__(self, "alphabet", "".join(sorted(characters)))


def normalizer_and_pretokenizer(options: TokenizerOptions) -> tuple[BertNormalizer, BertPreTokenizer]:
    """The two stages that make words of text, as in BERT: clean and fold it; cut at white space and punctuation."""
    return _normalizer(options.lowercase), BertPreTokenizer()


def words_of(text: str, options: TokenizerOptions) -> list[str]:
    """All words of a text, in order and with repetitions; also those outside the alphabet.

    >>> words_of("BP: 120/80, temp. 37.5°C", TokenizerOptions())
    ['bp', ':', '120', '/', '80', ',', 'temp', '.', '37', '.', '5°c']
    """
    normalizer, pretokenizer = normalizer_and_pretokenizer(options)
    return [word for word, _ in pretokenizer.pre_tokenize_str(normalizer.normalize_str(text))]


def build_tokenizer(pieces: Sequence[str], options: TokenizerOptions, reserved: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer that spells words with the longest pieces that fit, from the left.

    A special token that stands in a text is read as that token, as everywhere in ``tokenizers``, unless
    ``tokenizer.encode_special_tokens`` is set; ``words_of`` cuts it into words.

    Args:
        pieces: the vocabulary; a piece's id is its place. It begins with ``SPECIAL_TOKENS``.
        options: the same options with which the words were counted.
        reserved: further tokens that are read whole wherever they stand, such as the mask of redacted text; their ids follow.

    Raises:
        ValueError: the special tokens are not in front, or a piece occurs twice.
    """
    if tuple(pieces[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
        raise ValueError(f"the vocabulary must begin with {', '.join(SPECIAL_TOKENS)}")
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        raise ValueError(f"{len(pieces) - len(vocabulary)} pieces of the vocabulary are repeated")
    model = WordPiece(
        vocabulary,
        unk_token="[UNK]",
        max_input_chars_per_word=MAX_WORD_LENGTH,
        continuing_subword_prefix=CONTINUATION,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer_and_pretokenizer(options)
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.decoder = WordPieceDecoder(prefix=CONTINUATION)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in reserved])
    return tokenizer


def cuts_into_words(tokenizer: Tokenizer) -> bool:
    """Whether a word's tokens are a function of that word alone, of words as `build_tokenizer` cuts them, but for added tokens."""
    values = json.loads(tokenizer.to_str())
    ours = [json.loads(build_tokenizer(SPECIAL_TOKENS, TokenizerOptions(case)).to_str()) for case in (True, False)]
    stages = [(one["normalizer"], one["pre_tokenizer"]) for one in ours]
    model = values["model"]
    of_words = (model["type"], model.get("continuing_subword_prefix")) == ("WordPiece", CONTINUATION)
    return of_words and (values["normalizer"], values["pre_tokenizer"]) in stages


def save_tokenizer(
    tokenizer: Tokenizer,
    folder: Path,
    model_max_length: int,
    names: Mapping[str, str] = OWN_NAMES,
    chat_template: str | None = None,
) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, which ``AutoTokenizer.from_pretrained(folder)`` loads.

    The class named in the config is the generic one: ``BertTokenizer`` would rebuild the pipeline from its own
    defaults. ``token_type_ids`` are not among the model's inputs: GPT-2 would add the embedding of token 0 at every
    position, and BERT takes zeros when they are absent.

    Args:
        tokenizer: from ``build_tokenizer``, or given.
        folder: made if missing; it may be the model's own folder.
        model_max_length: tokens, with those that begin and end a row.
        names: its special tokens by their roles.
        chat_template: how it writes messages, in Jinja; None: it has no words for that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **names,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if chat_template is not None:
        (folder / TEMPLATE_FILE).write_text(chat_template, encoding="utf-8")


@lru_cache(maxsize=2)
def _normalizer(lowercase: bool) -> BertNormalizer:
    return BertNormalizer(lowercase=lowercase)

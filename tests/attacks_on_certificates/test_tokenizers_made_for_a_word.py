"""A given tokenizer does at one text nothing that ends a run, whoever made it (twenty-second and twenty-third attack).

What was wrong. A ``tokenizer.json`` is a program, and may be made for one word that somebody says. Four replacements wrote it as
10^12 characters. With that mended forty byte levels doubled each "é" forty times, as normalizers or as pre-tokenizers; a template
wrote the tokens of a text as often as it named ``$A``; a piece that was the stand-in of a special token stopped the reading of
conversations with an error; words of 10^9 letters took months; and a detector's tokenizer was not looked at. With that word there was
no release, without it one that said epsilon 1.716.
"""

from __future__ import annotations

import base64
import itertools
import json
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram, WordLevel, WordPiece
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

from tacit.corpus.chats import read_exchange
from tacit.errors import DataError
from tacit.screening.adapters.options import HuggingFaceOptions
from tacit.screening.adapters.registry import detector_from_options
from tacit.vocabulary import given
from tacit.vocabulary.chat_template import ChatTemplate, default_template
from tacit.vocabulary.chats import ChatEncoder
from tacit.vocabulary.given import read_given
from tacit.vocabulary.growth import MOST_GROWTH, growth_of

from ..folders import END, byte_bpe, save_tokenizer


def normalized(*stages: Any) -> Tokenizer:
    tokenizer = byte_bpe()
    tokenizer.normalizer = normalizers.Sequence(list(stages))  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


def pre_tokenized(*stages: Any) -> Tokenizer:
    tokenizer = byte_bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(stages))  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


def processed(processor: Any) -> Tokenizer:
    tokenizer = byte_bpe()
    tokenizer.post_processor = processor
    return tokenizer


def of_long_words(model: Any) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens([END])
    return tokenizer


def with_stand_in(writes: Callable[[str], Any]) -> Tokenizer:
    """A piece that is the stand-in of the token that ends a row, and a normalizer that writes it."""
    pieces = ["<unk>", *map(chr, range(32, 127)), "\n"]
    stand_in = f"\ufdd3{len(pieces) + 1}\ufdd4"
    tokenizer = Tokenizer(Unigram([(piece, -3.0) for piece in (*pieces, stand_in)], unk_id=0))
    tokenizer.normalizer = writes(stand_in)
    tokenizer.add_special_tokens([END])
    return tokenizer


def table(longest: int, letter: bytes = b"b") -> str:
    """A precompiled one with an empty trie, and texts of so many letters at most."""
    return base64.b64encode((4).to_bytes(4, "little") + bytes(4) + b"a\0" + letter * longest + b"\0").decode()


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
TWICE = processors.TemplateProcessing(single="$A $A", special_tokens=[])
REFUSED: dict[str, tuple[Callable[[], Tokenizer], str]] = {
    "four replacements": (
        lambda: normalized(normalizers.Replace("zebra", "#" * 100), normalizers.Replace("#", "#" * 100)),
        "128 times as long",
    ),
    "byte levels": (lambda: normalized(*[normalizers.ByteLevel()] * 4), "128 times as long"),
    "byte levels of a pre-tokenizer": (lambda: pre_tokenized(*[BYTES] * 4), "128 times as long"),
    "byte levels of both": (
        lambda: with_both([normalizers.ByteLevel()] * 2, [BYTES] * 2),
        "128 times as long",
    ),
    "pieces that all begin anew": (
        lambda: pre_tokenized(*[pre_tokenizers.Metaspace(letter) for letter in "abcdefgh"]),
        "128 times as long",
    ),
    "spaces around spaces": (lambda: normalized(*[normalizers.BertNormalizer()] * 6), "128 times as long"),
    "tables between replacements": (
        lambda: normalized(*[normalizers.Replace("\u0644", "\ufdfa"), normalizers.NFKD()] * 2),
        "128 times as long",
    ),
    "a text twice": (lambda: processed(TWICE), "several times"),
    "a text twice, among others": (
        lambda: processed(processors.Sequence([processors.ByteLevel(), TWICE])),
        "several times",
    ),
    "templates of templates": (
        lambda: processed(processors.Sequence([processors.TemplateProcessing(single="$A", special_tokens=[])] * 2)),
        "several times",
    ),
    "words without an end": (
        lambda: of_long_words(
            WordPiece({"[UNK]": 0, "a": 1, "##a": 2}, unk_token="[UNK]", max_input_chars_per_word=10**9)
        ),
        "hours",
    ),
    "long pieces": (lambda: of_long_words(Unigram([("<unk>", 0.0), ("a" * 257, -1.0)], unk_id=0)), "hours"),
    "a stand-in": (lambda: with_stand_in(lambda text: normalizers.Replace("zebra", text)), "noncharacter"),
    "a stand-in that nobody writes": (lambda: with_stand_in(lambda text: normalizers.NFC()), "noncharacter"),
    "a stand-in in a table": (
        lambda: normalized(normalizers.Precompiled(base64.b64decode(table(2, "\ufdd3".encode())))),
        "noncharacter",
    ),
    "a stand-in in a normalizer": (lambda: normalized(normalizers.Replace("zebra", "\ufdd3299\ufdd4")), "noncharacter"),
}


def with_both(normalizer: list[Any], pre_tokenizer: list[Any]) -> Tokenizer:
    tokenizer = pre_tokenized(*pre_tokenizer)
    tokenizer.normalizer = normalizers.Sequence(normalizer)  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


@pytest.mark.parametrize("form", REFUSED)
def test_such_a_tokenizer_is_refused(form: str, tmp_path: Path) -> None:
    made, word = REFUSED[form]
    save_tokenizer(made(), tmp_path, bos_token=END, eos_token=END)
    with pytest.raises(DataError, match=word) as caught:
        read_given(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "made",
    [
        byte_bpe,
        lambda: normalized(normalizers.Replace(" ", "▁")),
        lambda: pre_tokenized(pre_tokenizers.Digits(), BYTES),
        lambda: processed(processors.TemplateProcessing(single=f"{END} $A {END}", special_tokens=[(END, 299)])),
        lambda: processed(processors.ByteLevel()),
        lambda: of_long_words(Unigram([("<unk>", 0.0), ("a" * 256, -1.0)], unk_id=0)),
    ],
)
def test_an_ordinary_one_is_not(made: Callable[[], Tokenizer], tmp_path: Path) -> None:
    save_tokenizer(made(), tmp_path, bos_token=END, eos_token=END)
    assert read_given(tmp_path).special.size > 0


# what they did ----------------------------------------------------------------------------------------------------------


def test_byte_levels_double_a_letter_each() -> None:
    """Known wrong: as often as there are stages, whatever a text's length."""
    for stages in (4, 8, 12):
        assert len(normalizers.Sequence([normalizers.ByteLevel()] * stages).normalize_str("é")) == 2**stages
        (piece, _), *others = pre_tokenizers.Sequence([BYTES] * stages).pre_tokenize_str("é")
        assert not others
        assert len(piece) == 2**stages


def test_a_template_repeats_a_text_that_no_special_token_is_asked_for() -> None:
    plain, twice = byte_bpe(), processed(TWICE)
    assert twice.encode("a b", add_special_tokens=False).ids == 2 * plain.encode("a b", add_special_tokens=False).ids


def test_a_stand_in_stopped_the_reading_of_conversations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Known wrong: a tokenizer that is not looked at."""
    save_tokenizer(
        with_stand_in(lambda text: normalizers.Replace("zebra", text)), tmp_path, bos_token=END, eos_token=END
    )
    monkeypatch.setattr(given, "check_suitable", lambda place, tokenizer: None)
    found = read_given(tmp_path)
    template = ChatTemplate(default_template(END, END), "here")
    encoder = ChatEncoder(found.tokenizer, found.special, found.names, template)
    (horse,) = encoder.encode([read_exchange("how are you", "a horse")])
    assert horse is not None
    assert any(horse.counted)
    with pytest.raises(ValueError, match="substring"):
        encoder.encode([read_exchange("how are you", "a zebra")])


# growth -----------------------------------------------------------------------------------------------------------------


GROWS: dict[str, dict[str, Any]] = {
    "nothing becomes something": {"type": "Replace", "pattern": {"String": ""}, "content": "#" * 80},
    "an expression": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "#" * 80},
    "what may be nothing": {"type": "Replace", "pattern": {"Regex": r"\b{1000,}"}, "content": "#" * 80},
    "ALBERT, told in docs": {
        "type": "Sequence",
        "normalizers": [
            *({"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in ("``", "''")),
            *({"type": name} for name in ("NFKD", "StripAccents", "Lowercase")),
            {"type": "Precompiled", "precompiled_charsmap": table(18)},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ],
    },
    "a beginning": {"type": "Prepend", "prepend": "#" * 128},
    "a table": {"type": "Precompiled", "precompiled_charsmap": table(129)},
    "no table": {"type": "Precompiled", "precompiled_charsmap": "?"},
    "no text": {"type": "Precompiled", "precompiled_charsmap": table(1, b"\xff")},
    "tables": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": table(18)}] * 2},
    "in a sequence of sequences": {
        "type": "Sequence",
        "normalizers": [{"type": "Sequence", "normalizers": [{"type": "ByteLevel"}]}] * 4,
    },
    "unknown": {"type": "Newer"},
}
KNOWN: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None]] = {
    "BERT": ({"type": "BertNormalizer", "clean_text": True}, {"type": "BertPreTokenizer"}),
    "Llama": (
        {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        None,
    ),
    "XLM-R": (
        {
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": table(18, "ع".encode())},
                {"type": "Strip"},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
            ],
        },
        {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁"}]},
    ),
    "Qwen": (
        {"type": "NFC"},
        {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated"},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        },
    ),
    "GPT-2": (None, {"type": "ByteLevel", "add_prefix_space": True}),
}


@pytest.mark.parametrize("name", list(GROWS))
def test_a_normalizer_that_may_make_a_text_very_long(name: str) -> None:
    assert growth_of({"normalizer": GROWS[name]}) > MOST_GROWTH


@pytest.mark.parametrize("name", list(KNOWN))
def test_those_of_known_models_may_be_used(name: str) -> None:
    normalizer, pre_tokenizer = KNOWN[name]
    assert growth_of({"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}) <= 36


def test_the_growth_is_what_replacements_do_at_most() -> None:
    """After one another, on texts made for them."""
    for parts in ([("ab", "#" * 7)], [("a", "bb"), ("b", "ccc")], [("", "xy")], [("abc", "a")]):
        made = normalizers.Sequence([normalizers.Replace(*part) for part in parts])
        longest = max(len(made.normalize_str(text)) / len(text) for text in ("ab" * 50, "a" * 90, "abc" * 30, "a"))
        assert 1 <= max(1.0, longest) <= growth_of(stated_of(made))
    both = normalizers.Sequence([normalizers.Replace("a", "bb"), normalizers.Replace("b", "ccc")])
    assert growth_of(stated_of(both)) == len(both.normalize_str("a")) == 6


def stated_of(normalizer: Any) -> dict[str, Any]:
    return json.loads(normalized(normalizer).to_str()) | {"pre_tokenizer": None}


TABLES = [getattr(normalizers, name)() for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")]


def changed_characters() -> list[str]:
    """What a table writes as several, or as what another one does."""
    every = (chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000)
    return [text for text in every if unicodedata.decomposition(text) or len(text.lower()) > 1]


def test_the_growth_is_what_unicodes_tables_do_at_most() -> None:
    """Of every character, by every stage, and by stages after one another."""
    changed = changed_characters()
    chains: list[list[Any]] = [
        [one] for one in (*TABLES, normalizers.BertNormalizer(), normalizers.Nmt(), normalizers.Strip())
    ]
    for chain in chains:
        assert max(len(chain[0].normalize_str(text)) for text in changed) == growth_of(stated_of(chain[0]))
    draw = random.Random(5)
    chains = [list(pair) for pair in itertools.product(TABLES, repeat=2)] + [
        draw.choices(TABLES, k=6) for _ in range(20)
    ]
    for chain in chains:
        made = normalizers.Sequence(chain)
        assert max(len(made.normalize_str(text)) for text in changed) <= growth_of(stated_of(made)) <= 18
    levels = normalizers.Sequence([normalizers.ByteLevel(), normalizers.NFKD(), normalizers.ByteLevel()])
    assert max(len(levels.normalize_str(text)) for text in changed) <= growth_of(stated_of(levels))


def test_the_growth_is_what_pre_tokenizers_write_at_most() -> None:
    """Characters of four bytes, each a piece of its own, with something before it."""
    for stage, most in (
        (pre_tokenizers.ByteLevel(add_prefix_space=True), 5),
        (BYTES, 4),
        (pre_tokenizers.Metaspace(), 2),
    ):
        apart = pre_tokenizers.Sequence([pre_tokenizers.FixedLength(1), stage])
        stated = json.loads(pre_tokenized(apart).to_str()) | {"normalizer": None}
        assert sum(len(piece) for piece, _ in apart.pre_tokenize_str("\U0001f600" * 5)) == 5 * most
        assert growth_of(stated) == most


# detectors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grows", [True, False])
def test_a_detectors_tokenizer_is_looked_at_too(grows: bool, tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(40))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    if grows:
        stages = [normalizers.Replace("zebra", "#" * 1000), normalizers.Replace("#", "#" * 1000)]
        tokenizer.normalizer = normalizers.Sequence(stages)  # pyright: ignore[reportAttributeAccessIssue]
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), words, strict=False))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names).save_pretrained(tmp_path)
    shape = BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        vocab_size=len(words),
        max_position_embeddings=64,
        id2label={0: "O", 1: "B-PER"},
        label2id={"O": 0, "B-PER": 1},
    )
    torch.manual_seed(0)
    BertForTokenClassification(shape).save_pretrained(tmp_path)
    options = HuggingFaceOptions(folder=str(tmp_path))
    if grows:
        with pytest.raises(DataError, match=r"detector huggingface.*128 times as long"):
            detector_from_options(options)
    else:
        assert detector_from_options(options).spans_of(["w1 zebra"]) is not None

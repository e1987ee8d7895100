"""The tokenizer: words by a hand-written BERT pipeline, no unknown words over the alphabet, loading by transformers."""

from __future__ import annotations

import doctest
import socket
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, BertConfig, GPT2Config

from tacit.errors import UsageError
from tacit.vocabulary import tokenizer as module
from tacit.vocabulary.tokenizer import (
    MAX_WORD_LENGTH,
    SPECIAL_TOKENS,
    TokenizerOptions,
    build_tokenizer,
    save_tokenizer,
    words_of,
)
from tacit.vocabulary.wordpiece import base_pieces

UNCASED = TokenizerOptions()
CASED = TokenizerOptions(lowercase=False)
PIECES = [*base_pieces(UNCASED.alphabet), "fe", "##ver", "fever", "pain", "##less"]


def bert_words(text: str, lowercase: bool) -> list[str]:
    """BERT's BasicTokenizer (Devlin et al. 2019) written out again, without its rules for Chinese and controls."""
    if lowercase:
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn").lower()
    separate = {c for c in text if unicodedata.category(c)[0] == "P" or (c.isascii() and not c.isalnum())}
    return "".join(f" {c} " if c in separate else c for c in text).split()


@pytest.mark.parametrize("options", [UNCASED, CASED])
@settings(max_examples=200, derandomize=True, deadline=None)
@given(text=st.text(alphabet=module.PUBLIC_ALPHABET + " " * 30))
def test_words_are_those_of_bert(options, text):
    assert words_of(text, options) == bert_words(text, options.lowercase)


def test_alphabet_is_what_the_normaliser_leaves():
    assert TokenizerOptions(alphabet="bÉa A\n").alphabet == "abe"
    assert TokenizerOptions(lowercase=False, alphabet="bÉa A\n").alphabet == "AabÉ"
    assert set("az09µ°±½≤-/") <= set(UNCASED.alphabet)
    assert not any(c.isupper() for c in UNCASED.alphabet)
    assert set("AZazÉé") <= set(CASED.alphabet)
    for options in (UNCASED, CASED):
        assert TokenizerOptions(options.lowercase, options.alphabet) == options
    with pytest.raises(UsageError, match="empty"):
        TokenizerOptions(alphabet=" \n")


@pytest.mark.parametrize("options", [UNCASED, CASED])
@settings(max_examples=200, derandomize=True, deadline=None)
@given(data=st.data())
def test_no_unknown_piece_for_words_over_the_alphabet(options, data):
    tokenizer = build_tokenizer(base_pieces(options.alphabet), options)
    text = data.draw(st.text(alphabet=options.alphabet, max_size=MAX_WORD_LENGTH))
    tokenizer.encode_special_tokens = True  # "[SEP]" in the text is five characters here, not a special token
    encoding = tokenizer.encode(text, add_special_tokens=False)
    assert "[UNK]" not in encoding.tokens
    spelled: dict[int, str] = {}
    for piece, word in zip(encoding.tokens, encoding.word_ids, strict=True):
        spelled[word] = spelled.get(word, "") + (piece.removeprefix("##") if word in spelled else piece)
    assert list(spelled.values()) == words_of(text, options)


def test_unknown_outside_the_alphabet_and_beyond_the_longest_word():
    tokenizer = build_tokenizer(PIECES, UNCASED)
    assert tokenizer.encode("fever жар", add_special_tokens=False).tokens == ["fever", "[UNK]"]
    assert "[UNK]" not in tokenizer.encode("a" * MAX_WORD_LENGTH).tokens
    assert "[UNK]" in tokenizer.encode("a" * (MAX_WORD_LENGTH + 1)).tokens


def test_special_tokens_template_and_decoder():
    tokenizer = build_tokenizer(PIECES, UNCASED)
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    pair = tokenizer.encode("Painless FEVER", "[MASK]")
    assert pair.tokens == ["[CLS]", "pain", "##less", "fever", "[SEP]", "[MASK]", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 0, 0, 1, 1]
    assert pair.special_tokens_mask == [1, 0, 0, 0, 1, 0, 1]
    assert tokenizer.decode(pair.ids) == "painless fever"
    assert [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())] == PIECES


def test_refuses_a_vocabulary_without_its_special_tokens_or_with_repeats():
    with pytest.raises(ValueError, match="must begin with"):
        build_tokenizer(PIECES[1:], UNCASED)
    with pytest.raises(ValueError, match="1 pieces of the vocabulary are repeated"):
        build_tokenizer([*PIECES, "fever"], UNCASED)


@pytest.mark.parametrize("options", [UNCASED, CASED])
@pytest.mark.parametrize("model_config", [None, BertConfig(), GPT2Config()])
def test_transformers_loads_it_offline(tmp_path: Path, monkeypatch, options, model_config):
    tokenizer = build_tokenizer([*base_pieces(options.alphabet), "fe", "##ver", "fever"], options)
    save_tokenizer(tokenizer, tmp_path / "model", model_max_length=8)
    if model_config is not None:  # the folder of a released model: its config must not choose another pipeline
        model_config.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was used"))
    loaded = AutoTokenizer.from_pretrained(tmp_path / "model")
    text = "Fever of 37.5°C, FÉVER; naïve жар [MASK]"
    assert loaded(text)["input_ids"] == tokenizer.encode(text).ids
    assert loaded.tokenize(text) == tokenizer.encode(text, add_special_tokens=False).tokens
    assert len(loaded) == loaded.vocab_size == tokenizer.get_vocab_size()
    assert loaded.model_max_length == 8
    assert len(loaded(text, truncation=True)["input_ids"]) == 8
    assert set(loaded(text)) == {"input_ids", "attention_mask"}
    ids = loaded.pad_token_id, loaded.unk_token_id, loaded.cls_token_id, loaded.sep_token_id, loaded.mask_token_id
    assert ids == (0, 1, 2, 3, 4)
    assert loaded(["fever", "fever fever"], padding=True)["input_ids"][0][-1] == loaded.pad_token_id
    assert loaded.decode(loaded("fever fever")["input_ids"], skip_special_tokens=True) == "fever fever"


def test_saved_tokenizer_reads_back_the_same(tmp_path: Path):
    tokenizer = build_tokenizer(PIECES, UNCASED)
    save_tokenizer(tokenizer, tmp_path, model_max_length=512)
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).to_str() == tokenizer.to_str()
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}


def test_examples_in_docstrings():
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0

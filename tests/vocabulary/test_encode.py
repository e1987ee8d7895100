"""Texts to tokens: what the tokenizer itself gives, and no tokens for the text that it gives up on."""

from __future__ import annotations

import random

import pytest
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.normalizers import Replace

from tacit.vocabulary import encode
from tacit.vocabulary.encode import TextIds, encode_texts
from tacit.vocabulary.special import OWN_NAMES, SpecialTokens, special_tokens
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer

from ..folders import byte_bpe, wordpiece

TEXTS = ["The patient's pain: 37.5", "fever", "", "pain " + 40 * "x", "painless"]
HARD = 3


def test_it_is_what_the_tokenizer_gives() -> None:
    tokenizer = wordpiece()
    expected = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    for offsets in (False, True):
        found = encode_texts(tokenizer, TEXTS, offsets=offsets)
        assert [one.ids for one in found] == [one.ids for one in expected]
    assert [one.offsets for one in encode_texts(tokenizer, TEXTS, offsets=True)] == [one.offsets for one in expected]


@pytest.mark.parametrize("offsets", [False, True])
def test_a_text_that_it_gives_up_on_has_no_tokens(offsets: bool) -> None:
    """The others keep theirs, and the tokenizer can be used on."""
    hard = wordpiece()
    hard.normalizer = Replace(Regex("(x+x+)+y"), "y")
    easy = [number for number in range(len(TEXTS)) if number != HARD]
    expected = [one.ids for one in encode_texts(hard, [TEXTS[number] for number in easy])]
    for _ in range(2):
        found = [one.ids for one in encode_texts(hard, TEXTS, offsets=offsets)]
        assert [found[number] for number in easy] == expected
        assert found[HARD] == []


def test_the_library_panics_on_it() -> None:
    """The known-wrong version; should it no longer, the module is needed no more."""
    hard = wordpiece()
    hard.normalizer = Replace(Regex("(x+x+)+y"), "y")
    with pytest.raises(BaseException, match="retry-limit") as caught:
        hard.encode_batch_fast(TEXTS, add_special_tokens=False)
    assert type(caught.value).__module__ == "pyo3_runtime"


def test_what_is_no_panic_goes_on() -> None:
    with pytest.raises(TypeError):
        encode_texts(wordpiece(), [None])  # pyright: ignore[reportArgumentType]


# words that are remembered -------------------------------------------------------------------------------------------

SIGNS = [
    *(chr(code) for code in range(0x180)),
    *"\u0301\u03c3\u03a3\u2028\u200b\u3000\u4e2d\ufb01\U0001f600\u0130\u0131\ufffd\ufeff\ue000\ud83d",
    *(" " * 60),
    *"abcdeABC019.,'",
]
SPELLED = [
    "\u00e1b c\u010f",
    "ab\x00 cd",
    "s\u00e9cret",
    "xsecret",
    "a\nb",
    "[MASK]",
    "[mask]",
    " [CLS]x",
    "[UNK]",
    "<note>",
    "<NOTE>",
    "un<note>s",
    "Secret Word",
    "secret word",
]


def own(lowercase: bool, reserved: tuple[str, ...] = ()) -> Tokenizer:
    letters = "abcdefghijklmnopqrstuvwxyzABC0123456789.,[]<>'-"
    pieces = [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters), "ab", "##cd", "secret"]
    return build_tokenizer(pieces, TokenizerOptions(lowercase), reserved)


def tokenizers() -> dict[str, Tokenizer]:
    spelled, normalized = own(True, ("<note>",)), own(True)
    spelled.encode_special_tokens = True
    normalized.add_tokens([AddedToken("Secret Word", normalized=True), AddedToken("\u00c9", normalized=True)])
    stripped, broken = own(True), own(True)
    stripped.add_tokens([AddedToken("ab cd", normalized=True), AddedToken("secret", normalized=True)])
    broken.add_tokens([AddedToken("a\nb", normalized=False)])
    return {
        "lower case": own(True),
        "as written": own(False, ("<note>",)),
        "special tokens are text": spelled,
        "added tokens of folded text": normalized,
        "added tokens of several words": stripped,
        "an added token with a line break": broken,
        "of bytes": byte_bpe(),
    }


def by_the_library(tokenizer: Tokenizer, special: SpecialTokens, texts: list[str]) -> list[list[int]]:
    return [list(special.text_ids(encode_texts(tokenizer, [text])[0].ids)) for text in texts]


def random_texts(number: int) -> list[str]:
    rng = random.Random(7)
    texts = ["".join(rng.choices(SIGNS, k=rng.randrange(30))) for _ in range(number)]
    return [text + (rng.choice(SPELLED) if rng.random() < 0.2 else "") + rng.choice(["", " ab", "x"]) for text in texts]


@pytest.mark.parametrize("name", tokenizers())
@pytest.mark.parametrize("remembered", [0, 3, 1 << 17])
def test_ids_are_those_of_the_library(name: str, remembered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_REMEMBERED", remembered)
    tokenizer = tokenizers()[name]
    names = OWN_NAMES if name != "of bytes" else {"eos_token": "<|endoftext|>"}
    special = special_tokens(tokenizer, names)
    texts = [*TEXTS, "", "a" * 300, "b" * 90 + " ab", *random_texts(1500)]
    ids_of = TextIds(tokenizer, special)
    expected = by_the_library(tokenizer, special, texts)
    assert [list(ids) for ids in ids_of(texts)] == expected
    assert [list(ids) for ids in ids_of(texts[::-1])] == expected[::-1]  # whatever is remembered by then


@pytest.mark.parametrize("wrong", ["an added token", "an added token of several words", "half a surrogate", "a sign"])
def test_words_that_are_cut_otherwise_are_caught(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong: added tokens cut like words, a text with half a surrogate in parts, a sign that belongs to a word."""
    tokenizer = tokenizers()["lower case" if wrong == "half a surrogate" else "added tokens of several words"]
    special = special_tokens(tokenizer, OWN_NAMES)
    ids_of, texts = TextIds(tokenizer, special), random_texts(1500)
    if wrong == "an added token":
        ids_of._added = set()
    elif wrong == "an added token of several words":
        ids_of._has_spaces = False
    elif wrong == "half a surrogate":
        words = TextIds._words
        monkeypatch.setattr(TextIds, "_words", lambda own, text: words(own, text.encode("utf-8", "ignore").decode()))
    else:
        monkeypatch.setattr(encode, "_WORDS", lambda text: text.replace("'", "q").split())
    assert [list(ids) for ids in ids_of(texts)] != by_the_library(tokenizer, special, texts)

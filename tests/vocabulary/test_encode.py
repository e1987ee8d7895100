"""Texts to tokens: what the tokenizer itself gives, and no tokens for the text that it gives up on."""

from __future__ import annotations

import pytest
from tokenizers import Regex
from tokenizers.normalizers import Replace

from tacit.vocabulary.encode import encode_texts

from ..folders import wordpiece

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

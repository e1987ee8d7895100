"""A given tokenizer: transformers' own ids, special tokens wherever they are, and text that spells one is text."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import Split, WhitespaceSplit
from transformers import AutoTokenizer

from tacit.errors import DataError
from tacit.vocabulary.given import read_given, tokenizer_digest
from tacit.vocabulary.special import OWN_NAMES, SpecialTokens, special_tokens
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer, save_tokenizer
from tacit.vocabulary.wordpiece import base_pieces

from .. import folders
from ..folders import END, NAMES, byte_bpe, edit_json, wordpiece

MASK = "<MASK>"
WRITTEN = ("The patient's pain: 37.5°C!", "  two  spaces\n\nand lines ", "naïve жар 🙂", "", "123 fever painless")


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    return folders.save_tokenizer(byte_bpe(), tmp_path / "gpt2", bos_token=END, eos_token=END, unk_token=END)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return folders.save_tokenizer(wordpiece(), tmp_path / "bert", **NAMES)


def text_ids(path: Path, text: str, reserved: tuple[str, ...] = ()) -> list[int]:
    """As a row has them."""
    given = read_given(path, reserved)
    given.tokenizer.encode_special_tokens = True
    return list(given.special.text_ids(given.tokenizer.encode(text, add_special_tokens=False).ids))


# ids -----------------------------------------------------------------------------------------------------------------


def test_our_own_wordpiece_has_todays_ids() -> None:
    pieces = [*base_pieces(TokenizerOptions().alphabet), "pain"]
    for reserved in ((), (MASK,)):
        tokenizer = build_tokenizer(pieces, TokenizerOptions(), reserved)
        found = special_tokens(tokenizer, OWN_NAMES)
        size = len(pieces) + len(reserved)
        assert found == SpecialTokens(0, 2, 3, mask=4, unknown=1, ids=(0, 1, 2, 3, 4), size=size)


def test_gpt2s_token_begins_ends_and_pads(gpt2: Path) -> None:
    for path in (gpt2, gpt2 / "tokenizer.json"):
        found = read_given(path).special
        assert found == SpecialTokens(299, 299, 299, mask=None, unknown=None, ids=(299,), size=300)


def test_berts_tokens_wherever_they_are(bert: Path) -> None:
    ids = {token: read_given(bert).tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}
    assert len({number // 5 for number in ids.values()}) > 3, "they are not together"
    for path in (bert, bert / "tokenizer.json"):
        found = read_given(path)
        pad, unknown, start, end, mask = (ids[token] for token in SPECIAL_TOKENS)
        size = found.tokenizer.get_vocab_size()
        assert found.special == SpecialTokens(pad, start, end, mask, unknown, tuple(sorted(ids.values())), size)
        assert found.names == OWN_NAMES


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_ids_are_those_of_transformers(
    name: str, written: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = request.getfixturevalue(name)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was used"))
    expected = AutoTokenizer.from_pretrained(path, local_files_only=True)(written, add_special_tokens=False)
    assert text_ids(path, written) == expected["input_ids"]


def test_cutting_and_padding_that_were_saved_are_not_done(bert: Path) -> None:
    tokenizer = Tokenizer.from_file(str(bert / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(bert / "tokenizer.json"))
    ids = text_ids(bert, "patient pain fever pain patient pain")
    assert len(ids) == 6
    saved = Tokenizer.from_file(str(bert / "tokenizer.json")).encode("patient pain fever pain patient pain")
    assert len(saved.ids) == 9  # the check could fail


# names ---------------------------------------------------------------------------------------------------------------


def test_names_are_read_from_either_file_and_as_objects(bert: Path) -> None:
    """A sep_token that is not the usual one; the config counts before the older file."""
    tokenizer = Tokenizer.from_file(str(bert / "tokenizer.json"))
    tokenizer.add_special_tokens(["<end>", "<other>"])
    tokenizer.save(str(bert / "tokenizer.json"))
    edit_json(bert / "tokenizer_config.json", sep_token=None)
    (bert / "special_tokens_map.json").write_text(json.dumps({"sep_token": {"content": "<end>", "lstrip": False}}))
    assert read_given(bert).names["sep_token"] == "<end>"
    edit_json(bert / "tokenizer_config.json", sep_token="<other>")
    assert read_given(bert).names["sep_token"] == "<other>"
    assert read_given(bert).special.end == tokenizer.token_to_id("<other>")


def test_a_name_without_a_token_is_none(gpt2: Path) -> None:
    """transformers would add the token when it loads the folder; the ids here are those of tokenizer.json."""
    edit_json(gpt2 / "tokenizer_config.json", pad_token="<nothing>", mask_token="<nothing>")
    found = read_given(gpt2)
    assert "pad_token" not in found.names
    assert (found.special.pad, found.special.mask, found.special.size) == (299, None, 300)


def test_a_usual_name_counts_for_a_special_token_only(tmp_path: Path) -> None:
    """ "<s>" may be a word."""
    words = {word: number for number, word in enumerate(["<s>", "a", "b", "<unk>"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = read_given(tmp_path)
    assert found.names == {"eos_token": "</s>", "unk_token": "<unk>"}
    assert found.special.ids == (3, 4)
    assert text_ids(tmp_path, "a <s> c") == [1, 0, 3]


# special tokens in a text --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_a_special_token_of_bert_that_stands_in_a_text_is_text(bert: Path, token: str) -> None:
    reserved = set(read_given(bert).special.ids)
    assert not reserved & set(text_ids(bert, f"the {token} pain"))
    assert reserved & set(read_given(bert).tokenizer.encode(f"the {token} pain", add_special_tokens=False).ids)


def test_a_special_token_of_gpt2_that_stands_in_a_text_is_text(gpt2: Path) -> None:
    found = read_given(gpt2)
    ids = text_ids(gpt2, f"one{END} two")
    assert 299 not in ids
    assert found.tokenizer.decode(ids) == f"one{END} two"
    assert 299 in found.tokenizer.encode(f"one{END} two").ids


def test_a_special_token_that_is_a_word_of_the_model_is_an_unknown_word(tmp_path: Path) -> None:
    """A unigram model has it among its pieces, so that cutting the text first does not help."""
    tokenizer = Tokenizer(Unigram([("</s>", 0.0), ("a", -1.0), ("b", -1.0), ("<unk>", -9.0)], unk_id=3))
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = read_given(tmp_path)
    found.tokenizer.encode_special_tokens = True
    assert found.tokenizer.encode("a</s>b", add_special_tokens=False).ids == [1, 0, 2], "so it has to be caught"
    assert text_ids(tmp_path, "a</s>b") == [1, 3, 2]
    assert text_ids(tmp_path, "azb") == [1, 3, 2], "an unknown character stays one"


def test_without_an_unknown_token_such_a_word_is_left_out() -> None:
    special = SpecialTokens(pad=0, start=0, end=4, mask=None, unknown=None, ids=(0, 4), size=5)
    assert list(special.text_ids([1, 0, 2, 4, 4, 3])) == [1, 2, 3]


# the mask of redacted text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_mask_that_is_no_token_is_added_last_and_read_whole(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = request.getfixturevalue(name)
    before, found = read_given(path), read_given(path, (MASK,))
    assert (before.added, found.added) == (0, 1)
    assert found.tokenizer.token_to_id(MASK) == before.special.size == found.special.size - 1
    assert found.special.ids == before.special.ids, "it is a word of the text"
    ids = text_ids(path, f"pain {MASK}, {MASK}", (MASK,))
    assert ids.count(before.special.size) == 2
    save_tokenizer(found.tokenizer, tmp_path / "saved", 16, found.names)
    again = AutoTokenizer.from_pretrained(tmp_path / "saved", local_files_only=True)
    assert again(f"pain {MASK}, {MASK}", add_special_tokens=False)["input_ids"] == ids
    assert len(again) == found.special.size
    assert read_given(tmp_path / "saved", (MASK,)).added == 0
    assert read_given(tmp_path / "saved", (MASK,)).special == found.special


@pytest.mark.parametrize("special", [True, False])
def test_a_mask_that_is_a_token_already_is_a_word(gpt2: Path, special: bool) -> None:
    """Also where it is named as the tokenizer's own mask, as the paper's authors do with GPT-2's."""
    tokenizer = Tokenizer.from_file(str(gpt2 / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(MASK, special=special)])
    tokenizer.save(str(gpt2 / "tokenizer.json"))
    edit_json(gpt2 / "tokenizer_config.json", mask_token=MASK)
    found = read_given(gpt2, (MASK,))
    assert found.added == 0
    assert found.special.ids == (299,)
    assert found.special.mask is None
    assert text_ids(gpt2, f"a{MASK}b", (MASK,)) == [*text_ids(gpt2, "a"), 300, *text_ids(gpt2, "b")]
    if special:  # known wrong: as it stands, it is spelled in pieces
        assert 300 not in text_ids(gpt2, f"a{MASK}b")


# what is refused -----------------------------------------------------------------------------------------------------


def _gone(path: Path) -> None:
    (path / "tokenizer.json").unlink()


def _broken(path: Path) -> None:
    (path / "tokenizer.json").write_text("{")


def _no_tokenizer(path: Path) -> None:
    (path / "tokenizer.json").write_text('{"model": 1}')


def _broken_config(path: Path) -> None:
    (path / "tokenizer_config.json").write_text("[]")


def _nameless(path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.save(str(path / "tokenizer.json"))


def _stops_at_unknown_words(path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0, "<|endoftext|>": 1}, unk_token="<unk>"))
    tokenizer.save(str(path / "tokenizer.json"))


def _normalised_to_what_it_knows(path: Path) -> None:
    """It spells every rare letter, since its normaliser drops them, and stops at a plain one that it lacks."""
    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz .")}
    tokenizer = Tokenizer(WordLevel({**letters, "<|endoftext|>": len(letters)}, unk_token="<unk>"))
    tokenizer.normalizer = Replace(Regex(r"[^\x00-\x7f]"), "")
    tokenizer.pre_tokenizer = Split(Regex("."), "isolated")
    assert tokenizer.encode("ꙮ𓀀").ids == []  # the text by which this was once tried
    with pytest.raises(Exception, match="Missing"):
        tokenizer.encode("one ~")
    tokenizer.save(str(path / "tokenizer.json"))


def _no_unknown_number(path: Path) -> None:
    Tokenizer(Unigram([("a", -1.0), ("<|endoftext|>", -2.0)], byte_fallback=True)).save(str(path / "tokenizer.json"))


def _unknown_is_an_added_token(path: Path) -> None:
    tokenizer = Tokenizer(WordPiece({"a": 0, "<|endoftext|>": 1}, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.save(str(path / "tokenizer.json"))


def _draws_how_it_cuts(path: Path) -> None:
    tokenizer = Tokenizer(BPE({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}, [("a", "b")], dropout=0.5))
    assert len({tuple(tokenizer.encode("ab").ids) for _ in range(200)}) == 2  # all alike: 2^-199
    tokenizer.save(str(path / "tokenizer.json"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_gone, "has no tokenizer.json"),
        (_broken, "tokenizer.json: no tokenizer that can be read"),
        (_no_tokenizer, "tokenizer.json: no tokenizer that can be read"),
        (_broken_config, "tokenizer_config.json: not JSON"),
        (_nameless, "no token to begin and end a row with"),
        (_stops_at_unknown_words, "cannot spell every text"),
        (_normalised_to_what_it_knows, "cannot spell every text"),
        (_no_unknown_number, "cannot spell every text"),
        (_unknown_is_an_added_token, "cannot spell every text"),
        (_draws_how_it_cuts, "draws at random how it cuts a word"),
    ],
)
def test_what_is_no_tokenizer_is_one_line_that_names_it(
    gpt2: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(gpt2)
    with pytest.raises(DataError, match=message) as caught:
        read_given(gpt2)
    assert str(gpt2) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_path_that_is_not_there_is_no_name_on_a_hub() -> None:
    with pytest.raises(DataError, match="gpt2: no such tokenizer"):
        read_given(Path("gpt2"))


def test_ids_with_gaps_leave_no_place_for_a_mask(tmp_path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"a": 1, "b": 2, "c": 5}, unk_token="a"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "c"}')
    assert read_given(tmp_path).special.ids == (0, 1, 3, 4, 5), "what no token has is never drawn"
    with pytest.raises(DataError, match="gaps"):
        read_given(tmp_path, (MASK,))


def test_the_digest_is_of_all_files(bert: Path) -> None:
    seen = {tokenizer_digest(bert)}
    assert tokenizer_digest(bert) in seen
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bert / name).write_text((bert / name).read_text() + "\n")
        seen.add(tokenizer_digest(bert))
    (bert / "special_tokens_map.json").write_text("{}")
    seen.add(tokenizer_digest(bert))
    (bert / "README.md").write_text("not read")
    seen.add(tokenizer_digest(bert))
    assert len(seen) == 4

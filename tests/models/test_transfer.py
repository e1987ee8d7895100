"""A given BERT with another vocabulary: each new piece begins as the mean of the old pieces of its text, and nothing else changes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertForMaskedLM

from tacit.models.given import load_folder
from tacit.models.transfer import rows_of_pieces, with_vocabulary
from tacit.vocabulary.given import GivenTokenizer, read_given
from tacit.vocabulary.special import OWN_NAMES, special_tokens
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer
from tacit.vocabulary.wordpiece import base_pieces

from ..folders import bert_folder, byte_bpe, save_tokenizer

WORDS = ["patient", "fever", "##ver", "painfever"]  # not all of them are pieces of the folder's tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bert_folder(tmp_path / "given")


def changed(folder: Path, pieces: list[str]) -> tuple[GivenTokenizer, GivenTokenizer, BertForMaskedLM]:
    old = read_given(folder)
    tokenizer = build_tokenizer(pieces, TokenizerOptions())
    special = special_tokens(tokenizer, OWN_NAMES)
    new = GivenTokenizer(tokenizer, OWN_NAMES, special, 0)
    return old, new, with_vocabulary(load_folder(BertForMaskedLM, folder), old, tokenizer, special).eval()


def pieces_backwards() -> list[str]:
    """Our base pieces in another order, and words that the folder's tokenizer cuts."""
    pieces = base_pieces(TokenizerOptions().alphabet)
    special = len(SPECIAL_TOKENS)
    return [*pieces[:special], *WORDS, *reversed(pieces[special:])]


def test_the_same_vocabulary_gives_the_same_model(folder: Path) -> None:
    before = load_folder(BertForMaskedLM, folder)
    old = read_given(folder)
    after = with_vocabulary(before, old, old.tokenizer, old.special)
    states = before.state_dict(), after.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_every_row_is_the_mean_of_what_transformers_cuts_its_text_into(folder: Path) -> None:
    _, new, model = changed(folder, pieces_backwards())
    reference = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    before = load_folder(BertForMaskedLM, folder).bert.embeddings.word_embeddings.weight
    after = model.bert.embeddings.word_embeddings.weight
    assert after.shape == (new.special.size, before.shape[1])
    vocabulary = reference.get_vocab()
    cut = 0
    for piece, number in new.tokenizer.get_vocab().items():
        if piece in vocabulary:
            own = [vocabulary[piece]]
        else:
            own = reference(piece.removeprefix("##"), add_special_tokens=False)["input_ids"]
            cut += len(own) > 1
        torch.testing.assert_close(after[number], before[own].mean(dim=0))
    assert cut >= 2  # the words are no pieces of the old tokenizer
    assert model.config.vocab_size == new.special.size
    assert model.config.pad_token_id == new.special.pad
    assert model.cls.predictions.decoder.weight is after  # still tied
    number = new.tokenizer.get_vocab()["painfever"]
    own = reference("painfever", add_special_tokens=False)["input_ids"]
    assert len(own) > 1
    biases = load_folder(BertForMaskedLM, folder).cls.predictions.bias, model.cls.predictions.bias
    torch.testing.assert_close(biases[1][number], biases[0][own].mean())


def test_an_output_table_of_its_own_is_averaged_as_well(folder: Path) -> None:
    old, (_, new, _) = read_given(folder), changed(folder, pieces_backwards())
    config = load_folder(BertForMaskedLM, folder).config
    config.tie_word_embeddings = False
    torch.manual_seed(4)
    before = BertForMaskedLM(config)
    torch.nn.init.normal_(before.cls.predictions.decoder.weight)
    torch.nn.init.normal_(before.cls.predictions.bias)
    assert not torch.equal(before.cls.predictions.decoder.weight, before.bert.embeddings.word_embeddings.weight)
    after = with_vocabulary(before, old, new.tokenizer, new.special)
    for number, own in enumerate(rows_of_pieces(old, new.tokenizer, new.special)):
        for name in (
            "cls.predictions.decoder.weight",
            "cls.predictions.bias",
            "bert.embeddings.word_embeddings.weight",
        ):
            torch.testing.assert_close(after.get_parameter(name)[number], before.get_parameter(name)[own].mean(dim=0))


def test_a_special_token_begins_as_the_old_one_of_its_role_whatever_it_is_called(folder: Path) -> None:
    old, new, _ = changed(folder, pieces_backwards())
    given = dataclasses.replace(old, special=dataclasses.replace(old.special, mask=17, pad=18, start=19, end=20))
    rows = rows_of_pieces(given, new.tokenizer, new.special)
    special = new.special
    assert special.mask is not None
    assert [rows[number] for number in (special.mask, special.pad, special.start, special.end)] == [
        [17],
        [18],
        [19],
        [20],
    ]


def test_text_of_pieces_that_both_know_is_read_as_before(folder: Path) -> None:
    old, new, model = changed(folder, pieces_backwards())
    text = "x 1 2 y"
    rows = [
        [own.special.start, *own.tokenizer.encode(text, add_special_tokens=False).ids, own.special.end]
        for own in (old, new)
    ]
    assert rows[0] != rows[1]  # other ids
    before = load_folder(BertForMaskedLM, folder).eval()
    with torch.no_grad():
        expected, found = (
            one(input_ids=torch.tensor([ids])).logits[0] for one, ids in ((before, rows[0]), (model, rows[1]))
        )
        wrong = before(input_ids=torch.tensor([rows[1]]) % before.config.vocab_size).logits[0]  # the old table, new ids
    known = old.tokenizer.get_vocab()
    shared = [(known[piece], number) for piece, number in new.tokenizer.get_vocab().items() if piece in known]
    theirs, mine = (torch.tensor(ids) for ids in zip(*shared, strict=True))
    torch.testing.assert_close(found[:, mine], expected[:, theirs])
    assert not torch.allclose(wrong[:, theirs], expected[:, theirs])


def test_a_byte_level_vocabulary_is_read_by_its_text(folder: Path, tmp_path: Path) -> None:
    names = {"pad_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    save_tokenizer(byte_bpe(), tmp_path / "bytes", **names)
    new = read_given(tmp_path / "bytes")
    old = read_given(folder)
    rows = rows_of_pieces(old, new.tokenizer, new.special)
    assert len(rows) == new.special.size
    assert all(rows)
    spaced = [piece for piece in new.tokenizer.get_vocab() if piece.startswith("Ġ") and piece[1:].isalpha()]
    assert spaced
    for piece in spaced:
        own = old.tokenizer.encode(piece[1:], add_special_tokens=False).ids
        assert rows[new.tokenizer.get_vocab()[piece]] == own

"""Local Hugging Face folders as a user has them: a GPT-2 with a byte-level BPE tokenizer, a BERT, an LSTM, small and untrained."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from tacit.models.lstm import LstmConfig, LstmForCausalLM
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions
from tacit.vocabulary.wordpiece import base_pieces

END = "<|endoftext|>"
TEXTS = (
    "the patient reports pain and fever",
    "Is there anything else? Thank you for your help today.",
    "over the hill 123",
)
NAMES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS, strict=True))


def byte_bpe(size: int = 300) -> Tokenizer:
    """As GPT-2's: every text is spelled, and the one special token has the last id."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    alphabet = ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=size - 1, min_frequency=1, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.add_special_tokens([END])
    return tokenizer


def wordpiece() -> Tokenizer:
    """As BERT's, but its special tokens are neither in front nor together, nor in their usual order."""
    pieces = [piece for piece in base_pieces(TokenizerOptions().alphabet) if piece not in SPECIAL_TOKENS]
    for place, token in ((3, "[SEP]"), (50, "[MASK]"), (51, "[PAD]"), (120, "[UNK]")):
        pieces.insert(place, token)
    pieces += ["patient", "pain", "##less", "[CLS]", "fever"]
    tokenizer = Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, **names: str) -> Path:
    """As transformers saves it."""
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder


def gpt2_folder(folder: Path, positions: int = 32, width: int = 16) -> Path:
    """Model and tokenizer; the feed-forward width is left open, as in OpenAI's config."""
    tokenizer = byte_bpe()
    size = tokenizer.get_vocab_size()
    config = GPT2Config(
        vocab_size=size,
        n_positions=positions,
        n_embd=width,
        n_layer=2,
        n_head=2,
        bos_token_id=size - 1,
        eos_token_id=size - 1,
    )
    torch.manual_seed(5)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return save_tokenizer(tokenizer, folder, bos_token=END, eos_token=END, unk_token=END)


def bert_folder(folder: Path, positions: int = 40) -> Path:
    """Model and tokenizer."""
    tokenizer = wordpiece()
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=positions,
        pad_token_id=tokenizer.token_to_id("[PAD]"),
    )
    torch.manual_seed(6)
    BertForMaskedLM(config).save_pretrained(folder)
    return save_tokenizer(tokenizer, folder, **NAMES)


def lstm_folder(folder: Path) -> Path:
    """An LSTM whose table is narrower than its state, with GPT-2's kind of tokenizer."""
    tokenizer = byte_bpe()
    config = LstmConfig(vocab_size=tokenizer.get_vocab_size(), embedding_size=8, hidden_size=12, num_hidden_layers=2)
    torch.manual_seed(7)
    LstmForCausalLM(config).save_pretrained(folder)
    return save_tokenizer(tokenizer, folder, eos_token=END)


FOLDERS = {"gpt2": gpt2_folder, "bert": bert_folder, "lstm": lstm_folder}


def edit_json(path: Path, **values: object) -> None:
    """Replace values; None takes them out."""
    merged = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in merged.items() if value is not None}))

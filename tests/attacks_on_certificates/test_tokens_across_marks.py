"""What is private decides no public token, whatever tokenizer is given (selective DP).

What was wrong: with ``vocabulary.method: given`` a tokenizer without a pre-tokenizer merged pieces across blanks: the private digit
behind "qz" decided whether there is a public token "qz". In 12 of 12 runs the released weights told the digits apart.

And what stands behind a model may move its tokens' places (twenty-third attack): a byte level's post-processor takes each "Ġ" for a
blank. With that letter as the prefix of pieces, private digits stood among the public tokens of 121 of 484 marked lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, WordPiece

from tacit.config import parse_config
from tacit.corpus.units import Unit
from tacit.errors import RefusedError
from tacit.pipeline.marking import in_whole_words
from tacit.planning import make_plan
from tacit.planning.given import given_tokenizer
from tacit.randomness import KeyedRandomness
from tacit.training.marked import split_marks, tokenize_marked
from tacit.vocabulary.special import OWN_NAMES, SpecialTokens, special_tokens
from tacit.vocabulary.tokenizer import (
    SPECIAL_TOKENS,
    TokenizerOptions,
    build_tokenizer,
    normalizer_and_pretokenizer,
    save_tokenizer,
)

from ..dialogues import dialogue_values

STREAMS = KeyedRandomness(bytes(range(32)))
PHASES = [
    {
        "name": "private",
        "plan": "dp",
        "stream": "marked",
        "steps": 3,
        "expected_batch": 20,
        "clip_norm": 0.5,
        "noise_multiplier": 0.9,
        "learning_rate": 1e-2,
    }
]


def across_blanks() -> Tokenizer:
    """A blank is a character like others, and the digit behind it decides how the letters before it are merged."""
    pieces = [*SPECIAL_TOKENS, *map(chr, range(32, 127)), " 4", " 9", "z 4", "qz"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [(" ", "4"), (" ", "9"), ("z", " 4"), ("q", "z")]
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges, unk_token="[UNK]"))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def ours(lowercase: bool = True, reserved: tuple[str, ...] = ()) -> Tokenizer:
    pieces = [*SPECIAL_TOKENS, *map(chr, range(33, 127)), *(f"##{chr(code)}" for code in range(33, 127))]
    return build_tokenizer(pieces, TokenizerOptions(lowercase), reserved)


def with_pre_tokenizer(pre_tokenizer: Any) -> Tokenizer:
    tokenizer = ours()
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def with_normalizer(normalizer: Any) -> Tokenizer:
    tokenizer = ours()
    tokenizer.normalizer = normalizer
    return tokenizer


def given(folder: Path, tokenizer: Tokenizer) -> Any:
    save_tokenizer(tokenizer, folder / "given", 48)
    vocabulary = {"method": "given", "path": str(folder / "given"), "public": True}
    sections = {"marking": {"data_point": "line"}, "phases": PHASES, "allow": ["heuristic:selective-dp"]}
    return parse_config(dialogue_values(folder, units=600, vocabulary=vocabulary, **sections))


def public_tokens(tokenizer: Tokenizer, text: str, secret: str) -> list[int]:
    """Ids of the tokens of a text that are public, where the secret is marked, in whole words."""
    special: SpecialTokens = special_tokens(tokenizer, OWN_NAMES)
    tokenizer.encode_special_tokens = True
    start = text.index(secret)
    runs = in_whole_words(text, [(start, start + len(secret))])
    stream = tokenize_marked([Unit("u", (text,))], [runs], tokenizer, special, 48, STREAMS)
    ids, private = split_marks(stream.ids_ST[0, : stream.lengths_S[0]], special.size)
    return np.asarray(ids)[~private].tolist()


def of_blanks(prefix: str = 12 * "Ġ") -> Tokenizer:
    """Pieces behind a word's first one begin with letters that a byte level's post-processor takes for blanks."""
    letters = [*map(chr, range(33, 127)), "Ġ"]
    pieces = [*SPECIAL_TOKENS, *letters, *(prefix + letter for letter in letters), f"{prefix}234", "ĠĠ"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]", continuing_subword_prefix=prefix))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer_and_pretokenizer(TokenizerOptions(lowercase=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def test_what_moves_places_behind_the_model_is_left_out() -> None:
    """Known wrong: the places that the tokenizer itself gives, of which "234" has none."""
    for tokenizer, text, secret in (
        (of_blanks(), "pin 1234 now", "1234"),
        (of_blanks("##"), "pin ĠĠ now", "ĠĠ"),
    ):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        first, last = text.index(secret), text.index(secret) + len(secret)
        lost = [
            piece
            for piece, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True)
            if piece.endswith(("234", "Ġ")) and not (start < last and first < max(end, start + 1))
        ]
        assert lost
        other = text.replace(secret, "7" * (last - first))
        assert public_tokens(tokenizer, text, secret) == public_tokens(tokenizer, other, "7" * (last - first))


REFUSED = {
    "a prefix of its own": of_blanks(),
    "across blanks": across_blanks(),
    "words by blanks of a kind": with_pre_tokenizer(pre_tokenizers.WhitespaceSplit()),
    "no pre-tokenizer": with_pre_tokenizer(pre_tokenizers.Sequence([])),
    "a normalizer of its own": with_normalizer(normalizers.Replace("q 4", "x 4")),
    "accents kept": with_normalizer(normalizers.BertNormalizer(strip_accents=False)),
}


@pytest.mark.parametrize("form", REFUSED)
def test_a_tokenizer_that_need_not_cut_where_marks_end_is_refused(form: str, tmp_path: Path) -> None:
    config = given(tmp_path, REFUSED[form])
    with pytest.raises(RefusedError, match=r"tokens-across-words.*leave out vocabulary\.method: given"):
        make_plan(config)
    without = config.model_copy(update={"marking": None})
    assert given_tokenizer(without).special.size > 0, "it suits other runs"


@pytest.mark.parametrize("lowercase", [True, False])
def test_one_of_our_form_is_accepted(lowercase: bool, tmp_path: Path) -> None:
    found = given_tokenizer(given(tmp_path, ours(lowercase, ("<MASK>",))))
    assert found.added == 0


def test_public_tokens_are_the_same_whatever_is_private() -> None:
    wrong = [public_tokens(across_blanks(), f"call qz {digit}1 now", f"{digit}1") for digit in "49"]
    assert wrong[0] != wrong[1]  # known wrong
    right = [public_tokens(ours(), f"call qz {digit}1 now", f"{digit}1") for digit in "49"]
    assert right[0] == right[1]


def test_no_added_token_stands_over_the_end_of_a_mark() -> None:
    texts = [(f"see <{word}> now", word) for word in ("MASK", "NAME")]
    one, other = (public_tokens(ours(True, ("<MASK>",)), *text) for text in texts)
    assert one == other
    tokenizer = ours()
    tokenizer.add_tokens([AddedToken("x 4", lstrip=True)])
    one, other = (public_tokens(tokenizer, f"see x {digit} now", str(digit)) for digit in (4, 9))
    assert one == other

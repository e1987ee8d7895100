"""Public word lists: read back as written, cut by the text pipeline, and one clear line for what is no list."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path

import pytest

from tacit.errors import DataError
from tacit.vocabulary import count
from tacit.vocabulary.public_words import count_public_words, read_public_words, write_public_words
from tacit.vocabulary.tokenizer import MAX_WORD_LENGTH, TokenizerOptions, words_of

OPTIONS = TokenizerOptions()


def test_a_list_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    counts = count_public_words(["Fever and cough, fever.", "Жар fever"], OPTIONS)
    assert counts == {"fever": 3, "and": 1, "cough": 1, ",": 1, ".": 1}
    write_public_words(tmp_path / "words.txt", counts)
    assert (tmp_path / "words.txt").read_text().splitlines()[0] == "fever\t3"
    assert read_public_words([tmp_path / "words.txt"], OPTIONS) == counts
    assert count_public_words(["a b b"], OPTIONS, least=2) == {"b": 2}


SIGNS = [
    *"abAB09 .,-'",
    "  ",
    "\n",
    "\t",
    "\r",
    "\x0b",
    "\x0c",
    "\u00a0",
    "\u200b",
    "\x00",
    "é",
    "e\u0301",
    "Ж",
    "中",
    "𝄞",
    "\u2028",
    "[UNK]",
]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("remembered", [1, 1 << 16], ids=["a stretch", "many"])
def test_words_are_counted_as_the_library_cuts_whole_texts(
    lowercase: bool, remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order in which they first stand there, too: of equal counts, it decides pieces."""
    monkeypatch.setattr(count, "_CACHED_CHUNKS", remembered)
    options, rng = TokenizerOptions(lowercase), random.Random(1)
    texts = ["".join(rng.choices(SIGNS, k=rng.randrange(60))) for _ in range(500)] + ["a" * 600, "b" * 90]
    words = [word for text in texts for word in words_of(text, options)]
    wanted = Counter(word for word in words if len(word) <= MAX_WORD_LENGTH and set(word) <= set(options.alphabet))
    assert list(count_public_words(texts, options).items()) == list(wanted.items())


def test_lists_add_up_and_need_no_counts(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("Fever\ncough\n\n")
    with gzip.open(tmp_path / "two.txt.gz", "wt") as file:
        file.write("fever\t10\nx-ray\t2\n")
    paths = [tmp_path / "one.txt", tmp_path / "two.txt.gz"]
    assert read_public_words(paths, OPTIONS) == {"fever": 11, "cough": 1, "x": 2, "-": 2, "ray": 2}


@pytest.mark.parametrize("line", ["fever\t0", "fever\t-1", "fever\tmany", "fever\t1.5", "fever\t"])
def test_a_count_that_is_none_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "words.txt"
    path.write_text(f"cough\t1\n{line}\n")
    with pytest.raises(DataError, match=r"words\.txt:2: behind the tab stands no count"):
        read_public_words([path], OPTIONS)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "bad.gz").write_bytes(b"not gzip")
    for name in ("bad.txt", "bad.gz"):
        with pytest.raises(DataError, match="not UTF-8"):
            read_public_words([tmp_path / name], OPTIONS)
    with pytest.raises(DataError, match="no such file"):
        read_public_words([tmp_path / "none.txt"], OPTIONS)

"""Word lists made from public text: a word a line, with its count there behind a tab where that is known.

The words are released whatever the private text holds, so they cost nothing. They go through the tokenizer's own text pipeline, so
that they are words as it cuts them.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tacit.errors import DataError
from tacit.vocabulary.count import count_words_of_texts, distinct_words
from tacit.vocabulary.tokenizer import TokenizerOptions

__all__ = ["OFTEN", "count_public_words", "read_bytes", "read_public_words", "write_public_words"]

OFTEN = 5
"""Occurrences in a corpus of a word that is worth a place in a list; rarer ones are many, and make no piece of their own."""


def read_bytes(path: Path) -> bytes:
    """A word list's bytes.

    Raises:
        DataError: there is no such file.
    """
    if not path.is_file():
        raise DataError(f"vocabulary.public_words: {path}: no such file; make a list of words from public text")
    return path.read_bytes()


def read_public_words(paths: Iterable[Path], options: TokenizerOptions) -> dict[str, int]:
    """The words of all lists with their counts added up; 1 where a list has none. A line may be cut into several words.

    Raises:
        DataError: a list is missing, not UTF-8 text, or has a count that is no whole number above 0.
    """
    counts: Counter[str] = Counter()
    for path in paths:
        data = read_bytes(path)
        try:
            lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8").splitlines()
        except (OSError, EOFError, UnicodeDecodeError):
            raise DataError(f"{path}: not UTF-8 text, or a damaged gzip file; write the word list again") from None
        for number, line in enumerate(lines, start=1):
            text, tab, count = line.partition("\t")
            if tab and not (count.strip().isascii() and count.strip().isdigit() and int(count) > 0):
                raise DataError(f"{path}:{number}: behind the tab stands no count above 0; write word<TAB>count")
            for word in distinct_words([text], options):
                counts[word] += int(count) if tab else 1
    return dict(counts)


def count_public_words(texts: Iterable[str], options: TokenizerOptions, least: int = 1) -> dict[str, int]:
    """How often each word stands in public text, for `write_public_words`; only those that occur ``least`` times or more."""
    return {word: count for word, count in count_words_of_texts(texts, options).items() if count >= least}


def write_public_words(path: Path, counts: Mapping[str, int]) -> None:
    """A list that `read_public_words` reads, the most frequent words first."""
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    path.write_text("".join(f"{word}\t{count}\n" for word, count in rows), encoding="utf-8")

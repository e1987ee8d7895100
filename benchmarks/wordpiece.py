"""Seconds to train WordPiece from word counts, on generated words with Zipf's counts: one core, pure Python.

Run ``python benchmarks/wordpiece.py [--words 200000] [--size 30000] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from tacit.vocabulary.wordpiece import train_wordpiece

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def generated_counts(words: int, seed: int = 20210801) -> dict[str, int]:
    """Distinct words of one to four syllables, some syllables far more common than others; counts up to 300 million."""
    rng = random.Random(seed)
    syllables = ["".join(rng.choices(ALPHABET, k=rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(1500)]
    lexicon: set[str] = set()
    while len(lexicon) < words:
        places = (int(rng.paretovariate(0.6)) % len(syllables) for _ in range(rng.choice((1, 2, 3, 3, 4))))
        lexicon.add("".join(syllables[place] for place in places))
    ranked = sorted(lexicon)
    rng.shuffle(ranked)
    return {word: 300_000_000 // rank + 1 for rank, word in enumerate(ranked, start=1)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time WordPiece training on generated word counts.")
    parser.add_argument("--words", type=int, default=200_000, help="distinct words")
    parser.add_argument("--size", type=int, default=30_000, help="pieces of the vocabulary")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    counts = generated_counts(arguments.words)
    start = time.perf_counter()
    pieces = train_wordpiece(counts, arguments.size, ALPHABET)
    seconds = time.perf_counter() - start
    if arguments.json:
        print(json.dumps({"benchmark": "wordpiece", "words": len(counts), "pieces": len(pieces), "seconds": seconds}))
    else:
        print(f"{len(pieces)} pieces from {len(counts)} distinct words in {seconds:.1f} s")


if __name__ == "__main__":
    main()

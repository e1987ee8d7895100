"""Generated text for the vocabulary's tests: words of syllables, with Zipf's frequencies."""

from __future__ import annotations

import random

import pytest


@pytest.fixture(scope="package")
def generated_texts() -> list[str]:
    """400 texts of 150 words from a lexicon of 3,000, with capitals, accents, digits and punctuation."""
    rng = random.Random(20210801)
    syllables = [onset + vowel + coda for onset in "bcdfgklmnprst" for vowel in "aeiou" for coda in ("", "n", "r", "s")]
    lexicon = ["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 4)))) for _ in range(3000)]
    lexicon[10:20] = ["37.5°C", "120/80", "Énorme", "µg", "x-ray", "q.i.d.", "I", "A", "2", "co-op"]
    frequencies = [1 / (rank + 3) for rank in range(len(lexicon))]
    sentences = (rng.choices(lexicon, frequencies, k=150) for _ in range(400))
    return [", ".join((words[0].capitalize(), " ".join(words[1:]) + ".")) for words in sentences]

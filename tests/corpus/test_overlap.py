"""Text that two corpora share, against a count of the runs of words themselves."""

from __future__ import annotations

import random

import pytest

from tacit.corpus.overlap import RunIndex, word_runs


def runs_of(text: str) -> set[tuple[str, ...]]:
    """The oracle: text of the test's own alphabet, so that white space cuts words."""
    words = text.split()
    return {tuple(words[start : start + 6]) for start in range(len(words) - 5)}


def made(generator: random.Random, length: int) -> str:
    return " ".join(generator.choice("abc") for _ in range(length))


def test_the_likest_text_is_the_one_with_the_largest_share() -> None:
    generator = random.Random(1)
    texts = [made(generator, generator.randrange(0, 60)) for _ in range(40)]
    index = RunIndex(texts)
    compared = 0
    for _ in range(200):
        own = made(generator, generator.randrange(0, 30))
        both = [len(runs_of(own) & runs_of(text)) for text in texts]
        shares = [
            count / min(len(runs_of(own)), len(runs_of(text))) if count else 0.0
            for count, text in zip(both, texts, strict=True)
        ]
        found = index.likest(own)
        if found is None:
            assert max(shares) == 0
            continue
        compared += 1
        assert found.share == pytest.approx(max(shares))
        assert found.share == pytest.approx(shares[found.text])
        assert found.runs == both[found.text]
    assert compared > 100


def test_case_and_punctuation_do_not_count_and_letters_of_all_scripts_do() -> None:
    assert (
        word_runs("The patient, a MAN of 86, returns.").tolist()
        == word_runs("the patient a man of 86 returns").tolist()
    )
    first, second = "Пациент жалуется на боль в груди", "Пациент жалуется на боль в спине"
    assert len(word_runs(first)) == 1
    assert RunIndex([first]).likest(second) is None


def test_a_run_that_occurs_often_counts_once() -> None:
    text = "no known drug allergies at all " * 5
    assert len(word_runs(text)) == 6
    shared = RunIndex([text]).likest(text)
    assert shared is not None
    assert (shared.runs, shared.share) == (6, 1.0)


def test_a_short_text_does_not_hide_a_longer_one() -> None:
    copied = " ".join(f"word{number}" for number in range(60))
    index = RunIndex(["one two three four five six", copied])
    public = (
        f"one two three four five six {' '.join(f'other{number}' for number in range(60))} {copied[: len(copied) // 2]}"
    )
    first, found = index.likest(public), index.likest(public, 10)
    assert first is not None
    assert (first.text, first.runs, first.share) == (0, 1, 1.0)
    assert found is not None
    assert found.text == 1
    assert 10 <= found.runs < 55
    assert index.likest(public, 1000) is None


@pytest.mark.parametrize("text", ["", "five words are not enough", "...!"])
def test_a_text_without_a_run_shares_nothing(text: str) -> None:
    assert RunIndex([text]).likest(text) is None
    assert RunIndex([]).likest(text) is None
    assert RunIndex(["a b c d e f"]).likest(text) is None

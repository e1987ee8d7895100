"""Entity counts against seqeval and by hand; folds, intervals and baselines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.scheme import IOB2

from tacit.corpus.annotated import AnnotatedDocument, Sentence
from tacit.entities.baselines import dictionary, majority
from tacit.entities.estimates import bootstrap_estimate, f1_of, fold_estimate
from tacit.entities.folds import k_folds
from tacit.entities.scores import add_counts, entity_counts, score_of
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness

from .documents import TAGS, telling_documents

STREAMS = KeyedRandomness(bytes(range(32)))


def test_counts_by_hand() -> None:
    true = [["B-problem", "I-problem", "O", "B-test"], ["O", "B-problem"]]
    predicted = [["B-problem", "I-problem", "O", "B-problem"], ["I-problem", "B-problem"]]
    counts = entity_counts(true, predicted)
    assert counts == {"problem": (2, 3, 2), "test": (0, 0, 1)}
    assert score_of(counts).f1 == pytest.approx(2 * 2 / (3 + 3))
    assert score_of(counts, "test").f1 == 0
    assert add_counts([counts, counts]) == {"problem": (4, 6, 4), "test": (0, 0, 2)}
    assert (score_of({}).precision, score_of({}).recall, score_of({}).f1) == (0, 0, 0)


def test_a_longer_entity_is_another_one_and_an_i_alone_is_none() -> None:
    assert score_of(entity_counts([["B-test", "O"]], [["B-test", "I-test"]])).f1 == 0
    assert entity_counts([["O", "O"]], [["O", "I-test"]]) == {}


@pytest.mark.parametrize("seed", range(10))
def test_ratios_are_those_of_seqeval(seed: int) -> None:
    generator = np.random.default_rng(seed)
    true = [list(sentence.tags) for one in telling_documents(5, generator) for sentence in one.sentences]
    predicted = [[TAGS[generator.integers(5)] if generator.random() < 0.4 else tag for tag in tags] for tags in true]
    found = score_of(entity_counts(true, predicted))
    for mine, theirs in ((found.f1, f1_score), (found.precision, precision_score), (found.recall, recall_score)):
        assert mine == pytest.approx(theirs(true, predicted, mode="strict", scheme=IOB2), abs=1e-12)


# folds ---------------------------------------------------------------------------------------------------------------


def documents(texts: list[str]) -> list[AnnotatedDocument]:
    made = [Sentence(tuple(text.split()), ("O",) * len(text.split()), ()) for text in texts]
    return [AnnotatedDocument(f"{n}", Path("made-up"), (sentence,), True) for n, sentence in enumerate(made)]


@pytest.mark.parametrize("folds", [2, 3, 7])
def test_every_document_is_tested_once_and_no_text_is_on_both_sides(folds: int) -> None:
    texts = [f"text {n % 17}" for n in range(40)]
    splits = k_folds(documents(texts), folds, STREAMS)
    tested = sorted(int(one.document_id) for split in splits for one in split.test)
    assert tested == list(range(40))
    for split in splits:
        assert not {one.content() for one in split.training} & {one.content() for one in split.test}
        assert len(split.training) + len(split.test) == 40
        assert abs(len(split.test) - 40 / folds) <= 3


def test_folds_are_a_function_of_key_and_texts_and_too_few_are_refused() -> None:
    def tests(key: int, order: int) -> list[set[str]]:
        splits = k_folds(documents([f"text {n}" for n in range(20)][::order]), 4, KeyedRandomness(bytes([key] * 32)))
        return sorted({one.tokens[1] for one in split.test} for split in splits)

    assert sorted(map(sorted, tests(1, 1))) == sorted(map(sorted, tests(1, -1)))
    assert sorted(map(sorted, tests(1, 1))) != sorted(map(sorted, tests(2, 1)))
    with pytest.raises(DataError, match="too few for 3 folds"):
        k_folds(documents(["a b", "a b", "c"]), 3, STREAMS)


# intervals -----------------------------------------------------------------------------------------------------------


def test_the_interval_of_folds_is_nadeau_and_bengios() -> None:
    values = np.array([[0.5, 0.7], [0.6, 0.8], [0.4, 0.6], [0.7, 0.7], [0.6, 0.6]])
    means = values.mean(axis=1)
    error = np.sqrt(means.var(ddof=1) * (1 / 5 + 1 / 4))
    found = fold_estimate(values)
    assert found.mean == pytest.approx(means.mean())
    assert found.high is not None
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 4) * error)
    naive = stats.t.ppf(0.975, 4) * means.std(ddof=1) / np.sqrt(5)
    assert found.high - found.mean > 1.49 * naive
    assert fold_estimate(values[:1]).low is None


def test_the_bootstrap_covers_the_choice_of_documents() -> None:
    """Against the normal approximation for documents with one entity each, found with probability 0.7."""
    generator = np.random.default_rng(1)
    right = (generator.random(400) < 0.7).astype(int)
    counts = np.stack([right, np.ones(400, int), np.ones(400, int)], axis=-1)[None]
    found = bootstrap_estimate(counts)
    assert found.mean == pytest.approx(f1_of(counts.sum(axis=1))[0])
    margin = 1.96 * np.sqrt(found.mean * (1 - found.mean) / 400)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low == pytest.approx(2 * margin, rel=0.1)
    same = bootstrap_estimate(counts, counts)
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    twice = bootstrap_estimate(np.concatenate([counts, counts]))
    assert twice == found  # a second seed that says the same is no more documents


# baselines -----------------------------------------------------------------------------------------------------------


def annotated(text: str, tags: str) -> AnnotatedDocument:
    names = {"o": "O", "b": "B-problem", "i": "I-problem", "t": "B-test"}
    sentence = Sentence(tuple(text.split()), tuple(names[tag] for tag in tags.split()), ())
    return AnnotatedDocument(text, Path("made-up"), (sentence,), True)


TRAINING = [
    annotated("chest pain and fever", "b i o b"),
    annotated("Chest pain after CT", "b i o t"),
    annotated("the chest is clear , pain free", "o o o o o b o"),
    annotated("no fever , fever or fever", "o o o o o o"),
]


def test_the_likeliest_tag_of_each_word() -> None:
    assert majority(TRAINING)(["CHEST", "pain", "fever", "ct", "new"]) == ["B-problem", "I-problem", "O", "B-test", "O"]


def test_the_dictionary_takes_the_longest_phrases() -> None:
    tag = dictionary(TRAINING)
    assert tag(["old", "chest", "pain", ",", "pain"]) == [
        "O",
        "B-problem",
        "I-problem",
        "O",
        "O",
    ]  # pain alone: one in three
    assert tag(["fever", "and", "CT"]) == ["O", "O", "B-test"]  # fever: an entity in one of four places
    assert tag([]) == []
    assert dictionary([])(["pain"]) == ["O"]

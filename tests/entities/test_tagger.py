"""The whole way from documents to F1 through rows and windows, and the clipped sum of its loss against autograd."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2
from transformers import AutoModelForTokenClassification

from tacit.config import ComputeOptions
from tacit.corpus.annotated import AnnotatedDocument, Sentence, units_of
from tacit.entities import rows as rows_module
from tacit.entities.rows import RowCutter, split_labels
from tacit.entities.scores import add_counts, entity_counts, score_of
from tacit.entities.tagger import EntityObjective, load_tagger, predict_tags, row_labels
from tacit.entities.windows import Window, cut_windows
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan
from tacit.training.sequences import SequenceStream
from tacit.training.unit_rows import Source

from ..folders import bert_folder, edit_json, gpt2_folder
from .documents import (
    LENGTH,
    TAGS,
    ContextModel,
    TellingModel,
    random_tags,
    tags_of,
    telling_cutter,
    telling_documents,
    tiny_tagger,
)

STREAMS = KeyedRandomness(bytes(range(32)))
Tags = list[list[list[str]]]


def f1(documents: Sequence[AnnotatedDocument], predicted: Tags) -> float:
    """Ours."""
    counts = [entity_counts(true, tags) for true, tags in zip(tags_of(documents), predicted, strict=True)]
    return score_of(add_counts(counts)).f1


def pipeline_f1(model: Any, cutter: RowCutter, seed: int = 0) -> float:
    documents = telling_documents(12, np.random.default_rng(seed))
    return f1(documents, predict_tags(row_labels(model), cutter, documents))


@pytest.mark.parametrize("overlap", [0, 1, 4, 9])
@pytest.mark.parametrize("length", [8, 12, 200])
def test_an_identity_reaches_1(overlap: int, length: int) -> None:
    if overlap < length - 2:
        assert pipeline_f1(TellingModel(), telling_cutter(overlap, length)) == 1.0


def test_rows_of_single_sentences_reach_1_too() -> None:
    cutter = dataclasses.replace(telling_cutter(), by_sentence=True)
    assert pipeline_f1(TellingModel(), cutter) == 1.0
    assert pipeline_f1(TellingModel(), dataclasses.replace(cutter, length=200)) == 1.0


def test_an_entity_on_the_cut_of_two_windows_is_not_lost() -> None:
    """A model that needs one word of context: without the overlap it breaks entities, which the same check must see."""
    assert pipeline_f1(ContextModel(), telling_cutter(overlap=8)) == 1.0
    assert pipeline_f1(ContextModel(), telling_cutter(overlap=0)) < 0.9


def judge_all(sizes: Sequence[int], room: int, overlap: int) -> list[Window]:
    """Known wrong: the overlap is judged twice."""
    return [Window(one.first, one.last, one.first, one.last) for one in cut_windows(sizes, room, overlap)]


def judge_no_overlap(sizes: Sequence[int], room: int, overlap: int) -> list[Window]:
    """Known wrong: what two windows share is dropped."""
    windows = cut_windows(sizes, room, overlap)
    ends = [*(one.first for one in windows[1:]), len(sizes)]
    starts = [0, *(one.last for one in windows[:-1])]
    return [
        Window(one.first, one.last, min(start, end), end) for one, start, end in zip(windows, starts, ends, strict=True)
    ]


def one_too_far(sizes: Sequence[int], room: int, overlap: int) -> list[Window]:
    """Known wrong: the right number of words, but each is given to the next one."""
    windows = cut_windows(sizes, room, overlap)
    if len(windows) < 2:
        return windows
    first, last = windows[0], windows[-1]
    shifted = Window(first.first, first.last, 1, first.judged_last)
    twice = Window(last.first, last.last, last.judged_first, last.judged_last)
    return [shifted, *windows[1:-1], Window(last.first, last.last, last.judged_first - 1, twice.judged_last)]


@pytest.mark.parametrize("wrong", [judge_all, judge_no_overlap, one_too_far])
def test_wrong_windows_are_caught(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    monkeypatch.setattr(rows_module, "cut_windows", wrong)
    try:
        found = pipeline_f1(TellingModel(), telling_cutter())
    except ValueError:  # a word that was judged not at all, or twice
        found = 0.0
    assert found < 0.99


@pytest.mark.parametrize("seed", range(5))
def test_f1_of_random_tags_is_that_of_seqeval(seed: int) -> None:
    """The words say a random tag, well-formed or not; the truth is another one. seqeval judges the sentences by itself."""
    generator = np.random.default_rng(seed)
    said = telling_documents(8, generator)
    documents: list[AnnotatedDocument] = []
    words: list[AnnotatedDocument] = []
    for document in said:
        truth = [tuple(random_tags(len(one.tags), generator)) for one in document.sentences]
        spoilt = [
            tuple(TAGS[generator.integers(len(TAGS))] if generator.random() < 0.2 else tag for tag in tags)
            for tags in truth
        ]
        tokens = [tuple(f"t{TAGS.index(tag)}xx" for tag in tags) for tags in spoilt]
        make = [Sentence(one, tags, ()) for one, tags in zip(tokens, truth, strict=True)]
        documents.append(AnnotatedDocument(document.document_id, Path("made-up"), tuple(make), True))
        words.append(
            AnnotatedDocument(document.document_id, Path("made-up"), tuple(map(Sentence, tokens, spoilt, tokens)), True)
        )
    predicted = predict_tags(row_labels(TellingModel()), telling_cutter(), documents)
    assert predicted == tags_of(words)
    truths = [list(sentence.tags) for document in documents for sentence in document.sentences]
    flat = [tags for document in predicted for tags in document]
    expected = f1_score(truths, flat, mode="strict", scheme=IOB2)
    assert 0.2 < expected < 0.9
    assert f1(documents, predicted) == pytest.approx(expected, abs=1e-12)


def test_rows_carry_the_label_at_a_words_first_piece_alone() -> None:
    cutter = telling_cutter()
    (document,) = telling_documents(1, np.random.default_rng(3))
    stream = cutter.rows([document], STREAMS)
    pieces_ST, labels_ST = split_labels(stream.ids_ST, cutter.special.size)
    judged = labels_ST[labels_ST >= 0]
    assert [TAGS[label] for label in judged] == document.tags
    assert np.array_equal(pieces_ST[labels_ST >= 0] - 5, judged)  # the piece itself names the tag
    assert stream.sequences > 2
    for row, length in zip(pieces_ST, stream.lengths_S, strict=True):
        assert (row[0], row[length - 1]) == (cutter.special.start, cutter.special.end)


def test_a_word_without_pieces_or_with_too_many_is_judged_too() -> None:
    cutter = telling_cutter()
    sentence = Sentence(("\u00a0", "t1" + "x" * 60, "t0"), ("O", "B-problem", "O"), (1, 2, 3))
    document = AnnotatedDocument("a", Path("made-up"), (sentence,), True)
    ((tags,),) = predict_tags(row_labels(TellingModel()), cutter, [document])
    assert len(tags) == 3
    assert tags[1:] == ["B-problem", "O"]


# the loss under the engine -------------------------------------------------------------------------------------------

PLAN = DpPlan(sampling_probability=0.5, clip_norm=0.4, noise_multiplier=0.0, normaliser=1.0, sequences_per_unit=2)


class OverTheBatch(EntityObjective):
    """Known wrong: the mean over the tokens of the batch, which couples its units."""

    def losses(self, model, arrays, weights_BN):
        return super().losses(model, arrays, weights_BN) * (weights_BN > 0).sum() / 10


def step_sum(
    objective: EntityObjective, stream: SequenceStream, chosen: np.ndarray, micro_batch: int, clip_norm: float
) -> torch.Tensor:
    model = tiny_tagger(telling_cutter())
    compute = ComputeOptions(micro_batch=micro_batch, threads=1)
    plan = dataclasses.replace(PLAN, clip_norm=clip_norm)
    with contextlib.closing(DpStep(model, plan, compute, Source(stream, objective, STREAMS))) as step:
        for _ in step.add_up(0, chosen, 0):
            pass
    return torch.cat([p.grad.flatten() for _, p in sorted(model.named_parameters()) if p.grad is not None])


def autograd_sum(stream: SequenceStream, chosen: np.ndarray, clip_norm: float) -> torch.Tensor:
    """transformers' own loss of each unit alone, clipped and added up."""
    size = telling_cutter().special.size
    total: torch.Tensor | None = None
    for unit in chosen:
        own = stream.choose_rows(int(unit), 2, STREAMS.generator("unit", 0, stream.keys_U[unit]))
        pieces, labels = split_labels(stream.ids_ST[own].astype(np.int64), size)
        attention = (np.arange(LENGTH) < stream.lengths_S[own][:, None]).astype(np.int64)
        arrays = [torch.from_numpy(array) for array in (pieces, attention, np.where(labels >= 0, labels, -100))]
        model = tiny_tagger(telling_cutter())
        model(input_ids=arrays[0], attention_mask=arrays[1], labels=arrays[2]).loss.backward()
        gradient = torch.cat([p.grad.flatten() for _, p in sorted(model.named_parameters()) if p.grad is not None])
        clipped = gradient * min(1.0, clip_norm / float(gradient.norm()))
        total = clipped if total is None else total + clipped
    assert total is not None
    return total


def test_all_documents_of_a_user_are_clipped_as_one() -> None:
    documents = telling_documents(6, np.random.default_rng(5))
    cutter, clip_norm = telling_cutter(), 0.4
    users = [dataclasses.replace(document, user_id=f"u{number % 2}") for number, document in enumerate(documents)]
    stream = cutter.unit_rows(units_of(users, "user"), STREAMS)
    assert stream.units == 2
    apart = cutter.rows(documents, STREAMS)
    order = [row for first in (0, 1) for number in (first, first + 2, first + 4) for row in apart.rows_of(number)]
    assert np.array_equal(stream.ids_ST, apart.ids_ST[order])  # no row holds words of two documents
    one = step_sum(EntityObjective(cutter.special.size), stream, np.array([0]), 3, clip_norm)
    assert float(one.norm()) <= clip_norm * (1 + 1e-6)
    wrong = step_sum(EntityObjective(cutter.special.size), apart, np.array([0, 2, 4]), 3, clip_norm)
    assert float(wrong.norm()) > 1.2 * clip_norm  # known wrong: each document of the user clipped by itself


CHOSEN = np.array([0, 2, 3, 5])
CLIP_NORMS = [0.4, 1e6]
"""Below all of the units' norms, and above them: there the units' shares show."""


def check_sum(objective: type[EntityObjective], micro_batch: int, clip_norm: float) -> None:
    stream = telling_cutter().rows(telling_documents(6, np.random.default_rng(5)), STREAMS)
    found = step_sum(objective(telling_cutter().special.size), stream, CHOSEN, micro_batch, clip_norm)
    torch.testing.assert_close(found, autograd_sum(stream, CHOSEN, clip_norm), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("clip_norm", CLIP_NORMS)
@pytest.mark.parametrize("micro_batch", [2, 4, 64])
def test_the_clipped_sum_is_that_of_autograd_unit_by_unit(micro_batch: int, clip_norm: float) -> None:
    check_sum(EntityObjective, micro_batch, clip_norm)


def test_a_mean_over_the_batch_is_caught() -> None:
    with pytest.raises(AssertionError, match="not close"):
        check_sum(OverTheBatch, 64, CLIP_NORMS[1])


# loading -------------------------------------------------------------------------------------------------------------


def test_a_tagger_from_a_folder_keeps_the_body_and_draws_the_head(tmp_path: Path) -> None:
    bert_folder(tmp_path)
    edit_json(tmp_path / "config.json", classifier_dropout=0.4)
    one, same, other = (load_tagger(tmp_path, TAGS, seed, 0.1) for seed in (3, 3, 4))
    body = AutoModelForTokenClassification.from_pretrained(tmp_path).bert.state_dict()
    for model in (one, other):
        for name, tensor in model.bert.state_dict().items():
            assert torch.equal(tensor, body[name]), name
    assert torch.equal(one.classifier.weight, same.classifier.weight)
    assert not torch.equal(one.classifier.weight, other.classifier.weight)
    assert one.config.id2label == dict(enumerate(TAGS))
    assert one.config.hidden_dropout_prob == one.dropout.p == 0.1
    fresh = load_tagger(tmp_path, TAGS, 3, 0.0, from_scratch=True)
    assert not torch.equal(fresh.bert.embeddings.word_embeddings.weight, one.bert.embeddings.word_embeddings.weight)


def test_a_head_of_another_task_is_left_out(tmp_path: Path) -> None:
    bert_folder(tmp_path / "a")
    load_tagger(tmp_path / "a", TAGS, 3, 0.0).save_pretrained(tmp_path / "b")
    found = load_tagger(tmp_path / "b", ("O", "B-x", "I-x"), 4, 0.0)
    assert found.classifier.out_features == 3


def test_other_folders_are_refused(tmp_path: Path) -> None:
    gpt2_folder(tmp_path / "gpt2")
    with pytest.raises(DataError):
        load_tagger(tmp_path / "gpt2", TAGS, 0, 0.0)
    bert_folder(tmp_path / "bert")
    edit_json(tmp_path / "bert" / "config.json", hidden_size=20)
    with pytest.raises(DataError, match="cannot be read"):
        load_tagger(tmp_path / "bert", TAGS, 0, 0.0)

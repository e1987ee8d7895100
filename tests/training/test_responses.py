"""The loss on responses alone: each step, and the evaluation, against plain autograd in float64 over the tokens that count."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2LMHeadModel

from tacit.config import ComputeOptions, ModelOptions
from tacit.corpus.chats import Message, chat_text, read_exchange
from tacit.corpus.units import Unit
from tacit.errors import UsageError
from tacit.evaluation.causal_lm import score_units, unigram
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.objectives import CausalObjective
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plain_step import PlainStep
from tacit.training.plans import DpPlan, PlainPlan
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.training.steps import Step
from tacit.training.sums import sums_digest
from tacit.training.unit_rows import Source
from tacit.vocabulary.chat_template import ChatTemplate, default_template
from tacit.vocabulary.chats import ChatEncoder
from tacit.vocabulary.special import special_tokens

from ..folders import END, byte_bpe
from ..networks import build_gpt2
from .streams import OBJECTIVE

STREAMS = KeyedRandomness(bytes(range(32)))
LENGTH, VOCABULARY = 12, 300
STEP = 3
SILENT = DpPlan(sampling_probability=0.5, clip_norm=0.4, noise_multiplier=0.0, normaliser=1.0, sequences_per_unit=3)
TOKENIZER = byte_bpe(VOCABULARY)
NAMES = {"eos_token": END}
SPECIAL = special_tokens(TOKENIZER, NAMES)
CHATS = ChatEncoder(TOKENIZER, SPECIAL, NAMES, ChatTemplate(default_template(END, END), "default"))


def talk(*contents: str) -> str:
    return chat_text([Message(("user", "assistant")[place % 2], content) for place, content in enumerate(contents)])


UNITS = [
    Unit("long", (talk("the patient reports pain and fever", "over the hill 123 " * 4, "ok", "thank you"),)),
    Unit("two texts", (talk("hill", "123"), read_exchange("over the", "hill"))),
    Unit("plain", ("Is there anything else? Thank you for your help today.",)),
    Unit("asks only", (talk("Is there anything else?"),)),
    Unit("without", ()),
    Unit("short", (talk("a", "b"),)),
]


def stream_of(units: Sequence[Unit] = UNITS, length: int = LENGTH) -> SequenceStream:
    return tokenize_units(units, TOKENIZER, SPECIAL, length, STREAMS, CHATS)


def two_tokens() -> SequenceStream:
    """A unit whose one row has two tokens, as the end of a long conversation has, beside others."""
    stream = stream_of()
    ids_ST = np.concatenate([stream.ids_ST, stream.ids_ST[:1]])
    counted_ST = np.concatenate([_counted(stream), np.arange(LENGTH)[None] == 1])
    return SequenceStream(
        ids_ST,
        np.append(stream.lengths_S, 2),
        np.append(stream.starts_U1, len(ids_ST)),
        (*stream.keys_U, "two"),
        counted_ST=counted_ST,
    )


def _counted(stream: SequenceStream) -> np.ndarray:
    assert stream.counted_ST is not None
    return stream.counted_ST


def model() -> GPT2LMHeadModel:
    options = ModelOptions(kind="gpt2", layers=1, width=8, heads=2, length=LENGTH)
    built = build_gpt2(options, VOCABULARY, SPECIAL.pad, SPECIAL.start, SPECIAL.end, seed=4)
    torch.nn.Module.double(built)
    return built


# the oracle: one row at a time, torch's cross-entropy, only where the mask says -----------------------------------------


def row_losses(network: GPT2LMHeadModel, stream: SequenceStream, row: int, counted_T: np.ndarray) -> torch.Tensor:
    """Cross-entropy of each token of a row that counts."""
    ids_T = torch.from_numpy(stream.ids_ST[row, : stream.lengths_S[row]].astype(np.int64))
    logits = network(input_ids=ids_T[None]).logits[0]
    places = [place for place in range(1, len(ids_T)) if counted_T[place]]
    return cross_entropy(logits[[place - 1 for place in places]], ids_T[places], reduction="none")


def unit_gradient(stream: SequenceStream, unit: int) -> torch.Tensor:
    network = model()
    generator = STREAMS.generator("unit", STEP, stream.keys_U[unit])
    rows = stream.choose_rows(unit, SILENT.sequences_per_unit, generator)
    losses = [row_losses(network, stream, row, _counted(stream)[row]) for row in rows]
    if sum(map(len, losses)):
        torch.cat(losses).mean().backward()
    return flat(network)


def flat(network: GPT2LMHeadModel) -> torch.Tensor:
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in network.parameters()])


def clipped_sum(stream: SequenceStream) -> torch.Tensor:
    gradients = [unit_gradient(stream, unit) for unit in range(stream.units)]
    norms = [float(gradient.norm()) for gradient in gradients]
    assert any(norm > SILENT.clip_norm for norm in norms)
    assert any(norm == 0 for norm in norms)
    return sum(
        (g * min(1.0, SILENT.clip_norm / max(n, 1e-30)) for g, n in zip(gradients, norms, strict=True)),
        0 * gradients[0],
    )


def batch_gradient(stream: SequenceStream, rows: np.ndarray) -> torch.Tensor:
    network = model()
    means = [row_losses(network, stream, int(row), _counted(stream)[row]).mean() for row in rows]
    torch.stack(means).mean().backward()
    return flat(network)


# steps ---------------------------------------------------------------------------------------------------------------


def compute(micro_batch: int) -> ComputeOptions:
    return ComputeOptions(micro_batch=micro_batch, threads=1, checkpoint_seconds=1e9)


def gradient_of(step: Step, network: GPT2LMHeadModel, draw: np.ndarray) -> torch.Tensor:
    for _ in step.add_up(STEP, draw, 0):
        pass
    step.finish(STEP)
    return flat(network)


def dp_gradient(stream: SequenceStream, micro_batch: int) -> torch.Tensor:
    network = model()
    source = Source(stream, CausalObjective(), STREAMS)
    with contextlib.closing(DpStep(network, SILENT, compute(micro_batch), source)) as step:
        return gradient_of(step, network, np.arange(stream.units))


def check_dp(trained: SequenceStream, stream: SequenceStream, micro_batch: int = 6) -> None:
    torch.testing.assert_close(dp_gradient(trained, micro_batch), clipped_sum(stream), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("micro_batch", [3, 6, 64])
@pytest.mark.parametrize("make", [stream_of, two_tokens])
def test_a_private_step_learns_the_mean_over_a_units_own_response_tokens(make, micro_batch: int) -> None:
    check_dp(make(), make(), micro_batch)


def test_the_check_of_a_private_step_catches_a_loss_over_all_tokens() -> None:
    stream = stream_of()
    with pytest.raises(AssertionError):
        check_dp(dataclasses.replace(stream, counted_ST=None), stream)


def test_a_public_step_learns_the_mean_over_each_rows_response_tokens() -> None:
    stream = stream_of()
    network, plan = model(), PlainPlan(batch_size=4)
    step = PlainStep(network, plan, compute(3), Source(stream, CausalObjective(), STREAMS))
    drawn = step.draw(STEP)
    found, expected = gradient_of(step, network, drawn), batch_gradient(stream, drawn)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    everywhere = np.arange(LENGTH) < stream.lengths_S[:, None]
    with pytest.raises(AssertionError):
        torch.testing.assert_close(
            found, batch_gradient(dataclasses.replace(stream, counted_ST=everywhere), drawn), rtol=1e-6, atol=1e-8
        )


def test_a_masked_model_has_no_responses() -> None:
    stream = stream_of()
    targets = OBJECTIVE.targets(stream.ids_ST % 60, stream.lengths_S, np.zeros((stream.sequences, 3, LENGTH)))
    with pytest.raises(UsageError, match="tokens of a response are learned by a causal model alone"):
        OBJECTIVE.only(targets, _counted(stream))


# rows ----------------------------------------------------------------------------------------------------------------


def test_rows_hold_each_response_once_and_plain_text_as_ever() -> None:
    stream = stream_of()
    (told,) = CHATS.encode([UNITS[0].texts[0]])
    assert told is not None
    said = [number for number, counted in zip(told.ids, told.counted, strict=True) if counted]
    rows = stream.rows_of(0)
    assert len(rows) > 2
    assert [number for row in rows for number in stream.ids_ST[row][_counted(stream)[row]].tolist()] == said
    assert not _counted(stream)[:, 0].any()
    plain = tokenize_units([UNITS[2]], TOKENIZER, SPECIAL, LENGTH, STREAMS)
    own = stream.rows_of(2)
    assert np.array_equal(stream.ids_ST[own], plain.ids_ST)
    assert np.array_equal(
        _counted(stream)[own], (np.arange(LENGTH) > 0) & (np.arange(LENGTH) < plain.lengths_S[:, None])
    )
    assert plain.counted_ST is None
    assert list(np.diff(stream.starts_U1)[3:5]) == [0, 0]


def test_text_of_a_plain_corpus_is_plain_whatever_it_looks_like() -> None:
    """Somebody who writes the separators of conversations into a note does not reach the template."""
    units = [Unit("note", (UNITS[0].texts[0],)), UNITS[5]]
    stream = tokenize_units(units, TOKENIZER, SPECIAL, LENGTH, STREAMS, CHATS, [False, True])
    plain = tokenize_units(units[:1], TOKENIZER, SPECIAL, LENGTH, STREAMS)
    own = stream.rows_of(0)
    assert np.array_equal(stream.ids_ST[own], plain.ids_ST)
    assert np.array_equal(stream.ids_ST[stream.rows_of(1)], stream_of(UNITS[5:]).ids_ST)


def test_a_unit_changes_no_other_units_rows() -> None:
    whole, without = stream_of(), stream_of(UNITS[1:])
    assert np.array_equal(whole.ids_ST[whole.starts_U1[1] :], without.ids_ST)
    assert np.array_equal(_counted(whole)[whole.starts_U1[1] :], _counted(without))


def test_noise_is_addressed_by_the_mask_too() -> None:
    """Other tokens that count make other sums, which must never meet the same noise."""
    stream = stream_of()
    counted_ST = _counted(stream).copy()
    counted_ST[0] &= np.cumsum(counted_ST[0]) < counted_ST[0].sum()  # one token fewer
    phase = Phase("private", "private", SILENT, 1, AdamOptions(learning_rate=1e-3))
    digests = set[str]()
    for one in (
        stream,
        dataclasses.replace(stream, counted_ST=counted_ST),
        dataclasses.replace(stream, counted_ST=None),
    ):
        network = model()
        optimizer = torch.optim.AdamW(network.parameters())
        digests.add(sums_digest(network, optimizer, phase, one, CausalObjective(), compute(4), STREAMS))
    assert len(digests) == 3


# evaluation ----------------------------------------------------------------------------------------------------------


def test_the_evaluation_scores_the_tokens_that_count() -> None:
    stream, network = two_tokens(), model()
    with torch.no_grad():
        nats_S = [row_losses(network, stream, row, _counted(stream)[row]) for row in range(stream.sequences)]
    table = unigram(stream, VOCABULARY)
    found = score_units({"model": network, "unigram": table}, stream, STREAMS)
    for unit in range(stream.units):
        rows = stream.rows_of(unit)
        tokens = [number for row in rows for number in stream.ids_ST[row][_counted(stream)[row]]]
        assert found["model"].tokens_U[unit] == len(tokens)
        assert found["model"].nats_U[unit] == pytest.approx(sum(float(nats_S[row].sum()) for row in rows), rel=1e-6)
        assert found["unigram"].nats_U[unit] == pytest.approx(-sum(float(table[number]) for number in tokens), rel=1e-9)
    counts = np.bincount(stream.ids_ST[_counted(stream)], minlength=VOCABULARY) + 1
    assert np.allclose(table, np.log(counts / counts.sum()))

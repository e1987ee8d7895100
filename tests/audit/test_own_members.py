"""Members and non-members of somebody's own: known AUCs, a shift that fakes membership, and what may be said."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM

from tacit.audit.inference import Estimate
from tacit.audit.own_members import LEAST, OwnVerdict, differences, judge_own, told_apart
from tacit.audit.pseudo_likelihood import pseudo_nats
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness, key_of
from tacit.training.masking import Masking
from tacit.training.sequences import SequenceStream

torch.set_num_threads(1)

STREAMS = KeyedRandomness(key_of("own members"))
WORDS = [f"word{number}" for number in range(200)]


def texts(number: int, seed: int, words: list[str] = WORDS) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(words, 12)) for _ in range(number)]


ALIKE = differences(texts(200, 1), texts(150, 2), STREAMS)


def test_numbers_of_known_scores() -> None:
    generator = np.random.default_rng(3)
    found = told_apart(generator.normal(-1, 1, 4000), generator.normal(0, 1, 3000))
    assert (found.members, found.non_members) == (4000, 3000)
    assert found.auc.holds(0.7602)  # Phi(1 / sqrt 2)
    for (rate, estimate), truth in zip(found.tpr, (0.0183, 0.0924, 0.3891), strict=True):  # Phi(Phi^-1(rate) + 1)
        assert estimate is not None
        assert estimate.holds(truth), rate
    assert [estimate is None for _, estimate in told_apart(np.zeros(60), np.ones(60)).tpr] == [True, True, False]


def test_scores_that_cannot_be() -> None:
    with pytest.raises(DataError, match="fewer than 2"):
        told_apart(np.zeros(1), np.zeros(60))
    with pytest.raises(DataError, match="not a finite number"):
        told_apart(np.array([0.0, np.inf]), np.zeros(60))


def test_texts_of_one_law_have_no_differences_and_a_shift_has() -> None:
    assert ALIKE.blind is not None
    assert ALIKE.blind.auc.holds(0.5)
    assert ALIKE.in_both == 0
    shifted = differences(texts(200, 1), texts(150, 2, WORDS[:190]), STREAMS)
    assert shifted.blind is not None
    assert shifted.blind.auc.low > 0.5


def test_what_the_files_share() -> None:
    members = texts(200, 1)
    copied = differences(members, [f"  {text.upper()} " for text in members[:20]] + texts(100, 2), STREAMS)
    assert copied.in_both == 20
    assert copied.overlap is not None
    assert copied.overlap == pytest.approx(20 / 120 / 2, abs=0.05)  # half of the members are looked at
    assert copied.overlap_within == 0
    short = differences(["a b", "c d"], ["e f"], STREAMS)
    assert (short.overlap, short.overlap_within, short.blind) == (None, None, None)


def test_verdicts_in_their_order() -> None:
    sure = told_apart(np.zeros(100), np.ones(100))
    chance = dataclasses.replace(sure, auc=Estimate(0.5, 0.4, 0.6))
    few = dataclasses.replace(sure, non_members=LEAST - 1)
    blind = ALIKE.blind
    assert blind is not None
    shifted = dataclasses.replace(ALIKE, blind=dataclasses.replace(blind, auc=Estimate(0.6, 0.55, 0.65)))
    assert judge_own(few, None, ALIKE) == OwnVerdict.TOO_FEW
    assert judge_own(sure, None, dataclasses.replace(ALIKE, in_both=2)) == OwnVerdict.IN_BOTH
    assert judge_own(sure, sure, shifted) == OwnVerdict.SHIFTED
    assert judge_own(sure, None, ALIKE) == OwnVerdict.TOLD_APART
    assert judge_own(chance, None, ALIKE) == OwnVerdict.NO_CONTROL
    assert judge_own(chance, chance, ALIKE) == OwnVerdict.NO_POWER
    assert judge_own(chance, sure, ALIKE) == OwnVerdict.NOT_TOLD_APART


def test_pseudo_likelihood_hides_one_token_at_a_time() -> None:
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    torch.manual_seed(0)
    model = BertForMaskedLM(config).eval()
    nn.init.normal_(model.cls.predictions.decoder.weight)
    rows = np.array([[2, 7, 8, 9, 3, 0], [2, 11, 3, 0, 0, 0], [2, 12, 13, 14, 15, 3]], dtype=np.int32)
    stream = SequenceStream(rows, np.array([5, 3, 6]), np.array([0, 2, 2, 3]), ("one", "none", "other"))
    masking = Masking(0.15, 4, (0, 1, 2, 3, 4), 20)
    nats_U, hidden_U = pseudo_nats(model, stream, masking, STREAMS)
    assert hidden_U.tolist() == [4, 0, 4]
    expected = 0.0
    for row, length, place in ((0, 5, 1), (0, 5, 2), (0, 5, 3), (1, 3, 1)):
        ids = torch.from_numpy(rows[row : row + 1, :length].astype(np.int64))
        label, ids[0, place] = int(ids[0, place]), 4
        with torch.no_grad():
            expected -= float(F.log_softmax(model(input_ids=ids).logits[0, place], dim=-1)[label])
    assert nats_U[0] == pytest.approx(expected, abs=1e-4)
    assert nats_U[1] == 0
    fewer = pseudo_nats(model, stream, masking, STREAMS, at_most=2)
    assert fewer[1].tolist() == [2, 0, 2]
    assert fewer[0][0] < nats_U[0]

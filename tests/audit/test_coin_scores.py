"""What every score of `SCORES` must keep to, that a new one is one function and one row, and what each is by the papers' formulas."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from tacit.audit.attacks import check_attacks
from tacit.audit.coin_scores import SCORES, Seen, TokenNats
from tacit.audit.token_nats import token_nats
from tacit.config import parse_config
from tacit.errors import UsageError
from tacit.models.lstm import LstmConfig, LstmForCausalLM
from tacit.training.masking import Masking

from ..small import small_values


def nats(generator: np.random.Generator, shift: float) -> TokenNats:
    shape = (7, 11)
    return TokenNats(generator.normal(6 + shift, 1, shape), np.full(shape, 5.0), generator.uniform(1, 2, shape))


def seen(shift: float = 0.0) -> Seen:
    """Seven examples of eleven tokens; under the attacked model each costs ``shift`` more."""
    return Seen(nats(np.random.default_rng(1), shift), nats(np.random.default_rng(2), 0.0), tuple(map(str, range(7))))


def toy(seen: Seen) -> np.ndarray:
    """Minus the dearest token."""
    return -seen.after.nats_mP.max(axis=1)


@pytest.fixture(params=[*SCORES, "toy"])
def score(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Seen], np.ndarray]:
    monkeypatch.setitem(SCORES, "toy", toy)  # its one line
    return SCORES[request.param]


def test_a_score_is_one_finite_number_an_example_and_larger_where_tokens_are_likelier(
    score: Callable[[Seen], np.ndarray],
) -> None:
    likely, unlikely = score(seen(-2.0)), score(seen())
    assert likely.shape == (7,)
    assert np.isfinite(likely).all()
    assert (likely > unlikely).all()


def test_an_example_is_scored_by_itself(score: Callable[[Seen], np.ndarray]) -> None:
    whole = seen()

    def only(part: TokenNats) -> TokenNats:
        return TokenNats(part.nats_mP[3:4], part.mean_mP[3:4], part.deviation_mP[3:4])

    alone = Seen(only(whole.after), only(whole.before), whole.texts_m[3:4])
    assert score(alone)[0] == pytest.approx(score(whole)[3], rel=1e-12)


def test_a_configuration_may_ask_for_a_new_score(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = parse_config(small_values(tmp_path, audit={"coins": {"examples": 20, "pieces": 4, "score": "toy"}}))
    with pytest.raises(UsageError, match="there is no 'toy'; there are: calibrated, loss"):
        check_attacks(config)
    monkeypatch.setitem(SCORES, "toy", toy)
    check_attacks(config)


# by the papers' formulas, a token at a time --------------------------------------------------------------------------


def test_the_scores_are_those_of_the_papers() -> None:
    given = seen()
    for row in range(7):
        after, before = given.after, given.before
        own = [float(one) for one in after.nats_mP[row]]
        least = math.ceil(0.2 * len(own))
        standard = [
            (float(mean) - one) / float(deviation)
            for one, mean, deviation in zip(own, after.mean_mP[row], after.deviation_mP[row], strict=True)
        ]
        expected = {
            "loss": -sum(own) / len(own),
            "calibrated": (float(before.nats_mP[row].sum()) - sum(own)) / len(own),
            "zlib": -sum(own) / len(zlib.compress(str(row).encode())),
            "min-k": -sum(sorted(own)[-least:]) / least,
            "min-k++": sum(sorted(standard)[:least]) / least,
        }
        assert expected.keys() == SCORES.keys()
        for name, value in expected.items():
            assert SCORES[name](given)[row] == pytest.approx(value, rel=1e-12), name


# what a model says of each token -------------------------------------------------------------------------------------

V, LENGTH = 23, 9
MASKING = Masking(0.15, 4, (0, 1, 2, 3, 4), V)


def sharp(model: PreTrainedModel) -> PreTrainedModel:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def models() -> dict[str, PreTrainedModel]:
    small = {
        "vocab_size": V,
        "num_hidden_layers": 1,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    return {
        "bert": sharp(BertForMaskedLM(BertConfig(**small, max_position_embeddings=16))),
        "gpt2": sharp(GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=16, n_embd=16, n_layer=1, n_head=2))),
        "lstm": sharp(
            LstmForCausalLM(LstmConfig(vocab_size=V, embedding_size=16, hidden_size=16, num_hidden_layers=1))
        ),
    }


@torch.no_grad()
def logs_at(model: nn.Module, ids: torch.Tensor, position: int, masked: bool) -> torch.Tensor:
    """The whole law of one token, one row at a time, as transformers has it."""
    row = ids.clone()
    if masked:
        row[position] = MASKING.mask_id
    logits = model(input_ids=row[None], attention_mask=torch.ones_like(row)[None]).logits[0]
    return F.log_softmax(logits[position if masked else position - 1].double(), dim=-1)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "lstm"])
def test_nats_mean_and_deviation_of_each_token(kind: str) -> None:
    model, masked = models()[kind], kind == "bert"
    ids_mT = np.random.default_rng(4).integers(5, V, size=(6, 14))
    found = token_nats(model, ids_mT, LENGTH, V, MASKING if masked else None)
    assert found.nats_mP.shape == (6, LENGTH - 2)
    for row in range(6):
        ids = torch.from_numpy(ids_mT[row, :LENGTH])
        for position in range(1, LENGTH - 1):
            logs = logs_at(model, ids, position, masked)
            mean = -(logs.exp() * logs).sum()
            deviation = (logs.exp() * (-logs - mean) ** 2).sum().sqrt()
            own = (found.nats_mP, found.mean_mP, found.deviation_mP)
            got = [float(part[row, position - 1]) for part in own]
            assert got == pytest.approx([float(-logs[ids[position]]), float(mean), float(deviation)], rel=1e-5)


def test_rows_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import tacit.audit.token_nats as module

    model = models()["bert"]
    ids_mT = np.random.default_rng(4).integers(5, V, size=(6, LENGTH))
    whole = token_nats(model, ids_mT, LENGTH, V, MASKING)
    monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", 1)
    assert token_nats(model, ids_mT, LENGTH, V, MASKING).nats_mP == pytest.approx(whole.nats_mP, rel=1e-5)

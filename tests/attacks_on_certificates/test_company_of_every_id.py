"""What a model says of a row is the same to the bit, whatever ids stand in the rows beside it and however large its numbers are.

What was wrong: off the CPU any family was computed with as many units at once as fit. A Nystromformer divides by a maximum over the
whole batch: with weights made for it one unit made the losses of all others no numbers, and the sum was that of one unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers import NystromformerConfig, NystromformerForMaskedLM, PreTrainedModel

from tacit.engine import PerExampleClipper
from tacit.errors import RefusedError
from tacit.models.given import freeze_tables
from tacit.models.places import is_measured, together
from tacit.training import company
from tacit.training.company import refuse_company, rows_of_every_id
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective, Objective
from tacit.vocabulary.special import SpecialTokens

from ..architectures import ALL, new_model

SIZE, LENGTH, ROWS = 64, 12, 8
SPECIAL = SpecialTokens(pad=0, start=2, end=3, mask=4, unknown=1, ids=(0, 1, 2, 3, 4), size=SIZE)
MASKED = MaskedObjective(Masking(0.4, 4, SPECIAL.ids, SIZE))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def objective_of(masked: bool) -> Objective:
    return MASKED if masked else CausalObjective()


def losses_and_norms(
    model: PreTrainedModel, objective: Objective, ids_BT: np.ndarray, lengths_B: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    uniforms = np.random.default_rng(7).random((1, objective.draws, ids_BT.shape[1])).repeat(len(ids_BT), axis=0)
    targets = objective.targets(ids_BT, lengths_B, uniforms)
    arrays = [torch.from_numpy(np.ascontiguousarray(one)).long() for one in targets.arrays]
    weights_BN = torch.from_numpy(targets.real_BN.astype(np.float32))
    clipper = PerExampleClipper(model, 1.0)
    with clipper:
        losses_B = objective.losses(model, arrays, weights_BN)
        losses_B.sum().backward()
    clipper.close()
    return losses_B.detach().numpy(), clipper.norms.numpy()


def companies() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows that stand behind the first one, and their lengths."""
    draw = np.random.default_rng(3)
    whole = np.full(ROWS - 1, LENGTH)
    ordinary = draw.integers(5, SIZE, (ROWS - 1, LENGTH))
    return {
        "blank rows": (np.zeros((ROWS - 1, LENGTH), dtype=np.int64), np.full(ROWS - 1, 2)),
        "ordinary ones": (ordinary, whole),
        "ids that are no text": (draw.integers(0, 5, (ROWS - 1, LENGTH)), whole),
        "one id alone": (np.full((ROWS - 1, LENGTH), SIZE - 1), whole),
        "short ones": (ordinary, np.full(ROWS - 1, 3)),
    }


@pytest.mark.parametrize("name", ALL)
def test_no_row_changes_a_bit_of_another_one(name: str) -> None:
    """With a table one row of which is as large as floats are: numbers that overflow reach no other row either."""
    architecture = ALL[name]
    special = {"pad_token_id": 0} if architecture.masked else {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    model, objective = new_model(architecture, SIZE, **special).eval(), objective_of(architecture.masked)
    freeze_tables(model)
    assert is_measured(model)
    with torch.no_grad():
        table: Any = model.get_input_embeddings()
        if model.get_output_embeddings() is not None and model.get_output_embeddings().weight is not table.weight:
            table.weight[SIZE - 1] = 3e38
    row = np.random.default_rng(1).integers(5, SIZE - 1, (1, LENGTH))
    found = {
        company: losses_and_norms(model, objective, np.concatenate([row, ids]), np.array([LENGTH, *lengths]))
        for company, (ids, lengths) in companies().items()
    }
    loss, norm = (values[0] for values in found["ordinary ones"])
    assert np.isfinite(loss)
    assert np.isfinite(norm)
    for losses, norms in found.values():
        assert losses[0] == loss
        assert norms[0] == norm


# a maximum over the batch --------------------------------------------------------------------------------------------


def nystromformer(odd: int | None = None) -> PreTrainedModel:
    """Keys of the id ``odd`` are so large that a maximum over the batch is no number."""
    config = NystromformerConfig(
        vocab_size=SIZE,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        segment_means_seq_len=LENGTH,
        num_landmarks=4,
        conv_kernel_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        tie_word_embeddings=False,
    )
    torch.manual_seed(1)
    model = NystromformerForMaskedLM(config)
    if odd is not None:
        base: Any = model.nystromformer
        with torch.no_grad():
            table = base.embeddings.word_embeddings.weight
            table[:, 62:] = 0.0
            table[odd] = 0.0
            table[odd, 62], table[odd, 63] = 6.0, -6.0
            base.embeddings.position_embeddings.weight.zero_()
            base.embeddings.token_type_embeddings.weight.zero_()
            own = base.encoder.layer[0].attention.self
            for linear in (own.query, own.key):
                linear.weight.zero_()
                linear.bias.zero_()
                linear.weight[:, 62], linear.weight[:, 63] = 2.0**66, -(2.0**66)
    return model


def test_a_type_that_was_not_measured_is_computed_one_unit_at_a_time_on_every_device() -> None:
    model = nystromformer()
    assert not is_measured(model)
    for device in ("cpu", "meta"):  # a GPU is asked the same
        torch.nn.Module.to(model, device)
        assert together(model, 64, 1, [LENGTH]) == 1
    bert = new_model(ALL["bert"], SIZE)
    torch.nn.Module.to(bert, "meta")
    assert together(bert, 64, 1, [LENGTH]) == 64  # positive control
    convolutions = new_model(ALL["convbert"], SIZE)
    torch.nn.Module.to(convolutions, "meta")
    assert together(convolutions, 64, 1, [LENGTH]) == 1


def test_a_model_that_reads_the_whole_batch_is_refused_before_anything_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it computed in company: the comparison finds the one id, wherever it stands in the vocabulary."""
    monkeypatch.setattr(company, "together", lambda model, most, *_: most)
    for odd in (1, 30, SIZE - 1):
        with pytest.raises(RefusedError, match=r"unsteady-model.*beside other rows"):
            refuse_company(nystromformer(odd).train(), MASKED, SPECIAL, LENGTH)
    for name in ("bert", "roformer", "llama"):
        architecture = ALL[name]
        refuse_company(new_model(architecture, SIZE).train(), objective_of(architecture.masked), SPECIAL, LENGTH)


def test_the_rows_hold_every_id_once_in_a_fixed_order() -> None:
    rows_RT = rows_of_every_id(SPECIAL, SIZE, LENGTH, 1000)
    assert rows_RT.shape == (7, LENGTH)
    assert set(rows_RT[:, 0]) == {2}
    assert set(rows_RT[:, -1]) == {3}
    inside = rows_RT[:, 1:-1].flatten()
    assert inside[:SIZE].tolist() == list(range(SIZE))
    assert set(inside[SIZE:]) <= set(range(SIZE))
    assert rows_of_every_id(SPECIAL, 40, LENGTH, 1000).max() == 39, "ids beyond the table stand in no row"
    few = rows_of_every_id(SPECIAL, SIZE, LENGTH, 25)
    assert {0, 1, 2, 3, 4} <= set(few.flatten())
    assert len(set(few.flatten())) <= 25

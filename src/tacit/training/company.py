"""Before anything is spent: made-up rows with every id. None may make the model raise, or change what is said of another row.

A model raises at rows, or divides by what it finds in a whole batch (Nystromformer), only where some row has the tokens for it. So
the ids are gone through in order, those that stand for no text first, with one row beside them whose loss is compared.

Shapes: R rows, B rows of a batch, T positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tacit.engine import PerExampleClipper
from tacit.errors import RefusedError
from tacit.models.places import together
from tacit.training.dropout import RowDropout, uses_dropout
from tacit.training.objectives import Objective
from tacit.vocabulary.special import SpecialTokens

__all__ = ["refuse_company", "rows_of_every_id"]

_MOST_IDS = 200_000
_MOST_WORK = 2e12
"""Multiplications and additions, some 20 s on two cores: a model for which all ids would take more is tried on every second, third,
... one."""

_AT_ONCE = 16
_KEPT = 0.95  # a uniform by which masking leaves a token as it is


def rows_of_every_id(special: SpecialTokens, known: int, length: int, most: int) -> np.ndarray:
    """Rows (R, T) that hold at most so many ids, evenly chosen: first those that stand for no text, then the others, ascending.

    Args:
        known: rows of the model's table; ids beyond it never stand in a row.
    """
    apart = [one for one in special.ids if one < known]
    text = np.setdiff1d(np.arange(min(special.size, known)), apart)
    left = max(1, most - len(apart))
    ids = np.concatenate([apart, text[:: -(-len(text) // left) if len(text) else 1]]).astype(np.int64)
    inside = max(1, length - 2)
    filled = np.resize(ids, -(-len(ids) // inside) * inside).reshape(-1, inside)
    start, end = (np.full((len(filled), 1), one) for one in (special.start, special.end))
    return np.concatenate([start, filled, end], axis=1)


@dataclass(frozen=True)
class _Company:
    """A model that is asked, as in training, about batches of one shape."""

    model: PreTrainedModel
    objective: Objective

    def losses(self, ids_BT: np.ndarray) -> Tensor:
        """The loss of each row (B,)."""
        rows, length = ids_BT.shape
        uniforms_BnT = np.full((rows, self.objective.draws, length), _KEPT)
        targets = self.objective.targets(ids_BT, np.full(rows, length), uniforms_BnT)
        arrays = [torch.from_numpy(np.ascontiguousarray(one)).long().to(self.model.device) for one in targets.arrays]
        weights_BN = torch.from_numpy(targets.real_BN.astype(np.float32)).to(self.model.device)
        whole = {targets.real_BN.shape[1]: self.objective.targets_of(length), length: length}
        with RowDropout(range(rows), whole if uses_dropout(self.model) else {}, self.model.device):
            return self.objective.losses(self.model, arrays, weights_BN)

    @torch.no_grad()
    def values(self, ids_BT: np.ndarray) -> np.ndarray:
        """The losses as numbers (B,)."""
        return self.losses(ids_BT).double().cpu().numpy()

    def norms(self, ids_BT: np.ndarray) -> np.ndarray:
        """The norm of each row's gradient (B,)."""
        clipper = PerExampleClipper(self.model, 1.0)
        try:
            with clipper:
                self.losses(ids_BT).sum().backward()
            return clipper.norms.double().cpu().numpy()
        finally:
            clipper.close()
            self.model.zero_grad(set_to_none=True)


def refuse_company(model: PreTrainedModel, objective: Objective, special: SpecialTokens, length: int) -> None:
    """Let the model read every id, and look whether a row that stands first says the same each time, to the bit.

    Args:
        model: in training mode; it is to be made anew afterwards.
        length: positions of a row.

    Raises:
        RefusedError: ``unsteady-model``. What the model itself raises goes out.
    """
    asked = _Company(model, objective)
    every_RT = rows_of_every_id(special, _known(model, special), length, _most_ids(model))
    at_once = together(model, _AT_ONCE, 1, (every_RT.shape[1],), (objective.targets_of(every_RT.shape[1]),))
    if at_once == 1:  # then no row has company in training, either
        for row_1T in every_RT[:, None]:
            asked.values(row_1T)
        return
    first_T = _unknown_row(every_RT)  # if it gives no number itself, it differs from itself
    loss: np.ndarray | None = None
    for number, others_BT in enumerate(_batches(every_RT, at_once - 1)):
        batch_BT = np.concatenate([first_T[None], others_BT])
        said = asked.values(batch_BT)[:1]
        loss = said if loss is None else loss
        if not np.array_equal(said, loss):
            raise _refusal(model)
        if number == 0:
            beside_itself_BT = np.repeat(first_T[None], at_once, axis=0)
            if not np.array_equal(asked.norms(batch_BT)[:1], asked.norms(beside_itself_BT)[:1]):
                raise _refusal(model)


def _unknown_row(every_RT: np.ndarray) -> np.ndarray:
    """One like these (T,), that nobody knows before: a model could be made to be steady at a row that everybody knows."""
    draw = torch.Generator()
    draw.seed()
    inner_N = every_RT[:, 1:-1].ravel()
    row_T = every_RT[0].copy()
    row_T[1:-1] = inner_N[torch.randint(len(inner_N), (len(row_T) - 2,), generator=draw).numpy()]
    return row_T


def _batches(every_RT: np.ndarray, rows: int) -> Iterator[np.ndarray]:
    """So many rows at once; the last ones are filled up from the first ones."""
    for start in range(0, len(every_RT), rows):
        yield every_RT[np.arange(start, start + rows) % len(every_RT)]


def _known(model: PreTrainedModel, special: SpecialTokens) -> int:
    table = model.get_input_embeddings()
    return table.num_embeddings if isinstance(table, nn.Embedding) else special.size


def _most_ids(model: PreTrainedModel) -> int:
    return int(min(_MOST_IDS, _MOST_WORK / (2 * max(1, model.num_parameters()))))


def _refusal(model: PreTrainedModel) -> RefusedError:
    return RefusedError(
        "unsteady-model",
        f"a {type(model).__name__} computes a row otherwise beside other rows; take another type of model, or weights that were not "
        "made for that",
    )

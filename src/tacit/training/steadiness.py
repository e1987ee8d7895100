"""Does a model compute a row alike, whatever it computed before, whatever else is drawn, however wide the row is padded?

A clip bounds what a unit adds to a sum. It does not bound what a unit changes in how others are computed: a model that switches to
another kind of attention at the first short row, for good, moves a sum by as much as all units that come after. So a model from a
folder is tried on made-up rows, before anything is spent, at every width that rows may have. What is refused here depends on the
model and on public numbers alone.

Shapes: B rows, T positions, N targets of a row, n uniforms a position.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tacit.engine import PerExampleClipper
from tacit.engine.draws import generator_states
from tacit.errors import RefusedError
from tacit.models.causal import causal_logits
from tacit.models.networks import reads_padding
from tacit.training.dropout import RowDropout, uses_dropout
from tacit.training.objectives import Objective
from tacit.training.sums import plain_options
from tacit.vocabulary.special import SpecialTokens

__all__ = ["refuse_unsteady"]

_ROUNDING = 1e-3
"""Of a norm: by so much padding, or what comes later, may change it; what reads them changes it by far more."""


_SEEN = 1e-5
"""Of the largest logit: what is masked adds nothing at all, and a new model's attention little."""


@dataclass(frozen=True)
class _Trial:
    """Made-up rows of two units, and the model that is asked about them as training asks it."""

    model: PreTrainedModel
    objective: Objective
    ids_BT: np.ndarray
    uniforms_BnT: np.ndarray
    rows_per_unit: int

    def norms(self, used: int, width: int) -> Tensor:
        """The gradient norm of both units (2,): rows of ``used`` positions, padded to ``width``."""
        rows = len(self.ids_BT)
        ids_BT = np.where(np.arange(width) < used, self.ids_BT[:, :width], self.ids_BT[:, :1])
        ids_BT[:, used - 1] = self.ids_BT[:, -1]
        targets = self.objective.targets(ids_BT, np.full(rows, used), self.uniforms_BnT[:, :, :width])
        arrays = [self._tensor(array).long() for array in targets.arrays]
        weights_BN = self._tensor(targets.real_BN.astype(np.float32))
        clipper = PerExampleClipper(self.model, 1.0, self.rows_per_unit)
        try:
            before = generator_states()
            with clipper, self._dropout(targets.real_BN.shape[1], width):
                self.objective.losses(self.model, arrays, weights_BN).sum().backward()
            # not by another result: a layer that is left out once in a thousand times seldom shows
            if generator_states() != before:
                raise _refusal(self.model, "draws random numbers in training that no key of the run decides")
            return clipper.norms.detach().clone()
        finally:
            clipper.close()
            for parameter in self.model.parameters():
                parameter.grad = None

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.model.device)

    def _dropout(self, targets: int, width: int) -> RowDropout:
        length = self.ids_BT.shape[1]
        whole = {targets: self.objective.targets_of(length), width: length}
        return RowDropout(range(len(self.ids_BT)), whole if uses_dropout(self.model) else {}, self.model.device)


def refuse_unsteady(
    model: PreTrainedModel,
    objective: Objective,
    special: SpecialTokens,
    edges: np.ndarray,
    rows_per_unit: int,
) -> None:
    """Try rows of all widths, and look whether anything but a row itself decides how it is computed.

    Args:
        model: as training has it, in training mode; it is to be made anew afterwards.
        objective: what it is asked.
        special: of the run's tokenizer.
        edges: the widths that rows are padded to, ascending; the last one is the longest.
        rows_per_unit: rows of a unit.

    Raises:
        RefusedError: ``unsteady-model``.
    """
    trial = _Trial(model, objective, *_made_up(objective, special, int(edges[-1]), rows_per_unit), rows_per_unit)
    longest, shortest = int(edges[-1]), int(edges[0])
    before, first = plain_options(model), trial.norms(longest, longest)
    used = max(3, shortest)
    of_width = {int(width): trial.norms(used, int(width)) for width in edges if width >= used}
    if plain_options(model) != before or not torch.equal(trial.norms(longest, longest), first):
        raise _refusal(model, "changes itself while it computes, so that short rows decide how later ones are computed")
    reference = next(iter(of_width.values()))
    far = [width for width, norms in of_width.items() if not torch.allclose(norms, reference, rtol=_ROUNDING)]
    if far and not reads_padding(model):
        raise _refusal(model, f"gives a row another gradient when it is padded, by {far[0]} positions for instance")
    if objective.may_be_cut and _sees_what_comes(model, trial.ids_BT):
        raise _refusal(model, "predicts a token from tokens that come after it: its config.json may lack is_decoder")


def _made_up(
    objective: Objective, special: SpecialTokens, length: int, rows_per_unit: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids (B, T) of two units, and their uniforms (B, n, T); nobody knows them, else a model could be made to be steady at these."""
    generator = np.random.default_rng()
    ordinary = np.setdiff1d(np.arange(special.size), special.ids)
    ids_BT = generator.choice(ordinary, (2 * rows_per_unit, length))
    ids_BT[:, 0], ids_BT[:, -1] = special.start, special.end
    return ids_BT, generator.random((len(ids_BT), objective.draws, length))


@torch.no_grad()
def _sees_what_comes(model: PreTrainedModel, ids_BT: np.ndarray) -> bool:
    """Whether another last token changes what is said of the tokens before it."""
    ids, changed = (torch.from_numpy(ids_BT).to(model.device) for _ in range(2))
    changed = changed.clone()
    changed[:, -1] = ids[:, 1]
    was_training = model.training
    model.eval()
    one, other = (causal_logits(model, given, torch.ones_like(given))[:, :-1] for given in (ids, changed))
    model.train(was_training)
    return float((one - other).abs().max()) > _SEEN * float(one.abs().max())


def _refusal(model: PreTrainedModel, what: str) -> RefusedError:
    return RefusedError(
        "unsteady-model",
        f"a {type(model).__name__} {what}; take another type of model, or another option of its config.json",
    )

"""How much audit examples look trained on: `SCORES` of the nats of their tokens, larger for members.

Shapes: m examples, P tokens of each, T positions of a row, B rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.models.causal import causal_logits
from tacit.models.masked import masked_logits
from tacit.training.masking import Masking, single_mask_rows

__all__ = ["SCORES", "token_nats"]

_AT_ONCE = 256
_LEAST_LIKELY = 0.2


def _loss(after_mP: np.ndarray, before_mP: np.ndarray) -> np.ndarray:
    """Yeom et al. 2018, arXiv 1709.01604; of a masked model the pseudo-log-likelihood (Salazar et al. 2020, arXiv 1910.14659)."""
    return -after_mP.mean(axis=1)


def _calibrated(after_mP: np.ndarray, before_mP: np.ndarray) -> np.ndarray:
    """Less what the row cost before the private phases: some rows are likely to any model (Watson et al. 2022, arXiv 2111.08440)."""
    return (before_mP - after_mP).mean(axis=1)


def _min_k(after_mP: np.ndarray, before_mP: np.ndarray) -> np.ndarray:
    """Shi et al. 2024, arXiv 2310.16789."""
    least = math.ceil(_LEAST_LIKELY * after_mP.shape[1])
    return -np.sort(after_mP, axis=1)[:, -least:].mean(axis=1)


SCORES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "calibrated": _calibrated,
    "loss": _loss,
    "min-k": _min_k,
}
"""By name: scores (m,) of the nats (m, P) under the attacked model, and under the one before the private phases."""


@torch.no_grad()
def token_nats(model: PreTrainedModel, ids_mT: np.ndarray, length: int, masking: Masking | None) -> np.ndarray:
    """-ln of the probability of each token between a row's first and last one, float64 (m, length - 2).

    Args:
        model: left in eval mode.
        ids_mT: rows, all with so many real positions.
        length: of them.
        masking: of a masked model, which sees the whole row but the token; None: a causal one, which sees what is before it.
    """
    model.eval()
    ids_mT = ids_mT[:, :length].astype(np.int64)
    if masking is None:
        return np.concatenate([_causal(model, ids_BT) for ids_BT in _parts(ids_mT)])
    return np.stack(
        [
            np.concatenate([_masked(model, ids_BT, position, masking) for ids_BT in _parts(ids_mT)])
            for position in range(1, length - 1)
        ],
        axis=1,
    )


def _parts(ids_mT: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(ids_mT), _AT_ONCE):
        yield ids_mT[start : start + _AT_ONCE]


def _causal(model: PreTrainedModel, ids_BT: np.ndarray) -> np.ndarray:
    ids = torch.from_numpy(ids_BT).to(model.device)
    logits_BTV = causal_logits(model, ids, torch.ones_like(ids))
    return _nats(logits_BTV[:, :-2], ids[:, 1:-1])


def _masked(model: PreTrainedModel, ids_BT: np.ndarray, position: int, masking: Masking) -> np.ndarray:
    rows = len(ids_BT)
    masked = single_mask_rows(ids_BT, np.full(rows, ids_BT.shape[1]), np.full(rows, position), masking)
    ids, attention, slots, labels = (
        torch.from_numpy(array.astype(np.int64)).to(model.device)
        for array in (masked.ids_BT, masked.attention_BT, masked.slots_BK, masked.labels_BK)
    )
    return _nats(masked_logits(model, ids, attention, slots), labels)[:, 0]


def _nats(logits_BNV: torch.Tensor, labels_BN: torch.Tensor) -> np.ndarray:
    nats_BN = -logits_BNV.double().log_softmax(dim=-1).gather(2, labels_BN[..., None])[..., 0]
    return nats_BN.cpu().numpy()

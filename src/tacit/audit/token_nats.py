"""What a model says of each token of audit examples.

Shapes: m examples, T positions, P tokens of each, B rows at a time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.audit.coin_scores import TokenNats
from tacit.models.causal import causal_logits
from tacit.models.masked import masked_logits
from tacit.training.masking import Masking, single_mask_rows

__all__ = ["token_nats"]

_NUMBERS_AT_ONCE = 2**23

_Logits = Callable[[np.ndarray], tuple[torch.Tensor, torch.Tensor]]


@torch.no_grad()
def token_nats(
    model: PreTrainedModel, ids_mT: np.ndarray, length: int, vocabulary: int, masking: Masking | None
) -> TokenNats:
    """The nats of each token between the first and the last one of a row, float64 (m, length - 2).

    Args:
        model: left in eval mode.
        ids_mT: rows, all with so many real positions.
        length: of them.
        vocabulary: V, for the rows at once.
        masking: of a masked model, which sees the whole row but the token; None: a causal one, which sees what is before it.
    """
    model.eval()
    ids_mT = ids_mT[:, :length].astype(np.int64)
    if masking is None:
        return _by_rows(ids_mT, _next_tokens(model), vocabulary * length)
    hidden = (_hidden_token(model, position, masking) for position in range(1, length - 1))
    return _joined([_by_rows(ids_mT, logits_of, vocabulary) for logits_of in hidden], axis=1)


def _by_rows(ids_mT: np.ndarray, logits_of: _Logits, numbers_a_row: int) -> TokenNats:
    rows = max(1, _NUMBERS_AT_ONCE // numbers_a_row)
    return _joined([_nats(*logits_of(ids_BT)) for ids_BT in _parts(ids_mT, rows)], axis=0)


def _joined(parts: list[TokenNats], axis: int) -> TokenNats:
    return TokenNats(
        np.concatenate([part.nats_mP for part in parts], axis),
        np.concatenate([part.mean_mP for part in parts], axis),
        np.concatenate([part.deviation_mP for part in parts], axis),
    )


def _parts(ids_mT: np.ndarray, rows: int) -> Iterator[np.ndarray]:
    for start in range(0, len(ids_mT), rows):
        yield ids_mT[start : start + rows]


def _next_tokens(model: PreTrainedModel) -> _Logits:
    def logits_of(ids_BT: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.from_numpy(ids_BT).to(model.device)
        return causal_logits(model, ids, torch.ones_like(ids))[:, :-2], ids[:, 1:-1]

    return logits_of


def _hidden_token(model: PreTrainedModel, position: int, masking: Masking) -> _Logits:
    def logits_of(ids_BT: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        rows = len(ids_BT)
        masked = single_mask_rows(ids_BT, np.full(rows, ids_BT.shape[1]), np.full(rows, position), masking)
        ids, attention, slots, labels = (
            torch.from_numpy(array.astype(np.int64)).to(model.device)
            for array in (masked.ids_BT, masked.attention_BT, masked.slots_BK, masked.labels_BK)
        )
        return masked_logits(model, ids, attention, slots), labels

    return logits_of


def _nats(logits_BPV: torch.Tensor, labels_BP: torch.Tensor) -> TokenNats:
    logs_BPV = logits_BPV.double().log_softmax(dim=-1)
    chances_BPV = logs_BPV.exp()
    nats_BP = -logs_BPV.gather(2, labels_BP[..., None])[..., 0]
    mean_BP = -(chances_BPV * logs_BPV).sum(dim=-1)
    square_BP = (chances_BPV * logs_BPV.square()).sum(dim=-1)
    deviation_BP = (square_BP - mean_BP.square()).clamp(min=0).sqrt()
    return TokenNats(*(numbers.cpu().numpy() for numbers in (nats_BP, mean_BP, deviation_BP)))

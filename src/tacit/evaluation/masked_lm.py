"""Masked-token accuracy and perplexity of held-out units, beside unigram and uniform baselines.

On public text the means are exact. On private held-out units they are a release: every unit gives one vector whose entries
lie in [0, 1] (a one for the count, then accuracies and bounded losses), and only the sum of these vectors leaves, with Gaussian
noise on it (`noisy_sum`). A unit counts once whatever its length: the means are over units of the mean over a unit's own
masked tokens.

Shapes: U units, M measured quantities, B rows, T positions, K masked slots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.engine import cross_entropy
from tacit.engine.noise import on_grid
from tacit.engine.total import Kept, read_rows
from tacit.evaluation.places import rows_at_once
from tacit.models.masked import masked_logits
from tacit.randomness import KeyedRandomness
from tacit.storage.arrays import row_pieces
from tacit.training.masking import MaskedRows, Masking, mask_rows
from tacit.training.sequences import SequenceStream

__all__ = ["Scores", "margin_of_ratio", "means_of_sum", "noisy_sum", "score_units", "unigram", "unit_vectors"]

_ROWS_AT_ONCE = 64
_UNITS_AT_ONCE = 512


@dataclass(frozen=True)
class Scores:
    """Accuracy and mean loss (nats) of each unit (U,); units without a masked token are left out."""

    accuracy_U: np.ndarray
    loss_U: np.ndarray


def unigram(stream: SequenceStream, special_ids: Sequence[int], vocabulary_size: int) -> np.ndarray:
    """Log-probabilities (V,) of pieces in public text, add-one smoothed; ids that are no text get none."""
    found = np.zeros(vocabulary_size, dtype=np.int64)
    for ids_BT, lengths_B in zip(row_pieces(stream.ids_ST), row_pieces(stream.lengths_S), strict=True):
        real_BT = np.arange(ids_BT.shape[1]) < lengths_B[:, None]
        found += np.bincount(ids_BT[real_BT], minlength=vocabulary_size)[:vocabulary_size]
    counts = found.astype(float) + 1
    counts[list(special_ids)] = 0
    with np.errstate(divide="ignore"):
        return np.log(counts / counts.sum())


def _masked_units(
    stream: SequenceStream, start: int, end: int, per_unit: int, masking: Masking, streams: KeyedRandomness
) -> tuple[MaskedRows, np.ndarray]:
    """Masked rows of these units, at most ``per_unit`` of each, by the unit's own draws, and the unit of each row, from 0."""
    rows: list[np.ndarray] = []
    uniforms: list[np.ndarray] = []
    owners: list[int] = []
    length = stream.ids_ST.shape[1]
    for unit, key in enumerate(stream.keys_U[start:end]):
        generator = streams.generator("evaluation", key)
        own = stream.choose_rows(start + unit, per_unit, generator)
        rows.append(own)
        uniforms.append(generator.random((len(own), 3, length)))
        owners += [unit] * len(own)
    chosen = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
    drawn = np.concatenate(uniforms) if uniforms else np.zeros((0, 3, length))
    masked = mask_rows(stream.ids_ST[chosen].astype(np.int64), stream.lengths_S[chosen], drawn, masking)
    return masked, np.asarray(owners, dtype=np.int64)


def score_units(
    models: Mapping[str, PreTrainedModel | np.ndarray],
    stream: SequenceStream,
    per_unit: int,
    masking: Masking,
    streams: KeyedRandomness,
) -> dict[str, Scores]:
    """Scores of every model (or unigram table of log-probabilities) on the same masks."""
    parts: dict[str, list[Scores]] = {name: [] for name in models}
    for start in range(0, max(1, stream.units), _UNITS_AT_ONCE):
        end = min(start + _UNITS_AT_ONCE, stream.units)
        masked, owner_B = _masked_units(stream, start, end, per_unit, masking, streams)
        for name, model in models.items():
            parts[name].append(_scores_of(model, masked, owner_B, end - start))
    return {
        name: Scores(*(np.concatenate(own) for own in zip(*((s.accuracy_U, s.loss_U) for s in found), strict=True)))
        for name, found in parts.items()
    }


def _scores_of(model: PreTrainedModel | np.ndarray, masked: MaskedRows, owner_B: np.ndarray, units: int) -> Scores:
    right_BK, loss_BK = _score_table(model, masked) if isinstance(model, np.ndarray) else _score_model(model, masked)
    counts_U = np.bincount(np.repeat(owner_B, masked.real_BK.sum(axis=1)), minlength=units)
    right_U = np.bincount(owner_B, (right_BK * masked.real_BK).sum(axis=1), minlength=units)
    real_loss_BK = np.where(masked.real_BK, loss_BK, 0.0)  # of a slot that is none it may be infinite
    loss_U = np.bincount(owner_B, real_loss_BK.sum(axis=1), minlength=units)
    some = counts_U > 0
    return Scores(right_U[some] / counts_U[some], loss_U[some] / counts_U[some])


def _score_table(log_probabilities_V: np.ndarray, masked: MaskedRows) -> tuple[np.ndarray, np.ndarray]:
    right_BK = masked.labels_BK == int(np.argmax(log_probabilities_V))
    loss_BK = np.where(masked.real_BK, -log_probabilities_V[masked.labels_BK], 0.0)
    return right_BK, loss_BK


@torch.no_grad()
def _score_model(model: PreTrainedModel, masked: MaskedRows) -> tuple[np.ndarray, np.ndarray]:
    """Score in batches of one size, which blank rows fill: how a row is rounded is no matter of how many others there are.

    Of a row at which the model raises nothing is right, and its loss is no number.
    """
    model.eval()
    kept = Kept(model)
    shape = masked.slots_BK.shape
    right_BK, loss_BK = np.zeros(shape, dtype=bool), np.zeros(shape)
    none = np.zeros(0, dtype=np.int64)
    at_once = rows_at_once(
        model,
        _ROWS_AT_ONCE,
        (masked.ids_BT.shape[1],),
        (shape[1],),
        lambda _, rows: _batch_scores(model, masked, none, rows),
    )
    failed_2K = np.stack([np.zeros(shape[1]), np.full(shape[1], np.nan)])
    for start in range(0, len(masked.ids_BT), at_once):
        rows = np.arange(start, min(start + at_once, len(masked.ids_BT)))
        found_B2K = read_rows(kept, rows, lambda rows: _batch_scores(model, masked, rows, at_once), failed_2K)
        right_BK[rows], loss_BK[rows] = found_B2K[:, 0] > 0, found_B2K[:, 1]
    return right_BK, loss_BK


def _batch_scores(model: PreTrainedModel, masked: MaskedRows, rows: np.ndarray, at_once: int) -> np.ndarray:
    """The scores of each row: whether its slots are right, and their losses (B, 2, K)."""
    ids_BT = _filled(masked.ids_BT[rows], at_once)
    attention_BT = _filled(masked.attention_BT[rows].astype(np.int64), at_once)
    attention_BT[len(rows) :, :2] = 1  # a blank row has two positions
    slots_BK, labels_BK = _filled(masked.slots_BK[rows], at_once), _filled(masked.labels_BK[rows], at_once)
    logits_BKV = masked_logits(model, ids_BT, attention_BT, slots_BK)
    right_BK = (logits_BKV.argmax(dim=-1) == labels_BK).double()
    return torch.stack([right_BK, cross_entropy(logits_BKV, labels_BK).double()], dim=1).numpy()[: len(rows)]


def _filled(array: np.ndarray, rows: int) -> torch.Tensor:
    """The array as a tensor, with rows of zeros up to the size of a batch."""
    whole = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    whole[: len(array)] = array
    return torch.from_numpy(whole)


def unit_vectors(scores: Mapping[str, Scores], loss_bound: float) -> np.ndarray:
    """Vectors (U, M) with entries in [0, 1]: a one, then each model's accuracy and its loss over ``loss_bound``, clipped.

    A loss that is not a number (a model that diverged) counts as the bound: whether a release fails must not depend on a unit.
    """
    columns = [np.ones_like(next(iter(scores.values())).loss_U)]
    for score in scores.values():
        columns += [score.accuracy_U, np.nan_to_num(np.clip(score.loss_U / loss_bound, 0.0, 1.0), nan=1.0)]
    return np.stack(columns, axis=1)


def noisy_sum(vectors_UM: np.ndarray, noise_multiplier: float, generator: np.random.Generator) -> np.ndarray:
    """The sum over units plus N(0, (noise_multiplier sqrt(M))^2): a unit's vector has l2 norm at most sqrt(M).

    Both are rounded to a public grid, and the noise is a thousandth more for it: a sum of doubles would tell in its last digits how
    large it was before the noise (TACIT-45).
    """
    measured = vectors_UM.shape[1]
    if vectors_UM.size and not (np.all(vectors_UM >= 0) and np.all(vectors_UM <= 1)):
        raise ValueError("unit vectors must lie in [0, 1]: their bound is what the noise is scaled to")
    stddev, grid = on_grid(noise_multiplier, math.sqrt(measured), measured)
    noise = torch.from_numpy(generator.standard_normal(measured) * stddev)
    return (grid.rounded(torch.from_numpy(vectors_UM.sum(axis=0))) + grid.rounded(noise)).numpy()


def margin_of_ratio(margin: float, ratio: float) -> float:
    """The margin of the ratio of a noisy sum and a noisy count, where the sum's own noise makes it off by ``margin``.

    Both have noise of one law, and (S + z) / (N + z') is off by (z - r z') / N (first order): near r = 1 the count's adds most.
    """
    return margin * math.hypot(1.0, min(1.0, max(0.0, ratio)))


def means_of_sum(
    total_M: np.ndarray, names: tuple[str, ...], noise_stddev: float, loss_bound: float
) -> dict[str, dict[str, float | list[float]]]:
    """Accuracy and perplexity of each model from a (noisy) sum, with the 95 % interval of the noise alone, that of the count too.

    Ratios of noisy sums, clipped to what is possible; a noisy count below 1 counts as 1.
    """
    count = max(1.0, float(total_M[0]))
    margin = 1.96 * noise_stddev / count
    found: dict[str, dict[str, float | list[float]]] = {}
    for position, name in enumerate(names):
        accuracy, loss = (float(value) / count for value in total_M[1 + 2 * position : 3 + 2 * position])
        accuracies, losses = (
            [min(1.0, max(0.0, ratio + off)) for off in (-own, 0.0, own)]
            for ratio in (accuracy, loss)
            for own in (margin_of_ratio(margin, ratio),)
        )
        found[name] = {
            "accuracy": accuracies[1],
            "accuracy_interval": [accuracies[0], accuracies[2]],
            "perplexity": math.exp(losses[1] * loss_bound),
            "perplexity_interval": [math.exp(losses[0] * loss_bound), math.exp(losses[2] * loss_bound)],
        }
    return found

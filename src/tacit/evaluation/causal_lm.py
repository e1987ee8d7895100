"""Perplexity of causal models on held-out units, beside unigram and uniform baselines.

On public text, and for the curator alone, the means are exact (`perplexities`). On private held-out units they are a
release: every unit gives one vector whose entries lie in [0, 1] (`unit_vectors`), and only the sum of these vectors leaves,
with Gaussian noise on it (`tacit.evaluation.masked_lm.noisy_sum`). There a unit counts once whatever its length, so the released
number is exp of the mean over units of a unit's own nats per token; it is not the perplexity per token of the text as a whole.
With `UnitSizes` two more entries say how many tokens a word and a byte have, each a mean over units too, and turn it into a
perplexity per word and bits per byte.

Every token of a row but the first is predicted from those before it in the row, the end token too. A text that was cut
into several rows gives an end token for each, and no row sees the one before it. Of a conversation, or a prompt with its response,
the tokens alone count that training learns (`SequenceStream.counted_ST`).

Shapes: U units, S rows of the stream, B rows that are scored, T positions, V vocabulary, M measured quantities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.corpus.units import Unit
from tacit.engine.total import Kept, read_rows
from tacit.errors import DataError
from tacit.evaluation.masked_lm import margin_of_ratio
from tacit.evaluation.places import rows_at_once
from tacit.models.causal import causal_row_losses
from tacit.randomness import KeyedRandomness
from tacit.training.sequences import SequenceStream
from tacit.training.unit_rows import all_widths, widths

__all__ = [
    "TOKENS_PER_BYTE",
    "TOKENS_PER_WORD",
    "Perplexities",
    "UnitLosses",
    "UnitSizes",
    "means_of_sum",
    "perplexities",
    "score_units",
    "text_sizes",
    "uniform",
    "unigram",
    "unit_sizes",
    "unit_vectors",
]

TOKENS_PER_WORD = 8.0
"""The most tokens a word that count in a release: a public constant, well above what tokenizers make of text."""

TOKENS_PER_BYTE = 1.0
"""The same of a byte."""

_ROWS_AT_ONCE = 32
_UNITS_AT_ONCE = 2048


@dataclass(frozen=True)
class UnitLosses:
    """What a model makes of each unit (U,), those without rows included (0 nats, 0 tokens).

    Args:
        nats_U: sum over the unit's predicted tokens of -ln p(token given the tokens before it in its row).
        tokens_U: how many these are: all but the first of each row, end tokens included; of a conversation, and of a prompt with its
            response, those that count.
        whole: whether all rows of every unit counted.
    """

    nats_U: np.ndarray
    tokens_U: np.ndarray
    whole: bool


@dataclass(frozen=True)
class UnitSizes:
    """How long each unit is (U,), by three measures; all private.

    Args:
        tokens_U: predicted tokens of all its rows, those that are not scored too.
        words_U: from `text_sizes`.
        bytes_U: likewise.
    """

    tokens_U: np.ndarray
    words_U: np.ndarray
    bytes_U: np.ndarray


@dataclass(frozen=True)
class Perplexities:
    """How well a model predicts texts, by three measures. With N the nats of all predicted tokens (end tokens included):

    The first depends on how many tokens a tokenizer makes of a text, so it compares models that share one. The others
    count the text itself and compare tokenizers too, as long as these lose the same of it: nats are those of the tokens,
    and what a tokenizer folds (case, accents, spacing) or replaces by [UNK] costs nothing. They are upper bounds, as the
    text's other spellings in the same vocabulary are left out.

    Args:
        per_token: exp(N / tokens). A model that knows nothing has V.
        per_word: exp(N / words), where words are what white space separates in the texts as they were read.
        bits_per_byte: N / (ln 2 * bytes), bytes of the same texts in UTF-8, white space included.
        tokens: predicted tokens.
        words: words of the texts.
        bytes: bytes of the texts.
    """

    per_token: float
    per_word: float
    bits_per_byte: float
    tokens: int
    words: int
    bytes: int


def text_sizes(units: Sequence[Unit]) -> tuple[np.ndarray, np.ndarray]:
    """White-space words and UTF-8 bytes of each unit's texts, (U,) each.

    >>> text_sizes([Unit("a", ("µ  is", "mu\\n")), Unit("b", ())])
    (array([3, 0]), array([9, 0]))
    """
    words = [sum(len(text.split()) for text in unit.texts) for unit in units]
    sizes = [sum(len(text.encode()) for text in unit.texts) for unit in units]
    return np.array(words, dtype=np.int64), np.array(sizes, dtype=np.int64)


def unit_sizes(stream: SequenceStream, units: Sequence[Unit]) -> UnitSizes:
    """Sizes of the units that the stream was made of; of conversations those of the part that counts."""
    tokens_S = np.concatenate([predicted.sum(axis=1) for _, predicted in _all_predicted(stream)])
    owner_S = np.repeat(np.arange(stream.units), np.diff(stream.starts_U1))
    tokens_U = np.bincount(owner_S, tokens_S, minlength=stream.units).astype(np.int64)
    return UnitSizes(tokens_U, *text_sizes(units))


def unigram(stream: SequenceStream, vocabulary_size: int) -> np.ndarray:
    """Log-probabilities (V,) of the tokens that public rows predict, end tokens included.

    One is added for every id, so that no token of another text has probability 0, whatever special token a text may spell.
    """
    found_V = np.zeros(vocabulary_size, dtype=np.int64)
    for ids_BT, predicted_BT in _all_predicted(stream):
        found_V += np.bincount(ids_BT[predicted_BT], minlength=vocabulary_size)
    counts_V = found_V.astype(float) + 1
    return np.log(counts_V / counts_V.sum())


def uniform(vocabulary_size: int) -> np.ndarray:
    """Log-probabilities (V,) that know nothing: perplexity V per token."""
    return np.full(vocabulary_size, -math.log(vocabulary_size))


def score_units(
    models: Mapping[str, PreTrainedModel | np.ndarray],
    stream: SequenceStream,
    streams: KeyedRandomness,
    per_unit: int | None = None,
) -> dict[str, UnitLosses]:
    """Losses of every model (or table of log-probabilities) on the same rows.

    Args:
        models: by name.
        stream: the units.
        streams: for the choice of rows, each unit's by its own key.
        per_unit: rows of a unit that count at most; all, if None.
    """
    tokens_U = np.zeros(stream.units, dtype=np.int64)
    nats = {name: np.zeros(stream.units) for name in models}
    rows = 0
    for start in range(0, stream.units, _UNITS_AT_ONCE):
        part = slice(start, min(start + _UNITS_AT_ONCE, stream.units))
        row_B, owner_B = _chosen_rows(stream, part, streams, per_unit)
        count = part.stop - start
        tokens_U[part] = np.bincount(owner_B, _predicted(stream, row_B).sum(axis=1), minlength=count)
        for name, model in models.items():
            is_table = isinstance(model, np.ndarray)
            nats_B = _table_nats(model, stream, row_B) if is_table else _model_nats(model, stream, row_B)
            nats[name][part] = np.bincount(owner_B, nats_B, minlength=count)
        rows += len(row_B)
    return {name: UnitLosses(nats_U, tokens_U, whole=rows == stream.sequences) for name, nats_U in nats.items()}


def _chosen_rows(
    stream: SequenceStream, part: slice, streams: KeyedRandomness, per_unit: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of some units that count, and the unit of each, from 0."""
    chosen = [
        stream.rows_of(unit)
        if per_unit is None
        else stream.choose_rows(unit, per_unit, streams.generator("evaluation", key))
        for unit, key in enumerate(stream.keys_U[part], start=part.start)
    ]
    owner_B = np.repeat(np.arange(len(chosen)), [len(rows) for rows in chosen])
    return np.concatenate([*chosen, np.zeros(0, dtype=np.int64)]), owner_B


def _all_predicted(stream: SequenceStream) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows, some thousand at once, and where their predicted tokens are."""
    for start in range(0, max(1, stream.sequences), _UNITS_AT_ONCE):
        row_B = np.arange(start, min(start + _UNITS_AT_ONCE, stream.sequences))
        yield stream.ids_ST[row_B], _predicted(stream, row_B)


def _predicted(stream: SequenceStream, row_B: np.ndarray) -> np.ndarray:
    """Where the predicted tokens of these rows are (B, T): not at position 0, not at padding, and where they count."""
    place_T = np.arange(stream.ids_ST.shape[1])
    real_BT = (place_T > 0) & (place_T < stream.lengths_S[row_B][:, None])
    return real_BT if stream.counted_ST is None else real_BT & stream.counted_ST[row_B]


def _table_nats(log_probabilities_V: np.ndarray, stream: SequenceStream, row_B: np.ndarray) -> np.ndarray:
    predicted_BT = _predicted(stream, row_B)
    return np.where(predicted_BT, -log_probabilities_V[stream.ids_ST[row_B]], 0.0).sum(axis=1)


@torch.no_grad()
def _model_nats(model: PreTrainedModel, stream: SequenceStream, row_B: np.ndarray) -> np.ndarray:
    """Rows of one width together, and blank rows fill each batch.

    So the shapes of all that is computed for a row are a function of its own length and of public numbers, and with them how its
    loss is rounded: a released sum over units moves by what one unit adds, and not by how others are computed beside it
    (docs/decisions/0009-a-units-shape-is-its-own.md). The loss of a row at which the model raises is no number.
    """
    training = model.training
    model.eval()
    kept = Kept(model)
    nats_B = np.zeros(len(row_B))
    width_B = widths(stream.lengths_S[row_B], stream.ids_ST.shape[1], math.inf)
    at_once = rows_at_once(
        model,
        _ROWS_AT_ONCE,
        all_widths(stream.ids_ST.shape[1]),
        (),
        lambda width, rows: _blank_nats(model, width, rows),
    )
    for width in np.unique(width_B):
        same_B = np.flatnonzero(width_B == width)
        for start in range(0, len(same_B), at_once):
            part = same_B[start : start + at_once]

            def read(rows: np.ndarray, width: int = int(width)) -> np.ndarray:
                return _batch_nats(model, stream, rows, width, at_once)

            nats_B[part] = read_rows(kept, row_B[part], read)
    model.train(training)
    return nats_B


def _batch_nats(
    model: PreTrainedModel, stream: SequenceStream, row_B: np.ndarray, width: int, at_once: int
) -> np.ndarray:
    ids = np.zeros((at_once, width), dtype=np.int64)
    lengths = np.full(at_once, 2)  # a blank row has two positions
    weights = np.zeros((at_once, width), dtype=np.float32)
    ids[: len(row_B)] = stream.ids_ST[row_B, :width]
    lengths[: len(row_B)] = stream.lengths_S[row_B]
    weights[: len(row_B)] = _predicted(stream, row_B)[:, :width]
    return _nats(model, ids, lengths, weights)[: len(row_B)]


def _blank_nats(model: PreTrainedModel, width: int, rows: int) -> np.ndarray:
    """The nats of blank rows that are as long as they may be, so that a head is asked at all their places."""
    counted = np.ones((rows, width), dtype=np.float32)
    counted[:, 0] = 0
    return _nats(model, np.zeros((rows, width), dtype=np.int64), np.full(rows, width), counted)


def _nats(model: PreTrainedModel, ids_BT: np.ndarray, lengths_B: np.ndarray, weights_BT: np.ndarray) -> np.ndarray:
    attention_BT = np.arange(ids_BT.shape[1]) < lengths_B[:, None]
    tensors = (torch.from_numpy(array).to(model.device) for array in (ids_BT, attention_BT, weights_BT))
    return causal_row_losses(model, *tensors).double().cpu().numpy()


def perplexities(losses: UnitLosses, words_U: np.ndarray, bytes_U: np.ndarray) -> Perplexities:
    """The exact means over all units: of public text, or for the curator alone.

    Args:
        losses: of whole units.
        words_U: from `text_sizes`, of the units that the stream was made of.
        bytes_U: likewise.

    Raises:
        ValueError: the losses leave out rows, or are of other units than the sizes.
        DataError: there is no text.
    """
    if not losses.whole:
        raise ValueError("rows were left out, so words and bytes of the whole units do not fit; score all rows")
    if not len(losses.nats_U) == len(words_U) == len(bytes_U):
        raise ValueError(f"losses of {len(losses.nats_U)} units and sizes of {len(words_U)} and {len(bytes_U)}")
    nats, tokens = float(losses.nats_U.sum()), int(losses.tokens_U.sum())
    words, size = int(words_U.sum()), int(bytes_U.sum())
    if 0 in (tokens, words, size):
        raise DataError("there is no held-out text to evaluate; give a corpus with some")
    bits = nats / (math.log(2) * size)
    return Perplexities(_exp(nats / tokens), _exp(nats / words), bits, tokens, words, size)


def _exp(value: float) -> float:
    """exp, infinite where a float cannot hold it: a bad model has many nats a word."""
    return value if math.isnan(value) else math.exp(value) if value < 700 else math.inf


def unit_vectors(losses: Mapping[str, UnitLosses], loss_bound: float, sizes: UnitSizes | None = None) -> np.ndarray:
    """Vectors (U, M) with entries in [0, 1]: a one, then each model's nats per token of the unit over ``loss_bound``.

    With ``sizes`` two more: the unit's tokens a word over `TOKENS_PER_WORD`, and a byte over `TOKENS_PER_BYTE`. They are the unit's
    own ratios, so no unit is divided by what others hold; sums of tokens, words and bytes would move by the longest unit's.

    What is above the bound counts as the bound, so one unit moves the sum by at most sqrt(M) in l2, and clipping
    can only make a model look better. With 1.5 ln V (the uniform model has ln V) it happens to units that a model expects
    less than blind chance by far. A loss that is not a number (a model that diverged) counts as the bound too: whether a
    release fails must not depend on a unit. Units without a token are left out, each by itself.
    """
    some_U = next(iter(losses.values())).tokens_U > 0
    columns = [np.ones(int(some_U.sum()))]
    for loss in losses.values():
        mean_U = loss.nats_U[some_U] / loss.tokens_U[some_U]
        columns.append(np.nan_to_num(np.clip(mean_U / loss_bound, 0.0, 1.0), nan=1.0))
    if sizes is not None:
        tokens_U = sizes.tokens_U[some_U]
        for size_U, bound in ((sizes.words_U, TOKENS_PER_WORD), (sizes.bytes_U, TOKENS_PER_BYTE)):
            # A text of white space has tokens and no word.
            ratio_U = tokens_U / np.maximum(size_U[some_U], 1)
            columns.append(np.where(size_U[some_U] > 0, np.clip(ratio_U / bound, 0.0, 1.0), 1.0))
    return np.stack(columns, axis=1)


def means_of_sum(
    total_M: np.ndarray, names: tuple[str, ...], noise_stddev: float, loss_bound: float, with_sizes: bool = False
) -> dict[str, dict[str, float | list[float]]]:
    """Perplexity of each model from a (noisy) sum of unit vectors, with the 95 % interval of the noise alone.

    Ratios of noisy sums, clipped to what is possible; a noisy count below 1 counts as 1. Per word and per byte they are products of
    two such means (the first order of their product, in which the count's noise is twice).

    Args:
        with_sizes: whether the vectors were made with sizes.
    """
    count = max(1.0, float(total_M[0]))
    margin = 1.96 * noise_stddev / count
    losses_M, sizes_M = (total_M[1:-2], total_M[-2:]) if with_sizes else (total_M[1:], None)
    found: dict[str, dict[str, float | list[float]]] = {}
    for name, total in zip(names, losses_M, strict=True):
        loss = float(total) / count
        low, mean, high = (
            math.exp(min(1.0, max(0.0, loss + off)) * loss_bound)
            for own in (margin_of_ratio(margin, loss),)
            for off in (-own, 0.0, own)
        )
        found[name] = {"perplexity": mean, "perplexity_interval": [low, high]}
        if sizes_M is not None:
            shares = [min(1.0, max(0.0, float(value) / count)) for value in (total, *sizes_M)]
            word = _product(shares[0], shares[1], margin)
            byte = _product(shares[0], shares[2], margin)
            per_word = [math.exp(loss_bound * TOKENS_PER_WORD * value) for value in word]
            bits = [loss_bound * TOKENS_PER_BYTE / math.log(2) * value for value in byte]
            found[name] |= {
                "perplexity_per_word": per_word[1],
                "perplexity_per_word_interval": [per_word[0], per_word[2]],
                "bits_per_byte": bits[1],
                "bits_per_byte_interval": [bits[0], bits[2]],
            }
    return found


def _product(one: float, other: float, margin: float) -> tuple[float, float, float]:
    """(low, product, high) of two ratios from 0 to 1 over one noisy count; the noise of a sum is this margin of its ratio.

    >>> _product(0.5, 0.5, 0.0)
    (0.25, 0.25, 0.25)
    """
    product, off = one * other, margin * math.hypot(one, other, 2 * one * other)
    return max(0.0, product - off), product, min(1.0, product + off)

"""ln PPL of texts under a public causal language model, where no text's score depends on another text.

A privacy guarantee counts what changes when one record changes. If the record's batch-mates got other scores with it, even in the
last bit, one of them could cross a threshold of rho, and the change would be of several records and not of one. So a score has to be
a function of its record, bit for bit. Reading records together endangers that in three ways:

- *Padding.* A row is padded up to a length that follows from its own length alone, behind its last token, where a causal model
  does not look.
- *The shape of a batch.* Libraries choose the order of their sums by the shape of the whole batch, and every order rounds in
  its own way. So rows of one padded length are always read ``B(T)`` together; rows of padding fill up a batch that is not full. All
  on one thread, in float32, from aligned memory.
- *The place in the batch.* Rows at its edge may be summed by another kernel than those inside. Before the first text of a shape
  is read, made-up rows are read in all places and among other rows, on this machine and with this model (`_independent`).
  If one bit differs, this shape is read one row at a time, where no other row is.

Nothing is rounded to a grid: a grid makes it rarer that a difference shows, and no less a leak where it does.

What is read: a start token and the text's tokens, all of which are predicted. A longer text is cut in windows of the model's
length, each with its start token, and counts as a whole: all nats over all tokens. A token that stands for what the tokenizer cannot
spell costs at least ln V nats, the uniform guess: the model never saw what it stands for, which may be the secret.

Shapes: B rows, T positions, N = B T, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel

from tacit.config.kinds import KINDS, kind_named, one_of
from tacit.config.shape import folder_shape, read_config
from tacit.engine.precision import full_precision
from tacit.engine.total import Kept, bits_of_weights, read_rows
from tacit.errors import DataError, RefusedError, UsageError
from tacit.failures import is_out_of_memory
from tacit.models.causal import head_and_hidden, head_of
from tacit.models.kinds import load_model
from tacit.models.memory import remembered_length
from tacit.models.places import together
from tacit.vocabulary.encode import encode_texts
from tacit.vocabulary.given import read_given
from tacit.vocabulary.special import SpecialTokens

__all__ = ["Scorer", "ScorerOptions", "TextScore"]

_POSITIONS_AT_ONCE = 512  # small enough that a batch stays in the cache of a core
_LOGITS_AT_ONCE = 1 << 20
_KERNELS = [  # of attention, as torch allows them when nobody chooses
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.MATH,
]
_LSTM_LENGTH = 256  # an LSTM has no length of its own


class TextScore(NamedTuple):
    """What a model makes of one text: the nats of all its predicted tokens, and how many these are."""

    nats: float
    tokens: int

    @property
    def log_perplexity(self) -> float:
        """Mean nats a token; not a number where there is no token."""
        return self.nats / self.tokens if self.tokens else math.nan


@dataclass(frozen=True)
class ScorerOptions:
    """The public model that scores, and how much of a text it reads at once.

    Args:
        folder: a local Hugging Face folder with a causal model of a kind that is known here, and its fast tokenizer.
        length: tokens of a window; None: as many as the model has positions (an LSTM: 256).
    """

    folder: Path
    length: int | None = None

    def load(self) -> Scorer:
        """The scorer.

        Raises:
            DataError: the folder has no causal model, no fast tokenizer, or the two do not belong together.
            UsageError: a window is longer than the model's positions.
            RefusedError: ``unsteady-model``.
        """
        kind, values = read_config(self.folder)
        if not kind_named(kind).is_causal or not _has_causal_head(values.get("architectures")):
            raise DataError(
                f"{self.folder} holds no causal language model, so nothing there predicts the next token; give the folder of a "
                + one_of(kind for kind in KINDS.values() if kind.is_causal)
            )
        shape = folder_shape(self.folder, kind)
        given = read_given(self.folder)
        size, known = given.special.size, shape.vocabulary or 0
        if size > known:
            raise DataError(
                f"{self.folder}: the tokenizer has ids up to {size - 1} and the model's embedding ends at {known - 1}; give the "
                "tokenizer of this model"
            )
        with _alike():
            model = load_model(self.folder)
        most = shape.positions or _positions_of(model) or self.length or _LSTM_LENGTH
        length = most if self.length is None else self.length
        if not 1 <= length <= most:
            raise UsageError(f"length is {length}; it must be from 1 to the {most} positions of {self.folder}")
        scorer = Scorer(model, given.tokenizer, given.special, length)
        scorer.refuse_memory()
        return scorer


def _positions_of(model: PreTrainedModel) -> int | None:
    """Where config.json does not say how many there are, its class does: with more of them, some types change their frequencies."""
    stated = model.config.to_dict().get("max_position_embeddings")
    return stated if isinstance(stated, int) else None


def _has_causal_head(architectures: object) -> bool:
    """Whether a causal head is named, as transformers names the classes; a config that names none may have one."""
    names = architectures if isinstance(architectures, list) else []
    return not names or any(str(name).endswith(("LMHeadModel", "ForCausalLM")) for name in names)


class Scorer:
    """ln PPL of texts; each is a function of its text alone.

    Args:
        model: of a causal kind; in float32 on the CPU; it is put in eval mode, and its weights in aligned memory.
        tokenizer: without padding and truncation; a special token that is spelled in a text is read as text.
        special: its special tokens.
        length: tokens of a window, at most the model's positions.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer, special: SpecialTokens, length: int) -> None:
        self._model = model.eval()
        for parameter in model.parameters():  # the order of sums may follow from where memory begins
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
        self._kept = Kept(model)
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True
        self._special = special
        self._length = length
        self._head = head_of(model)
        self._rows: dict[int, int] = {}  # at once, by padded length

    @property
    def length(self) -> int:
        """Tokens of a window."""
        return self._length

    def refuse_memory(self) -> None:
        """Try made-up rows of every padded length: the longest first, then all upwards, and downwards again.

        Nobody knows them before: who does could make a model that is steady at these alone.

        Raises:
            RefusedError: ``unsteady-model``: a row had other bits the next time, so what was read before it decides its score.
        """
        draw = torch.Generator()
        draw.seed()
        ids_1T = torch.randint(self._special.size, (1, self._length), generator=draw)
        widths = sorted({_padded(tokens, self._length) for tokens in range(1, self._length + 1)})
        weights = bits_of_weights(self._model)
        with _alike(), torch.no_grad():
            width = remembered_length(lambda width: self._read(ids_1T[:, :width], ids_1T[:, :width]).numpy(), widths)
        if width is None and bits_of_weights(self._model) != weights:
            width = self._length
        if width is not None:
            raise RefusedError(
                "unsteady-model",
                f"the scorer, a {type(self._model).__name__}, gives a row of {width} tokens another score after other rows, or draws "
                "random numbers for it; take another type of model, or another option of its config.json",
            )

    def score(self, texts: Sequence[str]) -> list[TextScore]:
        """The score of each text, in order."""
        encodings = encode_texts(self._tokenizer, texts)
        windows = [(text, window) for text, one in enumerate(encodings) for window in self._windows(one.ids)]
        nats, tokens = np.zeros(len(texts)), np.zeros(len(texts), dtype=np.int64)
        with _alike(), torch.no_grad():
            scored = self._nats_of([window for _, window in windows])
        for (text, window), found in zip(windows, scored, strict=True):  # a text's windows in their order
            nats[text] += found
            tokens[text] += len(window)
        return [TextScore(float(sum_), int(count)) for sum_, count in zip(nats, tokens, strict=True)]

    def rows_at_once(self, tokens: int) -> int:
        """How many windows of so many tokens are read together: a constant of the model, the machine and the padded length."""
        positions = _padded(tokens, self._length)
        if positions not in self._rows:
            with _alike(), torch.no_grad():
                rows = together(self._model, max(1, _POSITIONS_AT_ONCE // positions), 1, [positions])
                self._rows[positions] = rows if rows == 1 or self._may_be_read_together(rows, positions) else 1
        return self._rows[positions]

    def decided_rows(self) -> dict[int, int]:
        """`rows_at_once` by every padded length, for other processes: each would try rows of its own."""
        widths = {_padded(tokens, self._length) for tokens in range(1, self._length + 1)}
        return {width: self.rows_at_once(width) for width in sorted(widths)}

    def take_rows(self, decided: Mapping[int, int]) -> None:
        """What another process has decided: which of them reads a text hangs on the texts before it."""
        self._rows.update(decided)

    def _windows(self, ids: Sequence[int]) -> Iterator[Sequence[int]]:
        ids = self._special.text_ids(ids)
        for start in range(0, len(ids), self._length):
            yield ids[start : start + self._length]

    def _nats_of(self, windows: Sequence[Sequence[int]]) -> list[float]:
        """Summed nats of each window; windows of one padded length together. NaN for one at which the model raises."""
        found = [0.0] * len(windows)
        by_length: defaultdict[int, list[int]] = defaultdict(list)
        for number, window in enumerate(windows):
            by_length[_padded(len(window), self._length)].append(number)
        for positions, numbers in by_length.items():
            rows = self.rows_at_once(positions)
            for first in range(0, len(numbers), rows):
                part = numbers[first : first + rows]

                def read(part: np.ndarray, positions: int = positions, rows: int = rows) -> np.ndarray:
                    return self._window_nats([windows[number] for number in part], rows, positions)

                for number, nats in zip(part, read_rows(self._kept, np.array(part), read), strict=True):
                    found[number] = float(nats)
        return found

    def _window_nats(self, windows: Sequence[Sequence[int]], rows: int, positions: int) -> np.ndarray:
        """Summed nats of windows that are read together, in a batch of so many rows."""
        inputs_BT = np.full((rows, positions), self._special.pad, dtype=np.int64)
        targets_BT = np.full((rows, positions), self._special.pad, dtype=np.int64)
        for row, window in enumerate(windows):
            inputs_BT[row, : len(window)] = [self._special.start, *window[:-1]]
            targets_BT[row, : len(window)] = window
        nats_BT = self._read(torch.from_numpy(inputs_BT), torch.from_numpy(targets_BT)).double().numpy()
        ends = map(len, windows)
        return np.array(
            [self._counted(nats_BT[row, :end], targets_BT[row, :end]).sum() for row, end in enumerate(ends)]
        )

    def _counted(self, nats_T: np.ndarray, targets_T: np.ndarray) -> np.ndarray:
        """Nats, of what the tokenizer cannot spell those of a uniform guess at least."""
        if self._special.unknown is None:
            return nats_T
        least = math.log(self._head.weight.shape[0])
        return np.where(targets_T == self._special.unknown, np.maximum(nats_T, least), nats_T)

    def _read(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Nats (B, T) of the targets, each predicted from the inputs up to its place. The logits of few positions exist at a time.

        Blank positions fill the last part: the product of a few rows is computed in another way than that of many.
        """
        hidden_ND, targets_N = self._hidden(inputs_BT).flatten(0, 1), targets_BT.flatten()
        count, size = len(targets_N), max(16, _LOGITS_AT_ONCE // self._head.weight.shape[0] // 8 * 8)
        if count > size:
            missing = -count % size
            hidden_ND, targets_N = F.pad(hidden_ND, (0, 0, 0, missing)), F.pad(targets_N, (0, missing))
        parts: list[Tensor] = []
        for first in range(0, len(targets_N), size):
            logits_NV = self._head(hidden_ND[first : first + size])
            parts.append(F.cross_entropy(logits_NV, targets_N[first : first + size], reduction="none"))
        return torch.cat(parts)[:count].view_as(targets_BT)

    def _hidden(self, ids_BT: Tensor) -> Tensor:
        """What the head gets (B, T, D)."""
        return head_and_hidden(self._model, ids_BT)[1]

    def _may_be_read_together(self, rows: int, positions: int) -> bool:
        """Whether rows may be read together: not where the model raises at made-up ones, which is no reason for an error."""
        try:
            return self._independent(rows, positions)
        except Exception as error:
            if is_out_of_memory(error):
                raise
        finally:
            self._kept.put_back()
        return False

    def _independent(self, rows: int, positions: int) -> bool:
        """Whether, in batches of this shape, a row's nats are the same bits in every place and among any other rows.

        Neighbouring places are compared with each other, so all are: a place whose sums have another order has a neighbour that
        differs from it. Random rows, as almost all of their numbers change with the order of the sums; nobody knows them before, as
        in `refuse_memory`.
        """
        draw = torch.Generator()
        draw.seed()
        size = self._special.size
        inputs_BT, targets_BT, others_BT = (torch.randint(size, (rows, positions), generator=draw) for _ in range(3))
        found_BT = self._read(inputs_BT, targets_BT)
        for shift in {1, rows // 2}:
            moved_BT = self._read(inputs_BT.roll(shift, 0), targets_BT.roll(shift, 0))
            if not torch.equal(moved_BT, found_BT.roll(shift, 0)):
                return False
        for kept in (slice(0, None, 2), slice(1, None, 2)):
            mixed_BT = others_BT.clone()
            mixed_BT[kept] = inputs_BT[kept]
            if not torch.equal(self._read(mixed_BT, targets_BT)[kept], found_BT[kept]):
                return False
        return True


def _padded(tokens: int, length: int) -> int:
    """The padded length of a window: few different ones, each hardly longer than what it holds.

    >>> [_padded(tokens, 1000) for tokens in (1, 8, 9, 64, 65, 129, 999)]
    [8, 8, 16, 64, 80, 160, 1000]
    """
    step = max(8, 1 << max(0, (tokens - 1).bit_length() - 3))
    return min(length, -(-tokens // step) * step)


@contextmanager
def _alike() -> Iterator[None]:
    """Set torch as it comes: each setting decides last bits of a score, and the calling program may have set it for its own process.

    What cannot be asked for (whether tiny numbers are flushed to zero) is set, and stays.
    """
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)  # how a sum is shared among threads is part of its order
    torch.set_default_dtype(torch.float32)
    torch.set_flush_denormal(False)
    # an LSTM has other last bits without
    uses_mkldnn, torch.backends.mkldnn.enabled = torch.backends.mkldnn.enabled, True
    try:
        with (
            full_precision(),
            sdpa_kernel(_KERNELS),
            torch.autocast("cpu", enabled=False),
            torch.device("cpu"),
        ):
            yield
    finally:
        torch.backends.mkldnn.enabled = uses_mkldnn
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)

"""A token-classification model in a local folder as a detector (Zhao et al. 2022, appendix A.4, made pi and pi_c of one).

A long text is read in windows that overlap, each with the model's special tokens; a token that stands in two windows gets the
more suspicious of both opinions, so no window's edge can lose a secret that another window sees. What is marked is in
`tacit.screening.adapters.token_marks`. The model runs in eval mode and without gradients, and nothing is fetched from a hub.

Shape suffixes: B windows, T tokens of a window, L labels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tacit.errors import UsageError
from tacit.files import refuse_pipes
from tacit.screening.adapters.common import TextByText, UnreadableError
from tacit.screening.adapters.elsewhere import named_elsewhere, texts_in
from tacit.screening.adapters.options import HuggingFaceOptions
from tacit.screening.adapters.token_marks import Thresholds, Token, token_spans
from tacit.screening.spans import Span

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["HuggingFaceDetector"]

_MOST_WINDOW = 512
_MOST_OVERLAP = 64
_TOKENS = "special_tokens_map.json"
"""What it holds beside tokens, transformers takes for arguments of loading, and they win over what was said."""

_OPENED = ("tokenizer_config.json", _TOKENS, "added_tokens.json", "generation_config.json")
"""What transformers opens beside config.json, the weights and tokenizer.json. A trainer leaves more, of where it lay."""

_PARTS = ("weight_map", "fast_tokenizer_files", "transformers_weights", "configuration_files")
"""Of what names other files of the folder: none with a slash, whether or not there is such a file."""

_CODE = "_implementation"
"""How attention or experts are computed; with a slash, by code that comes from a hub."""

_NEVER_OPENED = ("_name_or_path", "name_or_path", "special_tokens_map_file")
"""What saving leaves in the files of where a model lay; transformers opens none of these."""

_TAG = re.compile(r"(?:[BIELSU]-)?(.+)", re.DOTALL)


class _Window(NamedTuple):
    """Tokens of a text that the model reads at once; those without a place are special."""

    ids: list[int]
    places: list[tuple[int, int] | None]
    words: list[int | None]


class HuggingFaceDetector(TextByText):
    """Spans of a token-classification model.

    Raises:
        UsageError: the folder holds no token-classification model with a fast tokenizer, it has no such label, or the window
            does not fit it.
    """

    name = "huggingface"

    def __init__(self, options: HuggingFaceOptions) -> None:
        self._options = options
        self._tokenizer, self._model = _loaded(str(options.located(options.folder)))
        self._padding = cast(int, self._tokenizer.pad_token_id or 0)
        self._tags = _tags(self._model, options)
        self._plain = self._tags.index(None)
        self._window, self._overlap = _window_size(self._tokenizer, self._model, options)
        self._thresholds = Thresholds(options.least_tag_score, options.least_plain_score)
        self._check_model()

    def _spans(self, text: str) -> list[Span]:
        windows = list(self._windows(text))
        tokens: list[Token] = []
        try:
            for first in range(0, len(windows), self._options.batch_size):
                for scored in self._scored(windows[first : first + self._options.batch_size]):
                    tokens += scored
        finally:
            self._kept.put_back()  # whatever this text made the model remember
        return token_spans(text, tokens, self._thresholds, self.name)

    def _windows(self, text: str) -> Iterator[_Window]:
        """Windows over all tokens of a text. A special token's name inside it is read as plain text."""
        read = self._tokenizer(
            [text],
            truncation=True,
            max_length=self._window,
            stride=self._overlap,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            split_special_tokens=True,
        )
        columns = zip(read["input_ids"], read["offset_mapping"], read["special_tokens_mask"], strict=True)
        for number, (ids, places, is_special) in enumerate(columns):
            own = [None if special else place for place, special in zip(places, is_special, strict=True)]
            if any(own):  # else an empty text
                yield _Window(ids, own, read.word_ids(number))

    def _scored(self, windows: Sequence[_Window]) -> Iterator[list[Token]]:
        """Each window's tokens with their scores."""
        import torch

        lengths = [len(window.ids) for window in windows]
        longest = max(lengths)
        ids_BT = torch.tensor([window.ids + [self._padding] * (longest - len(window.ids)) for window in windows])
        attention_BT = torch.tensor([[1] * length + [0] * (longest - length) for length in lengths])
        probabilities_BTL = self._probabilities(ids_BT, attention_BT)
        plain_BT = probabilities_BTL[:, :, self._plain].tolist()
        only_tags_BTL = probabilities_BTL.index_fill(2, torch.tensor(self._plain), -1.0)
        scores_BT, tags_BT = (values.tolist() for values in only_tags_BTL.max(dim=2))
        for row, window in enumerate(windows):
            yield [
                Token(*place, word, self._tags[tag] or "", score, plain)
                for place, word, tag, score, plain in zip(
                    window.places, window.words, tags_BT[row], scores_BT[row], plain_BT[row], strict=False
                )  # the lists of a window end before the padding does
                if place is not None
            ]

    def _probabilities(self, ids_BT: Any, attention_BT: Any) -> Any:
        """Probabilities (B, T, L) in float64, on the CPU."""
        import torch

        device = self._options.device
        with torch.no_grad():
            logits_BTL = self._model(input_ids=ids_BT.to(device), attention_mask=attention_BT.to(device)).logits
            probabilities_BTL = logits_BTL.cpu().double().softmax(dim=2)
        if not bool((probabilities_BTL.isfinite().all(dim=2) | (attention_BT == 0)).all()):
            raise UnreadableError  # no threshold would catch it
        return probabilities_BTL

    def _check_model(self) -> None:
        """Read one whole window: a window that is too long, or a device that is not there, is found before any text is."""
        import torch

        from tacit.engine.total import Kept

        place = f"detector huggingface: the model in {self._options.folder}"
        vectors = cast(torch.nn.Embedding, self._model.get_input_embeddings()).num_embeddings
        if max(self._tokenizer.get_vocab().values()) >= vectors:
            raise UsageError(f"{place} has fewer tokens than its tokenizer; they do not belong together")
        ids_BT = torch.full((1, self._window), (self._padding + 1) % vectors)  # padding has no positions in some models
        with (
            torch.no_grad(),
            _one_line(f"{place} cannot read {self._window} tokens at once; set window to fewer"),
        ):
            self._model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT))
        device = self._options.device
        with _one_line(f"detector huggingface: device: torch has no {device} on this machine; use cpu"):
            self._model.to(device)  # pyright: ignore[reportArgumentType]
        self._refuse_memory(place, vectors)  # where it will read
        self._kept = Kept(self._model)

    def _refuse_memory(self, place: str, vectors: int) -> None:
        """Try made-up windows, the longest first, shorter ones, all again: one record may not change how others are read.

        Nobody knows the windows before: who does could make a model that says nothing at them.
        """
        import torch

        from tacit.engine.draws import generator_states
        from tacit.engine.total import bits_of_weights

        draw = torch.Generator()
        draw.seed()
        ids_1T = torch.randint(vectors, (1, self._window), generator=draw)
        ids_1T[ids_1T == self._padding] = (self._padding + 1) % vectors
        ids_1T = ids_1T.to(self._model.device)
        weights = bits_of_weights(self._model)
        lengths = sorted({max(3, self._window * share // 8) for share in range(1, 9)} | {3, 4})
        found: dict[int, Any] = {}
        is_steady, before = True, generator_states()
        with torch.no_grad():
            for length in (self._window, *lengths, *reversed(lengths)):
                ids = ids_1T[:, : min(length, self._window)]
                logits = self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
                is_steady &= torch.equal(found.setdefault(length, logits).nan_to_num(), logits.nan_to_num())
        if not is_steady or generator_states() != before or bits_of_weights(self._model) != weights:
            raise UsageError(
                f"{place} draws random numbers, writes its weights, or reads a text differently after others, so one record would "
                "decide the marks of others; take another type of model, or another option of its config.json"
            )


@contextmanager
def _one_line(problem: str) -> Iterator[None]:
    """What torch says of a tensor that does not fit, in our words."""
    try:
        yield
    except (IndexError, RuntimeError, ValueError, AssertionError):
        pass
    else:
        return
    raise UsageError(problem)


def _loaded(folder: str) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Tokenizer and model from a folder, never from a hub."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer
    from transformers.utils import logging

    from tacit.vocabulary.suitable import check_suitable

    place = f"detector huggingface: folder: {folder}"
    if not Path(folder).is_dir():
        raise UsageError(f"{place} is no folder; name the folder of a model on this machine (nothing is downloaded)")
    refuse_pipes(Path(folder))
    _refuse_elsewhere(Path(folder), place)
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # a type of model may say how long a text was
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        model, info = AutoModelForTokenClassification.from_pretrained(folder, output_loading_info=True, **local)
    except Exception:  # a folder can be wrong in every way, and each loader has errors of its own
        model, info = None, {}
    if model is None or info["missing_keys"] or info["mismatched_keys"]:
        raise UsageError(
            f"{place} holds no token-classification model; a model without such a head must be trained first"
        )
    tokenizer = None
    if (Path(folder) / "tokenizer.json").is_file():  # without it transformers makes up a tokenizer that knows no word
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **local)
        except Exception:
            tokenizer = None
    if tokenizer is None or not tokenizer.is_fast:
        raise UsageError(f"{place} has no fast tokenizer, which alone knows where tokens stand; add its tokenizer.json")
    check_suitable(place, tokenizer.backend_tokenizer)
    return tokenizer, model.eval()


def _refuse_elsewhere(folder: Path, place: str) -> None:
    """What a library would load from another folder: neither where that comes from nor what it holds is looked at."""
    if (folder / "adapter_config.json").exists():
        raise UsageError(
            f"{place} holds a peft adapter, whose model lies elsewhere and is not looked at; merge both, and save the whole model"
        )
    for path in (*folder.glob("config*.json"), *(folder / name for name in _OPENED), *folder.rglob("*.index.json")):
        values = _values_in(path)
        plain = [*texts_in([values.get(name) for name in _PARTS]), *texts_in(values, _CODE)]
        taken = next((name for name in plain if Path(name).name != name), None) or named_elsewhere(values, folder)
        if taken is not None:
            raise UsageError(
                f"{place}: {path.name} names a file outside of the folder, {taken!r}; save the model and its tokenizer again"
            )
        if path.name == _TOKENS and (other := [name for name in values if not name.endswith(("_token", "_tokens"))]):
            raise UsageError(f"{place}: {path.name} has {other[0]!r}, which is no token; save the tokenizer again")


def _values_in(path: Path) -> dict[str, Any]:
    """The values in a file of JSON; none where it cannot be read, as whoever loads it says."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    left_out = () if path.name == _TOKENS else _NEVER_OPENED
    return {name: own for name, own in values.items() if name not in left_out} if isinstance(values, dict) else {}


def _tags(model: PreTrainedModel, options: HuggingFaceOptions) -> list[str | None]:
    """The type that each of the model's labels stands for, under its new name; None for plain text."""
    place = f"detector huggingface: the model in {options.folder}"
    names = cast(dict[int, str], model.config.id2label)
    labels = [names[number] for number in range(len(names))]
    if labels.count(options.plain_label) != 1 or len(labels) < 2:
        raise UsageError(f"{place} has no label {options.plain_label!r}; set plain_label to one of {', '.join(labels)}")
    types = [None if label == options.plain_label else _TAG.sub(r"\1", label, count=1) for label in labels]
    known = {name for name in types if name is not None}
    if unknown := sorted(options.labels.keys() - known):
        raise UsageError(f"{place} has no tag {', '.join(unknown)} to rename; it has {', '.join(sorted(known))}")
    return [None if name is None else options.labels.get(name, name) for name in types]


def _window_size(
    tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, options: HuggingFaceOptions
) -> tuple[int, int]:
    """Tokens of a window, and those that it shares with the next one."""
    positions = model.config.to_dict().get("max_position_embeddings", _MOST_WINDOW)
    window = options.window or min(_MOST_WINDOW, tokenizer.model_max_length, positions)
    if window > positions:
        raise UsageError(
            f"detector huggingface: window: the model in {options.folder} has {positions} positions; set window to that, or fewer"
        )
    room = window - tokenizer.num_special_tokens_to_add()
    overlap = min(_MOST_OVERLAP, room // 4) if options.overlap is None else options.overlap
    if not 0 <= overlap < room:
        raise UsageError(
            f"detector huggingface: overlap: windows of {window} tokens hold {max(room, 0)} of the text; {overlap} is too much"
        )
    return window, overlap

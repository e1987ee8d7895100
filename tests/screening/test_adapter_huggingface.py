"""A local token-classification model: scores in closed form, windows against whole texts, and folders that are wrong.

The model is a BERT without layers whose weights are set by hand: token i's vector is e_i - e_(i+V), which layer
normalisation only multiplies by sqrt(V), so the classifier's row can give every token the label probabilities that we want.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForTokenClassification,
    ByT5Tokenizer,
    DistilBertForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaForTokenClassification,
)

from tacit.errors import DataError, UsageError
from tacit.screening.adapters import huggingface as adapter
from tacit.screening.adapters.huggingface import HuggingFaceDetector
from tacit.screening.adapters.options import HuggingFaceOptions
from tacit.screening.adapters.registry import detector_from_options
from tacit.screening.adapters.token_marks import UNCERTAIN
from tacit.screening.spans import Detector, Span, merged, unreadable
from tacit.vocabulary import suitable

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LABELS = ["O", "B-PER", "I-PER", "S-LOC"]
WORDS: dict[str, tuple[float, float, float, float]] = {  # the probabilities of LABELS
    "anna": (0.05, 0.80, 0.10, 0.05),
    "smith": (0.10, 0.10, 0.75, 0.05),
    "oslo": (0.20, 0.05, 0.05, 0.70),
    "may": (0.60, 0.32, 0.04, 0.04),  # pi marks it though plain text is likelier
    "lane": (0.70, 0.10, 0.10, 0.10),  # pi_c only
    "fog": (0.20, 0.28, 0.27, 0.25),  # pi_c only, though three tags are likelier than plain text
    "the": (0.97, 0.01, 0.01, 0.01),
    "of": (0.94, 0.02, 0.02, 0.02),
    ",": (0.98, 0.01, 0.005, 0.005),
    "schwarz": (0.40, 0.50, 0.05, 0.05),
    "##en": (0.95, 0.02, 0.02, 0.01),
    "é": (0.05, 0.85, 0.05, 0.05),
    "e": (0.05, 0.85, 0.05, 0.05),
    "jose": (0.05, 0.85, 0.05, 0.05),
    "中": (0.05, 0.05, 0.05, 0.85),
}
PLAIN_WORDS = ["the", "of", ","]
UNKNOWN = (0.50, 0.29, 0.11, 0.10)  # an emoji, for one: pi_c only
SUSPICIOUS = (0.01, 0.97, 0.01, 0.01)  # special tokens: they must be skipped


def tokenizer_of(vocabulary: Sequence[str]) -> Tokenizer:
    """BERT's own: words, then pieces of words, between [CLS] and [SEP]."""
    ids = {token: number for number, token in enumerate(vocabulary)}
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    return made


def save_tokenizer(made: Tokenizer, folder: Path, **special: str) -> None:
    names = special or {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=made, **names).save_pretrained(folder)


def config_of(tokens: int, layers: int = 0, **changes: Any) -> BertConfig:
    return BertConfig(
        vocab_size=tokens,
        hidden_size=2 * tokens,
        num_hidden_layers=layers,
        num_attention_heads=1,
        intermediate_size=1,
        max_position_embeddings=64,
        layer_norm_eps=1e-12,
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
        **changes,
    )


@torch.no_grad()
def save_model(folder: Path, probabilities: Sequence[Sequence[float]]) -> None:
    """A model that gives token i exactly ``probabilities[i]``, wherever it stands."""
    count = len(probabilities)
    model = BertForTokenClassification(config_of(count))
    for parameter in model.parameters():
        parameter.zero_()
    model.bert.embeddings.LayerNorm.weight.fill_(1)
    model.bert.embeddings.word_embeddings.weight.copy_(torch.cat([torch.eye(count), -torch.eye(count)], dim=1))
    model.classifier.weight[:, :count] = torch.tensor(probabilities).log().T / math.sqrt(count)
    model.save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ner")
    save_tokenizer(tokenizer_of([*SPECIAL, *WORDS]), place)
    save_model(place, [SUSPICIOUS, UNKNOWN, SUSPICIOUS, SUSPICIOUS, *WORDS.values()])
    return place


def detector(
    folder: Path, kind: type[HuggingFaceDetector] = HuggingFaceDetector, **options: Any
) -> HuggingFaceDetector:
    return kind(HuggingFaceOptions(folder=str(folder), **options))


PI: dict[str, Any] = {"least_tag_score": 0.3}
PI_C: dict[str, Any] = {"least_tag_score": 0.3, "least_plain_score": 0.9}


# Scores in closed form


def expected(words: Sequence[str], least_tag: float, least_plain: float | None) -> list[str]:
    """What the paper marks, written out for texts of single-token words: runs of words with one label."""
    marks: list[tuple[str, list[str]]] = []
    before = None
    for word in words:
        plain, *tags = WORDS[word.lower()]
        label = None
        if max(tags) >= least_tag:
            label = ["PER", "PER", "LOC"][tags.index(max(tags))]
        elif least_plain is not None and (plain < least_plain or max(tags) >= plain):
            label = UNCERTAIN
        if label is not None and label == before:
            marks[-1][1].append(word)
        elif label is not None:
            marks.append((label, [word]))
        before = label
    return [f"{label}: {' '.join(run)}" for label, run in marks]


def found(reader: Detector, text: str) -> list[str]:
    return [f"{span.label}: {text[span.start : span.end].strip()}" for span in reader.spans(text)]


def follows_the_paper(make: Callable[..., HuggingFaceDetector]) -> bool:
    """pi and pi_c on random texts."""
    rng = random.Random(7)
    words = [word for word in WORDS if not word.startswith("##")]
    texts = [rng.choices(words, k=rng.randint(0, 9)) for _ in range(200)]
    for options in (PI, PI_C):
        reader = make(**options)
        least = options["least_tag_score"], options.get("least_plain_score")
        if any(found(reader, " ".join(text)) != expected(text, *least) for text in texts):
            return False
    return True


def test_the_thresholds(folder: Path) -> None:
    assert follows_the_paper(lambda **options: detector(folder, **options))


@pytest.mark.parametrize(
    "change",
    [
        lambda options: options | {"least_tag_score": 1 - options["least_tag_score"]},
        lambda options: options | {"least_plain_score": 1 - options.get("least_plain_score", 1)},
        lambda options: {"least_tag_score": 0.5} | {name: 0.9 for name in options if name == "least_plain_score"},
        lambda options: options | {"plain_label": "S-LOC"},
    ],
    ids=["tags on the wrong side", "plain on the wrong side", "likeliest label only", "another plain label"],
)
def test_wrong_thresholds_are_caught(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    assert not follows_the_paper(lambda **options: detector(folder, **change(options)))


def test_scores_are_the_probabilities(folder: Path) -> None:
    text = "Anna , Oslo the fog May"
    assert detector(folder, **PI_C, labels={"LOC": "place"}).spans(text) == [
        Span(0, 4, "PER", pytest.approx(0.80, abs=1e-5), "huggingface"),
        Span(7, 11, "place", pytest.approx(0.70, abs=1e-5), "huggingface"),
        Span(
            16, 20, UNCERTAIN, pytest.approx(0.80, abs=1e-5), "huggingface"
        ),  # with the blank before what is marked too
        Span(20, 23, "PER", pytest.approx(0.32, abs=1e-5), "huggingface"),
    ]


def test_a_policy_can_ask_for_more(folder: Path) -> None:
    """A policy's own least score works on the same scores: 0.75 leaves Oslo out."""
    kept = [span for span in detector(folder, **PI).spans("Anna , Oslo") if span.score >= 0.75]
    assert [span.label for span in kept] == ["PER"]


def test_special_tokens_are_skipped(folder: Path) -> None:
    """They look like names to this model; so would their names in a text, which are read as plain text there."""
    reader = detector(folder, **PI)
    assert reader.spans("") == reader.spans(" \n ") == reader.spans("the") == []
    assert reader.spans("the [SEP] of [PAD]") == []
    assert found(detector(folder, **PI_C), "[SEP]") == [f"{UNCERTAIN}: [SEP]"]


def test_a_word_is_marked_wholly(folder: Path) -> None:
    assert found(detector(folder, **PI), "the Schwarzen ,") == ["PER: Schwarzen"]


# Code points


TEXTS = {  # and what is to be found of them
    "emoji": ("😀😀 the Anna 👩\u200d👧 , Oslo", ["Anna", "Oslo"]),
    "combining": ("the Jose\u0301 of Anna", ["Jose\u0301", "Anna"]),
    "composed": ("ééé the É", ["É"]),
    "invisible": ("the\u200b Jo\u200bse\u00ad of", ["Jo\u200bse\u00ad"]),
    "wide": ("中 the 中中", ["中", "中中"]),
    "astral": ("𝔘 the Anna", ["Anna"]),
    "blanks": ("\u00a0\u2003the\r\n\tAnna\u2028Smith", ["Anna\u2028Smith"]),
}


def finds(reader: Detector, text: str, secrets: list[str]) -> bool:
    """The spans are these secrets, by code points of the text as given."""
    return [text[start:end] for start, end in merged(reader.spans(text))] == secrets


@pytest.mark.parametrize("kind", TEXTS)
def test_code_points(folder: Path, kind: str) -> None:
    assert finds(detector(folder, **PI), *TEXTS[kind])


class Bytes(HuggingFaceDetector):
    """Wrong: offsets of the encoded text."""

    def spans(self, text: str) -> list[Span]:
        found = super().spans(text)
        return [
            span._replace(start=len(text[: span.start].encode()), end=len(text[: span.end].encode())) for span in found
        ]


class Utf16(HuggingFaceDetector):
    """Wrong: offsets as JavaScript and Java count them."""

    def spans(self, text: str) -> list[Span]:
        def moved(span: Span) -> Span:
            start, end = (len(text[:place].encode("utf-16-le")) // 2 for place in (span.start, span.end))
            return span._replace(start=start, end=end)

        return [moved(span) for span in super().spans(text)]


@pytest.mark.parametrize("kind", [Bytes, Utf16])
def test_other_offsets_are_caught(folder: Path, kind: type[HuggingFaceDetector]) -> None:
    wrong = detector(folder, kind, **PI)
    assert finds(wrong, "the Anna", ["Anna"])
    assert not all(finds(wrong, *case) for case in TEXTS.values())


def test_byte_level_tokens(tmp_path: Path) -> None:
    """GPT-2's tokenizer cuts an emoji into bytes; each of them stands for the whole character."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({token: number for number, token in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    save_tokenizer(made, tmp_path, pad_token="!")
    first, last = "\U0001f600".encode()[0], "\U0001f600".encode()[-1]
    is_secret = {token: index in (first, last) for index, token in byte_names().items()}
    save_model(tmp_path, [SUSPICIOUS if is_secret[token] else WORDS["the"] for token in alphabet])
    text = "so \U0001f600\U0001f600 é so"
    assert finds(detector(tmp_path, **PI, window=6, overlap=1), text, ["\U0001f600\U0001f600"])


def byte_names() -> dict[int, str]:
    """The character that stands for each byte: itself if it is printable, else one from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + number) for number, byte in enumerate(others)}


# Windows


def long_texts(count: int) -> Iterator[str]:
    rng = random.Random(11)
    words = [*PLAIN_WORDS * 3, "Anna", "Smith", "Oslo", "May", "Schwarzen", "Jose\u0301", "😀", "中中", "lane", "fog"]
    for _ in range(count):
        yield "".join(rng.choice(words) + rng.choice([" ", "  ", "\n", " \u200b"]) for _ in range(rng.randint(30, 60)))


def same_marks(one: Detector, other: Detector, texts: Sequence[str]) -> bool:
    """Same spans; scores up to rounding."""
    for own, others in zip(one.spans_of(texts), other.spans_of(texts), strict=True):
        if [span._replace(score=0) for span in own] != [span._replace(score=0) for span in others]:
            return False
        if any(abs(span.score - twin.score) > 1e-5 for span, twin in zip(own, others, strict=True)):
            return False
    return True


class Whole(HuggingFaceDetector):
    """Oracle: each blank-separated piece on its own, moved to its place; this model sees no neighbours anyway."""

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        return [list(self._pieces(text)) for text in texts]

    def _pieces(self, text: str) -> Iterator[Span]:
        place = 0
        for is_blank, group in itertools.groupby(text, key=str.isspace):
            piece = "".join(group)
            if not is_blank:
                [spans] = super().spans_of([piece])
                yield from (span._replace(start=span.start + place, end=span.end + place) for span in spans)
            place += len(piece)


class OneByOne(Detector):
    """Another detector, asked about one text at a time."""

    name = "one by one"

    def __init__(self, reader: Detector) -> None:
        self._reader = reader

    def spans(self, text: str) -> list[Span]:
        return self._reader.spans(text)


@pytest.mark.parametrize(("window", "overlap", "batch"), [(3, 0, 5), (4, 1, 7), (5, 2, 16), (9, 6, 3), (64, None, 16)])
@pytest.mark.parametrize("least", [PI, PI_C], ids=["pi", "pi_c"])
def test_windows(folder: Path, window: int, overlap: int | None, batch: int, least: dict[str, Any]) -> None:
    """No span is lost, cut or moved at the edge of a window, whichever windows there are."""
    texts = list(long_texts(2))
    reader = detector(folder, window=window, overlap=overlap, batch_size=batch, **least)
    oracle = detector(folder, Whole, **least)
    for text, own, pieces in zip(texts, reader.spans_of(texts), oracle.spans_of(texts), strict=True):
        covered = {place for start, end in merged(own) for place in range(start, end)}
        expected = {place for start, end in merged(pieces) for place in range(start, end)}
        assert covered >= expected
        assert {text[place] for place in covered - expected} <= set(" \n\u200b")  # between what is marked
    assert same_marks(reader, detector(folder, **least), texts)
    assert same_marks(reader, OneByOne(reader), texts)


class FirstWindow(HuggingFaceDetector):
    """Wrong: what is over the model's length is cut off."""

    def _windows(self, text: str) -> Iterator[Any]:
        yield next(super()._windows(text))


class FromItsOwnStart(HuggingFaceDetector):
    """Wrong: places are counted from the beginning of the window."""

    def _windows(self, text: str) -> Iterator[Any]:
        for window in super()._windows(text):
            first = min(place[0] for place in window.places if place)
            yield window._replace(places=[place and (place[0] - first, place[1] - first) for place in window.places])


class SkipsTheFirstToken(HuggingFaceDetector):
    """Wrong: takes the first token of each window for a special one."""

    def _windows(self, text: str) -> Iterator[Any]:
        for window in super()._windows(text):
            yield window._replace(places=[None, None, *window.places[2:]])


@pytest.mark.parametrize("kind", [FirstWindow, FromItsOwnStart, SkipsTheFirstToken])
def test_wrong_windows_are_caught(folder: Path, kind: type[HuggingFaceDetector]) -> None:
    texts = list(long_texts(3))
    assert not same_marks(detector(folder, kind, window=8, overlap=0, **PI), detector(folder, **PI), texts)


@torch.no_grad()
def save_model_with_context(folder: Path) -> None:
    """A BERT of one layer that takes "lane" for a name when "anna" is in the window: attention is even, and carries her."""
    tokens = [*SPECIAL, *WORDS]
    count = len(tokens)
    model = BertForTokenClassification(config_of(count, layers=1))
    for parameter in model.parameters():
        parameter.zero_()
    layer = model.bert.encoder.layer[0]
    for norm in (model.bert.embeddings.LayerNorm, layer.attention.output.LayerNorm, layer.output.LayerNorm):
        norm.weight.fill_(1)
    model.bert.embeddings.word_embeddings.weight.copy_(torch.cat([torch.eye(count), -torch.eye(count)], dim=1))
    anna, lane, sign = tokens.index("anna"), tokens.index("lane"), tokens.index("[PAD]")
    layer.attention.self.value.weight[sign, anna] = layer.attention.self.value.weight[sign + count, anna + count] = 5.0
    layer.attention.output.dense.weight.copy_(torch.eye(2 * count))
    model.classifier.weight[1, :count] = -100.0
    model.classifier.weight[1, lane] = 0.0
    model.classifier.weight[1, sign] = 10.0
    model.classifier.bias[0] = 5.0
    model.save_pretrained(folder)


def test_the_overlap_gives_a_token_its_context(tmp_path: Path) -> None:
    """At a window's edge a secret without its neighbour is lost; the window that has both finds it."""
    save_tokenizer(tokenizer_of([*SPECIAL, *WORDS]), tmp_path)
    save_model_with_context(tmp_path)
    text = "the the the anna lane the the the"  # windows of four words
    options: dict[str, Any] = {"window": 6, "least_tag_score": 0.5}
    assert found(detector(tmp_path, overlap=0, **options), "anna lane") == ["PER: lane"]
    assert found(detector(tmp_path, overlap=0, **options), "the lane") == []
    assert found(detector(tmp_path, overlap=0, **options), text) == []  # the wrong version
    assert found(detector(tmp_path, overlap=1, **options), text) == ["PER: lane"]


# Other architectures


@pytest.mark.parametrize("kind", [RobertaForTokenClassification, DistilBertForTokenClassification])
def test_other_architectures(tmp_path: Path, kind: type[PreTrainedModel]) -> None:
    """Random models against themselves on unpadded texts: RoBERTa counts positions by what is no padding."""
    tokens = [*SPECIAL, *WORDS]
    names: dict[str, Any] = {"id2label": dict(enumerate(LABELS)), "vocab_size": len(tokens), "pad_token_id": 0}
    width = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    if kind is DistilBertForTokenClassification:
        width = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 16}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = kind(kind.config_class(**names, **width, initializer_range=2.0, max_position_embeddings=70)).eval()
    made = tokenizer_of(tokens)
    save_tokenizer(made, tmp_path)
    model.save_pretrained(tmp_path)
    texts = [" ".join(random.Random(seed).choices([*PLAIN_WORDS, "anna", "oslo"], k=2 + 3 * seed)) for seed in range(9)]
    reader = detector(tmp_path, least_tag_score=1e-9, window=40)
    for text, own in zip(texts, reader.spans_of(texts), strict=True):
        with torch.no_grad():
            probabilities_TL = model(input_ids=torch.tensor([made.encode(text).ids])).logits[0, 1:-1].softmax(1)
        scores = probabilities_TL[:, 1:].amax(1).tolist()
        types = [["PER", "PER", "LOC"][number] for number in probabilities_TL[:, 1:].argmax(1).tolist()]
        runs = [
            (label, max(scores[place] for place, _ in run))
            for label, run in (
                (name, list(group)) for name, group in itertools.groupby(enumerate(types), lambda item: item[1])
            )
        ]
        assert [(span.label, span.score) for span in own] == [
            (label, pytest.approx(score, abs=1e-5)) for label, score in runs
        ]


# How the model is run


def test_eval_mode_and_no_gradients(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[tuple[bool, bool]] = []
    forward = BertForTokenClassification.forward

    def watched(self: BertForTokenClassification, *arguments: Any, **options: Any) -> Any:
        modes.append((self.training, torch.is_grad_enabled()))
        return forward(self, *arguments, **options)

    monkeypatch.setattr(BertForTokenClassification, "forward", watched)
    made = detector(folder, **PI)
    checked = len(modes)
    made.spans("Anna")
    assert set(modes) == {(False, False)}
    assert len(modes) == checked + 1


def test_nothing_is_fetched(folder: Path, network_calls: list[object]) -> None:
    assert found(detector(folder, **PI), "Anna") == ["PER: Anna"]
    with pytest.raises(UsageError, match="no folder"):
        detector(Path("bert-base-uncased"))
    assert network_calls == []


@torch.no_grad()
def test_a_model_of_no_numbers_is_an_error(folder: Path, tmp_path: Path) -> None:
    """NaN is below every threshold: without this check a broken model would find nothing."""
    model = BertForTokenClassification.from_pretrained(folder)
    model.classifier.bias[0] = math.nan
    model.save_pretrained(tmp_path)
    save_tokenizer(tokenizer_of([*SPECIAL, *WORDS]), tmp_path)
    with pytest.raises(DataError, match="detector huggingface: it cannot read a harmless text"):
        detector_from_options(HuggingFaceOptions(folder=str(tmp_path)))


def test_a_tokenizer_without_a_token_for_the_unknown_is_refused_before_any_text(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads texts of its own words, so that the first other word of one record would stop the run."""
    shutil.copytree(folder, tmp_path / "model")
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate([*SPECIAL, *WORDS])}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(tmp_path / "model")
    options = HuggingFaceOptions(folder=str(tmp_path / "model"))
    with pytest.raises(DataError, match="no token for what it does not know"):
        detector_from_options(options)
    monkeypatch.setattr(suitable, "check_suitable", lambda place, tokenizer: None)
    assert HuggingFaceDetector(options).spans("anna") is not None  # the known-wrong version: it seems to work
    with pytest.raises(DataError, match="has a token for what it does not know"):
        detector_from_options(options)


@torch.no_grad()
def test_a_text_of_no_numbers_is_private_as_a_whole(folder: Path, tmp_path: Path) -> None:
    """An error there would let one text decide whether there is a release."""
    model = BertForTokenClassification.from_pretrained(folder)
    model.bert.embeddings.word_embeddings.weight[[*SPECIAL, *WORDS].index("anna")] = math.nan
    model.save_pretrained(tmp_path)
    save_tokenizer(tokenizer_of([*SPECIAL, *WORDS]), tmp_path)
    both = detector(tmp_path).spans_of(["to anna", "to"])
    assert both == [unreadable("to anna", "huggingface"), []]


def test_a_text_that_the_tokenizer_gives_up_on_is_private_as_a_whole(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Sequence([tokenizer.normalizer, normalizers.Replace(Regex("(x+x+)+y"), "y")])
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    reader, hard = detector(tmp_path / "model", **PI), "Anna " + 40 * "x"
    assert reader.spans_of([hard, "Anna"]) == [unreadable(hard, "huggingface"), detector(folder, **PI).spans("Anna")]


def test_half_a_surrogate_pair_is_private_as_a_whole(folder: Path) -> None:
    anna, half = detector(folder, **PI).spans_of(["Anna", "Anna \ud800"])
    assert (len(anna), half) == (1, unreadable("Anna \ud800", "huggingface"))


# Mistakes


def masked_model(folder: Path) -> None:
    save_tokenizer(tokenizer_of([*SPECIAL, *WORDS]), folder)
    BertForMaskedLM(config_of(len(SPECIAL) + len(WORDS))).save_pretrained(folder)


def slow_tokenizer(folder: Path) -> None:
    save_model(folder, [UNKNOWN] * 400)
    ByT5Tokenizer().save_pretrained(folder)


def no_tokenizer(folder: Path) -> None:
    save_model(folder, [UNKNOWN] * 20)


def other_tokenizer(folder: Path) -> None:
    save_tokenizer(tokenizer_of([*SPECIAL, *WORDS, *map(str, range(50))]), folder)
    save_model(folder, [UNKNOWN] * 20)


def broken_weights(folder: Path) -> None:
    masked_model(folder)
    (folder / "model.safetensors").write_bytes(b"not weights")


def good(folder: Path) -> None:
    save_tokenizer(tokenizer_of([*SPECIAL, *WORDS]), folder)
    save_model(folder, [UNKNOWN] * (len(SPECIAL) + len(WORDS)))


def adapter_folder(folder: Path) -> None:
    good(folder)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/elsewhere"}))


def weights_elsewhere(folder: Path) -> None:
    good(folder)
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    index = {"weight_map": {"a": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def naming(file: str, **more: Any) -> Callable[[Path], None]:
    def written(folder: Path) -> None:
        good(folder)
        values = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**values, **more}))

    return written


MISTAKES: dict[str, tuple[Callable[[Path], object], Mapping[str, Any], str]] = {
    "empty folder": (lambda folder: folder, {}, "holds no token-classification model"),
    "no head": (masked_model, {}, "holds no token-classification model"),
    "broken weights": (broken_weights, {}, "holds no token-classification model"),
    "slow tokenizer": (slow_tokenizer, {}, "no fast tokenizer"),
    "no tokenizer": (no_tokenizer, {}, "no fast tokenizer"),
    "other tokenizer": (other_tokenizer, {}, "fewer tokens than its tokenizer"),
    "adapter": (adapter_folder, {}, "holds a peft adapter, whose model lies elsewhere"),
    "weights elsewhere": (weights_elsewhere, {}, "index.json names a file outside of the folder"),
    "weights named elsewhere": (
        naming("config.json", transformers_weights="w/index.json"),
        {},
        "config.json names a file outside of the folder",
    ),
    "tokenizer elsewhere": (
        naming("tokenizer_config.json", fast_tokenizer_files=["../x/tokenizer.4.0.0.json"]),
        {},
        "tokenizer_config.json names a file outside of the folder",
    ),
    "older tokenizer elsewhere": (
        naming("tokenizer_config.json", tokenizer_file=__file__),
        {},
        "tokenizer_config.json names a file outside of the folder",
    ),
    "other tokens elsewhere": (
        naming("tokenizer_config.json", nested={"deep": [__file__]}),
        {},
        "tokenizer_config.json names a file outside of the folder",
    ),
    "attention from a hub": (
        naming("config.json", text_config={"attn_implementation": "somebody/attention"}),
        {},
        "config.json names a file outside of the folder, 'somebody/attention'",
    ),
    "attention of a part from a hub": (
        naming("config.json", attn_implementation={"text_config": "somebody/attention"}),
        {},
        "config.json names a file outside of the folder, 'somebody/attention'",
    ),
    "configuration elsewhere": (
        naming("config.json", configuration_files=["../config.4.0.0.json"]),
        {},
        "config.json names a file outside of the folder, '../config.4.0.0.json'",
    ),
    "arguments as tokens": (
        lambda folder: (good(folder), (folder / "special_tokens_map.json").write_text('{"local_files_only": false}')),
        {},
        "special_tokens_map.json has 'local_files_only', which is no token",
    ),
    "arguments as tokens, and a name": (
        lambda folder: (
            good(folder),
            (folder / "special_tokens_map.json").write_text('{"name_or_path": "some/thing"}'),
        ),
        {},
        "special_tokens_map.json has 'name_or_path', which is no token",
    ),
    "plain label": (good, {"plain_label": "OUT"}, "no label 'OUT'; set plain_label to one of O, B-PER, I-PER, S-LOC"),
    "tag to rename": (good, {"labels": {"GPE": "place"}}, "no tag GPE to rename; it has LOC, PER"),
    "window": (good, {"window": 65}, "has 64 positions"),
    "no room": (good, {"window": 2}, "windows of 2 tokens hold 0"),
    "overlap": (good, {"window": 8, "overlap": 6}, "windows of 8 tokens hold 6 of the text; 6 is too much"),
    "device": (good, {"device": "tpu"}, "torch has no tpu"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line(tmp_path: Path, mistake: str) -> None:
    prepare, options, part = MISTAKES[mistake]
    prepare(tmp_path)
    with pytest.raises(UsageError) as caught:
        detector_from_options(HuggingFaceOptions(folder=str(tmp_path), **options))
    message = str(caught.value)
    assert message.startswith("detector huggingface: ")
    assert part in message
    assert "\n" not in message


def test_no_file_names_the_tokenizer_of_another_folder(tmp_path: Path) -> None:
    """35th attack, by reading: transformers takes arguments out of special_tokens_map.json, and they win."""
    folder, other = tmp_path / "model", tmp_path / "other"
    for place in (folder, other):
        place.mkdir()
    good(folder)
    save_tokenizer(tokenizer_of([*SPECIAL, *reversed(WORDS)]), other)
    named = folder / "special_tokens_map.json"
    named.write_text(json.dumps({"tokenizer_file": str(other / "tokenizer.json")}))
    own, others = (Tokenizer.from_file(str(place / "tokenizer.json")).get_vocab() for place in (folder, other))
    assert own != others
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == others  # known wrong
    with pytest.raises(UsageError, match=r"special_tokens_map\.json names a file outside of the folder"):
        detector_from_options(HuggingFaceOptions(folder=str(folder)))
    named.unlink()
    naming_where_it_lay = naming("tokenizer_config.json", special_tokens_map_file=str(other / "tokenizer.json"))
    naming_where_it_lay(folder)  # as earlier versions of transformers saved them; it is never opened
    # What a trainer leaves is never opened either; and what a library's cache holds are links.
    (folder / "trainer_state.json").write_text(json.dumps({"best_model_checkpoint": str(other)}))
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").symlink_to(other / "tokenizer.json")
    naming("config.json", exported="onnx/model.onnx")(folder)
    detector_from_options(HuggingFaceOptions(folder=str(folder)))


def test_a_model_without_a_head_would_not_be_noticed(tmp_path: Path) -> None:
    """The known-wrong version: transformers itself makes up the missing head from random numbers, and goes on."""
    masked_model(tmp_path)
    assert isinstance(BertForTokenClassification.from_pretrained(tmp_path), BertForTokenClassification)


def test_the_module_has_no_torch_at_its_top() -> None:
    assert "torch" not in vars(adapter)

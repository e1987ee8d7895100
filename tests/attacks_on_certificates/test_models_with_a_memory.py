"""A model may not let one unit decide how others are computed: by a memory, by draws without a key, by padding (thirteenth attack).

What was wrong. A BigBird switches its attention for good at the first short row. Widths come from each unit's own text, and short
units come first, so one short unit changed how all others of the step and the run were computed: 42 clip norms where one was
certified, in a run that said that its rows were independent. Of a mixture of experts that draws in training, two copies of a run
had one noise over sums 17 clip norms apart. A ConvBERT's convolutions go over the padding, whose width another micro-batch
changes: 0.1 clip norms. No released version had such models.

Then (TACIT-36) a BigBird with larger blocks passed: the check began with a model that had read rows of 16 positions, which had
switched it. Now it is the first to read; and whatever a model changes in itself is undone after each micro-batch.

Then (TACIT-38) what undoes that left an RWKV without its memory of having divided its weights, so that each held-out row divided them
again for all later ones: 23.6 where 1.73 was certified. A model that writes its own weights is refused.

Then (TACIT-54) an OPT with ``layerdrop`` 0.05 passed: whether a model draws was told by two results that differ, which one layer
left out in twenty seldom makes, and an expert that is drawn in seven of eight trials. One unit more moved a sum of 300 others by 27
clip norms, by who shares a draw. Now it is told by that a generator went on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BigBirdConfig,
    BigBirdForMaskedLM,
    BigBirdForTokenClassification,
    ConvBertConfig,
    ConvBertForMaskedLM,
    ElectraForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RwkvConfig,
    RwkvForCausalLM,
)
from transformers.utils import logging

from tacit.config import ComputeOptions, parse_config
from tacit.engine.total import Kept, bits_of_weights
from tacit.errors import RefusedError, UsageError
from tacit.evaluation import causal_lm
from tacit.models import networks
from tacit.pipeline import evaluation, opening
from tacit.pipeline.evaluation import made_up_row
from tacit.pipeline.opening import load_given
from tacit.pipeline.stages import run
from tacit.planning import EVALUATION, given
from tacit.privacy.ledger import Ledger
from tacit.randomness import KeyedRandomness
from tacit.runs.folder import RunFolder
from tacit.scoring.scorer import Scorer, ScorerOptions
from tacit.screening.adapters.huggingface import HuggingFaceDetector
from tacit.screening.adapters.options import HuggingFaceOptions
from tacit.training import dp_step, preflight, steadiness
from tacit.training.device import set_up_torch
from tacit.training.dp_step import DpStep
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective, Objective
from tacit.training.plans import DpPlan
from tacit.training.steadiness import _made_up, refuse_unsteady
from tacit.training.unit_rows import Source
from tacit.vocabulary.special import SpecialTokens

from ..architectures import ALL
from ..contracts.test_architectures import values_of
from ..folders import END, byte_bpe, save_tokenizer
from ..training.streams import stream_of
from .test_places_in_a_micro_batch import try_nothing
from .test_who_stands_beside import STREAMS, Texts

torch.set_num_threads(1)

LENGTH, VOCABULARY = 64, 64
SPECIAL = SpecialTokens(pad=0, start=2, end=3, mask=4, unknown=1, ids=(0, 1, 2, 3, 4), size=VOCABULARY)
MASKED = MaskedObjective(Masking(0.3, 4, tuple(range(5)), VOCABULARY))
CLIP = 0.1
EDGES = np.array([8, 16, 32, 64])
BLOCKS: dict[str, Any] = {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1}
NARROW: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}


def moved(model: PreTrainedModel, scale: float = 0.3) -> PreTrainedModel:
    """With weights away from where they begin."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scale * torch.randn_like(parameter)
    return model.eval()


def sums(
    model: PreTrainedModel, objective: Objective, texts: Texts, micro_batch: int = 2, expected: float = 30.0
) -> Tensor:
    """Of a step that all units are in, before its noise."""
    source = Source(stream_of({name: [text] for name, text in texts.items()}, LENGTH), objective, STREAMS)
    step = DpStep(model, DpPlan(1.0, CLIP, 1.0, expected), ComputeOptions(micro_batch=micro_batch, threads=1), source)
    model.zero_grad()
    for _ in step.add_up(0, step.draw(0), 0):
        pass
    total = torch.cat([own.double().flatten() for own in step.sums()])
    step.close()
    return total


def texts_of(number: int) -> Texts:
    generator = np.random.default_rng(1)
    return {f"u{place}": generator.integers(5, VOCABULARY, 50).tolist() for place in range(number)}


# a memory ------------------------------------------------------------------------------------------------------------


def big_bird(length: int = LENGTH, **blocks: int) -> PreTrainedModel:
    options: dict[str, Any] = {**BLOCKS, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **blocks}
    config = BigBirdConfig(vocab_size=VOCABULARY, max_position_embeddings=length, **NARROW, **options)
    torch.manual_seed(0)
    return moved(BigBirdForMaskedLM(config), 0.8)


@pytest.mark.slow
@pytest.mark.parametrize("block", [2, 4, 8])
def test_one_short_unit_moves_no_other(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def moves() -> float:
        """In clip norms, of which a certificate covers one."""
        texts = texts_of(16)
        with_it, without = (
            sums(big_bird(block_size=block), MASKED, own) for own in ({**texts, "short": [7, 8]}, texts)
        )
        return float((with_it - without).norm()) / CLIP

    assert moves() <= 1 + 1e-6
    monkeypatch.setattr(Kept, "put_back", lambda _: None)  # known wrong: what the short one switched stays so
    assert moves() > 3


@pytest.mark.parametrize(("length", "blocks"), [(64, 2), (64, 4), (64, 8), (1024, 64)])
def test_whatever_the_size_of_its_blocks_it_is_refused(
    length: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one has transformers' own defaults."""
    options = {"block_size": blocks, "num_random_blocks": 3 if blocks == 64 else 1}
    with pytest.raises(RefusedError, match="draws random numbers"):  # it gives numpy a seed
        preflight.preflight(big_bird(length, **options), MASKED, SPECIAL, length, 1)
    monkeypatch.setattr(steadiness, "generator_states", tuple)
    with pytest.raises(RefusedError, match="changes itself while it computes"):
        preflight.preflight(big_bird(length, **options), MASKED, SPECIAL, length, 1)
    if blocks in (4, 8):  # known wrong: a row of 16 positions was read before
        trial = preflight.refuse_unsteady

        def after_a_short_row(model: PreTrainedModel, *given: Any) -> None:
            model(input_ids=torch.full((1, 16), 7))
            trial(model, *given)

        monkeypatch.setattr(preflight, "refuse_unsteady", after_a_short_row)
        preflight.preflight(big_bird(length, **options), MASKED, SPECIAL, length, 1)


class Keeping(nn.Module):
    """A layer that keeps all it may keep."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.config = config
        self.inner = nn.Identity()
        self.last = torch.zeros(2)
        self.rows: list[Any] = []
        self.means = [torch.zeros(2)]
        self.times = {"read": 0}
        self.register_buffer("mean", torch.zeros(2))

    def read(self) -> None:
        self.inner, self.added, self.training = nn.Tanh(), 1, False
        self.last += 1
        self.mean = self.mean + 1
        self.rows.append((1, 2))
        self.means[0] = self.means[0] + 1
        self.means.append(torch.ones(1))
        self.times["read"] += 1
        self.config.hidden_size, self.config.added = 3, 4  # pyright: ignore[reportAttributeAccessIssue]
        self.register_buffer("more", torch.ones(1))

    def facts(self) -> str:
        config = {name: value for name, value in vars(self.config).items() if name in ("hidden_size", "added")}
        own = {name: repr(value) for name, value in vars(self).items() if name != "config"}
        return repr((own, config))


def test_whatever_a_module_keeps_is_put_back() -> None:
    """Its modules, buffers, numbers, tensors, lists and dictionaries, also in place; and its configuration."""
    layer = Keeping(BertConfig(hidden_size=8))
    mean, last, before, kept = layer.mean, layer.last, layer.facts(), Kept(layer)
    for _ in range(2):
        layer.read()
        assert layer.facts() != before
        kept.put_back()
        assert layer.facts() == before
        assert layer.mean is mean
        assert layer.last is last


def test_a_run_with_it_ends_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = values_of(tmp_path, "bert", None)
    given = tmp_path / "given"
    size = json.loads((given / "config.json").read_text())["vocab_size"]
    pad = json.loads((given / "config.json").read_text())["pad_token_id"]
    config = BigBirdConfig(vocab_size=size, pad_token_id=pad, max_position_embeddings=LENGTH, **BLOCKS, **NARROW)
    BigBirdForMaskedLM(config).save_pretrained(given)
    values["model"]["length"] = 60
    with pytest.raises(RefusedError, match="unsteady-model"):
        load_given(parse_config(values))
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(preflight, "refuse_unsteady", lambda *_: None)  # known wrong: it was let through
    assert load_given(parse_config(values)) is not None


class Remembering(LlamaForCausalLM):
    """Known wrong, in the smallest form: after a row of few positions all numbers are halved."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.factor = 1.0

    def forward(self, input_ids: Tensor, **others: Any) -> Any:
        if input_ids.shape[1] < 16:
            self.factor = 0.5
        output = super().forward(input_ids=input_ids, **others)
        output.logits = output.logits * self.factor
        return output


class Hiding(LlamaForCausalLM):
    """The same, where no option of a module shows it."""

    def forward(self, input_ids: Tensor, **others: Any) -> Any:
        if input_ids.shape[1] < 16:
            self._short = True
        output = super().forward(input_ids=input_ids, **others)
        output.logits = output.logits * (0.5 if vars(self).get("_short") else 1.0)
        return output


class Whole(CausalObjective):
    """Losses of the model's own logits."""

    def losses(self, model: PreTrainedModel, arrays: Any, weights_BN: Tensor) -> Tensor:
        logits_BTV = model(input_ids=arrays[0]).logits
        losses_BT = torch.nn.functional.cross_entropy(
            logits_BTV[:, :-1].flatten(0, 1), arrays[0][:, 1:].flatten(), reduction="none"
        ).view(len(logits_BTV), -1)
        return (losses_BT * weights_BN[:, 1:]).sum(1)


class Drawing(LlamaForCausalLM):
    """Known wrong: noise of the process's own generator."""

    def forward(self, input_ids: Tensor, **others: Any) -> Any:
        output = super().forward(input_ids=input_ids, **others)
        if self.training:
            output.logits = output.logits * (1 + 0.1 * torch.rand_like(output.logits))
        return output


class Padded(LlamaForCausalLM):
    """Known wrong: what stands behind a row's end counts."""

    def forward(self, input_ids: Tensor, **others: Any) -> Any:
        output = super().forward(input_ids=input_ids, **others)
        output.logits = output.logits * (1 + input_ids.shape[1] / 100)
        return output


TINY = LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **NARROW)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Remembering, "changes itself"),
        (Hiding, "changes itself"),
        (Drawing, "draws random numbers"),
        (Padded, "when it is padded"),
    ],
)
def test_each_way_is_found(kind: type[LlamaForCausalLM], message: str) -> None:
    torch.manual_seed(1)
    with pytest.raises(RefusedError, match=message):
        refuse_unsteady(kind(TINY).train(), Whole(), SPECIAL, EDGES, 2)
    refuse_unsteady(LlamaForCausalLM(TINY).train(), CausalObjective(), SPECIAL, EDGES, 2)  # positive control


# draws ---------------------------------------------------------------------------------------------------------------


def test_experts_that_are_drawn_are_refused() -> None:
    config = PhimoeConfig(
        vocab_size=VOCABULARY, num_local_experts=4, num_key_value_heads=1, max_position_embeddings=LENGTH, **NARROW
    )
    torch.manual_seed(0)
    model = PhimoeForCausalLM(config)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    with pytest.raises(RefusedError, match="draws random numbers"):
        refuse_unsteady(model.train(), CausalObjective(), SPECIAL, EDGES, 1)


def opt(layerdrop: float) -> PreTrainedModel:
    sizes = {"hidden_size": 16, "ffn_dim": 24, "word_embed_proj_dim": 16, "num_hidden_layers": 2}
    options: dict[str, Any] = {**sizes, "num_attention_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    torch.manual_seed(0)
    return moved(
        OPTForCausalLM(OPTConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, layerdrop=layerdrop, **options))
    ).train()


def one_more_moves(model: PreTrainedModel) -> float:
    """In clip norms: a unit that comes first, beside 120 others, with torch's generator where it was."""
    texts = texts_of(120)
    found: list[Tensor] = []
    for own in ({"short": [7, 8], **texts}, texts):
        torch.manual_seed(0)
        found.append(sums(model, CausalObjective(), own, micro_batch=32, expected=120.0))
    return float((found[0] - found[1]).norm()) / CLIP


@pytest.mark.slow
def test_a_layer_that_is_seldom_left_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="draws random numbers"):
        refuse_unsteady(opt(1e-6), CausalObjective(), SPECIAL, EDGES, 1)
    refuse_unsteady(opt(0.0), CausalObjective(), SPECIAL, EDGES, 1)  # positive control
    assert one_more_moves(opt(0.0)) <= 1 + 1e-6
    with monkeypatch.context() as patched:  # known wrong: by results alone
        patched.setattr(steadiness, "generator_states", tuple)
        torch.manual_seed(0)
        refuse_unsteady(opt(0.005), CausalObjective(), SPECIAL, EDGES, 1)
    assert one_more_moves(opt(0.05)) > 3


def test_a_scorer_that_draws_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes of it: here nothing."""
    tokenizer = byte_bpe()
    size = tokenizer.get_vocab_size()
    special = SpecialTokens(
        pad=size - 1, start=size - 1, end=size - 1, mask=None, unknown=None, ids=(size - 1,), size=size
    )
    scorer = Scorer(LlamaForCausalLM(LlamaConfig(vocab_size=size, **NARROW)), tokenizer, special, 32)
    scorer.refuse_memory()  # positive control
    read = scorer._read
    for draw in (lambda: torch.rand(()), np.random.random_sample, random.random):

        def drawing(inputs_BT: Tensor, targets_BT: Tensor, draw: Callable[[], object] = draw) -> Tensor:
            draw()
            return read(inputs_BT, targets_BT)

        monkeypatch.setattr(scorer, "_read", drawing)
        with pytest.raises(RefusedError, match="unsteady-model"):
            scorer.refuse_memory()


# padding -------------------------------------------------------------------------------------------------------------


def conv_bert() -> PreTrainedModel:
    config = ConvBertConfig(
        vocab_size=VOCABULARY,
        embedding_size=16,
        head_ratio=1,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **NARROW,
    )
    torch.manual_seed(0)
    return moved(ConvBertForMaskedLM(config))


def between_micro_batches() -> float:
    """How far apart the sums of two micro-batches are, in clip norms."""
    texts = {name: text[: 5 + 5 * place] for place, (name, text) in enumerate(texts_of(8).items())}
    one, other = (sums(conv_bert(), MASKED, texts, micro_batch) for micro_batch in (2, 16))
    return float((one - other).norm()) / CLIP


@pytest.mark.slow
def test_another_micro_batch_changes_no_padding_of_a_model_that_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert between_micro_batches() < 1e-4
    monkeypatch.setattr(dp_step, "together", lambda model, most, *_: most)  # else each of its units stands alone
    assert between_micro_batches() < 1e-4
    monkeypatch.setattr(dp_step, "reads_padding", lambda model: False)  # known wrong
    try_nothing(monkeypatch)  # else its units stand alone again: their places show
    assert between_micro_batches() > 0.01
    refuse_unsteady(conv_bert().train(), MASKED, SPECIAL, EDGES, 1)
    monkeypatch.setattr(networks, "_READ_PADDING", frozenset())
    with pytest.raises(RefusedError, match="when it is padded"):
        refuse_unsteady(conv_bert().train(), MASKED, SPECIAL, EDGES, 1)


# what comes later ----------------------------------------------------------------------------------------------------


def test_a_causal_model_that_sees_what_comes_is_refused(tmp_path: Path) -> None:
    """An encoder under a causal head, whose config.json does not say that it is a decoder."""
    values = values_of(tmp_path, "electra", None)
    given = tmp_path / "given"
    config = ALL["electra"].config(json.loads((given / "config.json").read_text())["vocab_size"])
    ElectraForCausalLM(config).save_pretrained(given)
    with pytest.raises(RefusedError, match="tokens that come after it"):
        load_given(parse_config(values))
    config.is_decoder = True
    ElectraForCausalLM(config).save_pretrained(given)
    assert load_given(parse_config(values)) is not None


def test_nothing_of_a_rows_length_is_said_on_the_terminal() -> None:
    """transformers warns of rows that are short for a model."""

    before = logging.get_verbosity()
    try:
        set_up_torch(ComputeOptions(threads=1))
        assert logging.get_verbosity() == logging.ERROR
    finally:
        logging.set_verbosity(before)
        torch.use_deterministic_algorithms(False)


def turned_of(vocabulary: int, positions: int) -> PreTrainedModel:
    """Its frequencies change for good at the first row that is longer than ``positions``."""
    turning = {"rope_type": "dynamic", "factor": 8.0, "rope_theta": 10000.0}
    numbers = {"vocab_size": vocabulary, "max_position_embeddings": positions, "pad_token_id": 0}
    torch.manual_seed(0)
    return moved(OlmoForCausalLM(OlmoConfig(**NARROW, **numbers, rope_parameters=turning)))


def test_a_scorer_with_a_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fourteenth attack: bands 200 to 0 without, and 89 to 112 with, one more unit, in a run certified with epsilon 2."""
    tokenizer = byte_bpe()
    size = tokenizer.get_vocab_size()
    special = SpecialTokens(
        pad=size - 1, start=size - 1, end=size - 1, mask=None, unknown=None, ids=(size - 1,), size=size
    )

    def scorer(positions: int) -> Scorer:
        return Scorer(turned_of(size, positions), tokenizer, special, 128)

    texts = ["one two three four five six seven eight nine ten " * 2, "one " * 60]
    alone = scorer(32).score(texts[:1])
    assert scorer(32).score([texts[1], texts[0]])[1:] == alone  # what one text changed is undone
    with monkeypatch.context() as patched:
        patched.setattr(Kept, "put_back", lambda _: None)
        assert scorer(32).score([texts[1], texts[0]])[1:] != alone  # what the trial is for
    with pytest.raises(RefusedError, match=r"unsteady-model.*another score after other rows"):
        scorer(32).refuse_memory()
    scorer(128).refuse_memory()


class Known(torch.Generator):
    """Draws what everybody could have drawn before."""

    def seed(self) -> int:
        self.manual_seed(0)
        return 0


def test_what_a_model_is_tried_on_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-third attack: vectors that say nothing at the rows of a public seed."""
    tokenizer = byte_bpe()
    size = tokenizer.get_vocab_size()
    special = SpecialTokens(
        pad=size - 1, start=size - 1, end=size - 1, mask=None, unknown=None, ids=(size - 1,), size=size
    )
    model = turned_of(size, 32)
    known = torch.randint(size, (1, 128), generator=torch.Generator().manual_seed(0))[0]
    with torch.no_grad():
        model.get_input_embeddings().weight[known] = 0  # pyright: ignore[reportIndexIssue, reportArgumentType]
    with monkeypatch.context() as patched:
        patched.setattr(torch, "Generator", Known)
        Scorer(model, tokenizer, special, 128).refuse_memory()
    with pytest.raises(RefusedError, match=r"unsteady-model.*another score after other rows"):
        Scorer(model, tokenizer, special, 128).refuse_memory()
    rows = [_made_up(CausalObjective(), special, 32, 1)[0] for _ in range(2)]
    assert not np.array_equal(*rows)


def test_a_scorer_reads_no_more_positions_than_its_class_has(tmp_path: Path) -> None:
    """A config.json that does not say how many there are says what its class says."""
    tokenizer = byte_bpe()
    folder = tmp_path / "scorer"
    turned_of(tokenizer.get_vocab_size(), 2048).save_pretrained(folder)
    save_tokenizer(tokenizer, folder, bos_token=END, eos_token=END)
    values = json.loads((folder / "config.json").read_text())
    del values["max_position_embeddings"]
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(UsageError, match="it must be from 1 to the 2048 positions"):
        ScorerOptions(folder, 4096).load()


def test_a_policys_model_with_a_memory_is_refused(tmp_path: Path) -> None:
    """Fourteenth attack: one short record changed the marks of 42 of 60 later ones, where the stated stability is 1."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(40))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    special = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), words, strict=False))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special).save_pretrained(tmp_path)
    labels = {0: "O", 1: "B-PER"}
    numbers = {"vocab_size": len(words), "max_position_embeddings": 64, "pad_token_id": 0}
    config = BigBirdConfig(**NARROW, **BLOCKS, **numbers, id2label=labels, label2id={"O": 0, "B-PER": 1})
    moved(BigBirdForTokenClassification(config)).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="one record would decide the marks of others"):
        HuggingFaceDetector(HuggingFaceOptions(folder=str(tmp_path)))


def turning_run(folder: Path) -> dict[str, Any]:
    """A run that reads its private text only to say how well the model predicts it."""
    values = values_of(folder, "olmo", None)
    size = json.loads((folder / "given" / "config.json").read_text())["vocab_size"]
    turned_of(size, 10).save_pretrained(folder / "given")
    values["model"]["length"] = 24
    (folder / "public.jsonl").write_text((folder / "notes.jsonl").read_text() * 10)
    phase = {"name": "public", "plan": "plain", "stream": "public", "steps": 1, "batch_size": 4, "learning_rate": 1e-9}
    public = [{"path": str(folder / "public.jsonl")}]
    return {**values, "phases": [phase], "public": public, "evaluation": {"held_out": 0.3}}


@pytest.mark.parametrize("measured", [True, False], ids=["of processors measured", "of others"])
def test_a_private_evaluation_is_not_of_a_model_with_a_memory(
    measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phases with noise try it before anything is spent; this run has none. No class of transformers is known that gets here.

    On other processors places are tried too, once a model: known wrong is before each reading, of which the longest row is the last.
    """
    monkeypatch.setattr("tacit.evaluation.places._is_measured", lambda _: measured)
    config = parse_config(turning_run(tmp_path))
    with pytest.raises(UsageError, match="more than the 10 positions"):
        run(config)
    monkeypatch.setattr(given, "check_folder", lambda *_: None)  # as if its positions were not known
    monkeypatch.setattr(opening, "check_folder", lambda *_: None)
    with monkeypatch.context() as patched:
        patched.setattr(Kept, "put_back", lambda _: None)  # as of a memory that `Kept` does not know
        with pytest.raises(RefusedError, match=r"unsteady-model.*another loss after other rows"):
            run(config)
        with Ledger.open(RunFolder(config.resolved_run).ledger) as ledger:
            assert ledger.spent(EVALUATION) == 0
    run(config)  # what a held-out unit changes is undone
    assert RunFolder(config.resolved_run).certificate.is_file()


# weights that a forward writes ------------------------------------------------------------------------------------------


def rwkv(rescale_every: int, layers: int = 2) -> PreTrainedModel:
    """Its upper layers' weights are divided by 2, 4, ... at the first row of evaluation."""
    config = RwkvConfig(
        vocab_size=VOCABULARY,
        context_length=LENGTH,
        hidden_size=16,
        num_hidden_layers=layers,
        intermediate_size=24,
        rescale_every=rescale_every,
    )
    torch.manual_seed(0)
    return moved(RwkvForCausalLM(config))


def scores_of(model: PreTrainedModel, texts: Texts) -> list[float]:
    stream = stream_of({name: [text] for name, text in texts.items()}, LENGTH)
    return causal_lm.score_units({"": model}, stream, STREAMS)[""].nats_U.tolist()


@pytest.mark.slow
def test_a_model_that_writes_its_own_weights_is_refused() -> None:
    """What it was computed by is put back, but for the weights: one more held-out row, and all others have another loss."""
    texts = texts_of(6)
    moved_by = np.subtract(scores_of(rwkv(1), texts), scores_of(rwkv(1), {"more": [5, 6, 7], **texts})[1:])
    assert abs(moved_by).max() > 1
    assert (moved_by != 0).all()
    with pytest.raises(RefusedError, match=r"unsteady-model.*writes its own weights"):
        preflight.preflight(rwkv(1), CausalObjective(), SPECIAL, 16, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("rescale_every", "layers"), [(0, 2), (6, 2)])
def test_one_that_does_not_is_taken(rescale_every: int, layers: int) -> None:
    """Also where it multiplies them by 1."""
    texts = texts_of(6)
    model = rwkv(rescale_every, layers)
    assert scores_of(model, texts) == scores_of(rwkv(rescale_every, layers), {"more": [5, 6, 7], **texts})[1:]
    weights = bits_of_weights(model)
    assert preflight.preflight(model, CausalObjective(), SPECIAL, 16, 1).trained > 0
    assert bits_of_weights(model) == weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bit_of_a_weight_is_seen(dtype: torch.dtype) -> None:
    model = rwkv(0).to(dtype)  # pyright: ignore[reportArgumentType]
    before = bits_of_weights(model)
    weight = next(model.parameters())
    with torch.no_grad():
        weight[3, 5] = (
            torch.nextafter(weight[3, 5].float(), torch.tensor(torch.inf))
            if dtype == torch.float32
            else 2 * weight[3, 5]
        )
    changed = {name for name, bits in bits_of_weights(model).items() if bits != before[name]}
    assert len(changed) == 1
    with torch.no_grad():
        weight[3], weight[5] = weight[5].clone(), weight[3].clone()  # the same numbers in other places
    assert bits_of_weights(model) != before


def test_a_private_evaluation_is_not_of_a_model_that_writes_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = turning_run(tmp_path)
    size = json.loads((tmp_path / "given" / "config.json").read_text())["vocab_size"]
    model = rwkv(1)
    config = RwkvConfig.from_dict({**model.config.to_dict(), "vocab_size": size})
    torch.manual_seed(0)
    moved(RwkvForCausalLM(config)).save_pretrained(tmp_path / "given")
    monkeypatch.setattr(
        evaluation, "remembered_length", lambda *_: None
    )  # as of weights that add nothing at the tried row
    losses = evaluation._made_up_losses
    monkeypatch.setattr(evaluation, "_made_up_losses", lambda state, model: losses(state, model)(24))
    with pytest.raises(RefusedError, match=r"unsteady-model.*writes its own weights"):
        run(parse_config(values))
    with Ledger.open(RunFolder(parse_config(values).resolved_run).ledger) as ledger:
        assert ledger.spent(EVALUATION) == 0


def test_nobody_knows_the_row_that_a_model_is_tried_at() -> None:
    """Known wrong: a row of a public generator, at which weights were made to add nothing."""
    one, other = (KeyedRandomness(bytes([number]) * 32) for number in (1, 2))
    rows = [made_up_row(streams, SPECIAL, LENGTH).tolist() for streams in (one, one, other)]
    assert rows[0] == rows[1] != rows[2]
    assert not set(rows[0][0][1:]) & set(SPECIAL.ids)

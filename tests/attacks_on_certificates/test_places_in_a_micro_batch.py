"""Where a row stands may not decide how it is rounded: other units decide where it stands (fourteenth attack).

What was wrong. Loops over tensors go through them in vectors, and compute what is left over at the end by another program, whose exp
is rounded otherwise. A Llama with 12 features, two of which cancel but for that last bit, in micro-batches of 3 rows of 12 positions:
the row that stands last has another gradient. One more unit moved the sum by 119 clip norms, and 651 in a whole run that was
certified with epsilon 0.4998. It takes a public model that was made for it; tanh-GELU, a GPT-2's, has such ends too (TACIT-25).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
)
from transformers.pytorch_utils import Conv1D

from tacit.config import ComputeOptions
from tacit.engine import micro_batches
from tacit.engine.factors import Outer, gram
from tacit.evaluation import causal_lm, masked_lm
from tacit.evaluation import places as evaluation_places
from tacit.models import places
from tacit.models.places import together
from tacit.scoring.scorer import Scorer
from tacit.training.dp_step import DpStep
from tacit.training.masking import Masking, mask_rows
from tacit.training.objectives import CausalObjective, MaskedObjective
from tacit.training.plans import DpPlan
from tacit.training.unit_rows import Source, all_widths
from tacit.vocabulary.special import SpecialTokens

from ..folders import byte_bpe
from ..training.streams import stream_of
from .test_who_stands_beside import STREAMS

torch.set_num_threads(1)

LENGTH, VOCABULARY = 32, 64


def llama(features: int, width: int = 32) -> PreTrainedModel:
    torch.manual_seed(0)
    numbers = {"hidden_size": width, "intermediate_size": features, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, pad_token_id=0, **numbers)
    )


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "silu": lambda x, w: F.silu(x),
    "gelu": lambda x, w: F.gelu(x, approximate="tanh"),
    "sigmoid": lambda x, w: x.sigmoid(),
    "product": lambda x, w: x @ w,
    "product back": lambda x, w: (x @ w) @ w.T,
}


def differs(operation: str, rows: int, positions: int, features: int, draws: int) -> bool:
    """Whether in some draw a row has other bits in another place."""
    generator = torch.Generator().manual_seed(rows + positions + features)
    for _ in range(draws):
        x = torch.randn(rows, positions, features, generator=generator)
        w = torch.randn(features, 8, generator=generator)
        found = OPERATIONS[operation](x, w)
        for shift in (1, rows // 2, rows - 1):
            if not torch.equal(OPERATIONS[operation](x.roll(shift, 0), w), found.roll(shift, 0)):
                return True
    return False


@pytest.mark.parametrize("operation", OPERATIONS)
def test_where_rows_stand_together_no_place_differs(operation: str) -> None:
    """Measured on this machine, in shapes that are let through, by draws enough to find shapes that are not."""
    for positions, features in ((12, 12), (8, 24), (5, 16), (13, 20), (32, 33)):
        model = llama(features)
        for most in (3, 6, 16):
            rows = together(model, most, 1, [positions])
            if rows > 1:
                assert not differs(operation, rows, positions, features, 20), (operation, rows, positions, features)


def test_the_measure_finds_places_that_differ() -> None:
    """The positive control; a processor whose loops have no such end would have none."""
    shapes = [(3, 12, 12), (5, 7, 12), (3, 5, 20), (7, 3, 12), (3, 13, 20), (5, 5, 12)]
    if not any(differs(operation, *shape, 60) for operation in ("silu", "gelu") for shape in shapes):
        pytest.skip("this processor rounds all numbers of a tensor alike")
    for rows, positions, features in shapes:
        assert together(llama(features), rows, 1, [positions]) in (1, 2, 4), (rows, positions, features)


@pytest.mark.parametrize(
    ("features", "most", "per_unit", "positions", "units"),
    [
        (32, 64, 1, [8, 16, 24, 32], 64),  # what people have: nothing changes
        (48, 16, 1, [8, 16, 24, 32], 16),
        (12, 3, 1, [12], 1),  # the attack's
        (12, 64, 3, [12], 64),
        (33, 64, 1, [12], 1),
        (36, 16, 1, [15], 16),
        (12, 5, 1, [12, 3], 4),
    ],
)
def test_how_many_units_stand_together(
    features: int, most: int, per_unit: int, positions: list[int], units: int
) -> None:
    found = together(llama(features), most, per_unit, positions)
    assert found == units or (units == 4 and found in (1, 4))
    for width in positions if found > 1 else []:
        for size in (32, features):
            assert found * per_unit * width * size % 64 == 0


@pytest.mark.parametrize(
    ("features", "width", "positions", "units"),
    [(32, 32, [8, 24], 16), (12, 36, [12, 100], 16), (256, 128, [200], 16), (1001, 32, [24], 1), (256, 32, [1023], 1)],
)
def test_on_a_gpu_long_rows_begin_at_aligned_places_or_one_unit_is_computed_at_a_time(
    features: int, width: int, positions: list[int], units: int
) -> None:
    """A sum of 1,025 numbers on an H100 had other last bits where its row began elsewhere; up to 128 it has one order."""
    assert together(llama(features, width).to("meta"), 16, 1, positions) == units


def narrow_opt() -> PreTrainedModel:
    width: dict[str, Any] = {"hidden_size": 33, "word_embed_proj_dim": 33, "ffn_dim": 8, "num_attention_heads": 3}
    return OPTForCausalLM(OPTConfig(vocab_size=VOCABULARY, num_hidden_layers=1, max_position_embeddings=64, **width))


def rows_seen(model: PreTrainedModel, ask: Callable[[], object]) -> set[int]:
    """How many rows the model was asked about at once."""
    seen: set[int] = set()
    layer = next(module for module in model.modules() if isinstance(module, nn.Embedding))
    with layer.register_forward_pre_hook(lambda module, given: seen.add(len(given[0]))):
        ask()
    return seen


def test_held_out_rows_of_a_causal_model_stand_together_or_alone() -> None:
    """3,200 held-out units of such an OPT: one more moved the others' sum by 31, where the noise is for 1.41."""
    stream = stream_of({f"u{number}": [[7] * 13] for number in range(40)}, 15)
    for model, rows in ((narrow_opt(), 1), (llama(32), 32)):
        assert rows_seen(model, lambda of=model: causal_lm.score_units({"m": of}, stream, STREAMS, 1)) == {rows}


def test_held_out_rows_of_a_masked_model_are_scored_alike_in_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"hidden_size": 33, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 3}
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **numbers)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10 if parameter.dim() == 2 else 1)
    ids_BT = np.tile([2, 9, 17, 23, 40, 11, 31, 50, 8, 19, 27, 33, 44, 12, 3], (40, 1))
    uniforms = np.random.default_rng(0).random((1, 3, 15)).repeat(40, axis=0)
    masked = mask_rows(ids_BT, np.full(40, 15), uniforms, Masking(0.3, 4, tuple(range(5)), VOCABULARY))

    def losses() -> set[float]:
        return set(masked_lm._score_model(model, masked)[1].sum(axis=1).tolist())

    assert len(losses()) == 1
    monkeypatch.setattr(evaluation_places, "together", lambda model, most, *_: most)  # as it was
    with monkeypatch.context() as patched:  # on another processor it is tried, too
        patched.setattr(evaluation_places, "_is_measured", lambda _: False)
        assert len(losses()) == 1
    monkeypatch.setattr(evaluation_places, "_is_measured", lambda _: True)
    assert len(losses()) > 1 or torch.backends.cpu.get_cpu_capability() != "AVX512"


def test_a_scorer_reads_such_a_models_rows_one_by_one() -> None:
    tokenizer = byte_bpe()
    size = tokenizer.get_vocab_size()
    special = SpecialTokens(size - 1, size - 1, size - 1, None, None, (size - 1,), size)
    model = llama(12)
    model.resize_token_embeddings(size)
    assert [
        Scorer(model, tokenizer, special, 15).rows_at_once(15),
        Scorer(model, tokenizer, special, 16).rows_at_once(16),
    ] == [
        together(model, 34, 1, [15]),
        32,
    ]
    assert together(model, 34, 1, [15]) < 34


def test_products_of_few_features_stand_alone() -> None:
    """An OPT of width 33 with 8 features, rows of 15 and micro-batches of 64: one more unit moved 960 others by 20 clip norms."""
    assert together(narrow_opt(), 64, 1, [15]) == 1
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(64, 15, 33, generator=generator), torch.randn(8, 33, generator=generator)
    found = F.linear(x, w)
    rolled = [torch.equal(F.linear(x.roll(shift, 0), w), found.roll(shift, 0)) for shift in (1, 2, 3)]
    wide = torch.randn(12, 33, generator=generator)
    assert all(torch.equal(F.linear(x.roll(shift, 0), wide), F.linear(x, wide).roll(shift, 0)) for shift in (1, 2, 3))
    assert (
        not all(rolled) or torch.backends.cpu.get_cpu_capability() != "AVX512"
    )  # the positive control, where it was seen


def test_shares_of_threads_have_no_ends_either() -> None:
    """A loop over 58,560 numbers is cut in two: 29,280, which is no multiple of 64, has an end in the middle of the tensor."""
    model = llama(120, 64)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        units = together(model, 61, 1, [8])
    finally:
        torch.set_num_threads(before)
    assert 1 < units < 61
    for size in (64, 120):
        numbers = units * 8 * size
        assert numbers % 64 == 0
        assert numbers < 32768 or numbers % 128 == 0


@pytest.mark.parametrize(
    ("rows", "size", "threads", "even"),
    [
        (412, 80, 1, True),
        (412, 80, 2, False),  # 32,960 numbers, cut in two: 16,480 is no multiple of 64
        (416, 80, 2, True),
        (64, 64, 1, True),
        (66, 64, 1, False),  # rows that are no multiple of 4
        (8, 64, 1, True),
        (8, 64, 2, False),  # four rows for each thread
        (4, 64, 1, False),
        (20, 12, 1, False),  # 240 numbers
    ],
)
def test_shapes_without_an_end(rows: int, size: int, threads: int, even: bool) -> None:
    assert places._is_even(rows, {size}, threads) == even


CLIP = 0.1


def loud(clip_norm: float = CLIP) -> tuple[PreTrainedModel, int]:
    """A Llama in which a row that stands last shows it, and the token that shows it."""
    model = llama(12)
    last = model.config.hidden_size - 1
    tokens = torch.arange(VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.3)
        embedding, layer = model.model.embed_tokens.weight, model.model.layers[0]
        embedding[:, last] = 0
        layer.self_attn.o_proj.weight.zero_()
        gate, up, down = layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight, layer.mlp.down_proj.weight
        for weight in (gate, up, down):
            weight.zero_()
        normed = embedding * torch.rsqrt(embedding.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps)

        def shows(scale: float) -> Tensor:
            z = (scale * normed[:, 3]).contiguous()
            vector = F.silu(F.pad(z, (0, 4096)))[:VOCABULARY]
            return (vector != torch.cat([F.silu(one.clone()) for one in z.split(1)])) & (tokens > 4)

        scale = max((0.3 + 0.01 * k for k in range(150)), key=lambda one: int(shows(one).sum()))
        for feature in (0, 11):
            gate[feature, 3], up[feature, 5] = scale, 1.0
        down[last, 0], down[last, 11] = 2.0**23, -(2.0**23)
        model.lm_head.weight[:, last] = torch.randn(VOCABULARY) * 30
        found = shows(scale)
    if not bool(found.any()):
        pytest.skip("this processor rounds all numbers of a tensor alike")
    return model, int(found.nonzero()[0, 0])


def moved_by_one_more(
    model: PreTrainedModel,
    token: int,
    other: int = 9,
    micro_batch: int = 3,
    every: int = 3,
    length: int = LENGTH,
) -> float:
    """By how many clip norms one more unit moves the sum of 60 others, every third of which has the token."""

    def total(texts: dict[str, list[int]]) -> Tensor:
        source = Source(stream_of({key: [text] for key, text in texts.items()}, length), CausalObjective(), STREAMS)
        compute = ComputeOptions(micro_batch=micro_batch, threads=1)
        step = DpStep(model, DpPlan(1.0, CLIP, 1.0, 60.0), compute, source)
        model.zero_grad()
        for _ in step.add_up(0, step.draw(0), 0):
            pass
        sums = torch.cat([one.double().flatten() for one in step.sums()])
        step.close()
        return sums

    before = [7] * min(9, length - 3)
    texts = {f"u{number:03d}": [*before, token if number % every == every - 1 else other] for number in range(60)}
    return float((total({"a": [*before, other], **texts}) - total(texts)).norm()) / CLIP


@pytest.mark.slow
def test_one_more_unit_moves_the_sum_by_what_it_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    model, token = loud()
    assert moved_by_one_more(model, token) <= 1 + 1e-5
    monkeypatch.setattr("tacit.training.dp_step.together", lambda model, most, *_: most)  # as it was
    monkeypatch.setattr("tacit.training.unit_rows._EDGE", 1)
    assert moved_by_one_more(model, token) <= 1 + 1e-5  # operations are tried, and then units computed one at a time
    try_nothing(monkeypatch)
    assert torch.backends.cpu.get_cpu_capability() != "AVX512" or moved_by_one_more(model, token) > 3


def try_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: no operation is tried on equal rows before a phase."""
    monkeypatch.setattr("tacit.engine.places._known", {})
    monkeypatch.setattr("tacit.engine.places._are_units_equal", lambda *_: True)


# gaps that the fifteenth attack found --------------------------------------------------------------------------------


def with_six_columns(scale: float = 2.0**28) -> PreTrainedModel:
    """A gradient ``g @ w`` of six columns, of which two features that cancel show the last bits."""
    model = llama(6)
    layer, (one, other) = model.model.layers[0], (30, 31)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.3)
        model.model.embed_tokens.weight[:, other] = model.model.embed_tokens.weight[:, one]
        model.lm_head.weight[:, other] = model.lm_head.weight[:, one]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.up_proj.weight.zero_()
        layer.mlp.gate_proj.weight.mul_(10)
        layer.mlp.down_proj.weight[one], layer.mlp.down_proj.weight[other] = scale, -scale
    return model


def gpt2(positions: int) -> PreTrainedModel:
    numbers: dict[str, Any] = {
        "n_embd": 32,
        "n_inner": 12,
        "n_layer": 1,
        "n_head": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=positions, activation_function="silu", **numbers)
    return GPT2LMHeadModel(config)


@pytest.mark.parametrize(
    ("model", "positions", "features"),
    [
        (llama(1), 12, 1),  # certified 0.4998; in a whole run one more document moved the sum by 254 clip norms
        (gpt2(16), 9, 12),
        (gpt2(12), 9, 12),  # a table has 12 rows too: 11 clip norms
    ],
)
def test_no_size_is_left_out(model: PreTrainedModel, positions: int, features: int) -> None:
    assert together(model, 4, 1, [positions]) == 1
    if not differs("silu", 4, positions, features, 60):
        pytest.skip("this processor rounds all numbers of a tensor alike")


@pytest.mark.slow
def test_a_product_of_six_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certified 0.4998, one more document moved the sum of a whole run by 153 clip norms."""
    model = with_six_columns()
    options = {"other": 8, "micro_batch": 32, "every": 2, "length": 9}
    assert together(model, 32, 1, [9]) == 1
    assert moved_by_one_more(model, 7, **options) <= 1 + 1e-5
    monkeypatch.setattr("tacit.training.dp_step.together", lambda model, most, *_: most)
    assert moved_by_one_more(model, 7, **options) <= 1 + 1e-5
    try_nothing(monkeypatch)
    assert torch.backends.cpu.get_cpu_capability() != "AVX512" or moved_by_one_more(model, 7, **options) > 3


@pytest.mark.parametrize("transposed", [True, False])
def test_products_are_alike_in_every_place_where_the_rule_says_so(transposed: bool) -> None:
    """Over columns and terms; with the rule's exceptions as the positive control."""

    def rule(columns: int, terms: int) -> bool:
        return places._is_odd_transposed(columns, terms) if transposed else places._is_odd_plain(columns)

    generator, found = torch.Generator().manual_seed(0), {True: 0, False: 0}
    for columns, terms in itertools.product([*range(1, 17), 24, 33, 64], [1, 2, 3, 4, 5, 8, 9, 12, 16, 33, 64]):
        w = torch.randn(terms, columns, generator=generator)
        w = w.T.contiguous().T if transposed else w
        for rows in (16, 60, 196, 512):
            x = torch.randn(rows, terms, generator=generator)
            alike = all(torch.equal(x.roll(shift, 0) @ w, (x @ w).roll(shift, 0)) for shift in (1, 2, 3, rows // 2 + 1))
            found[rule(columns, terms)] += not alike
            assert alike or rule(columns, terms), (columns, terms, rows)
    assert found[False] == 0
    assert found[True] > 50 or torch.backends.cpu.get_cpu_capability() != "AVX512"


def test_a_share_of_a_thread_begins_with_a_row() -> None:
    """Half of a row, as of Phi-3's gate and up, is gone through row by row; three shares of 2,744 rows cut rows in two."""
    assert not places._is_even(56 * 49, {48}, 3)
    assert places._is_even(56 * 48, {48}, 3)


def test_norms_of_equal_units_are_equal() -> None:
    """Rows of 9 features began at other places for each unit: a unit whose parts nearly cancel moved by 0.0024 clip norms."""
    differ = 0
    for rows, terms, dtype in itertools.product((7, 9, 11), (9, 14, 33, 4099), (torch.float32, torch.float64)):
        one_Rk = torch.randn(rows, terms, generator=torch.Generator().manual_seed(rows)).to(dtype)
        x_URk = one_Rk.expand(9, -1, -1).contiguous()
        found = gram(x_URk)
        assert found.dtype == torch.float64
        assert all(torch.equal(one, found[0]) for one in found), (rows, terms, dtype)
        plain = torch.bmm(x_URk, x_URk.mT)  # as it was
        differ += not all(torch.equal(one, plain[0]) for one in plain)
        torch.testing.assert_close(found, plain.double(), rtol=1e-4, atol=1e-3)
    assert differ > 5 or torch.backends.cpu.get_cpu_capability() != "AVX512"


def test_gradients_of_equal_units_are_equal() -> None:
    """The product over a unit's positions, where `together` lets units through: a tagger's head has an odd number of outputs."""
    shapes = [
        *itertools.product((8, 13, 16, 33), (1, 2, 3, 5, 7, 9, 13), (4, 8, 12, 20, 32, 100, 768))
    ]  # linear layers
    shapes += [*itertools.product((8, 13, 33), (4, 8, 12, 32), (13, 14, 15, 17, 30, 33, 130))]  # Conv1D's
    differ = 0
    for positions, left, right in [*shapes, *itertools.product((8, 13, 33), (3, 5, 13), (5, 6))]:
        generator = torch.Generator().manual_seed(positions)
        left_Rp, right_Rd = (torch.randn(positions, size, generator=generator) for size in (left, right))
        factor = Outer(left_Rp.expand(9, -1, -1).contiguous(), right_Rd.expand(9, -1, -1).contiguous())
        found = factor.dense().gradient_Uw
        assert all(torch.equal(one, found[0]) for one in found), (positions, left, right)
        by_torch = torch.bmm(factor.left_URp.mT, factor.right_URd)  # the positive control
        differ += not all(torch.equal(one, by_torch[0]) for one in by_torch)
    assert differ or torch.backends.cpu.get_cpu_capability() != "AVX512"


def test_the_head_of_a_scorer_is_given_as_many_rows_each_time() -> None:
    """Sixteenth attack: 512 positions went through it as 255, 255 and 2, and products of two rows are computed in another way.

    With a public Llama that was made for it one more record changed the scores of 20 of 640 others from 7.28 to 12.32.
    """
    words = 4100
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(words)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    numbers = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=words, max_position_embeddings=8, **numbers))
    scorer = Scorer(model, tokenizer, SpecialTokens(0, 1, 1, None, None, (0, 1), words), 8)
    seen: list[int] = []
    with model.lm_head.register_forward_pre_hook(lambda module, given: seen.append(len(given[0]))):
        found = scorer.score(["w7 " * 8] * 70)
    assert len(set(seen)) == 1
    assert seen[0] >= 16
    assert len({score.log_perplexity for score in found}) == 1
    with torch.no_grad():
        logits = model(torch.tensor([[1, *[7] * 7]])).logits.double().log_softmax(-1)
    assert found[0].log_perplexity == pytest.approx(-float(logits[0, :, 7].mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("threads", "heads", "widths", "together_or_alone"),
    [
        (1, 2, [16], 16),
        (1, 2, [12], 16),
        (1, 2, [9], 1),  # scores of fewer than 12 positions begin at other places in memory for each unit
        (2, 2, [16, 32], 16),
        (2, 2, [12], 1),  # widths that are no multiple of 8
        (2, 8, [16], 1),  # heads of 4 features
    ],
)
def test_attention_rounds_every_unit_alike(threads: int, heads: int, widths: list[int], together_or_alone: int) -> None:
    """Sixteenth attack: 31 positions, heads of 8, two threads: 15 clip norms of 3,200 units, and 1.0000 with one thread."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=heads
    )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert together(LlamaForCausalLM(config), 16, 1, widths) == together_or_alone
    finally:
        torch.set_num_threads(before)


def test_all_widths_are_multiples_of_eight_but_for_the_longest_row() -> None:
    for length in (12, 24, 30, 48, 64, 100, 128, 512):
        assert all(width % 8 == 0 or width == length for width in all_widths(length))
    assert all_widths(512) == {64, 128, 192, 256, 384, 512}


@pytest.mark.parametrize(
    ("layer", "alone"),
    [
        (nn.Embedding(10, 8), False),
        (nn.Embedding(10, 9), True),  # a unit's rows of 9 numbers begin at other places in memory
        (Conv1D(32, 16), False),  # 16 features in, 32 out
        (Conv1D(6, 16), True),  # forward ``x @ w`` of 6 columns
        (Conv1D(32, 9), True),
        (nn.Conv1d(8, 8, 3), True),  # not measured
        (nn.Linear(16, 7), False),  # a head of seven labels
        (nn.Linear(6, 16), True),
    ],
)
def test_layers_whose_products_hang_on_a_place(layer: nn.Module, alone: bool) -> None:
    weight = layer.get_parameter("weight")
    assert places._is_odd_product(layer, weight.shape) == alone


# shares of threads -------------------------------------------------------------------------------------------------------

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "exact gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
}
SHAPES = [(rows, size) for rows in (64, 96, 104, 136, 384, 768, 792) for size in (72, 120, 136, 168, 256)]


def told_by_place(activation: str, rows: int, size: int, dtype: torch.dtype, values: Tensor) -> bool:
    """Whether a number that stands everywhere in a tensor has other bits somewhere in the result, or in the gradient."""
    for value in values.tolist():
        x = torch.full((rows, size), value, dtype=dtype, requires_grad=True)
        y = ACTIVATIONS[activation](x)
        y.backward(torch.full_like(y, 0.7))
        assert x.grad is not None
        if bool((y != y[0, 0]).any()) or bool((x.grad != x.grad[0, 0]).any()):
            return True
    return False


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8], indirect=True)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_no_threads_share_of_an_activation_has_an_end(threads: int, dtype: torch.dtype) -> None:
    """What was wrong: torch gives each thread a share of a GELU, of which it was thought that 32,768 numbers are one.

    A public Llama with tanh-GELU and four threads: one more document moved the sum by 587 clip norms in runs that were certified with
    0.4998, and 16 of 16 were told apart by their weights.
    """
    values = torch.cat([torch.randn(6, generator=torch.Generator().manual_seed(0)), torch.tensor([-5.09375])])
    even = [shape for shape in SHAPES if places._is_even(shape[0], {shape[1]}, threads)]
    assert even
    for rows, size in even:
        for activation in ACTIVATIONS:
            assert not told_by_place(activation, rows, size, dtype, values), (activation, rows, size)


@pytest.mark.parametrize("threads", [4], indirect=True)
def test_the_shares_that_were_thought_of_are_caught(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong: as it was."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("seen on processors with AVX-512 alone")
    monkeypatch.setattr(
        places, "_shares", lambda numbers, threads: {1 if numbers < 32768 else min(threads, -(-numbers // 32768))}
    )
    values = torch.randn(20, generator=torch.Generator().manual_seed(0))
    let_through = [shape for shape in SHAPES if places._is_even(shape[0], {shape[1]}, threads)]
    assert any(told_by_place("gelu", *shape, torch.float32, values) for shape in let_through)


def test_a_blank_row_counts_among_the_rows_that_stand_together() -> None:
    """In bfloat16 one stands beside the units (TACIT-30): 33 rows of 24 positions and 168 features have an end, 32 have none.

    A public BERT made for it moved a sum by 57 clip norms in runs that were certified with 0.4998, and 12 of 12 were told apart.
    """
    numbers = {"hidden_size": 32, "intermediate_size": 168, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **numbers))
    objective = MaskedObjective(Masking(0.3, 4, tuple(range(5)), VOCABULARY))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert together(model, 32, 1, [24]) == 32
        at_once = together(model, 32, 1, [24], blank=1)
        source = Source(stream_of({"u": [[7] * 9]}, 24), objective, STREAMS)
        step = DpStep(
            model, DpPlan(1.0, 0.1, 1.0, 1.0), ComputeOptions(micro_batch=32, threads=2, precision="bf16"), source
        )
        rows = step._at_once + step._spare
        step.close()
    finally:
        torch.set_num_threads(before)
    assert not places._is_even(33 * 24, {168}, 2)
    assert 1 < at_once < 32
    assert rows == at_once + 1
    assert places._is_even(rows * 24, {32, 168}, 2)


@pytest.mark.parametrize(("width", "units"), [(24, 1), (LENGTH, 1), (7, 4)])
def test_each_width_of_a_phase_is_tried_before_it(width: int, units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an operation of some width is rounded by places, units are computed one at a time; nothing is refused."""

    def equal(func: Any, leaves: list[Any], *_: Any) -> bool:
        return not any(isinstance(leaf, Tensor) and leaf.dim() == 3 and leaf.shape[1] == width for leaf in leaves)

    monkeypatch.setattr("tacit.engine.places._known", {})
    monkeypatch.setattr("tacit.engine.places._are_units_equal", equal)
    source = Source(stream_of({"unit": [[7] * 13]}, LENGTH), CausalObjective(), STREAMS)
    assert width == 7 or width in all_widths(LENGTH)
    step = DpStep(llama(32), DpPlan(1.0, 1.0, 1.0, 20.0), ComputeOptions(micro_batch=4, threads=1), source)
    step.close()
    assert len(next(iter(step_batches(step)))) == units


def step_batches(step: DpStep) -> list[np.ndarray]:
    """Units of one width, as many as stand together."""
    return [units for units, _ in micro_batches(np.zeros(9, dtype=np.int64), step._at_once)]

"""A model that raises at one unit's rows ends nothing and moves nothing: that unit adds zero, and what is said of others stays.

What was wrong: transformers' I-BERT asserts that no activation is NaN. With ranges of infinity in its buffers and an embedding of
3e38 one document with an unknown word ended a run that was certified with epsilon 0.5, after it was paid for; in 12 of 12 runs the
existence of a release told whether the document was there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import IBertConfig, IBertForMaskedLM, PreTrainedModel

from tacit.config import AuditOptions, ComputeOptions
from tacit.engine.total import Kept
from tacit.entities.tagger import row_labels
from tacit.errors import DataError, RefusedError, UsageError
from tacit.evaluation import causal_lm, masked_lm
from tacit.models.given import load_folder
from tacit.pipeline import training
from tacit.privacy.ledger import Ledger
from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scorer import ScorerOptions
from tacit.training import dp_step
from tacit.training.dp_step import DpStep
from tacit.training.loop import run_phase
from tacit.training.masking import Masking
from tacit.training.objectives import Targets
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import ControlPlan, DpPlan, NoiselessPlan, PlainPlan
from tacit.training.preflight import preflight
from tacit.training.unit_rows import Source
from tacit.training.watching import Watched, _WatchedStep
from tacit.vocabulary.special import SpecialTokens

from ..folders import gpt2_folder
from ..training.phases import HEADER, dropping_bert
from ..training.streams import LENGTH as WIDTH
from ..training.streams import OBJECTIVE, stream_of
from .test_who_stands_beside import LENGTH, SPECIAL, STREAMS, VOCABULARY, Texts, clipped, network, others

ODD = VOCABULARY - 1
CLIP = 0.1


class _Raises(torch.autograd.Function):
    """The identity, which raises in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise ValueError("no gradient here")


class _Layer(nn.Module):
    """Stands around a part of a model, and does something where a row has the odd id."""

    def __init__(self, inner: nn.Module, way: str, id: int) -> None:
        super().__init__()
        self.inner, self.way, self.id, self.odd, self.calls = inner, way, id, False, 0
        self.register_buffer("scale", torch.ones(()))

    def look(self, ids: Tensor) -> None:
        """Learn whether a row has it."""
        self.odd = bool((ids == self.id).any())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The part's output times a buffer, unless it raises."""
        assert isinstance(self.scale, Tensor)
        if "input_ids" in kwargs:
            self.look(kwargs["input_ids"])
        if self.odd and self.way != "never":
            self.scale.mul_(3) if self.way != "backward" else None
            self.calls = 1
        if self.odd and self.way == "forward":
            raise AssertionError("NaN detected when computing min/max of the activation")
        found = self.inner(*args, **kwargs)
        first = (found[0] if isinstance(found, tuple) else found) * self.scale * (2.0 if self.calls else 1.0)
        if self.odd and self.way == "backward":
            first = _Raises.apply(first)
        return (first, *found[1:]) if isinstance(found, tuple) else first


WAYS = ("forward", "backward", "buffer")


def odd_network(kind: str, way: str, id: int = ODD) -> Any:
    model: Any = network(kind)[0]
    if kind == "bert":
        model.bert.embeddings = _Layer(model.bert.embeddings, way, id)
        return model
    layer = model.transformer.h[0] = _Layer(model.transformer.h[0], way, id)
    model.get_input_embeddings().register_forward_pre_hook(lambda module, given: layer.look(given[0]))
    return model


def company() -> Texts:
    return {name: [one for one in text if one != ODD] for name, text in others(20).items()}


def moved(kind: str, way: str) -> tuple[float, int]:
    """By how many clip norms one unit with the odd id moves the sum, and how many others get another norm."""
    odd = {"zz odd": [7, ODD, 9]}
    without, norms = without_it(kind)
    with_, all_norms = clipped(odd_network(kind, way), network(kind)[1], {**odd, **company()}, CLIP, 1.0)
    return float((with_ - without).norm()) / CLIP, sum(norm != all_norms.get(name) for name, norm in norms.items())


@functools.cache  # nobody has the odd id, so the way is none
def without_it(kind: str) -> tuple[Tensor, dict[str, float]]:
    return clipped(odd_network(kind, "never"), network(kind)[1], company(), CLIP, 1.0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_unit_at_which_the_model_raises_adds_nothing(kind: str, way: str) -> None:
    by, other_norms = moved(kind, way)
    assert by < 1e-5
    assert other_norms == 0


def test_a_unit_adds_what_it_adds_where_the_model_does_not_raise() -> None:
    by, _ = moved("gpt2", "never")
    assert 0.9 < by <= 1.0 + 1e-4


@pytest.mark.parametrize("kind", ["bert", "gpt2", "lstm"])
def test_alone_with_blank_rows_a_unit_has_the_bits_that_it_has_in_company(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, objective = network(kind)
    together, norms = clipped(model, objective, company(), CLIP, 1.0)
    real_add = DpStep._is_added

    def one_by_one(self: DpStep, units: np.ndarray, real: np.ndarray, width: int, step: int) -> bool:
        return real.sum() < 2 and real_add(self, units, real, width, step)

    monkeypatch.setattr(DpStep, "_is_added", one_by_one)
    alone, own_norms = clipped(network(kind)[0], objective, company(), CLIP, 1.0)
    assert own_norms == norms
    assert float((alone - together).norm()) < 1e-5 * CLIP


def test_what_was_wrong_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ended; and two mends that would not do: the whole micro-batch adds nothing, or what was half done stays."""
    with monkeypatch.context() as patch:
        patch.setattr(dp_step, "is_out_of_memory", lambda error: True)
        with pytest.raises(AssertionError, match="NaN detected"):
            moved("gpt2", "forward")
    with monkeypatch.context() as patch:
        real = DpStep._is_added
        patch.setattr(DpStep, "_is_added", lambda *given: real(*given) or True)
        assert moved("gpt2", "forward")[0] > 2
    with monkeypatch.context() as patch:
        patch.setattr(Kept, "put_back", lambda self: None)
        by, other_norms = moved("gpt2", "forward")
        assert by > 1e-3
        assert other_norms > 0


def one_step(model: PreTrainedModel, texts: Texts) -> DpStep:
    source = Source(stream_of({name: [text] for name, text in texts.items()}, LENGTH), network("gpt2")[1], STREAMS)
    return DpStep(model, DpPlan(1.0, CLIP, 1.0, 1.0), ComputeOptions(micro_batch=4, threads=1), source)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory"), KeyboardInterrupt()])
def test_memory_and_an_interrupt_go_out(error: BaseException) -> None:
    model = odd_network("gpt2", "never")
    step = one_step(model, company())

    def stop(module: nn.Module, given: Any) -> None:
        raise error

    model.get_submodule("transformer.h.0").register_forward_pre_hook(stop)
    with pytest.raises(type(error)):
        list(step.add_up(0, step.draw(0), 0))


def test_an_error_before_the_model_is_called_goes_out() -> None:
    model = odd_network("gpt2", "never")
    step = one_step(model, company())
    next(model.parameters()).requires_grad_(False)
    with pytest.raises(UsageError, match="was frozen"):
        list(step.add_up(0, step.draw(0), 0))


def test_a_model_that_raises_at_blank_rows_ends_the_phase_before_it_is_paid() -> None:
    model = odd_network("gpt2", "never")

    def stop(module: nn.Module, given: Any) -> None:
        raise ValueError("not on this device")

    model.get_submodule("transformer.h.0").register_forward_pre_hook(stop)
    with pytest.raises(ValueError, match="not on this device"):
        one_step(model, company())


def test_a_half_done_forward_leaves_nothing_behind() -> None:
    model = odd_network("gpt2", "never")
    kept, layer = Kept(model), model.get_submodule("transformer.h.0")
    layer.get_buffer("scale").mul_(5)
    layer.calls, layer.another = 4, "new"  # pyright: ignore[reportAttributeAccessIssue]
    layer.register_buffer("more", torch.ones(2))
    kept.put_back()
    assert float(layer.get_buffer("scale")) == 1
    assert layer.calls == 0
    assert not hasattr(layer, "another")
    assert [name for name, _ in layer.named_buffers(recurse=False)] == ["scale"]


# other forwards on private rows ---------------------------------------------------------------------------------------


def texts_with_odd() -> dict[str, list[list[int]]]:
    return {name: [text] for name, text in {**company(), "zz odd": [7, ODD, 9]}.items()}


def test_a_held_out_unit_at_which_a_causal_model_raises_counts_as_no_number() -> None:
    stream = stream_of(texts_with_odd(), LENGTH)
    found = causal_lm.score_units({"": odd_network("gpt2", "forward")}, stream, STREAMS)[""].nats_U
    expected = causal_lm.score_units({"": odd_network("gpt2", "never")}, stream, STREAMS)[""].nats_U
    assert np.isnan(found[-1])
    assert np.array_equal(found[:-1], expected[:-1])
    losses = {"": causal_lm.UnitLosses(found, np.full(len(found), 3), True)}
    assert causal_lm.unit_vectors(losses, 6.0)[-1, 1] == 1


def test_a_held_out_unit_at_which_a_masked_model_raises_counts_as_no_number() -> None:
    stream, masking = stream_of(texts_with_odd(), LENGTH), Masking(0.3, 4, (*range(SPECIAL), ODD), VOCABULARY)
    found, expected = (
        masked_lm.score_units({"": odd_network("bert", way)}, stream, 1, masking, STREAMS)[""]
        for way in ("forward", "never")
    )
    assert np.isnan(found.loss_U[-1])
    assert found.accuracy_U[-1] == 0
    assert np.array_equal(found.loss_U[:-1], expected.loss_U[:-1])
    assert masked_lm.unit_vectors({"": found}, 6.0)[-1].tolist() == [1, 0, 1]


def test_a_text_at_which_the_scorer_raises_is_the_most_private(tmp_path: Path) -> None:
    gpt2_folder(tmp_path)
    scorer = ScorerOptions(tmp_path, length=32).load()
    texts = ["the patient is well", "no pain", "fever and cough", "no pain"]
    expected = scorer.score(texts)
    odd = scorer._tokenizer.encode("fever", add_special_tokens=False).ids[0]

    def stop(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        assert not (given[0] == odd).any()

    scorer._model.get_input_embeddings().register_forward_pre_hook(stop)
    found = scorer.score(texts)
    assert np.isnan(found[2].log_perplexity)
    assert [one.nats for place, one in enumerate(found) if place != 2] == [expected[n].nats for n in (0, 1, 3)]
    assert PrivacyProbability(1.0, 2.0).of(found[2].log_perplexity) == 1


@pytest.mark.parametrize("plan", [PlainPlan(8), ControlPlan(8)])
def test_the_control_goes_on_and_other_ordinary_training_does_not(plan: PlainPlan, tmp_path: Path) -> None:
    phase = Phase("control", "private", plan, 4, AdamOptions(1e-3))
    stream = stream_of(texts_with_odd(), LENGTH)

    def train() -> None:
        model, compute = odd_network("gpt2", "forward"), ComputeOptions(micro_batch=4, threads=1)
        run_phase(model, phase, stream, network("gpt2")[1], None, STREAMS, compute, tmp_path / "control.pt")

    if isinstance(plan, ControlPlan):
        train()
        assert (tmp_path / "control.pt").exists()
    else:
        with pytest.raises(AssertionError, match="NaN detected"):
            train()


def test_updates_are_watched_to_the_end(tmp_path: Path) -> None:
    model: Any = dropping_bert(0.0)
    model.bert.embeddings = _Layer(model.bert.embeddings, "forward", 13)
    nn.Module.double(model)
    plan = DpPlan(0.7, 0.4, 0.5, 5.0)
    phase = Phase("private", "private", plan, 2, AdamOptions(1e-3))
    stream = stream_of({"a": [[7, 8, 9]], "b": [[10, 11]], "zz odd": [[7, 13, 9]]}, WIDTH)
    compute, checkpoint = ComputeOptions(micro_batch=4, threads=1), tmp_path / "private.pt"
    with Ledger.create(tmp_path / "ledger.sqlite", HEADER) as ledger:
        ledger.plan("private", plan.event, 2)
        run_phase(model, phase, stream, OBJECTIVE, ledger, STREAMS, compute, checkpoint, watched=Watched(stream, plan))
        assert ledger.spent("private") == 2


def test_a_row_at_which_a_tagger_raises_has_no_entities() -> None:
    class Tagger(nn.Module):
        device = torch.device("cpu")

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
            assert not (input_ids == ODD).any()
            logits = nn.functional.one_hot(input_ids % 3, 3).float()
            return type("Output", (), {"logits": logits})

    model: Any = Tagger()
    ids = np.array([[5, 7, 8], [4, ODD, 8]])
    assert row_labels(model)(ids, np.array([3, 3])).tolist() == [[2, 1, 2], [0, 0, 0]]


# before anything is paid -------------------------------------------------------------------------------------------------


def i_bert(limit: float) -> PreTrainedModel:
    """With ranges of activations up to so much: those of infinity are never written, until a number is NaN."""
    config = IBertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH + 2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        quant_mode=False,
        tie_word_embeddings=False,
    )
    torch.manual_seed(1)
    model = IBertForMaskedLM(config)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith(("x_min", "x_max")):
                buffer.fill_(limit if name.endswith("x_max") else -limit)
    return model


def test_buffers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    i_bert(torch.inf).save_pretrained(tmp_path / "infinite")
    with pytest.raises(DataError, match=r"x_m\w\w holds numbers that are not finite"):
        load_folder(IBertForMaskedLM, tmp_path / "infinite")
    i_bert(3e38).save_pretrained(tmp_path / "finite")
    load_folder(IBertForMaskedLM, tmp_path / "finite")


def test_an_id_at_which_the_model_raises_is_found_before_anything_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    special = SpecialTokens(pad=0, start=2, end=3, mask=4, unknown=1, ids=(0, 1, 2, 3, 4), size=VOCABULARY)
    given = network("gpt2")[1], special, LENGTH, 1
    with pytest.raises(RefusedError, match=r"model-raises.*raises at a made-up row \(AssertionError: NaN detected"):
        preflight(odd_network("gpt2", "forward", id=1), *given)
    preflight(network("gpt2")[0], *given)
    monkeypatch.setattr("tacit.training.preflight.refuse_company", lambda *_: None)  # known wrong: ordinary ids alone
    preflight(odd_network("gpt2", "forward", id=1), *given)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# a model that mixes rows, and was refused once -------------------------------------------------------------------------


class _Mixes(nn.Module):
    """A part of a model, whose output in every row has a share of the mean of all rows."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found = self.inner(*args, **kwargs)
        first = found[0] if isinstance(found, tuple) else found
        first = first + first.mean(0, keepdim=True)
        return (first, *found[1:]) if isinstance(found, tuple) else first


@pytest.mark.parametrize("kind", ["bert", "gpt2", "lstm"])
def test_a_model_that_mixes_rows_is_refused_before_a_step_is_paid_for(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At blank rows without a loss. It was asked at a step's own rows, and one refusal there said that all was well: the units were
    computed one by one beside blank rows, where nothing mixes, and the next micro-batch was not looked at.
    """

    def started(mixes: bool) -> None:
        model, objective = network(kind)
        changed: Any = model
        place = {"bert": "bert.embeddings", "gpt2": "transformer.h.0", "lstm": "dropout"}[kind]
        if mixes:
            changed.set_submodule(place, _Mixes(changed.get_submodule(place)))
        source = Source(stream_of({"unit": [[7, 8, 9]]}, LENGTH), objective, STREAMS)
        DpStep(changed, DpPlan(1.0, CLIP, 1.0, 1.0), ComputeOptions(micro_batch=16, threads=1), source).close()

    started(mixes=False)
    with pytest.raises(RefusedError, match="row of another one") as refusal:
        started(mixes=True)
    assert refusal.value.reason == "cross-example-operation"

    def none_counted(self: object, targets: Targets) -> Targets:
        return Targets(targets.arrays, np.zeros_like(targets.real_BN))

    monkeypatch.setattr(type(network(kind)[1]), "all_counted", none_counted)
    started(mixes=True)  # as it was


def test_whether_a_model_raises_at_weights_made_without_noise_ends_nothing() -> None:
    """A control without noise goes on from such weights, and so does what watches its updates: they are tried before steps."""

    class Raises(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise ValueError("at every row")

    model, objective = network("bert")
    model.bert.embeddings = Raises()
    source = Source(stream_of({"unit": [[7, 8, 9]]}, LENGTH), objective, STREAMS)
    plan, compute = DpPlan(1.0, CLIP, 1.0, 1.0), ComputeOptions(micro_batch=2, threads=1)
    for kind, own in ((DpStep, NoiselessPlan.of(plan)), (_WatchedStep, plan)):
        step = kind(model, own, compute, source)
        step.add(np.array([0]), np.array([0]), 0)
        assert not torch.cat([own.flatten() for own in step.sums()]).any()
        step.close()
    with pytest.raises(ValueError, match="at every row"):  # as it was; and with noise the weights are released ones
        DpStep(model, plan, compute, source)


def test_every_ordinary_phase_of_a_control_is_one_that_no_row_ends() -> None:
    """A public phase behind the private one too (CRT's rounds), whose weights private text made without noise."""
    public, private = PlainPlan(4), DpPlan(1.0, CLIP, 1.0, 1.0)
    adam = AdamOptions(1e-2)
    phases = (
        Phase("public", "public", public, 2, adam),
        Phase("private", "private", private, 2, adam, previous="public"),
        Phase("public-2", "public", public, 2, adam, previous="private"),
    )
    state: Any = SimpleNamespace(
        config=SimpleNamespace(audit=AuditOptions(control=True), privacy=SimpleNamespace(units=10)),
        mechanisms=SimpleNamespace(phases=phases),
    )
    found = training._control_phases(state)
    assert [type(phase.plan) for phase in found] == [PlainPlan, ControlPlan, ControlPlan]
    assert repr(found[2].plan) == repr(public)  # its draws have the same address

"""`tacit finetune`: the ledger holds what ran, the certificate says whom it covers, and a stop changes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForTokenClassification, AutoTokenizer

from tacit.config.compare import load_comparison
from tacit.entities.cells import cutter_of
from tacit.entities.compare import compare
from tacit.entities.finetune import FinetuneResult, finetune
from tacit.entities.plan import plan_finetune
from tacit.entities.tuning import read_inputs
from tacit.errors import BudgetError, DataError, LedgerError, RefusedError, UsageError
from tacit.files import read_json
from tacit.privacy.accounting.accountant import epsilon, joint_epsilon
from tacit.privacy.certificate_checks import verify_certificate
from tacit.privacy.events import EVERY_PART, Event, NonPrivate, PoissonGaussian, Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.rounded import upper
from tacit.progress import Bar, SilentReporter
from tacit.randomness import KeyedRandomness

from ..folders import bert_folder
from .annotated import (
    BUDGET,
    DP,
    LABELS,
    SENTINEL,
    SPENT,
    configured,
    files_with,
    finetune_values,
    release,
    write_notes,
    write_users,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT without a certificate."""
    return bert_folder(tmp_path_factory.mktemp("model") / "bert")


def weights(result: FinetuneResult) -> dict[str, torch.Tensor]:
    return load_file(result.folder / "release" / "model" / "model.safetensors")


def ledger_spends(result: FinetuneResult) -> dict[str, tuple[Event, int, str]]:
    with Ledger.open(result.folder / "ledger.sqlite", readonly=True) as ledger:
        return {name: (plan.event, ledger.spent(name), plan.partition) for name, plan in ledger.plans.items()}


def check_verified(result: FinetuneResult) -> None:
    certificate = read_json(result.folder / "release" / "certificate.json")
    with Ledger.open(result.folder / "ledger.sqlite", readonly=True) as ledger:
        checks = verify_certificate(ledger, certificate, result.folder / "release")
    assert [check.name for check in checks if not check.holds] == []


# without DP ----------------------------------------------------------------------------------------------------------


def test_without_dp_epsilon_is_infinite_and_says_so(
    tmp_path: Path, model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_notes(tmp_path / "notes")
    write_notes(tmp_path / "held-out", 3, start=50)
    result = finetune(configured(tmp_path, model, test={"path": str(tmp_path / "held-out")}))
    assert math.isinf(result.epsilon)
    assert "epsilon is infinite for every one of them" in result.statement
    assert "nothing is known here" in result.statement
    assert ledger_spends(result) == {"fine-tuning": (NonPrivate("ordinary training on private text"), 4, EVERY_PART)}
    check_verified(result)
    certificate = read_json(result.folder / "release" / "certificate.json")
    assert (certificate["status"], certificate["fine_tuning"]["with_dp"]) == ("heuristic", False)
    assert result.scores == result.folder / "private" / "scores.json"
    scores = read_json(result.folder / "private" / "scores.json")
    assert scores["counts"]["problem"][2] == 9  # three in each of three notes
    loaded = AutoModelForTokenClassification.from_pretrained(result.folder / "release" / "model")
    assert loaded.config.id2label == {0: "O", 1: "B-problem", 2: "I-problem", 3: "B-test", 4: "I-test"}
    assert AutoTokenizer.from_pretrained(result.folder / "release" / "model").tokenize("fever")
    assert (result.folder / "private").stat().st_mode & 0o777 == 0o700
    assert (result.folder / "finetune.json").stat().st_mode & 0o777 == 0o600
    assert files_with(tmp_path / "tuned", SENTINEL) == []
    assert SENTINEL not in "".join(capfd.readouterr())


# folds ---------------------------------------------------------------------------------------------------------------


def test_by_folds_every_document_is_scored_by_a_model_that_has_not_seen_it(tmp_path: Path, model: Path) -> None:
    """It is what `tacit compare` finds of the same model, and the release is the one without folds."""
    write_notes(tmp_path / "notes", 7)
    alone = finetune(configured(tmp_path, model, run=str(tmp_path / "alone"), seed=7))
    assert alone.scores is None
    config = configured(tmp_path, model, seed=7, folds=3)
    result = finetune(config)
    assert all(torch.equal(tensor, weights(alone)[name]) for name, tensor in weights(result).items())
    assert result.scores is not None
    found = read_json(result.scores)
    assert found["folds"] == 3
    assert {kind: counts[2] for kind, counts in found["counts"].items()} == {"problem": 7 * 3, "test": 7}
    values = finetune_values(tmp_path, model)
    compared = load_comparison(
        {
            "run": str(tmp_path / "compared"),
            "models": {"x": values["model"]},
            "tasks": {"documents": {**values["documents"], "folds": 3, "labels": LABELS}},
            **{name: values[name] for name in ("training", "compute")},
            "baselines": False,
        },
        "test",
    )
    compare(compared, SilentReporter())
    cells = [read_json(path)["counts"] for path in sorted((tmp_path / "compared" / "cells").iterdir())]
    assert found["counts"] == {
        kind: [sum(document[kind][place] for cell in cells for document in cell) for place in range(3)]
        for kind in found["counts"]
    }
    assert not list((result.folder / "private" / "folds").rglob("*.pt"))  # no model of a fold is kept
    before = result.scores.read_bytes()
    assert finetune(config).scores == result.scores
    assert result.scores.read_bytes() == before


@pytest.mark.slow
def test_folds_of_a_private_fine_tuning_stay_with_the_curator(
    tmp_path: Path, model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They cost nothing of what is released: same spends, same certificate; and they may be asked for later."""
    write_notes(tmp_path / "notes", 4)
    dp = {"dp": {**DP, "noise_multiplier": 2.0}, "labels": LABELS, "model": {"folder": str(model), "public": True}}
    first = finetune(configured(tmp_path, model, **dp))
    release = {path: path.read_bytes() for path in (first.folder / "release").rglob("*") if path.is_file()}
    result = finetune(configured(tmp_path, model, **dp, folds=2))
    assert {path: path.read_bytes() for path in release} == release
    assert ledger_spends(result) == ledger_spends(first)
    assert set(ledger_spends(result)) == {"fine-tuning"}
    check_verified(result)
    assert result.scores is not None
    assert read_json(result.scores)["folds"] == 2
    assert files_with(result.folder, SENTINEL) == []
    assert SENTINEL not in "".join(capfd.readouterr())


def test_scores_are_of_the_documents_that_are_asked_for(tmp_path: Path, model: Path) -> None:
    """They may be asked for again, of others: those at hand were taken for them."""
    write_notes(tmp_path / "notes", 6)
    for name, start in (("one", 20), ("other", 40)):
        write_notes(tmp_path / name, 2, start)
    (tmp_path / "other" / "note40.bio").write_text("fever\tB-problem\nfever\tB-problem\n")

    def counts(**options: Any) -> dict[str, list[int]]:
        done = finetune(configured(tmp_path, model, seed=7, labels=LABELS, **options))
        assert done.scores is not None
        return read_json(done.scores)["counts"]

    of_one = counts(test={"path": str(tmp_path / "one")})
    of_other = counts(test={"path": str(tmp_path / "other")})
    assert (of_one["problem"][2], of_other["problem"][2]) == (6, 5)
    assert counts(test={"path": str(tmp_path / "one")}) == of_one
    by_three, by_two = counts(folds=3), counts(folds=2)
    assert by_three["problem"][2] == by_two["problem"][2] == 18
    assert len(list((tmp_path / "tuned" / "private" / "folds").glob("*/cells/*"))) == 5


def test_folds_and_test_documents_exclude_each_other(tmp_path: Path, model: Path) -> None:
    with pytest.raises(UsageError, match="leave out folds, or test"):
        configured(tmp_path, model, folds=2, test={"path": "x"})


class Stopped(Exception):
    """As if the process was killed."""


class StoppingReporter(SilentReporter):
    """Stops after so many steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Bar]:
        steps = self._steps

        class StoppingBar:
            def advance_to(self, done: int) -> None:
                if done == steps:
                    raise Stopped

        yield StoppingBar()


def test_a_seed_repeats_it_and_a_stop_changes_nothing(tmp_path: Path, model: Path) -> None:
    write_notes(tmp_path / "notes")
    runs = {name: configured(tmp_path, model, run=str(tmp_path / name), seed=7) for name in ("one", "stopped")}
    whole = finetune(runs["one"])
    with pytest.raises(Stopped):
        finetune(runs["stopped"], StoppingReporter(2))
    assert not (tmp_path / "stopped" / "release").exists()
    again = finetune(runs["stopped"])
    assert weights(whole).keys() == weights(again).keys()
    assert all(torch.equal(tensor, weights(again)[name]) for name, tensor in weights(whole).items())
    assert ledger_spends(whole) == ledger_spends(again)
    other = finetune(configured(tmp_path, model, run=str(tmp_path / "other"), seed=8))
    assert not torch.equal(weights(whole)["classifier.weight"], weights(other)["classifier.weight"])


def test_what_changed_since_it_began_is_refused(tmp_path: Path, model: Path) -> None:
    write_notes(tmp_path / "notes")
    finetune(configured(tmp_path, model))
    training = {**finetune_values(tmp_path, model)["training"], "learning_rate": 1e-5}
    with pytest.raises(UsageError, match=r"training\.learning_rate: 0\.0005 -> 1e-05"):
        finetune(configured(tmp_path, model, training=training))
    (tmp_path / "notes" / "note00.bio").write_text(f"{SENTINEL}\tB-test\n")
    with pytest.raises(LedgerError, match="annotated documents changed") as caught:
        finetune(configured(tmp_path, model))
    assert SENTINEL not in str(caught.value)
    (tmp_path / "tuned" / "ledger.sqlite").unlink()
    with pytest.raises(LedgerError, match="ledger is missing"):
        finetune(configured(tmp_path, model))


def test_labelled_documents_are_read_on_this_machine(tmp_path: Path, model: Path) -> None:
    with pytest.raises(UsageError, match=r"compute\.runner: labelled documents are read on this machine"):
        configured(tmp_path, model, compute={"runner": "spark"})


def page_of(folder: Path) -> str:
    return (folder / "tuned" / "release" / "README.md").read_text()


# with DP -------------------------------------------------------------------------------------------------------------


def test_dp_on_a_public_model_spends_what_it_planned(tmp_path: Path, model: Path) -> None:
    write_notes(tmp_path / "notes")
    public = {"folder": str(model), "public": True}
    result = finetune(configured(tmp_path, model, model=public, dp=DP, labels=LABELS))
    ((event, steps, partition),) = ledger_spends(result).values()
    assert isinstance(event, PoissonGaussian)
    assert (event.sampling_probability, steps, partition) == (20 / 200, 4, EVERY_PART)
    assert result.epsilon == pytest.approx(epsilon([Spend(event, 4)], 1e-4), rel=1e-9)
    assert 0.97 * BUDGET < result.epsilon <= BUDGET
    assert "every document of the fine-tuning" in result.statement
    assert "public, as the user declares" in result.statement
    assert "Assumed: Nobody made the given weights" in page_of(tmp_path)
    check_verified(result)
    assert files_with(tmp_path / "tuned", SENTINEL) == []


@pytest.mark.slow
def test_with_the_same_people_both_spends_add_up(tmp_path: Path) -> None:
    """The unit may have been in either part of the pre-training: the worst part composes with the fine-tuning."""
    write_notes(tmp_path / "notes")
    model = release(tmp_path / "pre")
    dp = {**DP, "noise_multiplier": 1.5, "budget": {"epsilon": 20.0, "delta": 1e-4}}
    result = finetune(configured(tmp_path, model, dp=dp, labels=LABELS))
    own = Spend(PoissonGaussian(0.1, 1.5), 4)
    before = {name: Spend(event, count) for name, (event, count, _) in SPENT.items()}
    parts = [epsilon([spend, own], 1e-4) for spend in before.values()]
    assert result.epsilon == pytest.approx(max(parts), rel=1e-9)
    assert result.epsilon > max(epsilon([spend], 1e-4) for spend in (own, *before.values())) + 0.1
    wrong = [Spend(event, count, part) for event, count, part in SPENT.values()] + [Spend(own.event, 4, "notes")]
    assert joint_epsilon(wrong, 1e-4) < result.epsilon - 0.1  # as if it had read other people
    head = read_json(tmp_path / "pre" / "release" / "certificate.json")["ledger_head"][:12]
    expected = {f"{head}: {name}": (event, count, f"{head}/{part}") for name, (event, count, part) in SPENT.items()}
    assert ledger_spends(result) == {**expected, "fine-tuning": (own.event, 4, EVERY_PART)}
    assert "the fine-tuning and the pre-training together" in result.statement
    page = page_of(tmp_path)  # the weights are of a release of ours, whose own report says what it rests on
    assert page.count("Assumed:") == 1
    assert "Assumed: The certificates of the releases that this began with are as tacit wrote them" in page
    check_verified(result)
    solved = configured(tmp_path, model, run=str(tmp_path / "solved"), dp=DP, labels=LABELS)
    plan = plan_finetune(solved)
    assert 0.97 * BUDGET < finetune(solved).epsilon <= BUDGET
    assert plan.models[0].epsilon == finetune(solved).epsilon  # what was said is what was spent


def test_disjoint_people_do_not_add_up_and_the_declaration_is_named(tmp_path: Path) -> None:
    write_notes(tmp_path / "notes")
    model = release(tmp_path / "pre", unit="user")  # another unit is no obstacle here
    dp = {**DP, "noise_multiplier": 1.5}
    result = finetune(configured(tmp_path, model, dp=dp, labels=LABELS, same_people=False))
    own = Spend(PoissonGaussian(0.1, 1.5), 4)
    assert result.epsilon == pytest.approx(epsilon([own], 1e-4), rel=1e-9)
    assert ledger_spends(result) == {"fine-tuning": (own.event, 4, EVERY_PART)}
    stated = read_json(tmp_path / "pre" / "release" / "certificate.json")["epsilons"][0]["epsilon"]
    assert f"epsilon {upper(stated, '.2f')} at delta 0.0001 for every user" in result.statement
    assert "same_people: false), which nothing here can check" in result.statement


def test_sentences_of_a_document_are_one_unit_unless_the_unit_is_a_sentence(tmp_path: Path, model: Path) -> None:
    """A row shows a sentence in both; what is drawn and clipped as one is the unit that is named."""
    write_notes(tmp_path / "notes")
    training = {**finetune_values(tmp_path, model)["training"], "context": "sentence"}
    for unit, expected in (("document", 12), ("sentence", 24)):
        dp, public = {**DP, "unit": unit}, {"folder": str(model), "public": True}
        config = configured(tmp_path, model, model=public, dp=dp, labels=LABELS, training=training)
        inputs = read_inputs(config)
        stream = cutter_of(inputs.start, config.training, inputs.tags).unit_rows(
            inputs.units, KeyedRandomness(bytes(32))
        )
        assert stream.units == expected
        assert stream.sequences >= 24


def test_all_documents_of_a_user_are_one_unit(tmp_path: Path) -> None:
    """In pre-training and fine-tuning alike, whose spends add up."""
    write_users(tmp_path / "notes.jsonl")
    start = release(tmp_path / "pre", unit="user")
    dp = {**DP, "unit": "user", "noise_multiplier": 1.5, "budget": {"epsilon": 20.0, "delta": 1e-4}}
    documents = {"path": str(tmp_path / "notes.jsonl"), "format": "jsonl", "id_field": "note", "user_field": "who"}
    config = configured(tmp_path, start, documents=documents, dp=dp, labels=LABELS)
    inputs = read_inputs(config)
    assert [len(unit.documents) for unit in inputs.units] == [4, 4, 4]
    result = finetune(config)
    check_verified(result)
    certificate = read_json(result.folder / "release" / "certificate.json")
    assert certificate["unit"] == "user"
    assert "when all text of one user is added or removed" in result.statement
    assert any(
        "is one whole user of the pre-training, or none" in text for text in certificate["fine_tuning"]["assumed"]
    )
    assert set(ledger_spends(result)) > {"fine-tuning"}
    changed = (tmp_path / "notes.jsonl").read_text().replace('"who": "u1"', '"who": "u2"', 1)
    (tmp_path / "notes.jsonl").write_text(changed)
    with pytest.raises(DataError, match="the annotated documents"):
        finetune(config)


def test_users_need_their_field_and_a_pretraining_of_users(tmp_path: Path) -> None:
    write_users(tmp_path / "notes.jsonl")
    documents = {"path": str(tmp_path / "notes.jsonl"), "format": "jsonl", "id_field": "note", "user_field": "who"}
    dp = {**DP, "unit": "user", "noise_multiplier": 1.5}
    without = {name: value for name, value in documents.items() if name != "user_field"}
    with pytest.raises(UsageError, match=r"documents\.user_field does not name"):
        configured(tmp_path, tmp_path, documents=without, dp=dp, labels=LABELS)
    start = release(tmp_path / "pre")
    with pytest.raises(RefusedError):
        finetune(configured(tmp_path, start, documents=documents, dp=dp, labels=LABELS))
    nameless = {name: value for name, value in documents.items() if name != "id_field"}
    by_document = {**dp, "unit": "document"}
    with pytest.raises(DataError, match="does not say where a document ends"):  # a line may be a sentence of one
        finetune(configured(tmp_path, start, documents=nameless, dp=by_document, labels=LABELS))


@pytest.mark.slow
def test_an_earlier_training_that_was_declared_apart_is_not_forgotten(tmp_path: Path) -> None:
    write_notes(tmp_path / "notes")
    first = release(tmp_path / "pre")
    dp = {**DP, "noise_multiplier": 1.5}
    apart = finetune(configured(tmp_path, first, dp=dp, labels=LABELS, same_people=False))
    model = apart.folder / "release" / "model"
    again = configured(tmp_path, model, run=str(tmp_path / "again"), dp={**dp, "budget": BOTH}, labels=LABELS)
    result = finetune(again)
    own = Spend(PoissonGaussian(0.1, 1.5), 8)  # both fine-tunings may have read every document
    parts = [epsilon([Spend(event, count), own], 1e-4) for event, count, _ in SPENT.values()]
    assert result.epsilon == pytest.approx(max(parts), rel=1e-9)
    assert result.epsilon > apart.epsilon + 0.1  # known wrong: as if only what the last one inherited had been spent
    check_verified(result)


BOTH = {"epsilon": 30.0, "delta": 1e-4}


def heuristic_release(folder: Path) -> Path:
    return release(folder, spent={"plain": (NonPrivate("x"), 1, "training units")})


REFUSED: list[tuple[str, Callable[[Path], Path], dict[str, Any]]] = [
    ("start-unknown", bert_folder, {}),
    ("pretraining-unit-differs", lambda folder: release(folder, unit="user"), {}),
    ("pretraining-unit-differs", lambda folder: release(folder, relation="replace"), {}),
    ("pretraining-without-guarantee", heuristic_release, {}),
    ("delta-too-large", lambda folder: release(folder, units=20_000), {}),
    ("delta-too-large", release, {"dp": {**DP, "budget": {"epsilon": 9.0, "delta": 0.01}}}),
    ("labels-from-private-data", release, {"labels": None}),
    ("steps-from-private-data", release, {"training": {"epochs": 2}}),
    ("public-key", release, {"seed": 3}),
    ("context-beyond-unit", release, {"dp": {**DP, "unit": "sentence"}}),
]


@pytest.mark.parametrize(("reason", "make", "sections"), REFUSED)
def test_what_cannot_be_proved_is_refused(
    tmp_path: Path, reason: str, make: Callable[[Path], Path], sections: dict[str, Any]
) -> None:
    write_notes(tmp_path / "notes")
    model = make(tmp_path / "pre")
    with pytest.raises(RefusedError) as caught:
        finetune(configured(tmp_path, model, **{"dp": DP, "labels": LABELS, **sections}))
    assert caught.value.reason == reason
    assert not (tmp_path / "tuned").exists()


def test_a_budget_that_the_pretraining_has_used_is_refused(tmp_path: Path) -> None:
    write_notes(tmp_path / "notes")
    model = release(tmp_path / "pre")
    dp = {**DP, "budget": {"epsilon": 1.0, "delta": 1e-4}}
    with pytest.raises(BudgetError):
        finetune(configured(tmp_path, model, dp=dp, labels=LABELS))
    assert not (tmp_path / "tuned").exists()


def test_a_certificate_of_other_files_is_refused(tmp_path: Path) -> None:
    write_notes(tmp_path / "notes")
    model = release(tmp_path / "pre")
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    with pytest.raises(DataError, match="certifies other files"):
        finetune(configured(tmp_path, model))
    (tmp_path / "pre" / "release" / "certificate.json").write_text(json.dumps({"epsilons": []}))
    with pytest.raises(DataError, match="damaged"):
        finetune(configured(tmp_path, model))
    assert not (tmp_path / "tuned").exists()


# bad documents -------------------------------------------------------------------------------------------------------


def spoil(folder: Path, line: str) -> None:
    path = folder / "note03.bio"
    path.write_text(path.read_text().replace("pain\tB-problem", line, 1))


@pytest.mark.parametrize(
    ("line", "sections", "problem"),
    [
        ("pain\tI-test", {}, "line 2: an I- tag"),
        ("pain", {}, "line 2: the line has not the columns"),
        (f"pain\tB-{SENTINEL}", {"labels": LABELS}, "line 2: an entity of a type that is not in the option labels"),
    ],
)
def test_documents_that_do_not_parse_leave_nothing(
    tmp_path: Path, model: Path, line: str, sections: dict[str, Any], problem: str
) -> None:
    spoil(write_notes(tmp_path / "notes"), line)
    with pytest.raises(DataError) as caught:
        finetune(configured(tmp_path, model, **sections))
    assert f"{tmp_path / 'notes' / 'note03.bio'}, {problem}" in str(caught.value)
    assert SENTINEL not in str(caught.value)
    assert not (tmp_path / "tuned").exists()


def test_test_documents_that_are_in_training_or_have_other_types(tmp_path: Path, model: Path) -> None:
    write_notes(tmp_path / "notes")
    write_notes(tmp_path / "held-out", 2, start=11)
    config = configured(tmp_path, model, test={"path": str(tmp_path / "held-out")})
    with pytest.raises(DataError, match=r"note11\.bio, line 1: this document is in two folds"):
        finetune(config)
    (tmp_path / "held-out" / "note11.bio").write_text("new\tB-drug\n")
    with pytest.raises(DataError, match=r"note11\.bio, line 1: an entity of a type that is not in the training"):
        finetune(config)
    assert not (tmp_path / "tuned").exists()

"""The experiments of Hoory et al. 2021: what is left out, what each model spends, that they compare, and that the page says what was
measured."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.config.run import check_meaning
from tacit.corpus.annotations import read_annotated
from tacit.corpus.overlap import RunIndex
from tacit.entities.estimates import fold_estimate
from tacit.errors import UsageError
from tacit.files import write_json
from tacit.models.kinds import load_model
from tacit.pipeline.opening import open_run
from tacit.pipeline.stages import walk
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import NonPrivate, PoissonGaussian, Spend
from tacit.progress import SilentReporter
from tacit.reproduce.driver import reproduce
from tacit.reproduce.hoory import stored
from tacit.reproduce.hoory.account import Account, account_of, vocabulary_spends
from tacit.reproduce.hoory.claims import judge
from tacit.reproduce.hoory.corpora import CorpusFiles, left_out, prepare
from tacit.reproduce.hoory.measure import measure, model_folder, seed_of
from tacit.reproduce.hoory.paper import HOORY, jobs_of
from tacit.reproduce.hoory.runs import base_run, model_run, task_of, trunk_run
from tacit.reproduce.hoory.scale import (
    BASES,
    DELTA,
    GENERAL,
    PRIVATE,
    PUBLIC,
    SCALES,
    STRONG,
    UNITS,
    Base,
    DpTraining,
    Model,
    PlainTraining,
    Scale,
    TaskSize,
    models_of,
)
from tacit.reproduce.hoory.share import share_kept
from tacit.reproduce.hoory.tables import table2_rows, trick_rows
from tacit.reproduce.place import Place, scale_named, with_public_key

TINY = Scale(
    name="tiny",
    novels=1,
    paragraphs=200,
    answers=600,
    shape={"layers": 1, "width": 16, "heads": 2, "length": 32},
    vocabulary=400,
    trunk_steps=3,
    base_steps=3,
    public_batch=8,
    public_rate=1e-3,
    plain=PlainTraining(steps=3, batch=8, learning_rate=1e-3),
    dp=DpTraining(steps=4, expected_batch=8, sequences=1, learning_rate=1e-3),
    rates=(1e-3,),
    tasks={
        "mtsamples": TaskSize(folds=2, epochs=1, learning_rate=1e-3, batch=128),
        "ncbi-disease": TaskSize(folds=1, epochs=1, learning_rate=1e-3, batch=128, sentences=200),
    },
    vocabulary_options={"method": "weighted", "max_words": 4},
    canaries_each=1,
    rates_of_canaries=(1.0,),
    replicates=2,
)


STANDARD = "the patient was prepped and draped in the usual sterile fashion"
OWN = "a woman of forty came with chest pain since the day before and was seen by the nurse who sent her home again"


def test_an_annotated_note_is_left_out_however_it_is_cut() -> None:
    tested = [f"HISTORY : , {OWN.replace('forty', 'XXX')} .".upper()]
    notes = [
        f"HISTORY:,  {OWN}.",
        f"{OWN}, and later she came again: {STANDARD}, " * 3,  # the annotated one is a part of a longer note
        f"OPERATION:, {STANDARD}. Another operation altogether, of which nothing is annotated, in many other words.",
    ]
    assert left_out(notes, tested) == {0, 1}
    assert OWN.upper() not in {note.upper() for note in notes}  # equal text, which would find none of them


def test_a_standard_phrase_leaves_nothing_out() -> None:
    long = f"{OWN} and {STANDARD} while " + " ".join(f"word{number}" for number in range(40))
    assert left_out([f"{STANDARD} and then " + " ".join(f"other{number}" for number in range(40))], [long]) == set()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> CorpusFiles:
    return prepare(data_dir, TINY, tmp_path_factory.mktemp("hoory") / "corpora")


def test_corpora_of_other_rules_are_not_gone_on_with(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "sizes.json").write_text('{"notes": {"records": 1}}')
    with pytest.raises(UsageError, match="other rules"):
        prepare(data_dir, TINY, tmp_path)


def texts_of(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def test_what_is_tested_on_is_not_trained_on(files: CorpusFiles, data_dir: Path) -> None:
    notes, out = texts_of(files.notes), texts_of(files.left_out)
    assert len(notes) == pytest.approx(UNITS, rel=0.05)  # the public statement is about right
    assert len(notes) + len(out) == 2357
    tested = [" ".join(document.tokens) for document in read_annotated(data_dir / "mtsamples-ner" / "notes", "bio")]
    assert len(out) >= len(tested)
    medical = texts_of(files.medical)
    assert left_out([*notes, *medical], tested) == set()
    assert not {*texts_of(files.answers), *medical} & set(texts_of(files.held_out_answers))


def test_an_abstract_that_is_tested_on_is_not_public(files: CorpusFiles, data_dir: Path) -> None:
    """BC5CDR and NCBI-disease are both of PubMed: where they share an abstract, no model sees it."""
    sentences = [stored.words_of(block) for block in stored.diseases(data_dir, "test")]
    abstracts, medical = stored.abstracts(data_dir), set(texts_of(files.medical))
    shared = left_out(abstracts, sentences)  # none shares text with a note
    assert 0 < len(shared) < 0.1 * len(abstracts)
    assert {number for number, text in enumerate(abstracts) if text not in medical} == shared


def test_public_text_holds_no_private_note(files: CorpusFiles, data_dir: Path) -> None:
    """One consultation of ACI-Bench was played from a note of MTSamples; its dialogue alone would not be found."""
    notes, medical = RunIndex(stored.notes(data_dir)), set(texts_of(files.medical))
    assert left_out(sorted(medical), notes) == set()
    (pair,) = [
        pair for pair in stored.consultations(data_dir) if "adult hydrocephalus, 3 months status post" in pair[1]
    ]
    assert left_out(pair, notes) == {1}
    assert not medical & set(pair)


def test_public_clinical_notes_weigh_more(files: CorpusFiles, data_dir: Path) -> None:
    medical = Counter(texts_of(files.medical))
    played = [pair for pair in stored.consultations(data_dir) if pair[0] in medical]
    assert len(stored.consultations(data_dir)) == 207 + 57
    assert 0.98 * (207 + 57) < len(played) < 207 + 57
    assert {medical[said] for said, _ in played} == {1}
    assert {medical[written] for _, written in played} == {8}
    assert all(medical[answer] == 1 for answer in texts_of(files.answers))


@pytest.mark.parametrize("name", SCALES)
def test_every_model_is_a_run_that_is_allowed(files: CorpusFiles, name: str, tmp_path: Path) -> None:
    scale = SCALES[name]
    models = models_of(scale)
    assert len({model.name for model in models}) == len(models)
    assert {part for model in models for part in model.parts} == {"table2", "figure1", "figure2", "tricks", "rate"}
    for base in BASES:
        check_meaning(trunk_run(base.trunk, scale, files, tmp_path / "run"))
        check_meaning(base_run(base, tmp_path, scale, files, tmp_path / "run"))
    for model in models:
        if model.training is not None:
            noises = (1.0,) * (len(model.training.schedule) if isinstance(model.training, DpTraining) else 0)
            config = model_run(model, noises, tmp_path, scale, files, tmp_path / "run")
            check_meaning(config)
            steps = sum(phase.steps for phase in config.phases)
            assert steps == model.training.steps


def test_a_rate_is_chosen_on_public_text(files: CorpusFiles, tmp_path: Path) -> None:
    """No run for the choice of the learning rate names the notes, and its base has not seen the answers."""
    for model in models_of(TINY):
        if "rate" in model.parts:
            config = model_run(model, (1.0,), tmp_path, TINY, files, tmp_path / "run")
            assert str(files.notes) not in config.model_dump_json()
            begun_with = (
                trunk_run(model.base.trunk, TINY, files, tmp_path / "run"),
                base_run(model.base, tmp_path, TINY, files, tmp_path / "run"),
            )
            for public in begun_with:
                assert [source.path for source in public.public] == [str(files.general)]
                assert {phase.stream for phase in public.phases} == {"public"}


def test_a_task_is_the_documents(files: CorpusFiles, data_dir: Path, tmp_path: Path) -> None:
    config = task_of("ncbi-disease", TINY, data_dir, files, tmp_path, tmp_path)
    source = config.tasks["ncbi-disease"].source("train")
    assert len(read_annotated(source.resolved_path, source.format)) == 200


# prices --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(files: CorpusFiles, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An eighth of each text and test, with a trunk and a base as the driver stores them: trained once for the tests below."""
    found = Place(data_dir, tmp_path_factory.mktemp("hoory") / "out")
    shutil.copytree(files.folder, found.corpora)
    for path in found.corpora.glob("*.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[::8]))
    tests = files.task("ncbi-disease", "test").read_text().split("\n\n")
    CorpusFiles(found.corpora).task("ncbi-disease", "test").write_text("\n\n".join(tests[::8]))
    found.results.mkdir()
    for job in jobs_of([Model("one", ("table2",), "", PRIVATE, TINY.dp)], TINY)[:2]:
        write_json(found.results / f"{job.name}.json", measure(job.cell, TINY, found))
    return found


@pytest.fixture(scope="module")
def trunk(place: Place) -> Path:
    return model_folder(place, PRIVATE.trunk)


def test_all_bases_of_a_replicate_go_on_from_one_trunk(place: Place, trunk: Path, tmp_path: Path) -> None:
    """Of general text alone; what differs is the vocabulary, and the text that follows."""
    files = CorpusFiles(place.corpora)
    assert {base.trunk.name for base in BASES} == {"trunk"}
    assert PRIVATE.trunk == GENERAL.trunk != dataclasses.replace(PRIVATE, replicate=2).trunk
    assert seed_of(1) != seed_of(2)
    again = base_run(GENERAL, trunk, TINY, files, tmp_path / "run").phases[0].name
    assert (
        again != trunk_run(GENERAL.trunk, TINY, files, tmp_path / "run").phases[0].name
    )  # else the same rows and masks again
    begun = load_model(trunk)
    with open_run(base_run(GENERAL, trunk, TINY, files, tmp_path / "run")) as state:
        walk(state, "vocabulary")
        model = state.new_model()
    for (name, before), (_, after) in zip(begun.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(before, after), name  # the same pieces, so nothing is averaged


@pytest.mark.parametrize("base", [PRIVATE, STRONG], ids=lambda base: base.name)
def test_a_vocabularys_price_is_what_its_bases_ledger_plans(
    place: Place, trunk: Path, tmp_path: Path, base: Base
) -> None:
    files = CorpusFiles(place.corpora)
    with open_run(base_run(base, trunk, TINY, files, tmp_path / "run")) as state:
        planned = [(plan.event, plan.limit) for plan in state.ledger.plans.values()]
    assert planned == [(spend.event, spend.count) for spend in vocabulary_spends(base, TINY)]
    assert planned


@pytest.mark.slow
def test_a_models_ledger_holds_its_vocabulary_too_and_adds_up_to_the_page(place: Place, tmp_path: Path) -> None:
    """Trunk, base and model are three runs: what the base spent on the notes is in the model's ledger, once."""
    model = Model("one", ("table2",), "", PRIVATE, TINY.dp)
    account, begun_with = account_of(model, TINY), model_folder(place, PRIVATE)
    run = tmp_path / "runs" / "one"
    config = model_run(model, account.noise_multipliers, begun_with, TINY, CorpusFiles(place.corpora), run)
    with open_run(with_public_key(config, seed_of(1))) as state:
        plans = state.ledger.plans.values()
        spends = [Spend(plan.event, plan.limit, plan.partition) for plan in plans]
    noisy = [spend for spend in spends if not isinstance(spend.event, NonPrivate)]
    assert epsilon(noisy, DELTA, "add-or-remove") == pytest.approx(account.joint, rel=1e-6)
    assert 7.9 < account.joint <= 8.0
    training = [spend for spend in noisy if isinstance(spend.event, PoissonGaussian)]
    assert epsilon(training, DELTA, "add-or-remove") == pytest.approx(account.training, rel=1e-6)
    assert account.training < account.joint - 0.5  # what a ledger without the vocabulary would say
    keys = [spend for spend in spends if isinstance(spend.event, NonPrivate)]
    assert all("key" in spend.event.reason for spend in keys if isinstance(spend.event, NonPrivate))
    assert keys


def test_prices_against_the_accountant() -> None:
    spends = vocabulary_spends(PRIVATE, TINY)
    assert spends
    assert vocabulary_spends(PUBLIC, TINY) == ()
    account = account_of(Model("one", ("table2",), "", PRIVATE, TINY.dp), TINY)
    (noise,) = account.noise_multipliers
    own = Spend(PoissonGaussian(8 / UNITS, noise), 4)
    assert account.joint == epsilon([*spends, own], DELTA, "add-or-remove") <= 8.0
    assert account.joint > max(account.vocabulary, account.training)  # the vocabulary is paid for too
    assert epsilon([*spends, Spend(PoissonGaussian(8 / UNITS, 0.97 * noise), 4)], DELTA, "add-or-remove") > 8.0


def test_a_schedule_meets_the_same_budget_and_a_factor_is_of_the_reference() -> None:
    def priced(training: DpTraining) -> Account:
        return account_of(Model("one", (), "", PUBLIC, training), TINY)

    constant = priced(TINY.dp)
    falling = priced(dataclasses.replace(TINY.dp, schedule=(1.4, 0.7)))
    first, second = falling.noise_multipliers
    assert first == pytest.approx(2 * second)
    assert 7.9 < falling.joint <= 8.0
    assert second < constant.noise_multipliers[0] < first
    double = priced(dataclasses.replace(TINY.dp, epsilon=None, noise_factor=2.0, steps=2))
    assert double.noise_multipliers == (2 * constant.noise_multipliers[0],)
    assert double.joint < constant.joint


def test_text_without_noise_has_no_epsilon() -> None:
    models = [model for model in models_of(TINY) if model.name in ("bert", "bert-m", "bert-m-public-vocabulary")]
    assert [account_of(model, TINY).joint for model in models] == [0.0, math.inf, math.inf]


# the share of the gain -----------------------------------------------------------------------------------------------


def test_the_shares_interval_holds_what_the_folds_do_not_exclude() -> None:
    generator = np.random.default_rng(3)
    bert = 0.30 + 0.02 * generator.standard_normal((5, 1))
    best = bert + 0.10 + 0.01 * generator.standard_normal((5, 1))
    own = bert + 0.07 + 0.01 * generator.standard_normal((5, 1))
    found = share_kept(own, bert, best)
    assert found.mean == pytest.approx((own - bert).mean() / (best - bert).mean())
    assert found.mean != pytest.approx(((own - bert) / (best - bert)).mean())  # a mean of ratios is another number
    assert found.low is not None
    assert found.high is not None
    for share in np.linspace(-1, 3, 401):
        kept = fold_estimate((own - bert) - share * (best - bert))
        assert kept.low is not None
        assert kept.high is not None
        assert (kept.low <= 0 <= kept.high) == (found.low <= share <= found.high), share


def test_no_gain_is_no_share_and_a_doubtful_gain_has_no_interval() -> None:
    bert = np.array([[0.30], [0.32], [0.28]])
    assert math.isnan(share_kept(bert, bert, bert - 0.01).mean)
    doubtful = share_kept(bert, bert, bert + np.array([[0.2], [-0.1], [0.0]]))
    assert (doubtful.low, doubtful.high) == (None, None)


def cell(model: str, fold: int, seed: int, right: int) -> dict[str, Any]:
    return {"model": model, "task": "mtsamples", "fold": fold, "seed": seed, "counts": [{"problem": [right, 10, 10]}]}


def test_pretrainings_of_a_model_are_one_row_and_are_told_apart() -> None:
    """F1 here is ``right`` tenths."""
    scale = dataclasses.replace(TINY, tasks={"mtsamples": TINY.tasks["mtsamples"]})
    right = {
        "bert": (3, 4),
        "bert@2": (1, 2),
        "bert-medical": (4, 5),
        "bert-m": (8, 9),
        "bert-m-general": (6, 7),
        "bert-dp-8": (5, 6),
        "bert-dp-8@2": (3, 4),
    }
    account = {"vocabulary": 0.0, "training": 0.0, "joint": 0.0}
    results: dict[str, Any] = {
        name: {"account": account, "cells": [cell(name, fold, int("@" in name), own[fold]) for fold in range(2)]}
        for name, own in right.items()
    }
    rows = {one["model"]: one for one in table2_rows(models_of(TINY), results, {}, scale)}
    assert list(rows) == ["bert", "bert-medical", "bert-m", "bert-m-general", "bert-dp-8"]
    assert rows["bert"]["f1"] == pytest.approx(0.25)
    assert rows["bert"]["pretrainings"] == "0.350 0.150"
    assert rows["bert-m"]["gain"] == pytest.approx(0.85 - 0.35)  # beside its own pre-training
    assert rows["bert-m"]["notes"] == pytest.approx(0.85 - 0.45)
    assert rows["bert-m"]["share"] is None
    assert rows["bert-m-general"]["notes"] == pytest.approx(0.65 - 0.35)  # it has read no medical public text
    assert rows["bert-medical"]["share"] == pytest.approx(0.1 / 0.5)
    assert rows["bert-dp-8"]["gain"] == pytest.approx(0.45 - 0.25)
    assert rows["bert-dp-8"]["gain_low"] == pytest.approx(0.2)  # the folds agree, whatever the pre-trainings do


def test_a_second_pretraining_has_a_base_a_key_and_seeds_of_its_own() -> None:
    models = {model.name: model for model in models_of(TINY)}
    first, second = models["bert-dp-8"], models["bert-dp-8@2"]
    assert second.row == first.name
    assert second.training == first.training
    assert (first.base.name, second.base.name) == ("dp-8-medical", "dp-8-medical@2")
    assert seed_of(first.base.replicate) != seed_of(second.base.replicate)
    assert account_of(first, TINY) == account_of(second, TINY)
    assert "bert-m-public-vocabulary@2" not in models


def test_what_a_trick_changes_is_told_note_by_note() -> None:
    def result(losses: list[float]) -> dict[str, Any]:
        account = {"vocabulary": 0.0, "training": 8.0, "joint": 8.0}
        loss = {"nats": float(np.mean(losses)), "of_texts": losses}
        return {"account": account, "cells": [], "loss": loss, "training_seconds": 1.0}

    base = [4.0, 6.0, 5.0, 7.0]
    changed = [3.9, 5.8, 4.9, 6.8]
    results = {"bert-dp-8": result(base), "trick-low-rate": result(changed), "trick-no-medical": result(changed)}
    rows = {one["model"]: one for one in trick_rows(models_of(TINY), results)}
    found = rows["trick-low-rate"]
    oracle = stats.ttest_rel(changed, base).confidence_interval()
    assert (found["change_low"], found["change_high"]) == pytest.approx((oracle.low, oracle.high))
    assert found["change"] == pytest.approx(-0.15)
    assert rows["bert-dp-8"]["change"] is None
    assert rows["trick-no-medical"]["change"] is None  # of other pieces


# claims and tables ---------------------------------------------------------------------------------------------------


def row(model: str, f1: float, **values: Any) -> dict[str, Any]:
    known = {"epsilon": 8.0, "gain": 0.05, "gain_low": 0.01, "gain_high": 0.09}
    known |= {"notes": 0.02, "notes_low": 0.01, "notes_high": 0.03}
    shares = {"share": 0.7, "share_low": 0.5, "share_high": 0.9}
    return {"task": "t", "model": model, "f1": f1, **known, **shares, **values}


def exposed(dp: bool, bits: float, p_value: float, **values: Any) -> dict[str, Any]:
    shown = {"epsilon": 8.0 if dp else math.inf, "occurrences": 100.0, "probability": 0.1, "pattern": "HS"}
    return {"dp": dp, "bits": bits, "null_bits": 1.0, "p_value": p_value, **shown, **values}


def test_claims_are_judged_by_the_numbers() -> None:
    names = ("bert", "bert-m", "bert-m-general")
    good = judge(
        [
            *(row(name, f1) for name, f1 in zip(names, (0.3, 0.4, 0.38), strict=True)),
            row("bert-dp-8", 0.37),
            row("bert-dp-8-general", 0.36, gain=0.04),
        ],
        [exposed(True, 1.2, 0.4), exposed(False, 9.0, 1e-9)],
    )
    assert len(good) == 9
    assert all(claim.holds for claim in good)
    worst = [
        row("bert", 0.3),
        row("bert-m", 0.4, gain_low=-0.01),
        row("bert-m-general", 0.4),
        row("bert-dp-8", 0.29, gain=-0.01, gain_low=-0.02, notes_low=-0.01, share=-0.1, share_low=None),
        row("bert-dp-8-general", 0.32, gain=0.02),
    ]
    bad = judge(worst, [exposed(True, 5.0, 1e-4), exposed(False, 2.0, 0.1)])
    assert [claim.text for claim in bad] == [claim.text for claim in good]
    assert not any(claim.holds for claim in bad)


@pytest.mark.parametrize("share", [None, 6.83])
def test_no_share_of_no_gain_is_kept(share: float | None) -> None:
    """Nor of next to none, of which BERT-DP has several times as much."""
    rows = [row("bert", 0.3), row("bert-m", 0.3, gain=0.0), row("bert-dp-8", 0.3, share=share, share_low=None)]
    (kept,) = [claim for claim in judge(rows, []) if "gain is kept" in claim.text]
    assert not kept.holds


def test_where_there_is_no_interval_nothing_is_told_from_0() -> None:
    rows = [row("bert", 0.3), row("bert-m", 0.4), row("bert-dp-8", 0.37, gain_low=None)]
    told = {claim.text: claim.holds for claim in judge(rows, []) if "told from 0" in claim.text}
    assert list(told.values()) == [True, False]


def test_exposure_is_judged_for_each_epsilon_and_number_of_occurrences() -> None:
    often = {"occurrences": 2000.0, "probability": 1.0}
    rows = [
        exposed(True, 1.1, 0.4),
        exposed(True, 4.5, 1e-5, **often),
        exposed(
            True, 1.0, 0.6, **often | {"epsilon": 1.0, "occurrences": 2100.0}
        ),  # of other pieces, so of other sequences
        exposed(False, 12.0, 1e-9, **often),
    ]
    found = judge([], rows)
    assert [claim.holds for claim in found] == [True, False, True, True, True, True]
    assert {claim.text for claim in found[:3]} == {"exposure under DP is not told from its null"}
    often_each = ["ε 8.00, 100", "ε 8.00, 2000", "ε 1.00, 2100"]
    assert [claim.panel for claim in found[:3]] == [f"{each} occurrences of a canary" for each in often_each]
    rows[1]["bits"] = 9.5  # no 3 bits below the control
    assert [claim.holds for claim in judge([], rows)][3:] == [False, True, True]


def test_an_unknown_scale() -> None:
    with pytest.raises(UsageError, match="laptop"):
        scale_named(SCALES, "moon")


@pytest.mark.slow
def test_from_corpora_to_the_page(tmp_path: Path, place: Place) -> None:
    """The whole of it, very small: what is done is not done again, and the page says what the tables hold."""
    names = {
        "bert",
        "bert@2",
        "bert-m",
        "bert-dp-8",
        "trick-one-sequence",
        "canaries-dp-1",
        "canaries-control-1",
        "rate-0.001",
    }
    models = [model for model in models_of(TINY) if model.name in names]
    assert len(models) == len(names)
    fewer = dataclasses.replace(HOORY, cells=lambda scale: jobs_of(models, scale))
    page = tmp_path / "page.md"
    page.write_text("# before\n<!-- results -->\nwhat was here\n<!-- end of results -->\nafter\n")
    done = [place.results / f"{name}.json" for name in ("trunk", "base-dp-8-medical")]
    before = [path.stat().st_mtime_ns for path in done]
    said = reproduce(fewer, TINY, place, 1, SilentReporter(), page=page)
    assert said[0] == "8 of 8 models done"
    assert [path.stat().st_mtime_ns for path in done] == before
    with (place.out / "table2.csv").open() as file:
        rows = list(csv.DictReader(file))
    tested = ["majority", "dictionary", "bert", "bert-m", "bert-dp-8"]
    assert [(one["task"], one["model"]) for one in rows] == [(task, name) for task in TINY.tasks for name in tested]
    dictionary = next(one for one in rows if one["model"] == "dictionary")
    assert 0.2 < float(dictionary["f1"]) < 0.4
    text = page.read_text()
    assert text.startswith("# before\n")
    assert text.endswith("after\n")
    assert "what was here" not in text
    assert f"{float(dictionary['f1']):.3f} (" in text
    assert {path.name for path in place.out.glob("*.png")} == {"figure1.png", "figure2.png", "tricks.png"}
    pretrained = {one["model"]: one["pretrainings"].split() for one in rows if one["task"] == "mtsamples"}
    assert {name: len(own) for name, own in pretrained.items() if own} == {"bert": 2, "bert-m": 1, "bert-dp-8": 1}
    assert list(place.runs.glob("*")) == []
    with pytest.raises(UsageError, match="another scale"):
        reproduce(fewer, dataclasses.replace(TINY, seeds=2), place, 1, SilentReporter())

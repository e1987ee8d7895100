"""The experiments of Hoory et al. 2021: what is left out, what each model spends, that they compare, and that the page says what was
measured. The judges of its claims: `tests/reproduce/test_hoory_claims.py`."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.config.run import check_meaning
from tacit.corpus.annotations import AnnotatedFields, read_annotated
from tacit.corpus.overlap import RunIndex
from tacit.entities.cells import splits_of
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
from tacit.reproduce.hoory.cells import (
    DELTA,
    FAMILIES,
    LABELLED,
    SLOTS,
    TESTED,
    UNITS,
    Base,
    DpTraining,
    Model,
    PlainTraining,
    Private,
    row_of,
)
from tacit.reproduce.hoory.corpora import CorpusFiles, left_out, prepare
from tacit.reproduce.hoory.likelihood import train_by_likelihood
from tacit.reproduce.hoory.measure import measure, model_folder, seed_of
from tacit.reproduce.hoory.models import REFERENCE, lexicons_of, models_of
from tacit.reproduce.hoory.paper import HOORY, jobs_of
from tacit.reproduce.hoory.runs import base_run, lexicon_run, model_run, task_of, trunk_run
from tacit.reproduce.hoory.scale import SCALES, Scale, TaskSize
from tacit.reproduce.hoory.tables import trick_rows
from tacit.reproduce.place import Place, scale_named, with_public_key
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS
from tacit.vocabulary.wordpiece import train_wordpiece

PRIVATE = FAMILIES["notes-dp"].base
PUBLIC = FAMILIES["notes-public"].base
GENERAL = FAMILIES["dialogues-general"].base
OF_DIALOGUES = FAMILIES["dialogues-dp"].base

PLAIN = PlainTraining(steps=3, batch=8, learning_rate=1e-3)
DP = DpTraining(steps=4, expected_batch=8, sequences=1, learning_rate=1e-3)
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
    plain={"notes": PLAIN, "dialogues": PLAIN},
    dp={"notes": DP, "dialogues": DP},
    tasks={
        "dialogues-8": TaskSize("dialogues", folds=1, epochs=1, learning_rate=1e-3, batch=128, labelled=8),
        "mtsamples": TaskSize("notes", folds=2, epochs=1, learning_rate=1e-3, batch=128),
        "ncbi-disease": TaskSize("notes", folds=1, epochs=1, learning_rate=1e-3, batch=128, labelled=20),
    },
    replicates=dict.fromkeys(FAMILIES, 2),
    vocabulary_options={"method": "weighted", "max_words": 4},
    canaries_each=1,
    rates_of_canaries=(1.0,),
    curves=1,
    tested=60,
    lexicons=(1.0, 40.0),
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


@pytest.mark.slow
def test_what_is_tested_on_is_not_trained_on(files: CorpusFiles, data_dir: Path) -> None:
    notes, out = texts_of(files.private("notes")), texts_of(files.left_out("notes"))
    assert len(notes) == pytest.approx(UNITS["notes"], rel=0.05)  # the public statement is about right
    assert len(notes) + len(out) == 2357
    tested = [" ".join(document.tokens) for document in read_annotated(data_dir / "mtsamples-ner" / "notes", "bio")]
    assert len(out) >= len(tested)
    medical = texts_of(files.medical)
    assert left_out([*notes, *medical], tested) == set()
    assert not set(medical) & set(texts_of(files.held_out_answers))


def test_an_abstract_that_is_tested_on_is_not_public(files: CorpusFiles, data_dir: Path) -> None:
    """BC5CDR and NCBI-disease are both of PubMed: where they share an abstract, no model sees it."""
    sentences = [stored.words_of(block) for block in stored.diseases(data_dir, "test")]
    abstracts, medical = stored.abstracts(data_dir), set(texts_of(files.medical))
    shared = left_out(abstracts, sentences)  # none shares text with a note
    assert 0 < len(shared) < 0.1 * len(abstracts)
    assert {number for number, text in enumerate(abstracts) if text not in medical} == shared


@pytest.mark.slow
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
    answers = [answer for answer in stored.answers(data_dir) if answer in medical]
    assert len(answers) > 100
    assert {medical[answer] for answer in answers} == {1}


@pytest.fixture(scope="module")
def sgd(data_dir: Path) -> dict[str, list[stored.Dialogue]]:
    return {part: stored.dialogues(data_dir, part) for part in ("train", "dev")}


@pytest.mark.slow
def test_dialogues_are_private_labelled_or_tested(files: CorpusFiles, sgd: dict[str, list[stored.Dialogue]]) -> None:
    """None in two parts, and none of the unseen part is of a service that any other is of."""
    private, tested = texts_of(files.private("dialogues")), texts_of(files.left_out("dialogues"))
    unseen = texts_of(files.unseen)
    every = {dialogue.text: dialogue for part in sgd.values() for dialogue in part}
    assert len(private) == pytest.approx(UNITS["dialogues"], rel=0.05)
    assert len(tested) == TINY.tested < TESTED
    labelled = {" ".join(document.tokens) for document in _documents(files, "train")}
    words = {
        name: {" ".join(re.findall(r"\w+|[^\w\s]", text)) for text in texts}
        for name, texts in _named(private, tested, unseen)
    }
    for one, other in itertools.combinations([*words.values(), labelled], 2):
        assert not one & other
    assert LABELLED + len(private) + TESTED == len(sgd["train"])
    seen = frozenset[str]().union(*(every[text].services for text in [*private, *tested]))
    assert all(not every[text].services & seen for text in unseen)
    assert len(unseen) == TINY.tested


def _named(*parts: list[str]) -> list[tuple[str, list[str]]]:
    return list(zip(("private", "tested", "unseen"), parts, strict=True))


def _documents(files: CorpusFiles, part: str) -> list[Any]:
    return read_annotated(files.task("dialogues-8", part), "jsonl", AnnotatedFields(id_field="id"))


def test_dialogues_keep_the_slots_that_their_corpus_gives(
    files: CorpusFiles, sgd: dict[str, list[stored.Dialogue]]
) -> None:
    """As many entities of each slot as spans there, each with the letters of its span."""
    found: Counter[tuple[str, str]] = Counter()
    for document in _documents(files, "test"):
        for sentence in document.sentences:
            own: list[list[str]] = []
            for token, tag in zip(sentence.tokens, sentence.tags, strict=True):
                if tag.startswith("B-"):
                    own.append([tag[2:], token])
                elif tag.startswith("I-"):
                    assert own[-1][0] == tag[2:]
                    own[-1][1] += token
            found.update((slot, text) for slot, text in own)
    unseen, tested = set(texts_of(files.unseen)), set(texts_of(files.left_out("dialogues")))
    spans = Counter(
        (slot, "".join(text[start:end].split()))
        for part, chosen in (("train", tested), ("dev", unseen))
        for dialogue in sgd[part]
        if dialogue.text in chosen
        for text, spans in dialogue.turns
        for start, end, slot in spans
        if slot in SLOTS
    )
    assert found == spans
    assert sum(spans.values()) > 700
    counted = Counter(slot for dialogue in sgd["train"] for _, own in dialogue.turns for _, _, slot in own)
    assert set(SLOTS) == {slot for slot, _ in counted.most_common(20)}


def test_a_seen_document_comes_before_an_unseen_one(files: CorpusFiles, data_dir: Path, tmp_path: Path) -> None:
    (split,) = splits_of(task_of("dialogues-8", TINY, data_dir, files, tmp_path, tmp_path).tasks["dialogues-8"])
    parts = [document.document_id.split("-")[0] for document in split.test]
    assert parts == ["seen"] * TINY.tested + ["unseen"] * len(texts_of(files.unseen))
    assert len(split.training) == 8


@pytest.mark.parametrize("name", SCALES)
def test_every_model_is_a_run_that_is_allowed(files: CorpusFiles, name: str, tmp_path: Path) -> None:
    scale = SCALES[name]
    models = models_of(scale)
    assert len({model.name for model in models}) == len(models)
    with_power = set() if name == "laptop" else {"figure1", "tricks"}
    assert {model.part for model in models} == {"table2", "figure2", *with_power}
    for base in dict.fromkeys(model.base for model in models):
        check_meaning(trunk_run(base.trunk, scale, files, tmp_path / "run"))
        check_meaning(base_run(base, tmp_path, scale, files, tmp_path / "run"))
    for lexicon in lexicons_of(scale):
        check_meaning(lexicon_run(lexicon, scale, files, tmp_path / "run"))
    for model in models:
        if model.training is not None:
            noises = (1.0,) * (len(model.training.schedule) if isinstance(model.training, DpTraining) else 0)
            config = model_run(model, noises, tmp_path, scale, files, tmp_path / "run")
            check_meaning(config)
            steps = sum(phase.steps for phase in config.phases)
            assert steps == model.training.steps


def test_options_are_chosen_on_public_text(files: CorpusFiles, tmp_path: Path) -> None:
    """No run for the choice of an option names the private text, and its base has not seen what it is tried on."""
    tried = [model for model in models_of(TINY) if model.part == "tricks"]
    assert len(tried) > 5
    for model in tried:
        noises = (1.0,) * len(model.training.schedule) if isinstance(model.training, DpTraining) else ()
        config = model_run(model, noises, tmp_path, TINY, files, tmp_path / "run")
        private = [str(files.private(name)) for name in UNITS]
        assert not any(path in config.model_dump_json() for path in private)
        begun_with = (
            trunk_run(model.base.trunk, TINY, files, tmp_path / "run"),
            base_run(model.base, tmp_path, TINY, files, tmp_path / "run"),
        )
        for public in begun_with:
            assert [source.path for source in public.public] == [str(files.general)]
            assert {phase.stream for phase in public.phases} == {"public"}
    held_out = set(texts_of(files.held_out_stand_in))
    assert not set(texts_of(files.general)) & held_out
    for name, units in UNITS.items():
        assert len(texts_of(files.stand_in(name))) == units
        assert not set(texts_of(files.stand_in(name))) & held_out


def test_a_family_has_one_beginning() -> None:
    """Its masked losses compare: the same pieces, the same public text."""
    models = [model for model in models_of(TINY) if model.part == "table2"]
    for name in FAMILIES:
        own = [model for model in models if row_of(model.name).startswith(f"{name}-")]
        assert {dataclasses.replace(model.base, replicate=1) for model in own} == {FAMILIES[name].base}
        assert {model.replicate for model in own} == {1, 2}
        assert {model.tasks for model in own} == {
            tuple(task for task, size in TINY.tasks.items() if size.private == FAMILIES[name].private)
        }


def test_a_task_is_the_documents(files: CorpusFiles, data_dir: Path, tmp_path: Path) -> None:
    """Blocks of nine sentences, since the file does not say where an abstract ends."""
    config = task_of("ncbi-disease", TINY, data_dir, files, tmp_path, tmp_path)
    source = config.tasks["ncbi-disease"].source("train")
    documents = read_annotated(source.resolved_path, source.format)
    assert len(documents) == 20
    assert {len(document.sentences) for document in documents} <= {8, 9}  # two that cut an entity are one sentence
    tested = read_annotated(files.task("ncbi-disease", "test"), "bio")
    tokens = [token for document in tested for token in document.tokens]
    assert tokens == " ".join(stored.words_of(block) for block in stored.diseases(data_dir, "test")).split(" ")


# pieces --------------------------------------------------------------------------------------------------------------


def _log_likelihood(words: dict[tuple[str, ...], int]) -> float:
    """Of words that are cut into these pieces, under the model of independent pieces that fits them best."""
    counts = Counter[str]()
    for pieces, count in words.items():
        for piece in pieces:
            counts[piece] += count
    total = sum(counts.values())
    return sum(count * math.log(count / total) for count in counts.values())


def test_a_merge_by_likelihood_is_the_one_that_makes_the_words_likeliest() -> None:
    """Each merge of the first dozen, against all pairs tried one by one."""
    draw = np.random.default_rng(4)
    words = {
        "".join(draw.choice(list("abcd"), size=int(draw.integers(2, 6)))): int(draw.integers(1, 9)) for _ in range(60)
    }
    base = len(SPECIAL_TOKENS) + 8
    for merges in range(12):
        made = train_by_likelihood(words, base + merges + 1, "abcd")
        cut = _cut(words, made[base:-1])
        before = _log_likelihood(cut)
        gains = {pair: _log_likelihood(_merged(cut, pair)) - before for pair in _pairs(cut)}
        spelled = [pair for pair in gains if pair[0] + pair[1].removeprefix("##") == made[-1]]
        assert max(gains[pair] for pair in spelled) == pytest.approx(max(gains.values()))
    assert train_by_likelihood(words, base + 12, "abcd") != train_wordpiece(words, base + 12, "abcd")


def _pairs(cut: dict[tuple[str, ...], int]) -> set[tuple[str, str]]:
    return {pair for pieces in cut for pair in itertools.pairwise(pieces)}


def _merged(cut: dict[tuple[str, ...], int], pair: tuple[str, str]) -> dict[tuple[str, ...], int]:
    found: Counter[tuple[str, ...]] = Counter()
    for pieces, count in cut.items():
        joined: list[str] = []
        for piece in pieces:
            if joined and (joined[-1], piece) == pair:
                joined[-1:] = [pair[0] + pair[1].removeprefix("##") + "*"]  # "*": a piece of this merge alone
            else:
                joined.append(piece)
        found[tuple(piece.removesuffix("*") for piece in joined)] += count
    return found


def _cut(words: dict[str, int], merges: list[str]) -> dict[tuple[str, ...], int]:
    """Words as the merges so far cut them; a piece that two pairs spell stands for the one that was merged: the likelier one."""
    cut = {(word[0], *(f"##{letter}" for letter in word[1:])): count for word, count in words.items()}
    for piece in merges:
        pairs = [pair for pair in _pairs(cut) if pair[0] + pair[1].removeprefix("##") == piece]
        cut = _merged(cut, max(pairs, key=lambda pair, own=cut: _log_likelihood(_merged(own, pair))))
    return cut


# prices --------------------------------------------------------------------------------------------------------------


def _one(base: Base, training: DpTraining = DP, private: Private = "notes") -> Model:
    return Model("one", "table2", "", private, base, training)


@pytest.fixture(scope="module")
def place(files: CorpusFiles, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An eighth of each text and test, with a trunk and a base as the driver stores them: trained once for the tests below."""
    found = Place(data_dir, tmp_path_factory.mktemp("hoory") / "out")
    shutil.copytree(files.folder, found.corpora)
    for path in found.corpora.glob("*.jsonl"):
        if "dialogues-8" not in path.name:
            path.write_text("".join(path.read_text().splitlines(keepends=True)[::8]))
    _fewer(CorpusFiles(found.corpora).task("dialogues-8", "test"))
    tests = files.task("ncbi-disease", "test").read_text().split("-DOCSTART-")
    CorpusFiles(found.corpora).task("ncbi-disease", "test").write_text("-DOCSTART-".join(["", *tests[1::8]]))
    found.results.mkdir()
    for job in jobs_of([_one(PRIVATE)], TINY)[:2]:
        write_json(found.results / f"{job.name}.json", measure(job.cell, TINY, found))
    return found


def _fewer(path: Path) -> None:
    """Every twentieth document."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if int(json.loads(line)["id"].split("-")[1]) % 20 == 0))


@pytest.fixture(scope="module")
def trunk(place: Place) -> Path:
    return model_folder(place, PRIVATE.trunk)


@pytest.mark.slow
def test_all_bases_of_a_replicate_go_on_from_one_trunk(place: Place, trunk: Path, tmp_path: Path) -> None:
    """Of general text alone; what differs is the vocabulary, and the text that follows."""
    files = CorpusFiles(place.corpora)
    assert {family.base.trunk.name for family in FAMILIES.values()} == {"trunk"}
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


@pytest.mark.parametrize("base", [PRIVATE, OF_DIALOGUES], ids=lambda base: base.name)
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
    model = _one(PRIVATE)
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


@pytest.mark.slow
def test_prices_against_the_accountant() -> None:
    spends = vocabulary_spends(PRIVATE, TINY)
    assert spends
    assert vocabulary_spends(PUBLIC, TINY) == ()
    account = account_of(_one(PRIVATE), TINY)
    (noise,) = account.noise_multipliers
    own = Spend(PoissonGaussian(8 / UNITS["notes"], noise), 4)
    assert account.joint == epsilon([*spends, own], DELTA, "add-or-remove") <= 8.0
    assert account.joint > max(account.vocabulary, account.training)  # the vocabulary is paid for too
    less = Spend(PoissonGaussian(8 / UNITS["notes"], 0.97 * noise), 4)
    assert epsilon([*spends, less], DELTA, "add-or-remove") > 8.0
    of_dialogues = account_of(_one(OF_DIALOGUES, private="dialogues"), TINY)
    (noise,) = of_dialogues.noise_multipliers
    spends = vocabulary_spends(OF_DIALOGUES, TINY)
    own = Spend(PoissonGaussian(8 / UNITS["dialogues"], noise), 4)
    assert of_dialogues.joint == epsilon([*spends, own], DELTA, "add-or-remove") <= 8.0


@pytest.mark.slow
def test_a_schedule_meets_the_same_budget_and_a_factor_is_of_the_reference() -> None:
    def priced(training: DpTraining) -> Account:
        return account_of(_one(PUBLIC, training), TINY)

    constant = priced(DP)
    falling = priced(dataclasses.replace(DP, schedule=(1.4, 0.7)))
    first, second = falling.noise_multipliers
    assert first == pytest.approx(2 * second)
    assert 7.9 < falling.joint <= 8.0
    assert second < constant.noise_multipliers[0] < first
    double = priced(dataclasses.replace(DP, epsilon=None, noise_factor=2.0, steps=2))
    assert double.noise_multipliers == (2 * constant.noise_multipliers[0],)
    assert double.joint < constant.joint


def test_text_without_noise_has_no_epsilon() -> None:
    names = ("notes-public-bert", "notes-public-bert-m", "dialogues-own-bert-m")
    found = {model.name: account_of(model, TINY).joint for model in models_of(TINY) if model.name in names}
    assert found == dict(zip(names, (0.0, math.inf, math.inf), strict=True))


def test_another_training_of_a_row_has_a_base_a_key_and_seeds_of_its_own() -> None:
    models = {model.name: model for model in models_of(TINY)}
    first, second = models["notes-dp-dp-8"], models["notes-dp-dp-8@2"]
    assert row_of(second.name) == first.name
    assert second.training == first.training
    assert (first.base.name, second.base.name) == ("dp-notes-8-medical", "dp-notes-8-medical@2")
    assert seed_of(first.replicate) != seed_of(second.replicate)
    assert account_of(first, TINY) == account_of(second, TINY)
    assert "canaries-dp-1@2" not in models  # where figure 1 is not trained either
    assert {"canaries-dp-1@3", "figure1-noise-2@3"} <= {model.name for model in models_of(SCALES["night"])}


def test_what_a_trick_changes_is_told_dialogue_by_dialogue() -> None:
    def result(losses: list[float]) -> dict[str, Any]:
        return {"loss": {"seen": {"of_texts": losses}}, "training_seconds": 1.0}

    base, changed = [4.0, 6.0, 5.0, 7.0], [3.9, 5.8, 4.9, 6.8]
    rows = {
        one["model"]: one
        for one in trick_rows(
            models_of(TINY), {REFERENCE["dialogues"]: result(base), "trick-low-rate": result(changed)}
        )
    }
    found = rows["trick-low-rate"]
    oracle = stats.ttest_rel(changed, base).confidence_interval()
    assert (found["change_low"], found["change_high"]) == pytest.approx((oracle.low, oracle.high))
    assert found["change"] == pytest.approx(-0.15)
    assert rows[REFERENCE["dialogues"]]["change"] is None


def test_an_unknown_scale() -> None:
    with pytest.raises(UsageError, match="laptop"):
        scale_named(SCALES, "moon")


@pytest.mark.slow
def test_from_corpora_to_the_page(tmp_path: Path, place: Place) -> None:
    """The whole of it, very small: what is done is not done again, and the page says what the tables hold."""
    names = {
        "dialogues-general-bert",
        "dialogues-general-bert@2",
        "dialogues-general-bert-m",
        "dialogues-general-dp-8",
        "notes-public-bert-m",
        "notes-dp-dp-8",
        "figure1-noise-2",
        REFERENCE["dialogues"],
        "trick-lora",
        "canaries-dp-1",
        "canaries-control-1",
    }
    models = [model for model in models_of(TINY) if model.name in names]
    assert len(models) == len(names)
    fewer = dataclasses.replace(HOORY, cells=lambda scale: jobs_of(models, scale))
    page = tmp_path / "page.md"
    page.write_text("# before\n<!-- results -->\nwhat was here\n<!-- end of results -->\nafter\n")
    done = [place.results / f"{name}.json" for name in ("trunk", "base-dp-notes-8-medical")]
    before = [path.stat().st_mtime_ns for path in done]
    said = reproduce(fewer, TINY, place, 1, SilentReporter(), page=page)
    assert said[0] == "11 of 11 models done"
    assert [path.stat().st_mtime_ns for path in done] == before
    with (place.out / "table2.csv").open() as file:
        rows = list(csv.DictReader(file))
    of_dialogues = [f"dialogues-general-{arm}" for arm in ("bert", "bert-m", "dp-8")]
    trivial = ["majority", "dictionary"]
    assert [(one["task"], one["part"], one["model"]) for one in rows] == [
        *(("dialogues-8", part, name) for part in ("seen", "unseen") for name in [*trivial, *of_dialogues]),
        *(
            (task, "seen", name)
            for task in ("mtsamples", "ncbi-disease")
            for name in [*trivial, "notes-public-bert-m", "notes-dp-dp-8"]
        ),
    ]
    assert [one["trainings"] for one in rows if one["model"] == "dialogues-general-bert"] == ["2", "2"]
    dictionary = next(one for one in rows if (one["task"], one["model"]) == ("mtsamples", "dictionary"))
    assert 0.2 < float(dictionary["f1"]) < 0.4
    text = page.read_text()
    assert text.startswith("# before\n")
    assert text.endswith("after\n")
    assert "what was here" not in text
    assert f"{float(dictionary['f1']):.3f} |" in text
    assert {path.name for path in place.out.glob("*.png")} == {"figure1.png", "figure2.png", "tricks.png"}
    with (place.out / "lexicons.csv").open() as file:
        sizes = {(one["private"], float(one["budget"])): int(one["words"]) for one in csv.DictReader(file)}
    assert sizes["dialogues", 40.0] > sizes["dialogues", 1.0]
    assert list(place.runs.glob("*")) == []
    with pytest.raises(UsageError, match="another scale"):
        reproduce(fewer, dataclasses.replace(TINY, seeds=2), place, 1, SilentReporter())

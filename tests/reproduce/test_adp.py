"""The experiments of Wu et al. 2022: what each arm is, that they compare, and that the write-up says what was measured."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tacit.config.run import check_meaning
from tacit.corpus.records import Record
from tacit.corpus.secrets import SecretFormat
from tacit.errors import DataError, UsageError
from tacit.files import read_json
from tacit.planning import solve
from tacit.privacy.accounting.accountant import epsilon_of_rho, joint_epsilon
from tacit.progress import SilentReporter
from tacit.reproduce.adp.corpora import TEXTS, CorpusFiles, kind_of, prepare, spaced
from tacit.reproduce.adp.measure import kinds_of_lines
from tacit.reproduce.adp.paper import ADP, jobs_of
from tacit.reproduce.adp.public import PublicModel
from tacit.reproduce.adp.runs import config_of, trial_config, worst_case
from tacit.reproduce.adp.scale import (
    ARMS,
    ARMS_WITH_NOISE,
    CERTIFIED,
    DELTA,
    SCALES,
    Cell,
    PrivateText,
    Scale,
    cells_of,
    trials_of,
)
from tacit.reproduce.adp.tables import PAPER, model_rows
from tacit.reproduce.driver import reproduce
from tacit.reproduce.place import Place, scale_named
from tacit.scoring.rho import PrivacyProbability

TINY = Scale(
    name="tiny",
    lines=200,
    chats=12,
    units=300,
    test_articles=3,
    test_chats=5,
    novels=1,
    answers=300,
    pieces=300,
    model={"kind": "gpt2", "layers": 1, "width": 16, "heads": 2, "length": 16},
    public_steps=4,
    batch=16,
    public_rate=3e-3,
    plain_steps=4,
    plain_rate=3e-3,
    steps=4,
    expected_batch=20,
    clip_norm=0.5,
    rates=(1e-3, 3e-3),
    tried_rates=(1e-3, 3e-3),
    threshold=0.5,
    stratum_share=0.5,
    unlikely_steps=0.25,
    unlikely_rate=0.1,
    protected=0.25,
    frequent=20,
    noise=(1.0, 5.0),
    insertions=(2, 5),
    canary=SecretFormat(prefix="My ID is ", digits=3),
    secret=320,
    seeds=2,
)
ANYWHERE = PublicModel(Path("/nowhere/run"), PrivacyProbability(5.0, 11.0))


def values_of(cell: Cell, scale: Scale) -> Any:
    return config_of(cell, scale, CorpusFiles(Path("/nowhere")), ANYWHERE, ANYWHERE, Path("/nowhere/out"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> CorpusFiles:
    return prepare(data_dir, TINY, [cell.text for cell in cells_of(TINY)], tmp_path_factory.mktemp("adp"))


def texts_of(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_the_corpora(files: CorpusFiles, data_dir: Path, tmp_path: Path) -> None:
    canary = TINY.canary_text(0)
    assert canary == "My ID is 320"
    assert TINY.canary_text(1) != canary
    chats = [text for text in texts_of(files.train(PrivateText(2, False, 0))) if text != canary][TINY.lines :]
    for copies in TINY.insertions:
        for seed in range(TINY.seeds):
            train = texts_of(files.train(PrivateText(copies, False, seed)))
            assert len(train) == TINY.lines + len(chats) + copies
            assert train.count(TINY.canary_text(seed)) == copies
    test, constants, articles = texts_of(files.test("wikipedia")), texts_of(files.constants), texts_of(files.articles)
    assert all(text.strip() for text in [*test, *constants, *articles])
    private = texts_of(files.train(PrivateText(2, False, 0)))
    for one, other in itertools.combinations([test, constants, articles, private], 2):
        assert not {text for text in one if len(text) > 40} & set(other)
    assert not any("<unk>" in text or " , " in text for text in [*test, *constants, *articles])
    assert texts_of(files.canaries) == [canary] * TINY.frequent
    with pytest.raises(DataError, match="wikitext-2"):
        prepare(tmp_path, TINY, [], tmp_path / "out")


def test_a_test_document_is_an_article_or_a_chat(files: CorpusFiles) -> None:
    """Articles begin behind their titles, and paragraphs of one are one document."""
    test = files.test_documents("wikipedia")
    assert sorted(set(test.document_U)) == list(range(TINY.test_articles))
    assert test.document_U == sorted(test.document_U)
    assert test.units[0].texts[0].startswith("Robert Boulter is an English film, television and theatre actor. ")
    starts = [test.units[test.document_U.index(document)].texts[0] for document in (1, 2)]
    assert [start.split(" ")[0] for start in starts] == ["Du", '"Kiss']
    assert not any(unit.texts[0].startswith("= ") for unit in test.units)
    assert len({*files.test_documents("chats").document_U}) == TINY.test_chats


def test_a_learning_rate_is_chosen_on_public_text(files: CorpusFiles) -> None:
    """Its run names no private text, and shares none with it, with the public model's, or with what it is measured on."""
    stand_in = texts_of(files.stand_in)
    assert len(stand_in) == TINY.units
    held_out = [unit.texts[0] for text in TEXTS for unit in files.trial_documents(text).units]
    private = texts_of(files.train(PrivateText(2, False, 0)))
    tests = [text for name in TEXTS for text in texts_of(files.test(name))]
    for one, other in itertools.combinations([stand_in, held_out, private, tests, texts_of(files.articles)], 2):
        assert not {text for text in one if len(text) > 40} & set(other)
    for trial in trials_of(TINY):
        config = trial_config(trial, TINY, files, ANYWHERE, Path("/nowhere/out"))
        check_meaning(config)
        assert config.private.path == str(files.stand_in)
        assert config.phases[0].learning_rate == trial.rate


@pytest.mark.parametrize("name", SCALES)
def test_a_chosen_rate_is_one_that_was_tried(name: str) -> None:
    scale = SCALES[name]
    assert len(scale.rates) == len(scale.noise)
    assert set(scale.rates) <= set(scale.tried_rates)
    for noise, rate in zip(scale.noise, scale.rates, strict=True):
        config = values_of(Cell("dp-sgd", noise, scale.insertions[0]), scale)
        assert [phase.learning_rate for phase in config.phases] == [rate]
        strata = values_of(Cell("strata", noise, scale.insertions[0]), scale)
        assert [phase.learning_rate for phase in strata.phases] == [rate, pytest.approx(rate * scale.unlikely_rate)]


def test_wikitext_has_its_sixty_articles(data_dir: Path, tmp_path: Path) -> None:
    """Known wrong: a title by its form alone, which two lines of formulas in the test part have, too."""
    whole = dataclasses.replace(TINY, test_articles=1000)
    assert len({*prepare(data_dir, whole, [], tmp_path).test_documents("wikipedia").document_U}) == 60


def test_a_deduplicated_text_has_each_line_once(files: CorpusFiles) -> None:
    """So all copies of the canary are one record, and one record more or less changes at most one."""
    once, all_copies = (texts_of(files.train(PrivateText(5, distinct, 1))) for distinct in (True, False))
    assert once == list(dict.fromkeys(all_copies))
    assert once.count(TINY.canary_text(1)) == 1


def test_the_spacing_is_that_of_ordinary_text() -> None:
    line = "The ( first ) 1 @,@ 234 @-@ foot \" Crazy Horse \" didn 't , it 's said , sink : £ 5 @.@ 50 lost !"
    assert spaced(line) == "The (first) 1,234-foot \"Crazy Horse\" didn't, it's said, sink: £5.50 lost!"


def test_lines_have_kinds() -> None:
    lines = {
        "train-0-1": "Text of 2000.",
        "chat-3-1": "My order is 12.",
        "chat-3-2": "Thanks",
        "canary-0": "My ID is 320",
    }
    assert [kind_of(Record(name, None, text)) for name, text in lines.items()] == [
        "paragraph",
        "customer's line with a number",
        "customer's line without one",
        "canary",
    ]


def test_a_line_has_the_rho_of_its_own_score(tmp_path: Path) -> None:
    """Known wrong: pairing lines in the order of their file with scores, which have the order of the units' ids."""
    rows = {
        "train-0-0": ("A paragraph.", 0.1),
        "train-0-1": ("Another one.", 0.2),
        "chat-1-0": ("Order 12", 0.8),
        "canary-0": ("9", 1.0),
    }
    text, scores = tmp_path / "text.jsonl", tmp_path / "scores.jsonl"
    text.write_text("".join(json.dumps({"id": name, "text": words}) + "\n" for name, (words, _) in rows.items()))
    in_order = [{"id": f"{name}#0", "log_perplexity": 1.0, "rho": rho} for name, (_, rho) in sorted(rows.items())]
    scores.write_text("".join(json.dumps(row) + "\n" for row in in_order))
    found = kinds_of_lines(text, scores, 0.7)
    assert {kind: (own["lines"], own["private_like"], own["mean_rho"]) for kind, own in found.items()} == {
        "canary": ([1], [1], 1.0),
        "customer's line with a number": ([1], [1], 0.8),
        "paragraph": ([2], [0], pytest.approx(0.15)),
    }
    scores.write_text("".join(json.dumps(row) + "\n" for row in [in_order[1], in_order[0], *in_order[2:]]))
    with pytest.raises(ValueError, match="are not those of"):
        kinds_of_lines(text, scores, 0.7)


@pytest.mark.parametrize("name", SCALES)
def test_every_cell_is_a_run_that_is_allowed(name: str) -> None:
    scale = SCALES[name]
    cells = cells_of(scale)
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.arm for cell in cells} == set(ARMS)
    assert {cell.noise for cell in cells if cell.arm != "plain"} == set(scale.noise)
    for cell in cells:
        config = values_of(cell, scale)
        check_meaning(config)
        assert config.compute.device == {"laptop": "cpu", "night": "cpu", "full": "cuda"}[name]


def test_the_paper_row_is_that_of_the_canary() -> None:
    assert SCALES["laptop"].canary_text(0) == "My ID is 955320"
    assert len({SCALES["laptop"].secret_of(seed) for seed in range(5)}) == 5
    assert all(math.exp(row["loss"]) != pytest.approx(row["perplexity"], rel=0.1) for row in PAPER)


@pytest.mark.parametrize("noise", [1.0, 5.0])
def test_the_arms_have_the_worst_case_of_dp_sgd(noise: float) -> None:
    scale = TINY  # its noise is solved once: the last test has these runs, too
    worst = worst_case(scale, noise)
    for arm in ("dp-sgd", *CERTIFIED):
        # No tokenizer is read for this: the shape is not asked for.
        spends = solve(_own_tokenizer(values_of(Cell(arm, noise, 2), scale))).spends()
        assert joint_epsilon(spends, DELTA) == pytest.approx(worst, rel=0.02)
        assert joint_epsilon(spends, DELTA) <= 1.001 * worst
        if arm in CERTIFIED:
            low, high = epsilon_of_rho(spends, DELTA, "add-or-remove")
            assert low.epsilon == pytest.approx(worst, rel=0.02)
            assert high.epsilon == pytest.approx(scale.protected * worst, rel=0.02)
    protected = solve(_own_tokenizer(values_of(Cell("dp-sgd-protected", noise, 2), scale))).spends()
    assert joint_epsilon(protected, DELTA) == pytest.approx(scale.protected * worst, rel=0.02)
    assert math.isinf(joint_epsilon(solve(_own_tokenizer(values_of(Cell("literal", noise, 2), scale))).spends(), DELTA))


def _own_tokenizer(config: Any) -> Any:
    values = config.model_dump()
    values["vocabulary"] = {"method": "public", "size": 300}
    values["model"] |= {"folder": None}
    return type(config).model_validate(values)


MEASURES = {"loss": 1.0, "perplexity": math.e, "perplexity_per_word": 9.0, "bits_per_byte": 1.0}


def test_an_infinite_epsilon_is_a_word_in_a_result() -> None:
    result = {
        "cell": dataclasses.asdict(Cell("literal", 1.0, 2)),
        "epsilon": "infinity",
        "epsilon_of_rho": [],
        "test": {"wikipedia": MEASURES, "chats": MEASURES},
        "exposure": {"bits": 1.0},
        "seconds": 1.0,
    }
    [found] = model_rows([result])
    assert found["epsilon"] == found["epsilon_private_like"] == math.inf


@pytest.mark.slow
def test_from_corpora_to_the_page(tmp_path: Path, data_dir: Path) -> None:
    """The whole of it, very small: the page says what the tables hold."""
    cells = [
        Cell("plain", 0.0, 2),
        *(Cell(arm, 1.0, 2) for arm in ARMS_WITH_NOISE),
        Cell("plain", 0.0, 5),
        Cell("strata", 1.0, 5, frequent=True),
        Cell("clip-weights", 1.0, 5, seed=1, deduplicated=True),
    ]
    fewer = dataclasses.replace(ADP, cells=lambda scale: jobs_of(cells, trials_of(scale)[1:2]))
    page = tmp_path / "page.md"
    page.write_text("# before\n<!-- results -->\nwhat was here\n<!-- end of results -->\nafter\n")
    place = Place(data_dir, tmp_path / "out")
    corpora = prepare(data_dir, TINY, [cell.text for cell in cells], place.corpora)
    for public in (corpora.constants, corpora.articles, *map(corpora.held_out_stand_in, TEXTS)):
        lines = public.read_text().splitlines(keepends=True)
        public.write_text("".join(lines[:150]))  # both public models read or score them
    said = reproduce(fewer, TINY, place, 1, SilentReporter(), page=page)
    assert said[0] == "9 of 9 models done"
    with (place.out / "models.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [found["arm"] for found in rows] == [cell.arm for cell in cells]
    for found in rows:
        assert float(found["perplexity"]) == pytest.approx(math.exp(float(found["loss"])), rel=1e-4)
        assert math.isinf(float(found["epsilon"])) == (found["arm"] in ("plain", "literal"))
    with (place.out / "public.csv").open() as file:
        counted = {found["model"]: float(found["perplexity"]) for found in csv.DictReader(file)}
    assert counted["uniform"] == pytest.approx(300)
    assert counted["unigram"] < counted["uniform"]
    text = page.read_text()
    assert text.startswith("# before\n")
    assert text.endswith("after\n")
    assert "what was here" not in text
    result = read_json(place.results / f"{cells[1].name}.json")["test"]["wikipedia"]
    assert f"| {result['perplexity']:.2f} |" in text
    assert float(rows[1]["perplexity"]) == pytest.approx(result["perplexity"], rel=1e-5)
    assert len(result["document_nats"]) == TINY.test_articles
    assert sum(result["document_nats"]) / sum(result["document_tokens"]) == pytest.approx(result["loss"], rel=1e-12)
    with (place.out / "rho.csv").open() as file:
        kinds = {found["kind"]: int(found["lines"]) for found in csv.DictReader(file)}
    assert kinds["canary"] == 2
    assert kinds["paragraph"] == TINY.lines
    with (place.out / "rates.csv").open() as file:
        (rate,) = csv.DictReader(file)
    trial = read_json(place.results / f"{trials_of(TINY)[1].name}.json")
    assert float(rate["rate"]) == 3e-3
    assert float(rate["change_chats"]) == pytest.approx(trial["loss"]["chats"] - trial["before"]["chats"], rel=1e-4)
    assert trial["before"] != trial["loss"]
    assert {path.name for path in place.out.glob("*.png")} == {"exposure.png", "utility.png"}
    assert list(place.runs.glob("*")) == []
    with pytest.raises(UsageError, match="another scale"):
        reproduce(fewer, dataclasses.replace(TINY, steps=5), place, 1, SilentReporter())


def test_an_unknown_scale() -> None:
    with pytest.raises(UsageError, match="laptop"):
        scale_named(SCALES, "moon")

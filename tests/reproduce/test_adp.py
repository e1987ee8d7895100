"""The experiments of Wu et al. 2022: what each arm is, that they compare, and that the write-up says what was measured."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tacit.config.run import check_meaning
from tacit.corpus.secrets import SecretFormat
from tacit.errors import DataError, UsageError
from tacit.planning import solve
from tacit.privacy.accounting.accountant import epsilon_of_rho, joint_epsilon
from tacit.progress import SilentReporter
from tacit.reproduce.adp.claims import judge
from tacit.reproduce.adp.corpora import CorpusFiles, prepare
from tacit.reproduce.adp.paper import ADP, jobs_of
from tacit.reproduce.adp.public import PublicModel
from tacit.reproduce.adp.runs import config_of, worst_case
from tacit.reproduce.adp.scale import ARMS, CERTIFIED, DELTA, SCALES, Cell, Scale, cells_of
from tacit.reproduce.adp.tables import PAPER, model_rows
from tacit.reproduce.driver import reproduce
from tacit.reproduce.place import Place, scale_named
from tacit.scoring.rho import PrivacyProbability

TINY = Scale(
    name="tiny",
    lines=200,
    units=200,
    test_lines=30,
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
    rate=1e-3,
    threshold=0.5,
    stratum_share=0.5,
    unlikely_steps=0.25,
    unlikely_rate=1e-4,
    protected=0.25,
    frequent=20,
    noise=(1.0, 5.0),
    insertions=(2, 5),
    canary=SecretFormat(prefix="My ID is ", digits=3),
    secret=320,
)
ANYWHERE = PublicModel(Path("/nowhere/run"), PrivacyProbability(5.0, 11.0))


def values_of(cell: Cell, scale: Scale) -> Any:
    return config_of(cell, scale, CorpusFiles(Path("/nowhere")), ANYWHERE, ANYWHERE, Path("/nowhere/out"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> CorpusFiles:
    return prepare(data_dir, TINY, tmp_path_factory.mktemp("adp"))


def texts_of(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def test_the_corpora(files: CorpusFiles, data_dir: Path, tmp_path: Path) -> None:
    canary = TINY.canary_text
    assert canary == "My ID is 320"
    for copies in TINY.insertions:
        train = texts_of(files.train(copies))
        assert len(train) == TINY.lines + copies
        assert train.count(canary) == copies
    test, constants = texts_of(files.test), texts_of(files.constants)
    assert len(test) == TINY.test_lines
    assert all(text.strip() for text in [*test, *constants])
    assert not {text for text in test if len(text) > 40} & set(train + constants)
    assert texts_of(files.canaries) == [canary] * TINY.frequent
    with pytest.raises(DataError, match="wikitext-2"):
        prepare(tmp_path, TINY, tmp_path / "out")


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
        assert config.compute.device == {"laptop": "cpu", "full": "cuda"}[name]


def test_the_paper_row_is_that_of_the_canary() -> None:
    assert SCALES["laptop"].canary_text == "My ID is 955320"
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


def row(arm: str, noise: float, perplexity: float, copies: int = 2, bits: float = 1.0) -> dict[str, Any]:
    return {
        "arm": arm,
        "noise": noise,
        "copies": copies,
        "frequent": False,
        "seed": 0,
        "perplexity": perplexity,
        "exposure_bits": bits,
    }


def public(rho: float, frequent: float) -> list[dict[str, Any]]:
    return [
        {"model": "public", "perplexity": 400.0, "canary_rho": rho},
        {"model": "frequent", "perplexity": 400.0, "canary_rho": frequent},
        {"model": "unigram", "perplexity": 250.0},
    ]


def test_claims_are_judged_by_the_numbers() -> None:
    scale = dataclasses.replace(TINY, noise=(1.0,))

    def rows(strata: float, weights: float, most: float) -> list[dict[str, Any]]:
        return [
            row("plain", 0.0, 50.0),
            row("dp-sgd", 1.0, 100.0),
            row("dp-sgd-protected", 1.0, 150.0),
            row("literal", 1.0, most),
            row("strata", 1.0, strata),
            row("clip-weights", 1.0, weights),
            row("plain", 0.0, 50.0, copies=5, bits=9.0),
            row("strata", 1.0, strata, copies=5, bits=strata / 20),
            row("clip-weights", 1.0, weights, copies=5, bits=2.0),
        ]

    good = judge(rows(110.0, 90.0, 80.0), public(0.9, 0.1), scale)
    assert len(good) == 7
    assert all(claim.holds for claim in good)
    bad = judge(rows(210.0, 190.0, 300.0), public(0.4, 0.4), scale)
    assert len(bad) == 7
    assert not any(claim.holds for claim in bad)


def test_the_worst_model_is_held_against_counting_words() -> None:
    scale = dataclasses.replace(TINY, noise=(1.0,))
    claims = judge([row("plain", 0.0, 50.0), row("dp-sgd", 1.0, 250.5)], public(0.9, 0.1), scale)
    [claim] = [claim for claim in claims if "counting words" in claim.text]
    assert not claim.holds


def test_an_infinite_epsilon_is_a_word_in_a_result() -> None:
    result = {
        "cell": dataclasses.asdict(Cell("literal", 1.0, 2)),
        "epsilon": "infinity",
        "epsilon_of_rho": [],
        "test": {"loss": 1.0, "perplexity": math.e},
        "exposure": {"bits": 1.0},
        "seconds": 1.0,
    }
    [found] = model_rows([result])
    assert found["epsilon"] == found["epsilon_private_like"] == math.inf


@pytest.mark.slow
def test_from_corpora_to_the_page(tmp_path: Path, data_dir: Path) -> None:
    """The whole of it, very small: the page says what the tables hold."""
    cells = [
        *(Cell(arm, 0.0 if arm == "plain" else 1.0, 2) for arm in ARMS),
        Cell("plain", 0.0, 5),
        Cell("strata", 1.0, 5, frequent=True),
    ]
    fewer = dataclasses.replace(ADP, cells=lambda scale: jobs_of(cells))
    page = tmp_path / "page.md"
    page.write_text("# before\n<!-- results -->\nwhat was here\n<!-- end of results -->\nafter\n")
    place = Place(data_dir, tmp_path / "out")
    corpora = prepare(data_dir, TINY, place.corpora)
    lines = corpora.constants.read_text().splitlines(keepends=True)
    corpora.constants.write_text("".join(lines[:200]))  # both public models score them
    said = reproduce(fewer, TINY, place, 1, SilentReporter(), page=page)
    assert said[0] == "8 of 8 models done"
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
    assert f"| {float(rows[1]['perplexity']):.2f} |" in text
    assert {path.name for path in place.out.glob("*.png")} == {"exposure.png", "utility.png"}
    assert list(place.runs.glob("*")) == []
    with pytest.raises(UsageError, match="another scale"):
        reproduce(fewer, dataclasses.replace(TINY, steps=5), place, 1, SilentReporter())


def test_an_unknown_scale() -> None:
    with pytest.raises(UsageError, match="laptop"):
        scale_named(SCALES, "moon")

"""The experiments of Zhao et al. 2022: what each arm is, that they compare, and that the write-up says what was measured."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tacit.audit.samples import MembershipSamples
from tacit.config import PlainPhase
from tacit.config.run import check_meaning
from tacit.corpus.secrets import SecretFormat
from tacit.errors import UsageError
from tacit.pipeline.records import secret_form, secrets_of
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.progress import SilentReporter
from tacit.randomness import KeyedRandomness, key_of
from tacit.reproduce.crt.account import amplification_rows, epsilons_after
from tacit.reproduce.crt.claims import judge
from tacit.reproduce.crt.corpora import CorpusFiles, prepare
from tacit.reproduce.crt.keys import experiment_seed
from tacit.reproduce.crt.members import membership_samples
from tacit.reproduce.crt.paper import CRT
from tacit.reproduce.crt.runs import DELTA, config_of, private_steps
from tacit.reproduce.crt.scale import GAMMAS, SCALES, Cell, CorpusSize, Scale, cells_of
from tacit.reproduce.driver import Job, reproduce
from tacit.reproduce.place import Place, scale_named
from tacit.screening.missed import ForgetfulPolicy, Missed, Spotter
from tacit.screening.policy import package_policy
from tacit.screening.spans import merged

SIZE = CorpusSize(dialogues=40, test_dialogues=24, lines=340, private_lines=190, membership_pairs=12)
TINY = Scale(
    name="tiny",
    corpora={"customersim": SIZE},
    models={
        "lstm": {"kind": "lstm", "layers": 1, "width": 24, "length": 32},
        "gpt2": {"kind": "gpt2", "layers": 1, "width": 24, "heads": 2, "length": 24},  # shorter than some texts
    },
    rounds=2,
    points=2,
    passes=2,
    batch=32,
    expected_batch=64,
    private_passes=1,
    noise_multiplier=1.0,
    learning_rate={"lstm": 5e-3, "gpt2": 2e-3},
    private_learning_rate={"lstm": 3e-3, "gpt2": 2e-3},
    group=3,
    digits=4,
)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> CorpusFiles:
    return prepare(
        "customersim", data_dir, SIZE, tmp_path_factory.mktemp("crt") / "customersim", SecretFormat(digits=4)
    )


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_corpus_is_its_dialogues_lines(files: CorpusFiles) -> None:
    train, test = rows_of(files.train), rows_of(files.test)
    assert {row["id"].split("#")[0] for row in train} == {f"dial-{number}" for number in range(40)}
    assert len(train) == pytest.approx(SIZE.lines, rel=0.1)  # the public statement is about right
    assert not {row["id"] for row in train} & {row["id"] for row in test} or train[0]["text"] != test[0]["text"]
    texts = files.test_texts()
    assert len(texts.redacted) == len(texts.raw) > len(texts.without_secrets) > 0
    same = {unit.texts for unit in texts.without_secrets}
    assert same == {raw.texts for raw, own in zip(texts.raw, texts.redacted, strict=True) if raw.texts == own.texts}
    assert all("<MASK>" not in unit.texts[0] for unit in texts.without_secrets)


@pytest.mark.parametrize("name", SCALES)
def test_every_cell_is_a_run_that_is_allowed(files: CorpusFiles, name: str, tmp_path: Path) -> None:
    scale = SCALES[name]
    cells = cells_of(scale)
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        config = config_of(cell, scale, files, tmp_path / "run")
        check_meaning(config)
        assert config.compute.device == {"laptop": "cpu", "full": "cuda"}[name]


def test_all_arms_have_the_same_noise_and_see_as_much_text(files: CorpusFiles, tmp_path: Path) -> None:
    scale = SCALES["laptop"]
    lines = scale.corpora["customersim"].lines
    for arm in ("raw", "redacted", "crt", "dp-sgd"):
        config = config_of(Cell("customersim", "lstm", arm), scale, files, tmp_path)
        assert {phase.noise_multiplier for phase in config.dp_phases} <= {scale.noise_multiplier}
        plain = sum(phase.steps * phase.batch_size for phase in config.phases if isinstance(phase, PlainPhase))
        noisy = sum(phase.steps * phase.expected_batch for phase in config.dp_phases)
        private = {"dp-sgd": lines, "crt": scale.corpora["customersim"].private_lines}.get(arm, 0)
        assert scale.rounds * plain == pytest.approx(scale.passes * (lines - private), rel=0.05, abs=1)
        assert scale.rounds * noisy == pytest.approx(scale.private_passes * private, rel=0.15)


def test_the_key_misses_a_share_gamma_of_the_canaries(files: CorpusFiles, tmp_path: Path) -> None:
    config = config_of(Cell("customersim", "lstm", "crt"), SCALES["laptop"], files, tmp_path)
    policy = package_policy("balanced")
    keys = [experiment_seed(seed, config) for seed in (0, 1)]
    assert keys[0] != keys[1]
    assert keys[0] == experiment_seed(0, config)
    for key in keys:
        streams, form = KeyedRandomness(key_of(key)), secret_form(config)
        assert form is not None
        texts = [form.text(secret) for secret in secrets_of(config, streams)]
        for gamma in GAMMAS:
            spans = ForgetfulPolicy(policy, Missed.of(gamma, streams)).spans_of(texts)
            assert sum(not own for own in spans) == round(10 * gamma)


def test_epsilons_against_the_accountants() -> None:
    scale = SCALES["laptop"]
    size = scale.corpora["customersim"]
    steps = 3 * private_steps(scale, size.lines)
    spends = [Spend(PoissonGaussian(scale.expected_batch / size.lines, scale.noise_multiplier), steps)]
    found = epsilons_after(Cell("customersim", "lstm", "dp-sgd"), scale, 3)
    assert found["paper"] == rdp_epsilon(spends, DELTA)
    assert found["ours"] == found["worst_case"] == epsilon(spends, DELTA, "replace")
    crt = [epsilons_after(Cell("customersim", "lstm", "crt", gamma), scale, 3) for gamma in (0.1, 0.5)]
    # Our policies read context: nothing is amplified. The worst case has no finite epsilon, since both policies may miss a secret.
    assert crt[0]["ours"] == crt[1]["ours"] < crt[0]["worst_case"] == math.inf
    assert crt[0]["paper"] < crt[1]["paper"] < crt[0]["ours"]
    for arm in ("redacted", "s-dp"):
        assert epsilons_after(Cell("customersim", "lstm", arm, 0.1), scale, 3)["ours"] == math.inf


def test_amplification_is_that_of_the_formula() -> None:
    for row in amplification_rows(SCALES["laptop"]):
        assert row["ours"] >= row["paper"] - 1e-9
        assert row["ours"] <= row["ours_context"] + 1e-9 or row["gamma"] > 0.3  # delta / gamma costs more than it gains
        if row["gamma"] == 0:
            assert row["paper"] == row["ours"] == 0.0


def attack(
    arm: str, gamma: float, bits: float, p_value: float, accuracy: tuple[float | None, float | None, float | None]
) -> dict[str, Any]:
    row: dict[str, Any] = {"corpus": "c", "model": "m", "arm": arm, "gamma": gamma, "copies": 20, "seed": 0}
    row |= {"exposure_max_bits": bits, "exposure_max_p_value": p_value, "exposure_null_max_bits": 4.22}
    for kind in ("single", "group", "twin"):
        row |= {
            f"{kind}_accuracy_{part}": value for part, value in zip(("value", "low", "high"), accuracy, strict=True)
        }
    return row


def utility(arm: str, gamma: float, perplexity: float, round: int = 1) -> dict[str, Any]:
    row: dict[str, Any] = {"corpus": "c", "model": "m", "arm": arm, "gamma": gamma, "copies": 20, "round": round}
    return row | {f"perplexity_{name}": perplexity for name in ("redacted", "raw", "without_secrets")}


def test_claims_are_judged_by_the_numbers() -> None:
    chance, found = (0.5, 0.45, 0.55), (0.6, 0.55, 0.65)
    good = judge(
        [
            utility("crt", 0.1, 9.0, 1),
            utility("crt", 0.1, 5.4, 2),
            utility("redacted", 0.1, 5.0),
            utility("dp-sgd", 0, 9),
        ],
        [
            attack("crt", 0.1, 5.0, 0.4, chance),
            attack("redacted", 0.1, 15, 0, found),
            attack("s-dp", 0.1, 11, 0, chance),
        ],
    )
    assert len(good) == 8
    assert all(claim.holds for claim in good)
    bad = judge(
        [utility("crt", 0.1, 5.6), utility("redacted", 0.1, 5.0), utility("dp-sgd", 0, 5.5)],
        [
            attack("crt", 0.1, 15.0, 1e-4, found),
            attack("redacted", 0.1, 9.0, 0, found),
            attack("s-dp", 0.1, 15, 0, chance),
            attack("s-dp", 0.2, 5, 0, chance),
        ],
    )
    assert len(bad) == 8
    assert [claim.holds for claim in bad] == [False] * 8


def test_a_membership_claim_needs_a_control_with_power() -> None:
    chance, found = (0.5, 0.45, 0.55), (0.6, 0.55, 0.65)
    nobody = (None, None, None)
    crt = [attack("crt", 0.0, 4, 0.5, nobody), attack("crt", 0.1, 4, 0.5, chance), attack("crt", 0.5, 4, 0.5, chance)]
    redacted = [attack("redacted", 0.1, 15, 0, chance), attack("redacted", 0.5, 15, 0, chance)]
    undecided = [claim for claim in judge([], crt + redacted) if "membership" in claim.text]
    assert [claim.verdict for claim in undecided] == ["undecided"] * 3
    assert undecided[0].numbers == "no power: redaction alone is at chance too in 2 of 2"
    powerful = [redacted[0], attack("redacted", 0.5, 15, 0, found)]
    held = [claim for claim in judge([], crt + powerful) if "membership" in claim.text]
    assert [claim.verdict for claim in held] == ["holds"] * 3
    assert held[0].numbers == "0.500; 0 of 1 outside; redaction alone is at chance too in 1 of 2"
    assert not [claim for claim in judge([], crt[:1] + powerful) if "membership" in claim.text]


def test_members_are_those_whose_secrets_the_policy_misses(data_dir: Path) -> None:
    streams = KeyedRandomness(key_of("members"))
    size = dataclasses.replace(SIZE, dialogues=300, membership_pairs=10_000)

    def samples(policy: Spotter | None) -> MembershipSamples:
        return membership_samples("customersim", data_dir, size, streams, policy)

    everybody = samples(None)
    assert len(everybody.members) == len(set(everybody.members)) > 200
    balanced, missed = package_policy("balanced"), Missed.of(0.5, streams)
    half, caught = samples(ForgetfulPolicy(balanced, missed)), samples(balanced)
    assert len(caught.members) < 0.1 * len(everybody.members)
    assert 0.3 < (len(half.members) - len(caught.members)) / len(everybody.members) < 0.7
    assert set(half.members) < set(everybody.members)
    for member, spans in zip(half.members, balanced.spans_of(list(half.members)), strict=True):
        assert member in caught.members or any(missed.misses(member[start:end]) for start, end in merged(spans))


@pytest.mark.slow
def test_from_corpora_to_the_page(tmp_path: Path, data_dir: Path) -> None:
    """The whole of it, very small: the page says what the tables hold."""
    cells = [
        Cell("customersim", model, arm, gamma)
        for model, arm, gamma in (
            ("lstm", "redacted", 0.5),
            ("lstm", "crt", 0.5),
            ("lstm", "dp-sgd", 0.0),
            ("lstm", "s-dp", 0.5),
            ("gpt2", "crt", 0.5),
        )
    ]
    fewer = dataclasses.replace(CRT, cells=lambda scale: [Job(cell.name, cell) for cell in cells])
    page = tmp_path / "page.md"
    page.write_text("# before\n<!-- results -->\nwhat was here\n<!-- end of results -->\nafter\n")
    place = Place(data_dir, tmp_path / "out")
    said = reproduce(fewer, TINY, place, 1, SilentReporter(), page=page)
    assert said[0] == "5 of 5 models done"
    with (place.out / "figures3-5.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == ["redacted", "crt", "dp-sgd", "s-dp", "crt"]
    assert all(0 < float(row["exposure_max_bits"]) <= math.log2(10_000) for row in rows)
    text = page.read_text()
    assert text.startswith("# before\n")
    assert text.endswith("after\n")
    assert "what was here" not in text
    assert f"{float(rows[1]['exposure_max_bits']):.1f} (" in text
    with (place.out / "figure2.csv").open() as file:
        [after] = [
            row for row in csv.DictReader(file) if (row["arm"], row["model"], row["round"]) == ("s-dp", "lstm", "2")
        ]
    [line] = [line for line in text.splitlines() if line.startswith("| S-DP | 0.5 |")]
    stored = [float(after[name]) for name in ("perplexity_redacted", "perplexity_raw")]  # of six digits
    assert [float(cell) for cell in line.split("|")[3:5]] == pytest.approx(stored, abs=0.0051)
    assert {path.name for path in place.out.glob("*.png")} == {f"figure{number}.png" for number in range(2, 7)}
    assert list(place.runs.glob("*")) == []
    with pytest.raises(UsageError, match="another scale"):
        reproduce(fewer, dataclasses.replace(TINY, rounds=3), place, 1, SilentReporter())


def test_an_unknown_scale_or_corpus() -> None:
    with pytest.raises(UsageError, match="laptop"):
        scale_named(SCALES, "moon")
    with pytest.raises(UsageError, match="customersim"):
        prepare("moon", Path(), SIZE, Path())

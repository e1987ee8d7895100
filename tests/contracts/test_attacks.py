"""What every attack of `ATTACKS` must keep to; and that a new one is this file and one line.

Two toys live here. `GUESSES` is public: it guesses keyed bits, of which a model knows nothing, so its null is a binomial law.
`COUNTS` reads private text, so it is the curator's alone. Nothing else of the project knows them, and each goes through plan, run,
verify, audit and report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from scipy.stats import binom

from tacit.audit.attack import (
    CONTROL,
    RELEASED,
    SHARE,
    Answer,
    Attack,
    AttackRow,
    Found,
    Given,
    Measure,
    joint_p_values,
    shown,
)
from tacit.audit.attacks import ATTACKS, answer_of, asked_attacks, check_attacks, check_gate
from tacit.config import RunConfig, parse_config
from tacit.config.base import Count, Options
from tacit.corpus.synthetic import SyntheticPublic, write_public
from tacit.errors import AuditError, UsageError
from tacit.files import read_json, write_json
from tacit.report.collect.attacks import attack_facts
from tacit.report.prose import attack_sentences
from tacit.report.schema import AttackFacts, ReportData
from tacit.runs.folder import RunFolder

from ..draws import who_asks
from ..small import SENTINEL, write_config
from ..started import called, command

# the toys ------------------------------------------------------------------------------------------------------------


class GuessOptions(Options):
    """How many bits are guessed; ``known``: of how many the attacker is told the truth, and so seems to find memory."""

    guesses: Count = 40
    known: int = Field(default=0, ge=0)


def guess(given: Given) -> Measure:
    options = GuessOptions.model_validate((given.config.audit and given.config.audit.attacks["guesses"]) or {})
    rows = given.public_rows().sequences  # it may read public text
    bits = given.streams.generator("bits").integers(2, size=options.guesses)

    def measure(model: Any) -> dict[str, int]:
        weights = [float(weight) for weight in next(model.parameters()).flatten()[: options.guesses].tolist()]
        own = [int(weight > 0) for weight in weights] + [0] * (options.guesses - len(weights))
        guesses = [*bits[: options.known].tolist(), *own[options.known :]]
        right = sum(int(one == other) for one, other in zip(guesses, bits.tolist(), strict=True))
        return {"right": right, "guesses": options.guesses, "rows": rows}

    return measure


def guessed(config: RunConfig, found: Mapping[str, Any]) -> Answer:
    rows = [
        AttackRow(
            model=model,
            name="bits guessed",
            value=values["right"],
            unit="bits guessed right",
            null=values["guesses"] / 2,
            p_value=float(binom.sf(values["right"] - 1, values["guesses"], 0.5)),
            ceiling=values["guesses"],
            parameters={"public rows": values["rows"]},
            words=f"Of {values['guesses']} toy bits {values['right']} are guessed",
        )
        for model, values in found.items()
    ]
    return Answer(tuple(rows), ("A toy attacker guesses keyed bits.",), "A toy note.")


GUESSES = Attack(
    name="guesses",
    title="Guessing of toy bits",
    public=True,
    prepare=guess,
    answer=guessed,
    subject="the toy bits",
    options=GuessOptions,
    terms=(("Toy bit", "A keyed bit that no model was ever shown."),),
)


def count(given: Given) -> Measure:
    training, held_out = given.private_units()
    share = len(held_out) / (len(training) + len(held_out))
    return lambda model: {"share": share}


def counted(config: RunConfig, found: Mapping[str, Any]) -> Answer:
    rows = [
        AttackRow(
            model=model,
            name="held-out units",
            value=values["share"],
            unit=SHARE,
            without_null="it is a count, and no model decides it",
            judged=False,
            words="A toy count of private units",
        )
        for model, values in found.items()
    ]
    return Answer(tuple(rows))


COUNTS = Attack(
    name="counts",
    title="Counting of toy units",
    public=False,
    prepare=count,
    answer=counted,
    subject="the number of units",
)
TOYS = (GUESSES, COUNTS)


def with_toys(arguments: list[str], who: str) -> None:
    """`tacit ARGUMENTS...` where the toys are registered: a line each."""
    ATTACKS["guesses"] = GUESSES
    ATTACKS["counts"] = COUNTS
    command(arguments, who)


def tacit(*arguments: str | Path) -> Any:
    return called(with_toys, [str(argument) for argument in arguments], who_asks())


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for toy in TOYS:
        monkeypatch.setitem(ATTACKS, toy.name, toy)


ASKED = [attack for attack in (*ATTACKS.values(), *TOYS) if attack.name != "planted-contexts"]
"""Of a causal model."""
DOCUMENTS = 120


def write_texts(folder: Path) -> None:
    """Documents with a long number each, which membership inference takes for a secret, and a sentinel."""
    texts = [
        {"id": f"d{place}", "text": f"My order is {10**7 + 7919 * place}, {SENTINEL}{place}."}
        for place in range(DOCUMENTS)
    ]
    (folder / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    write_public(folder / "public.jsonl", SyntheticPublic(records=300))


def values_in(folder: Path, **attacks: Any) -> dict[str, Any]:
    """A tiny run that asks for every attack on a causal model."""
    phase = {"name": "private", "plan": "dp", "stream": "private", "steps": 3, "expected_batch": 10, "clip_norm": 0.5}
    return {
        "run": str(folder / "run"),
        "privacy": {"unit": "document", "units": DOCUMENTS, "budget": {"epsilon": 8.0, "delta": 1e-4}},
        "private": {"path": str(folder / "texts.jsonl"), "id_field": "id"},
        "public": [{"path": str(folder / "public.jsonl"), "id_field": "id"}],
        "vocabulary": {"method": "public", "size": 400},
        "model": {"kind": "lstm", "layers": 1, "width": 16, "length": 24},
        "phases": [{**phase, "learning_rate": 1e-2}],
        "evaluation": {"held_out": 0.4, "public_sequences": 8},
        "audit": {
            "canaries": 2,
            "copies": 2,
            "digits": 2,
            "control": True,
            "control_steps": 2,
            "membership": {"pairs": 20, "group_size": 2},
            "coins": {"examples": 30, "pieces": 6},
            "white_box": True,
            "attacks": {"guesses": {}, "counts": {}, **attacks},
        },
        "compute": {"threads": 1, "checkpoint_seconds": 30.0},
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run, which is read only."""
    folder = tmp_path_factory.mktemp("attacks")
    write_texts(folder)
    config = write_config(folder / "config.yaml", values_in(folder))
    planned = tacit("plan", config)
    assert planned.returncode == 0, planned.stderr
    done = tacit("run", config)
    assert done.returncode == 0, done.stderr
    for attack in ASKED:
        assert f"Audit: {attack.title} under the {RELEASED} ..." in done.stderr
    return RunFolder(folder / "run")


def stored(run: RunFolder, attack: Attack) -> Found:
    return read_json(run.private / f"{attack.stage_name}.json")


def pages(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in ("report.html", "report.json", "README.md")}


# one file and one line -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_new_public_attack_is_in_the_release(finished: RunFolder) -> None:
    report = read_json(finished.release / "report.json")
    assert [attack["name"] for attack in report["attacks"]] == ["exposure", "coins", "guesses"]
    facts = AttackFacts.model_validate(report["attacks"][2])
    (row,) = facts.rows
    values = stored(finished, GUESSES)[RELEASED]
    assert (row.model, row.value, row.null, row.ceiling) == (RELEASED, values["right"], 20, 40)
    assert row.p_value == pytest.approx(sum(binom.pmf(right, 40, 0.5) for right in range(values["right"], 41)))
    for name, page in pages(finished.release).items():
        assert GUESSES.title in page
        assert f"Of 40 toy bits {values['right']} are guessed" in page
        assert "A toy attacker guesses keyed bits." in page
        assert ("no model was ever shown" in page) == (name != "README.md")
    assert "Undecided" in pages(finished.release)["README.md"]


def test_what_is_the_curators_is_in_the_curators_copy_alone(finished: RunFolder) -> None:
    curators, public = pages(finished.private / "report"), pages(finished.release)
    report = json.loads(curators["report.json"])
    assert [attack["name"] for attack in report["attacks"]] == [
        "exposure",
        "membership",
        "coins",
        "white-box",
        "guesses",
        "counts",
    ]
    assert [row["model"] for row in report["attacks"][4]["rows"]] == [RELEASED, CONTROL]
    for name in public:
        for needle in (COUNTS.title, "A toy count of private units", CONTROL):
            assert needle in curators[name]
            assert needle not in public[name]
        assert "no model decides it" in curators[name]  # why there is no null
    released = b"".join(path.read_bytes() for path in finished.release.rglob("*") if path.is_file())
    assert b"toy count" not in released
    assert b"toy bits" in released  # the search can find what is there


@pytest.mark.slow
def test_a_run_with_a_new_attack_is_verified_and_audited(finished: RunFolder) -> None:
    verified = tacit("verify", finished.root)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    before = (finished.private / "guesses.json").read_bytes()
    audited = tacit("audit", finished.root)
    assert audited.returncode == 0, audited.stderr
    for attack in ASKED:
        assert attack.title in audited.stdout
    assert audited.stdout.count("covered by no certificate: do not publish it") == 3
    assert (finished.private / "guesses.json").read_bytes() == before
    reported = tacit("report", finished.root)
    assert reported.returncode == 0, reported.stderr


def test_its_figures_are_bound_to_the_release(finished: RunFolder) -> None:
    path = finished.private / "guesses.json"
    before = path.read_bytes()
    values = read_json(path)
    values[RELEASED]["right"] = 21 if values[RELEASED]["right"] != 21 else 20
    try:
        write_json(path, values)
        done = tacit("report", finished.root)
    finally:
        path.write_bytes(before)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
    assert "not what the release was made with" in done.stderr
    without = called(command, ["report", str(finished.root)], who_asks())  # where the toy is not registered
    assert (without.returncode, without.stderr.count("\n")) == (2, 1), without.stderr
    assert "there is no attack 'counts'" in without.stderr


@pytest.mark.parametrize(
    ("attacks", "said"),
    [
        ({"guesses": {"gueses": 3}}, "unknown option 'gueses'; did you mean 'guesses'?"),
        ({"guesses": {"guesses": 0}}, "audit.attacks.guesses: option 'guesses'"),
        ({"nix": {}}, "there is no attack 'nix' to ask for there; there are: planted-contexts, guesses, counts"),
        ({"membership": {}}, "there is no attack 'membership' to ask for there"),
    ],
)
@pytest.mark.parametrize("name", ["plan", "run"])
def test_its_options_are_checked_before_anything_is_read(
    name: str, attacks: dict[str, Any], said: str, tmp_path: Path
) -> None:
    done = tacit(name, write_config(tmp_path / "config.yaml", values_in(tmp_path, **attacks)))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_it_is_a_stage(tmp_path: Path) -> None:
    write_texts(tmp_path)
    config = write_config(tmp_path / "config.yaml", values_in(tmp_path, guesses={"known": 40}))
    done = tacit("run", config, "--until", "guesses")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "private" / "guesses.json").exists()
    assert not (tmp_path / "run" / "private" / "counts.json").exists()
    assert stored(RunFolder(tmp_path / "run"), GUESSES)[RELEASED]["right"] == 40
    none = tacit("run", config, "--until", "nix")
    assert "membership, coins, white-box, guesses, counts, release" in none.stderr


# the gate ------------------------------------------------------------------------------------------------------------


def config_of(folder: Path, gate: float = 0.0, **attacks: Any) -> RunConfig:
    values = values_in(folder, **attacks)
    values["audit"]["max_exposure_p_value"] = gate
    return parse_config(values)


def right(number: int, of: int = 40) -> dict[str, int]:
    return {"right": number, "guesses": of, "rows": 1}


@pytest.mark.usefixtures("toys")
def test_the_gate_reads_its_p_value(tmp_path: Path) -> None:
    config = config_of(tmp_path, gate=1e-3)
    check_gate(config, {"guesses": {RELEASED: right(28), CONTROL: right(40)}})
    with pytest.raises(
        AuditError, match=r"the toy bits are given away: bits guessed by 31\.00 bits guessed right, p = 0\.00034"
    ):
        check_gate(config, {"guesses": {RELEASED: right(31)}})
    check_gate(config_of(tmp_path), {"guesses": {RELEASED: right(40)}})


@pytest.mark.usefixtures("toys")
def test_what_is_the_curators_decides_nothing_at_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there is a release would hang on private text."""
    found = {"guesses": {RELEASED: right(40), CONTROL: right(40)}}
    with pytest.raises(AuditError):
        check_gate(config_of(tmp_path, gate=1e-3), found)
    monkeypatch.setitem(ATTACKS, "guesses", replace(GUESSES, public=False))
    check_gate(config_of(tmp_path, gate=1e-3), found)


# the wall ------------------------------------------------------------------------------------------------------------


def control_too(config: RunConfig, found: Mapping[str, Any]) -> Answer:
    answer = guessed(config, found)
    return replace(answer, rows=(*answer.rows, replace(answer.rows[0], model=CONTROL)))


@pytest.mark.usefixtures("toys")
def test_a_row_of_the_control_in_the_public_copy_is_refused(
    tmp_path: Path, finished: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once by what collects the rows, and once by the page, for whoever does not ask there."""
    config = config_of(tmp_path)
    found = {"guesses": {RELEASED: right(20), CONTROL: right(40)}}
    (public,) = attack_facts(config, found, curator=False)
    assert [row.model for row in public.rows] == [RELEASED]
    monkeypatch.setitem(ATTACKS, "guesses", replace(GUESSES, answer=control_too))
    with pytest.raises(UsageError, match="guesses: its answer has rows of a model that it was not asked about"):
        attack_facts(config, found, curator=False)
    monkeypatch.setitem(ATTACKS, "guesses", GUESSES)
    (curators,) = attack_facts(config, found, curator=True)
    report = json.loads((finished.release / "report.json").read_text())
    for attack in (curators, curators.model_copy(update={"public": False, "rows": curators.rows[:1]})):
        with pytest.raises(ValueError, match="outside the ledger"):
            ReportData.model_validate(report | {"attacks": [attack.model_dump()]})


def leaks(given: Given) -> Measure:
    return lambda model: {"share": len(given.private_units()[0])}


def breaks(given: Given) -> Measure:
    """What it raises is private twice over: that it is raised, and its words."""
    first = given.private_units()[0][0].texts[0]

    def measure(model: Any) -> Any:
        raise ValueError(f"{SENTINEL} {first}")

    return measure


def with_a_leak(arguments: list[str], who: str) -> None:
    ATTACKS["guesses"] = replace(GUESSES, prepare=leaks)
    ATTACKS["counts"] = COUNTS
    command(arguments, who)


def with_a_break(arguments: list[str], who: str) -> None:
    ATTACKS["guesses"] = GUESSES
    ATTACKS["counts"] = replace(COUNTS, prepare=breaks)
    command(arguments, who)


@pytest.mark.slow
def test_a_public_attack_may_not_read_private_text(tmp_path: Path) -> None:
    write_texts(tmp_path)
    config = write_config(tmp_path / "config.yaml", values_in(tmp_path))
    done = called(with_a_leak, ["run", str(config)], who_asks())
    assert done.returncode == 2, done.stderr
    assert "attack guesses: its rows are part of the release, so it may not read private text" in done.stderr
    assert not (tmp_path / "run" / "release").exists()


@pytest.mark.slow
def test_a_curators_attack_that_breaks_stops_no_run_and_says_nothing(tmp_path: Path) -> None:
    """Whether it breaks may hang on one text, so it must change neither the release nor a line of progress."""
    write_texts(tmp_path)
    config = write_config(tmp_path / "config.yaml", values_in(tmp_path))
    done = called(with_a_break, ["run", str(config)], who_asks())
    assert done.returncode == 0, done.stderr
    run = RunFolder(tmp_path / "run")
    assert stored(run, COUNTS) == {"undecided": "undecided: the attack failed (ValueError)"}
    assert SENTINEL not in done.stderr + done.stdout
    curators, public = pages(run.private / "report"), pages(run.release)
    for name in public:
        assert "undecided: the attack failed (ValueError)" in curators[name]
        assert "the attack failed" not in public[name]
        assert SENTINEL not in curators[name] + public[name]


# what every member keeps to ------------------------------------------------------------------------------------------

EVERY = [*ATTACKS, *(toy.name for toy in TOYS)]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run of a masked model, for the attacks that are made on those alone."""
    folder = tmp_path_factory.mktemp("masked")
    write_texts(folder)
    values = values_in(folder)
    values["model"] = {"layers": 1, "width": 16, "heads": 2, "length": 24}
    audit = {"canaries": 2, "probability": 0.5, "control": True, "control_steps": 2}
    values["audit"] = {**audit, "attacks": {"planted-contexts": {"contexts": 2}}}
    done = tacit("run", write_config(folder / "config.yaml", values))
    assert done.returncode == 0, done.stderr
    return RunFolder(folder / "run")


@pytest.fixture
def run(name: str, finished: RunFolder, masked: RunFolder) -> RunFolder:
    return masked if name == "planted-contexts" else finished


@pytest.fixture
def config(run: RunFolder, finished: RunFolder, masked: RunFolder, toys: None) -> RunConfig:
    configs = [folder.load_config() for folder in (finished, masked)]
    for found in configs:
        check_attacks(found)
    asked = {attack.name for found in configs for attack in asked_attacks(found)}
    assert asked == set(ATTACKS), "the runs of this suite ask for every attack"
    return run.load_config()


@pytest.mark.parametrize("name", EVERY)
def test_its_rows_stand_beside_their_null(name: str, config: RunConfig, run: RunFolder) -> None:
    """`AttackFacts` refuses a row with neither a null nor a reason; and the same answer comes from the file as from the run."""
    attack = ATTACKS[name]
    found = stored(run, attack)
    assert RELEASED in found
    assert CONTROL in found
    (facts,) = attack_facts(config, {name: found}, curator=True)
    assert {row.model for row in facts.rows} == {RELEASED, CONTROL}
    assert all((row.null is None) != (row.without_null is None) for row in facts.rows)
    assert attack_facts(config, {name: json.loads(json.dumps(found))}, curator=True) == (facts,)
    report = read_json(run.private / "report" / "report.json")
    assert facts.model_dump(mode="json") in report["attacks"]


@pytest.mark.parametrize("name", EVERY)
def test_the_gate_and_the_page_have_one_p_value(name: str, config: RunConfig, run: RunFolder) -> None:
    attack = ATTACKS[name]
    answer = attack.answer(config, stored(run, attack))
    (facts,) = attack_facts(config, {name: stored(run, attack)}, curator=True)
    for model in (RELEASED, CONTROL):
        assert joint_p_values([row for row in answer.rows if row.model == model]) == facts.joint_p_values(model)


@pytest.mark.parametrize("name", EVERY)
def test_the_public_sees_the_released_model_of_a_public_attack_alone(
    name: str, config: RunConfig, run: RunFolder
) -> None:
    attack = ATTACKS[name]
    found = {name: stored(run, attack)}
    public = attack_facts(config, found, curator=False)
    assert bool(public) == attack.public
    assert {row.model for facts in public for row in facts.rows} <= {RELEASED}
    without = {name: {RELEASED: found[name][RELEASED]}}  # what the control has shown decides nothing of it
    assert attack_facts(config, without, curator=False) == public
    undecided: Found = {"undecided": "undecided: a reason"}
    assert (answer_of(attack, config, undecided, curator=False) is None) == (not attack.public)
    assert (shown(attack, {CONTROL: 1}, curator=False) or {}) == {}


@pytest.mark.parametrize("name", EVERY)
def test_without_a_control_it_decides_nothing(name: str, config: RunConfig, run: RunFolder) -> None:
    """An attack that finds nothing says so only as loud as its positive control; this tiny run's models remember nothing."""
    attack = ATTACKS[name]
    alone = {name: {RELEASED: stored(run, attack)[RELEASED]}}
    (facts,) = attack_facts(config, alone, curator=True)
    if not any(facts.tests_of(RELEASED).values()):
        assert "Undecided" in " ".join(attack_sentences(facts))


@pytest.mark.parametrize("name", EVERY)
def test_it_says_no_private_text(name: str, config: RunConfig, run: RunFolder) -> None:
    attack = ATTACKS[name]
    assert SENTINEL in (run.root.parent / "texts.jsonl").read_text()
    assert SENTINEL not in json.dumps(stored(run, attack))
    (facts,) = attack_facts(config, {name: stored(run, attack)}, curator=True)
    assert SENTINEL not in facts.model_dump_json()


def test_names_stages_and_files_are_their_own() -> None:
    attacks = [*ATTACKS.values(), *TOYS]
    assert all(name == attack.name for name, attack in ATTACKS.items())
    assert len({attack.stage_name for attack in attacks}) == len(attacks)
    assert not {attack.stage_name for attack in attacks} & {"evaluation", "canaries", "training", "control", "release"}

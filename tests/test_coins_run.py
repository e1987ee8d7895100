"""Coins in a run: bound before the training, trained on as units, and guessed; an engine without noise is contradicted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.audit.attack import CONTROL, CONTROL_WITHOUT_NOISE, RELEASED
from tacit.audit.coin_examples import EXAMPLES
from tacit.audit.coins_plan import claimed_epsilon
from tacit.config import parse_config
from tacit.corpus.synthetic import SyntheticPublic, write_public
from tacit.errors import LedgerError
from tacit.files import read_json
from tacit.pipeline.corpus import private_units
from tacit.pipeline.opening import open_run
from tacit.pipeline.rows import control_rows, drawn_coins, private_rows, rows_of
from tacit.pipeline.stages import walk
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.ledger import Ledger
from tacit.runs.folder import RunFolder

from .dialogues import dialogue_values, write_dialogues
from .draws import who_asks
from .keys import begin_with_key
from .small import tacit, write_config
from .started import called, command

pytestmark = pytest.mark.slow

DOCUMENTS = 60


def write_texts(folder: Path) -> None:
    texts = [{"id": f"d{place}", "text": f"My order is {10**7 + 7919 * place}."} for place in range(DOCUMENTS)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    write_public(folder / "public.jsonl", SyntheticPublic(records=300))


def values(folder: Path, run: str = "run", **sections: Any) -> dict[str, Any]:
    phase = {"name": "private", "plan": "dp", "stream": "private", "steps": 60, "expected_batch": 80, "clip_norm": 0.5}
    return {
        "run": str(folder / run),
        "privacy": {"unit": "document", "units": 160, "budget": {"epsilon": 1.0, "delta": 1e-4}},
        "private": {"path": str(folder / "texts.jsonl"), "id_field": "id"},
        "public": [{"path": str(folder / "public.jsonl"), "id_field": "id"}],
        "vocabulary": {"method": "public", "size": 400},
        "model": {"kind": "lstm", "layers": 1, "width": 48, "length": 16},
        "phases": [{**phase, "learning_rate": 1e-2}],
        "evaluation": {"held_out": 0.1, "public_sequences": 8},
        "audit": {
            "canaries": 2,
            "copies": 2,
            "digits": 2,
            "control": True,
            "control_steps": 80,
            "coins": {"examples": 160},
        },
        "compute": {"threads": 1, "checkpoint_seconds": 30.0},
        **sections,
    }


def without_noise(arguments: list[str], who: str) -> None:
    """`tacit ARGUMENTS...` of an engine that leaves the noise out: the known-wrong one."""
    from tacit.training import dp_step

    dp_step.add_noise_ = lambda *given: None
    command(arguments, who)


def run_of(folder: Path, work: Any = command, run: str = "run", **sections: Any) -> tuple[RunFolder, Any]:
    given = values(folder, run, **sections)
    begin_with_key(given)
    done = called(work, ["run", str(write_config(folder / f"{run}.yaml", given))], who_asks())
    return RunFolder(folder / run), done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("coins")
    write_texts(made)
    return made


@pytest.fixture(scope="module")
def finished(folder: Path) -> RunFolder:
    """A finished run, which is read only."""
    run, done = run_of(folder)
    assert done.returncode == 0, done.stderr
    return run


def rows_of_ledger(run: RunFolder) -> list[Any]:
    with Ledger.open(run.ledger, readonly=True) as ledger:
        return list(ledger.rows)


def bound_coins(run: RunFolder) -> tuple[int, dict[str, Any]]:
    """(place in the ledger, what is bound there)."""
    ((place, row),) = [
        (place, row)
        for place, row in enumerate(rows_of_ledger(run))
        if row.kind == "bind" and row.body["name"] == "the audit's coins"
    ]
    return place, json.loads(row.body["value"])


def test_what_is_judged_is_bound_before_the_first_step(finished: RunFolder) -> None:
    place, bound = bound_coins(finished)
    spends = [at for at, row in enumerate(rows_of_ledger(finished)) if row.kind == "spend"]
    assert place < spends[0]
    assert {name: bound[name] for name in ("score", "bound", "examples", "delta", "relation")} == {
        "score": "loss",
        "bound": "one-run",
        "examples": 160,
        "delta": 1e-4,
        "relation": "add-or-remove",
    }
    assert len(bound["commitment"]) == 64


def test_an_engine_with_noise_is_not_contradicted(finished: RunFolder) -> None:
    found = read_json(finished.private / "coins.json")[RELEASED]
    assert found["bounds"][0]["epsilon"] <= found["proven"] <= 1.0
    report = read_json(finished.release / "report.json")
    (facts,) = [attack for attack in report["attacks"] if attack["name"] == "coins"]
    assert [row["model"] for row in facts["rows"]] == [RELEASED] * len(facts["rows"])
    page = (finished.release / "report.html").read_text()
    assert "a perfect attack could at best show 3.65" in page
    assert "UNDECIDED: no power is shown, for a positive control is the curator’s alone" in page
    verified = tacit("verify", finished.root)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_the_positive_control_gives_the_attack_its_power(finished: RunFolder) -> None:
    found = read_json(finished.private / "coins.json")
    assert found[CONTROL]["bounds"][0]["epsilon"] > 1.0
    page = (finished.private / "report" / "report.html").read_text()
    assert "NOT CONTRADICTED" in page
    assert "UNDECIDED: no power" not in page


def test_a_control_without_noise_has_power_over_this_very_training(folder: Path, finished: RunFolder) -> None:
    audit = {**values(folder)["audit"], "control": "without-noise"}
    del audit["control_steps"]
    run, done = run_of(folder, run="control-without-noise", audit=audit)
    assert done.returncode == 0, done.stderr
    found = read_json(run.private / "coins.json")
    assert set(found) == {RELEASED, CONTROL_WITHOUT_NOISE}
    assert found[RELEASED]["bounds"][0]["epsilon"] <= 1.0 < found[CONTROL_WITHOUT_NOISE]["bounds"][0]["epsilon"]
    assert "NOT CONTRADICTED" in (run.private / "report" / "report.html").read_text()
    assert "UNDECIDED: no power" in (run.release / "report.html").read_text()


def test_an_engine_without_noise_is_contradicted_with_exit_code_6(folder: Path) -> None:
    run, done = run_of(folder, without_noise, "without-noise", audit={**values(folder)["audit"], "control": False})
    assert done.returncode == 6, done.stderr
    assert "the lower bound on epsilon by coins, 2.4" in done.stderr.splitlines()[-1]
    assert "above the proven 1 at delta 0.0001" in done.stderr.splitlines()[-1]
    audited = tacit("audit", run.root)
    assert audited.returncode == 6, audited.stderr
    assert "violated" in audited.stdout
    assert "VIOLATED" in (run.release / "report.html").read_text()


def test_a_run_that_was_stopped_comes_to_the_same(folder: Path, finished: RunFolder) -> None:
    given = values(folder, "stopped")
    begin_with_key(given)
    config = write_config(folder / "stopped.yaml", given)
    for part in (["--until", "training"], []):
        done = tacit("run", config, *part)
        assert done.returncode == 0, done.stderr
    stopped = RunFolder(folder / "stopped")
    assert bound_coins(stopped) == bound_coins(finished)
    assert (stopped.private / "coins.json").read_bytes() == (finished.private / "coins.json").read_bytes()
    weights = "model/model.safetensors"
    assert (stopped.release / weights).read_bytes() == (finished.release / weights).read_bytes()


def test_coins_cannot_be_changed_once_the_run_has_begun(
    folder: Path, finished: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = folder / "copy"
    shutil.copytree(finished.root, copy)
    audit = values(folder)["audit"]
    for changed in ({"score": "zlib"}, {"bound": "gaussian-dp"}, {"examples": 150}, {"pieces": 7}):
        other = {**audit, "coins": {**audit["coins"], **changed}}
        done = tacit("run", write_config(folder / "copy.yaml", values(folder, "copy", audit=other)))
        assert done.returncode == 2, done.stderr
        assert f"audit.coins.{next(iter(changed))}" in done.stderr
    monkeypatch.setitem(EXAMPLES, "random-pieces", EXAMPLES["secret"])  # as another version might make them
    with (
        pytest.raises(LedgerError, match="the audit's coins changed"),
        open_run(parse_config(values(folder, "copy"))) as state,
    ):
        drawn_coins(state)


# what coins leave as it is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_the_units_of_the_text_are_as_without_coins(folder: Path, relation: str) -> None:
    """Words, held-out units and the rows of every unit of the text, under one key."""
    privacy = {**values(folder)["privacy"], "relation": relation}
    audit = values(folder)["audit"]
    found = {}
    for name, coins in (("with", audit["coins"]), ("without", None)):
        given = values(folder, f"{relation}-{name}", privacy=privacy, audit={**audit, "coins": coins})
        begin_with_key(given)
        with open_run(parse_config(given)) as state:
            walk(state, until="vocabulary")
            words = (state.vocabulary_folder / "tokenizer.json").read_bytes()
            plans = [phase.plan for phase in state.mechanisms.phases]
            found[name] = (words, [list(units) for units in private_units(state)], plans), private_rows(state)
    (same, rows), (as_without, own) = found["with"], found["without"]
    assert same == as_without
    units = own.units
    assert np.array_equal(rows.ids_ST[: own.sequences], own.ids_ST)
    assert rows.keys_U[:units] == tuple(own.keys_U)
    assert np.array_equal(rows.starts_U1[: units + 1], own.starts_U1)
    assert len(set(rows.keys_U)) == rows.units
    assert rows.units - units == rows.sequences - own.sequences > 0


def test_each_planted_example_is_a_unit_of_one_row(folder: Path) -> None:
    given = values(folder, "units")
    begin_with_key(given)
    with open_run(parse_config(given)) as state:
        walk(state, until="vocabulary")
        rows, coins = private_rows(state), drawn_coins(state)
    count = int(coins.included_m.sum())
    assert np.array_equal(rows.ids_ST[-count:], coins.planted_PT)
    assert (np.diff(rows.starts_U1)[-count:] == 1).all()
    assert (rows.lengths_S[-count:] == 10).all()


def test_the_control_is_shown_an_example_as_often_as_a_unit(folder: Path) -> None:
    """It draws rows: where units have six, an example of one row would be seen a sixth as often."""
    texts = [{"id": f"d{place}", "text": "My order is 12345678. " * 9} for place in range(DOCUMENTS)]
    (folder / "long.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    given = values(folder, "long", private={"path": str(folder / "long.jsonl"), "id_field": "id"})
    begin_with_key(given)
    with open_run(parse_config(given)) as state:
        walk(state, until="vocabulary")
        rows, control, coins = private_rows(state), control_rows(state), drawn_coins(state)
    planted = int(coins.included_m.sum())
    text_rows = rows.sequences - planted
    times = (control.sequences - text_rows) / planted
    assert times == round(text_rows / (rows.units - planted)) > 3
    assert np.array_equal(control.ids_ST[:text_rows], rows.ids_ST[:text_rows])
    assert len(set(control.keys_U)) == control.units


def test_coins_are_the_same_with_a_unit_more(folder: Path) -> None:
    """Under one key: neither examples nor coins nor the other units' rows hang on a unit of the text."""
    lines = (folder / "texts.jsonl").read_text().splitlines(keepends=True)
    (folder / "fewer.jsonl").write_text("".join(lines[:-1]))
    found = []
    for name in ("texts", "fewer"):
        given = values(folder, f"unit-{name}", private={"path": str(folder / f"{name}.jsonl"), "id_field": "id"})
        begin_with_key(given)
        with open_run(parse_config(given)) as state:
            walk(state, until="vocabulary")
            found.append((drawn_coins(state), private_rows(state)))
    (coins, rows), (other, fewer) = found
    assert coins.commitment == other.commitment
    assert rows.units - fewer.units in (0, 1)  # it may be held out
    assert {*fewer.keys_U} <= {*rows.keys_U}


def test_screened_text_has_no_example_and_the_phases_with_noise_are_tested(tmp_path: Path) -> None:
    write_dialogues(tmp_path, 40)
    phase = {"expected_batch": 20, "learning_rate": 1e-2}
    given = dialogue_values(
        tmp_path,
        units=200,
        screening={"data_point": "line", "gamma": 0.01, "delta2": 0.00005},
        phases=[
            {
                "name": "public",
                "plan": "plain",
                "stream": "screened",
                "steps": 1,
                "batch_size": 8,
                "learning_rate": 1e-2,
            },
            {
                **phase,
                "name": "private",
                "plan": "dp",
                "stream": "private",
                "steps": 3,
                "clip_norm": 0.5,
                "noise_multiplier": 0.9,
            },
        ],
        audit={"canaries": 3, "copies": 4, "digits": 3, "coins": {"examples": 30}},
    )
    begin_with_key(given)
    config = parse_config(given)
    with open_run(config) as state:
        walk(state, until="vocabulary")
        screened, private, coins = rows_of(state, "screened"), rows_of(state, "private"), drawn_coins(state)
        tested, noisy = claimed_epsilon(config, state.mechanisms.spends()), state.mechanisms.noisy_spends()
    assert np.array_equal(private.ids_ST[-30:], coins.planted_PT)  # one of two, always
    examples = {row.tobytes() for row in coins.planted_PT}
    assert not examples & {row.tobytes() for row in screened.ids_ST}
    assert tested == joint_epsilon(noisy, 1e-4, "replace") < 8.0

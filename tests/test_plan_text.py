"""What `tacit plan` prints fits any window, tells of all that a run does, and calls no GPU a laptop."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from tacit.attack_stages import ATTACK_STAGES, AttackStage, Cost, NoisyTraining
from tacit.config import RunConfig, load_config, parse_config
from tacit.pipeline.stages import stages as run_stages
from tacit.planning import RunPlan, make_plan
from tacit.planning.cost import sequence_flops
from tacit.planning.duration import LAPTOP_SECONDS
from tacit.planning.text import plan_html, plan_text, wrapped

from .architectures import ALL, architecture_folder
from .small import small_values

RECIPES = sorted((Path(__file__).parents[1] / "recipes").glob("*.yaml"))
RUNS = [path for path in RECIPES if "\nphases:" in path.read_text() and path.stem != "dp-entities"]
NUMBER = re.compile(r"(?<![\w.,-])-?\d[\d,.]*(?:e-?\d+)?(?![\w])")


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunPlan]:
    """Of all recipes that are runs; the one that starts from another recipe's release gets a model in its place."""
    llama = dataclasses.replace(ALL["llama"], changes={"max_position_embeddings": 64})
    given = architecture_folder(llama, tmp_path_factory.mktemp("recipes") / "llama")
    instead = {"llama-lora": (f"model.folder={given}", "model.public=true")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_DATA", "/nowhere")
        return {path.stem: make_plan(load_config(path, instead.get(path.stem, ()))) for path in RUNS}


def too_wide(text: str, width: int) -> list[str]:
    return [line for line in text.splitlines() if len(line) > width]


def numbers(text: str) -> list[str]:
    return [found.strip(",.") for found in NUMBER.findall(text)]


@pytest.mark.slow
def test_there_are_plans_of_every_sort(plans: dict[str, RunPlan]) -> None:
    assert {"adp-wikitext", "clinical-bert-large", "crt-customersim", "llama-lora"} <= plans.keys()


def test_it_fits_eighty_columns_and_no_number_is_cut(plans: dict[str, RunPlan]) -> None:
    for name, plan in plans.items():
        narrow, wide = plan_text(plan, 80), plan_text(plan, 10_000)
        assert too_wide(narrow, 80) == [], name
        assert numbers(narrow) == numbers(wide), name


def test_what_the_check_must_find(plans: dict[str, RunPlan]) -> None:
    """A table of all columns, and a window that cuts lines wherever it ends."""
    plan = plans["adp-wikitext"]
    wide = plan_text(plan, 10_000)
    assert too_wide(wide, 80)
    cut = "\n".join(line[start : start + 13] for line in wide.splitlines() for start in range(0, len(line), 13))
    assert numbers(cut) != numbers(wide)


def test_a_number_stays_with_its_name() -> None:
    assert "noise_multiplier\n" not in wrapped("a stage that has: noise_multiplier\xa00.6073, normaliser\xa0512", 40)


def shown_stages(plan: RunPlan) -> list[str]:
    return [line.split()[0] for line in plan_text(plan, 80).split("\n\n")[0].splitlines()[2:]]


def small_plan(folder: Path, **sections: Any) -> RunPlan:
    return make_plan(parse_config(small_values(folder, **sections)))


def test_every_stage_of_a_run_has_its_line(tmp_path: Path) -> None:
    """Those of `tacit run`; its training stages are the phases."""
    config = parse_config(small_values(tmp_path))
    asked = [stage.name for stage in run_stages() if stage.asked(config)]
    phases = {"pretraining": "public", "training": "private"}
    shown = shown_stages(make_plan(config))
    assert shown == ["planning", *(phases.get(name, name) for name in asked)]


def test_control_and_audit_take_time(tmp_path: Path) -> None:
    seconds = {one.name: one.seconds for one in small_plan(tmp_path).work}
    assert all(seconds.values())
    without, with_it = small_plan(tmp_path, audit=None).seconds, small_plan(tmp_path).seconds
    assert without is not None
    assert with_it is not None
    assert without < with_it
    assert {"control", "audit"}.isdisjoint(shown_stages(small_plan(tmp_path, audit=None)))


def test_an_attack_takes_what_its_row_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of this file; without it the time of an attack in ``audit.attacks`` is unknown."""
    audit = {"attacks": {"toy": {}}, "canaries": 2}
    without = {one.name: one.seconds for one in small_plan(tmp_path, audit=audit).work}
    assert without["toy"] is None

    def cost(config: RunConfig, training: NoisyTraining) -> Cost | None:
        is_asked = config.audit is not None and "toy" in config.audit.attacks
        return Cost(7.0, scored=300.0, trained=training.steps) if is_asked else None

    monkeypatch.setitem(ATTACK_STAGES, "toy", AttackStage("nowhere:TOY", cost))
    config = parse_config(small_values(tmp_path, audit=audit))
    plan = make_plan(config)
    found = {one.name: one.seconds for one in plan.work}
    assert found["toy"] == pytest.approx(7 + (300 / 3 + 12) * sequence_flops(config) / 6e10)
    assert {name: seconds for name, seconds in found.items() if name != "toy"} == {
        name: seconds for name, seconds in without.items() if name != "toy"
    }
    assert "toy" in shown_stages(plan)
    assert "toy" not in shown_stages(small_plan(tmp_path, audit={"canaries": 2}))


def test_the_exposure_takes_what_its_rows_take(tmp_path: Path) -> None:
    """Canaries times contexts times patterns, of the released model and of its control."""
    config = parse_config(small_values(tmp_path))
    (audit,) = [one for one in make_plan(config).work if one.name == "audit"]
    assert audit.seconds == pytest.approx(1 + 2 * 3 * 2 * 3 / 3 * sequence_flops(config) / 6e10)


def test_the_control_takes_as_many_steps_as_it_is_going_to(tmp_path: Path) -> None:
    audit = {"control": True, "control_steps": 7, "canaries": 3}
    (control,) = [one for one in small_plan(tmp_path, audit=audit).work if one.name == "control"]
    assert control.steps == 7
    (control,) = [one for one in small_plan(tmp_path, audit={"control": True}).work if one.name == "control"]
    assert control.steps == 59  # 25 showings of 150 units in batches of 64


def test_a_control_without_noise_takes_what_the_phase_takes(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, audit={"control": "without-noise"})
    (control,) = [one for one in plan.work if one.name == "control"]
    (private,) = [one for one in plan.stages if one.name == "private"]
    assert control.steps == 12
    assert control.seconds == pytest.approx(private.seconds)


def test_a_gpu_is_unknown(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, compute={"device": "cuda"})
    text = plan_text(plan, 80)
    assert plan.seconds is None
    assert plan.to_dict()["seconds"] is None
    assert "laptop cores, and how fast your GPU is is not known" in " ".join(text.split())
    assert {line.split()[0] for line in text.splitlines() if line.endswith("unknown")} == {
        "public",
        "private",
        "control",
        "evaluation",
        "audit",
    }
    assert "unknown" not in plan_text(small_plan(tmp_path), 80)


def test_what_is_too_large_for_a_laptop_is_never_timed_on_one(plans: dict[str, RunPlan]) -> None:
    large = plans["clinical-bert-large"]
    assert large.seconds is None
    for plan in plans.values():
        text = plan_text(plan, 80)
        assert plan.seconds is None or plan.seconds <= LAPTOP_SECONDS
        assert not re.search(r"\d{3,} min", text)
    assert "time unknown" in plan_text(large, 200)


def test_rounds_that_run_alike_are_told_of_once(plans: dict[str, RunPlan]) -> None:
    text = plan_text(plans["crt-customersim"], 80)
    assert "private-1 to private-3: DP-SGD" in text
    assert text.count("sampling_probability") == 1


def test_a_notebook_shows_the_same(plans: dict[str, RunPlan]) -> None:
    plan = plans["clinical-bert-large"]
    assert plan._repr_html_() == plan_html(plan)
    assert plan_text(plan, 100).splitlines()[3] in plan_html(plan)


def test_markup_of_a_configuration_does_not_act_in_a_notebook(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    import dataclasses

    hostile = dataclasses.replace(plan, notes=("<script>alert(1)</script>",))
    assert "<script>" in plan_text(hostile, 100)
    assert "<script>" not in plan_html(hostile)

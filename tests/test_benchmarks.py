"""benchmarks/engine.py: its arithmetic, its bars, and that each of its methods computes what it is timed for. No timings."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def command() -> Iterator[ModuleType]:
    """The command as a module; the package beside it has its name, so the command goes by another one."""
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location("engine_command", FOLDER / "engine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(FOLDER))


def times(ordinary: list[float], tacit: list[float]) -> dict[str, list[float]]:
    return {"ordinary": ordinary, "tacit": tacit}


def rows(command: ModuleType, ratio: float | None, peak: float | None) -> list[object]:
    """BERT's ordinary row with a net peak of 200 MiB, and a private one."""
    memory = None if peak is None else command.Memory(100.0, 40.0, peak)
    return [
        command.Row("bert", "ordinary", "ordinary", 100.0, 1.0, memory=command.Memory(100.0, 40.0, 300.0)),
        command.Row("bert", "tacit", "ordinary", 100.0, ratio, memory=memory),
    ]


def failed(command: ModuleType, ratio: float | None, peak: float | None) -> list[str]:
    return command.failed_bars(command.Results("here", tuple(rows(command, ratio, peak)), ()))


def test_the_ratio_is_the_median_of_the_ratios_within_rounds(command: ModuleType) -> None:
    """Not the ratio of the medians, which is 1.2 here."""
    row = command.timed_row("bert", "tacit", times([1.0, 2.0, 10.0], [1.1, 2.4, 11.0]))
    assert row.ratio == pytest.approx(1.1)
    assert row.milliseconds == pytest.approx(2400)


def test_every_method_begins_a_round_once(command: ModuleType) -> None:
    names = ["a", "b", "c"]
    turns = [command.rotated(names, turn) for turn in range(3)]
    assert [turn[0] for turn in turns] == names
    assert all(sorted(turn) == names for turn in turns)


def test_a_bar_is_met_up_to_its_value_and_missed_above(command: ModuleType) -> None:
    assert failed(command, 1.15, 350.0) == []  # net memory 250 of 200: 1.25
    assert failed(command, 1.16, 350.0) == ["bert, tacit: time 1.16 > 1.15"]
    assert failed(command, 1.15, 352.0) == ["bert, tacit: memory 1.26 > 1.25"]


def test_a_bar_that_was_not_measured_is_missed(command: ModuleType) -> None:
    assert failed(command, None, None) == ["bert, tacit: time - > 1.15, memory - > 1.25"]


def test_a_faster_peer_is_named_where_peers_must_be_beaten(command: ModuleType) -> None:
    case = "gpt2-small-cuda"
    peers = [command.Row(case, "tacit", "ordinary", 100.0, 1.0), command.Row(case, "vmap", "ordinary", 99.0, 0.99)]
    assert command.failed_bars(command.Results("", tuple(peers), ())) == [f"{case}, tacit: slower than vmap(grad)"]


def test_results_survive_json_and_later_runs_replace_earlier_ones(command: ModuleType) -> None:
    old = command.Results(
        "here", tuple(rows(command, 1.3, 350.0)), (command.logical_row("bert", 64, 16, [(4, 1, 1, 9)]),)
    )
    assert command.Results.from_json(json.loads(json.dumps(old.to_json()))) == old
    new = command.Results("here", tuple(rows(command, 1.1, 350.0)), ())
    merged = command.merge([old, new])
    assert merged.rows == new.rows
    assert merged.logical == old.logical


def test_a_large_logical_batch_is_extrapolated_from_the_micro_batches_that_ran(command: ModuleType) -> None:
    """8,192 micro-batches of 2 s, noise and optimizer once: (8192 * 2 + 3 + 1) / 131072 s a unit."""
    run = command.LOGICAL_MOST_MICRO_BATCHES
    row = command.logical_row("bert", 131_072, 16, [(2.0 * run, 3.0, 1.0, 500.0)])
    assert row.milliseconds_per_unit == pytest.approx(1000 * (8192 * 2 + 4) / 131_072)
    assert row.noise_share == pytest.approx(3 / (8192 * 2 + 4))
    assert (row.micro_batches, row.run) == (8192, run)


def test_adam_holds_two_tensors_a_parameter(command: ModuleType) -> None:
    model = nn.Linear(1024, 512, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 1024)).sum().backward()
    optimizer.step()
    step = command.Step(optimizer.step, model, list(model.parameters()), optimizer)
    assert command.states_mib(step) == pytest.approx(3 * 2, rel=1e-4)  # 2 MiB each


def test_what_a_wanted_method_is_divided_by_is_measured_too(command: ModuleType) -> None:
    assert command.with_references("bert", ["opacus", "tacit"]) == ["ordinary", "tacit", "ordinary-untied", "opacus"]
    assert command.with_references("lstm", ["opacus"]) == ["ordinary", "opacus"]


def test_an_unknown_case_is_refused(command: ModuleType) -> None:
    assert command.parse(["--cases", "bert"]).cases == ["bert"]
    assert command.parse(["--markdown"]).markdown == "-"
    with pytest.raises(SystemExit):
        command.parse(["--cases", "no-such-case"])


def test_a_failure_is_a_line_below_the_table(command: ModuleType) -> None:
    found = [*rows(command, 1.1, 350.0), command.Row("bert", "vmap", "ordinary", failure="fails: Error: why")]
    table = command.case_table("bert", found).splitlines()
    assert table[-1] == "- vmap(grad) fails: Error: why"
    lines = [line for line in table if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == [
        *("tacit", "100.0", "1.10", "1.15", "1.25", "1.25", "250", "1.17", "1.31", "-", "yes")
    ]


def test_the_page_has_one_block_and_writing_it_twice_changes_nothing(command: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text((FOLDER.parent / "docs" / "benchmarks.md").read_text())
    command.read_and_replace(page, "new numbers")
    once = page.read_text()
    command.read_and_replace(page, "new numbers")
    assert page.read_text() == once
    assert once.count("new numbers") == 1
    page.write_text("no markers")
    with pytest.raises(ValueError, match="once each"):
        command.read_and_replace(page, "new numbers")


TINY = {"batch": 3, "length": 32, "layers": 1, "width": 16, "heads": 2, "vocabulary": 50}


@pytest.mark.parametrize("name", ["bert", "gpt2", "lstm", "lora", "llama"])
def test_every_method_computes_the_clipped_mean_that_a_loop_computes(command: ModuleType, name: str) -> None:
    """At a small size. An ordinary step, which does not clip, must not pass the same check."""
    case = replace(command.CASES[name], shape=type(command.CASES[name].shape)(**TINY))
    for method in case.methods:
        step = command.set_up(case, method)
        step.run()
        error = command.clipping_error(step, command.loop_gradient(case, command.variant_of(case, method)))
        assert (error < 1e-4) == command.METHODS[method].clips, f"{method}: {error}"


def test_made_up_text_has_as_many_distinct_words_as_it_says() -> None:
    spec = importlib.util.spec_from_file_location("vocabulary_command", FOLDER / "vocabulary.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its frozen dataclasses look themselves up
    spec.loader.exec_module(module)
    made_up = module.MadeUpText(5_000)
    units = list(made_up)
    words = [word for _, (text,) in units for word in text.split()]
    assert len(words) == made_up.words
    assert len({word for word in words if not word.startswith("common")}) == 5_000
    assert len({name for name, _ in units}) == made_up.units == 50

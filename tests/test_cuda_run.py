"""On a CUDA device, where there is one: whole runs of every kind come to the same files twice, with the account of a CPU's run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hostile.cases import CASES

from .goldens import outcome, recorded
from .small import tacit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")

RECORDED = recorded()
KINDS = [
    name for name, case in CASES.items() if not case.os_noise
]  # the others' vocabularies have nothing to do with a GPU


@pytest.mark.parametrize("name", KINDS)
def test_a_run_on_a_gpu_is_the_same_twice_and_has_the_account_of_a_cpus(name: str, tmp_path: Path) -> None:
    found = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        compute = {**CASES[name].values(Path()).get("compute", {}), "device": "cuda"}
        found.append(outcome(name, folder, RECORDED[name]["noise"], changed={"compute": compute}))
    assert found[0] == found[1]
    assert found[0]["portable"] == RECORDED[name]["portable"]
    done = tacit("verify", tmp_path / "0" / "run")
    assert done.returncode == 0, done.stderr

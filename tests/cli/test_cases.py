"""The commands of the case studies (docs/cases), one after another from an empty folder, with fewer steps and a smaller network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tacit.release.alone import verify_release

from .calling import Tacit

CASES = sorted((Path(__file__).parents[2] / "docs" / "cases").glob("*.md"))
FEW = {
    "clinical-notes": ("phases.public.steps=3", "phases.private.steps=2", "audit.control_steps=2", "model.layers=1"),
    "support-chats": ("phases.public.steps=2", "phases.private.steps=2", "rounds=1", "audit.control_steps=2"),
    "user-chats": (
        "phases.public.steps=3",
        "phases.private.steps=2",
        "audit.control_steps=2",
        "model.layers=1",
        "model.heads=2",
    ),
}
SMALLER = (
    "audit.canaries=1",
    "audit.digits=3",
    "phases.public.batch_size=8",
    "phases.private.expected_batch=20",
    "evaluation.public_sequences=32",
    "model.width=16",
)


def commands_of(page: Path) -> list[list[str]]:
    block = re.search(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block
    return [line.split()[1:] for line in block.group(1).splitlines() if line.startswith("tacit ")]


@pytest.mark.slow
@pytest.mark.parametrize("page", CASES, ids=lambda page: page.stem)
def test_the_commands_of_a_case_lead_to_a_verified_release(
    page: Path, tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [word for one in (*FEW[page.stem], *SMALLER) for word in ("--set", one)]
    for command in commands_of(page):
        done = tacit(*command, *(settings if command[0] in ("plan", "run") else []))
        assert done.code == 0, (command, done.err)
        if command[0] == "init":
            for corpus in tmp_path.glob("*.jsonl"):
                corpus.write_text(
                    "".join(corpus.read_text(encoding="utf-8").splitlines(keepends=True)[:400]), encoding="utf-8"
                )
    assert all(check.holds for check in verify_release(tmp_path / "runs" / page.stem / "release"))


def test_every_case_is_of_a_packaged_recipe() -> None:
    assert {page.stem for page in CASES} == set(FEW)
    assert all(["init", "--recipe", page.stem] in commands_of(page) for page in CASES)

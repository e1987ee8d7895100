"""Who has only the wheel has all of it: it is built, installed into an empty environment, and used from an empty folder."""

from __future__ import annotations

import csv
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from tacit.corpus.synthetic import SyntheticPrivate, write_private
from tacit.privacy.strict_json import read_number

from .building import ROOT, Built, Installed, build, install, tracked

pytestmark = pytest.mark.slow

DATA = """
from importlib.resources import files
from pathlib import Path
import tacit
from tacit.corpus.synthetic import SyntheticPrivate, SyntheticPublic, write_private, write_public

data = Path("runs/demo-data")
data.mkdir(parents=True)
write_private(data / "notes.jsonl", SyntheticPrivate())
write_public(data / "public.jsonl", SyntheticPublic())
Path("demo.yaml").write_text(files("tacit").joinpath("recipes/demo.yaml").read_text(encoding="utf-8"), encoding="utf-8")
print(tacit.__file__)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(built.wheel, tmp_path_factory.mktemp("environment"))


def of_the_package() -> set[str]:
    return {name.removeprefix("src/") for name in tracked() if name.startswith("src/")}


def in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_every_file_of_the_package_and_no_other(built: Built) -> None:
    """Templates, policies, lists of words and recipes too: a file that ``package-data`` forgets is seen here."""
    assert in_wheel(built.wheel) == of_the_package()
    assert {"tacit/recipes/demo.yaml", "tacit/py.typed", "tacit/report/templates/report.html.j2"} <= in_wheel(
        built.wheel
    )


def test_the_source_archive_holds_what_the_wheel_is_built_from(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in of_the_package()} | {"pyproject.toml", "README.md", "LICENSE"} <= names


def test_the_same_files_give_the_same_bytes(built: Built, tmp_path: Path) -> None:
    again = build(tmp_path)
    assert again.sdist.read_bytes() == built.sdist.read_bytes()
    assert again.wheel.read_bytes() == built.wheel.read_bytes()


def test_the_demo_is_planned_from_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    made = installed.run("python", "-c", DATA, where=tmp_path)
    assert made.returncode == 0, made.stderr
    assert Path(made.stdout.strip()).is_relative_to(installed.folder), "it is the wheel's tacit"
    planned = installed.run("tacit", "plan", "demo.yaml", "--json", where=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["epsilon"] <= 8.0
    assert not Path(tmp_path / "runs" / "demo").exists(), "a plan begins nothing"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("tacit", "--help"), "verify"),
        (("python", "-m", "tacit", "--help"), "verify"),
        (("tacit", "env"), "opendp"),
        (("tacit", "accountant", "--help"), "epsilon"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_commands_answer_from_an_empty_folder(
    installed: Installed, tmp_path: Path, command: tuple[str, ...], said: str
) -> None:
    done = installed.run(*command, where=tmp_path)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert str(ROOT) not in done.stdout + done.stderr


def test_policies_and_lists_of_words_are_there(installed: Installed, tmp_path: Path) -> None:
    text = "Call 555-123-4567 about the order of Maria Schneider."
    gold = {"text": text, "spans": [[text.index("555"), text.index(" about"), "PHONE"]]}
    (tmp_path / "gold.jsonl").write_text(json.dumps(gold) + "\n", encoding="utf-8")
    done = installed.run("tacit", "screen", "--measure", "gold.jsonl", "--json", where=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"balanced", "conservative"} <= json.loads(done.stdout).keys()


def write_rows(path: Path, rows: int) -> int:
    """A CSV file of so many made-up notes, and how many patients they are of."""
    write_private(path.with_suffix(".jsonl"), SyntheticPrivate(patients=rows, notes_per_patient=(1, 2)))
    notes = [json.loads(line) for line in path.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()][:rows]
    path.with_suffix(".jsonl").unlink()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["note", "patient"])
        writer.writerows([note["text"], note["patient_id"]] for note in notes)
    return len({note["patient_id"] for note in notes})


def test_six_commands_lead_from_a_csv_file_to_a_certified_model(installed: Installed, tmp_path: Path) -> None:
    """No editor, and nothing but the wheel and 5,000 rows. ``--set`` makes it small; what is certified does not change."""
    assert write_rows(tmp_path / "notes.csv", 5000) > 3000
    few = (
        "phases.public.steps=5",
        "phases.public.batch_size=16",
        "phases.private.steps=3",
        "phases.private.expected_batch=50",
        "audit.control_steps=3",
        "evaluation.held_out=0.02",
        "model.layers=1",
        "model.width=32",
    )
    settings = [word for one in few for word in ("--set", one)]
    said = []
    for command in (
        ["init", "notes.csv", "--text", "note", "--user", "patient", "--units", "3300"],
        ["plan", "notes.yaml", *settings],
        ["run", "notes.yaml", *settings],
        ["verify", "runs/notes"],
        ["report", "runs/notes"],
        ["ledger", "runs/notes"],
    ):
        done = installed.run("tacit", *command, where=tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        assert "Traceback" not in done.stderr
        said.append(done.stdout)
    assert "tacit plan notes.yaml" in said[0], "each command says the next one"
    release = tmp_path / "runs" / "notes" / "release"
    certificate = json.loads((release / "certificate.json").read_text(encoding="utf-8"))
    assert (certificate["status"], certificate["unit"], certificate["units"]) == ("proved", "user", 3300)
    assert read_number(certificate["epsilons"][0]["epsilon"]) <= 8.0
    assert {"README.md", "report.html", "manifest.json"} <= {file.name for file in release.iterdir()}
    assert (release / "model" / "model.safetensors").stat().st_size > 0

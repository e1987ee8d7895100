"""`tacit init`: a configuration that plans, from names of fields and answers; nothing of the text is in it, nor how much there is."""

from __future__ import annotations

import csv
import gzip
import json
import os
import pty
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.cli.made_up import PUBLIC
from tacit.cli.recipes import RECIPES
from tacit.config.load import load_config
from tacit.config.starting import PublicText, Start, written
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source

from ..architectures import ALL, architecture_folder
from ..object_store import open_store
from .calling import Tacit, assert_one_line

PRIVATE = "zqprivateword"
ROWS = 1237  # of which no digit may be seen


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows() -> list[dict[str, str]]:
    return [{"note_id": f"n{i}", "patient": f"p{i // 3}", "note": f"{PRIVATE} {i}"} for i in range(ROWS)]


def write_csv(path: Path, names: tuple[str, ...] = ("note_id", "patient", "note")) -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, names, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows())
    return path


def write_jsonl(path: Path) -> Path:
    lines = "".join(json.dumps(row) + "\n" for row in rows())
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines)
    return path


def write_parquet(path: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(rows()), path)
    return path


def write_folder(path: Path) -> Path:
    path.mkdir()
    for number in range(3):
        write_jsonl(path / f"part-{number}.jsonl")
    return path


def write_saved(path: Path) -> Path:
    """As ``save_to_disk`` of `datasets` leaves it."""
    path.mkdir()
    table = pa.Table.from_pylist(rows())
    with pa.ipc.new_stream(path / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (path / "dataset_info.json").write_text("{}")
    return path


FIELDS = ("--text", "note", "--user", "patient", "--id", "note_id")
UNITS = ("--units", "400")
FORMATS = {
    "notes.csv": write_csv,
    "notes.jsonl": write_jsonl,
    "notes.jsonl.gz": write_jsonl,
    "notes.parquet": write_parquet,
    "notes": write_folder,
    "notes.d": write_saved,
}


def test_text_in_an_object_store_is_begun_with_by_its_address(
    tacit: Tacit, folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a public file is."""
    stored = tmp_path_factory.mktemp("stored")
    (stored / "table" / "day=1").mkdir(parents=True)
    write_csv(stored / "table" / "day=1" / "part-0.csv")
    (stored / "articles.txt").write_text("a public text\n")
    with open_store(stored, monkeypatch) as store:
        addresses = {"private": store.uri("table"), "public": store.uri("articles.txt")}
        done = tacit("init", addresses["private"], *FIELDS, *UNITS, "--public", addresses["public"])
        assert done.code == 0, done.err
        config = load_config(Path("table.yaml"))
        assert config.private.path == addresses["private"]
        assert config.public[0].path == addresses["public"]
        assert next(iter(read_records(config.private.source))).text == f"{PRIVATE} 0"
        assert_one_line(tacit("init", store.uri("none.csv"), *FIELDS, *UNITS), 4)
    for place in folder.iterdir():
        assert PRIVATE not in place.read_text()


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_a_configuration(tacit: Tacit, folder: Path, name: str) -> None:
    FORMATS[name](Path(name))
    done = tacit("init", name, *FIELDS, *UNITS)
    assert done.code == 0, done.err
    text = Path("notes.yaml").read_text()
    config = load_config(Path("notes.yaml"))
    assert (config.privacy.unit, config.privacy.units, config.privacy.budget.epsilon) == ("user", 400, 8.0)
    assert (config.private.text_field, config.private.id_field, config.private.user_field) == (
        "note",
        "note_id",
        "patient",
    )
    assert next(iter(read_records(Source(config.private.resolved_path, text_field="note")))).text == f"{PRIVATE} 0"
    assert config.public[0].resolved_path.is_file()
    for said in (text, done.out):
        assert PRIVATE not in said
        assert str(ROWS) not in said.replace(",", "")
    assert "tacit plan notes.yaml" in done.out
    assert "tacit run notes.yaml" in done.out


def test_the_next_commands_are_of_whole_words(tacit: Tacit, folder: Path) -> None:
    """As a shell reads them, also where names have spaces."""
    write_csv(Path("notes.csv"))
    done = tacit("init", "notes.csv", *FIELDS, *UNITS, "--out", "my notes.yaml")
    assert done.code == 0, done.err
    lines = done.out.split("Next:\n")[1].split("      what")[0] + done.out.split("anything is spent")[1]
    assert [shlex.split(line) for line in lines.splitlines()] == [
        ["tacit", "plan", "my notes.yaml"],
        ["tacit", "run", "my notes.yaml"],
        ["tacit", "verify", "runs/my notes"],
        ["tacit", "report", "runs/my notes"],
    ]


def test_plain_text_has_no_fields(tacit: Tacit, folder: Path) -> None:
    Path("lines.txt").write_text(f"{PRIVATE}\n" * 50)
    assert tacit("init", "lines.txt", *UNITS).code == 0
    config = load_config(Path("lines.yaml"))
    assert config.privacy.unit == "record"
    assert len(list(read_records(Source(config.private.resolved_path)))) == 50
    assert_one_line(tacit("init", "lines.txt", "--text", "x", *UNITS, "--out", "b.yaml"), 2, "no fields")


def test_that_a_record_is_a_line_is_said_of_plain_text(tacit: Tacit, folder: Path) -> None:
    """Whoever has a folder of notes, a file each, may think that each file is one."""
    said = "record is a line of a file"
    Path("notes").mkdir()
    for name in ("a", "b"):
        Path(f"notes/{name}.txt").write_text(f"{PRIVATE}\n" * 20)
    done = tacit("init", "notes", *UNITS)
    assert done.code == 0, done.err
    assert f"notes: a {said}" in done.out
    assert f"# A {said}" in Path("notes.yaml").read_text()
    assert len(list(read_records(Source(load_config(Path("notes.yaml")).private.resolved_path)))) == 40
    write_csv(Path("table.csv"))
    of_table = tacit("init", "table.csv", *FIELDS, *UNITS)
    assert said not in of_table.out + Path("table.yaml").read_text()


@pytest.mark.parametrize("first", [f"{PRIVATE} Miller,cough", f"anna,{PRIVATE} since May"])
def test_a_first_row_that_may_be_text_is_not_shown(tacit: Tacit, folder: Path, first: str) -> None:
    """It was listed as names of fields, in an error on a terminal that others may see."""
    Path("notes.csv").write_text(f"{first}\nzq,zq\n")
    for options in (("--text", "chat"), ("--text", first.split(",")[0], "--user", "who"), ()):
        done = tacit("init", "notes.csv", *options, *UNITS)
        assert_one_line(done, 2, "2 columns, and its first row must hold their names")
        assert PRIVATE not in done.err.replace(" ".join(options), "")
    Path("named.csv").write_text("note id,chat text\na,b\n")  # such names may be used, and are not shown
    assert tacit("init", "named.csv", "--text", "chat text", *UNITS).code == 0


@pytest.mark.parametrize("name", ["mistral", "roberta"])
def test_a_given_model_gets_an_adapter_and_needs_no_public_text(tacit: Tacit, folder: Path, name: str) -> None:
    architecture_folder(ALL[name], Path("models-x"))
    write_csv(Path("notes.csv"))
    done = tacit("init", "notes.csv", *FIELDS, *UNITS, "--model-folder", "models-x")
    assert done.code == 0, done.err
    config = load_config(Path("notes.yaml"))
    assert config.model.adapter is not None
    assert config.model.public
    assert config.model.is_causal != ALL[name].masked
    assert not config.public
    assert not Path("public-text.jsonl").exists()
    assert tacit("plan", "notes.yaml").code == 0
    assert PRIVATE not in Path("notes.yaml").read_text()
    assert_one_line(
        tacit("init", "notes.csv", *FIELDS, *UNITS, "--model-folder", "org/name", "--out", "b.yaml"), 4, "hf download"
    )


@pytest.mark.slow
def test_conversations_are_for_a_model_that_writes_on(tacit: Tacit, folder: Path) -> None:
    talk = [{"role": "user", "content": PRIVATE}, {"role": "assistant", "content": PRIVATE}]
    Path("talks.jsonl").write_text((json.dumps({"messages": talk, "who": "p1"}) + "\n") * 50)
    options = ("--messages", "messages", "--user", "who", *UNITS)
    done = tacit("init", "talks.jsonl", *options, "--model", "gpt2")
    assert done.code == 0, done.err
    config = load_config(Path("talks.yaml"))
    assert config.private.messages == "messages"
    assert PRIVATE not in Path("talks.yaml").read_text()
    assert tacit("plan", "talks.yaml").code == 0
    assert_one_line(tacit("init", "talks.jsonl", *options, "--out", "b.yaml"), 2, "for a model that writes on")
    assert_one_line(tacit("init", "talks.jsonl", "--text", "who", *options, "--out", "b.yaml"), 2, "name one of them")


@pytest.mark.parametrize("model", ["bert", "gpt2", "lstm"])
@pytest.mark.parametrize("units", [8, 1700, 250_000])
def test_each_model_and_size_is_valid(tmp_path: Path, model: str, units: int) -> None:
    """With names that YAML reads as something else."""
    for user, document, unit in ((None, None, "record"), (None, "no", "document"), ("12: #a", "true", "user")):
        start = Start(
            "a: b",
            "runs/a b",
            "tacit.schema.json",
            "dä ta.csv",
            (PublicText("p.jsonl", None),),
            "null",
            document,
            user,
            units,
            0.5,
            model,  # type: ignore[arg-type]
        )
        (tmp_path / "a.yaml").write_text(written(start))
        config = load_config(tmp_path / "a.yaml")
        assert (config.privacy.unit, config.private.user_field, config.private.id_field) == (unit, user, document)
        assert config.private.text_field == "null"
        assert config.privacy.budget.delta <= 0.1001 / units
        assert config.dp_phases[0].expected_batch <= units
        assert all(len(line) <= 140 for line in written(start).splitlines())


@pytest.mark.slow
def test_what_is_written_plans(tacit: Tacit, folder: Path) -> None:
    write_csv(Path("notes.csv"))
    assert tacit("init", "notes.csv", *FIELDS, "--units", "1700", "--epsilon", "3").code == 0
    done = tacit("plan", "notes.yaml", "--json")
    assert done.code == 0, done.err
    assert 2.9 < done.json["epsilon"] <= 3
    Path("notes.csv").unlink()  # a plan reads no text
    changed = tacit(
        "plan", "notes.yaml", "--json", "--set", "privacy.budget.epsilon=6", "--set", "phases.private.steps=20"
    )
    assert 5.8 < changed.json["epsilon"] <= 6
    assert [stage["steps"] for stage in changed.json["stages"] if stage["name"] == "private"] == [20]


def test_relative_paths_lead_from_the_file(tacit: Tacit, folder: Path) -> None:
    write_csv(Path("notes.csv"))
    Path("configs").mkdir()
    Path("public.txt").write_text("public words\n")
    out = Path("configs/a.yaml")
    assert tacit("init", "notes.csv", *FIELDS, *UNITS, "--public", "public.txt", "--out", out).code == 0
    config = load_config(out)
    assert config.private.path == "../notes.csv"
    assert config.private.resolved_path.resolve() == folder / "notes.csv"
    assert config.public[0].resolved_path.resolve() == folder / "public.txt"
    assert config.resolved_run.resolve() == folder / "configs" / "runs" / "a"
    far = tacit("init", folder / "notes.csv", *FIELDS, *UNITS, "--out", "b.yaml")
    assert far.code == 0
    assert load_config(Path("b.yaml")).private.path == str(folder / "notes.csv")


def test_the_public_text_has_a_field_of_the_private_texts_name(tacit: Tacit, folder: Path) -> None:
    write_csv(Path("notes.csv"))
    write_jsonl(Path("other.jsonl"))
    Path("wrong.jsonl").write_text('{"body": "a"}\n')
    arguments = ("init", "notes.csv", *FIELDS, *UNITS, "--public")
    assert_one_line(tacit(*arguments, "wrong.jsonl"), 2, "--public wrong.jsonl", "body")
    assert_one_line(tacit(*arguments, "gone.jsonl"), 2, "--public gone.jsonl")
    assert not Path("notes.yaml").exists()
    assert tacit(*arguments, "other.jsonl").code == 0
    assert load_config(Path("notes.yaml")).public[0].text_field == "note"


MISSING = [
    ((), 2, ("name the file",)),
    (("gone.csv",), 4, ("gone.csv",)),
    (("notes.csv",), 2, ("--text is missing", "note_id, patient, note")),
    (("notes.csv", "--text", "body"), 2, ("--text body", "note_id, patient, note")),
    (("notes.csv", "--text", "note", "--user", "who"), 2, ("--user who", "note_id, patient, note")),
    (("notes.csv", "--text", "note"), 2, ("--units is missing", "records")),
    (("notes.csv", "--text", "note", "--user", "patient"), 2, ("--units is missing", "users")),
    (("notes.csv", "--text", "note", "--units", "3"), 2, ("--units 3",)),
    (("notes.csv", "--text", "note", "--units", "90", "--epsilon", "-1"), 2, ("--epsilon",)),
    (("notes.csv", "--text", "note", "--units", "90", "--model", "t5"), 2, ("--model t5", "gpt2")),
    (("notes.csv", "--text", "note", "--units", "90", "--out", "no/a.yaml"), 2, ("no", "folder")),
    (("--recipe", "nothing"), 2, ("--recipe nothing", "clinical-notes")),
    (("notes.csv", "--recipe", "clinical-notes"), 2, ("--recipe",)),
    (("headless.csv", "--text", "note"), 4, ("headless.csv", "header")),
    (("saved", "--text", "note"), 4, ("saved", "name the folder of one")),
]


@pytest.mark.parametrize(("arguments", "code", "says"), MISSING)
def test_off_a_terminal_one_line_says_what_is_missing(
    tacit: Tacit, folder: Path, arguments: tuple[str, ...], code: int, says: tuple[str, ...]
) -> None:
    write_csv(Path("notes.csv"))
    Path("headless.csv").write_text(f"17,{PRIVATE} came in with a cough and left\n")
    Path("saved").mkdir()
    Path("saved/dataset_dict.json").write_text('{"splits": ["train"]}')
    before = sorted(folder.rglob("*"))
    done = tacit("init", *arguments)
    assert_one_line(done, code, *says)
    assert PRIVATE not in done.err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"", "a.csv: the file is empty"),
        ("a.csv", b"\xef\xbb\xbf", "a.csv: the file is empty"),
        ("a.jsonl", b"", "a.jsonl: the file is empty"),
        ("a.json", b"", "a.json: the file is empty"),
        ("a.txt", b"", "a.txt: the file is empty"),
        ("a.jsonl.gz", gzip.compress(b""), "a.jsonl.gz: the file is empty"),
        ("a.jsonl.gz", b"\x1f\x8b\x08", "corrupted or cut short"),
        ("a.csv", b"text,caf\xe9\n1,2\n", "a.csv, line 1: this is not valid UTF-8"),
        ("a.csv", b"text,id\ncaf\xe9,2\n", "a.csv, line 2: this is not valid UTF-8"),
        ("a.jsonl", b'{"text": "caf\xe9"}\n', "a.jsonl, line 1: this is not valid UTF-8"),
        ("a.json", b'[{"text": "caf\xe9"}]\n', "this is not valid UTF-8"),
        ("a.jsonl", b'{"text": 3}\n', "a.jsonl, line 1: the field 'text' is not a string"),
    ],
)
def test_a_file_that_cannot_be_begun_with_says_why(
    tacit: Tacit, folder: Path, name: str, content: bytes, says: str
) -> None:
    Path(name).write_bytes(content)
    assert_one_line(tacit("init", name, *UNITS), 4, says)
    assert [entry.name for entry in folder.iterdir()] == [name]


def test_the_first_file_that_is_not_empty_has_the_names(tacit: Tacit, folder: Path) -> None:
    """Spark writes a file for each part, also where that has no rows."""
    write_folder(Path("notes"))
    Path("notes/part-0.jsonl").write_bytes(b"")
    assert tacit("init", "notes", *FIELDS, *UNITS).code == 0


@pytest.mark.parametrize("name", ["talks.jsonl", "talks.parquet"])
def test_conversations_are_not_taken_for_text(tacit: Tacit, folder: Path, name: str) -> None:
    """A configuration was written that `tacit plan` refuses."""
    talk = [{"role": "user", "content": PRIVATE}, {"role": "assistant", "content": PRIVATE}]
    if name.endswith("jsonl"):
        Path(name).write_text((json.dumps({"messages": talk, "who": "p1"}) + "\n") * 50)
    else:
        pq.write_table(pa.Table.from_pylist([{"messages": talk, "who": "p1"}] * 50), name)
    done = tacit("init", name, "--text", "messages", "--user", "who", *UNITS)
    assert_one_line(done, 2, "--text messages", "name it by --messages messages")
    assert_one_line(tacit("init", name, "--messages", "who", *UNITS, "--model", "gpt2"), 4, "who")
    assert PRIVATE not in done.err
    assert [entry.name for entry in folder.iterdir()] == [name]


def test_nothing_is_written_over(tacit: Tacit, folder: Path) -> None:
    write_csv(Path("notes.csv"))
    Path("notes.yaml").write_text("mine")
    assert_one_line(tacit("init", "notes.csv", *FIELDS, *UNITS), 2, "notes.yaml", "--out")
    assert_one_line(tacit("init", "--recipe", "user-chats", "--out", "notes.yaml"), 2, "notes.yaml")
    assert Path("notes.yaml").read_text() == "mine"


def _other(path: Path) -> None:
    path.write_text(json.dumps({"text": PRIVATE}) + "\n")


def _folder(path: Path) -> None:
    path.mkdir()


def _link_to_nothing(path: Path) -> None:
    path.symlink_to("gone.jsonl")


def _longer(path: Path) -> None:
    """The made-up text and one line more, as of somebody who added their own."""
    PUBLIC.write(path)
    path.write_text(path.read_text() + json.dumps({"text": PRIVATE}) + "\n")


@pytest.mark.parametrize("put", [_other, _longer, _folder, _link_to_nothing])
def test_what_has_the_name_of_made_up_text_is_not_taken_for_it(
    tacit: Tacit, folder: Path, put: Callable[[Path], None]
) -> None:
    """It would be listed as public, and learned without noise."""
    write_csv(Path("notes.csv"))
    put(Path("public-text.jsonl"))
    before = sorted(folder.rglob("*"))
    done = tacit("init", "notes.csv", *FIELDS, *UNITS)
    assert_one_line(done, 2, "public-text.jsonl is there already, and is not written over", "--public")
    assert PRIVATE not in done.err
    assert sorted(folder.rglob("*")) == before


def test_public_text_of_that_name_can_be_named(tacit: Tacit, folder: Path) -> None:
    write_csv(Path("notes.csv"))
    _other(Path("public-text.jsonl"))
    done = tacit("init", "notes.csv", *FIELDS, *UNITS, "--public", "public-text.jsonl")
    assert done.code == 0, done.err
    assert load_config(Path("notes.yaml")).public[0].path == "public-text.jsonl"
    assert "made-up" not in done.out


def test_made_up_text_that_is_there_is_used_again(tacit: Tacit, folder: Path) -> None:
    write_csv(Path("notes.csv"))
    for out in ("a.yaml", "b.yaml"):
        assert tacit("init", "notes.csv", *FIELDS, *UNITS, "--out", out).code == 0
    again = tacit("init", "--recipe", "clinical-notes")
    assert again.code == 0, again.err


@pytest.mark.parametrize("name", ["chats.jsonl", "public-text.jsonl"])
def test_a_recipe_takes_no_text_of_the_users_for_made_up(tacit: Tacit, folder: Path, name: str) -> None:
    _other(Path(name))
    before = sorted(folder.rglob("*"))
    done = tacit("init", "--recipe", "user-chats")
    assert_one_line(done, 2, f"{name} is there already, and is not written over", "--out")
    assert sorted(folder.rglob("*")) == before


def answers(folder: Path, arguments: list[str], lines: list[str]) -> tuple[int, str]:
    """The command on a terminal of its own, with these answers typed."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tacit", "init", *arguments]
    done = subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "200"}
    )
    os.close(theirs)
    os.write(ours, "".join(f"{line}\n" for line in lines).encode())
    said, end = b"", time.monotonic() + 120
    while time.monotonic() < end:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    return done.wait(10), said.decode()


def test_on_a_terminal_it_asks(folder: Path) -> None:
    write_csv(Path("notes.csv"))
    code, said = answers(folder, ["notes.csv"], ["nothing", "note", "patient", "500", ""])
    assert code == 0, said
    assert "note_id, patient, note" in said
    assert "There is no such field" in said
    config = load_config(folder / "notes.yaml")
    assert (config.private.text_field, config.private.user_field, config.privacy.units) == ("note", "patient", 500)
    assert config.public[0].path == "public-text.jsonl"


# recipes -------------------------------------------------------------------------------------------------------------


def test_the_list_names_every_recipe(tacit: Tacit, folder: Path) -> None:
    shown = tacit("init", "--list").out
    packaged = {path.stem for path in (Path(__file__).parents[2] / "src" / "tacit" / "recipes").glob("*.yaml")}
    assert packaged - {"demo"} == set(RECIPES)
    assert all(name in shown for name in RECIPES)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_brings_the_text_that_it_names(tacit: Tacit, folder: Path, name: str) -> None:
    done = tacit("init", "--recipe", name)
    assert done.code == 0, done.err
    config = load_config(Path(f"{name}.yaml"))
    corpora = [config.private, *config.public]
    for corpus in corpora:
        assert corpus.resolved_path.parent.resolve() == folder
        source = Source(corpus.resolved_path, id_field=corpus.id_field, user_field=corpus.user_field, limit=50)
        assert len(list(read_records(source))) == 50
    planned = tacit("plan", f"{name}.yaml", "--json")
    assert planned.code == 0, planned.err


def test_the_statement_of_units_is_near_what_the_made_up_text_has() -> None:
    """Only of made-up text may anybody count."""
    from tacit.corpus.synthetic import SyntheticPrivate
    from tacit.corpus.synthetic_chats import SyntheticChats

    folder = Path(__file__).parents[2] / "src" / "tacit" / "recipes"
    assert load_config(folder / "clinical-notes.yaml").privacy.units == SyntheticPrivate().patients
    assert load_config(folder / "user-chats.yaml").privacy.units == SyntheticChats().customers

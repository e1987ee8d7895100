"""Damaged corpora: bytes flipped, cut off, packed, nested, of other codings and forms, in every format that is read."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.dialogues import dialogue_values
from tests.entities.annotated import finetune_values
from tests.folders import bert_folder
from tests.small import SENTINEL, small_values

from hostile.attack import Attack, Outcome, Setting
from hostile.cases import config_in
from hostile.children import Child
from hostile.inputs import judged, try_input
from hostile.mutations import BYTES

__all__ = ["CORPORA"]

_EACH = 10
_RECORDS = 40
_SECOND = "zqvornak"
_SENTINELS = (SENTINEL, _SECOND)
Row = dict[str, Any]


def _records() -> list[Row]:
    """Notes with a secret of their own in text, id and user; é and a wide sign, so that codings differ; every third has none."""
    secret = "the patient reports pain, é 🩺; {0}{1} My name is Zqvornak{1} Wolkenstein."
    texts = ["the weather is mild and the road is dry", secret, secret]
    return [
        {
            "id": f"{SENTINEL}{number}",
            "who": f"{_SECOND}{number // 2}",
            "text": texts[number % 3].format(SENTINEL, number),
        }
        for number in range(_RECORDS)
    ]


def _as_csv(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([list(rows[0]), *(list(row.values()) for row in rows)])


def _as_conll(path: Path, rows: Sequence[Row]) -> None:
    blocks = (
        "".join(f"{token}\t{'B-name' if 'Zq' in token else 'O'}\n" for token in row["text"].split()) for row in rows
    )
    path.write_text("\n".join(blocks), encoding="utf-8")


def _as_lines(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


_WRITERS: dict[str, Callable[[Path, Sequence[Row]], object]] = {
    "jsonl": _as_lines,
    "json": lambda path, rows: path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8"),
    "csv": _as_csv,
    "parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(list(rows)), path),
    "conll": _as_conll,
    "txt": lambda path, rows: path.write_text("".join(row["text"] + "\n" for row in rows), encoding="utf-8"),
}
_FIELDS = ("jsonl", "json", "csv", "parquet")


def _private(path: Path, name: str) -> dict[str, Any]:
    fields = {"id_field": "id", "user_field": "who"} if name in _FIELDS else {}
    return {"path": str(path), **fields}


def _vocabulary(folder: Path, corpus: Path, name: str) -> list[str | Path]:
    """Words with noise, counted by text file or by person."""
    privacy = {"unit": "user" if name in _FIELDS else "record", "units": 20, "budget": {"epsilon": 30.0, "delta": 1e-4}}
    values = small_values(
        folder, privacy=privacy, private=_private(corpus, name), audit=None, evaluation={"held_out": 0.0}
    )
    return ["run", config_in(folder, values, folder / "run"), "--until", "vocabulary"]


def _screen(folder: Path, corpus: Path, name: str) -> list[str | Path]:
    phases = [
        {"name": "open", "plan": "plain", "stream": "screened", "steps": 2, "batch_size": 4, "learning_rate": 1e-3},
        {
            "name": "closed", "plan": "dp", "stream": "private", "steps": 2, "expected_batch": 4, "clip_norm": 1.0,
            "noise_multiplier": 2.0, "learning_rate": 1e-3,
        },
    ]  # fmt: skip
    screening = {"data_point": "line", "gamma": 0.01, "delta2": 0.00005}
    values = dialogue_values(folder, 40, private={"path": str(corpus)}, screening=screening, phases=phases)
    return ["screen", config_in(folder, values, folder / "run")]


def _overlap(folder: Path, corpus: Path, name: str) -> list[str | Path]:
    values = small_values(folder, private={"path": str(corpus)}, audit=None)
    privacy = {**values["privacy"], "unit": "record"}
    return ["overlap", config_in(folder, {**values, "privacy": privacy}, folder / "run")]


def _finetune(folder: Path, corpus: Path, name: str) -> list[str | Path]:
    """Without DP and one step: what is attacked is the reading."""
    start = folder.parent / "bert"
    values = finetune_values(folder, start, documents={"path": str(corpus)})
    values["training"] |= {"steps": 1}
    return ["finetune", config_in(folder, values, folder / "run")]


_COMMANDS = {"vocabulary": _vocabulary, "screen": _screen, "overlap": _overlap, "fine-tuning": _finetune}
_ROWS = tuple(
    f"{name}, {command}"
    for command in _COMMANDS
    for name in _WRITERS
    if (name == "conll" or command != "fine-tuning") and (command != "overlap" or name in ("jsonl", "csv", "parquet"))
)
_OTHER_ENDINGS = (
    ".jsonl",
    ".json",
    ".csv",
    ".parquet",
    ".conll",
    ".txt",
    ".txt.gz",
    ".jsonl.gz",
    ".csv.gz",
    "",
    ".pdf",
)


def _damaged(rng: random.Random, path: Path) -> tuple[str, Path]:
    """A way to damage this file, done; what it is called, and where it is now."""
    way = rng.choice((*BYTES, "another ending", "a folder", "a link to itself", "a link to a device", "a pipe"))
    target = path
    if way in BYTES:
        packed = way.startswith("packed") or way == "a bomb"
        target = path.with_name(path.name + ".gz") if packed and rng.random() < 0.7 else path
        data = BYTES[way](rng, path.read_bytes())
        path.unlink()
        target.write_bytes(data)
    elif way == "another ending":
        target = path.rename(path.with_name("corpus" + rng.choice(_OTHER_ENDINGS)))
    else:
        path.unlink()
        _odd_file(way, path)
    return way, target


def _odd_file(way: str, path: Path) -> None:
    import os

    {
        "a folder": lambda: path.mkdir(),
        "a link to itself": lambda: path.symlink_to(path),
        "a link to a device": lambda: path.symlink_to("/dev/full"),
        "a pipe": lambda: os.mkfifo(path),
    }[way]()


def _undamaged(folder: Path, name: str, command: str) -> Path:
    """A folder with a corpus, which is returned, and public text beside it."""
    folder.mkdir()
    public = [{"id": str(number), "text": f"public text of {number} words " * 3} for number in range(300)]
    _as_lines(folder / "public.jsonl", public)
    corpus = folder / f"corpus.{'bio' if command == 'fine-tuning' else name}"
    _WRITERS[name](corpus, _records())
    return corpus


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    name, command = row.split(", ")
    wrong, codes = [], []
    with setting.trial("corpora", row, number) as place:
        (place.folder / "bert").mkdir()
        if command == "fine-tuning":
            bert_folder(place.folder / "bert")
        if number == 0:  # what is refused, whatever the corpus, would be no trial
            whole = place.folder / "whole"
            ended = try_input(_COMMANDS[command](whole, _undamaged(whole, name, command), name), whole)
            said = judged(ended, whole, _SENTINELS, codes=(0,))
            wrong += [f"undamaged: {said}"] if said else []
        for attempt in range(_EACH):
            folder = place.folder / f"at-{attempt}"
            way, corpus = _damaged(place.rng, _undamaged(folder, name, command))
            ended = try_input(_COMMANDS[command](folder, corpus, name), folder)
            said = judged(ended, folder, _SENTINELS)
            codes.append(ended.code)
            wrong += [f"{way}: {said}"] if said else []
    return Outcome(_EACH, tuple(wrong), tuple(f"exit {code}" for code in codes))


def _quoting() -> None:
    """A known-wrong `tacit`: the message of a malformed line quotes it."""
    import tacit.corpus.json_objects as objects

    def wrong(*arguments: object) -> object:
        from tacit.errors import DataError

        raise DataError(f"line 1 is malformed: {SENTINEL}1")

    objects.objects_by_line = wrong  # pyright: ignore[reportAttributeAccessIssue]
    import tacit.corpus.json_records as json_records

    json_records.objects_by_line = wrong  # pyright: ignore[reportAttributeAccessIssue]


def _control(setting: Setting) -> Outcome:
    with setting.trial("corpora", "control", 0) as place:
        corpus = place.folder / "corpus.jsonl"
        _as_lines(corpus, _records())
        _as_lines(place.folder / "public.jsonl", [{"id": "1", "text": "public text"}])
        arguments = _screen(place.folder, corpus, "jsonl")
        said = judged(Child(arguments, place.folder / "said", prepare=_quoting).end(), place.folder, _SENTINELS)
        return Outcome(1, (said,) if said else ())


CORPORA = Attack(
    title="Damaged corpora",
    says=(
        f"Private corpora in every format, damaged in one of {len(BYTES) + 5} ways (`hostile/mutations.py`; another ending, a "
        "folder, a link to itself or a device, a pipe), with a secret in each record's text, id and user. Expected: exit code 0, "
        "2, 3, 4 or 5 (0 if undamaged), one line where it is not 0, no traceback, no secret printed or outside run/private, an "
        "end within two minutes."
    ),
    rows=_ROWS,
    count=5000,
    a_trial=_EACH,
    trial=_trial,
    control_says="the message of a malformed line quotes it",
    control=_control,
)

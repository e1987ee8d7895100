"""A rare word in text, ids, names of people, files and folders: searched for in all that commands print and leave."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.folders import gpt2_folder
from tests.small import SENTINEL

from hostile.attack import Attack, Outcome, Setting
from hostile.cases import CASES, config_in, records_of
from hostile.children import Child, Ended, complaint
from hostile.search import found_in, holds, needles_of

__all__ = ["SENTINELS"]

_WORD = SENTINEL
_WIDE = "zqsentinelwörd"
"""Not ASCII: JSON, HTML and URLs each write it in another way."""

_PREFIX = "zqsentinelfolder"
_CONFIGS = ("config.json", "finetune.json")
"""Where the path of the private corpus stands, for the curator alone: mode 0600."""


@dataclass(frozen=True)
class _Planted:
    """A kind of run whose private text, ids and names all hold a sentinel."""

    values: dict[str, Any]
    private: Path
    public: Path
    words: tuple[str, ...]


def _plant(setting_case: str, folder: Path) -> _Planted:
    """Public corpora and models in one folder, the private text in another, whose name is a sentinel."""
    case = CASES[setting_case]
    public, private = folder / "public", folder / _PREFIX / f"{_PREFIX}-inner"
    public.mkdir()
    private.mkdir(parents=True)
    case.write(public)
    values = case.values(public)
    words = (*case.sentinels, _WIDE, _PREFIX)
    if "documents" in values:
        target = private / f"{_PREFIX}-notes"
        (public / "notes").rename(target)
        for number, path in enumerate(sorted(target.iterdir())):
            path.write_text(f"{_WIDE}{number}\tO\n" + path.read_text())
            path.rename(path.with_name(f"{_PREFIX}-{path.name}"))
        values["documents"]["path"] = str(target)
        return _Planted(values, target, public, words)
    source = Path(values["private"]["path"])
    target = private / f"{_PREFIX}-{source.name}"
    _write_planted(source, target, dialogues=source.name == "dialogues.jsonl")
    source.unlink()
    values["private"]["path"] = str(target)
    return _Planted(values, target, public, words)


def _write_planted(source: Path, target: Path, dialogues: bool) -> None:
    """A sentinel in every id and name; in the text too, where no stage trains on text without noise."""
    rows = []
    for number, record in enumerate(records_of(source)):
        named = {name: f"{_WIDE}{value}" for name, value in record.items() if name in ("id", "note_id", "patient_id")}
        text = record["text"] if dialogues else f"{record['text']} {_WIDE}{number}"
        rows.append({**record, **named, "text": text})
    target.write_text("".join(json.dumps(row) + "\n" for row in rows))


Command = tuple[str, list[str | Path]]


def _commands(name: str, config: Path, run: Path, planted: _Planted) -> list[Command]:
    """What a curator may call, in the order of a run's life."""
    report, verify = ("report", ["report", run]), ("verify", ["verify", run])
    ledger: list[Command] = [("ledger", ["ledger", run]), ("ledger", ["ledger", run, "--json"])]
    audit: list[Command] = [("audit", ["audit", run]), ("audit", ["audit", run, "--json"])]
    planned: list[Command] = [("plan", ["plan", config]), ("plan", ["plan", config, "--json"])]
    if CASES[name].command == "finetune":
        return [*planned, ("finetune", ["finetune", config]), ("finetune", ["finetune", config]), *ledger, verify]
    own: list[Command] = []
    if "screening" in planted.values:
        own.append(("screen", ["screen", config, "--json"]))
    if planted.values.get("public"):
        own.append(("overlap", ["overlap", config, "--json"]))
    if "adaptive" in planted.values:
        out = ["--model", planted.public / "scorer", "--workers", "1", "--lower", "5", "--upper", "7"]
        own.append(("score", ["score", "--data", planted.private, *out, "--out", run.parent / "private-scores"]))
    until = ("vocabulary", "control", "evaluation", "audit", "report", "report")
    stages: list[Command] = [("run", ["run", config, "--until", stage]) for stage in until]
    confidential: list[Command] = (
        [("confidentiality", ["confidentiality", run])] if "screening" in planted.values else []
    )
    return [*planned, *own, *stages, report, *ledger, verify, *audit, *confidential]


def _allowed(command: str) -> tuple[int, ...]:
    """An audit's gate may fail, and an audit of what has none is refused; `overlap` finds nothing or says so."""
    return {"audit": (0, 2, 5), "overlap": (0, 4), "run": (0, 5), "verify": (0,)}.get(command, (0,))


def _leaks(place: Path, words: Sequence[str]) -> list[str]:
    """Where a word is, outside what the curator keeps; the path in the configuration is allowed, for its owner alone."""
    needles = needles_of(words)
    run = place / "work" / "run"
    found = [name for name in found_in(run, needles, leave_out=("private",)) if name not in _CONFIGS]
    found += [f"tmp/{name}" for name in found_in(place / "tmp", needles)]
    kept = {"private-scores", "run", "config.yaml"}
    found += [path.name for path in (place / "work").iterdir() if path.name not in kept and found_in(path, needles)]
    for name in _CONFIGS:
        path = run / name
        if path.exists():
            found += _beside_the_path(path, needles)
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                found.append(f"{name}, whose mode is {stat.S_IMODE(path.stat().st_mode):o}")
    return found


def _beside_the_path(path: Path, needles: Sequence[bytes]) -> list[str]:
    """Without what stands under ``path``, nothing of a configuration may hold a word."""

    def without(values: Any) -> Any:
        if isinstance(values, dict):
            return {name: without(value) for name, value in values.items() if name != "path"}
        return [without(value) for value in values] if isinstance(values, list) else values

    text = json.dumps(without(json.loads(path.read_text())))
    return [f"{path.name}, beside the path"] if holds(text.encode(), needles) else []


def _in_own_tmp(folder: Path) -> Callable[[], None]:
    def prepare() -> None:
        os.environ["TMPDIR"] = str(folder)

    return prepare


def _said(ended: Ended, words: Sequence[str]) -> bool:
    return holds((ended.out + ended.err).encode(), needles_of(words))


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    with setting.trial("sentinel", row, number) as place:
        for name in ("work", "tmp", "data"):
            (place.folder / name).mkdir()
        planted = _plant(row, place.folder / "data")
        if "adaptive" in planted.values:
            gpt2_folder(planted.public / "scorer")
        run = place.folder / "work" / "run"
        config = config_in(place.folder / "work", planted.values, run)
        wrong, tried = [], 0
        for command, arguments in _commands(row, config, run, planted):
            child = Child(arguments, place.folder / "said", place.folder / "work", _in_own_tmp(place.folder / "tmp"))
            ended = child.end()
            tried += 1
            said = complaint(ended, _allowed(command))
            wrong += [f"{command}: {said}"] if said else []
            wrong += [f"{command}: printed a sentinel"] if _said(ended, planted.words) else []
            wrong += [f"{command}: {leak}" for leak in _leaks(place.folder, planted.words)]
        return Outcome(tried, tuple(dict.fromkeys(wrong)))


def _telling() -> None:
    """A known-wrong `tacit`: a line of progress that names what it reads."""
    from tacit.progress import TerminalReporter

    real = TerminalReporter.say
    TerminalReporter.say = lambda self, line: real(self, f"{line} {_WIDE}3")


def _control(setting: Setting) -> Outcome:
    with setting.trial("sentinel", "control", 0) as place:
        planted = _plant("LSTM", place.folder)
        config = config_in(place.folder, planted.values, place.folder / "run")
        ended = Child(["run", config, "--until", "vocabulary"], place.folder / "said", prepare=_telling).end()
        return Outcome(1, ("vocabulary: printed a sentinel",) if _said(ended, planted.words) else ())


SENTINELS = Attack(
    title="A sentinel",
    says=(
        "Rare words (one not ASCII) in private text, ids, names, and names of files and folders; all that each command of a "
        "run's life prints and leaves is searched: file names, contents, inside gzip, zip, torch's files and SQLite, in JSON, "
        "HTML, URL, base64 and UTF-16. Expected: nowhere but in run/private, and as the path in run/config.json or finetune.json "
        "(mode 0600). Rows count commands."
    ),
    rows=tuple(CASES),
    count=160,
    a_trial=16,
    trial=_trial,
    control_says="a line of progress that names a person",
    control=_control,
)

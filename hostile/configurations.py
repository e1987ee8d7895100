"""Damaged configurations: options missing, misspelt, of other types; YAML cut, flipped, nested, aliased, with planted code."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tests.small import SENTINEL

from hostile.attack import Attack, Outcome, Setting
from hostile.cases import CASES, config_in
from hostile.children import Child
from hostile.inputs import EXECUTED, judged, try_input
from hostile.mutations import BYTES, DEEP

__all__ = ["CONFIGURATIONS"]

_EACH = 10
_JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 0.5, 1e-300, 1e308, float("nan"), float("inf"), -0.0, 2**63, 10**400, "", "x", "NaN",
    "1", "\x1b[31m", "\u202e", "\ud800", "a" * 100_000, "${HOME}", "${NOT_THERE_AT_ALL}", "/dev/null", "..", [], {},
    [[]], [None], {"a": {"b": "c"}},
    {1: 2}, [1, "a", {}], "2026-11-23", "!!python/none",
)  # fmt: skip
Change = Callable[[random.Random, dict[str, Any], Path], dict[str, Any]]


def _places(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested mappings and lists."""
    children = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [found for key, value in children for found in ((*path, key), *_places(value, (*path, key)))]


def _holder(values: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        values = values[key]
    return values


def _changed(change: Callable[[random.Random, Any, Any], None]) -> Change:
    """A change of one place."""

    def apply(rng: random.Random, values: dict[str, Any], folder: Path) -> dict[str, Any]:
        found = copy.deepcopy(values)
        path = rng.choice(_places(found))
        change(rng, _holder(found, path), path[-1])
        return found

    return apply


def _replace(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = rng.choice(_JUNK)


def _remove(rng: random.Random, holder: Any, key: Any) -> None:
    del holder[key]


def _misspell(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        name = str(key)
        place = rng.randrange(len(name))
        holder[name[:place] + rng.choice("aeioux_-. \x07é") + name[place + 1 :]] = holder.pop(key)
    else:
        holder.append(holder[key])


def _wrap(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = rng.choice(([holder[key]], {"value": holder[key]}, str(holder[key])))


def _number(rng: random.Random, holder: Any, key: Any) -> None:
    value = holder[key]
    holder[key] = value * rng.choice((-1, 0, 1e-9, 1000, 1e12)) if isinstance(value, int | float) else value


def _swap(rng: random.Random, values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The value of another place."""
    found = copy.deepcopy(values)
    one, other = rng.choice(_places(found)), rng.choice(_places(values))
    _holder(found, one)[one[-1]] = copy.deepcopy(_holder(values, other)[other[-1]])
    return found


_CHANGES: dict[str, Change] = {
    "another value": _changed(_replace),
    "an option missing": _changed(_remove),
    "a name misspelt": _changed(_misspell),
    "wrapped": _changed(_wrap),
    "a number far off": _changed(_number),
    "the value of another option": _swap,
}


def _planted(path: Path) -> tuple[str, ...]:
    """YAML that runs code in a reader that lets it."""
    return (
        f'!!python/object/apply:os.system ["touch {path}"]',
        f'!!python/object/apply:builtins.open ["{path}", "w"]',
        '!!python/object/new:type {args: ["z", !!python/tuple [], {"extend": !!python/name:exec }], '
        f"listitems: \"open('{path}', 'w')\"}}",
        f"!!python/module:{EXECUTED.lower()}",
    )


def _yaml_text(rng: random.Random, text: str, folder: Path) -> bytes:
    """The text itself damaged; such a file is planned, and never run."""
    way = rng.choice(
        ("bytes", "bytes", "deep", "aliases", "planted", "tabs", "twice", "many documents", "a merge of itself")
    )
    line = text.index("\n") + 1
    if way == "bytes":
        return BYTES[rng.choice(tuple(BYTES))](rng, text.encode())
    if way == "deep":
        return rng.choice((b"[", b"{a: ", b"- ", b"? ")) * rng.choice((1000, DEEP))
    if way == "aliases":
        levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
        return f"a0: &a0 [x, x]\n{levels}{text}".encode()
    if way == "planted":
        return f"{text[:line]}planted: {rng.choice(_planted(folder / EXECUTED))}\n{text[line:]}".encode()
    if way == "tabs":
        return text.replace("  ", "\t").encode()
    if way == "many documents":
        return f"{text}\n---\n{text}".encode()
    if way == "a merge of itself":
        return f"x: &x\n  <<: *x\n{text}".encode()
    return (text + text).encode()


_SHAPES, _TEXT, _RUN = "options, planned", "text, planned", "options, begun"


def _values(rng: random.Random, corpora: Path) -> tuple[str, dict[str, Any]]:
    name = rng.choice(tuple(CASES))
    return CASES[name].command, CASES[name].values(corpora)


def _written(rng: random.Random, row: str, corpora: Path, folder: Path) -> tuple[str, list[str | Path]]:
    """A damaged configuration in a file; how it was damaged, and the command to try."""
    command, values = _values(rng, corpora)
    path = folder / "config.yaml"
    if row == _TEXT:
        path.write_bytes(_yaml_text(rng, yaml.safe_dump({**values, "run": "run"}), folder))
        return "text", ["plan", path]
    way = rng.choice(tuple(_CHANGES))
    changed = _CHANGES[way](rng, values, folder)
    text = yaml.safe_dump({**changed, "run": "run"}, allow_unicode=rng.random() < 0.5)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    if row == _SHAPES:
        return way, ["plan", path]
    return way, ["finetune", path] if command == "finetune" else ["run", path, "--until", "vocabulary"]


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    corpora = _corpora(setting)
    wrong, codes = [], []
    with setting.trial("configurations", row, number) as place:
        for attempt in range(_EACH):
            folder = place.folder / f"at-{attempt}"
            folder.mkdir()
            way, arguments = _written(place.rng, row, corpora, folder)
            ended = try_input(arguments, folder)
            said = judged(ended, folder, (SENTINEL, "zqvornak"))
            codes.append(ended.code)
            wrong += [f"{way}: {said}"] if said else []
    return Outcome(_EACH, tuple(wrong), tuple(f"exit {code}" for code in codes))


def _corpora(setting: Setting) -> Path:
    """What all configurations read, made once."""
    folder = setting.root / "configurations"
    if not folder.exists():
        partial = folder.with_name(f"configurations-{id(setting)}-{random.SystemRandom().random()}")
        partial.mkdir(parents=True)
        for name in ("CRT, two rounds", "GPT-2 from a folder", "fine-tuning with DP"):
            CASES[name].write(partial)
        try:
            partial.rename(folder)
        except OSError:  # another job was first
            if not folder.exists():
                raise
    return folder


def _unsafe() -> None:
    """A known-wrong `tacit`: YAML that may name any object of Python."""
    import tacit.config.load as load

    load.parse_yaml = yaml.unsafe_load


def _control(setting: Setting) -> Outcome:
    with setting.trial("configurations", "control", 0) as place:
        path = config_in(place.folder, {"title": "x"}, Path("run"))
        path.write_text(f"planted: {_planted(place.folder / EXECUTED)[1]}\n")
        ended = Child(["plan", path], place.folder / "said", prepare=_unsafe).end()
        said = judged(ended, place.folder, (SENTINEL,))
        return Outcome(1, (said,) if said == "planted code was executed" else ())


CONFIGURATIONS = Attack(
    title="Damaged configurations",
    says=(
        "Configurations with one place changed (value, type, number far off, option missing or misspelt), planned or begun; and "
        "as text: cut, flipped, nested, aliased, other codings, YAML that would run code. Expected: as for damaged corpora, no "
        "control character printed, no planted code executed."
    ),
    rows=(_SHAPES, _TEXT, _RUN),
    count=3000,
    a_trial=_EACH,
    trial=_trial,
    control_says="a reader of YAML that lets it name any object of Python",
    control=_control,
)

"""Synthetic corpora for tests, the demo and the audit: private clinical-style notes, and public everyday prose.

Both come from small random grammars. In the private one a patient's conditions decide symptoms, findings, tests, drugs
and plans, so there is something to learn that the public one does not teach; each note repeats its patient's name,
record number, date of birth, phone and address, so there is something to leak; and some patients carry a canary, a
secret word that occurs in one note only. Nobody in it exists: names are random pairs and phone numbers 555-01xx.

This is test data with a plain seed. It has nothing to do with the keyed randomness that a guarantee rests on.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from tacit.corpus.wordlists.clinical import CANARY_SENTENCES, CONDITIONS, NOTE_GRAMMAR, Condition
from tacit.corpus.wordlists.general import EVERYDAY_GRAMMAR, EVERYDAY_TOPICS, HEALTH_GRAMMAR, HEALTH_TOPICS
from tacit.corpus.wordlists.people import (
    FIRST_NAMES,
    LAST_NAMES,
    STREET_KINDS,
    STREETS,
    TOWN_BEGINNINGS,
    TOWN_ENDINGS,
)
from tacit.errors import UsageError

__all__ = ["SyntheticPrivate", "SyntheticPublic", "expand", "write_json_lines", "write_private", "write_public"]

Grammar = Mapping[str, Sequence[str]]

_SLOT = re.compile(r"\{([^{}]+)\}")
_RANGE = re.compile(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MRN_COUNT = 90_000_000
_MRN_STEP = 37_139_213  # has no factor in common with _MRN_COUNT, so no two patients share a number
_MOST_DRUGS = 4
_HEALTH_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class SyntheticPrivate:
    """How large a private corpus to make.

    Args:
        patients: number of patients; patient i is the same however many there are, but for the canaries.
        notes_per_patient: fewest and most notes of a patient, inclusive.
        canary_fraction: fraction of the patients that carry a canary.
        seed: equal options give equal bytes.

    Raises:
        UsageError: a number is out of range.
    """

    patients: int = 1100
    notes_per_patient: tuple[int, int] = (2, 5)
    canary_fraction: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        fewest, most = self.notes_per_patient
        if self.patients < 1:
            raise UsageError(f"patients must be at least 1, not {self.patients}")
        if not 1 <= fewest <= most:
            raise UsageError(f"notes_per_patient must be (fewest, most) with 1 <= fewest <= most, not {fewest}, {most}")
        if not 0 <= self.canary_fraction <= 1:
            raise UsageError(f"canary_fraction must be in [0, 1], not {self.canary_fraction}")


@dataclass(frozen=True, slots=True)
class SyntheticPublic:
    """How large a public corpus to make.

    Args:
        records: number of short texts, about half of them health education.
        seed: equal options give equal bytes.

    Raises:
        UsageError: ``records`` is below 1.
    """

    records: int = 6000
    seed: int = 1

    def __post_init__(self) -> None:
        if self.records < 1:
            raise UsageError(f"records must be at least 1, not {self.records}")


def write_private(path: Path, options: SyntheticPrivate) -> list[str]:
    """Write a private corpus as JSON lines {"note_id", "patient_id", "text"}, all of it or nothing.

    Returns:
        The planted canary words, each in one note of one patient. They are secrets: keep them on the private side.
    """
    canaries = _canaries(options)
    notes = (note for number in range(options.patients) for note in _notes(number, canaries.get(number), options))
    write_json_lines(path, notes)
    return list(canaries.values())


def write_public(path: Path, options: SyntheticPublic) -> None:
    """Write a public corpus as JSON lines {"id", "text"}, all of it or nothing."""
    write_json_lines(path, (_public_record(number, options) for number in range(options.records)))


def write_json_lines(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Write objects as JSON lines, all of them or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


# Grammars


def expand(template: str, grammar: Grammar, rng: random.Random) -> str:
    """The template with its slots filled at random; the notation is in the docstring of ``tacit.corpus.wordlists``."""
    return _SLOT.sub(lambda match: _fill(match[1], grammar, rng), template)


def _fill(slot: str, grammar: Grammar, rng: random.Random) -> str:
    if "|" in slot:
        return _pick(slot.split("|"), rng)
    if bounds := _RANGE.fullmatch(slot):
        return _number(bounds[1], bounds[2], rng)
    return expand(_pick(grammar[slot], rng), grammar, rng)


def _pick(options: Sequence[str], rng: random.Random) -> str:
    """One of the options, the first the most often: word counts in text fall off with rank."""
    return options[int(len(options) * rng.random() ** 2)]


def _number(low: str, high: str, rng: random.Random) -> str:
    decimals = len(low.partition(".")[2])
    return f"{rng.uniform(float(low), float(high)):.{decimals}f}"


# Private notes


@dataclass(frozen=True, slots=True)
class _Patient:
    sex: str
    birth: date
    identity: dict[str, str]
    conditions: tuple[Condition, ...]
    drugs: dict[str, tuple[str, ...]]  # by the condition's abbreviation, doses filled in: they stay from note to note


def _canaries(options: SyntheticPrivate) -> dict[int, str]:
    """Patient number -> canary word, distinct: "zq" begins no English word, and eight random letters follow."""
    rng = random.Random(f"{options.seed}:canaries")
    carriers = sorted(rng.sample(range(options.patients), round(options.canary_fraction * options.patients)))
    words: dict[str, None] = {}
    while len(words) < len(carriers):
        words["zq" + "".join(rng.choice(_LETTERS) for _ in range(8))] = None
    return dict(zip(carriers, words, strict=True))


def _notes(number: int, canary: str | None, options: SyntheticPrivate) -> Iterator[dict[str, str]]:
    """The notes of one patient in order of time; the canary, if any, is in one of them."""
    rng = random.Random(f"{options.seed}:patient:{number}")
    patient = _patient(number, options.seed, rng)
    count = rng.randint(*options.notes_per_patient)
    carrier = rng.randrange(count)
    visit = date(2016, 1, 1) + timedelta(days=rng.randrange(2000))
    for note in range(count):
        secret = canary if note == carrier else None
        yield {
            "note_id": f"p{number:05d}-n{note}",
            "patient_id": f"p{number:05d}",
            "text": _note(patient, visit, secret, rng),
        }
        visit += timedelta(days=rng.randint(10, 200))


def _patient(number: int, seed: int, rng: random.Random) -> _Patient:
    conditions = _conditions(rng)
    sex = rng.choice(conditions[0].sexes)
    birth = date(2019, 6, 30) - timedelta(days=rng.randint(*conditions[0].ages) * 365 + rng.randrange(365))
    identity = {
        "name": f"{rng.choice(FIRST_NAMES[sex])} {rng.choice(LAST_NAMES)}",
        "mrn": str(10_000_000 + (27_644_437 + seed * 1009 + number * _MRN_STEP) % _MRN_COUNT),
        "dob": f"{birth:%m/%d/%Y}",
        "phone": f"({rng.randint(201, 989)}) 555-01{rng.randrange(100):02d}",
        "address": f"{rng.randint(1, 999)} {rng.choice(STREETS)} {rng.choice(STREET_KINDS)}, "
        f"{rng.choice(TOWN_BEGINNINGS)}{rng.choice(TOWN_ENDINGS)}",
        "clinician": rng.choice(LAST_NAMES),
    }
    drugs = {condition.short: _drugs(condition, rng) for condition in conditions}
    return _Patient(sex, birth, identity, conditions, drugs)


def _conditions(rng: random.Random) -> tuple[Condition, ...]:
    """A main condition and up to two that often come with it."""
    by_name = {condition.short: condition for condition in CONDITIONS}
    main = by_name[_pick(list(by_name), rng)]
    names = [main.short]
    for _ in range(2):
        companion = by_name[_pick(main.often_with, rng)]
        fits = set(main.sexes) <= set(companion.sexes) and companion.short not in names
        if fits and rng.random() < 0.7:
            names.append(companion.short)
    return tuple(by_name[name] for name in names)


def _drugs(condition: Condition, rng: random.Random) -> tuple[str, ...]:
    count = min(len(condition.drugs), rng.choice((1, 2)))
    first = _pick(condition.drugs, rng)
    others = [drug for drug in condition.drugs if drug != first]
    return tuple(expand(drug, {}, rng) for drug in (first, *rng.sample(others, count - 1)))


def _note(patient: _Patient, visit: date, canary: str | None, rng: random.Random) -> str:
    focus = patient.conditions[int(len(patient.conditions) * rng.random() ** 2)]
    slots = patient.identity | _note_slots(patient, focus, visit, rng)
    slots["canary"] = "" if canary is None else rng.choice(CANARY_SENTENCES).replace("{canary_word}", canary)
    grammar = {**NOTE_GRAMMAR, **{name: (value,) for name, value in slots.items()}}
    return expand("{note}", grammar, rng).strip()


def _note_slots(patient: _Patient, focus: Condition, visit: date, rng: random.Random) -> dict[str, str]:
    """What this visit is about, worked out once so that the sections of a note agree."""
    pronoun = {"f": "she", "m": "he"}[patient.sex]
    absent = rng.choice([condition for condition in CONDITIONS if condition not in patient.conditions])
    drugs = [drug for condition in (focus, *patient.conditions) for drug in patient.drugs[condition.short]]
    return {
        "date": visit.isoformat(),
        "age": str((visit - patient.birth).days * 4 // 1461),
        "sex": {"f": "woman", "m": "man"}[patient.sex],
        "she": pronoun,
        "She": pronoun.capitalize(),
        "dx": focus.name,
        "dx_short": focus.short,
        "pmh": ", ".join(condition.short for condition in patient.conditions),
        "meds": "; ".join(list(dict.fromkeys(drugs))[:_MOST_DRUGS]),
        "first_drug": patient.drugs[focus.short][0].partition(" ")[0],
        "denied": " or ".join(_two(absent.symptoms, rng)),
        **dict(zip(("symptom_a", "symptom_b"), _two(focus.symptoms, rng), strict=True)),
        **dict(zip(("finding_a", "finding_b"), _two(focus.findings, rng), strict=True)),
        **dict(zip(("lab_a", "lab_b"), _two(focus.labs, rng), strict=True)),
        **dict(zip(("plan_a", "plan_b"), _two(focus.plans, rng), strict=True)),
    }


def _two(templates: Sequence[str], rng: random.Random) -> list[str]:
    """Two different ones, numbers filled in."""
    return [expand(template, {}, rng) for template in rng.sample(templates, 2)]


# Public prose


def _public_record(number: int, options: SyntheticPublic) -> dict[str, str]:
    rng = random.Random(f"{options.seed}:public:{number}")
    if rng.random() < _HEALTH_SHARE:
        text = expand("{record}", {**HEALTH_GRAMMAR, **_health_topic(rng)}, rng)
    else:
        text = expand("{record}", {**EVERYDAY_GRAMMAR, **_dealt(rng.choice(EVERYDAY_TOPICS), rng)}, rng)
    return {"id": f"public-{number:06d}", "text": text}


def _health_topic(rng: random.Random) -> dict[str, tuple[str, ...]]:
    """A topic whose illness keeps one name through the record."""
    topic = rng.choice(HEALTH_TOPICS)
    illness = _pick(topic["illness"], rng)
    return _dealt(topic, rng) | {"illness": (illness,), "Illness": (illness[0].upper() + illness[1:],)}


def _dealt(topic: Mapping[str, tuple[str, ...]], rng: random.Random) -> dict[str, tuple[str, ...]]:
    """Each list dealt out between ``name`` and ``name_b``, so that a sentence that uses both repeats no word."""
    first = rng.randrange(2)
    return {
        f"{name}{suffix}": words[start::2]
        for name, words in topic.items()
        for suffix, start in (("", first), ("_b", 1 - first))
    }
